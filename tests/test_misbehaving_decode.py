"""Input to a decode rank from a peer, library or engine that breaks the contract stops nothing.

Between them these worlds fire every row of the decode rank's tables, and take every route to it: a row that nothing
here fires, nothing can.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from msgspec.structs import replace
from support.hostile import Suspect, SuspectDecode
from support.hostile_search import checked_values, idle_value, simulated_values
from support.hostile_worlds import HostileWorld, search, seen, unseen
from support.night import night_alone

from kvproto.protocol import events as ev
from kvproto.protocol.routes import decode_routes
from kvproto.protocol.states import DLink, DRoom
from kvproto.protocol.tables.decode_grant import decode_grant
from kvproto.protocol.tables.decode_room import decode_room
from kvproto.protocol.tables.links import decode_link
from kvproto.verify.check.config import Budget, Config
from kvproto.verify.check.small_worlds import AT_ONCE
from kvproto.verify.check.snapshot import Frozen
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.trace.coverage import Counted

pytestmark = [pytest.mark.misbehaving, pytest.mark.timeout(600)]
SEEDS = range(30)
DECODE = Counted((decode_room, decode_grant, decode_link), (decode_routes,))
decode = partial(HostileWorld, SuspectDecode)


def lived(suspect: Suspect) -> list[Frozen]:
    """Values of simulated worlds."""
    return simulated_values(suspect, SEEDS)


def row_missing(suspect: Suspect) -> Iterator[Frozen]:
    """The checker's states that lack the aux row alone, with a second link of the group still to return."""
    for rooms, tombs, (link, _), *rest in checked_values(suspect):
        if any(room.state is DRoom.AWAIT_AUX for _, room in rooms) and link and link.state is DLink.UP:
            yield rooms, tombs, (link, replace(link, state=DLink.AWAIT_RETURN)), *rest


#: about half as many values again as the last row or route took that no other world brings about sooner
WORLDS = {
    "nobody has called yet": decode(Config(chunks=1, ring=1, wired=False), 40),
    "two chunks in a ring of one": decode(Config(chunks=2, ring=1), 140),
    "two writers": decode(Config(prefills=2, chunks=1, ring=1), 40),
    "two writers, a region to come": decode(
        Config(prefills=2, chunks=2, ring=2, engine=AT_ONCE, budget=Budget(early=1)), 40
    ),
    "a replica": decode(Config(prefills=2, heads=1, chunks=2, ring=1), 40),
    "a replica, and two chunks in a ring of one": decode(Config(prefills=2, heads=1, chunks=2, ring=1, ahead=0), 40),
    "two writers, the second chunk queues": decode(
        Config(prefills=2, chunks=2, ring=2, ahead=0, engine=AT_ONCE, budget=Budget(early=1)), 125
    ),
    "two writers, of which one may give up": decode(
        Config(prefills=2, chunks=1, ring=2, engine=AT_ONCE, budget=Budget(early=1)), 400
    ),
    "two writers, and a replica of each": decode(Config(prefills=4, heads=2, chunks=1, ring=2, engine=AT_ONCE), 100),
    "all is there already": decode(Config(chunks=0, prefix=2), 40),
    "more rooms than are remembered": decode(Config(chunks=1, rooms=2, ring=1, tombstones=1), 60),
    "simulated": decode(Config(prefills=2, chunks=2, ring=2, rooms=2), 40, lived),
    "the aux row alone is missing, and a link is to come back": decode(
        Config(chunks=1, engine=("open+schedule+finish", "aux")), 60, row_missing, wider=True
    ),
    "a group that has grown": decode(Config(chunks=1), 380, idle_value, wider=True),
}

#: a third of each world, which by day is searched, does not bring all rows about
by_night_alone = night_alone("all of each world")


@pytest.mark.parametrize("name", WORLDS)
def test_nothing_that_is_said_answered_or_called_stops_a_decode_rank(name: str) -> None:
    assert seen(WORLDS[name]).rows


#: what needs a later incarnation of a peer, another plan, or more rooms than these worlds have, and who fires it
ELSEWHERE = {
    "LinkWentDown in ANNOUNCED": "tests/test_tried_addresses.py",
    "LinkCameUp in UNKNOWN": "the world deep-tombstone-close",
    "PeerQuiet in OPEN": "tests/test_core_scenarios.py",
    "CallAsked in UP [anew]": "tests/test_core_scenarios.py::called_elsewhere",
    "CallAsked in AWAIT_WELCOME, CallAsked in AWAIT_RETURN [anew]": "tests/test_core_scenarios.py::called_elsewhere",
    "AddressAnswered in UP [takes_over]": "tests/test_core_scenarios.py::tried_elsewhere",
}


@by_night_alone
def test_every_row_and_every_route_is_there_because_somebody_can_bring_it_about() -> None:
    lines = unseen(WORLDS, DECODE)
    lacking = [line for line in lines if not any(what in line for what in ELSEWHERE)]
    assert not lacking, "\n".join(lacking)
    assert len(lines) == len(ELSEWHERE), "what is fired here needs no other place"


def test_a_row_that_is_missing_is_found() -> None:
    with TablePatch() as bench:
        bench.drop(decode_room, bench.rows(decode_room, DRoom.OPEN, ev.ChunkNotified))
        with pytest.raises(AssertionError, match="no row for ChunkNotified"):
            search(WORLDS["two chunks in a ring of one"])
