"""Cut or doctored files: each command ends with one line, and no number in them takes memory."""

from __future__ import annotations

import io
import json
import resource
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.doctoring import STRANGE, Document, doctored, get, places, written
from support.night import by_night

from examples.two_phase_commit.parties import WORDS
from examples.two_phase_commit.worlds import SCENES as COMMIT_SCENES
from kvproto.cli import main
from kvproto.fsm import records
from kvproto.verify.claims.kv import KV
from kvproto.verify.draw.scenes import SCENES
from kvproto.verify.trace.stories import lines

ROOT = Path(__file__).parent.parent
COMMIT = ("--tables", "examples.two_phase_commit.parties:PROTOCOL")
#: what a command may take beyond what this process has
ALLOWED = 512 << 20
thorough = settings(max_examples=by_night(400, by_day=40), deadline=None, suppress_health_check=list(HealthCheck))


class Ended(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


@contextmanager
def bounded() -> Iterator[None]:
    """This process can hardly grow while the block runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + ALLOWED, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def ended(*words: str) -> Ended:
    """Run the command within bounds."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), bounded():
        try:
            code = main([*words])
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


def judged(*words: str) -> Ended:
    """Run the command: it ends with 0, with 1 and its findings, or with 2 and a line that names the file."""
    end = ended(*words)
    assert end.code in {0, 1, 2}, end
    assert "Traceback" not in end.err and "not enough memory" not in end.err, end
    if end.code == 2:
        assert end.err.count("\n") == 1 and end.err.startswith(f"kvproto {words[0]}: "), end
    if end.code == 1:
        found = ("the tables say", '"expected":', "is broken", "machine  ")  # the last one: an empty source
        assert any(each in end.out for each in found), end
    return end


@contextmanager
def files(*contents: bytes, suffix: str = ".jsonl") -> Iterator[tuple[Path, list[str]]]:
    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder) / f"{number}{suffix}" for number in range(len(contents))]
        for name, content in zip(names, contents, strict=True):
            name.write_bytes(content)
        yield Path(folder), [str(name) for name in names]


def recorded(texts: Sequence[Iterator[str]]) -> list[Document]:
    return [[json.loads(line) for line in text] for text in texts]


def _scene(name: str) -> list[Document]:
    return recorded([lines(log) for scene in SCENES if scene.name == name for log in scene.logs()])


ABORT = _scene("abort")
VOTES = recorded([records.lines(log, WORDS) for log in COMMIT_SCENES[1].logs()])
STEP, SENT, HEARD = (
    next(i for i, line in enumerate(ABORT[0]) if line["kind"] == kind) for kind in ("step", "sent", "heard")
)
STORIES = {
    path.stem: [json.loads(line) for line in path.read_text().splitlines()]
    for path in sorted((ROOT / "spec" / "counterexamples").glob("*.jsonl"))
}
RESULTS: dict[str, Any] = json.loads((ROOT / "examples" / "results" / "h200.json").read_text())


def tell(paths: list[str], folder: Path, *more: str) -> list[Ended]:
    """Every command that reads traces."""
    subject = "--about" if more else "--room"
    return [
        judged("trace", *paths, *more),
        judged("trace", *paths, subject, "1" if more else "7", *more),
        judged("trace", *paths, "--format", "mermaid", "--links", "--states", *more),
        judged("trace", *paths, "--format", "json", "--out", str(folder / "p.json"), *more),
        judged("replay", *paths, *more),
        judged("replay", *paths, "--any-tables", "--json", *more),
    ]


# ------------------------------------------------------------------------------------------------ any change at all
@thorough
@given(content=st.one_of(*map(doctored, ABORT)))
def test_traces(content: bytes) -> None:
    with files(content, written(ABORT[1])) as (folder, paths):
        codes = {end.code for end in tell(paths, folder)[:4]}
        assert len(codes - {2}) <= 1  # it is readable for all, or for none
        if not codes - {0}:
            assert isinstance(json.loads((folder / "p.json").read_text()), list)


@settings(thorough, max_examples=by_night(100, by_day=20))
@given(data=st.data())
def test_any_numbers_of_copies_are_told(data: st.DataObject) -> None:
    """Any numbers in a trace's messages give a story: every message, and causes before effects."""
    changed: list[Document] = json.loads(json.dumps(ABORT))
    for line in (line for document in changed for line in document if "number" in line):
        line["number"] = data.draw(st.sampled_from([line["number"], 0, 1, 2, 2**62]))
    with files(*map(written, changed)) as (folder, paths):
        assert {end.code for end in tell(paths, folder)} == {0}
        end = judged("trace", *paths, "--room", "7", "--format", "json")
        assert all(each["cause"] is None or each["cause"] < each["index"] for each in json.loads(end.out))


@thorough
@given(content=st.one_of(*map(doctored, VOTES)))
def test_traces_of_another_protocol(content: bytes) -> None:
    with files(content) as (folder, paths):
        tell(paths, folder, *COMMIT)


@settings(thorough, max_examples=by_night(60, by_day=12))
@given(content=st.one_of(*map(doctored, ABORT)))
def test_the_inspector(content: bytes) -> None:
    with files(content) as (folder, paths):
        judged("inspect", *paths, "--out", str(folder / "page.html"))


@thorough
@given(content=st.one_of(*map(doctored, STORIES.values())))
def test_counterexamples(content: bytes) -> None:
    with files(content) as (_, paths):
        judged("check", "--replay", *paths)
        judged("replay", *paths)


def results(bench: str) -> Document:
    run = next(run for run in RESULTS["runs"] if run["bench"] == bench)
    return [{"runs": [{**run, "figures": run["figures"][:8]}]}]


@pytest.mark.parametrize("bench", ["kernels", "pipeline", "control", "demo"])
@settings(thorough, max_examples=by_night(80, by_day=20))
@given(data=st.data())
def test_results(bench: str, data: st.DataObject) -> None:
    pytest.importorskip("tabulate")
    with files(data.draw(doctored(results(bench))), b"<!-- figures -->\n\n<!-- /figures -->\n", suffix=".json") as (
        folder,
        (file, page),
    ):
        judged("bench", "figures", "--results", file)
        judged("bench", "figures", "--results", file, "--into", page)
        judged("bench", "figures", "--results", str(folder / "new.json"), "--add", file)


@settings(thorough, max_examples=20)
@given(
    kind=st.sampled_from(["states", "transitions", "depth", "x", ""]),
    number=st.sampled_from(["569", "-1", str(2**70), "9" * 5000, "nan", "1e400", '"a"', "[]", "{a = 1}", "1979-05-27"]),
    tail=st.sampled_from(["", "[", "\x00", "smoke = 1", "a = " + "[" * 10_000]),
)
def test_golden_counts(kind: str, number: str, tail: str) -> None:
    with files(f'[smoke]\n"{kind}" = {number}\n{tail}\n'.encode(), suffix=".toml") as (_, (file,)):
        before = Path(file).read_bytes()
        if judged("check", "smoke", "--quiet", "--counts", file).code == 2:
            assert Path(file).read_bytes() == before


# ------------------------------------------------------------------------- each place, by what is worst for its kind
def test_no_place_of_a_trace_takes_everything() -> None:
    """Change each place of each kind of line in turn; a refusal names its line."""
    kinds: dict[tuple[Any, ...], Any] = {}
    for line in ABORT[0]:
        names = line.get("event") or line.get("effect") or line.get("message") or {}
        kinds.setdefault((line["kind"], line.get("machine"), names.get("type")), line)
    head = ABORT[0][0]
    refused = 0
    for number, (line, at) in enumerate((each, at) for each in kinds.values() for at in places(each)[1:]):
        changed = json.loads(json.dumps(line))
        get(changed, at[:-1])[at[-1]] = STRANGE[number * 7 % len(STRANGE)]
        document = [changed] if line is head else [head, changed]
        with suppress(records.TraceError):
            assert records.parse([json.dumps(each) for each in document], telling=KV.told())
            continue
        with pytest.raises(records.TraceError, match=f"^trace:{len(document)}: "):
            records.parse([json.dumps(each) for each in document], telling=KV.told())
        refused += 1
    assert number * 0.7 < refused < number


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        ((0, "side"), "", "Head.side: '' is no"),
        ((0, "timing", "call", "period"), 1e-300, "Timing.call.period: 1e-300 is out of bounds"),
        ((0, "timing", "lease", "period"), None, "a timer's period is inf"),
        ((0, "format"), 1, "format 1; this version reads format 2"),
        ((1, "time"), "now", "time: 'now' is no float"),
        ((1, "time"), None, "time: null is no time"),
        ((STEP, "row"), -1, "row: -1 is out of bounds"),
        ((STEP, "row"), [], "row: [] is no int"),
        ((STEP, "event", "peer"), 2**40, "is out of bounds"),
        ((STEP, "event", "type"), "Gathered", "fields of Gathered"),
        ((STEP, "machine"), "decode_grant", "decode_grant takes no"),
        ((SENT, "number"), -1, "number: -1 is out of bounds"),
        ((SENT, "number"), 2**63, "is out of bounds"),
        ((SENT, "number"), "1", "number: '1' is no int"),
        ((HEARD, "number"), None, "number: None is no int"),
        ((SENT, "effect"), {"type": "Report", "what": "a", "why": "b"}, "no message leaves by Report"),
    ],
)
def test_what_is_refused_is_named(at: tuple[Any, ...], value: Any, says: str) -> None:
    document = json.loads(json.dumps(ABORT[0]))
    get(document, at[:-1])[at[-1]] = value
    with files(written(document)) as (_, (file,)):
        end = judged("trace", file)
        assert end.code == 2 and f"{file}:{at[0] + 1}: " in end.err and says in end.err


@pytest.mark.parametrize(
    ("field", "value"),
    [("rooms", 2**70), ("prefills", 2**40), ("chunks", 10**4000), ("engine", ["fly"]), ("stages", 0), ("heads", -1),
     ("budget", {"drop": 2**60}), ("nothing", 1), ("net", "pigeons")],
)  # fmt: skip
def test_a_world_without_bounds_is_refused(field: str, value: Any) -> None:
    head, *steps = json.loads(json.dumps(next(iter(STORIES.values()))))
    head["config"][field] = value
    with files(written([head, *steps])) as (_, (file,)):
        end = judged("check", "--replay", file)
        assert end.code == 2 and file in end.err and ("$." in end.err or "unknown field" in end.err)


@pytest.mark.parametrize("command", [("trace",), ("replay",), ("inspect",), ("check", "--replay")])
def test_a_device_without_an_end_is_refused(command: tuple[str, ...], tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    end = judged(*command, "/dev/zero")
    assert end.code == 2 and "/dev/zero" in end.err
