"""Conformance: running ranks are followed, and an impossible trace is reported with its fault."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvproto.fsm.driver import Driver
from kvproto.lab.bench.step_life import CHUNK_TOKENS, BenchRoom, make_rank, opening
from kvproto.protocol import events as ev
from kvproto.protocol.timing import Timing
from kvproto.verify.draw.scenes import SCENES
from kvproto.verify.framework.trace.conformance_monitor import ConformanceMonitor, HandedTrace
from kvproto.verify.testing.simulation import FAULTS, Simulation
from kvproto.verify.trace.judged import breaches, monitor
from kvproto.verify.trace.rank_stories import TELLING
from kvproto.verify.trace.stories import Log, StepEntry, lines, parse, replay

WELL = next(scene for scene in SCENES if scene.name == "well").logs()


def test_endpoints_in_every_trouble_keep_what_is_claimed() -> None:
    monitor = ConformanceMonitor(TELLING, Timing())
    with monitor.installed():
        run = Simulation(3, 12, tuple(FAULTS))
    assert run.run().breach == ""
    monitor.judge()
    assert monitor.steps > 1000


def test_who_does_not_monitor_has_the_trace_that_there_was() -> None:
    plain = type(Driver.make_trace(4))
    with ConformanceMonitor(TELLING, Timing()).installed():
        assert type(Driver.make_trace(4)) is HandedTrace
    assert type(Driver.make_trace(4)) is plain


def test_what_is_followed_keeps_its_newest_entries_and_every_one_until_it_is_judged() -> None:
    trace = HandedTrace(4)
    trace.extend(range(10))
    assert trace.take(3) == [0, 1, 2]
    assert list(trace) == list(range(3, 10))
    assert trace.take(99) == list(range(3, 10))
    assert list(trace) == [6, 7, 8, 9]
    trace.extend((10, 11))
    trace.clear()
    trace.append(12)
    assert (trace.take(1), trace.take(9), trace.take(9), list(trace)) == ([10], [11], [12], [12])


def test_a_value_in_which_somebody_had_a_hand_between_two_steps_is_told_by_the_judge_behind() -> None:
    told: list[str] = []
    judge = monitor(told.append)
    with judge.installed():
        rank = make_rank()
    judge.start()
    room = BenchRoom(ev.room_key(7, 0), CHUNK_TOKENS, 0)
    for event in opening(rank, room):
        rank.handle(event, 0.0)
    assert breaches(rank) == []
    rank.rooms[room.key] = replace(rank.rooms[room.key], tokens=CHUNK_TOKENS + 1)
    rank.handle(ev.ForwardScheduled(room.key), 0.0)
    assert "the step before has left" in judge.close()[0]
    assert told == judge.found
    assert breaches(rank) == told


def forged(log: Log, kind: type, **changed: object) -> tuple[Log, StepEntry]:
    """The log with other fields in the first event of this kind, and all that follows from the tables."""
    place, step = next((i, e) for i, e in enumerate(log.entries) if isinstance(e, StepEntry) and type(e.event) is kind)
    assert isinstance(step, StepEntry)
    machine = TELLING.machines(log.head.timing)[step.machine]
    value = machine.initial
    for entry in log.entries[:place]:
        if isinstance(entry, StepEntry) and (entry.machine, entry.key) == (step.machine, step.key):
            _, value, _ = machine.fire(value if entry.value is None else entry.value, entry.event, entry.time)
    event = replace(step.event, **changed)
    row, after, effects = machine.fire(value, event, step.time)
    assert row is not None
    lie = replace(step, event=event, row=row.index, source=value.state.name, target=after.state.name, effects=effects)
    return Log(log.head, [*log.entries[:place], lie]), lie


@pytest.mark.parametrize(
    ("kind", "changed", "told"),
    [
        (ev.SpaceReserved, {"grant": 0}, "region"),
        (ev.StagingGranted, {"grant": 0}, "above 0"),
        (ev.RoomOpened, {"prefix": 1 << 20}, "prefix"),
    ],
)
def test_a_step_that_the_tables_make_of_an_event_that_nobody_can_have_raised(
    kind: type, changed: dict[str, object], told: str
) -> None:
    log = next(log for log in WELL if any(isinstance(e, StepEntry) and type(e.event) is kind for e in log.entries))
    false, lie = forged(log, kind, **changed)
    found = replay(next(iter(parse(lines(false)))))
    assert found is not None
    assert found.line == lie.line
    assert told in f"{found.what} {found.expected}"


def test_honest_scenes_conform() -> None:
    assert [replay(log) for scene in SCENES for log in scene.logs() if replay(log)] == []
