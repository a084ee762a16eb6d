"""Records: the structs of a printed file, their names and tags, and constants of Python's as C.

Two structs of one name, of two modules, have two names in C.  A struct is printed after the structs that it holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import msgspec

from kvproto.fsm.kinds import Number
from kvproto.verify.framework.native.c_types import (
    INT,
    MASK_BITS,
    MASK_WORDS,
    NOTHING,
    REAL,
    TRUTH,
    WORD_BITS,
    Boxed,
    Carried,
    Choice,
    CType,
    Masked,
    Numbers,
    Option,
    Real,
    Record,
    Several,
    Term,
    Text,
    Truth,
    Unbounded,
    UnprintableError,
    Whole,
    field_types,
    in_words,
    words_of,
)

PLAIN = {"Int": "I", "Real": "double", "Truth": "int", "Choice": "int64_t", "Masked": "Mask", "Unbounded": "Set",
         "Text": "Text", "Numbers": "Numbers", "Carried": "W", "Boxed": "Box"}  # fmt: skip

#: members of an enum that may have a table of a property
PLACES = 4096


class Records:
    """The structs that a file uses, and everything else that is declared before its functions."""

    def __init__(self) -> None:
        self.names: dict[type[Any], str] = {}
        self._taken: set[str] = set()
        self._declared: list[str] = []
        self._options: dict[CType, str] = {}
        self._compared: dict[CType, str] = {}
        self._properties: dict[tuple[type[IntEnum], str], tuple[str, CType]] = {}
        #: structs that stand in a box: one's tag is its place, from 1; tag 0 is something of Python's
        self.boxed: list[type[msgspec.Struct]] = []
        #: effects and events that rows leave behind: one's tag is its place
        self.effects: list[type[msgspec.Struct]] = []
        #: objects of Python's that printed rows name
        self.constants: list[object] = []

    # ----------------------------------------------------------------------------------------------- types
    def c(self, of: CType) -> str:
        """Return the name of a type in C; its declaration is printed before."""
        match of:
            case Whole(kind):
                return "Wide" if of.wide else "int64_t" if kind.signed else "W"
            case Record(struct):
                return self.name(struct)
            case Option(inner):
                return self._option(of, inner)
        found = PLAIN.get(type(of).__name__)
        if found is None:
            raise UnprintableError(f"{in_words(of)} cannot be kept")
        return found

    def name(self, struct: type[msgspec.Struct]) -> str:
        if struct not in self.names:
            fields = field_types(struct)
            kept = [(field, self.kept(each)) for field, each in fields.items()]
            name = struct.__name__
            while f"T_{name}" in self._taken:
                name += "_"
            self._taken.add(f"T_{name}")
            self.names[struct] = f"T_{name}"
            inside = " ".join(f"{each} {field};" for field, each in kept)
            self._declared.append(f"typedef struct {{ {inside} }} T_{name};")
        return self.names[struct]

    def kept(self, of: CType) -> str:
        """Return the C type in which a field is kept: whole words."""
        return "W" if isinstance(of, Truth) else self.c(of)

    def _option(self, of: Option, inner: CType) -> str:
        if of not in self._options:
            name = f"Option{len(self._options)}"
            self._declared.append(f"typedef struct {{ W has; {self.kept(inner)} v; }} {name};")
            self._options[of] = name
        return self._options[of]

    def tag(self, struct: type[msgspec.Struct]) -> int:
        if any(isinstance(each, Boxed) for each in field_types(struct).values()):
            raise UnprintableError(f"a {struct.__name__} holds a struct of several kinds, and stands for one itself")
        self.name(struct)
        if struct not in self.boxed:
            self.boxed.append(struct)
        return 1 + self.boxed.index(struct)

    def in_box(self, code: str, struct: type[msgspec.Struct]) -> str:
        tag = self.tag(struct)
        return f"({{ Box box = {{{tag}}}; *({self.name(struct)} *)box.words = {code}; box; }})"

    def effect(self, struct: type[msgspec.Struct]) -> int:
        """Return the tag of an effect or event that a row leaves behind."""
        self.name(struct)
        if struct not in self.effects:
            self.effects.append(struct)
        return self.effects.index(struct)

    @property
    def out_words(self) -> int:
        return max([1, *(words_of(Record(each), self.box_words) for each in self.effects)])

    @property
    def box_words(self) -> int:
        return max([1, *(words_of(Record(each)) for each in self.boxed)])

    def declarations(self) -> Iterator[str]:
        """Yield what comes before the functions, in the order of use."""
        yield from self._declared

    # ---------------------------------------------------------------------------------------- comparisons
    def same(self, of: CType, a: str, b: str) -> str:
        """Return the code that compares two of this type."""
        match of:
            case Masked():
                return f"mask_same({a}, {b})"
            case Unbounded():
                return f"set_same({a}, {b})"
            case Text():
                return f"text_same({a}, {b})"
            case Numbers():
                return f"numbers_same({a}, {b})"
            case Whole() if of.wide:
                return f"(of_wide({a}) == of_wide({b}))"
            case Record() | Option():
                return f"{self._comparison(of)}({a}, {b})"
            case Boxed() | Carried():
                raise UnprintableError(f"{in_words(of)} is compared")
        return f"({a} == {b})"

    def _comparison(self, of: Record | Option) -> str:
        if of not in self._compared:
            if isinstance(of, Option):
                body = f"a.has == b.has && (!a.has || {self.same(of.of, 'a.v', 'b.v')})"
            else:
                parts = [self.same(each, f"a.{field}", f"b.{field}") for field, each in field_types(of.struct).items()]
                body = " && ".join(parts) or "1"
            kind, name = self.c(of), f"same{len(self._compared)}"
            self._declared.append(f"static int {name}({kind} a, {kind} b) {{ return {body}; }}")
            self._compared[of] = name
        return self._compared[of]

    # ------------------------------------------------------------------------------------------ constants
    def constant(self, value: object) -> Term:
        match value:
            case None:
                return Term("0", NOTHING, value=None)
            case bool():
                return Term(str(int(value)), TRUTH, value=value)
            case IntEnum():
                return Term(str(int(value)), Choice(type(value)), value=value)
            case int():
                if not -(2**63) <= value < 2**63:
                    raise UnprintableError(f"the number {value} has more than 64 bits")
                return Term(f"((I){value}LL)", INT, value=value)
            case float():
                return Term(_double(value), REAL, value=value)
            case str() | bytes():
                return Term(_text(value), Text(type(value)), value=value)
            case tuple():
                parts = tuple(map(self.constant, value))
                return Term("", Several(), value=value, parts=parts)
            case msgspec.Struct():
                kept = {field: self.stored(getattr(value, field), each) for field, each in
                        field_types(type(value)).items()}  # fmt: skip
                inside = ", ".join(f".{field} = {code}" for field, code in kept.items())
                return Term(f"(({self.name(type(value))}){{{inside}}})", Record(type(value)), value=value)
        raise UnprintableError(f"{value!r} is no constant of C")

    def stored(self, value: object, of: CType) -> str:
        """Return a constant as it is kept in a field of this type."""
        match of, value:
            case Option(), None:
                return f"(({self.c(of)}){{0}})"
            case Option(inner), _:
                return f"(({self.c(of)}){{1, {self.stored(value, inner)}}})"
            case Whole(kind), int():
                return _number(int(value), kind)
            case Masked(), int() if 0 <= value < 1 << MASK_BITS:
                words = [value >> 64 * at & 2**64 - 1 for at in range(MASK_WORDS)]
                return f"((Mask){{{{{', '.join(f'{word}ULL' for word in words)}}}}})"
            case Unbounded(), 0:
                return "((Set){0, 0})"
            case Numbers(), tuple():
                inside = ", ".join(f"{int(each)}LL" for each in value)
                return f"((Numbers){{{len(value)}, (const int64_t[]){{{inside or 0}}}}})"
            case Carried(), _:
                return str(self.place(value))
            case Boxed(), _ if not isinstance(value, msgspec.Struct):
                return f"((Box){{0, {{{self.place(value)}}}}})"
            case Boxed(), msgspec.Struct():
                return self.in_box(self.constant(value).code, type(value))
            case Real(), int():
                return _double(float(value))
        found = self.constant(value)
        if found.type != of:
            raise UnprintableError(f"holds {value!r}, which is not {in_words(of)}")
        return found.code

    def place(self, value: object) -> int:
        """Return the place of one of Python's objects in the list of constants."""
        for at, each in enumerate(self.constants):
            if each is value:
                return at
        self.constants.append(value)
        return len(self.constants) - 1

    # -------------------------------------------------------------------------------------------- enums
    def property_of(self, enum: type[IntEnum], name: str) -> tuple[str, CType]:
        """Return the table of an enum's property, and what it holds: it is asked of each member here, once."""
        key = enum, name
        if key not in self._properties:
            values = {int(each): getattr(each, name) for each in enum}
            kind = next(iter({type(each) for each in values.values()}))
            if kind not in (bool, int) or any(type(each) is not kind for each in values.values()):
                raise UnprintableError(f"{enum.__name__}.{name} is neither a bool nor a number")
            if not all(0 <= at < PLACES for at in values):
                raise UnprintableError(f"{enum.__name__} has numbers that are no places in a table")
            inside = ", ".join(str(int(values.get(at, 0))) for at in range(max(values) + 1))
            table = f"{enum.__name__}_{name}_{len(self._properties)}"
            self._declared.append(f"static const int64_t {table}[] = {{{inside}}};")
            self._properties[key] = table, TRUTH if kind is bool else INT
        return self._properties[key]


def _number(value: int, kind: Number) -> str:
    if not kind.least <= value <= kind.most:
        raise UnprintableError(f"holds {value}, and is from {kind.least} to {kind.most}")
    if kind.bits > WORD_BITS:
        return f"((Wide){{{value & 2**64 - 1}ULL, {value >> 64}ULL}})"
    return f"{value}LL" if kind.signed else f"{value}ULL"


def _double(value: float) -> str:
    if math.isinf(value):
        return f"({'-' if value < 0 else ''}__builtin_inf())"
    return f"({value.hex()})"


def _text(value: str | bytes) -> str:
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    shown = "".join(f"\\{byte:03o}" for byte in raw)
    return f'((Text){{{len(raw)}, (const uint8_t *)"{shown}"}})'
