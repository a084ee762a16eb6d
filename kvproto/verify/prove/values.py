"""Values and events of which nothing is known: a struct's fields, each a term of what it holds.

What a field holds is read from its annotation: an `int` is a number or a set, as its kind says (`kvproto.fsm.kinds`); a
`float` is a time; an enumeration is one of its members; a struct is made in its turn, and one that may be
absent is made twice, with and without.  `SendRoute` is taken member by member, because guards ask for it with `is`.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from enum import IntEnum
from itertools import product
from types import NoneType
from typing import Any

import msgspec
import z3

from kvproto.endpoint.group_table import Destination
from kvproto.fsm.errors import ArgumentError
from kvproto.fsm.kinds import Kind, Mask, bare, field_hints, kind_of, options
from kvproto.fsm.vocabulary import State
from kvproto.layout.cut import Cut, Part
from kvproto.protocol.events import PeerBuild
from kvproto.verify.prove.terms import SET, Bits, Choice, Facts, Number, Opaque, Term, Truth

#: what rows pass on and never look into
OPAQUE = frozenset({str, bytes, Cut, Part, Destination, PeerBuild})
#: enumerations of which every member is looked at by itself
EACH = frozenset({"SendRoute"})


class Maker:
    """Makes terms of a kind, and remembers what they are called and what must hold of them."""

    def __init__(self) -> None:
        self.facts: Facts = []
        self.named: dict[str, Any] = {}

    def variants(self, kind: type[Any], name: str, **fixed: Any) -> Iterator[Any]:
        """The structs of this kind, one for each choice of what is absent; `fixed`: fields that are known."""
        known = field_hints(kind)
        choices = [
            [fixed[field]] if field in fixed else list(self._field(hint, f"{name}.{field}"))
            for field, hint in known.items()
        ]
        for chosen in product(*choices):
            yield kind(**dict(zip(known, chosen, strict=True)))

    def _field(self, hint: Any, name: str) -> Iterator[Any]:
        for option in options(hint):
            if option is NoneType:
                yield None
            elif isinstance(option, type) and issubclass(option, msgspec.Struct) and option not in OPAQUE:
                yield from self.variants(option, name)
            elif isinstance(option, type) and option.__name__ in EACH:
                yield from typing.cast("type[IntEnum]", option)
            else:
                yield self.scalar(option, name)

    def scalar(self, told: Any, name: str) -> Any:
        """The term of a field with this annotation."""
        made: Any
        hint = bare(told)
        if hint is bool:
            made = Truth(z3.Bool(name))
        elif isinstance(hint, type) and issubclass(hint, IntEnum):
            made = Choice(z3.Int(name), hint)
            self.facts.append(z3.And(made.term >= 0, made.term < len(hint)))
        elif hint is int:
            made = self._whole(kind_of(told), name)
        elif hint is float:
            made = Number(z3.Real(name))
        elif hint in OPAQUE:
            made = Opaque(z3.Int(name))
        else:
            kinds = "numbers, masks, times, enumerations, texts, and structs of these"
            raise ArgumentError(f"{name}: nothing stands for a {hint!r} in a proof; {kinds} are proved")
        self.named[name] = made
        return made

    def _whole(self, kind: Kind, name: str) -> Bits | Number:
        if isinstance(kind, Mask):
            return Bits(z3.Const(name, SET))
        made = Number(z3.Int(name))
        if not kind.signed:
            self.facts.append(made.term >= 0)
        return made

    def state(self, kind: type[State], name: str) -> Choice:
        """Some state, which one is not known."""
        made = Choice(z3.Int(name), kind)
        self.facts.append(z3.And(made.term >= 0, made.term < len(kind)))
        self.named[name] = made
        return made


def parts(value: Any) -> Iterator[Any]:
    """Yield the parts of a struct; equal structs have equal parts while their terms are kept."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from parts(getattr(value, field))
    else:
        yield value.term.get_id() if isinstance(value, Term) else value


def shown(value: Any, model: Any) -> str:
    if model is None:
        return "(the solver has found nothing in time)"
    if isinstance(value, Bits):
        return _set(value, model)
    if isinstance(value, Choice):
        number = model.eval(value.term, model_completion=True).as_long()
        return value.kind(number).name
    if isinstance(value, Truth):
        return "yes" if z3.is_true(model.eval(value.term, model_completion=True)) else "no"
    if isinstance(value, Opaque):
        number = model.eval(value.term, model_completion=True).as_long()
        return f"text #{number}" if number else "empty"
    if isinstance(value, Number):
        found = model.eval(value.term, model_completion=True)
        return str(found.as_fraction() if z3.is_rational_value(found) and not z3.is_int(found) else found)
    if isinstance(value, msgspec.Struct):
        inside = ((field, getattr(value, field)) for field in value.__struct_fields__)
        return "(" + ", ".join(f"{field}={shown(each, model)}" for field, each in inside) + ")"
    return getattr(value, "name", None) or repr(value)


#: ranks and chunks of which a counterexample says whether they are in a set; as a rule it needs the first few
FEW = 16


def _set(value: Bits, model: Any) -> str:
    places = set(range(FEW))
    for each in model.decls():
        found = model[each]
        if z3.is_int_value(found):
            places.add(found.as_long())
    inside = [i for i in sorted(places) if z3.is_true(model.eval(z3.IsMember(i, value.term), model_completion=True))]
    return "{" + ", ".join(map(str, inside)) + "}"
