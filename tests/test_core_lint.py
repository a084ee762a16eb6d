from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvproto.fsm.routing import Routes
from kvproto.fsm.table import Table, Value
from kvproto.fsm.vocabulary import Event, State, TimerFired
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.routes import LinkIs
from kvproto.protocol.states import PLink
from kvproto.protocol.states import PSend as S
from kvproto.protocol.tables import TABLES
from kvproto.protocol.tables.links import prefill_link
from kvproto.protocol.timing import Timing
from kvproto.verify.claims.sources import SOURCES
from kvproto.verify.framework.lint import lint, lint_edge
from kvproto.verify.framework.sources import Sources

HERE = Path(__file__).name


class Unheard(ev.RoomEvent, frozen=True):
    """An event that no table takes."""


class Small(State):
    """Begin, wait, end: enough of a machine to plant a fault in."""

    BEGIN = 0
    WAIT = 1
    LOST = 2


def yes(v: Value, e: Event, now: float) -> bool:
    return True


def good(*, timers: dict[State, str] | None = None, more: tuple[type[Event], ...] = ()) -> Table[Value]:
    """A table without a fault: two events, two states that decide both."""
    events: tuple[type[Event], ...] = (ev.Gathered, ev.SendStopped, *more)
    table = Table("small", Value, Small, initial=Small.BEGIN, events=events, timers=timers or {})
    table.opens(Small.BEGIN, ev.Gathered, Small.WAIT, when=yes)
    table.opens(Small.BEGIN, ev.Gathered, Small.LOST)
    table.row(Small.WAIT, ev.Gathered, Small.LOST)
    table.refuse((Small.BEGIN, Small.WAIT, Small.LOST), ev.SendStopped, "not yet")
    table.ignore(Small.LOST, ev.Gathered, "late")
    return table


def undecided_pair() -> Table[Value]:
    table = good()
    table.rows = [row for row in table.rows if row.verb != "ignore"]
    return table


def undecided_guard() -> Table[Value]:
    table = undecided_pair()
    table.row(Small.LOST, ev.Gathered, when=yes)
    return table


def undecided_timer() -> Table[Value]:
    return good(timers={Small.WAIT: "resend"}, more=(TimerFired,))


def behind_an_open_row() -> Table[Value]:
    table = good()
    table.row(Small.LOST, ev.Gathered, when=yes)
    return table


def twice_the_same_guard() -> Table[Value]:
    table = undecided_pair()
    table.row(Small.LOST, ev.Gathered, when=yes)
    table.row(Small.LOST, ev.Gathered, Small.WAIT, when=yes)
    table.ignore(Small.LOST, ev.Gathered, "late")
    return table


def nobody_gets_there() -> Table[Value]:
    table = good()
    table.rows = [row for row in table.rows if not (row.source is Small.BEGIN and row.target is Small.WAIT)]
    return table


def a_foreign_event() -> Table[Value]:
    table = good()
    table.row(Small.WAIT, ev.Scattered, Small.LOST)
    return table


def a_foreign_state() -> Table[Value]:
    table = good()
    table.row(Small.WAIT, ev.Gathered, S.DRAINING, when=yes)
    table.rows.insert(0, table.rows.pop())
    return table


def a_timer_event_without_a_timer() -> Table[Value]:
    table = good(timers={Small.BEGIN: "resend", Small.LOST: "resend"}, more=(TimerFired,))
    table.row((Small.BEGIN, Small.WAIT, Small.LOST), TimerFired)
    return table


def a_timer_that_nobody_knows() -> Table[Value]:
    table = good(timers={Small.WAIT: "patients"}, more=(TimerFired,))
    table.row(Small.WAIT, TimerFired)
    return table


def a_timer_that_is_not_started_anew() -> Table[Value]:
    table = good(timers={Small.WAIT: "resend"}, more=(TimerFired,))
    table.row(Small.WAIT, TimerFired)
    table.rows[-1] = replace(table.rows[-1], again=False)
    return table


PLANTED: list[tuple[Callable[[], Table[Value]], str, str]] = [
    (undecided_pair, "undecided", "Gathered in LOST"),
    (undecided_guard, "undecided", "Gathered in LOST"),
    (undecided_timer, "undecided", "TimerFired in WAIT"),
    (behind_an_open_row, "never-fires", "LOST --Gathered"),
    (twice_the_same_guard, "never-fires", "LOST --Gathered"),
    (nobody_gets_there, "unreachable", "WAIT"),
    (a_foreign_event, "unknown", "Scattered"),
    (a_foreign_state, "unknown", "another table"),
    (a_timer_event_without_a_timer, "unknown", "WAIT has no timer"),
    (a_timer_that_nobody_knows, "unknown", "'patients'"),
    (a_timer_that_is_not_started_anew, "spent", "its timer has ended"),
]


def test_a_good_table_has_no_finding() -> None:
    assert lint(good(), Timing()) == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_protocol_has_no_finding(table: Table[Value]) -> None:
    assert [str(finding) for finding in lint(table, Timing(), SOURCES)] == []


def test_the_protocol_s_edge_has_no_finding() -> None:
    assert [str(finding) for finding in lint_edge(SOURCES)] == []


@pytest.mark.parametrize(("make", "kind", "text"), PLANTED, ids=lambda case: getattr(case, "__name__", ""))
def test_each_fault_is_found_by_name_and_place(make: Callable[[], Table[Value]], kind: str, text: str) -> None:
    findings = [finding for finding in lint(make(), Timing()) if finding.kind == kind]
    assert findings, f"{kind} was not found"
    assert any(text in finding.text for finding in findings), [str(finding) for finding in findings]
    for finding in findings:
        file, _, line = finding.where.rpartition(":")
        assert file.endswith(HERE) and int(line) > 0


@pytest.mark.parametrize("table", [table for table in TABLES if table.final], ids=lambda table: table.name)
def test_a_state_without_a_way_out_is_found(table: Table[Value]) -> None:
    rows = table.rows
    table.rows = [row for row in rows if row.target not in table.final or row.source in table.final]
    try:
        assert {finding.kind for finding in lint(table, Timing())} >= {"no-way-out", "unreachable"}
    finally:
        table.rows = rows


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_no_row_can_be_left_out_or_put_first_unnoticed(table: Table[Value]) -> None:
    """Leave out the deciding row of every pair that comes from outside, and put the same row before it."""
    rows, outside = table.rows, SOURCES.outside(table)
    deciding = [row for row in rows if row.when is None and row.source in outside.get(row.event, ())]
    try:
        for row in deciding[:: max(1, len(deciding) // 12)]:
            table.rows = [other for other in rows if other is not row]
            kinds = {finding.kind for finding in lint(table, Timing(), SOURCES)}
            assert kinds & {"undecided", "unreachable"}, f"without {row}"
            table.rows = [row, *rows]
            assert any(finding.kind == "never-fires" for finding in lint(table, Timing())), f"with {row} twice"
    finally:
        table.rows = rows


# ------------------------------------------------------------------------------------------- where events come from
def test_a_row_that_makes_a_machine_says_so_and_no_other_does() -> None:
    table = good()
    table.rows = [replace(row, opens=False) for row in table.rows]
    assert {finding.kind for finding in lint(table, Timing())} == {"opens"}
    table.rows = [replace(row, opens=True) for row in good().rows]
    assert "opens" in {finding.kind for finding in lint(table, Timing())}


def test_a_row_on_a_message_that_never_comes_in_its_state_is_found() -> None:
    rows = prefill_link.rows
    prefill_link.refuse(PLink.LOST, ev.WatermarkSeen, "the link is down")
    try:
        found = lint(prefill_link, Timing(), SOURCES)
    finally:
        prefill_link.rows = rows[:-1]
    told = [(finding.kind, finding.text) for finding in found]
    assert told == [("out-of-reach", "WatermarkSeen never comes in LOST")]
    assert found[0].where.rpartition(":")[0].endswith(HERE)


def test_an_event_without_a_source_and_one_without_a_table_are_found() -> None:
    bare = Sources(TABLES, SOURCES.routes, engine=(), answers=SOURCES.answers, raised=SOURCES.raised, states=())
    found = [finding for table in TABLES for finding in lint(table, Timing(), bare)]
    assert "RoomOpened comes from nowhere" in {finding.text for finding in found if finding.kind == "nobody-raises"}
    more = Sources(TABLES, SOURCES.routes, engine=(Unheard,), answers={}, raised={}, states=())
    assert any("Unheard is raised" in finding.text for finding in lint_edge(more))


def test_a_message_without_a_route_and_a_route_behind_others_are_found() -> None:
    routes = Routes("small", (msg.Heartbeat, msg.Reset), (LinkIs,))
    routes.drop(msg.Heartbeat, LinkIs.STRANGER, why="nobody")
    routes.drop((msg.Heartbeat, msg.Reset), LinkIs.STRANGER, LinkIs.STALE, LinkIs.BESIDE, why="stale")
    routes.drop(msg.Heartbeat, LinkIs.STALE, why="never taken")
    found = lint_edge(Sources((), (routes,), engine=(), answers={}, raised={}, states=()))
    assert [finding.text for finding in found] == [
        "no route takes Heartbeat with CURRENT", "no route takes Reset with CURRENT",
        "others take all of Heartbeat before",
    ]  # fmt: skip
    with pytest.raises(LookupError, match="small: no route takes Heartbeat with CURRENT"):
        routes.compiled()
