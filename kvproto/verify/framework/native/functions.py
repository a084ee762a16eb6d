"""Functions: print a row's Python function, and the helpers that it calls, as C.

A function is printed once for each combination of types that it is called with.  What its source says is printed, so
source that is not what runs is refused.  Printed are `return`, assignments, `if`, `assert` and `raise`, in functions
whose locals are assigned once.  Global names, and members of enums and modules, are constants.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Sequence
from enum import EnumType
from functools import cached_property, partial
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from kvproto.verify.framework.digest_code import DigestError, SourceTexts
from kvproto.verify.framework.native.c_types import (
    TRUTH,
    Boxed,
    CType,
    Nothing,
    Option,
    Record,
    Several,
    Term,
    UnprintableError,
)
from kvproto.verify.framework.native.expressions import Expressions
from kvproto.verify.framework.native.operators import Operators
from kvproto.verify.framework.native.records import Records

BIG = (Record, Option, Boxed)


class Printed(NamedTuple):
    """A function in C: its name, and what it returns."""

    name: str
    gives: CType


class Functions:
    """The functions of one file."""

    def __init__(self, records: Records) -> None:
        self.records, self.operators = records, Operators(records)
        self.text: list[str] = []
        self._sources = SourceTexts()
        self._made: dict[tuple[Any, ...], Printed | None] = {}

    # ------------------------------------------------------------------------------------------- functions
    def printed(self, function: Callable[..., Any], types: Sequence[CType], *, effect: bool = False) -> Printed:
        """Print a function for arguments of these types; `effect`: what it returns goes to `out`."""
        key = function, tuple(types), effect
        if key in self._made:
            found = self._made[key]
            if found is None:
                raise UnprintableError(f"{function.__name__} calls itself")
            return found
        self._made[key] = None
        try:
            self._made[key] = found = self._print(function, types, effect=effect)
        except BaseException:
            del self._made[key]
            raise
        return found

    def _print(self, function: Callable[..., Any], types: Sequence[CType], *, effect: bool) -> Printed:
        if not isinstance(function, FunctionType):
            raise UnprintableError(f"{function!r} is not a plain function: write one with `def`")
        try:
            tree = self._sources.tree(function)
        except DigestError as error:
            raise UnprintableError(str(error)) from error
        number = len(self._made)
        name = f"f{number}_{function.__name__ if function.__name__.isidentifier() else 'anonymous'}"
        body = FunctionBody(self, function, tree, types, effect=effect)
        gives = body.gives
        head = ", ".join(["Run *run", *map(self._parameter, types, body.names), *(["Out *out"] if effect else [])])
        made = "void" if effect else self.records.c(gives)
        self.text.append(f"ROW {made} {name}({head}) {{\n{body.text}}}\n")
        return Printed(name, gives)

    def _parameter(self, of: CType, name: str) -> str:
        kind = self.records.c(of)
        return f"const {kind} *{name}" if isinstance(of, BIG) else f"{kind} {name}"

    def call(self, function: Callable[..., Any], given: Sequence[Term]) -> Term:
        terms = [self._argument(each) for each in given]
        found = self.printed(function, [each.type for each in terms])
        before, codes = "", ["run"]
        for at, each in enumerate(terms):
            if isinstance(each.type, BIG) and not each.place:
                before += f"{self.records.c(each.type)} given{at} = {each.code}; "
                codes.append(f"&given{at}")
            else:
                codes.append(f"&{each.code}" if isinstance(each.type, BIG) else each.code)
        code = f"{found.name}({', '.join(codes)})"
        return Term(f"({{ {before}{code}; }})" if before else code, found.gives)

    def _argument(self, term: Term) -> Term:
        """A number, a mask or a struct can be given to a function, no half of an operation."""
        if isinstance(term.type, Nothing | Several):
            raise UnprintableError("None or a tuple is given to a function")
        return self.operators.convert(term, self.operators.union([term]))


class FunctionBody(Expressions):
    """The statements of one function for arguments of certain types."""

    def __init__(
        self, functions: Functions, function: FunctionType, tree: ast.AST, types: Sequence[CType], *, effect: bool
    ) -> None:  # fmt: skip
        super().__init__(functions.records, functions.operators, functions.call)
        assert isinstance(tree, ast.FunctionDef | ast.Lambda)
        self.function, self.tree, self.effect = function, tree, effect
        self.file = function.__code__.co_filename
        self.names = [each.arg for each in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)]
        if tree.args.vararg or tree.args.kwarg or len(self.names) != len(types):
            raise self.refused(tree, f"{function.__name__} takes other arguments than it is given")
        given = zip(self.names, types, strict=True)
        self.scope = {name: Term(f"(*{name})", of, place=True) if isinstance(of, BIG) else Term(name, of)
                      for name, of in given}  # fmt: skip
        closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.known = vars(builtins) | function.__globals__ | {name: cell.cell_contents for name, cell in closure}
        self._returned: list[Term] = []
        self._gives: CType | None = None

    @cached_property
    def gives(self) -> CType:
        """Return the type of what is returned, and with it print the statements."""
        scope = dict(self.scope)
        self.block(self._statements)  # to see what is returned
        if not self._returned:
            raise self.refused(self.tree, f"{self.function.__name__} returns nothing")
        try:
            gives = self.operators.union(self._returned) if not self.effect else self._returned[0].type
        except UnprintableError as error:
            raise self.refused(self.tree, str(error)) from error
        if isinstance(gives, Several):
            raise self.refused(self.tree, f"{self.function.__name__} returns a tuple")
        self.scope, self._gives = scope, gives
        return gives

    @cached_property
    def text(self) -> str:
        assert self.gives is self._gives
        lines = self.block(self._statements)
        if not self.effect:  # what comes after the last `if` that always returns
            lines.append(f"return ({self.records.c(self.gives)}){{0}};")
        return "".join(f"    {line}\n" for line in lines)

    @property
    def _statements(self) -> list[ast.stmt]:
        if isinstance(self.tree, ast.Lambda):
            return [ast.copy_location(ast.Return(self.tree.body), self.tree.body)]
        return self.tree.body[1:] if ast.get_docstring(self.tree, clean=False) is not None else self.tree.body

    # ------------------------------------------------------------------------------------------ statements
    def block(self, statements: Sequence[ast.stmt]) -> list[str]:
        lines: list[str] = []
        for each in statements:
            lines += self.printing(each, partial(self._statement, each))
        return lines

    def _statement(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.Return(value=value) if value is not None:
                return [self._return(value)]
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self._assign(name, self.term(value))
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                return self._assign(name, self.term(value))
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                return self._unpack(targets, self.term(value))
            case ast.If(test=test, body=body, orelse=orelse):
                return [f"if ({self.truth(test)}) {{", *self._inner(body), "} else {", *self._inner(orelse), "}"]
            case ast.Assert(test=test):
                return [f"if (!{self.truth(test)}) fail(run);"]
            case ast.Raise():
                return ["fail(run);", "return;" if self.effect else f"return ({self._result}){{0}};"]
            case ast.Pass():
                return []
        raise UnprintableError(f"{type(node).__name__} is no statement of C")

    @property
    def _result(self) -> str:
        return self.records.c(self._gives) if self._gives is not None else "int"

    def _inner(self, statements: Sequence[ast.stmt]) -> list[str]:
        """Lines within braces: a name that begins there ends there."""
        outer = dict(self.scope)
        lines = self.block(statements)
        self.scope = outer
        return [f"    {line}" for line in lines]

    def _return(self, value: ast.expr) -> str:
        term = self.term(value)
        self._returned.append(term)
        if self.effect:
            if not isinstance(term.type, Record):
                raise UnprintableError("an effect's function returns no effect and no event")
            tag = self.effect_tag(term.type.struct)
            return f"out->tag = {tag}; *({self.records.c(term.type)} *)out->words = {term.code}; return;"
        if self._gives is None:
            return ""
        if self._gives == TRUTH:
            return f"return {self.operators.truth(term)};"
        return f"return {self.operators.convert(term, self._gives).code};"

    def effect_tag(self, struct: type[Any]) -> int:
        return self.records.effect(struct)

    def _assign(self, name: str, term: Term) -> list[str]:
        if name in self.scope:
            raise UnprintableError(f"{name} is assigned twice")
        if isinstance(term.type, Several):
            raise UnprintableError(f"{name} is a tuple")
        of = self.operators.union([term])
        self.scope[name] = Term(f"l_{name}", of, place=True)
        return [f"{self.records.c(of)} l_{name} = {self.operators.convert(term, of).code}; (void)l_{name};"]

    def _unpack(self, targets: Sequence[ast.expr], term: Term) -> list[str]:
        if not isinstance(term.type, Several) or len(targets) != len(term.parts):
            raise UnprintableError(f"{len(targets)} names are assigned from something else than {len(targets)} terms")
        lines = []
        for target, part in zip(targets, term.parts, strict=True):
            if not isinstance(target, ast.Name):
                raise UnprintableError("something else than a name is assigned")
            lines += self._assign(target.id, part)
        return lines

    # ----------------------------------------------------------------------------------------------- names
    def meaning(self, node: ast.expr) -> Any:
        """Return what a name, or a name in a module or enum, stands for; `...`: only a step can tell."""
        if isinstance(node, ast.Name) and node.id not in self.scope:
            if node.id not in self.known:
                raise UnprintableError(f"{node.id} is not known here: it is assigned in another branch, or nowhere")
            return self.known[node.id]
        if isinstance(node, ast.Attribute):
            owner = self.meaning(node.value)
            if isinstance(owner, ModuleType | EnumType):
                return getattr(owner, node.attr)
        return ...

    def arguments(self, function: Callable[..., Any], node: ast.Call, before: Sequence[Term]) -> list[Term]:
        """Return a call's arguments in the order of the function's parameters, with its defaults."""
        found = list(before) + [self.term(each) for each in node.args]
        named = {each.arg: each.value for each in node.keywords}
        for name, parameter in list(inspect.signature(function).parameters.items())[len(found):]:
            if name in named:
                found.append(self.term(named.pop(name)))
            elif parameter.default is not inspect.Parameter.empty:
                found.append(self.records.constant(parameter.default))
            else:
                raise UnprintableError(f"{function.__name__} is called without {name}")
        if named:
            raise UnprintableError(f"{function.__name__} has no argument {', '.join(map(str, named))}")
        return found
