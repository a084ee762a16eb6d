"""Hostile worlds: a rank and every input of peers, libraries and engines that break the contract.

Each world is one rank, its states from the checker's or from simulated worlds, and everything that may come to it there
(see `support.hostile`).  Between them the worlds of a side fire every row of its tables and take every route to it,
without one event that only the rank's own machines raise: a row that nothing here fires, nothing can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple

from kvproto.verify.check.config import Config
from kvproto.verify.check.snapshot import Frozen
from kvproto.verify.claims.kv import KV
from kvproto.verify.framework.trace.coverage import Collector, Counted, lacking
from support.hostile import Suspect
from support.hostile_search import HostileSearch, checked_values
from support.night import by_night


class HostileWorld(NamedTuple):
    """A rank, the states in which it is found, and how many of the states that come of them are tried."""

    suspect: type[Suspect]
    config: Config
    limit: int
    starts: Callable[[Suspect], Iterable[Frozen]] = checked_values
    rank: int = 0
    wider: bool = False


def search(world: HostileWorld) -> Collector:
    """Try every input in every state, up to the limit; return the fired rows and taken routes.

    AssertionError: what does not hold, with the way there.
    """
    counts = Collector(KV.counted)
    with counts.installed():
        suspect = world.suspect(world.config, world.rank, more=world.wider)
        starts = [suspect.start, *world.starts(suspect)]
        counts.rows.clear()  # what honest worlds have fired
        counts.routes.clear()
        HostileSearch(suspect, starts).run(by_night(20 * world.limit, by_day=world.limit // 3))
    return counts


@cache
def seen(world: HostileWorld) -> Collector:
    """A search, once for all tests of a file."""
    return search(world)


def unseen(worlds: Mapping[str, HostileWorld], half: Counted) -> list[str]:
    """The rows and routes of one side that none of its worlds has brought about, line by line."""
    whole = Collector(half)
    for world in worlds.values():
        whole.add(seen(world))
    return lacking(whole)
