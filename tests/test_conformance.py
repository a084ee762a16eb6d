"""Conformance: what runs is followed, and a trace that no rank could have made is told by what it breaks, and where."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvproto.draw.scenes import SCENES
from kvproto.fsm.driver import Driver
from kvproto.fsm.trace.conformance import ConformanceMonitor
from kvproto.fsm.trace.coverage import WatchedTrace
from kvproto.protocol import events as ev
from kvproto.protocol.timing import Timing
from kvproto.testing.simulation import FAULTS, Simulation
from kvproto.trace import Log, StepEntry, lines, parse, replay
from kvproto.trace.telling import TELLING

WELL = next(scene for scene in SCENES if scene.name == "well").logs()


def test_endpoints_in_every_trouble_keep_what_is_claimed() -> None:
    monitor = ConformanceMonitor(TELLING, Timing())
    with monitor.installed():
        run = Simulation(3, 12, tuple(FAULTS))
    assert run.run().breach == ""
    assert monitor.steps > 1000
    monitor.judge()


def test_who_does_not_monitor_has_the_trace_that_there_was() -> None:
    plain = type(Driver.make_trace(4))
    with ConformanceMonitor(TELLING, Timing()).installed():
        assert type(Driver.make_trace(4)) is WatchedTrace
    assert type(Driver.make_trace(4)) is plain


def forged(log: Log, kind: type, **changed: object) -> tuple[Log, StepEntry]:
    """The log with other fields in the first event of this kind, and all that follows from it as the tables say."""
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
