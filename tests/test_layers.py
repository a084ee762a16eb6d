"""The layers: which folder of kvproto may import which, and that no import goes up.

Imports are read from the source with `ast`, those inside functions and under TYPE_CHECKING included: who names a
module knows it, whenever it is loaded.  Modules that are named in strings (the command line's) are not imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "kvproto"
#: from bottom to top; a folder imports from lower layers and from itself, never from beside it in its own layer
LAYERS: tuple[tuple[str, ...], ...] = (
    ("fsm",),
    ("errors", "arguments", "version"),
    ("layout", "call_arguments"),
    ("protocol", "io"),
    ("rank",),
    ("trace", "sim"),
    ("engine", "draw"),
    ("check", "testing"),
    ("prove",),
    ("adapters", "mutate"),
    ("bench",),
    ("demo",),
    ("torture",),
    ("cli",),
    ("__init__", "__main__"),
)
#: those that know less than their layer would let them
ONLY: dict[str, set[str]] = {
    "adapters": {"engine", "errors", "fsm", "io", "layout", "protocol", "rank", "trace"},
    "mutate": {"check", "errors", "fsm", "protocol", "prove"},
    "errors": {"fsm"}, "layout": {"errors"}, "io": {"call_arguments", "errors", "layout"},
    "call_arguments": {"errors"},
    "engine": {"call_arguments", "errors", "fsm", "layout", "protocol", "rank", "io", "trace"},
}  # fmt: skip
FLAT = 8
Imports = dict[str, set[str]]


def targets(source: str, package: tuple[str, ...]) -> Iterator[str]:
    """The folder (or flat module) of kvproto that each import of a file names; `package`: where the file lies."""
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
                yield rest[0] if flat else "__init__"


def imports_of(root: Path) -> Imports:
    """By folder (or flat module): the others that its files import."""
    found: Imports = {}
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        place = inside.parts[0].removesuffix(".py")
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


IMPORTS = imports_of(PACKAGE)


def test_no_import_goes_up() -> None:
    assert upward(IMPORTS) == []


def test_no_two_folders_import_each_other() -> None:
    assert circle(IMPORTS) == []


def test_the_framework_knows_nothing_else_and_the_layouts_only_the_errors() -> None:
    assert IMPORTS["fsm"] == set()
    assert IMPORTS["layout"] == {"errors"}


def test_few_modules_lie_flat() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= FLAT


def test_every_folder_is_a_package_and_stands_in_the_table() -> None:
    folders = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    assert [str(folder) for folder in folders if not (PACKAGE / folder / "__init__.py").exists()] == []
    assert {folder for layer in LAYERS for folder in layer} == set(IMPORTS)


@pytest.mark.parametrize(
    ("place", "line", "arrow"),
    [
        ("fsm", "from kvproto.protocol.timing import Timing", "fsm -> protocol"),
        ("fsm", "from kvproto import rank", "fsm -> rank"),
        ("protocol", "import kvproto.io.clock", "protocol -> io"),
        ("io/transports", "from ...engine import loop", "io -> engine"),
        ("io", "def late():\n    from kvproto.fsm.table import Row", "io -> fsm"),
        ("fsm", "from kvproto.errors import LinkError", "fsm -> errors"),
        ("rank", "from kvproto import Layout", "rank -> __init__"),
        ("draw", "from kvproto.check import story", "draw -> check"),
    ],
)
def test_a_planted_import_is_found(place: str, line: str, arrow: str, tmp_path: Path) -> None:
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "planted.py").write_text(line + "\n")
    assert upward(imports_of(tmp_path)) == [arrow]


def test_a_planted_circle_is_found() -> None:
    assert circle(IMPORTS | {"trace": IMPORTS["trace"] | {"draw"}}) == ["draw", "trace"]
