"""How long pages can stay away: the formulas against ranks whose peers die at the worst moment.

The ranks are real, network and time are lists.  Time goes from timer to timer, so nothing is late because of the test.
"""

from __future__ import annotations

import pytest
from support.stories import layout

from kvproto.fsm.timer_wheel import QUANTUM
from kvproto.fsm.timing import Timer
from kvproto.protocol import events as ev
from kvproto.protocol.events import room_key
from kvproto.protocol.states import Cause
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings
from kvproto.verify.claims import release_times as times
from kvproto.verify.draw.wire_tables import RELEASES
from kvproto.verify.sim.world import SimulatedWorld

ROOM = room_key(7, 0)
#: the defaults, and two in which another term of each maximum counts
TIMINGS = (
    Timing(),
    Timing(kernel=Timer(90.0), lease=Timer(10.0), write=Timer(5.0)),
    Timing(heartbeat=Timer(0.5, 3), lease=Timer(8.0), write=Timer(20.0), kernel=Timer(2.0), call=Timer(0.7, 10, 3.0)),
)
TICK = 1e-6


class Timed(SimulatedWorld):
    """One prefill and one decode rank; time stops at every timer."""

    def __init__(self, timing: Timing) -> None:
        settings = Settings(timing=timing, ring_bytes=1 << 20, slot_bytes=1 << 18)
        super().__init__(1, layout(1), layout(1), chunk_tokens=8, settings=settings)
        self.calm()
        self.open_all(ROOM, 8)
        self.calm()

    def until(self, when: float) -> None:
        """Carry out what can happen; timers end one after the other, up to this moment."""
        self.calm()
        while (nearest := min(node.rank.next_deadline for node in self.nodes.values())) <= when:
            self.pass_time(max(nearest - self.now, TICK))
            self.calm()
        self.now = max(self.now, when)

    def dies(self) -> None:
        """The prefill rank is no more; what it had under way is not looked at."""
        dead = self.nodes.pop(("P", 0))
        self.jobs = [job for job in self.jobs if job.node is not dead]
        self.mail = [parcel for parcel in self.mail if parcel.side == "D" and parcel.place != dead.place]

    def released(self, limit: float) -> float:
        """When the decode rank's engine has its pages again."""
        while ROOM not in self.nodes["D", 0].released:
            assert self.now < limit, "never"
            self.until(self.nodes["D", 0].rank.next_deadline)
        return self.now


def granted(timing: Timing) -> Timed:
    """A world in which a region is asked for, and granted: it may be written to from now on."""
    world = Timed(timing)
    world.chances = type(world.chances)(gather_hangs=1.0)
    world.raise_event("P", 0, ev.TokensProduced(ROOM, 8))
    world.calm()
    assert world.decode(0).chunk_of
    return world


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("phase", [0.0, 0.05, 0.5, 0.95])
def test_a_prefill_rank_that_dies_keeps_the_pages_no_longer(timing: Timing, phase: float) -> None:
    world = granted(timing)
    world.until(world.now + (3 + phase) * timing.heartbeat.period)
    died = world.now
    world.dies()
    took = world.released(died + 1000.0) - died
    assert world.nodes["D", 0].outcomes[ROOM] is Cause.LINK_LOST
    assert timing.lease.period + timing.write.period < took <= times.noticed(timing) + times.harmless(timing) + TICK
    assert took <= times.bereft(timing)


def test_the_bound_of_a_death_is_met_at_the_worst_moment() -> None:
    """It is no larger than it has to be: some phase of the beats comes within a tenth of a second of it."""
    timing, worst = Timing(), 0.0
    for tenth in range(10):
        world = granted(timing)
        world.until(world.now + (3 + tenth / 10) * timing.heartbeat.period)
        died = world.now
        world.dies()
        worst = max(worst, world.released(died + 1000.0) - died)
    assert times.bereft(timing) - 0.1 <= worst <= times.bereft(timing)


def flying(timing: Timing) -> Timed:
    """A world in which a write of the room has been posted and does not end by itself."""
    world = Timed(timing)
    world.chances = type(world.chances)(write_hangs=1.0)
    world.raise_event("P", 0, ev.TokensProduced(ROOM, 8))
    world.calm()
    assert any(job.hangs for job in world.jobs), "a write is under way"
    return world


@pytest.mark.parametrize("timing", TIMINGS)
def test_a_prefill_rank_has_its_pages_when_its_write_has_ended(timing: Timing) -> None:
    world = flying(timing)
    begun = world.now
    world.raise_event("P", 0, ev.EngineAborted(ROOM, Cause.PREFILL_ABORTED))
    world.until(begun + timing.write.period - TICK)
    assert ROOM not in world.nodes["P", 0].released and ROOM not in world.nodes["D", 0].released
    world.hurry()
    world.calm()
    assert {ROOM} == world.nodes["P", 0].released == world.nodes["D", 0].released
    assert world.now - begun <= times.drains(timing) == times.answered(timing)


@pytest.mark.parametrize("timing", TIMINGS)
def test_at_worst_it_drains_for_as_long_as_it_may_and_dies_unheard(timing: Timing) -> None:
    world = flying(timing)
    outcome = world.now
    world.raise_event("D", 0, ev.EngineAborted(ROOM, Cause.DECODE_ABORTED))
    world.until(outcome + timing.write.period - TICK)
    assert ROOM not in world.nodes["D", 0].released, "its prefill rank has not drained"
    world.dies()
    took = world.released(outcome + 1000.0) - outcome
    assert timing.write.period + timing.lease.period + timing.write.period < took <= times.longest(timing)


def test_every_formula_is_on_the_page_and_the_defaults_add_up() -> None:
    timing = Timing()
    assert [f.__name__ for f in RELEASES] == ["drains", "noticed", "harmless", "answered", "bereft", "longest"]
    assert QUANTUM == 1 / 64
    calls = 121 * (0.5 + QUANTUM)
    assert times.longest(timing) == pytest.approx(30.0 + 6 * (1.0 + QUANTUM) + calls)
