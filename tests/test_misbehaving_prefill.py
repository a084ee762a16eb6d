"""Input to a prefill rank from a peer, library or engine that breaks the contract stops nothing.

Between them these worlds fire every row of the prefill rank's tables, and take every route to it: a row that nothing
here fires, nothing can.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from msgspec.structs import replace
from support.hostile import Suspect, SuspectPrefill
from support.hostile_search import checked_values, idle_value, used_again
from support.hostile_worlds import HostileWorld, search, seen, unseen
from support.night import night_alone

from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.routes import SenderIs, prefill_routes
from kvproto.protocol.states import PLink, PRoom, PSend
from kvproto.protocol.tables.links import YIELDS, prefill_link
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.protocol.tables.prefill_write import prefill_write
from kvproto.verify.check.config import Budget, Config
from kvproto.verify.check.small_worlds import AT_ONCE
from kvproto.verify.check.snapshot import Frozen
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.trace.coverage import Counted

pytestmark = [pytest.mark.misbehaving, pytest.mark.timeout(600)]
PREFILL = Counted((prefill_room, prefill_send, prefill_write, prefill_link), (prefill_routes,))
prefill = partial(HostileWorld, SuspectPrefill)


def risen(suspect: Suspect) -> Iterator[Frozen]:
    """The checker's states in which a send waits for a watermark that has risen since it last looked."""
    for value in checked_values(suspect):
        rooms, tombs, links, known, sends, *rest = value
        if any(send.state is PSend.AWAIT_WATERMARK for _, parts in sends for _, send in parts):
            links = tuple(link and replace(link, mark_tail=1) for link in links)
            sends = tuple((k, tuple((at, replace(send, mark=False)) for at, send in parts)) for k, parts in sends)
            yield rooms, tombs, links, known, sends, *rest


def joined(suspect: Suspect) -> Iterator[Frozen]:
    """The checker's states in which a room is known, and one more rank of its group has called."""
    for value in checked_values(suspect):
        if any(room.state in (PRoom.AWAIT_PEERS, PRoom.AWAIT_FORWARD, PRoom.OPEN) for _, room in value[0]):
            rooms, tombs, (link, _), (known, _), *rest = suspect.padded(value)
            yield rooms, tombs, (link, link), (known, known), *rest


def doubted(suspect: Suspect) -> Iterator[Frozen]:
    """The checker's states in which a link is up, and silent since a later incarnation has called."""
    for value in checked_values(suspect):
        rooms, tombs, links, *rest = value
        if links[0] and links[0].state is PLink.UP:
            silent = replace(
                links[0], rival=links[0].session + 1, rival_place=b"elsewhere", doubted=True, silent=YIELDS
            )
            yield rooms, tombs, (silent, *links[1:]), *rest


TAKEN_BACK = ("open+schedule+finish", "withdraw", "withdrawn", "finish+aux")
#: about half as many values again as the last row or route took that no other world brings about sooner
WORLDS = {
    "a room of one chunk, whose writes tell": prefill(Config(chunks=1, native_notify=True, budget=Budget(write=1)), 60),
    "two chunks in a ring of one": prefill(Config(chunks=2, ring=1, window=1, budget=Budget(early=1)), 100),
    "pages only": prefill(Config(chunks=1, route="pages"), 60),
    "one writes page to page at a time": prefill(
        Config(chunks=2, ring=1, page_writes=1, budget=Budget(early=1, timeout=1)), 60
    ),
    "pages, and one writes at a time": prefill(Config(chunks=2, route="pages", page_writes=1), 60),
    "one asks at a time": prefill(Config(chunks=2, ring=2, requests=1), 60),
    "two rooms, and one asks at a time": prefill(Config(chunks=1, rooms=2, requests=1), 60),
    "one slot": prefill(Config(chunks=2, ring=2, engine=AT_ONCE), 60),
    "writes in batches": prefill(
        Config(chunks=1, route="pages", pieces=2, batches=2, preparing=True, budget=Budget(late=1)), 40
    ),
    "a replica": prefill(Config(prefills=2, heads=1, chunks=1), 40, rank=1),
    "an id used again, sends still wait": prefill(
        Config(chunks=2, rooms=2, tombstones=1, requests=1, slots=1, page_writes=1), 270, used_again
    ),
    "a group that has grown": prefill(Config(chunks=1), 100, idle_value, wider=True),
    "a group that has grown while a room was open": prefill(
        Config(chunks=1, engine=("open", "schedule", "finish+aux")), 195, joined, wider=True
    ),
    "KV that is taken back while it is written": prefill(Config(chunks=1, engine=TAKEN_BACK), 460),
    "the same, and there is no way over pages": prefill(
        Config(chunks=1, route="staged", engine=TAKEN_BACK, budget=Budget(late=1)), 435
    ),
    "the same, and one slot, and one asks at a time": prefill(
        Config(chunks=2, ring=2, requests=1, route="staged", engine=TAKEN_BACK), 60
    ),
    "a silent link, and a later incarnation": prefill(Config(chunks=1), 20, doubted),
    "a watermark that has risen": prefill(Config(chunks=2, ring=1, budget=Budget(early=1)), 40, risen),
}

#: a third of each world, which by day is searched, does not bring all rows about
by_night_alone = night_alone("all of each world")


@pytest.mark.parametrize("name", WORLDS)
def test_nothing_that_is_said_answered_or_called_stops_a_prefill_rank(name: str) -> None:
    assert seen(WORLDS[name]).rows


@by_night_alone
def test_every_row_and_every_route_is_there_because_somebody_can_bring_it_about() -> None:
    lines = unseen(WORLDS, PREFILL)
    assert not lines, "\n".join(lines)


def test_a_send_that_ends_in_the_queue_for_a_slot_and_stays_there_is_found() -> None:
    with TablePatch() as bench:
        bench.without(prefill_send, bench.rows(prefill_send, PSend.AWAIT_SLOT, ev.SendStopped), "leave_queue")
        with pytest.raises(AssertionError, match="a slot belongs to no send"):
            search(prefill(Config(chunks=2, ring=2, slots=1), 200))


def test_an_outsider_who_is_heard_is_found() -> None:
    with TablePatch() as bench:
        bench.close(prefill_routes, bench.routes(prefill_routes, msg.StagingRsp, SenderIs.OUTSIDER))
        with pytest.raises(AssertionError, match="somebody who is no party"):
            search(WORLDS["two chunks in a ring of one"])
