"""A party as a value: what can make a difference later, and nothing else.

Of timers it is kept only whether they run: when they end is for the world to say.  The trace, the counters and the
order in which machines were made are left out.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from msgspec.structs import replace

from kvproto.fsm.party import Member
from kvproto.fsm.timer_wheel import INFINITY
from kvproto.verify.framework.scenario import Around

NOW = 0.0


class PartyValue(NamedTuple):
    """A party's life, machines and kept values (None: it is dead), and its surroundings."""

    life: int
    memory: Any
    around: Around


class ValueNumbers:
    """Values of a kind, and the number of each."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.number: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        number = self.number.get(value)
        if number is None:
            number = self.number[value] = len(self.values)
            self.values.append(value)
        return number


def freeze(party: Member) -> Any:
    """Each store's machines and tombstones, sorted by key; and what the party keeps beside them."""
    stores = tuple((_frozen(store.items()), _frozen(store.ended().items())) for store in party.stores.values())
    return stores, tuple(getattr(party, name) for name in party.KEPT)


def _frozen(items: Any) -> tuple[tuple[Any, Any], ...]:
    calm = ((key, value if value.due == INFINITY else replace(value, due=NOW)) for key, value in items)
    return tuple(sorted(calm, key=lambda item: item[0]))


def thaw(party: Member, memory: Any) -> None:
    stores, kept = memory
    party.clear_pending()
    party.trace.clear()
    for store, (values, tombs) in zip(party.stores.values(), stores, strict=True):
        store.put_back(dict(values), OrderedDict(tombs))
    for name, value in zip(party.KEPT, kept, strict=True):
        setattr(party, name, value)
