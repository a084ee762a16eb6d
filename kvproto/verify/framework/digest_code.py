"""Digest code: a function as text, equal where two builds do the same: its syntax tree, written out.

Left out is what does not change what the function does: docstrings, comments, line numbers, annotations, the sentences
of errors and assertions. Names of locals stay; a global name is written as what it stands for, which the caller decides
(`say`), so a helper is followed and a constant is its value. The tree, not the byte code, which every version of Python
writes in its own way; empty fields are left out and the pieces of f-strings joined, since there trees differ, too.

Source may have been edited since it was loaded; it would then say what does not run, and two ends would agree
falsely.  So the source of a function is compiled, and compared with the code that runs.
"""

from __future__ import annotations

import ast
import builtins
import linecache
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kvproto.fsm.errors import KvprotoError

#: fields of a tree that change nothing
UNSAID = frozenset({"annotation", "returns", "type_comment", "type_params", "ctx"})
#: fields of a function, or of its arguments, that belong to the scope around it
AROUND = ("decorator_list", "defaults", "kw_defaults")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*FUNCTIONS, *COMPREHENSIONS)
RUN_TIME = object()


class DigestError(KvprotoError, RuntimeError):
    """Something has no text to be compared by; the sentence names it and the remedy."""


class SourceTexts:
    """Source files, each read once."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    def tree(self, function: FunctionType) -> ast.AST:
        """The tree of a function; DigestError: its source is missing, or is not what runs."""
        where, code = f"{function.__module__}.{function.__qualname__}", function.__code__
        file = self._file(code.co_filename, where)
        if code not in file.codes:
            raise DigestError(f"the source of {where} is not what runs, it was edited since: start the process anew")
        found = file.functions[code.co_name, code.co_firstlineno]
        if len(found) > 1:
            raise DigestError(f"{where} shares its line with another function: give each a line of its own")
        return found[0]

    def _file(self, name: str, where: str) -> _File:
        if name not in self._files:
            linecache.checkcache(name)
            source = "".join(linecache.getlines(name))
            if not source:
                raise DigestError(f"the source of {where} cannot be read: install its package with its sources")
            self._files[name] = _parsed(source, name)
        return self._files[name]


class _File:
    """The functions of a file, by name and first line as their code has them, and all of their codes."""

    def __init__(self, source: str, name: str) -> None:
        tree = ast.parse(source)
        self.codes = frozenset(_codes(compile(tree, name, "exec", dont_inherit=True)))
        self.functions: dict[tuple[str, int], list[ast.AST]] = defaultdict(list)
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
                self.functions[getattr(node, "name", "<lambda>"), first].append(node)


#: by source and name, so that texts can be made again and again; nobody changes a tree
_parsed = lru_cache(maxsize=128)(_File)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


class CodeWriter:
    """Writes the tree of one function; `say` gives the text of what a global name stands for."""

    def __init__(self, function: FunctionType, say: Callable[[object], str]) -> None:
        self._function, self._say = function, say
        self._where = f"{function.__module__}.{function.__qualname__}"
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closure = {name: cell.cell_contents for name, cell in cells if name != "__class__"}
        self._globals = vars(builtins) | function.__globals__ | closure
        self._scopes: list[frozenset[str]] = []

    def text(self, node: Any) -> str:
        """The text of a tree, a list of trees, or a field's value."""
        match node:
            case None:
                return "-"  # a default that there is not; the constant is spelt None
            case list():
                return f"[{', '.join(self.text(each) for each in node if not _says_nothing(each))}]"
            case ast.Name() | ast.Attribute():
                return self._named(node)
            case ast.Constant(value=constant):
                return ascii(constant)
            case ast.JoinedStr():
                return f"JoinedStr{self.text(_joined(node))}"
            case ast.AnnAssign():
                return self._node("Assign", [("targets", [node.target]), ("value", node.value)])
            case ast.Raise(exc=ast.Call(func=said)) | ast.Assert(test=said):
                return f"{type(node).__name__}({self.text(said)})"
            case ast.Import() | ast.ImportFrom() | ast.ClassDef():
                raise DigestError(f"{self._where} has an import or a class within, which is not followed: put it above")
            case ast.AST():
                return self._scope(node) if isinstance(node, SCOPES) else self._node(type(node).__name__, _fields(node))
        return ascii(node)

    def _node(self, kind: str, fields: Iterable[tuple[str, Any]]) -> str:
        said = (f"{name}={self.text(each)}" for name, each in fields if each is not None and each != [])
        return f"{kind}({', '.join(said)})"

    def _scope(self, node: ast.AST) -> str:
        """A function's own name is left out: whoever refers to it says it."""
        outer = self._given() if not self._scopes else ""
        holders = (node, getattr(node, "args", node)) if self._scopes else (node,)
        around = [(name, getattr(holder, name, None)) for name in AROUND for holder in holders]
        if isinstance(node, COMPREHENSIONS):
            around.append(("over", node.generators[0].iter))  # the one part of it that sees the names around it
        outer += self._node("", around) if any(each for _, each in around) else ""
        self._scopes.append(_bound(node))
        inner = self._node(type(node).__name__, ((name, each) for name, each in _fields(node) if name != "name"))
        self._scopes.pop()
        return outer + inner

    def _given(self) -> str:
        """The function's defaults as they are: where it was made, their names may have been locals."""
        by_place, by_name = self._function.__defaults__ or (), self._function.__kwdefaults__ or {}
        said = [*map(self._say, by_place), *(f"{name}={self._say(each)}" for name, each in sorted(by_name.items()))]
        return f"({', '.join(said)})" if said else ""

    def _named(self, node: ast.Name | ast.Attribute) -> str:
        thing = self._meaning_of(node)
        if thing is not RUN_TIME:
            return self._say(thing)
        return node.id if isinstance(node, ast.Name) else f"{self.text(node.value)}.{node.attr}"

    def _meaning_of(self, node: ast.expr) -> Any:
        """Look up a global name, or a name in a module or an enum; RUN_TIME: only a run can tell."""
        if isinstance(node, ast.Name) and not any(node.id in scope for scope in self._scopes):
            if node.id not in self._globals:
                raise DigestError(f"{self._where} names {node.id}, which is not defined")
            return self._globals[node.id]
        if isinstance(node, ast.Attribute):
            owner = self._meaning_of(node.value)
            if isinstance(owner, ModuleType) or (isinstance(owner, type) and issubclass(owner, Enum)):
                return getattr(owner, node.attr)
        return RUN_TIME


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    return ((name, each) for name, each in ast.iter_fields(node) if name not in UNSAID and name not in AROUND)


def _says_nothing(statement: Any) -> bool:
    """A docstring, a declaration, a placeholder."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.AnnAssign(value=None) | ast.Pass():
            return True
    return False


def _joined(node: ast.JoinedStr) -> list[ast.expr]:
    """The pieces of an f-string, neighbouring constants as one, those that are empty as none."""
    pieces: list[ast.expr] = []
    for each in _pieces(node):
        match pieces[-1:], each:
            case _, ast.Constant(value=""):
                pass
            case [ast.Constant(value=before)], ast.Constant(value=after):
                pieces[-1] = ast.Constant(before + after)  # type: ignore[operator]  # both are strings
            case _, ast.FormattedValue(format_spec=ast.JoinedStr(values=[])):
                pieces.append(ast.FormattedValue(each.value, each.conversion, None))
            case _:
                pieces.append(each)
    return pieces


def _pieces(node: ast.JoinedStr) -> Iterator[ast.expr]:
    for each in node.values:
        yield from _pieces(each) if isinstance(each, ast.JoinedStr) else [each]


@lru_cache(maxsize=4096)  # of a tree that is kept
def _bound(scope: ast.AST) -> frozenset[str]:
    """The names that are local to this scope, not to those within it."""
    names: set[str] = set()
    elsewhere: set[str] = set()
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.MatchMapping(rest=str(name)) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Global() | ast.Nonlocal():
                elsewhere.update(node.names)
        if isinstance(node, COMPREHENSIONS):
            names |= {each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr)}
        elif not isinstance(node, FUNCTIONS):
            todo += ast.iter_child_nodes(node)
    return frozenset(names - elsewhere)
