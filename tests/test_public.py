"""The public surface: names loaded when used, one root of all errors, and what stays hidden."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.stories import layout

import kvproto
from kvproto.call_arguments import WrongTypeError
from kvproto.errors import (
    ArgumentError,
    EndpointError,
    KvprotoError,
    LinkError,
    MissingExtraError,
    NotFoundError,
    one_line,
)
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

ROOT = Path(__file__).parent.parent
#: how a search and a witness say what they have found: no caller meets them
FOUND = {"Violation", "BrokenProperty", "SearchCut"}


def said(code: str) -> str:
    """The output of a process of its own, which must succeed."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---------------------------------------------------------------------------------------------------- names
def test_every_name_is_there_and_is_listed() -> None:
    assert set(dir(kvproto)) == {*kvproto.__all__, "__version__"}
    assert all(getattr(kvproto, name) is not None for name in kvproto.__all__)
    assert kvproto._HOME.keys() == set(kvproto.__all__) and kvproto._EXTRAS.keys() <= kvproto._HOME.keys()
    with pytest.raises(AttributeError, match="no attribute 'Endpoints'"):
        _ = kvproto.Endpoints


def test_a_name_that_was_fetched_is_the_module_s_own() -> None:
    vars(kvproto).pop("Layout", None)
    fetched = kvproto.Layout
    assert vars(kvproto)["Layout"] is fetched


def test_the_types_that_a_checker_sees_are_those_that_are_fetched() -> None:
    tree = ast.parse(Path(kvproto.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }  # fmt: skip
    assert seen == {name: f"kvproto.{home}" for name, home in kvproto._HOME.items()}


def test_an_import_loads_nothing_of_the_package_but_its_version() -> None:
    code = "import sys, kvproto; print(*(name for name in sys.modules if name.startswith('kvproto.')))"
    assert said(code).split() == ["kvproto.version"]


@pytest.mark.parametrize(
    ("name", "missing", "extras"),
    [
        ("DecodeEndpoint", "torch", "nixl,gpu"),
        ("PrefillEndpoint", "zmq", "nixl,gpu"),
        ("Pool", "torch", "gpu"),
        ("NixlTransport", "numpy", "nixl"),
        ("MooncakeTransport", "numpy", "mooncake-cpu"),
    ],
)
def test_a_missing_library_is_told_by_name_with_what_installs_it(name: str, missing: str, extras: str) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None  # as if it were not installed
import kvproto
try:
    kvproto.{name}
except kvproto.MissingExtraError as error:
    print(isinstance(error, kvproto.KvprotoError), isinstance(error, ImportError), error)
"""
    assert said(code) == (
        f"True True kvproto.{name} needs {missing}, which is not installed: pip install 'kvproto[{extras}]'\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "missing", "told"),
    [
        ("Pool", "torch.cuda", "kvproto.Pool needs torch.cuda, which is not installed: pip install 'kvproto[gpu]'"),
        ("Pool", "kvproto.lost", ""), ("Pool", None, ""), ("Room", "torch", ""),
    ],
)  # fmt: skip
def test_a_module_that_is_missing_is_told_unless_it_is_ours_or_nothing_brings_it(
    name: str, missing: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: str) -> None:
        raise ModuleNotFoundError("as it was", name=missing)

    monkeypatch.setattr(kvproto, "import_module", lost)
    with pytest.raises(MissingExtraError if told else ModuleNotFoundError) as error:
        kvproto.__getattr__(name)
    assert str(error.value) == (told or "as it was")


@pytest.mark.parametrize(
    ("module", "call", "extra"),
    [
        ("nixl._api", "NixlTransport()", "'kvproto[nixl]'"),
        ("mooncake", "MooncakeTransport('::1')", "'kvproto[mooncake-cpu]'"),
    ],
)
def test_a_backend_that_is_missing_is_told_when_one_is_made(module: str, call: str, extra: str) -> None:
    modules = [module, "nixl_cu12._api", "nixl_cu13._api"] if module.startswith("nixl") else [module]
    code = f"""
import sys
import kvproto
sys.modules.update(dict.fromkeys({modules!r}))
try:
    kvproto.{call}
except kvproto.KvprotoError as error:
    print(type(error).__name__, error)
"""
    told = said(code)
    assert told.startswith("BackendUnavailable ") and extra in told


def test_every_name_that_needs_more_than_the_core_has_its_extras() -> None:
    code = """
import sys
class Bare:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {"zmq", "numpy", "torch", "triton", "nixl", "prometheus_client", "opentelemetry"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Bare())
import kvproto
for name in kvproto.__all__:
    try: getattr(kvproto, name)
    except ImportError: print(name)
"""
    assert {*said(code).split()} | {"MooncakeTransport"} == kvproto._EXTRAS.keys()


def test_the_extras_that_are_named_are_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for extras in kvproto._EXTRAS.values():
        assert all(f"\n{extra} = [" in text for extra in extras.split(","))


# --------------------------------------------------------------------------------------------------- errors
def test_words_of_a_peer_are_one_line() -> None:
    assert one_line("a\nb\x1bc") == "a b c" and one_line("plain") == "plain"


def error_classes() -> dict[str, tuple[str, ...]]:
    """Every class of an error in the package, with the names of its bases."""
    found = {}
    for path in (ROOT / "kvproto").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name] = tuple(ast.unparse(base) for base in node.bases)
    types = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}
    kinds = {name for name, kind in types.items() if issubclass(kind, BaseException)}
    errors = dict[str, tuple[str, ...]]()
    while fresh := {name for name, bases in found.items() if name not in errors and kinds & set(bases)}:
        errors |= {name: found[name] for name in fresh}
        kinds |= fresh
    return errors


def test_every_error_has_the_one_root() -> None:
    errors, rooted = error_classes(), {"KvprotoError"}
    assert len(errors) > 20
    while fresh := {name for name, bases in errors.items() if name not in rooted and rooted & set(bases)}:
        rooted |= fresh
    assert errors.keys() - rooted - FOUND == set()


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (ArgumentError, ValueError), (NotFoundError, KeyError), (EndpointError, RuntimeError),
        (LinkError, ConnectionError), (MissingExtraError, ImportError), (kvproto.LayoutError, ValueError),
    ],
)  # fmt: skip
def test_a_kind_is_the_builtin_that_one_would_expect(kind: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(kind, KvprotoError) and issubclass(kind, builtin)


def test_what_an_engine_does_wrong_is_caught_by_the_root() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        prefill, decode, room = pair.prefills[0], pair.decodes[0], pair.name(30)
        pages = pair.tables[room][0]
        wrong: list[Callable[[], object]] = [
            lambda: prefill.open(room, 30, [1 << 30]), lambda: prefill.open(room, 0, pages),
            lambda: prefill.produced(room, 8), lambda: decode.aux(room), lambda: decode.open(room, 30, pages, group=9),
            lambda: decode.open(room, 30, pages, prefix=1), lambda: decode.status(room), lambda: prefill.digests(room),
            lambda: kvproto.Room(-1), lambda: kvproto.Settings(slots=0), lambda: kvproto.Timer(0.0),
            lambda: decode.connect(layout(2), ["nowhere"]), lambda: kvproto.Pool([], []),
        ]  # fmt: skip
        for call in wrong:
            with pytest.raises(KvprotoError):
                call()
        decode.close()
        with pytest.raises(EndpointError, match="closed"):
            decode.open(room, 30, pages)
        with pytest.raises(KvprotoError, match="closed") as polled:
            decode.poll()
        assert isinstance(polled.value, RuntimeError)


def test_a_wrong_type_is_refused_at_the_call_and_the_page_says_so() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        prefill, room = pair.prefills[0], pair.name(30)
        seven: Any = 7
        broken: Any = 1.5
        text: Any = "text"
        prefill.open(room, 30, pair.tables[room][0])
        calls: dict[str, tuple[Callable[[], object], type[Exception]]] = {
            "`Room(1.5)`": (lambda: kvproto.Room(broken), WrongTypeError),
            "`open(7, …)`": (lambda: prefill.open(seven, 30, []), WrongTypeError),
            '`aux(room, "text")`': (lambda: prefill.aux(room, text), WrongTypeError),
            "lists of different lengths": (lambda: prefill.open(kvproto.Room(9), 30, [[1], [1, 2]]), ValueError),
        }
        for said, (call, kind) in calls.items():
            assert said in page
            with pytest.raises(kind) as caught:
                call()
            assert isinstance(caught.value, KvprotoError) == issubclass(kind, KvprotoError)


def test_a_sentence_is_told_without_quotes() -> None:
    assert str(NotFoundError("the room is gone")) == "the room is gone"


# -------------------------------------------------------------------------------------------------- hidden
def test_an_endpoint_shows_calls_and_hides_its_parts() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        for endpoint in (pair.prefills[0], pair.decodes[0]):
            shown = {name for name in dir(endpoint) if not name.startswith("_")}
            assert {name for name in shown if not callable(getattr(endpoint, name))} <= {
                "pool", "trace_dir", "next_deadline", "address", "spans", "closed", "detached",
            }  # fmt: skip
            parts = inside(endpoint)
            assert parts.loop.rank is parts.rank and parts.data.entries is parts.entries


def test_documents_name_nothing_that_is_hidden() -> None:
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.py")):
        parts = r"\b(?:endpoint|prefill|decode|rank)\._?(?:rank|loop|book|entries|data)\b"
        assert not re.findall(parts, path.read_text()), path


def test_examples_and_readme_take_names_from_the_root() -> None:
    for path in (ROOT / "README.md", *(ROOT / "examples").glob("*.py")):
        assert "from kvproto." not in path.read_text(), path


def test_a_trace_that_an_engine_saves_can_be_read(tmp_path: Path) -> None:
    from kvproto.verify.trace.stories import load

    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        room = pair.open(30)
        pair.finish(room)
        pair.prefills[0].save_trace(tmp_path / "trace.jsonl")
    (log,) = load(tmp_path / "trace.jsonl")
    assert log.head.side == "prefill" and log.entries
