"""Peers, libraries and engines that break the contract: nothing that they say, answer or call stops a rank.

Each world is one rank, its states from the checker's or from simulated worlds, and everything that may come to it there
(see `support.hostile`).  Between them they fire every row of every table and take every route, without one event that
only the rank's own machines raise: a row that nothing here fires, nothing can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

import pytest
from msgspec.structs import replace
from support.hostile import Suspect, SuspectDecode, SuspectPrefill
from support.hostile_search import HostileSearch, checked_values, idle_value, simulated_values, used_again

from kvproto.check.config import Budget, Config
from kvproto.check.small_worlds import AT_ONCE
from kvproto.check.snapshot import Frozen
from kvproto.fsm.table_patching import TablePatch
from kvproto.fsm.trace.coverage import Collector
from kvproto.fsm.trace.coverage_report import lacking
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.kv import KV
from kvproto.protocol.routes import SenderIs, prefill_routes
from kvproto.protocol.states import DRoom, PRoom, PSend
from kvproto.protocol.tables.decode_room import decode_room
from kvproto.protocol.tables.prefill_send import prefill_send

pytestmark = [pytest.mark.misbehaving, pytest.mark.timeout(600)]
SEEDS = range(30)


class HostileWorld(NamedTuple):
    """A rank, the states in which it is found, and how many of the states that come of them are tried."""

    suspect: type[Suspect]
    config: Config
    limit: int
    starts: Callable[[Suspect], Iterable[Frozen]] = checked_values
    rank: int = 0
    wider: bool = False
    strength: int = 2


def lived(suspect: Suspect) -> list[Frozen]:
    """Values of simulated worlds."""
    return simulated_values(suspect, SEEDS)


def risen(suspect: Suspect) -> Iterator[Frozen]:
    """The checker's states in which a send waits for a watermark that has risen since it last looked."""
    for value in checked_values(suspect):
        rooms, tombs, links, known, sends, *rest = value
        if any(send.state is PSend.AWAIT_WATERMARK for _, parts in sends for _, send in parts):
            links = tuple(link and replace(link, mark_tail=1) for link in links)
            sends = tuple((k, tuple((at, replace(send, mark=False)) for at, send in parts)) for k, parts in sends)
            yield rooms, tombs, links, known, sends, *rest


def joined(suspect: Suspect) -> Iterator[Frozen]:
    """The checker's states in which a room is open, and one more rank of its group has called."""
    for value in checked_values(suspect):
        if any(room.state is PRoom.OPEN for _, room in value[0]):
            rooms, tombs, (link, _), (known, _), *rest = suspect.padded(value)
            yield rooms, tombs, (link, link), (known, known), *rest


P, D = SuspectPrefill, SuspectDecode
#: about half as many values again as the last row or route took that only this world brings about
WORLDS = {
    "P: a room of one chunk, whose writes tell": HostileWorld(P, Config(chunks=1, tells=True), 40),
    "P: two chunks in a ring of one": HostileWorld(P, Config(chunks=2, ring=1, window=1, budget=Budget(early=1)), 300),
    "P: pages only": HostileWorld(P, Config(chunks=1, route="pages"), 400),
    "P: one writes page to page at a time": HostileWorld(
        P, Config(chunks=2, ring=1, page_writes=1, budget=Budget(early=1, timeout=1)), 900
    ),
    "P: pages, and one writes at a time": HostileWorld(P, Config(chunks=2, route="pages", page_writes=1), 300),
    "P: one asks at a time": HostileWorld(P, Config(chunks=2, ring=2, requests=1), 400),
    "P: one slot": HostileWorld(P, Config(chunks=2, ring=2, engine=AT_ONCE), 400),
    "P: writes in batches": HostileWorld(
        P, Config(chunks=1, route="pages", pieces=2, batches=2, preparing=True, budget=Budget(late=1)), 400
    ),
    "P: a replica": HostileWorld(P, Config(prefills=2, heads=1, chunks=1), 40, rank=1),
    "P: an id used again, sends still wait": HostileWorld(
        P, Config(chunks=2, rooms=2, tombstones=1, requests=1), 900, used_again
    ),
    "P: a group that has grown": HostileWorld(P, Config(chunks=1), 800, idle_value, wider=True),
    "P: a group that has grown while a room was open": HostileWorld(P, Config(chunks=1), 60, joined, wider=True),
    "P: a watermark that has risen": HostileWorld(P, Config(chunks=2, ring=1, budget=Budget(early=1)), 40, risen),
    "D: nobody has called yet": HostileWorld(D, Config(chunks=1, ring=1, wired=False), 150),
    "D: two chunks in a ring of one": HostileWorld(D, Config(chunks=2, ring=1), 360),
    "D: two writers": HostileWorld(D, Config(prefills=2, chunks=1, ring=1), 150),
    "D: two writers, a region to come": HostileWorld(
        D, Config(prefills=2, chunks=2, ring=2, engine=AT_ONCE, budget=Budget(early=1)), 200
    ),
    "D: two writers, the second chunk queues": HostileWorld(
        D, Config(prefills=2, chunks=2, ring=2, ahead=0, engine=AT_ONCE, budget=Budget(early=1)), 150
    ),
    "D: all is there already": HostileWorld(D, Config(chunks=0, prefix=2), 40),
    "D: more rooms than are remembered": HostileWorld(D, Config(chunks=1, rooms=2, ring=1, tombstones=1), 420),
    "D: simulated": HostileWorld(D, Config(prefills=2, chunks=2, ring=2, rooms=2), 210, lived),
    "D: a group that has grown": HostileWorld(D, Config(chunks=1), 1200, idle_value, wider=True, strength=3),
}


def search(world: HostileWorld) -> Collector:
    """Everything in every state, up to the limit; returns what was fired and taken.

    AssertionError: what does not hold, with the way there.
    """
    counts = Collector(KV.counted)
    with counts.installed():
        suspect = world.suspect(world.config, world.rank, more=world.wider)
        starts = [suspect.start, *world.starts(suspect)]
        counts.rows.clear()  # what honest worlds have fired
        counts.routes.clear()
        HostileSearch(suspect, starts, strength=world.strength).run(world.limit)
    return counts


@cache
def seen(name: str) -> Collector:
    """A search, once for all tests."""
    return search(WORLDS[name])


@pytest.mark.parametrize("name", WORLDS)
def test_nothing_that_is_said_answered_or_called_stops_a_rank(name: str) -> None:
    assert seen(name).rows


def test_every_row_and_every_route_is_there_because_somebody_can_bring_it_about() -> None:
    whole = Collector(KV.counted)
    for name in WORLDS:
        whole.add(seen(name))
    number, lines = lacking(whole, {})
    assert not number, "\n".join(lines)


def test_a_row_that_is_missing_is_found() -> None:
    with TablePatch() as bench:
        bench.drop(decode_room, bench.rows(decode_room, DRoom.OPEN, ev.ChunkNotified))
        with pytest.raises(AssertionError, match="no row for ChunkNotified"):
            search(WORLDS["D: two chunks in a ring of one"])


def test_a_send_that_ends_in_the_queue_for_a_slot_and_stays_there_is_found() -> None:
    with TablePatch() as bench:
        bench.without(prefill_send, bench.rows(prefill_send, PSend.AWAIT_SLOT, ev.SendStopped), "leave_queue")
        with pytest.raises(AssertionError, match="a slot belongs to no send"):
            search(HostileWorld(P, Config(chunks=2, ring=2, slots=1), 200))


def test_an_outsider_who_is_heard_is_found() -> None:
    with TablePatch() as bench:
        bench.close(prefill_routes, bench.routes(prefill_routes, msg.StagingRsp, SenderIs.OUTSIDER))
        with pytest.raises(AssertionError, match="somebody who is no party"):
            search(WORLDS["P: two chunks in a ring of one"])
