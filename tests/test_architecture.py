"""ARCHITECTURE.md names only what exists, and leaves out no queue on a write's path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kvproto.fsm.codec import Body
from kvproto.protocol import messages
from kvproto.protocol.tables import TABLES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
#: what a chunk passes on its way; the queues in here are on the page
ON_THE_WAY = ("fsm/driver.py", "loop", "data", "rank", "endpoint")
QUEUES = ("deque", "OrderedDict")
#: longest page that is still read
LINES = 300
CHART = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
Classes = dict[str, tuple[set[str], set[str]]]


@cache
def trees() -> dict[Path, ast.Module]:
    """Every file of the package, parsed."""
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / "kvproto").rglob("*.py"))}


def attributes(cls: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield each attribute that a class declares or assigns to `self`, with its source."""
    for node in ast.walk(cls):
        if isinstance(node, ast.AnnAssign):
            pairs: list[tuple[ast.expr, str]] = [(node.target, ast.unparse(node))]
        elif isinstance(node, ast.Assign):
            pairs = [pair for target in node.targets for pair in _pairs(target, node.value)]
        else:
            continue
        for target, source in pairs:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr, source
            elif isinstance(target, ast.Name) and node in cls.body:
                yield target.id, source


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, str]]:
    """Each target of an assignment with the source of what it gets."""
    if not isinstance(target, ast.Tuple):
        return [(target, ast.unparse(value))]
    values = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
    return [(each, ast.unparse(values[at] if values else value)) for at, each in enumerate(target.elts)]


@cache
def classes() -> Classes:
    """Members and bases by class; classes of the same name count as one."""
    found: Classes = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                members, bases = found.setdefault(node.name, (set(), set()))
                members |= {name for name, _ in attributes(node)}
                members |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                bases |= {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
    return found


@cache
def plain_names() -> set[str]:
    """Functions and constants of modules, states, and messages as they are called on the wire."""
    found = {state.name for table in TABLES for state in table.states}
    found |= {str(cls.__struct_config__.tag) for cls in vars(messages).values() if _is_message(cls)}
    for tree in trees().values():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


def _is_message(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Body) and value is not Body


def has(name: str, member: str) -> bool:
    """Whether a class or one of its bases has this member."""
    members, bases = classes().get(name, (set[str](), set[str]()))
    return member in members or any(has(base, member) for base in bases)


def exists(name: str) -> bool:
    """Whether there is such a file, class, member, function, constant, state or message."""
    if "/" in name:
        return (ROOT / name).exists()
    first, _, member = name.partition(".")
    if member:
        return has(first, member)
    return first in classes() or first in plain_names()


def named(page: str) -> set[str]:
    """Return the names of a page: those between backticks, and those in its charts."""
    spans = re.findall(r"`([^`\n]+)`", CHART.sub("", page))
    charts = " ".join(CHART.findall(page))
    found = {span for span in spans if re.fullmatch(r"[\w./]+", span)}
    found |= set(re.findall(r"\b[A-Z]\w+\.\w+", charts))
    found |= set(re.findall(r"(?<![\w.])(?:[A-Z][a-z]+){2,}(?![\w.])", charts))
    return found | set(re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)+\b", charts))


def test_everything_that_the_page_names_exists() -> None:
    assert len(named(PAGE)) > 100
    assert sorted(name for name in named(PAGE) if not exists(name)) == []


@pytest.mark.parametrize("name", ["EventLoop._nothing", "NoSuchClass", "kvproto/none.py", "AWAIT_NOBODY", "Ring.boil"])
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    for page in (f"It is `{name}`.", f"```mermaid\nA->>B: {name}\n```"):
        assert "/" in name or [each for each in named(page) if not exists(each)] == [name]
    assert not exists(name)


def queues() -> Iterator[tuple[str, str]]:
    """Yield class and attribute of each queue on a write's path; a log of the newest entries is none."""
    for path, tree in trees().items():
        if str(path.relative_to(ROOT / "kvproto")).startswith(ON_THE_WAY):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    found = {name for name, source in attributes(node) if _is_queue(source)}
                    yield from ((node.name, name) for name in sorted(found))


def _is_queue(source: str) -> bool:
    return any(re.search(rf"\b{kind}\b", source) for kind in QUEUES) and "maxlen" not in source


def test_every_queue_on_the_way_of_a_write_is_on_the_page() -> None:
    found, names = list(queues()), named(PAGE)
    assert len(found) > 15
    # A queue that is a class of its own (`FairQueue`) is named, not what it is made of.
    missing = [f"{cls}.{name}" for cls, name in found if f"{cls}.{name}" not in names and cls not in names]
    assert missing == []


def test_the_page_is_short_and_is_linked() -> None:
    assert len(PAGE.splitlines()) <= LINES
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "(ARCHITECTURE.md)" in (ROOT / page).read_text()
    for path in re.findall(r"\]\((?!#|http)([^)]+)\)", PAGE):
        assert (ROOT / path).exists(), path
