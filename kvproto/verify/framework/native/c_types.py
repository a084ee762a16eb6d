"""C types: how each type of the rows' language is kept in C, and what a printer may do with it.

Everything is made of 64-bit words: numbers, times, truths and members of enums are one word each (a room's key two), a
mask is eight, a set without bound, a text or a list is its length and its address.  A struct is its fields in order.
So a value has no gaps, and Python writes and reads it word by word (`words`).

Terms (expressions of rows) have a few types more than fields: the number `1 << n` may become a mask of either kind, and
`~mask` only means something where it is taken away from another mask.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from kvproto.fsm import kinds
from kvproto.fsm.errors import KvprotoError
from kvproto.fsm.kinds import bare, field_hints, kind_of, options

WORD_BITS, MOST_BITS = 64, 127
#: words of a mask with a bound, and the highest bound that they allow
MASK_WORDS = 8
MASK_BITS = WORD_BITS * MASK_WORDS


class UnprintableError(KvprotoError, TypeError):
    """Something in a table's rows that C cannot say; the sentence names it."""


class CType(msgspec.Struct, frozen=True):
    """Base of all types."""


class Whole(CType, frozen=True):
    """A number in a field; as a term it is an `Int`."""

    kind: kinds.Number

    @property
    def wide(self) -> bool:
        """Whether it takes two words."""
        return self.kind.bits > WORD_BITS


class Int(CType, frozen=True):
    """A number in a term: 128 bits, each operation checked."""


class Real(CType, frozen=True):
    """A time or a cost: a double, as in Python."""


class Truth(CType, frozen=True):
    """A bool."""


class Choice(CType, frozen=True):
    """A member of an enum."""

    enum: type[IntEnum]


class Masked(CType, frozen=True):
    """A mask with a bound."""


class Unbounded(CType, frozen=True):
    """A mask without a bound: a set."""


class Text(CType, frozen=True):
    """A `str` or `bytes`."""

    of: type[Any]


class Numbers(CType, frozen=True):
    """A tuple of numbers of any length."""


class Carried(CType, frozen=True):
    """Something that rows pass on and never look into: its place in a list of Python's."""


class Record(CType, frozen=True):
    """A struct."""

    struct: type[msgspec.Struct]


class Option(CType, frozen=True):
    """Something that may be absent."""

    of: CType


class Boxed(CType, frozen=True):
    """One of several structs, with a tag: a message, as a rule."""


class Nothing(CType, frozen=True):
    """`None`."""


class Bit(CType, frozen=True):
    """`1 << n`, or `(1 << n) - 1`; its code is that of n."""

    which: Literal["one", "first"]


class Without(CType, frozen=True):
    """`~mask`; its code is the mask's."""

    mask: CType


class Shifted(CType, frozen=True):
    """`mask >> n`, which only `& 1` may follow; its parts are both."""


class Several(CType, frozen=True):
    """A tuple of a known length, which exists only while it is printed."""


INT, REAL, TRUTH, MASK, SET, NOTHING = Int(), Real(), Truth(), Masked(), Unbounded(), Nothing()


class Term(NamedTuple):
    """Code of a type; `place`: it has an address; `value`: it is this constant; `parts`: of a tuple."""

    code: str
    type: CType
    place: bool = False
    value: object = ...
    parts: tuple[Term, ...] = ()

    @property
    def known(self) -> bool:
        """Whether it is a constant."""
        return self.value is not ...


@cache
def field_types(struct: type[msgspec.Struct]) -> dict[str, CType]:
    found = {}
    for field, hint in field_hints(struct).items():
        try:
            found[field] = field_type(hint)
        except UnprintableError as error:
            raise UnprintableError(f"{struct.__name__}.{field} {error}") from error
    return found


def field_type(hint: Any) -> CType:
    several = options(hint)
    if len(several) > 1:
        return _union(several)
    inner = bare(hint)
    if inner is int:
        return _integer(hint)
    plain: dict[Any, CType] = {float: REAL, bool: TRUTH, str: Text(str), bytes: Text(bytes), Any: Boxed()}
    if inner in plain:
        return plain[inner]
    if get_origin(inner) is Literal and all(isinstance(each, str) for each in get_args(inner)):
        return Text(str)
    if get_origin(inner) is tuple and get_args(inner) == (int, ...):
        return Numbers()
    if isinstance(inner, type) and issubclass(inner, IntEnum):
        return Choice(inner)
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
        return Record(inner)
    return Carried()


def _union(several: tuple[Any, ...]) -> CType:
    present = [each for each in several if each is not type(None)]
    if len(present) == len(several):
        inside = [field_type(each) for each in several]
        return Boxed() if all(isinstance(each, Record) for each in inside) else Carried()
    within = field_type(present[0]) if len(present) == 1 else _union(tuple(present))
    return within if isinstance(within, Carried) else Option(within)


def _integer(hint: Any) -> CType:
    kind = kind_of(hint)
    if isinstance(kind, kinds.Number):
        if kind.bits > (WORD_BITS if kind.signed else MOST_BITS):
            raise UnprintableError(f"has {kind.bits} bits: C has {WORD_BITS}, and {MOST_BITS} without a sign")
        return Whole(kind)
    if kind.bits > MASK_BITS:
        raise UnprintableError(f"is a mask of {kind.bits} bits: C has {MASK_BITS}, or none as its bound")
    return MASK if kind.bits else SET


@cache
def words_of(of: CType, box: int = 0) -> int:
    """Return the words that a field of this type takes; `box`: the words of the largest struct in a box."""
    match of:
        case Whole():
            return 1 + of.wide
        case Masked():
            return MASK_WORDS
        case Unbounded() | Text() | Numbers():
            return 2
        case Record(struct):
            return sum(words_of(each, box) for each in field_types(struct).values())
        case Option(inner):
            return 1 + words_of(inner, box)
        case Boxed():
            return 1 + box
    return 1


def in_words(of: CType) -> str:
    """Return the type in words, for an error."""
    match of:
        case Whole() | Int():
            return "a number"
        case Masked() | Unbounded() | Bit() | Without():
            return "a mask"
        case Record(struct):
            return f"a {struct.__name__}"
        case Choice(enum):
            return f"a {enum.__name__}"
        case Option(inner):
            return f"{in_words(inner)} or None"
        case Text(kind):
            return f"a {kind.__name__}"
    return {"Real": "a float", "Truth": "a bool", "Nothing": "None", "Boxed": "one of several structs",
            "Carried": "something that rows only pass on", "Shifted": "a mask that was shifted"}.get(
                type(of).__name__, "a tuple")  # fmt: skip
