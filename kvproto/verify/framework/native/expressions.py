"""Expressions: print the expressions of rows as C.

Everything is pure, so an operand that is printed twice means the same twice.  `and`, `or` and the conditional evaluate
no more than Python does: what is not evaluated cannot fail.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from types import FunctionType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from kvproto.fsm.errors import KvprotoError
from kvproto.verify.framework.native.c_types import (
    INT,
    MASK,
    NOTHING,
    REAL,
    SET,
    TRUTH,
    Choice,
    Numbers,
    Option,
    Record,
    Several,
    Term,
    Text,
    UnprintableError,
    field_types,
    in_words,
)
from kvproto.verify.framework.native.operators import Operators
from kvproto.verify.framework.native.records import Records

R = TypeVar("R")


class UnprintableRowError(KvprotoError, TypeError):
    """A row's function that cannot be printed; `where`: file and line."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where, self.why = where, why


class Expressions:
    """The expressions of one function; who prints its statements knows its names."""

    scope: dict[str, Term]
    file: str

    def __init__(
        self, records: Records, operators: Operators, call: Callable[[Callable[..., Any], Sequence[Term]], Term]
    ) -> None:  # fmt: skip
        self.records, self.operators, self._call = records, operators, call

    # ---------------------------------------------------------------------------------------------- errors
    def refused(self, node: ast.AST, why: str) -> UnprintableRowError:
        return UnprintableRowError(f"{self.file}:{getattr(node, 'lineno', 0)}", why)

    def printing(self, node: ast.AST, how: Callable[[], R]) -> R:
        """Print a node; what it cannot say is an error with its line."""
        try:
            return how()
        except UnprintableError as error:
            raise self.refused(node, str(error)) from error

    # -------------------------------------------------------------------------------------- what is to know
    def meaning(self, node: ast.expr) -> Any:
        """Return what a name stands for; `...`: only a step can tell."""
        raise NotImplementedError

    def arguments(self, function: Callable[..., Any], node: ast.Call, before: Sequence[Term]) -> list[Term]:
        raise NotImplementedError

    # ----------------------------------------------------------------------------------------- expressions
    def term(self, node: ast.expr) -> Term:
        return self.printing(node, lambda: self._term(node))

    def truth(self, node: ast.expr) -> str:
        match node:
            case ast.BoolOp(op=op, values=values):
                sign = " && " if isinstance(op, ast.And) else " || "
                return f"({sign.join(map(self.truth, values))})"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"(!{self.truth(operand)})"
        return self.printing(node, lambda: self.operators.truth(self.term(node)))

    def _term(self, node: ast.expr) -> Term:
        meaning = self.meaning(node) if isinstance(node, ast.Name | ast.Attribute) else ...
        if meaning is not ...:
            return self.records.constant(meaning)
        match node:
            case ast.Constant(value=value):
                return self.records.constant(value)
            case ast.Name(id=name):
                return self.scope[name]
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self.term(owner), name)
            case ast.Tuple(elts=each):
                return Term("", Several(), parts=tuple(map(self.term, each)))
            case ast.UnaryOp(op=ast.Not()):
                return Term(self.truth(node), TRUTH)
            case ast.UnaryOp(op=op, operand=operand):
                return self.operators.unary(op, self.term(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return self.operators.binary(op, self.term(left), self.term(right))
            case ast.BoolOp(op=op, values=values):
                return self._either(op, [self.term(each) for each in values])
            case ast.Compare(left=left, ops=ops, comparators=others):
                terms = list(map(self.term, [left, *others]))
                parts = map(self.operators.compare, ops, terms, terms[1:])
                return Term(f"({' && '.join(parts)})", TRUTH)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(self.truth(test), self.term(body), self.term(orelse))
            case ast.Call():
                return self._called(node)
            case ast.JoinedStr(values=values):
                return self._joined(values)
            case ast.Subscript(value=owner, slice=ast.Slice(lower=lower, upper=upper, step=None)):
                return self._slice(self.term(owner), lower, upper)
        raise UnprintableError(f"{ast.unparse(node)} is no expression of C")

    def _attribute(self, owner: Term, name: str) -> Term:
        owner = self.operators.present(owner)
        if isinstance(owner.type, Choice):
            table, of = self.records.property_of(owner.type.enum, name)
            return self.operators.load(f"{table}[{owner.code}]", of, place=False)
        if isinstance(owner.type, Record):
            struct = owner.type.struct
            if name in struct.__struct_fields__:
                return self.operators.load(f"{owner.code}.{name}", field_types(struct)[name], place=owner.place)
            thing = inspect.getattr_static(struct, name)
            if isinstance(thing, property) and thing.fget is not None:
                return self._call(thing.fget, [owner])
            if isinstance(thing, cached_property):
                return self._call(thing.func, [owner])
        raise UnprintableError(f".{name} of {in_words(owner.type)}")

    def _either(self, op: ast.boolop, terms: list[Term]) -> Term:
        """`a or b`, and the truths: what else Python gives for `and` depends on its operands."""
        if all(each.type == TRUTH for each in terms):
            sign = " && " if isinstance(op, ast.And) else " || "
            return Term(f"({sign.join(each.code for each in terms)})", TRUTH)
        if isinstance(op, ast.And):
            raise UnprintableError("`and` of other things than truths is used as a value: write bool(...)")
        found = terms[-1]
        for each in terms[-2::-1]:
            if isinstance(each.type, Option) and found.type in (each.type.of, INT):
                kind = self.records.c(each.type)
                rest = self.operators.load("some.v", each.type.of, place=False)
                other = self.operators.convert(found, rest.type)
                given = self.operators.truth(rest)
                code = f"({{ {kind} some = {each.code}; some.has && {given} ? {rest.code} : {other.code}; }})"
                found = Term(code, rest.type)
            else:
                found = self._choice(self.operators.truth(each), each, found)
        return found

    def _choice(self, test: str, a: Term, b: Term) -> Term:
        if isinstance(a.type, Several) and isinstance(b.type, Several) and len(a.parts) == len(b.parts):
            parts = tuple(self._choice(test, one, other) for one, other in zip(a.parts, b.parts, strict=True))
            return Term("", Several(), parts=parts)
        of = self.operators.union([a, b])
        return Term(f"({test} ? {self._as(a, of)} : {self._as(b, of)})", of)

    def _as(self, term: Term, of: Any) -> str:
        if isinstance(of, Option) and term.type == NOTHING:
            return f"(({self.records.c(of)}){{0}})"
        return self.operators.convert(term, of).code

    def _joined(self, values: Sequence[ast.expr]) -> Term:
        parts = []
        for each in values:
            term = self.term(each.value if isinstance(each, ast.FormattedValue) else each)
            if term.type != Text(str) or getattr(each, "format_spec", None) or getattr(each, "conversion", -1) != -1:
                raise UnprintableError(f"{in_words(term.type)} in an f-string: texts alone, as they are")
            parts.append(term.code)
        return Term(f"text_join(run, {len(parts)}, (const Text[]){{{', '.join(parts)}}})", Text(str))

    def _slice(self, owner: Term, lower: ast.expr | None, upper: ast.expr | None) -> Term:
        if not isinstance(owner.type, Numbers):
            raise UnprintableError(f"a part of {in_words(owner.type)}")
        end = Term(f"((I)({owner.code}).n)", INT)
        terms = [Term("0", INT) if lower is None else self.term(lower), end if upper is None else self.term(upper)]
        ends = [self.operators.convert(each, INT).code for each in terms]
        return Term(f"numbers_part({owner.code}, {', '.join(ends)})", Numbers())

    # ------------------------------------------------------------------------------------------------ calls
    def _called(self, node: ast.Call) -> Term:
        function = self.meaning(node.func)
        if function is ...:
            return self._method(node)
        if function is replace:
            return self._replaced(node)
        if isinstance(function, type) and issubclass(function, msgspec.Struct):
            return self._made(function, node)
        if function in (bool, len, min, max):
            return self._builtin(function, node)
        plain = inspect.unwrap(function)
        if not isinstance(plain, FunctionType):
            raise UnprintableError(f"{ast.unparse(node.func)} is no function that could be printed")
        return self._call(plain, self.arguments(plain, node, ()))

    def _method(self, node: ast.Call) -> Term:
        assert isinstance(node.func, ast.Attribute)
        owner = self.operators.present(self.term(node.func.value))
        if node.func.attr == "bit_count" and owner.type in (MASK, SET) and not node.args:
            return Term(f"{'mask' if owner.type == MASK else 'set'}_count({owner.code})", INT)
        if isinstance(owner.type, Record):
            thing = inspect.getattr_static(owner.type.struct, node.func.attr)
            if isinstance(thing, FunctionType):
                return self._call(thing, self.arguments(thing, node, (owner,)))
        raise UnprintableError(f".{node.func.attr}() of {in_words(owner.type)}")

    def _builtin(self, function: Any, node: ast.Call) -> Term:
        if function is bool and len(node.args) == 1:
            return Term(self.truth(node.args[0]), TRUTH)
        terms = [self.term(each) for each in node.args]
        if function is len and terms[0].type in (Numbers(), Text(bytes)):
            return Term(f"((I)({terms[0].code}).n)", INT)
        if function in (min, max) and len(terms) > 1 and not node.keywords:
            of = REAL if any(each.type == REAL for each in terms) else INT
            found, *others = (self.operators.convert(each, of).code for each in terms)
            for each in others:
                found = f"{function.__name__}_{self.records.c(of)}({found}, {each})"
            return Term(found, of)
        raise UnprintableError(f"{ast.unparse(node)} is no call of C")

    def _replaced(self, node: ast.Call) -> Term:
        old = self.operators.present(self.term(node.args[0]))
        if not isinstance(old.type, Record):
            raise UnprintableError(f"replace of {in_words(old.type)}")
        fields = field_types(old.type.struct)
        sets = "".join(f"made.{name} = {self._kept(old.type.struct, name, value, fields)}; "
                       for name, value in self._keywords(node))  # fmt: skip
        return Term(f"({{ {self.records.c(old.type)} made = {old.code}; {sets}made; }})", old.type)

    def _made(self, struct: type[msgspec.Struct], node: ast.Call) -> Term:
        fields = field_types(struct)
        given = dict(zip(fields, node.args, strict=False)) | dict(self._keywords(node))
        if len(node.args) > len(fields) or not given.keys() <= fields.keys():
            raise UnprintableError(f"{struct.__name__} has other fields")
        parts = []
        for field in msgspec.structs.fields(struct):
            name = field.name
            if name in given:
                parts.append(f".{name} = {self._kept(struct, name, given[name], fields)}")
            elif field.default is not msgspec.NODEFAULT:
                parts.append(f".{name} = {self.records.stored(field.default, fields[name])}")
            else:
                raise UnprintableError(f"{struct.__name__} is made without {name}")
        return Term(f"(({self.records.name(struct)}){{{', '.join(parts)}}})", Record(struct))

    def _kept(self, struct: type[msgspec.Struct], name: str, value: ast.expr, fields: Any) -> str:
        if name not in fields:
            raise UnprintableError(f"{struct.__name__} has no field {name}")
        try:
            return self.operators.store(self.term(value), fields[name])
        except UnprintableError as error:
            raise self.refused(value, f"{struct.__name__}.{name}: {error}") from error

    @staticmethod
    def _keywords(node: ast.Call) -> list[tuple[str, ast.expr]]:
        if any(each.arg is None for each in node.keywords) or any(isinstance(each, ast.Starred) for each in node.args):
            raise UnprintableError("`*` in a call")
        return [(str(each.arg), each.value) for each in node.keywords]
