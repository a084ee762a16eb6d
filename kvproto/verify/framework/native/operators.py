"""Operators: print the operators of rows as C, by the types of their operands.

This is a small type checker, too: a mask where a number belongs, a member of one enum for another's, a time that is
added to a text are refused here, with a sentence.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from kvproto.verify.framework.native.c_types import (
    INT,
    MASK,
    NOTHING,
    REAL,
    SET,
    TRUTH,
    Bit,
    Boxed,
    Choice,
    CType,
    Int,
    Numbers,
    Option,
    Real,
    Record,
    Several,
    Shifted,
    Term,
    Text,
    UnprintableError,
    Whole,
    Without,
    in_words,
)
from kvproto.verify.framework.native.records import Records

NUMERIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("add", "+"), ast.Sub: ("sub", "-"), ast.Mult: ("mul", "*"), ast.FloorDiv: ("floor_div", ""),
    ast.Mod: ("floor_mod", ""),
}  # fmt: skip
OF_MASKS: dict[type[ast.operator], str] = {ast.BitOr: "or", ast.BitAnd: "and"}
ORDERS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


class Operators:
    """The operators, over the structs of one file."""

    def __init__(self, records: Records) -> None:
        self.records = records

    # ------------------------------------------------------------------------------- fields and their terms
    def load(self, code: str, of: CType, *, place: bool) -> Term:
        if isinstance(of, Whole):
            return Term(f"of_wide({code})" if of.wide else f"((I){code})", INT)
        return Term(code, of, place)

    def store(self, term: Term, of: CType) -> str:
        """Return the code that makes a field of this type of a term."""
        if term.known and not isinstance(of, Boxed | Record | Choice):
            return self.records.stored(term.value, of)
        match of:
            case Whole(kind):
                way = "to_wide" if of.wide else "to_signed" if kind.signed else "to_unsigned"
                return f"{way}(run, {self.convert(term, INT).code}, {kind.bits})"
            case Option(inner):
                if term.type == of:
                    return term.code
                return f"(({self.records.c(of)}){{1, {self.store(term, inner)}}})"
            case Boxed() if isinstance(term.type, Record):
                return self.records.in_box(term.code, term.type.struct)
        return self.convert(term, of).code

    def convert(self, term: Term, of: CType) -> Term:
        """Return the term as one of this type; UnprintableError: it is not."""
        match term.type, of:
            case (a, b) if a == b:
                return term
            case Bit(which), _ if of in (MASK, SET):
                return Term(f"{'mask' if of == MASK else 'set'}_{which}(run, {term.code})", of)
            case Int(), _ if of in (MASK, SET) and term.known:
                return Term(self.records.stored(term.value, of), of)
            case _, _ if term.type == MASK and of == SET:
                return Term(f"mask_set(run, {term.code})", SET)
            case _, _ if term.type == SET and of == MASK:
                return Term(f"set_mask(run, {term.code})", MASK)
            case Int(), Real():
                return Term(f"real(run, {term.code})", REAL)
            case Option(inner), _:
                number = isinstance(inner, Whole)
                return self.convert(self.present(term), of) if inner == of or number else _no(term, of)
            case Choice(), Choice() if related(term.type, of):
                return term._replace(type=of)
            case _, Option():
                return Term(self.store(term, of), of)
        if term.type == TRUTH and of == INT:
            return Term(f"((I){term.code})", INT)
        if isinstance(term.type, Choice) and of == INT:
            return Term(f"((I){term.code})", INT)
        return _no(term, of)

    def present(self, term: Term) -> Term:
        """Return what an optional term holds; a step that asks it of None has no result."""
        if not isinstance(term.type, Option):
            return term
        kind = self.records.c(term.type)
        if term.place:
            code = f"(*({{ const {kind} *some = &{term.code}; if (!some->has) fail(run); &some->v; }}))"
        else:
            code = f"({{ {kind} some = {term.code}; if (!some.has) fail(run); some.v; }})"
        return self.load(code, term.type.of, place=term.place)

    def union(self, terms: Sequence[Term]) -> CType:
        """Return the one type that all of these terms can have."""
        present = list(dict.fromkeys(term.type for term in terms if term.type != NOTHING))
        if not present:
            raise UnprintableError("None alone has no type")
        if len(present) < len({term.type for term in terms}):
            inner = present[0].of if isinstance(present[0], Option) else present[0]
            return Option(inner)
        if len(present) > 1:
            for of in (*(each for each in present if isinstance(each, Option)), SET, MASK, REAL, INT):
                if of in present and all(self._may_be(term, of) for term in terms):
                    return of
            raise UnprintableError(f"{' and '.join(map(in_words, present))} have no type in common")
        return MASK if isinstance(present[0], Bit) else present[0]

    def _may_be(self, term: Term, of: CType) -> bool:
        try:
            return term.type == of or (not isinstance(term.type, Option) and bool(self.convert(term, of).code))
        except UnprintableError:
            return False

    # ------------------------------------------------------------------------------------------- operators
    def truth(self, term: Term) -> str:
        """Return whether Python takes the term for true."""
        match term.type:
            case Option(inner):
                within = self.truth(self.load(f"({term.code}).v", inner, place=False))
                return f"(({term.code}).has && {within})"
            case Text() | Numbers():
                return f"(({term.code}).n != 0)"
            case Record() | Bit("one"):
                return "1"
            case _ if term.type in (MASK, SET):
                return f"{'mask' if term.type == MASK else 'set'}_any({term.code})"
            case _ if term.type == NOTHING:
                return "0"
            case Int() | Real() | Choice():
                return f"({term.code} != 0)"
            case _ if term.type == TRUTH:
                return term.code
        raise UnprintableError(f"{in_words(term.type)} is asked whether it is true")

    def unary(self, op: ast.unaryop, a: Term) -> Term:
        if isinstance(op, ast.USub) and a.known:
            return self.records.constant(-a.value)  # type: ignore[operator]  # a number
        if isinstance(op, ast.USub) and a.type == INT:
            return Term(f"neg(run, {a.code})", INT)
        if isinstance(op, ast.USub) and a.type == REAL:
            return Term(f"(-{a.code})", REAL)
        if isinstance(op, ast.Invert) and (a.type in (MASK, SET) or isinstance(a.type, Bit)):
            mask = self.convert(a, MASK) if isinstance(a.type, Bit) and a.type.which == "first" else a
            return Term(mask.code, Without(mask.type), parts=(mask,))
        raise UnprintableError(f"{'~' if isinstance(op, ast.Invert) else '-'} of {in_words(a.type)}")

    def binary(self, op: ast.operator, a: Term, b: Term) -> Term:
        if isinstance(op, ast.LShift) and a.known and a.value == 1:
            return Term(self.convert(b, INT).code, Bit("one"))
        if isinstance(op, ast.Sub) and a.type == Bit("one") and b.known and b.value == 1:
            return Term(a.code, Bit("first"))
        if isinstance(op, ast.RShift) and a.type in (MASK, SET):
            return Term("", Shifted(), parts=(a, self.convert(b, INT)))
        if isinstance(op, ast.BitAnd) and isinstance(a.type, Shifted) and b.known and b.value == 1:
            mask, at = a.parts
            return Term(f"{'mask' if mask.type == MASK else 'set'}_has(run, {mask.code}, {at.code})", INT)
        if isinstance(op, ast.BitOr | ast.BitAnd):
            return self._of_masks(op, a, b)
        return self._of_numbers(op, a, b)

    def _of_masks(self, op: ast.operator, a: Term, b: Term) -> Term:
        if isinstance(op, ast.BitAnd) and isinstance(a.type, Without):
            a, b = b, a
        less = isinstance(b.type, Without) and isinstance(op, ast.BitAnd)
        other = b.parts[0] if less else b
        kind = self._mask(a, other)
        name = f"{'mask' if kind == MASK else 'set'}_{'less' if less else OF_MASKS[type(op)]}"
        both = f"{self.convert(a, kind).code}, {self.convert(other, kind).code}"
        return Term(f"{name}({'' if kind == MASK else 'run, '}{both})", kind)

    def _mask(self, a: Term, b: Term) -> CType:
        for each in (a, b):
            if each.type not in (MASK, SET) and not isinstance(each.type, Bit):
                both = f"{in_words(a.type)} and {in_words(b.type)}"
                raise UnprintableError(f"{both} are no two masks: annotate their kinds")
        return SET if SET in (a.type, b.type) else MASK

    def _of_numbers(self, op: ast.operator, a: Term, b: Term) -> Term:
        real = REAL in (a.type, b.type)
        if isinstance(op, ast.Div):
            if not real:
                raise UnprintableError("/ of two whole numbers")
            return Term(f"real_div(run, {self.convert(a, REAL).code}, {self.convert(b, REAL).code})", REAL)
        if type(op) not in NUMERIC or (real and not NUMERIC[type(op)][1]):
            raise UnprintableError(f"{type(op).__name__} of {in_words(a.type)} and {in_words(b.type)}")
        name, sign = NUMERIC[type(op)]
        of = REAL if real else INT
        both = self.convert(a, of).code, self.convert(b, of).code
        return Term(f"({both[0]} {sign} {both[1]})" if real else f"{name}(run, {both[0]}, {both[1]})", of)

    # ---------------------------------------------------------------------------------------- comparisons
    def compare(self, op: ast.cmpop, a: Term, b: Term) -> str:
        if isinstance(op, ast.NotEq | ast.IsNot | ast.NotIn):
            opposite = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In}[type(op)]
            return f"(!{self.compare(opposite(), a, b)})"
        if isinstance(op, ast.In):
            each = b.parts if isinstance(b.type, Several) else _no_list(b)
            return f"({' || '.join(self.compare(ast.Eq(), a, one) for one in each) or 0})"
        if isinstance(op, ast.Is):
            if b.type == NOTHING:
                return f"(!({a.code}).has)" if isinstance(a.type, Option) else str(int(a.type == NOTHING))
            if not (isinstance(a.type, Choice) and isinstance(b.type, Choice)):
                raise UnprintableError(f"`is` of {in_words(a.type)} and {in_words(b.type)}")
        if isinstance(a.type, Several) and isinstance(b.type, Several):
            return self._tuples(op, a.parts, b.parts)
        return self._equal(a, b) if isinstance(op, ast.Eq | ast.Is) else self._ordered(ORDERS[type(op)], a, b)

    def _equal(self, a: Term, b: Term) -> str:
        if NOTHING in (a.type, b.type):
            raise UnprintableError("== of None: write `is`")
        if isinstance(a.type, Choice) and isinstance(b.type, Choice):
            if not related(a.type, b.type):
                raise UnprintableError(f"{in_words(a.type)} is compared with {in_words(b.type)}")
            return f"({a.code} == {b.code})"
        of = a.type if a.type == b.type else self.union([a, b])
        of = MASK if isinstance(of, Bit) else of
        return self.records.same(of, self.convert(a, of).code, self.convert(b, of).code)

    def _ordered(self, sign: str, a: Term, b: Term) -> str:
        if a.type in (MASK, SET) and sign == ">" and b.known and b.value == 0:
            return self.truth(a)
        of = REAL if REAL in (a.type, b.type) else INT
        return f"({self.convert(a, of).code} {sign} {self.convert(b, of).code})"

    def _tuples(self, op: ast.cmpop, a: tuple[Term, ...], b: tuple[Term, ...]) -> str:
        if len(a) != len(b):
            raise UnprintableError("tuples of two lengths are compared")
        if isinstance(op, ast.Eq):
            return f"({' && '.join(map(self._equal, a, b))})"
        sign = ORDERS[type(op)]
        found = self._ordered(sign, a[-1], b[-1])
        for one, other in list(zip(a, b, strict=True))[-2::-1]:
            found = f"({self._ordered(sign[0], one, other)} || ({self._equal(one, other)} && {found}))"
        return found


def related(a: CType, b: CType) -> bool:
    """Whether these are members of one enum: a value's state is one of its table's, and annotated as any."""
    assert isinstance(a, Choice)
    assert isinstance(b, Choice)
    return issubclass(a.enum, b.enum) or issubclass(b.enum, a.enum)


def _no(term: Term, of: CType) -> Term:
    raise UnprintableError(f"{in_words(term.type)} stands where {in_words(of)} belongs")


def _no_list(term: Term) -> tuple[Term, ...]:
    raise UnprintableError(f"`in` {in_words(term.type)}: write a tuple")
