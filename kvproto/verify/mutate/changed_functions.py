"""Changed functions: a table's function without one condition of a guard or one field of a change.

The function is compiled anew from its own source, with the same globals and the same name, so that whatever runs tables
runs it as it would run the original: ranks, searches, and proofs on terms.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any, cast

#: a condition: of `a and b` each; a field: of `replace(v, a=1, b=2)` each
Parts = list[Any]


def conditions(guard: Callable[..., bool]) -> list[str]:
    """Return a guard's conditions as text; a single one is none, since nothing is left without it."""
    return [ast.unparse(part) for part in _conditions(_tree(guard))]


def fields(let: Callable[..., Any]) -> list[str]:
    """The fields that the change sets, if it sets several."""
    return [str(part.arg) for part in _fields(_tree(let))]


def without_condition(guard: Callable[..., bool], place: int) -> Callable[..., bool]:
    tree = _tree(guard)
    del _conditions(tree)[place]
    return cast("Callable[..., bool]", _made(guard, tree))


def without_field(let: Callable[..., Any], place: int) -> Callable[..., Any]:
    tree = _tree(let)
    del _fields(tree)[place]
    return _made(let, tree)


@cache
def negated(guard: Callable[..., bool]) -> Callable[..., bool]:

    def not_(v: Any, e: Any, now: float) -> bool:
        return not guard(v, e, now)

    not_.__name__ = guard.__name__
    return not_


def _tree(function: Callable[..., Any]) -> ast.FunctionDef:
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(found, ast.FunctionDef)
    ast.increment_lineno(found, function.__code__.co_firstlineno - 1)
    return found


def _conditions(tree: ast.FunctionDef) -> Parts:
    value = _returned(tree)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "bool":
        (value,) = value.args
    return value.values if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And) else []


def _fields(tree: ast.FunctionDef) -> Parts:
    value = _returned(tree)
    several = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "replace"
    return value.keywords if several and isinstance(value, ast.Call) and len(value.keywords) > 1 else []


def _returned(tree: ast.FunctionDef) -> ast.expr | None:
    last = tree.body[-1]
    return last.value if isinstance(last, ast.Return) else None


def _made(function: Callable[..., Any], tree: ast.FunctionDef) -> Callable[..., Any]:
    for node in ast.walk(tree):  # `a` alone is no `and`
        if isinstance(node, ast.BoolOp) and len(node.values) == 1:
            node.values.append(node.values[0])
    module = ast.fix_missing_locations(ast.Module([tree], []))
    code = compile(module, function.__code__.co_filename, "exec")
    scope: dict[str, Any] = {}
    exec(code, function.__globals__, scope)  # noqa: S102
    made: Callable[..., Any] = scope[function.__name__]
    return made
