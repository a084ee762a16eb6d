"""Machine store: the machines of one kind, found by the key of an event, and their timers.

A kind is a table and a *key*: a function of the event that names its machine.  Machines are flat (one dictionary by
key) or *parts* of a whole (a dictionary by `within`, and in it one by key); parts are looked up, stopped and removed
together.  A key function of one `return` is inlined into the code that takes the event (`kvproto.fsm.inline`), so
finding a machine costs as much as a hand-written look-up.  The code of a pair of state and event is generated when the
pair first occurs (`kvproto.fsm.machine_code`).

A machine is stored once a step has taken it out of the initial state, and removed when it is final.  If the table has
tombstones, the last values stay for a while and answer, at most `bound` of them.

*Timers.*  Each kind has a wheel.  Each armed value has a key in it that comes up no later than its `due`.  A key that
comes up early is put back, a key whose value is gone is dropped, so moving a timer costs nothing.  Two kinds keep only
one key, and remember in `wakes` when it was put in: machines that live long and restart their timers often
(`restless`), and the parts of one whole.
"""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kvproto.fsm.generated import compiled
from kvproto.fsm.inline import expression
from kvproto.fsm.machine import NO_ROW, Machine, machine_for
from kvproto.fsm.machine_code import FIND, FIND_PART, StoreWords, rows_of, step_code
from kvproto.fsm.table import Table, Value
from kvproto.fsm.timer_wheel import INFINITY, TimerWheel
from kvproto.fsm.vocabulary import Effect, Event, State, TimerFired

if TYPE_CHECKING:
    from kvproto.fsm.driver import Driver

#: takes an event
On = Callable[[Any, float], None]
#: of an event: the key of its machine
KeyOf = Callable[[Any], Any]
#: tables, and the stores of theirs, whose steps have been written in this process
PREPARED: set[tuple[str, StoreWords]] = set()


class MachineStore:
    """The machines of one table in a driver; their values are the driver's attribute `store`."""

    def __init__(
        self, driver: Driver, store: str, table: Table[Any], key: KeyOf, *, within: KeyOf | None = None,
        timer: Callable[..., TimerFired] | None = None, bound: int = 0, tombs: str = "tombs",
        restless: bool = False, ended: Callable[[Any], None] | None = None,
    ) -> None:  # fmt: skip
        """Add the store to a driver, with its values in the attribute `store` and tombstones in `tombs`.

        `timer` makes the timer's event from the key (for a part: both keys) and the tries; by default it is the table's
        event with the key as first field.  `ended` is called with the key of each machine that is removed (for parts:
        with the key of the whole, after the last one).  At most `bound` tombstones are kept.
        """
        self.driver, self.store, self.table, self.restless, self.on_end = driver, store, table, restless, ended
        self.machine: Machine[Any] = machine_for(table, driver.timing)
        self.within, self.key = within, key
        self.timer = timer or timer_event(table)
        self.bound, self.tombs = bound if table.tombstones else 0, tombs
        setattr(driver, store, {})
        if self.bound:
            setattr(driver, tombs, OrderedDict())
        self.wheel: TimerWheel[Any] = TimerWheel()
        self.wakes: dict[Any, float] = {}
        self._words, self._names = self._written()
        self._pairs = self.machine.pairs
        #: by event, then by state: what carries the rows out; written when the first such event comes
        self._steps: dict[type[Event], list[Callable[..., None]]] = {
            event: [self._first] * len(table.states)
            for event in dict.fromkeys([*table.events, *(event for _, event in self._pairs)])
        }
        #: by type of event: what takes it to its machine
        self.take: dict[type[Event], On] = self._compile()

    # ------------------------------------------------------------------------------------------ as values
    def get(self, key: Any) -> Any:
        """The value of the machine with this key (of a part: `(whole, key)`); None: there is none."""
        values = getattr(self.driver, self.store)
        if self.within is None:
            return values.get(key)
        whole, part = key
        return values.get(whole, {}).get(part)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """(key, value) of each; a part's key is `(whole, key)`."""
        for key, value in getattr(self.driver, self.store).items():
            if self.within is None:
                yield key, value
            else:
                yield from (((key, part), each) for part, each in value.items())

    def ended(self) -> dict[Any, Any]:
        """The tombstones, by key; the oldest first."""
        tombs: dict[Any, Any] = getattr(self.driver, self.tombs) if self.bound else {}
        return tombs

    def put_back(self, values: dict[Any, Any], tombs: OrderedDict[Any, Any]) -> None:
        """Have these machines (as `items` gives them) and tombstones, and no others."""
        kept: dict[Any, Any] = {}
        for key, value in values.items():
            if self.within is None:
                kept[key] = value
            else:
                kept.setdefault(key[0], {})[key[1]] = value
        setattr(self.driver, self.store, kept)
        if self.bound:
            setattr(self.driver, self.tombs, tombs)

    # ---------------------------------------------------------------------------------------- taking events
    def _written(self) -> tuple[StoreWords, dict[str, str]]:
        """Return what the generated code of this store needs: its words, and its source by name."""
        table, machine, part = self.table, self.machine, self.within is not None
        bare = not (self.restless or self.on_end)
        flat = "bury(key, new)" if self.bound else f"driver.{self.store}.pop(key, None)" if bare else "end(key)"
        words = StoreWords(
            self.store, part, "end(whole, key)" if part else flat, table.initial, table.final, table.counted_states,
            machine.timed, machine.tries, machine.periods,
        )  # fmt: skip
        return words, {"store": self.store, "buried": f" or driver.{self.tombs}.get(key)" if self.bound else ""}

    def _compile(self) -> dict[type[Event], On]:
        names: dict[str, Any] = {}
        words = self._names | {"key": ast.unparse(expression(self.key, ("event",), names))}
        if self.within is not None:
            words["whole"] = ast.unparse(expression(self.within, ("event",), names))
        source = (FIND if self.within is None else FIND_PART).format(**words)
        exec(compiled(source, f"takes an event of {self.table.name}"), names)  # noqa: S102
        make: Callable[..., On] = names["make"]
        return {event: make(self.driver, steps, self.machine.initial) for event, steps in self._steps.items()}

    def prepare(self) -> None:
        """Generate the code of all steps now, unless another driver of the process has done so.

        To bind it to a store, when the first such event comes, takes microseconds.
        """
        named = self.table.name, self._words
        if named not in PREPARED:
            PREPARED.add(named)
            for event in self._steps:
                for state in self.table.states:
                    self._step(event, state)

    def _first(self, event: Event, now: float, value: Value, *found: Any) -> None:
        """The first event of its kind in this state: the step is written, and takes it."""
        step = self._steps[type(event)][value.state] = self._step(type(event), value.state)
        step(event, now, value, *found)

    def _step(self, event: type[Event], state: State) -> Callable[..., None]:
        """Return the function that carries out the rows of this pair."""
        driver, machine, inner = self.driver, self.machine, self.driver.inner
        rows = tuple(self._pairs.get((state, event), ()))
        if not rows:
            return self._undecided
        codes, names = rows_of(rows, self._words)
        known = tuple(made in inner for code in codes for _, made in code.effects)
        acts = {
            f"act{code.number}_{j}": inner[made]
            for code in codes for j, (_, made) in enumerate(code.effects) if made in inner
        }  # fmt: skip
        entries = {
            f"entry{i}": (self.store, row.source.name, event.__name__, row.target.name) for i, row in enumerate(rows)
        }
        whole = self.within is not None
        scope = names | machine.given(rows) | acts | entries | {
            "driver": driver, "log": driver.log, "initial": machine.initial, "carry_out": driver.carry_out,
            "bury": self._bury, "end": self._end_part if whole else self._end, "end_whole": self._end_whole,
            "wakes": self.wakes,
            "arm": self._arm if whole or self.restless else self.wheel.put,
        }  # fmt: skip
        exec(step_code(rows, self._words, known, self.table.name), scope)  # noqa: S102
        step: Callable[..., None] = scope["step"]
        return step

    def _undecided(self, event: Event, now: float, value: Any, *_found: Any) -> None:
        self.driver.log((now, None, event, value, value))
        self.driver.carry_out(self.machine.report(value, event, NO_ROW))

    def _bury(self, key: Any, value: Any) -> None:
        tombs = getattr(self.driver, self.tombs)
        tombs[key] = value
        if len(tombs) > self.bound:
            del tombs[next(iter(tombs))]
        self._end(key)

    def _end(self, key: Any) -> None:
        getattr(self.driver, self.store).pop(key, None)
        if self.restless:
            self.wakes.pop(key, None)
        if self.on_end is not None:
            self.on_end(key)

    def _end_part(self, whole: Any, key: Any) -> None:
        parts = getattr(self.driver, self.store).get(whole, {})
        parts.pop(key, None)
        if not parts:
            self._end_whole(whole)

    def _end_whole(self, whole: Any) -> None:
        getattr(self.driver, self.store).pop(whole, None)
        self.wakes.pop(whole, None)
        if self.on_end is not None:
            self.on_end(whole)

    # --------------------------------------------------------------------------------------------- timers
    def _arm(self, due: float, key: Any) -> None:
        self.wakes[key] = due
        self.wheel.put(due, key)

    def rearm(self) -> None:
        """Start the timer of every value, to end when it is due, after values were restored from elsewhere."""
        for key, value in self.items():
            if value.due == INFINITY:
                continue
            if self.within is None:
                (self._arm if self.restless else self.wheel.put)(value.due, key)
            elif value.due < self.wakes.get(key[0], INFINITY):
                self._arm(value.due, key[0])

    def wake(self, now: float) -> list[Effect]:
        """Take the wheel's next key, and fire what is due of it."""
        due, key = self.wheel.next, self.wheel.take()
        if self.within is not None:
            return self._wake_parts(key, due, now)
        value = getattr(self.driver, self.store).get(key)
        if value is None or self.wakes.get(key, due) != due:
            return []
        out: list[Effect] = []
        if value.due <= now:
            out = self.driver.expire(self, key, now)
            value = getattr(self.driver, self.store).get(key)
        if value is not None and value.due < INFINITY:
            (self._arm if self.restless else self.wheel.put)(value.due, key)
        return out

    def _wake_parts(self, whole: Any, due: float, now: float) -> list[Effect]:
        out: list[Effect] = []
        if self.wakes.get(whole) != due:
            return out
        del self.wakes[whole]
        parts = getattr(self.driver, self.store)
        for key in [key for key, value in parts.get(whole, {}).items() if value.due <= now]:
            value = parts.get(whole, {}).get(key)
            if value is not None and value.due <= now:  # an earlier one may have ended it
                out += self.driver.expire(self, (whole, key), now)
        left = min([value.due for value in parts.get(whole, {}).values()], default=INFINITY)
        if left < self.wakes.get(whole, INFINITY):
            self._arm(left, whole)
        return out

    def timer_of(self, key: Any, tries: int) -> TimerFired:
        """The event of this machine's timer."""
        return self.timer(key, tries) if self.within is None else self.timer(*key, tries)


def timer_event(table: Table[Any]) -> Callable[..., TimerFired]:
    """The table's own kind of `TimerFired`; one that has none has no timers either."""
    found = [event for event in table.events if issubclass(event, TimerFired)]
    if not found and table.timers:
        raise LookupError(f"{table.name} has timers, and its events have no TimerFired")
    return found[0] if found else TimerFired
