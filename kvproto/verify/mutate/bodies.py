"""Bodies: mutants of the rows' functions: guards, changes, effects and helpers, changed at one place.

The operators are those of the code (`operators`), and a mutant is named by the statement as it is then.  What a step
says is written out of the functions' source (`kvproto.fsm.inline`), so a change in place would not be seen: the
functions of the file are made anew, with the changed one among them, in a copy of the file's names.  The rows that
name the changed one, or one that asks it, are given the new ones, and are compiled anew; the old ones stay whole, for
whoever compares.

Some functions are asked by ranks, claims or endpoints as well (`asked_elsewhere`): these are given the new ones, too.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from kvproto.endpoint.group_table import decode_group
from kvproto.fsm.table import Row, Table
from kvproto.fsm.vocabulary import TimerFired
from kvproto.protocol.tables import TABLES
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.mutate.operators import change, mutants_of

#: where all of the code lies, and its package's name
HOUSE = Path(__file__).parents[2]
#: the tables that are mutated: the transfer's, and that of the decode endpoint (`mutated` has others take their place)
MUTATED: list[Table[Any]] = [*TABLES, decode_group]


class Body(msgspec.Struct, frozen=True):
    """A function of a module with its change: its tree, and the first line of the changed statement."""

    module: str
    function: str
    tree: ast.FunctionDef
    says: str


@contextmanager
def mutated(tables: Iterable[Table[Any]]) -> Iterator[None]:
    """Have these tables be the mutated ones while the block runs."""
    own = list(MUTATED)
    try:
        MUTATED[:] = tables
        bodies.cache_clear()
        yield
    finally:
        MUTATED[:] = own
        bodies.cache_clear()


@cache
def bodies(table: str) -> tuple[Body, ...]:
    """Return the functions that this table's rows use, and those that no table of the file uses.

    A table that stands behind another one in its file has none that the other one uses.
    """
    (mine,) = [each for each in MUTATED if each.name == table]
    beside = [each for each in MUTATED if _module(each) == _module(mine)]
    return tuple(each for each in _of_module(_module(mine)) if _owner(each, beside) is mine)


def plant(bench: TablePatch, body: Body) -> None:
    new = _made(body)
    for table in MUTATED:
        for row in list(table.rows):
            fields = {"when": new.get(row.when), "let": new.get(row.let)}
            changed = {name: each for name, each in fields.items() if each is not None}
            if not new.keys().isdisjoint(row.do):
                changed["do"] = tuple(new.get(each, each) for each in row.do)
            if changed:
                bench.change(table, [row], **changed)
        if table.tries in new:
            bench.patch(table, "tries", new[table.tries])
        if not new.keys().isdisjoint(table.periods.values()):
            bench.patch(table, "periods", {state: new.get(each, each) for state, each in table.periods.items()})
    if asked_elsewhere(body):
        _plant_elsewhere(bench, new)


def touched(body: Body) -> tuple[tuple[str, Row], ...]:
    old = set(_old(body))
    return tuple((table.name, row) for table in MUTATED for row in table.rows if old & _asks(table, row))


def compares(body: Body) -> bool:
    """Tell whether the steps of the rows show all of its changes: no other code asks it for a value or
    time.
    """
    old = set(_old(body))
    of_time = {each for table in MUTATED for each in (table.tries, *table.periods.values())}
    return not old & of_time and not asked_elsewhere(body)


def asked_elsewhere(body: Body) -> bool:
    """A module beside the tables uses one of the functions that it changes."""
    return not _names_elsewhere(body.module).isdisjoint(_dependents(body.module)[body.function])


# ------------------------------------------------------------------------------------------------ what there is
def _module(table: Table[Any]) -> str:
    """Name the module whose lines the table's rows are."""
    file = table.rows[0].file
    if Path(file).is_relative_to(HOUSE):
        return ".".join(Path(file).relative_to(HOUSE.parent).with_suffix("").parts)
    loaded = ((name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items()))
    return next(name for name, place in loaded if place == file)


def _house(module: str) -> Path:
    """Return the folder whose files may ask functions of this module."""
    top = module.partition(".")[0]
    return HOUSE if top == HOUSE.name else Path(_loaded(module).__file__ or "").parent


@cache
def _functions(module: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(_text(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _text(module: str) -> str:
    return inspect.getsource(_loaded(module))


def _loaded(module: str) -> ModuleType:
    return import_module(module)


@cache
def _of_module(module: str) -> tuple[Body, ...]:
    text = _text(module)
    tree = ast.parse(text)
    nodes, homes = list(ast.walk(tree)), dict[ast.AST, tuple[ast.FunctionDef, ast.stmt]]()
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            for statement in [each for each in ast.walk(function) if isinstance(each, ast.stmt)]:
                homes |= dict.fromkeys(ast.walk(statement), (function, statement))
    seen = {ast.unparse(function) for function in _functions(module).values()}
    found: list[Body] = []
    for mutant in mutants_of(module, text):
        node = nodes[mutant.node]
        if node not in homes:
            continue  # a property of a value
        function, statement = homes[node]
        memo: dict[int, Any] = {}
        made = deepcopy(function, memo)
        change(made, memo[id(node)], mutant)
        says = ast.unparse(memo[id(statement)]).splitlines()[0]
        if ast.unparse(made) not in seen:
            seen.add(ast.unparse(made))
            found.append(Body(module, function.name, made, says))
    return tuple(found)


def _owner(body: Body, beside: list[Table[Any]]) -> Table[Any]:
    old = set(_old(body))
    return next((each for each in beside if any(old & _asks(each, row) for row in each.rows)), beside[0])


@cache
def _dependents(module: str) -> dict[str, set[str]]:
    """Map each function to those that call it, directly or not, and to itself."""
    asks = {
        name: {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        for name, function in _functions(module).items()
    }
    found = {name: {name} for name in asks}
    for those in found.values():
        more = set(those)
        while more:
            more = {each for each, asked in asks.items() if asked & more} - those
            those.update(more)
    return found


def _old(body: Body) -> list[Any]:
    return [vars(_loaded(body.module))[name] for name in _dependents(body.module)[body.function]]


def _asks(table: Table[Any], row: Row) -> set[Any]:
    found = {row.when, row.let, *row.do}
    if row.target is row.source and issubclass(row.event, TimerFired):
        found.add(table.tries)
    if row.verb == "row" and (row.again or row.target is not row.source):
        found.add(table.periods.get(row.target))
    return found


@cache
def _names_elsewhere(module: str) -> set[str]:
    """Return the names that other modules of its package import from this one."""
    found: set[str] = set()
    for file in _house(module).rglob("*.py"):
        text = file.read_text()
        if module in text:
            imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
            found |= {each.name for node in imports if node.module == module for each in node.names}
    return found


# ------------------------------------------------------------------------------------------------- what is made
def _made(body: Body) -> dict[Any, Any]:
    """The new functions, by the old ones."""
    module = _loaded(body.module)
    functions = _functions(body.module) | {body.function: body.tree}
    tree = ast.fix_missing_locations(ast.Module(list(functions.values()), []))
    scope = dict(vars(module))
    exec(compile(tree, module.__file__ or body.module, "exec"), scope)  # noqa: S102
    return {vars(module)[name]: scope[name] for name in _dependents(body.module)[body.function]}


def _plant_elsewhere(bench: TablePatch, new: Mapping[Any, Any]) -> None:
    packages = {str(old.__module__).partition(".")[0] for old in new}
    for owner, name, value in list(_held(packages)):
        if value in new:
            bench.patch(owner, name, new[value])


def _held(packages: set[str]) -> Iterator[tuple[ModuleType, str, Any]]:
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").partition(".")[0] in packages:
            yield from ((module, name, each) for name, each in vars(module).items() if inspect.isfunction(each))
