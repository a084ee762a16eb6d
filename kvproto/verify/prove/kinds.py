"""Kinds: in each field of what a step leaves behind is what its annotation says.

A step that gives a mask where a rank belongs, a time for a count, or one message's field for another's, raises nothing
here: terms of a solver are passed along as anything is.  The rank that carries it out would stumble over it, or say
something else than it means.  So every value, effect, event and message that a step leaves is looked at, and what is of
another kind is a fault of the step, like anything that it raises.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec
import z3

from kvproto.fsm.kinds import Mask, bare, field_hints, kind_of, options
from kvproto.verify.prove.terms import Bits, Choice, Number, Opaque, Truth
from kvproto.verify.prove.values import OPAQUE


def misfit(made: msgspec.Struct) -> str:
    """The first field that holds something of another kind, in words; "": none does."""
    kinds = field_hints(type(made))
    for field in made.__struct_fields__:
        value = getattr(made, field)
        if not any(_fits(value, option) for option in options(kinds[field])):
            return f"{type(made).__name__}.{field} is {value!r}"
        if isinstance(value, msgspec.Struct) and (inside := misfit(value)):
            return inside
    return ""


def _fits(value: Any, told: Any) -> bool:
    kind = bare(told)
    if kind is bool:
        return isinstance(value, bool | Truth)
    if kind is int:
        return type(value) is int or (isinstance(value, Bits) if isinstance(kind_of(told), Mask) else _whole(value))
    if kind is float:
        return type(value) is int or isinstance(value, float) or (type(value) is Number and not _whole(value))
    if kind in OPAQUE:
        return isinstance(value, kind | Opaque)
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return isinstance(value, kind) or (isinstance(value, Choice) and value.kind is kind)
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


def _whole(value: Any) -> bool:
    return type(value) is Number and not (isinstance(value.term, z3.ExprRef) and value.term.is_real())
