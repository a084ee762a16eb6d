"""Source: a guard or a change as an expression, read from its source.

Guards and changes are small pure functions, most of them one `return`.  For a reader without the code their sentence
says what is meant, and this says it exactly, in Python's notation.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import msgspec

from kvproto.fsm.table import Table

PLAIN = (int, float, str, bytes, msgspec.Struct)


@cache
def expression(function: Callable[..., object]) -> str:
    """The body without its docstring, on one line: `now < v.lease`, or `a = ...; b`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except OSError as error:
        raise RuntimeError(f"{function.__name__} has no source to read: install kvproto with its sources") from error
    assert isinstance(tree, ast.FunctionDef)
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    parts = [ast.unparse(s.value) if isinstance(s, ast.Return) and s.value else ast.unparse(s) for s in body]
    return "; ".join(" ".join(part.split()) for part in parts)


def helpers(functions: list[Callable[..., object]]) -> Iterator[Callable[..., object]]:
    """The functions of the same package that these call, directly or not, and that are not among them."""
    known = set(functions)
    todo = list(functions)
    while todo:
        function = todo.pop(0)
        for name in function.__code__.co_names:
            found = function.__globals__.get(name)
            if inspect.isfunction(found) and _package(found) == _package(function) and found not in known:
                known.add(found)
                todo.append(found)
                yield found


def _package(function: Callable[..., object]) -> list[str]:
    """Return what the modules of a protocol have in common, where it lies in several."""
    return function.__module__.split(".")[:2]


def constants(functions: Iterable[Callable[..., object]]) -> dict[str, object]:
    """Return the numbers, texts and values in capitals that these functions name."""
    found: dict[str, object] = {}
    for function in functions:
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if name.isupper() and isinstance(value, PLAIN) and not isinstance(value, Enum):
                found[name] = value
    return found


def used(table: Table[Any]) -> tuple[list[Callable[..., Any]], list[Callable[..., Any]], list[Callable[..., Any]]]:
    """The guards, changes and effects that the rows name, each once, in the order of the rows."""
    guards = dict.fromkeys(row.when for row in table.rows if row.when)
    lets = dict.fromkeys(row.let for row in table.rows if row.let)
    effects = dict.fromkeys(each for row in table.rows for each in row.do)
    return list(guards), list(lets), list(effects)
