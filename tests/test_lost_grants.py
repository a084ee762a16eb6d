"""Grants that a connection loses cost the ring one wait together, not one wait each.

A chunk that queues for the ring is told when it gets its region, once.  A connection that is cut loses many such words
at a time, and each of those regions stays empty until its writer asks.  The ring is freed in order, so the rooms of all
other prefill ranks wait behind them.
"""

from __future__ import annotations

from typing import Any

from support.stories import CHUNK_TOKENS, layout

from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause, PSend
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.sim.member import FaultChances
from kvproto.verify.sim.world import SimulatedWorld

#: regions of the ring, each of one room; as many rooms hold it as queue for it
REGIONS = 6
HOLDING, QUEUEING = range(100, 100 + REGIONS), range(200, 200 + REGIONS)
TIMING = Timing()
#: rooms begin to queue one after the other, all within one period of their timers
APART_S = TIMING.queue_retry.period / (REGIONS + 1)
#: until a timer ends the wheel adds a slot at most, and a simulated clock moves in steps
SLACK_S, STEP_S = 0.2, 0.05


class LossyWorld(SimulatedWorld):
    """A world whose connection loses the grants that are given while it is cut."""

    cut = False
    lost = 0

    def mail_to(self, place: bytes, sender: bytes, epoch: int, room: int, body: msg.Message) -> None:
        """Send a message, unless it is a grant that is lost."""
        if self.cut and isinstance(body, msg.StagingRsp):
            self.lost += 1
            return
        super().mail_to(place, sender, epoch, room, body)


def open_rooms(world: SimulatedWorld, rooms: range, *, apart: float = 0.0) -> None:
    """Open these rooms, of one chunk each, with their KV; so many seconds pass after each."""
    for room in rooms:
        world.open_all(room, CHUNK_TOKENS)
        world.produce_all(room, CHUNK_TOKENS)
        world.calm(apart)


def states(world: SimulatedWorld, rooms: range) -> set[Any]:
    """Return the states of these rooms' sends, but for those of the aux row, which have ended."""
    return {send.state for room in rooms for send in world.prefill(0).sends.get(room, {}).values()}


def seconds_after_a_cut() -> float:
    """Seconds from the loss of all grants of a ring until every room that they were for is over."""
    plan = Plan(layout(1), layout(1), CHUNK_TOKENS)
    settings = Settings(
        timing=TIMING, ring_bytes=REGIONS * plan.grant_bytes(0, Cut(0, CHUNK_TOKENS)), ring_rounds_ahead=0,
        slots=REGIONS, route="staged",
    )  # fmt: skip
    world = LossyWorld(0, layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, settings=settings)
    world.calm()
    world.chances = FaultChances(write_hangs=1.0)
    open_rooms(world, HOLDING)
    world.chances = FaultChances()
    open_rooms(world, QUEUEING, apart=APART_S)
    assert states(world, HOLDING) == {PSend.WRITING} and states(world, QUEUEING) == {PSend.AWAIT_TURN}
    world.cut = True
    world.hurry()
    world.calm()
    world.cut = False
    assert world.lost == REGIONS and states(world, QUEUEING) == {PSend.AWAIT_TURN}
    began = world.now
    while not all(map(world.settled, QUEUEING)):
        world.calm(STEP_S)
    assert {node.outcomes[room] for node in world.nodes.values() for room in QUEUEING} == {Cause.NONE}
    return world.now - began


def test_grants_that_are_lost_at_once_cost_one_wait_together() -> None:
    assert seconds_after_a_cut() <= TIMING.queue_retry.period + SLACK_S
    with TablePatch() as bench:
        bench.change(prefill_send, bench.rows(prefill_send, PSend.AWAIT_TURN, ev.TimerFired, "moves"), do=())
        alone = seconds_after_a_cut()
    assert alone > REGIONS * TIMING.queue_retry.period, "planted: a queue that moves is not asked"
