"""The layers: which folder of kvproto may import which, and that no import goes up.

Imports are read from the source with `ast`, those inside functions and under TYPE_CHECKING included: who names a
module knows it, whenever it is loaded.  Modules that are named in strings (the command line's) are not imports.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "kvproto"
#: wings whose folders stand in the table one by one
WINGS = ("verify", "lab")
#: from bottom to top; a folder imports from lower layers and from itself, never from beside it in its own layer
LAYERS: tuple[tuple[str, ...], ...] = (
    ("fsm",),
    ("errors", "arguments", "command_line", "version"),
    ("layout", "call_arguments"),
    ("protocol", "io"),
    ("settings", "room"),
    ("rank",),
    ("observe",),
    ("loop",),
    ("data",),
    ("endpoint",),
    ("metrics",),
    ("adapters",),
    ("__init__",),
    ("cli",),
    ("__main__", "verify", "lab"),
    ("verify/framework",),
    ("verify/claims", "verify/sim"),
    ("verify/trace",),
    ("verify/draw",),
    ("verify/check", "verify/testing"),
    ("verify/prove",),
    ("verify/adapters", "verify/mutate"),
    ("verify/cli",),
    ("lab/warm_ranks",),
    ("lab/process_group",),
    ("lab/bench",),
    ("lab/demo",),
    ("lab/torture",),
    ("lab/cli",),
)
#: those that know less than their layer would let them
ONLY: dict[str, set[str]] = {
    "adapters": {"command_line", "endpoint", "errors", "fsm", "io", "layout", "protocol", "room", "settings"},
    "verify/framework": {"fsm"},
    "verify/mutate": {
        "endpoint", "errors", "fsm", "protocol", "verify/check", "verify/claims", "verify/framework", "verify/prove",
    },
    "errors": {"fsm"}, "layout": {"errors"}, "io": {"call_arguments", "errors", "layout"},
    "call_arguments": {"errors"},
}  # fmt: skip
FLAT = 9
Imports = dict[str, set[str]]


def targets(source: str, package: tuple[str, ...]) -> Iterator[str]:
    """The folder (in a wing: the wing's folder) that each import of a file names; `package`: its place."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, *rest = name.split(".")
            if first == "kvproto":
                flat = bool(rest) and ((PACKAGE / rest[0]).is_dir() or (PACKAGE / f"{rest[0]}.py").exists())
                yield place_of(rest) if flat else "__init__"


def place_of(parts: Sequence[str]) -> str:
    """The table's folder of a module, by the parts of its name; in a wing, the wing's folder."""
    inside = parts[0] in WINGS and len(parts) > 1 and not parts[1].startswith("__init__")
    return "/".join(parts[: 1 + inside]).removesuffix(".py")


def imports_of(root: Path) -> Imports:
    """By folder (or flat module): the others that its files import."""
    found: Imports = {}
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        place = place_of(inside.parts)
        package = ("kvproto", *inside.parent.parts)
        found.setdefault(place, set()).update(set(targets(path.read_text(), package)) - {place})
    return found


def upward(imports: Imports) -> list[str]:
    """The imports that the layers forbid, as `from -> to`."""
    floor = {folder: number for number, layer in enumerate(LAYERS) for folder in layer}
    unknown = sorted(folder for folder in imports if folder not in floor)
    assert not unknown, f"{unknown[0]} stands in no layer"
    return [
        f"{folder} -> {target}"
        for folder, wanted in sorted(imports.items())
        for target in sorted(wanted)
        if floor[target] >= floor[folder] or target not in ONLY.get(folder, wanted)
    ]


def circle(imports: Imports) -> list[str]:
    """Folders that lie on a ring of imports, or between two; empty where there is none."""
    left = set(imports)
    while True:
        imported = {target for folder in left for target in imports[folder]}
        inner = {folder for folder in left if folder in imported and imports[folder] & left}
        if inner == left:
            return sorted(left)
        left = inner


@cache
def all_imports() -> Imports:
    """Those of the whole package; not when the file is loaded, which every process of a run does."""
    return imports_of(PACKAGE)


def test_no_import_goes_up() -> None:
    assert upward(all_imports()) == []


def test_no_two_folders_import_each_other() -> None:
    assert circle(all_imports()) == []


def test_the_framework_knows_nothing_else_and_the_layouts_only_the_errors() -> None:
    assert all_imports()["fsm"] == set()
    assert all_imports()["layout"] == {"errors"}


def test_nothing_that_runs_imports_what_verifies_or_measures() -> None:
    runs = [folder for folder in all_imports() if folder.partition("/")[0] not in WINGS]
    wings = {folder for folder in all_imports() if folder.partition("/")[0] in WINGS}
    assert {folder: all_imports()[folder] & wings for folder in runs if all_imports()[folder] & wings} == {}
    lab = {folder for folder in wings if folder.startswith("lab")}
    assert {folder: all_imports()[folder] & lab for folder in wings - lab if all_imports()[folder] & lab} == {}


@pytest.mark.parametrize("places", [
    ("kvproto.endpoint.prefill_endpoint", "kvproto.endpoint.decode_endpoint"),
    ("kvproto.adapters.prefill_worker", "kvproto.adapters.decode_worker", "kvproto.adapters.vllm.params"),
    ("kvproto.adapters.sglang.sender", "kvproto.adapters.sglang.receiver"),
])  # fmt: skip
def test_a_process_that_serves_loads_no_wing(places: tuple[str, ...]) -> None:
    loaded = "[name for name in sys.modules if name.startswith(('kvproto.verify', 'kvproto.lab'))]"
    code = f"import sys, {', '.join(places)}; print({loaded})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    assert said.strip() == "[]"


def test_few_modules_lie_flat() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= FLAT


def test_every_folder_is_a_package_and_stands_in_the_table() -> None:
    folders = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    assert [str(folder) for folder in folders if not (PACKAGE / folder / "__init__.py").exists()] == []
    assert {folder for layer in LAYERS for folder in layer} == set(all_imports())


@pytest.mark.parametrize(
    ("place", "line", "arrow"),
    [
        ("fsm", "from kvproto.protocol.timing import Timing", "fsm -> protocol"),
        ("fsm", "from kvproto import rank", "fsm -> rank"),
        ("protocol", "import kvproto.io.clock", "protocol -> io"),
        ("io/transports", "from ...loop import event_loop", "io -> loop"),
        ("io", "def late():\n    from kvproto.fsm.table import Row", "io -> fsm"),
        ("fsm", "from kvproto.errors import LinkError", "fsm -> errors"),
        ("rank", "from kvproto import Layout", "rank -> __init__"),
        ("verify/draw", "from kvproto.verify.check import story", "verify/draw -> verify/check"),
        ("endpoint", "from kvproto.verify.trace.stories import merge", "endpoint -> verify/trace"),
    ],
)
def test_a_planted_import_is_found(place: str, line: str, arrow: str, tmp_path: Path) -> None:
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "planted.py").write_text(line + "\n")
    assert upward(imports_of(tmp_path)) == [arrow]


def test_a_planted_circle_is_found() -> None:
    assert circle(all_imports() | {"loop": all_imports()["loop"] | {"data"}}) == ["data", "loop"]
