"""Kinds: annotate an integer field with its width and sign, or as a set of small numbers.

To Python a mask and a counter are both an `int`.  Whoever reads rows as something else (the prover as terms, the
printer of C as machine words) has to know which of the two a field is, and how wide.  A field of a value, an event or
an effect says so by its annotation.  A plain `int` is a number from 0 to 2^64 - 1.

A `Kind` changes nothing at run time: msgspec leaves it alone, and the digest of the tables does not contain it.
"""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any

import msgspec


class Number(msgspec.Struct, frozen=True):
    """A whole number of so many bits; of a signed one the sign is one of them."""

    bits: int = 64
    signed: bool = False

    @property
    def least(self) -> int:
        """The lowest number of this kind."""
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def most(self) -> int:
        """The highest number of this kind."""
        return (1 << self.bits - self.signed) - 1


class Mask(msgspec.Struct, frozen=True):
    """A set of the numbers below `bits` (0: without bound), as a mask with a bit for each."""

    bits: int = 0


Kind = Number | Mask
#: the kind of a plain `int`
PLAIN = Number()

U64 = Annotated[int, PLAIN]
I64 = Annotated[int, Number(signed=True)]


def kind_of(hint: Any) -> Kind:
    """Return the kind of an integer's annotation."""
    return next((each for each in typing.get_args(hint)[1:] if isinstance(each, Kind)), PLAIN)


_hints: dict[type[Any], dict[str, Any]] = {}


def field_hints(struct: type[Any]) -> dict[str, Any]:
    """Return the annotations of a struct's fields, with their kinds."""
    found = _hints.get(struct)
    if found is None:
        told = typing.get_type_hints(struct, include_extras=True)
        found = _hints[struct] = {field: told[field] for field in struct.__struct_fields__}
    return found


def options(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union's annotation; of any other, itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def bare(hint: Any) -> Any:
    """Return an annotation without what is said beside the type."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
