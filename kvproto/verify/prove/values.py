"""Values and events of which nothing is known: a struct's fields, each a term of what it holds.

What a field holds is read from its annotation: an `int` is a number, or a set where its name is one of the protocol's
masks; a `float` is a time; an enumeration is one of its members; a struct is made in its turn, and one that may be
absent is made twice, with and without.  `SendRoute` is taken member by member, because guards ask for it with `is`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from enum import IntEnum
from itertools import product
from typing import Any

import msgspec
import z3

from kvproto.endpoint.group_table import Destination
from kvproto.fsm.vocabulary import State
from kvproto.layout.cut import Cut, Part
from kvproto.protocol.events import PeerBuild
from kvproto.verify.prove.terms import SET, Bits, Choice, Facts, Number, Opaque, Term, Truth

#: fields that are sets, where the code has a mask
MASKS = frozenset(
    {"writers", "asked", "arrived", "by_pages", "peers", "done", "in_doubt", "untold", "everyone", "writes", "aux",
     "agreed", "ever", "granted", "landed", "may_write", "told", "ranks", "links", "unlinked"}
)  # fmt: skip
#: numbers that may be negative: a rank that nobody is, a slot that is none, the aux row's chunk
SIGNED = frozenset({("RoomFailed", "peer"), ("PSendValue", "slot")})
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
        known = hints(kind)
        fields = kind.__struct_fields__
        choices = [
            [fixed[field]] if field in fixed else list(self._field(kind, field, known[field], f"{name}.{field}"))
            for field in fields
        ]
        for chosen in product(*choices):
            yield kind(**dict(zip(fields, chosen, strict=True)))

    def _field(self, owner: type[Any], field: str, hint: Any, name: str) -> Iterator[Any]:
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        for option in options:
            if option is types.NoneType:
                yield None
            elif isinstance(option, type) and issubclass(option, msgspec.Struct) and option not in OPAQUE:
                yield from self.variants(option, name)
            elif isinstance(option, type) and option.__name__ in EACH:
                yield from typing.cast("type[IntEnum]", option)
            else:
                yield self.scalar(owner, field, option, name)

    def scalar(self, owner: type[Any], field: str, hint: Any, name: str) -> Any:
        """The term of one field."""
        made: Any
        if hint is bool:
            made = Truth(z3.Bool(name))
        elif isinstance(hint, type) and issubclass(hint, IntEnum):
            made = Choice(z3.Int(name), hint)
            self.facts.append(z3.And(made.term >= 0, made.term < len(hint)))
        elif hint is int and field in MASKS:
            made = Bits(z3.Const(name, SET))
        elif hint is int:
            made = Number(z3.Int(name))
            if (owner.__name__, field) not in SIGNED:
                self.facts.append(made.term >= 0)
        elif hint is float:
            made = Number(z3.Real(name))
        elif hint in OPAQUE:
            made = Opaque(z3.Int(name))
        else:
            raise TypeError(f"{owner.__name__}.{field}: nothing stands for a {hint!r} yet")
        self.named[name] = made
        return made

    def state(self, kind: type[State], name: str) -> Choice:
        """Some state, which one is not known."""
        made = Choice(z3.Int(name), kind)
        self.facts.append(z3.And(made.term >= 0, made.term < len(kind)))
        self.named[name] = made
        return made


_kept: dict[type[Any], dict[str, Any]] = {}


def hints(kind: type[Any]) -> dict[str, Any]:
    """Return the annotations of a struct's fields."""
    found = _kept.get(kind)
    if found is None:
        found = _kept[kind] = typing.get_type_hints(kind)
    return found


def parts(value: Any) -> Iterator[Any]:
    """Yield the parts of a struct; equal structs have equal parts while their terms are kept."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from parts(getattr(value, field))
    else:
        yield value.term.get_id() if isinstance(value, Term) else value


def shown(value: Any, model: Any) -> str:
    """Return a term's value in a model, for a reader."""
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
