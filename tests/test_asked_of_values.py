"""Single values: functions that ranks call on them, and steps that few orders of events come to."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.fsm.machine import Machine
from kvproto.fsm.vocabulary import Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import Terms
from kvproto.protocol.states import Cause, DGrant, DLink, DRoom, PRoom, PSend
from kvproto.protocol.tables.decode_grant import DGrantValue, decode_grant, in_doubt
from kvproto.protocol.tables.decode_room import DRoomValue, decode_room
from kvproto.protocol.tables.links import DLinkValue, decode_link
from kvproto.protocol.tables.prefill_room import PrefillWork, PRoomValue, opened_by_all, refused
from kvproto.protocol.tables.prefill_send import PSendValue, prefill_send, reads_withdrawn
from kvproto.protocol.timing import Timing

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


# ------------------------------------------------------------------------------- what comes late, and from strangers
#: states to which a send comes from a region that it has given up, whose watermark may still rise
PAST_ITS_REGION = (
    PSend.AWAIT_KV, PSend.AWAIT_CREDIT, PSend.AWAIT_GRANT, PSend.AWAIT_WRITERS, PSend.AWAIT_TURN, PSend.AWAIT_SLOT,
    PSend.GATHERING, PSend.WRITING, PSend.AWAIT_PAGES_KV, PSend.AWAIT_PERMIT, PSend.DRAINING,
)  # fmt: skip
QUIET, CAME_UP, WENT_DOWN = ev.PeerQuiet(7, 0), ev.LinkCameUp(7, 0), ev.LinkWentDown(7, 0, Cause.LINK_LOST)
PASSED_OVER: list[tuple[Any, Any, Any]] = [
    *[(prefill_send, PSendValue(state), ev.WatermarkReached(7, 0, 0)) for state in PAST_ITS_REGION],
    (decode_grant, DGrantValue(DGrant.SCATTERING, writers=1), ev.SpaceUsable(7, 0)),
    *[(decode_room, DRoomValue(state, terms=TERMS), event) for state, event in (
        (DRoom.ANNOUNCED, QUIET), (DRoom.OPEN, QUIET), (DRoom.AWAIT_AUX, QUIET), (DRoom.ABORTED, QUIET),
        (DRoom.OPEN, CAME_UP), (DRoom.AWAIT_AUX, CAME_UP), (DRoom.FAILED, WENT_DOWN), (DRoom.ABORTED, WENT_DOWN),
    )],
    *[(decode_link, DLinkValue(state, session=2, address="tcp://a:1"), ev.CallAsked(1, 3, "tcp://a:1"))
      for state in (DLink.AWAIT_WELCOME, DLink.AWAIT_RETURN)],
]  # fmt: skip


def named(case: Any) -> str:
    """The state and the event of a case."""
    return f"{case.state.name}" if hasattr(case, "state") else getattr(case, "name", type(case).__name__)


@pytest.mark.parametrize(("table", "value", "event"), PASSED_OVER, ids=named)
def test_what_comes_late_is_no_mistake_and_changes_nothing(table: Any, value: Any, event: Any) -> None:
    after, effects = Machine[Any](table, Timing()).step(value, event, 5.0)
    assert after == value and not effects


ASKS = ev.StagingRequested(7, 0, 1, writers=0b01)


@pytest.mark.parametrize(
    ("table", "value", "event", "why"),
    [
        (prefill_send, PSendValue(PSend.NEW), ev.WriteFailed(7, 0, 0, settled=True), "the send is over"),
        (decode_grant, DGrantValue(DGrant.FILLING_PAGES, writers=0b01), ASKS, "not a writer of the chunk"),
        (decode_grant, DGrantValue(DGrant.SCATTERING, writers=0b01), ASKS, "not a writer of the chunk"),
    ],
    ids=named,
)
def test_what_nobody_should_say_is_reported_and_not_answered(table: Any, value: Any, event: Any, why: str) -> None:
    after, effects = Machine[Any](table, Timing()).step(value, event, 5.0)
    (report,) = effects
    assert after == value and isinstance(report, Report) and why in report.why


def test_a_gather_that_ends_after_its_lease_asks_for_the_ring_again() -> None:
    value = PSendValue(PSend.GATHERING, to=ev.Target(1, 9), kv=True, slot=0, lease=1.0, grant=3)
    after, effects = Machine(prefill_send, Timing()).step(value, ev.Gathered(7, 0, 0), 5.0)
    assert after.state is PSend.AWAIT_CREDIT
    assert [type(each) for each in effects] == [do.FreeSlot, do.TakeCredit]


def test_a_reset_of_its_own_epoch_ends_a_link_at_once() -> None:
    value = DLinkValue(DLink.UP, session=2, epoch=9, address="tcp://a:1")
    after, effects = Machine(decode_link, Timing()).step(value, ev.ResetReceived(1, 9), 5.0)
    assert after.state is DLink.AWAIT_RETURN and any(isinstance(each, do.RaiseLinkDown) for each in effects)
