"""Exchanging names: what a value would be if things that are alike had each other's names.

No row looks at the number of a transaction: who exchanges two of them everywhere takes behaviours to behaviours, and a
search needs only one state of each such set.  A scenario says which fields hold such names; they are exchanged wherever
they occur, in structs within structs, and the machines that have them for keys change places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations, product
from typing import Any

import msgspec
from msgspec.structs import replace

Renaming = Mapping[str, Mapping[Any, Any]]


#: fields that hold names of one kind of thing, and the names
Alike = Mapping[tuple[str, ...], tuple[Any, ...]]


def renamings(alike: Alike) -> Iterator[Renaming]:
    """Every exchange (but the one that changes nothing) of the names of each kind."""
    for orders in product(*(permutations(names) for names in alike.values())):
        made: dict[str, Mapping[Any, Any]] = {}
        for (fields, names), order in zip(alike.items(), orders, strict=True):
            exchanged = dict(zip(names, order, strict=True))
            for field in fields:
                made[field] = exchanged
        if any(old != new for names in made.values() for old, new in names.items()):
            yield made


def renamed(thing: Any, by: Renaming) -> Any:
    if isinstance(thing, msgspec.Struct):
        changes = {name: _field(name, getattr(thing, name), by) for name in thing.__struct_fields__}
        return replace(thing, **changes)
    if isinstance(thing, tuple):
        parts = [renamed(each, by) for each in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else tuple(parts)
    return frozenset(renamed(each, by) for each in thing) if isinstance(thing, frozenset) else thing


def _field(name: str, value: Any, by: Renaming) -> Any:
    if name not in by:
        return renamed(value, by)
    if isinstance(value, tuple | frozenset):
        return type(value)(by[name].get(each, each) for each in value)
    return by[name].get(value, value)
