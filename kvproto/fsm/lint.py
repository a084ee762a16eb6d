"""The lint: what can be said of a table without running it.

Five things are errors, each with the file and line of the row (or of the pair) that is at fault:

* `undecided`: a pair of state and event for which no row without a guard decides;
* `never-fires`: a row behind one that always fires, or one that says the same under the same guard;
* `unreachable`: a state that no row leads to from the initial one;
* `no-way-out`: a state from which no row path leads to a final one (tables that have final states);
* `unknown`: a row on an event, or in a state, that the table does not have; a timer's event in a state without
  a timer; a timer that has no numbers in the given `timing`.

A machine without tombstones is deleted when it is final, so its final states need no rows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from kvproto.fsm.table import Row, Table
from kvproto.fsm.timing import NamedTimers
from kvproto.fsm.vocabulary import Event, State, TimerFired


class Finding(msgspec.Struct, frozen=True):
    """One error; `where` is `file:line` (of the table's first row if no row is at fault)."""

    table: str
    kind: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.table}: {self.kind}: {self.text}"


def lint(table: Table[Any], timing: NamedTimers) -> list[Finding]:
    """Every error of the table, in the order of the list above."""
    rows = table.pairs()
    found = [*_undecided(table, rows), *_never_fires(table, rows), *_graph(table), *_unknown(table, timing)]
    return sorted(found, key=lambda f: (f.where, f.kind))


def _finding(table: Table[Any], kind: str, text: str, row: Row | None = None) -> Finding:
    row = row or (table.rows[0] if table.rows else None)
    return Finding(table.name, kind, row.where if row else "?", text)


def _undecided(table: Table[Any], rows: dict[tuple[State, type[Event]], list[Row]]) -> list[Finding]:
    found = []
    for state in table.states:
        if state in table.final and not table.tombstones:
            continue
        for event in table.events:
            if issubclass(event, TimerFired) and state not in table.timers:
                continue
            pair = rows.get((state, event), [])
            if not pair or all(row.when for row in pair):
                text = f"nobody decides {event.__name__} in {state.name}"
                found.append(_finding(table, "undecided", text, pair[-1] if pair else None))
    return found


def _never_fires(table: Table[Any], rows: dict[tuple[State, type[Event]], list[Row]]) -> list[Finding]:
    found = []
    for pair in rows.values():
        seen: dict[Any, Row] = {}
        for row in pair:
            hidden = seen.get(None) or seen.get(row.when)
            if hidden is not None:
                found.append(_finding(table, "never-fires", f"{row} comes after {hidden.where}", row))
            seen.setdefault(row.when, row)
    return found


def _closure(edges: dict[State, set[State]], start: set[State]) -> set[State]:
    seen, todo = set(start), list(start)
    while todo:
        for target in edges[todo.pop()] - seen:
            seen.add(target)
            todo.append(target)
    return seen


def _graph(table: Table[Any]) -> list[Finding]:
    forward: dict[State, set[State]] = defaultdict(set)
    backward: dict[State, set[State]] = defaultdict(set)
    for row in table.rows:
        forward[row.source].add(row.target)
        backward[row.target].add(row.source)
    reached = _closure(forward, {table.initial})
    found = [_finding(table, "unreachable", s.name) for s in table.states if s not in reached]
    if table.final:
        ending = _closure(backward, set(table.final))
        found += [_finding(table, "no-way-out", s.name) for s in table.states if s not in ending]
    return found


def _unknown(table: Table[Any], timing: NamedTimers) -> list[Finding]:
    found = []
    for row in table.rows:
        if row.event not in table.events:
            found.append(_finding(table, "unknown", f"{row.event.__name__} is not an event of the table", row))
        if row.source not in tuple(table.states) or row.target not in tuple(table.states):
            found.append(_finding(table, "unknown", f"{row} is in a state of another table", row))
        if issubclass(row.event, TimerFired) and row.source not in table.timers:
            found.append(_finding(table, "unknown", f"{row.source.name} has no timer", row))
    for state, name in table.timers.items():
        try:
            timing.named(name)
        except AttributeError:
            found.append(_finding(table, "unknown", f"{state.name} names the timer {name!r}"))
    return found
