"""One room, two outcomes: how the two sides may differ, and what each may rely on all the same.

A confirmation says that a part has arrived.  So prefill may have success where decode fails later, and decode where
prefill never hears of it; what PROTOCOL.md says of both (How a room ends) is played here, link, kernel and engine.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.stories import CHUNK_TOKENS, PAGE, QUICK, layout

from kvproto.fsm.vocabulary import Event
from kvproto.protocol import events as ev
from kvproto.protocol.messages import AuxAck, ChunkAck
from kvproto.protocol.states import Cause, DGrant
from kvproto.settings import Settings
from kvproto.verify.sim.world import Side, SimulatedWorld

ROOM, TOKENS = 100, CHUNK_TOKENS


def begun() -> SimulatedWorld:
    """One rank a side, and a room of one chunk whose KV and aux row are there."""
    settings = Settings(timing=QUICK, ring_bytes=1 << 20)
    at = SimulatedWorld(0, layout(1), layout(1, page=2 * PAGE), chunk_tokens=CHUNK_TOKENS, settings=settings)
    at.calm()
    at.open_all(ROOM, TOKENS)
    at.calm()
    at.produce_all(ROOM, TOKENS)
    return at


def until(at: SimulatedWorld, done: Callable[[], bool]) -> None:
    """Mail first, then what is under way, but no scatter: it takes its time."""
    for _ in range(1000):
        if done():
            return
        jobs = [job for job in at.jobs if not isinstance(job.event, ev.Scattered)]
        if at.mail:
            at.deliver(0)
        else:
            at.finish(jobs[0])
    raise AssertionError("it never comes about")


def outcome(at: SimulatedWorld, side: Side) -> Cause | None:
    return at.nodes[side, 0].outcomes.get(ROOM)


def ends(at: SimulatedWorld) -> None:
    at.calm(60.0)
    assert at.idle() == []
    assert all(ROOM in node.released for node in at.nodes.values())


AFTER: dict[str, tuple[Event, Cause]] = {
    "the link is lost": (ev.QueueOverflowed(1), Cause.LINK_LOST),
    "its engine gives the room up": (ev.EngineAborted(ROOM, Cause.DECODE_ABORTED), Cause.DECODE_ABORTED),
    "its scatter fails": (ev.ScatterFailed(ROOM, 0), Cause.KERNEL_FAILED),
}


@pytest.mark.parametrize("what", AFTER)
def test_prefill_has_success_and_decode_fails_after_the_last_confirmation(what: str) -> None:
    event, cause = AFTER[what]
    at = begun()
    until(at, lambda: outcome(at, "P") is not None)
    assert outcome(at, "P") is Cause.NONE and ROOM in at.nodes["P", 0].released
    assert at.decode(0).grants[ROOM][0].state is DGrant.SCATTERING and outcome(at, "D") is None
    if isinstance(event, ev.ScatterFailed):
        at.jobs = [job for job in at.jobs if not isinstance(job.event, ev.Scattered)]
    at.raise_event("D", 0, event)
    assert outcome(at, "D") is cause
    ends(at)
    assert (outcome(at, "P"), outcome(at, "D")) == (Cause.NONE, cause), "an outcome never changes"


@pytest.mark.parametrize("how", ["the link is lost", "its engine gives the room up"])
def test_decode_has_success_and_prefill_never_hears_the_last_confirmation(how: str) -> None:
    at = begun()
    until(at, lambda: any(isinstance(parcel.body, ChunkAck) for parcel in at.mail))
    at.mail = [parcel for parcel in at.mail if not isinstance(parcel.body, ChunkAck | AuxAck)]
    while outcome(at, "D") is None:
        at.finish(at.jobs[0])
    assert outcome(at, "D") is Cause.NONE and outcome(at, "P") is None
    lost = how == "the link is lost"
    at.raise_event("P", 0, ev.TransportLost(1) if lost else ev.EngineAborted(ROOM, Cause.PREFILL_ABORTED))
    cause = Cause.LINK_LOST if lost else Cause.PREFILL_ABORTED
    ends(at)
    assert (outcome(at, "P"), outcome(at, "D")) == (cause, Cause.NONE), "an outcome never changes"
