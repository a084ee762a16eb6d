"""Promela made from the tables is fresh, and changes with them (`test_witness_chunk` compares states)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from support.witness import spin
from test_witness_chunk import agree_with_spin, by_night_alone, world
from witness.chunk import Tables
from witness.chunk_search import explore
from witness.promela import FILES, FOLDER, PromelaWorld, generate, stale

from kvproto.fsm.table import Row, Table
from kvproto.fsm.vocabulary import Event
from kvproto.protocol import events as ev
from kvproto.protocol.states import DGrant, PRoom, PSend
from kvproto.protocol.tables.decode_grant import as_agreed, close, decode_grant, free, gave_up
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.protocol.tables.prefill_send import finish, free_slot, prefill_send

pytestmark = pytest.mark.timeout(300)


def test_what_is_generated_is_fresh() -> None:
    assert stale() == [], "run: python -m witness.promela"
    assert {path.stem for path in FOLDER.glob("*.pml")} == FILES.keys()


Change = Callable[[Row], Row | None]


def with_rows(table: Table[Any], source: int, event: type[Event], change: Change) -> Table[Any]:
    """The table with the rows of this pair changed, or dropped (None)."""
    new = copy.copy(table)
    rows = [change(row) if row.source == source and row.event is event else row for row in table.rows]
    new.rows = [row for row in rows if row is not None]
    assert [str(row) for row in new.rows] != [str(row) for row in table.rows]
    return new


def any_part_is_the_last(row: Row) -> Row:
    return replace(row, when=as_agreed) if row.target is DGrant.SCATTERING else row


def freed_at_once(row: Row) -> Row:
    return replace(row, target=DGrant.FREED, do=(free, close))


def stopped_at_once(row: Row) -> Row:
    return replace(row, target=PSend.STOPPED, do=(free_slot, finish))


def silent(row: Row) -> Row:
    return replace(row, do=())


def unless_given_up(row: Row) -> Row | None:
    return None if row.when is gave_up else row


def grants(source: DGrant, event: type[Event], change: Change) -> Tables:
    return Tables(grant=with_rows(decode_grant, source, event, change))


#: what is changed -> (the tables, what both searches must see, and in which ring)
FAULTY = {
    "the first part counts as the last": (grants(DGrant.FILLING, ev.PartArrived, any_part_is_the_last), "S3", "empty"),
    "a failed room's region is not quarantined": (grants(DGrant.FILLING, ev.RoomStopped, freed_at_once), "S4", "empty"),
    "a write in flight does not drain": (
        Tables(with_rows(prefill_send, PSend.WRITING, ev.SendStopped, stopped_at_once)), "S4", "empty"),
    "an abort after success is not answered": (
        Tables(writer_room=with_rows(prefill_room, PRoom.DONE, ev.AbortAsked, silent)), "L1", "small"),
    "who gave it up is told of it again": (
        grants(DGrant.FILLING, ev.StagingRequested, unless_given_up), "count", "empty"),
    "who asks for a region late is not answered": (
        grants(DGrant.FILLING_PAGES, ev.StagingRequested, silent), "count", "small"),
}  # fmt: skip


@pytest.mark.parametrize("fault", [
    pytest.param(name, marks=by_night_alone if (seen, ring) == ("count", "empty") else ())
    for name, (_, seen, ring) in FAULTY.items()
])  # fmt: skip
def test_a_change_to_a_table_is_seen(fault: str) -> None:
    tables, seen, ring = FAULTY[fault]
    spun, ours = spin(generate(PromelaWorld(ring), tables)), explore(tables, (ring,))
    if seen == "count":
        agree_with_spin(ours, spun)
        assert spun.stored != world(ring, True, False).states[ring]
    elif seen == "L1":
        assert ours.faults == [] and ours.lost > 0
        assert spun.error.startswith("invalid end state")
    else:
        assert seen in ours.faults[0]
        assert spun.error.startswith("assertion violated")
