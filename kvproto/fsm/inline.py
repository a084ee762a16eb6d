"""Inline: turns a table's small functions into expressions that the compiled step contains.

Guards, changes and effects are mostly one `return`.  Its expression, with renamed parameters, replaces the call: the
meaning is the same, and a call is a large part of the cost of a step.  Helpers of one `return` are inlined, too, if
their arguments are plain names, so nothing is computed twice.  Members of enums and of modules are looked up once,
here, and not in each step.

Anything else (several statements, a closure, a default argument, a lambda or a comprehension, missing source) stays a
call.  Behaviour does not depend on which of the two it is.
"""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Callable
from enum import EnumType
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

#: how deep helpers may call helpers
DEPTH = 4
SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr, ast.Await, ast.Yield)
MISSING = object()


def expression(function: Callable[..., Any], arguments: tuple[str, ...], names: dict[str, Any]) -> ast.expr:
    """`function(*arguments)` as an expression; what it refers to is added to `names`."""
    given: list[ast.expr] = [ast.Name(argument, ast.Load()) for argument in arguments]
    inside = _inside(function, given, names, DEPTH)
    if inside is not None:
        return inside
    name = getattr(function, "__name__", "")
    name = name if name.isidentifier() else "call"  # a lambda, or an object that can be called
    return ast.Call(ast.Name(_bind(name, function, names), ast.Load()), given, [])


def _inside(function: Any, given: list[ast.expr], names: dict[str, Any], depth: int) -> ast.expr | None:
    simple = _simple(function) if depth and isinstance(function, FunctionType) else None
    if simple is None or len(simple[0]) != len(given):
        return None
    parameters, body = simple
    place = _Place(dict(zip(parameters, given, strict=True)), function.__globals__, names, depth)
    placed: ast.expr = place.visit(body)
    return placed


class _Place(ast.NodeVisitor):
    """Rebuilds an expression with arguments for parameters, and bound names for global ones.

    The function's own nodes stay as they are, and an argument's node is shared by all its places: nothing changes a
    node once it is made, and to copy them took half the time of compiling a table.
    """

    def __init__(
        self, arguments: dict[str, ast.expr], scope: dict[str, Any], names: dict[str, Any], depth: int
    ) -> None:
        self.arguments, self.scope, self.names, self.depth = arguments, scope, names, depth

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not node._fields:  # an operator or a context
            return node
        return type(node)(**{name: self._rebuilt(value) for name, value in ast.iter_fields(node)})

    def _rebuilt(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._rebuilt(each) for each in value]
        return self.visit(value) if isinstance(value, ast.AST) else value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.arguments:
            return self.arguments[node.id]
        value = self._value(node)
        if value is MISSING:
            raise NameError(f"{node.id} is not defined in {self.scope.get('__name__')}")
        return ast.Name(_bind(node.id, value, self.names), ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = self._value(node)
        if value is not MISSING:
            return ast.Name(_bind(node.attr, value, self.names), ast.Load())
        return ast.Attribute(self.visit(node.value), node.attr, ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.expr:
        given = [self.visit(argument) for argument in node.args]
        if not node.keywords and all(isinstance(argument, ast.Name) for argument in given):
            inside = _inside(self._value(node.func), given, self.names, self.depth - 1)
            if inside is not None:
                return inside
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return ast.Call(self.visit(node.func), given, keywords)

    def _value(self, node: ast.expr) -> Any:
        """Return the value of a name or of a member of an enum or module; MISSING: known only in the step."""
        if isinstance(node, ast.Name):
            if node.id in self.arguments:
                return MISSING
            return self.scope.get(node.id, getattr(builtins, node.id, MISSING))
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            return getattr(owner, node.attr) if isinstance(owner, EnumType | ModuleType) else MISSING
        return MISSING


def _bind(name: str, value: Any, names: dict[str, Any]) -> str:
    """A name of this value, the given one if it is free."""
    while names.setdefault(name, value) is not value:
        name += "_"
    return name


@cache
def _simple(function: FunctionType) -> tuple[tuple[str, ...], ast.expr] | None:
    """Parameters and expression of a function that is one `return`; None if it is more."""
    code = function.__code__
    found = _functions(code.co_filename).get(code)
    if found is None or found.args.vararg or found.args.kwarg or found.args.kwonlyargs:
        return None
    last = found.body[-1]
    if len(found.body) - (ast.get_docstring(found) is not None) != 1 or not isinstance(last, ast.Return):
        return None
    if last.value is None or any(isinstance(node, SCOPES) for node in ast.walk(last.value)):
        return None
    return code.co_varnames[: code.co_argcount], last.value


@cache
def _functions(file: str) -> dict[CodeType, ast.FunctionDef]:
    """Return the functions of a file by their code, so functions of a file edited since are not mistaken."""
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
        module = compile(tree, file, "exec")
    except SyntaxError:
        return {}
    places = {(node.name, node.lineno): node for node in tree.body if isinstance(node, ast.FunctionDef)}
    codes = [code for code in module.co_consts if isinstance(code, CodeType)]
    return {code: places[at] for code in codes if (at := (code.co_name, code.co_firstlineno)) in places}
