"""Drivers of small machines against a reading of their rows: flat and in parts, tombstones, timers.

The tables are made here, with whatever a table can say in them.  `Reader` is what a driver is by definition: it looks
for the machine, goes through its rows one by one, and keeps nothing but values.  Both take the same events and the same
time, drawn from a seed, and have to agree in all that can be seen.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from collections import Counter, OrderedDict, deque
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kvproto.fsm.driver import OVER, Driver, steps
from kvproto.fsm.machine import Machine
from kvproto.fsm.machine_code import step_code
from kvproto.fsm.row_code import code_of
from kvproto.fsm.table import Row, Table, Value
from kvproto.fsm.timer_wheel import INFINITY, QUANTUM
from kvproto.fsm.timing import Timer, Timers
from kvproto.fsm.vocabulary import Effect, Event, Internal, Report, State, TimerFired

WHOLES, KEYS = range(10, 13), range(3)  # no number is both


class Times(Timers, frozen=True):
    wait: Timer = Timer(0.5, 4, longest=1.5)
    retry: Timer = Timer(0.25)
    own: Timer = Timer(2.0)


class S(State):
    NEW = 0
    WAIT = 1
    RETRY = 2
    OWN = 3
    IDLE = 4
    OVER = 5


class E(State):
    NONE = 0
    HEARD = 1
    GONE = 2


class Job(Value, frozen=True):
    n: int = 0
    tries: int = 0
    own: float = 0.0


class Begin(Event, frozen=True):
    whole: int
    key: int


class Poke(Event, frozen=True):
    whole: int
    key: int
    n: int


class Stop(Event, frozen=True):
    whole: int
    key: int


class Ended(TimerFired, frozen=True):
    whole: int
    key: int
    tries: int


class Told(Event, frozen=True):
    whole: int
    key: int
    n: int


class Say(Effect, frozen=True):
    word: str
    n: int


class Mark(Internal, frozen=True):
    n: int


def odd(v: Job, e: Poke, now: float) -> bool:
    return e.n % 2 == 1


def three(v: Job, e: Poke, now: float) -> bool:
    return e.n % 4 == 0


def two(v: Job, e: Poke, now: float) -> bool:
    return e.n == 2


def more(v: Job, e: Ended, now: float) -> bool:
    return v.tries + 1 < e.tries


def bumped(v: Job, e: Poke, now: float) -> Job:
    return replace(v, n=v.n + e.n)


def tried(v: Job, e: Ended, now: float) -> Job:
    return replace(v, tries=v.tries + 1)


def own(v: Job, e: Poke, now: float) -> Job:
    return replace(v, own=0.25 * e.n)


def said(v: Job, e: Any) -> Say:
    return Say(type(e).__name__, v.n)


def marked(v: Job, e: Any) -> Mark:
    return Mark(v.n)


def tell(v: Job, e: Any) -> Told:
    return Told(e.whole, e.key, v.n)


def either(v: Job, e: Poke) -> Say | Mark:
    return said(v, e) if e.n == 1 else marked(v, e)


def jobs(tombstones: bool) -> Table[Job]:
    """A table with each kind of row: initial, ending, with timers that back off or have own periods."""
    table = Table(
        "job", Job, S, initial=S.NEW, events=(Begin, Poke, Stop, Ended), final=(S.OVER,), tombstones=tombstones,
        timers={S.NEW: "retry", S.WAIT: "wait", S.RETRY: "retry", S.OWN: "own"}, counted_states=(S.RETRY, S.OVER),
        tries=lambda v: v.tries, periods={S.OWN: lambda v: v.own},
    )  # fmt: skip
    busy = S.WAIT, S.RETRY, S.OWN, S.IDLE
    table.opens(S.NEW, Begin, S.WAIT, do=(said,))
    table.row(S.NEW, Stop, S.OVER, do=(said,))
    table.row(S.NEW, Poke, when=odd, do=(either,))
    table.row(S.NEW, Poke, when=three, let=bumped, again=True)
    table.row(S.NEW, Poke, when=two, let=bumped, do=(said,))
    table.row(S.NEW, Ended, S.OVER)
    table.ignore(S.NEW, Poke, "of nobody")
    table.refuse(busy, Begin, "twice")
    table.row(S.WAIT, Poke, S.RETRY, when=odd, do=(marked, said, tell))
    table.row(S.WAIT, Poke, when=three, let=bumped, do=(said,), again=True)
    table.row(S.WAIT, Poke, let=bumped, do=(tell, marked))
    table.row(S.WAIT, Ended, when=more, let=tried, do=(said,))
    table.row(S.WAIT, Ended, S.OVER, do=(said, tell))
    table.row(S.RETRY, Ended, S.WAIT, let=tried)
    table.row(S.RETRY, Poke, S.OWN, when=odd, let=own, do=(said,))
    table.row(S.RETRY, Poke, let=bumped)
    table.row(S.OWN, Ended, S.IDLE, do=(tell, said))
    table.row(S.OWN, Poke, S.IDLE, when=odd)
    table.row(S.OWN, Poke, let=own, again=True)
    table.row(S.IDLE, Poke, S.WAIT, when=odd, let=bumped)
    table.row(S.IDLE, Poke, S.NEW, when=three, do=(said,))
    table.ignore(S.IDLE, Poke, "it rests")
    table.row(busy, Stop, S.OVER, do=(said, marked))
    if tombstones:
        table.row(S.OVER, Poke, do=(said,))
        table.ignore(S.OVER, (Begin, Stop), "it is over")
    return table


def echoes() -> Table[Any]:
    """A machine that hears of the other one; it has no timer, and no row for most."""
    table = Table("echo", Value, E, initial=E.NONE, events=(Told,), timers={}, final=(E.GONE,))
    table.opens(E.NONE, Told, E.HEARD)
    table.row(E.HEARD, Told, E.GONE, when=lambda v, e, now: e.n % 4 == 0, do=(lambda v, e: Say("gone", e.n),))
    table.ignore(E.HEARD, Told, "heard", when=lambda v, e, now: e.n % 4 == 3)  # and for the rest there is no row
    return table


class Fired(msgspec.Struct, frozen=True):
    """One step: as a driver's trace has it, and what it leaves behind."""

    step: tuple[float, Row | None, Event, Any, Any]
    effects: tuple[Any, ...]


class Reader:
    """A driver by definition, of one table of jobs and one of echoes; the key of either is (whole, key)."""

    def __init__(self, table: Table[Job], echo: Table[Any], bound: int) -> None:
        self.tables, self.bound = {"jobs": table, "echoes": echo}, bound
        self.values: dict[tuple[str, int, int], Any] = {}
        self.tombs: dict[tuple[str, int, int], Any] = {}
        self.entered: Counter[tuple[str, str, str, str]] = Counter()
        self.timer_ends: Counter[tuple[str, str, str]] = Counter()
        self.forgotten: list[tuple[int, int]] = []
        self.wholes: list[int] = []
        self.marks: list[int] = []
        self.fired: list[Fired] = []

    def handle(self, *events: Event, now: float) -> list[Effect]:
        queue, out = deque(events), list[Effect]()
        while queue:
            event = queue.popleft()
            store = "echoes" if isinstance(event, Told) else "jobs"
            for made in self._step(store, event, now):
                if isinstance(made, Mark):
                    self.marks.append(made.n)
                elif isinstance(made, Event):
                    queue.append(made)
                else:
                    out.append(made)
        return out

    def tick(self, now: float) -> list[Effect]:
        out = []
        while due := sorted((value.due, at) for at, value in self.values.items() if value.due <= now):
            (store, whole, key) = at = due[0][1]
            state = self.values[at].state
            out += self.handle(Ended(whole, key, Times().named(self.tables[store].timers[state]).tries), now=now)
            left = self.values.get(at)
            self.timer_ends[store, state.name, OVER if left is None else left.state.name] += 1
        return out

    def _step(self, store: str, event: Any, now: float) -> tuple[Any, ...]:
        at, table = (store, event.whole, event.key), self.tables[store]
        value = self.values.get(at) or self.tombs.get(at) or table.value(table.initial)
        rows = (row for row in table.rows if row.source is value.state and row.event is type(event))
        row = next((row for row in rows if row.when is None or row.when(value, event, now)), None)
        if row is None or row.verb != "row":
            why = "no row for it" if row is None else row.why
            told = (Report(f"{table.name}: {event} in {value.state.name}", why),)
            self.fired.append(Fired((now, row, event, value, value), () if row and row.verb == "ignore" else told))
            return self.fired[-1].effects
        new = row.let(value, event, now) if row.let else value
        if row.target is not row.source or row.again:
            new = replace(new, state=row.target, due=self._due(table, new, row, value, now))
        self.fired.append(Fired((now, row, event, value, new), tuple(build(new, event) for build in row.do)))
        self._keep(store, at, row, new)
        return self.fired[-1].effects

    def _due(self, table: Table[Any], new: Any, row: Row, old: Any, now: float) -> float:
        if row.target not in table.timers:
            return INFINITY
        timer, mine = Times().named(table.timers[row.target]), table.periods.get(row.target)
        again = row.target is row.source and issubclass(row.event, TimerFired)
        period = min(timer.period * 2 ** (old.tries + 1), timer.longest) if again and timer.longest else timer.period
        period = (mine(new) if mine else 0.0) or period
        return (now + period) // QUANTUM * QUANTUM + QUANTUM

    def _keep(self, store: str, at: tuple[str, int, int], row: Row, new: Any) -> None:
        table = self.tables[store]
        if row.target in table.counted_states and row.target is not row.source:
            self.entered[store, row.source.name, row.event.__name__, row.target.name] += 1
        if row.target not in table.final:
            if row.target is not table.initial or at in self.values:  # what never left the initial state is nowhere
                self.values[at] = new
        elif row.source not in table.final:
            self.values.pop(at, None)
            if store == "jobs":
                self.forgotten.append(at[1:])
                self.wholes += [] if any(other[:2] == at[:2] for other in self.values) else [at[1]]
            if table.tombstones:
                self.tombs[at] = new
                while len(self.tombs) > self.bound:
                    del self.tombs[next(iter(self.tombs))]


def whole_and_key(event: Any) -> tuple[int, int]:
    return event.whole, event.key


def ended_at(at: tuple[int, int], tries: int) -> Ended:
    return Ended(*at, tries)


def by_whole(event: Any) -> Any:
    return event.whole


def by_key(event: Any) -> Any:
    return event.key


class Ground(msgspec.Struct):
    """A driver, and what its owner does for it."""

    driver: Driver
    marks: list[int]
    forgotten: list[Any]

    def values(self) -> dict[tuple[str, int, int], Any]:
        """As the reader has them, and no whole without parts."""
        assert all(kept != {} for name in self.driver.stores for kept in getattr(self.driver, name).values())
        return {(name, *key): value for name, store in self.driver.stores.items() for key, value in store.items()}


def ground(table: Table[Job], echo: Table[Any], *, parts: bool, bound: int = 0, restless: bool = False) -> Ground:
    made = Ground(Driver(Times()), [], [])
    key: dict[str, Any] = {"key": by_key, "within": by_whole} if parts else {"key": whole_and_key}
    made.driver.inner[Mark] = lambda effect: made.marks.append(effect.n)
    made.driver.add(
        "jobs", table, **key, timer=Ended if parts else ended_at, bound=bound, tombs="over",
        restless=restless, ended=None if restless else made.forgotten.append,
    )  # fmt: skip
    assert made.driver.add("echoes", echo, **key) is made.driver.stores["echoes"].machine
    return made


def drawn(random: Random) -> Event:
    where = random.choice(WHOLES), random.choice(KEYS)
    return random.choice((Begin(*where), Begin(*where), *[Poke(*where, random.randrange(6))] * 3, Stop(*where)))


@pytest.mark.parametrize("restless", [False, True], ids=["", "restless"])
@pytest.mark.parametrize(("parts", "bound"), [(False, 0), (False, 9), (True, 0)], ids=["flat", "tombs", "parts"])
def test_drivers_and_steps_do_what_the_rows_say(parts: bool, bound: int, restless: bool) -> None:
    undecided = 0
    for seed in range(3):
        random, now = Random(seed), 0.0
        table, echo = jobs(tombstones=bound > 0), echoes()
        machines = {each.name: Machine(each, Times()) for each in (table, echo)}
        reader, here = Reader(table, echo, bound), ground(table, echo, parts=parts, bound=bound, restless=restless)
        for _ in range(150):
            if random.random() < 0.4:
                now += random.choice((0.01, 0.2, 0.3, 1.0))
                took, heard = here.driver.tick(now, 10_000), reader.tick(now)
                assert Counter(took) == Counter(heard)
            else:
                events = [drawn(random) for _ in range(random.choice((1, 1, 2)))]
                took = here.driver.handle(events[0], now, *events[1:])
                assert took == reader.handle(*events, now=now)
                assert [*steps(here.driver.trace)] == [fired.step for fired in reader.fired]
            for fired in reader.fired:
                machine = machines["echo" if isinstance(fired.step[2], Told) else "job"]
                at, row, event, value, new = fired.step
                assert machine.fire(value, event, at) == (row, new, fired.effects)
                assert machine.step(value, event, at) == (new, fired.effects)
            undecided += sum(fired.step[1] is None for fired in reader.fired)
            here.driver.trace.clear()
            reader.fired.clear()
            assert here.values() == reader.values
            soonest = min((value.due for value in reader.values.values()), default=INFINITY)
            assert here.driver.next_deadline <= soonest
        assert Counter(here.marks) == Counter(reader.marks)
        assert restless or Counter(here.forgotten) == Counter(reader.wholes if parts else reader.forgotten)
        assert (here.driver.entered, here.driver.timer_ends) == (reader.entered, reader.timer_ends)
        tombs = here.driver.stores["jobs"].ended()
        assert {("jobs", *key): value for key, value in tombs.items()} == reader.tombs and len(tombs) <= bound
        for whole in WHOLES:
            for key in KEYS:
                here.driver.handle(Stop(whole, key), now)
        here.driver.tick(now + 1000.0, 10_000)
        assert [(store.wheel.slots, store.wakes) for store in here.driver.stores.values()] == [({}, {})] * 2, "a leak"
    assert undecided, "and for some there was no row"


# ------------------------------------------------------------------------------------------- what an owner asks of it
def begun(*keys: int, parts: bool = False, bound: int = 0, restless: bool = False) -> Ground:
    """Jobs 0 of these wholes, begun at 0."""
    made = ground(jobs(tombstones=bound > 0), echoes(), parts=parts, bound=bound, restless=restless)
    for key in keys:
        made.driver.handle(Begin(key, 0), 0.0)
    return made


def slots(seconds: float) -> float:
    return seconds // QUANTUM * QUANTUM + QUANTUM


def test_of_tombstones_the_oldest_gives_way() -> None:
    driver = begun(0, 1, 2, bound=2).driver
    for key in (1, 0, 2):
        driver.handle(Stop(key, 0), 0.0)
    assert [*driver.stores["jobs"].ended()] == [(0, 0), (2, 0)]
    assert driver.handle(Begin(0, 0), 0.0) == [], "what is over is over"
    assert driver.handle(Begin(1, 0), 0.0) == [Say("Begin", 0)], "and what was forgotten begins anew"
    assert begun(0).driver.stores["jobs"].ended() == {}


def test_what_a_machine_is_given_it_hears_before_all_else() -> None:
    made, given = begun(0, 1), [Stop(1, 0), Poke(1, 0, 4)]
    made.driver.inner[Mark] = lambda effect: made.driver.give(*(given.pop(0) for _ in range(len(given))))
    heard = made.driver.handle(Stop(0, 0), 0.0, Begin(0, 0))
    assert [type(step[2]) for step in steps(made.driver.trace)][-4:] == [Stop, Stop, Poke, Begin]
    assert heard == [Say("Stop", 0), Say("Stop", 0), Say("Begin", 0)]


@pytest.mark.parametrize("parts", [False, True], ids=["flat", "parts"])
def test_what_has_never_left_the_initial_state_is_nowhere_and_waits_for_nothing(parts: bool) -> None:
    driver = begun(parts=parts).driver
    for n in (1, 2, 4):
        driver.handle(Poke(0, 0, n), 0.0)
    assert (driver.jobs, driver.next_deadline) == ({}, INFINITY)  # type: ignore[attr-defined]
    driver.handle(Begin(0, 0), 0.0, Poke(0, 0, 1), Poke(0, 0, 1), Poke(0, 0, 1), Poke(0, 0, 4))
    assert driver.stores["jobs"].get((0, 0)).state is S.NEW, "and what has come back waits"
    assert driver.tick(slots(0.25)) == [] and driver.jobs == {}  # type: ignore[attr-defined]


def test_what_nobody_has_heard_yet_can_be_forgotten() -> None:
    made = begun(0)
    made.driver.give(Stop(0, 0))
    made.driver.clear_pending()
    assert made.driver.handle(Begin(1, 0), 0.0) == [Say("Begin", 0)]
    assert made.driver.stores["jobs"].get((0, 0)).state is S.WAIT


def test_a_tick_ends_so_many_timers_at_most_and_the_soonest_first() -> None:
    for parts in (False, True):
        made = begun(parts=parts)
        for key, begin in ((0, 0.3), (1, 0.1), (2, 0.2)):
            made.driver.handle(Begin(key, 0), begin)
        assert made.driver.next_deadline == slots(0.6)
        assert made.driver.tick(slots(0.6) - 0.001) == []
        made.driver.trace.clear()
        made.driver.tick(10.0, 2)
        assert [step[2] for step in steps(made.driver.trace)] == [Ended(1, 0, 4), Ended(2, 0, 4)]
        assert made.driver.tick(10.0, 1) == [Say("Ended", 0)]
        assert made.driver.timer_ends == {("jobs", "WAIT", "WAIT"): 3}
        assert made.driver.next_deadline == slots(11.0), "who ends where it began waits twice as long"


def test_of_the_kinds_of_a_driver_the_one_whose_timer_is_due_first_comes_first() -> None:
    for order in (("early", "late"), ("late", "early")):
        driver = Driver(Times())
        for name in order:
            driver.add(name, jobs(tombstones=False), whole_and_key, timer=ended_at)
        for name, begin in (("late", 0.2), ("early", 0.1)):
            driver.stores[name].take[Begin](Begin(0, 0), begin)
        driver.inner |= {Told: lambda event: None, Mark: lambda effect: None}
        assert driver.next_deadline == slots(0.6)
        driver.tick(1.0, 1)
        assert driver.timer_ends == {("early", "WAIT", "WAIT"): 1}
        driver.tick(1.0, 1)
        assert driver.timer_ends == {("early", "WAIT", "WAIT"): 1, ("late", "WAIT", "WAIT"): 1}


def test_of_two_kinds_whose_timers_are_due_alike_the_one_that_was_added_first_comes_first() -> None:
    driver = Driver(Times())
    for name in ("one", "two", "three"):
        driver.add(name, jobs(tombstones=False), whole_and_key, timer=ended_at)
    for name in ("three", "one", "two"):
        driver.stores[name].take[Begin](Begin(0, 0), 0.0)
    for name in ("one", "two", "three"):
        driver.timer_ends.clear()
        driver.tick(slots(0.5), 1)
        assert driver.timer_ends == {(name, "WAIT", "WAIT"): 1}


def test_an_event_of_two_kinds_goes_to_the_one_that_the_owner_names_or_to_what_takes_it() -> None:
    driver, taken = Driver(Times()), list[tuple[Any, float]]()
    for name in ("one", "two"):
        driver.add(name, jobs(tombstones=False), whole_and_key, timer=ended_at)
    with pytest.raises(LookupError, match="Begin is an event of several kinds"):
        driver.handle(Begin(0, 0), 0.0)
    driver.kind_of = lambda event: "two"  # type: ignore[method-assign]
    assert driver.handle(Begin(0, 0), 0.0) == [Say("Begin", 0)]
    assert [*driver.stores["one"].items()] == [] and [key for key, _ in driver.stores["two"].items()] == [(0, 0)]
    driver.take(Stop, lambda event, now: taken.append((event, now)))
    assert driver.handle(Stop(0, 0), 3.0) == [] and taken == [(Stop(0, 0), 3.0)]


def test_an_owner_may_end_a_timer_before_its_time() -> None:
    for parts in (False, True):
        made = begun(0, 1, parts=parts)
        jobs_ = made.driver.stores["jobs"]
        assert made.driver.expire(jobs_, (0, 0), 0.1) == [Say("Ended", 0)]
        assert jobs_.get((0, 0)).tries == 1 and jobs_.get((1, 0)).tries == 0
        assert made.driver.expire(jobs_, (0, 0), 0.1, tries=2) == [Say("Ended", 0)], "as it says, these were all"
        assert jobs_.get((0, 0)) is None
        assert made.driver.timer_ends == {("jobs", "WAIT", "WAIT"): 1, ("jobs", "WAIT", OVER): 1}
        assert made.driver.stores["echoes"].get((0, 0)).state is E.HEARD, "what follows inside has happened, too"


@pytest.mark.parametrize("restless", [False, True], ids=["", "restless"])
@pytest.mark.parametrize("parts", [False, True], ids=["flat", "parts"])
def test_values_are_put_back_and_their_timers_run_again(parts: bool, restless: bool) -> None:
    made, other = (begun(parts=parts, restless=restless) for _ in range(2))
    for key, at in ((10, 0.0), (11, 0.1)):
        made.driver.handle(Begin(key, 0), at)
        made.driver.handle(Begin(key, 1), at + 0.2)
    made.driver.handle(Poke(11, 1, 1), 0.3)
    made.driver.handle(Begin(12, 0), 0.3, Poke(12, 0, 1), Poke(12, 0, 7), Poke(12, 0, 1))
    assert made.driver.stores["jobs"].get((12, 0)) == Job(S.IDLE, INFINITY, own=1.75), "and one that waits for nothing"
    kept = dict(made.driver.stores["jobs"].items())
    for after in (made, other):
        jobs_ = after.driver.stores["jobs"]
        after.driver.handle(Begin(2, 2), 0.0)
        after.driver.clear_pending()
        assert after.driver.next_deadline == INFINITY
        jobs_.put_back(kept, OrderedDict())
        assert dict(jobs_.items()) == kept
        jobs_.rearm()
        assert after.driver.next_deadline == slots(0.5)
        for at in (0.5, 0.55, 0.6, 0.7):  # one after the other
            before = after.driver.timer_ends.total()
            after.driver.tick(slots(at))
            assert after.driver.timer_ends.total() == before + 1
        assert after.driver.timer_ends == {("jobs", "WAIT", "WAIT"): 3, ("jobs", "RETRY", "WAIT"): 1}
        jobs_.put_back({}, OrderedDict())
        assert after.driver.tick(100.0) == [], "of what is gone nothing comes"
        assert jobs_.wheel.slots == {} and (restless or jobs_.wakes == {})


def test_tombstones_are_put_back_with_the_values() -> None:
    made, other = begun(0, 1, bound=2), begun(2, bound=2)
    made.driver.handle(Stop(0, 0), 0.0)
    jobs_, others = made.driver.stores["jobs"], other.driver.stores["jobs"]
    others.put_back(dict(jobs_.items()), OrderedDict(jobs_.ended()))
    assert (dict(others.items()), others.ended()) == (dict(jobs_.items()), jobs_.ended())
    assert other.driver.handle(Begin(0, 0), 0.0, Begin(2, 0)) == [Say("Begin", 0)], "0 is over, 2 is not there"
    begun(0).driver.stores["jobs"].put_back({}, OrderedDict())


def stop_other(v: Job, e: Any) -> Stop:
    return Stop(e.whole, 1 - e.key)


def poke_other(v: Job, e: Any) -> Poke:
    return Poke(e.whole, 1 - e.key, 4)


@pytest.mark.parametrize("then", [stop_other, poke_other])
def test_a_part_whose_timer_an_earlier_one_has_ended_or_moved_does_not_end(then: Any) -> None:
    table = Table("pair", Job, S, initial=S.NEW, events=(Begin, Poke, Stop, Ended), timers={S.WAIT: "wait"},
                  final=(S.OVER,))  # fmt: skip
    table.opens(S.NEW, Begin, S.WAIT)
    table.row(S.WAIT, Ended, S.OVER, do=(said, then))
    table.row(S.WAIT, Poke, again=True)
    table.row(S.WAIT, Stop, S.OVER)
    table.ignore(S.NEW, (Poke, Stop), "gone")
    driver = Driver(Times())
    driver.add("pairs", table, by_key, within=by_whole)
    driver.handle(Begin(9, 0), 0.0, Begin(9, 1))
    assert driver.tick(slots(0.5)) == [Say("Ended", 0)] and driver.timer_ends.total() == 1
    left = 0 if then is stop_other else 1
    assert len(driver.tick(slots(slots(0.5) + 0.5))) == left and driver.next_deadline == INFINITY


class Rang(TimerFired, frozen=True):
    key: int
    tries: int


def test_a_timer_s_event_is_the_table_s_own_with_the_key_first() -> None:
    table = Table("clock", Job, S, initial=S.NEW, events=(Stop, Begin, Rang), timers={S.WAIT: "wait"})
    table.opens(S.NEW, Begin, S.WAIT)
    table.row(S.WAIT, Rang, S.IDLE, do=(lambda v, e: Say("rang", 10 * e.key + e.tries),))
    driver = Driver(Times())
    driver.add("clocks", table, by_key)
    driver.handle(Begin(9, 3), 0.0)
    assert driver.tick(1.0) == [Say("rang", 34)]


@pytest.mark.parametrize("parts", [False, True], ids=["flat", "parts"])
def test_a_restless_machine_has_one_key_that_counts_and_none_when_it_has_ended(parts: bool) -> None:
    made = begun(0, parts=parts, restless=True)
    jobs_ = made.driver.stores["jobs"]
    for at in range(1, 40):
        made.driver.handle(Poke(0, 0, 4), at / 8)
        made.driver.tick(at / 8)
    assert not made.driver.timer_ends and jobs_.get((0, 0)).n == 4 * 39
    assert sum(map(len, jobs_.wheel.slots.values())) <= 2 and len(jobs_.wakes) == 1
    for at in range(40, 120):
        made.driver.handle(Poke(0, 0, 1), at / 2)
        made.driver.tick(at / 2 + 0.3)
        assert jobs_.get((0, 0)).state is S.WAIT
        assert sum(map(len, jobs_.wheel.slots.values())) <= 3, "what is out of date goes when it comes up"
    made.driver.handle(Stop(0, 0), 70.0)
    assert jobs_.wakes == {} and made.driver.tick(100.0) == []
    assert jobs_.wheel.slots == {}


def test_what_is_written_beforehand_is_written_once_for_all_drivers() -> None:
    for parts in (False, True):
        table, echo = jobs(tombstones=False), echoes()
        table.name, echo.name = "jobs that nobody else has", "echoes that nobody else has"
        first, second, third = (ground(table, echo, parts=parts).driver for _ in range(3))
        before = step_code.cache_info()
        first.prepare()
        written = step_code.cache_info()
        assert written.misses - before.misses == len(table.pairs()) + len(echo.pairs())
        second.prepare()
        assert step_code.cache_info() == written
        for driver in (first, second, third):
            driver.handle(Begin(0, 0), 0.0, Poke(0, 0, 1), Poke(0, 0, 3), Stop(0, 0))
        assert step_code.cache_info().misses == written.misses


def test_a_report_names_the_table_the_event_the_state_and_the_reason() -> None:
    driver = begun(0).driver
    (report,) = driver.handle(Begin(0, 0), 0.0)
    assert report == Report("job: Begin(whole=0, key=0) in WAIT", "twice")
    store = driver.stores["echoes"]
    driver.take(Begin, store.take[Told])  # no row of it says anything of such a value
    store.put_back({(0, 0): replace(store.machine.initial, state=E.GONE)}, OrderedDict())
    (report,) = driver.handle(Told(0, 0, 1), 0.0)
    assert report == Report("echo: Told(whole=0, key=0, n=1) in GONE", "no row for it")
    assert driver.trace[-1][1] is None


def test_a_timer_that_ends_again_and_again_waits_twice_as_long_up_to_its_longest() -> None:
    for timer, periods in (
        (Timer(0.5, 4, 3.0), [0.5, 1.0, 2.0, 3.0, 3.0]), (Timer(0.5, 4), [0.5, 0.5]), (Timer(3.0, 4, 1.0), [3.0, 3.0])
    ):  # fmt: skip
        assert [timer.after(times) for times in range(len(periods))] == periods
    assert Timer(1.0, 1, 1e300).after(64) == Timer(1.0, 1, 1e300).after(5000) == 2.0**64
    assert Times().named("own") == Timer(2.0)


def test_a_timer_whose_ends_nobody_counts_waits_as_long_each_time() -> None:
    table = Table("job", Job, S, initial=S.NEW, events=(Begin, Rang), timers={S.WAIT: "wait"})
    table.opens(S.NEW, Begin, S.WAIT)
    table.row(S.WAIT, Rang, do=(said,))
    driver, due = Driver(Times()), 0.0
    driver.add("jobs", table, by_key)
    driver.handle(Begin(0, 0), 0.0)
    for _ in range(4):
        due = slots(due + 0.5)
        assert driver.next_deadline == due and driver.tick(due) == [Say("Rang", 0)]


def test_a_timer_ends_on_the_next_slot_and_what_ends_alike_is_one_number() -> None:
    """Exactly: at a two-thousandth of a slot to either side of each edge, whatever was asked before."""
    machine = Machine(jobs(tombstones=False), Times(wait=Timer(0.3, longest=1.0)))
    random, at = Random(3), [n * QUANTUM / 2048 for n in range(4 * 2048)]

    def due(now: float) -> float:
        return float(machine.fire(machine.initial, Begin(0, 0), now)[1].due)

    for around in (0.0, 77.0):
        for now in (*at, *random.sample(at, 2000)):
            assert due(around + now) == slots(around + now + 0.3)
    within = [QUANTUM * (200 + tenth / 10) - 0.3 for tenth in range(1, 10)]
    assert len({id(each) for each in [machine.fire(machine.initial, Begin(0, 0), now)[1].due for now in within]}) == 1


def test_where_no_row_decides_nothing_moves_and_it_is_reported() -> None:
    machine = Machine(jobs(tombstones=False), Times())
    for value, event in ((Job(S.IDLE), Ended(10, 0, 1)), (Job(S.WAIT), Told(10, 0, 1))):
        row, new, effects = machine.fire(value, event, 0.0)
        assert row is None and new is value
        assert effects == (Report(f"job: {event} in {value.state.name}", "no row for it"),)


def test_a_table_with_timers_needs_an_event_for_their_end() -> None:
    table = Table("mute", Value, E, initial=E.NONE, events=(Told,), timers={E.HEARD: "wait"})
    with pytest.raises(LookupError, match="mute has timers"):
        Driver(Times()).add("mute", table, whole_and_key)


# --------------------------------------------------------------------------------------------------------- tables
def test_a_row_knows_where_it_stands_and_says_what_it_does() -> None:
    table = Table("job", Job, S, initial=S.NEW, events=(Begin, Poke), timers={})
    table.opens(S.NEW, Begin, S.WAIT, do=(said,))
    first = sys._getframe().f_lineno - 1
    table.row((S.WAIT, S.IDLE), Poke, S.RETRY, when=odd, let=bumped, do=(said, marked))
    table.row(S.WAIT, Poke, again=True)
    table.ignore(S.IDLE, (Begin, Poke), "it rests")
    table.refuse(S.WAIT, Poke, "twice", when=odd)
    assert [row.where for row in table.rows] == [f"{__file__}:{first + at}" for at in (0, 2, 2, 3, 4, 4, 5)]
    assert [*map(str, table.rows)] == [
        "NEW --Begin--> WAIT: said", "WAIT --Poke [odd]--> RETRY: said, marked",
        "IDLE --Poke [odd]--> RETRY: said, marked", "WAIT --Poke--> WAIT: row", "IDLE --Begin--> IDLE: ignore",
        "IDLE --Poke--> IDLE: ignore", "WAIT --Poke [odd]--> WAIT: refuse",
    ]  # fmt: skip
    assert [row.index for row in table.rows] == [*range(7)]
    assert [(row.opens, row.again, row.why) for row in table.rows] == [
        (True, False, ""), (False, False, ""), (False, False, ""), (False, True, ""), (False, False, "it rests"),
        (False, False, "it rests"), (False, False, "twice"),
    ]  # fmt: skip
    found = table.pairs()
    assert found[S.WAIT, Poke] == [table.rows[at] for at in (1, 3, 6)] and found[S.NEW, Begin] == table.rows[:1]
    assert len(found) == 4 and (S.NEW, Poke) not in found


def held(v: Any, e: Any, now: float) -> bool:
    return bool(v.n)


def test_a_guard_is_a_guard_and_a_change_is_a_change_in_every_verb() -> None:
    table = Table("job", Job, S, initial=S.NEW, events=(Begin, Poke), timers={})
    table.opens(S.NEW, Poke, S.WAIT, when=odd, let=bumped)
    table.row(S.WAIT, Poke, when=odd, let=bumped)
    table.ignore(S.WAIT, (Begin, Poke), "why", when=held)
    table.refuse(S.WAIT, (Begin, Poke), "why", when=held)
    assert [(row.when, row.let, row.do) for row in table.rows] == [(odd, bumped, ())] * 2 + [(held, None, ())] * 4
    assert [row.verb for row in table.rows] == ["row"] * 2 + ["ignore"] * 2 + ["refuse"] * 2


def by_method(v: Any, e: Any) -> Any:
    return v.said(e)


def another_value(v: Any, e: Any) -> Any:
    return Job(S.WAIT)


def test_of_an_effect_that_is_plainly_made_by_its_class_the_class_is_known() -> None:
    table = Table("job", Job, S, initial=S.NEW, events=(Poke,), timers={})
    table.row(S.WAIT, Poke, do=(said, marked, either, tell, by_method, another_value))
    ((code,), _) = code_of(tuple(table.rows), (False,) * 6, None, (None,) * 6)
    assert [made for _, made in code.effects] == [Say, Mark, None, Told, None, None]


@pytest.mark.parametrize("parts", [False, True])
def test_a_row_s_function_may_have_any_name_that_a_step_has(parts: bool) -> None:
    for tombstones in (False, True):
        table = jobs(tombstones)
        table.name = f"named {parts} {tombstones}"
        made = ground(table, echoes(), parts=parts, bound=2).driver
        made.prepare()
        made.handle(Begin(0, 0), 0.0)
    files = [file for file in linecache.cache if file.startswith(("<named ", "<takes an event of named "))]
    texts = ["".join(linecache.getlines(file)) for file in files]
    found = [node for text in texts for node in ast.walk(ast.parse(text))]
    names = {node.id for node in found if isinstance(node, ast.Name)} | {n.arg for n in found if isinstance(n, ast.arg)}
    names |= {node.name for node in found if isinstance(node, ast.FunctionDef)} - {"make"}
    own = {name for name in names if not name[-1].isdigit() and not hasattr(builtins, name) and name not in globals()}
    own -= {"call", "call_", "call__"}  # functions without a name have it
    assert own >= {"value", "event", "now", "new", "log", "driver", "carry_out", "initial", "end"}
    for name in own | {"fire"}:  # which is the step of a machine without a driver
        table = Table("job", Job, S, initial=S.NEW, events=(Poke,), timers={})
        table.row(S.WAIT, Poke, when=type("Guard", (), {"__name__": name, "__call__": lambda *_: True})())
        ((code,), _) = code_of(tuple(table.rows), (False,) * 6, None, (None,) * 6)
        assert code.guard == f"{name}_(value, event, now)"


def test_a_table_without_a_list_of_events_or_timers_has_those_of_its_rows_and_none() -> None:
    table = Table("job", Job, S, initial=S.NEW)
    table.row(S.NEW, Poke, S.WAIT)
    table.ignore((S.NEW, S.WAIT), (Ended, Poke), "it is over")
    assert table.events == (Poke, Ended) and table.timers == {}


def test_a_row_of_a_timer_starts_it_anew() -> None:
    table = jobs(tombstones=False)
    assert {row.again for row in table.rows if row.event is Ended and row.verb == "row"} == {True}
    assert (table.name, table.value, table.states, table.initial, table.final) == ("job", Job, S, S.NEW, (S.OVER,))
    assert set(table.periods) == {S.OWN} and table.periods[S.OWN](Job(S.OWN, own=3.0)) == 3.0
    plain = Table("job", Job, S, initial=S.NEW, events=[Begin], timers={})
    assert (plain.events, plain.final, plain.periods, plain.tries, plain.rows) == ((Begin,), (), {}, None, [])
    assert (plain.success_path, plain.failure_states, plain.counted_states, plain.tombstones) == ((), (), (), False)
