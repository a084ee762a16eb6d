"""The clocks: a steady one counts running time and not stalls; a stopped process does not age by it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproto.io.clock import GRACE_S, REAL_TIME, Clock, ManualClock, MonotonicClock, SteadyClock, WakingClock

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PATIENCE = 20.0
SPAWN = multiprocessing.get_context("spawn")


@given(st.floats(0.01, 10), st.lists(st.tuples(st.floats(0, 100), st.floats(0, 5)), max_size=30))
def test_a_steady_clock_counts_running_and_not_stalls(cap: float, passes: list[tuple[float, float]]) -> None:
    real = ManualClock(50.0)
    steady = SteadyClock(cap, real.now)
    last = steady.now()
    for took, allowed in passes:
        if allowed > 1:
            steady.allow(allowed)
        real.advance(took)
        now = steady.now()
        limit = cap + (allowed if allowed > 1 else 0.0)
        assert now - last == pytest.approx(min(took, limit), abs=1e-6)
        assert now >= last
        assert steady.again() == now
        assert steady.real() - steady.withheld == pytest.approx(now, abs=1e-6)
        last = now


def test_a_clock_that_could_never_advance_is_refused() -> None:
    for cap in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="cap_s"):
            SteadyClock(cap)


def test_a_manual_clock_stands_and_never_runs_back() -> None:
    clock = ManualClock(3.0)
    assert (clock.now(), clock.advance(2.0), clock.now()) == (3.0, 5.0, 5.0)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1e-9)


def test_the_monotonic_clock_is_the_systems() -> None:
    before = time.monotonic()
    assert before <= MonotonicClock().now() <= time.monotonic()


def watch_time(pipe: Connection) -> None:
    """Another process: reads both clocks in a loop; says on request by how much each went on."""
    steady, plain = SteadyClock(0.1), MonotonicClock()
    begun = steady.now(), plain.now()
    pipe.send("running")
    while not pipe.poll(0.005):
        steady.now()
    before, aged, after = plain.now(), steady.now(), plain.now()
    pipe.send((aged - begun[0], (before - begun[1], after - begun[1]), steady.withheld))


def test_a_stopped_process_does_not_age_by_its_own_stop() -> None:
    pipe, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=watch_time, args=(theirs,), daemon=True)
    process.start()
    assert pipe.poll(PATIENCE)
    pipe.recv()
    os.kill(process.pid or 0, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(process.pid or 0, signal.SIGCONT)
    pipe.send("report")
    assert pipe.poll(PATIENCE)
    steady, plain, withheld = pipe.recv()
    process.join(PATIENCE)
    assert plain[0] >= 1.0
    assert withheld >= 0.8
    assert plain[0] - 0.01 <= steady + withheld <= plain[1] + 0.01


def test_timers_wait_for_a_moment_when_a_stopped_process_goes_on_and_real_time_stays_real() -> None:
    real = ManualClock(50.0)
    clock = WakingClock(3.0, real.now)
    for passed in (0.5, 3.0, 3.0):
        real.advance(passed)
        assert (clock.now(), clock.awake()) == (real.now(), 0.0)
    real.advance(40.0)
    assert (clock.now(), clock.awake(), clock.again()) == (96.5, GRACE_S, 96.5)
    real.advance(GRACE_S / 2)
    assert (clock.now(), clock.awake()) == (real.now(), GRACE_S / 2)
    real.advance(GRACE_S / 2)
    assert (clock.now(), clock.awake()) == (real.now(), 0.0)
    real.advance(40.0)
    clock.now()
    assert clock.awake() == GRACE_S, "the wait was over, so the next stop has one, too"


@pytest.mark.parametrize("clock", [MonotonicClock(), SteadyClock(1.0), ManualClock()])
def test_a_clock_that_knows_of_no_stop_has_timers_end_when_they_are_due(clock: Clock) -> None:
    clock.now()
    assert clock.awake() == 0.0


def test_an_owner_who_polls_seldom_has_its_timers_ended_at_every_second_call() -> None:
    real = ManualClock()
    clock = WakingClock(3.0, real.now)
    seen = []
    for _ in range(6):
        real.advance(5.0)
        clock.now()
        seen.append(clock.awake() == 0.0)
    assert seen == [False, True] * 3


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system's clocks leave its sleep out")
def test_who_holds_leases_counts_the_machine_s_sleep_and_who_waits_does_not() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= REAL_TIME() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    holds, waits = WakingClock(3.0), SteadyClock(1.0)
    assert holds.real is holds.again is REAL_TIME
    assert waits.real is time.monotonic
