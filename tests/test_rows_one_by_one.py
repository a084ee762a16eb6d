"""Rows one by one beside the generated Python: on random triples, and on every step of small worlds.

The rows one by one are what a table means.  The generated code starts from the rows and shares no code with them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
from msgspec.structs import replace
from support.night import by_night
from support.triples import Triples

from examples.two_phase_commit import protocol as commit
from kvproto.adapters import request_events, request_tables, room_tables
from kvproto.endpoint.group_table import decode_group
from kvproto.fsm.driver import Driver, steps
from kvproto.fsm.machine import machine_for
from kvproto.fsm.table import Row, Table
from kvproto.fsm.timer_wheel import INFINITY, QUANTUM
from kvproto.fsm.timing import NamedTimers
from kvproto.fsm.vocabulary import Report, TimerFired
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing
from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.node import Watched
from kvproto.verify.check.search import check

KV, OTHERS = Timing(), request_events.Timing()
REQUESTS = (
    request_tables.prefill_request, request_tables.decode_request, room_tables.prefill_room, room_tables.decode_room,
)  # fmt: skip
ALL: tuple[tuple[Table[Any], NamedTimers], ...] = (
    *((table, KV) for table in (*TABLES, decode_group)), *((table, OTHERS) for table in REQUESTS),
    *((table, commit.Timing()) for table in commit.TABLES),
)  # fmt: skip
#: triples of each pair of state and event
EACH = 4
#: small worlds whose steps are compared by day
WORLDS = (
    "eager-engine", "abort-link-tells", "replica", "groups-cross", "deep-two-crash-write", "timed-drop",
)  # fmt: skip
#: what a row's function may raise on a triple that no rank has
NO_RESULT = (ArithmeticError, AssertionError, AttributeError, MemoryError, TypeError, ValueError)
Fired = tuple[Row | None, Any, tuple[Any, ...]]
Triple = tuple[Any, Any, float]


def interpreted(
    table: Table[Any], rows: Iterable[Row], timing: NamedTimers, value: Any, event: Any, now: float
) -> Fired:  # fmt: skip
    """Fire the first of a pair's rows whose guard holds; of a refusal's report the reason is kept."""
    row = next((row for row in rows if row.when is None or row.when(value, event, now)), None)
    if row is None or row.verb != "row":
        return row, value, (row.why,) if row is not None and row.verb == "refuse" else ()
    new = value if row.let is None else row.let(value, event, now)
    if row.target is not row.source or row.again:
        new = replace(new, due=due(table, timing, row, value, new, now), state=row.target)
    return row, new, tuple(build(new, event) for build in row.do)


def due(table: Table[Any], timing: NamedTimers, row: Row, value: Any, new: Any, now: float) -> float:
    """When the timer ends that starts."""
    if row.target not in table.timers:
        return INFINITY
    timer, own, times = timing.named(table.timers[row.target]), table.periods.get(row.target), 0
    if table.tries is not None and row.target is row.source and issubclass(row.event, TimerFired):
        times = table.tries(value) + 1
    seconds = own(new) if own is not None else 0
    if not seconds:
        seconds = timer.after(times) if times and timer.longest > timer.period else timer.period
    return (now + seconds) // QUANTUM * QUANTUM + QUANTUM


class RowsBeside:
    """The rows of one table beside its machine."""

    def __init__(self, table: Table[Any], timing: NamedTimers) -> None:
        self.table, self.timing, self.machine = table, timing, machine_for(table, timing)
        self.rows = dict(table.pairs())
        #: places of the rows that have fired
        self.fired = set[int]()

    def difference(self, value: Any, event: Any, now: float) -> str:
        """Return what differs; "": nothing does, or neither has a result."""
        rows = self.rows.get((value.state, type(event)), [])
        plain = self._tried(lambda: interpreted(self.table, rows, self.timing, value, event, now))
        made = self._tried(lambda: self._generated(value, event, now))
        if plain is not None and plain[0] is not None and plain[0].verb == "row":
            self.fired.add(plain[0].index)
        # By their words, since True is 1.
        return "" if repr(plain) == repr(made) else f"{self.table.name}: {plain}, and generated {made}"

    def _generated(self, value: Any, event: Any, now: float) -> Fired:
        row, new, effects = self.machine.fire(value, event, now)
        if row is not None and row.verb == "refuse":
            return row, new, tuple(each.why for each in effects if isinstance(each, Report))
        return row, new, effects if row is not None else ()

    def fired_by(self, value: Any, event: Any, now: float) -> Fired | None:
        """Fire the generated step; None: no row, or this value has no such event."""
        fired = self._tried(lambda: self.machine.fire(value, event, now))
        return fired if fired is not None and fired[0] is not None else None

    def _tried(self, how: Any) -> Fired | None:
        try:
            fired: Fired = how()
        except NO_RESULT:
            return None
        return fired

    def unfired(self) -> list[str]:
        """Return the rows that have not fired, of those that do something."""
        return [str(row) for row in self.table.rows if row.verb == "row" and row.index not in self.fired]


def triples(table: Table[Any], seed: int, each: int = EACH) -> Iterator[Triple]:
    drawn = Triples(seed)
    for state, event in table.pairs():
        yield from islice(drawn.of(table, state, event), each)


@pytest.mark.parametrize(("table", "timing"), ALL, ids=lambda each: getattr(each, "name", ""))
def test_random_steps_are_the_same_twice(table: Table[Any], timing: NamedTimers) -> None:
    beside = RowsBeside(table, timing)
    found = [beside.difference(*triple) for triple in triples(table, seed=7, each=40)]
    assert [each for each in found if each] == []


def test_every_step_of_worlds_is_the_same_twice_and_every_row_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search asks the rows one by one, too, what it asks its ranks."""
    besides = {table.value: RowsBeside(table, KV) for table in TABLES}
    met, found, asked = set[tuple[Any, ...]](), set[str](), Watched.ask

    def ask(rank: Watched, *about: Any) -> list[Any]:
        effects = asked(rank, *about)
        for now, _, event, value, _ in steps(rank.rank.trace):
            if (now, event, value) not in met:
                met.add((now, event, value))
                beside = besides[type(value)]
                beside.timing, beside.machine = rank.rank.timing, machine_for(beside.table, rank.rank.timing)
                found.add(beside.difference(value, event, now))
        return effects

    monkeypatch.setattr(Watched, "ask", ask)
    for name in by_night(SUITES["small"], by_day=WORLDS):
        assert check(name, CONFIGS[name]).violations == []
    assert found <= {""} and len(met) > 1000
    # A few rows ask for masks that fit each other, which only worlds draw; all others fire on random triples.
    for table, timing in ALL:
        beside = besides.get(table.value) or RowsBeside(table, timing)
        beside.timing, beside.machine = timing, machine_for(table, timing)
        assert [each for each in firing(beside) if each] == []
        assert beside.unfired() == []


def firing(beside: RowsBeside) -> Iterator[str]:
    """Draw triples until every row of a pair has fired; what differs."""
    drawn = Triples(seed=11)
    for (state, event), rows in beside.rows.items():
        for at, triple in enumerate(islice(drawn.of(beside.table, state, event), 3000)):
            if at and all(row.verb != "row" or row.index in beside.fired for row in rows):
                break
            yield beside.difference(*triple)


def only_one(event: Any) -> Any:
    """The key of whatever it is about."""
    return 0


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("parts", [False, True], ids=["flat", "parts"])
def test_a_driver_carries_out_what_the_step_says(table: Table[Any], *, parts: bool) -> None:
    """Its effects too, where no event of the same table follows."""
    beside, driver = RowsBeside(table, KV), Driver(KV)
    driver.add("machines", table, only_one, within=only_one if parts else None)
    store, key = driver.stores["machines"], (0, 0) if parts else 0
    for value, event, now in triples(table, seed=13, each=60):
        if (fired := beside.fired_by(value, event, now)) is None:
            continue
        row, new, effects = fired
        store.put_back({key: value}, OrderedDict())
        driver.clear_pending()
        driver.trace.clear()
        out = driver.handle(event, now)
        first, *more = driver.trace
        assert first == (now, row, event, value, new)
        if not more:
            assert out == [effect for effect in effects if type(effect) not in driver.inner]
            assert store.get(key) == (None if new.state in table.final and new is not value else new)
            assert new.due >= value.due or new.due in (store.wheel.next, INFINITY)


@pytest.mark.parametrize("fault", ["timer", "guard", "effect", "let"])
def test_a_fault_of_either_is_seen(fault: str) -> None:
    beside = RowsBeside(TABLES[0], KV)
    match fault:
        case "timer":
            timers = {name: getattr(KV, name) for name in KV.__struct_fields__}
            beside.timing = Timing(**{name: replace(each, period=2 * each.period) for name, each in timers.items()})
        case "guard":
            beside.rows = {pair: rows[::-1] for pair, rows in beside.rows.items()}
        case "effect":
            beside.rows = {pair: [replace(row, do=row.do[1:]) for row in rows] for pair, rows in beside.rows.items()}
        case "let":
            beside.rows = {pair: [replace(row, let=None) for row in rows] for pair, rows in beside.rows.items()}
    assert any(beside.difference(*triple) for triple in triples(TABLES[0], seed=9, each=40))
