"""Conformance: judge whether a party's recorded steps are those of its tables and keep the claims.

A step is fired again: it has to be by the row, and to lead to the state, that the tables say. Beside each machine goes
the witness of its claims, which is asked at every step, in this order: what the surroundings gave their word for when
this event comes (the assumptions); whether the invariant holds of the new value; whether what the step leaves behind
keeps its promises. And a machine's value is the one that its step before has left.

`TraceJudge` judges the entries of one party's trace, as they come; `Witnesses` asks the claims alone, for traces that
are read. A machine that is met in the middle of its life has no witness: of it nothing is asked until it begins anew.
Claims of which the witness knows things that no trace tells are left out by whoever names the claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kvproto.fsm.driver import STEP
from kvproto.fsm.machine import Machine
from kvproto.fsm.table import Output, Row, Value
from kvproto.fsm.vocabulary import Event
from kvproto.verify.framework.claims import Claims, Step
from kvproto.verify.framework.trace.claims_asked import Breach, asked_of

if TYPE_CHECKING:
    from kvproto.fsm.telling import Telling

#: machines of a table that are remembered: of those that ended long ago nobody asks
REMEMBERED = 1 << 16
#: breaches that are kept
MOST = 16


class Witnesses:
    """The witnesses of one party's machines of one table, and the values that their steps have left."""

    def __init__(self, claims: Claims[Any, Any] | None) -> None:
        self.asked = asked_of(claims) if claims is not None else None
        self.seen: dict[Any, tuple[Value, Any]] = {}

    def take(
        self, key: Any, row: Row, before: Value, event: Event, after: Value, effects: tuple[Output, ...], now: float
    ) -> Breach | None:  # fmt: skip
        """Record a step of the machine with this key by this row; return the first claim that it breaks."""
        asked = self.asked
        if asked is None:
            return None
        table, held = asked.claims.table, self.seen.get(key)
        if before.state is table.initial:
            seen = asked.claims.ghost()
        elif held is None:
            return None
        else:
            seen = held[1]
        step = Step(before, event, after, effects, now, seen)
        try:
            found = asked.broken(row, step)
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            return Breach("no claim can be asked", f"{type(error).__name__}: {error}")
        self._keep(key, after, step.then, over=after.state in table.final and not table.tombstones)
        return found

    def _keep(self, key: Any, value: Value, then: Any, *, over: bool) -> None:
        if over or then is None:
            self.seen.pop(key, None)
            return
        self.seen[key] = value, then
        if len(self.seen) > REMEMBERED:
            del self.seen[next(iter(self.seen))]


def witnesses(claims: Mapping[str, Claims[Any, Any]], tables: Iterable[str]) -> dict[str, Witnesses]:
    return {name: Witnesses(claims.get(name)) for name in tables}


class TableJudge:
    """The machines of one table of one party."""

    def __init__(self, telling: Telling, machine: Machine[Any]) -> None:
        self.name, self.machine, self.steps = machine.table.name, machine, machine.steps
        self.key: Callable[[Event], Any] = telling.key_getter(machine.table)
        self.witnesses = Witnesses(telling.claims.get(self.name))

    def judge(self, now: float, row: Row | None, event: Event, old: Value, new: Value) -> str:
        """Return what is wrong with this step; empty if nothing is."""
        steps = self.steps.get(type(event))
        again, value, effects = (
            self.machine.undecided(old, event) if steps is None else steps[old.state](old, event, now)
        )
        if again is not row or row is None or value.state is not new.state:
            return f"the tables say {again}, to {value.state.name}"
        key = self.key(event)
        held = self.witnesses.seen.get(key)
        if held is not None and held[0] is not old and old.state is not self.machine.table.initial:
            return "between two steps: its value is not the one that the step before has left"
        found = self.witnesses.take(key, row, old, event, new, effects, now)
        return "" if found is None else str(found)


class TraceJudge:
    """Judges one party's trace, entry by entry; skips steps of tables that `telling` does not know."""

    def __init__(self, telling: Telling, machines: Mapping[str, Machine[Any]]) -> None:
        """Take `machines` by table, of any timing: a repeated step is not asked when its timer ends."""
        self.tables = {each.table.value: TableJudge(telling, each) for each in machines.values()}
        self.steps = 0
        #: what was found first, up to `MOST`
        self.found: list[str] = []

    def take(self, entries: Iterable[Any]) -> None:
        tables = self.tables
        for entry in entries:
            if len(entry) != STEP:
                continue
            now, row, event, old, new = entry
            table = tables.get(type(old))
            if table is None:  # a party of another protocol, such as an endpoint's called groups
                continue
            self.steps += 1
            said = table.judge(now, row, event, old, new)
            if said and len(self.found) < MOST:
                self.found.append(f"{table.name}: {event} in {old.state.name}: row {row}: {said}")
