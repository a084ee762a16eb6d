"""The few functions of the tables that ranks and endpoints call on a machine's value, beside its rows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvproto.protocol.events import Terms
from kvproto.protocol.states import Cause, DGrant, PRoom, PSend
from kvproto.protocol.tables.decode_grant import DGrantValue, in_doubt
from kvproto.protocol.tables.prefill_room import PrefillWork, PRoomValue, opened_by_all, refused
from kvproto.protocol.tables.prefill_send import PSendValue, reads_withdrawn

TERMS = Terms(1, everyone=0b11, writes=0b11, aux=0b01, chunk_tokens=64, window=2)


@pytest.mark.parametrize(
    ("value", "there"),
    [
        (PRoomValue(PRoom.AWAIT_PEERS), False),
        (PRoomValue(PRoom.AWAIT_PEERS, terms=TERMS, peers=0b01), False),
        (PRoomValue(PRoom.AWAIT_ENGINE, terms=TERMS, peers=0b11), True),
        (PRoomValue(PRoom.OPEN, terms=TERMS, peers=0b11, work=PrefillWork()), True),
        (PRoomValue(PRoom.DRAINING, terms=TERMS, peers=0b11, work=PrefillWork(cause=Cause.STALLED)), False),
    ],
)
def test_everybody_is_there_when_all_have_opened_a_room_that_has_not_failed(value: PRoomValue, there: bool) -> None:
    assert opened_by_all(value) is there


@pytest.mark.parametrize(
    ("work", "is_refused"),
    [
        (None, False),
        (PrefillWork(cause=Cause.DECLINED, owned=False), True),
        (PrefillWork(cause=Cause.DECLINED), False),
        (PrefillWork(cause=Cause.NEVER_OPENED, owned=False), False),
    ],
)
def test_a_room_is_refused_by_an_engine_that_had_not_opened_it(work: PrefillWork | None, is_refused: bool) -> None:
    assert refused(PRoomValue(PRoom.ABORTED, work=work)) is is_refused


def test_in_doubt_are_the_writers_that_were_told_where_to_write_and_have_not() -> None:
    value = DGrantValue(DGrant.FILLING, writers=0b1111, asked=0b0111, by_pages=0b1101, arrived=0b0100)
    told = {state: in_doubt(replace(value, state=state)) for state in DGrant}
    assert told[DGrant.FILLING] == told[DGrant.QUARANTINED] == 0b0011
    assert told[DGrant.AWAIT_WRITERS] == told[DGrant.AWAIT_SPACE] == 0b0001, "of these, those that go by pages"


@pytest.mark.parametrize("state", PSend)
def test_a_send_reads_what_was_withdrawn_while_it_works_without_its_kv(state: PSend) -> None:
    works = state in (PSend.GATHERING, PSend.WRITING_PAGES, PSend.DRAINING)
    assert reads_withdrawn(PSendValue(state)) is works
    assert not reads_withdrawn(PSendValue(state, kv=True))
