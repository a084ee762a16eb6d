"""The lint: what can be said of a table without running it.

These are errors, each with the file and line of the row (or of the pair) that is at fault:

* `undecided`: a pair of state and event for which no row without a guard decides;
* `never-fires`: a row behind one that always fires, or one that says the same under the same guard;
* `unreachable`: a state that no row leads to from the initial one;
* `no-way-out`: a state from which no row path leads to a final one (tables that have final states);
* `unknown`: a row on an event, or in a state, that the table does not have; a timer's event in a state without
  a timer; a timer that has no numbers in the given `timing`;
* `spent`: a row on a timer's end that stays, and does not start the timer anew: nothing would ever wake the machine;
* `opens`: a row that makes the machine without saying so, or says so and makes none;
* `nobody-raises`: an event of the table that has no source; an event that is raised and that no table takes;
* `out-of-reach`: a row on an event that never comes in its state, as its routes have it;
* `no-route`, `never-taken`: a message that no route takes; a route behind others that take all that it would.

The last ones ask where events come from (`Sources`).  What only machines of the same rank raise need not be decided in
every state: where it cannot come there is no row.

A machine without tombstones is deleted when it is final, so its final states need no rows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from kvproto.fsm.table import Row, Table
from kvproto.fsm.timing import NamedTimers
from kvproto.fsm.vocabulary import Event, State, TimerFired
from kvproto.verify.framework.sources import Sources


class Finding(msgspec.Struct, frozen=True):
    """One error; `where` is `file:line` (of the table's first row if no row is at fault)."""

    table: str
    kind: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.table}: {self.kind}: {self.text}"


def lint(table: Table[Any], timing: NamedTimers, sources: Sources | None = None) -> list[Finding]:
    """Every error of the table, in the order of the list above; the last ones only with `sources`."""
    rows = table.pairs()
    outside = sources.outside(table) if sources is not None else {event: set(table.states) for event in table.events}
    found = [*_undecided(table, rows, outside), *_never_fires(table, rows), *_graph(table), *_unknown(table, timing)]
    found += [*_opens(table), *_spent(table)]
    if sources is not None:
        found += _out_of_reach(table, outside, sources.within(table))
    return sorted(found, key=lambda f: (f.where, f.kind))


def lint_edge(sources: Sources) -> list[Finding]:
    """Every error of the routes, and every event that is raised for nobody."""
    found = []
    for routes in sources.routes:
        where = routes.routes[0].where if routes.routes else "?"
        found += [Finding(routes.name, "no-route", where, f"no route takes {gap}") for gap in routes.gaps()]
        for route in routes.hidden():
            messages = ", ".join(message.__name__ for message in route.messages)
            found.append(Finding(routes.name, "never-taken", route.where, f"others take all of {messages} before"))
    name = "+".join(routes.name for routes in sources.routes)
    for event in sources.homeless():
        found.append(Finding(name, "nobody-raises", "?", f"{event.__name__} is raised, and no table takes it"))
    return found


def _finding(table: Table[Any], kind: str, text: str, row: Row | None = None) -> Finding:
    row = row or (table.rows[0] if table.rows else None)
    return Finding(table.name, kind, row.where if row else "?", text)


def _undecided(
    table: Table[Any], rows: dict[tuple[State, type[Event]], list[Row]], outside: dict[type[Event], set[State]]
) -> list[Finding]:  # fmt: skip
    found = []
    for state in table.states:
        if state in table.final and not table.tombstones:
            continue
        for event in table.events:
            if issubclass(event, TimerFired) and state not in table.timers:
                continue
            pair = rows.get((state, event), [])
            if not pair and state not in outside.get(event, ()):
                continue  # it never comes from outside in this state
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


def _opens(table: Table[Any]) -> list[Finding]:
    found = []
    for row in table.rows:
        makes = row.source is table.initial and row.target is not table.initial
        if makes and not row.opens:
            found.append(_finding(table, "opens", f"{row} makes the machine: write `opens`", row))
        elif row.opens and not makes:
            found.append(_finding(table, "opens", f"{row} makes no machine: write `row`", row))
    return found


def _spent(table: Table[Any]) -> list[Finding]:
    rows = [row for row in table.rows if issubclass(row.event, TimerFired) and row.verb == "row" and not row.again]
    return [_finding(table, "spent", f"{row} stays, and its timer has ended", row)
            for row in rows if row.target is row.source and row.source in table.timers]  # fmt: skip


def _out_of_reach(table: Table[Any], outside: dict[type[Event], set[State]], within: set[type[Event]]) -> list[Finding]:
    nowhere = [event for event in table.events if event not in outside and event not in within]
    found = [_finding(table, "nobody-raises", f"{event.__name__} comes from nowhere") for event in nowhere]
    for row in table.rows:
        if row.event not in within and row.source not in outside.get(row.event, ()):
            text = f"{row.event.__name__} never comes in {row.source.name}"
            found.append(_finding(table, "out-of-reach", text, row))
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
