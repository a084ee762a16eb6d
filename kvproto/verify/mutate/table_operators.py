"""Table operators: a mutant of the tables is one small change of one row, timer or route.

    loosen     one condition of a guard is dropped
    negate     a guard holds where it does not
    target     the row leads to another state of its machine
    let        the value stays as it is
    field      one field of the new value stays as it is
    effect     one effect is left out
    row        the row is not there
    swap       two effects that follow each other are exchanged
    again      a row that stays, and starts the timer anew, leaves it running
    timer      a state has the timer of another name
    period     a state has not its machine's own period
    close      a route is not there
    ask        a route asks for one fact less
    fact       a route asks for another fact of the same kind
    body       what a guard, a change, an effect or a helper of theirs says is changed at one place (`bodies`)

The name of a mutant does not depend on where its row stands.  A guard that always holds is no mutant: the lint finds
each, by the row behind it that never fires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any
from zlib import crc32

import msgspec

from kvproto.errors import ArgumentError
from kvproto.fsm.routing import Fact, Route, Routes
from kvproto.fsm.table import Row, Table
from kvproto.verify.claims.sources import SOURCES
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.mutate import bodies
from kvproto.verify.mutate.changed_functions import conditions, fields, negated, without_condition, without_field

ROW_OPERATORS = ("loosen", "negate", "target", "let", "field", "effect", "row", "swap", "again")
OPERATORS = (*ROW_OPERATORS, "timer", "period", "close", "ask", "fact", "body")
#: a route of more messages than that is one of any message, by its name
MOST = 4
SUBJECTS: dict[str, Table[Any] | Routes] = {
    **{table.name: table for table in bodies.MUTATED},
    **{routes.name: routes for routes in SOURCES.routes},
}


@contextmanager
def subjects(tables: Sequence[Table[Any]], routes: Sequence[Routes]) -> Iterator[None]:
    """Have the operators change another protocol's tables and routes while the block runs."""
    own = dict(SUBJECTS)
    # of a table and routes that have one name: the table
    others = {each.name: each for each in routes} | {each.name: each for each in tables}
    try:
        SUBJECTS.clear()
        SUBJECTS.update(others)
        with bodies.mutated(tables):
            yield
    finally:
        SUBJECTS.clear()
        SUBJECTS.update(own)


class TableMutant(msgspec.Struct, frozen=True, order=True):
    """One change: of this table (or list of routes), by this operator.

    `place`: the row's, state's, route's or body's; `variant`: which of the ways that the operator has there.
    """

    table: str
    operator: str
    place: int
    variant: int
    name: str

    def fits(self, pattern: str) -> bool:
        """Its name fits; brackets are brackets."""
        return fnmatchcase(self.name, pattern.replace("[", "[[]"))

    def __str__(self) -> str:
        return self.name

    def plant(self, bench: TablePatch) -> None:
        subject = SUBJECTS[self.table]
        if self.body is not None:
            bodies.plant(bench, self.body)
        elif isinstance(subject, Routes):
            _plant_route(bench, subject, self)
        elif self.operator in ROW_OPERATORS:
            row = subject.rows[self.place]
            if self.operator == "row":
                bench.drop(subject, [row])
            else:
                bench.change(subject, [row], **CHANGES[self.operator](row, subject, self.variant))
        else:
            _plant_timer(bench, subject, self)

    @property
    def row(self) -> Row | None:
        subject = SUBJECTS[self.table]
        return subject.rows[self.place] if isinstance(subject, Table) and self.operator in ROW_OPERATORS else None

    @property
    def body(self) -> bodies.Body | None:
        return bodies.bodies(self.table)[self.place] if self.operator == "body" else None

    @property
    def touched(self) -> tuple[tuple[str, Row], ...]:
        """The rows that will say something else with it, each with its table's name; of tables as they are."""
        if self.body is not None:
            return bodies.touched(self.body)
        return ((self.table, self.row),) if self.row is not None else ()

    @property
    def compares(self) -> bool:
        """All that it changes is seen in the steps of the rows that it touches."""
        return bodies.compares(self.body) if self.body is not None else self.row is not None


def mutants(tables: Sequence[str] = (), operators: Sequence[str] = ()) -> list[TableMutant]:
    """Return the mutants of these tables (all) by these operators (all). ArgumentError: no such name."""
    if unknown := [name for name in operators if name not in OPERATORS]:
        raise ArgumentError(f"no operator {unknown[0]!r} of tables: one of {', '.join(OPERATORS)}")
    if unknown := [name for name in tables if name not in SUBJECTS]:
        raise ArgumentError(f"no table {unknown[0]!r}: one of {', '.join(SUBJECTS)}")
    found = [each for name in tables or SUBJECTS for each in _mutants(SUBJECTS[name])]
    return [each for each in found if not operators or each.operator in operators]


def sample(found: Sequence[TableMutant], count: int, seed: int) -> list[TableMutant]:
    """So many of them, as many by each operator as there are.

    Seed and name decide which: what is recorded of a sample stays of use when a row is added.
    """

    def drawn(mutant: TableMutant) -> int:
        return crc32(f"{seed} {mutant.name}".encode())

    by_operator = [sorted((each for each in found if each.operator == name), key=drawn) for name in OPERATORS]
    turns = [each[turn] for turn in range(count) for each in by_operator if turn < len(each)]
    return sorted(turns[:count])


def _mutants(subject: Table[Any] | Routes) -> Iterator[TableMutant]:
    if isinstance(subject, Routes):
        yield from _of_routes(subject)
        return
    for place, row in enumerate(subject.rows):
        for operator in ROW_OPERATORS:
            for variant, what in enumerate(WAYS[operator](row, subject)):
                yield TableMutant(subject.name, operator, place, variant, f"{_pair(subject, row)} - {what}")
    yield from _of_timers(subject)
    yield from _of_bodies(subject)


def _pair(table: Table[Any], row: Row) -> str:
    guard = f" [{row.when.__name__}]" if row.when else ""
    return f"{table.name}: {row.source.name} {row.event.__name__}{guard}"


# --------------------------------------------------------------------------------------------------- rows
def _others(row: Row, table: Table[Any]) -> list[Any]:
    return [state for state in table.states if state is not row.target] if row.verb == "row" else []


def _stays(row: Row) -> bool:
    return row.verb == "row" and row.again and row.target is row.source


#: by operator: the ways that it has with a row, in words
WAYS: dict[str, Callable[[Row, Table[Any]], Sequence[str]]] = {
    "loosen": lambda row, _: [f"without {text}" for text in conditions(row.when)] if row.when else [],
    "negate": lambda row, _: ["negated"] if row.when else [],
    "target": lambda row, table: [f"to {state.name}" for state in _others(row, table)],
    "let": lambda row, _: [f"no {row.let.__name__}"] if row.let else [],
    "field": lambda row, _: [f"{row.let.__name__} without {name}" for name in fields(row.let)] if row.let else [],
    "effect": lambda row, _: [each.__name__ for each in row.do],
    "row": lambda *_: ["row"],
    "swap": lambda row, _: [
        f"{after.__name__} before {first.__name__}" for first, after in zip(row.do, row.do[1:], strict=False)
    ],
    "again": lambda row, _: ["not again"] if _stays(row) else [],
}
#: by operator: the fields of the row that it changes
CHANGES: dict[str, Callable[[Row, Table[Any], int], dict[str, Any]]] = {
    "loosen": lambda row, _, way: {"when": without_condition(row.when, way) if row.when else None},
    "negate": lambda row, _, __: {"when": negated(row.when) if row.when else None},
    "target": lambda row, table, way: {"target": _others(row, table)[way]},
    "let": lambda _, __, ___: {"let": None},
    "field": lambda row, _, way: {"let": without_field(row.let, way) if row.let else None},
    "effect": lambda row, _, way: {"do": row.do[:way] + row.do[way + 1 :]},
    "swap": lambda row, _, way: {"do": (*row.do[:way], row.do[way + 1], row.do[way], *row.do[way + 2 :])},
    "again": lambda _, __, ___: {"again": False},
}


# ------------------------------------------------------------------------------------------------- timers
def _timer_names() -> list[str]:
    tables = (each for each in SUBJECTS.values() if isinstance(each, Table))
    return sorted({name for table in tables for name in table.timers.values()})


def _of_timers(table: Table[Any]) -> Iterator[TableMutant]:
    for state, mine in table.timers.items():
        for variant, name in enumerate(_timer_names()):
            if name != mine:
                words = f"{table.name}: {state.name} - timer {name}"
                yield TableMutant(table.name, "timer", int(state), variant, words)
    for state in table.periods:
        words = f"{table.name}: {state.name} - no period of its own"
        yield TableMutant(table.name, "period", int(state), 0, words)


def _plant_timer(bench: TablePatch, table: Table[Any], mutant: TableMutant) -> None:
    state = table.states(mutant.place)
    if mutant.operator == "timer":
        bench.patch(table, "timers", {**table.timers, state: _timer_names()[mutant.variant]})
    else:
        bench.patch(table, "periods", {each: by for each, by in table.periods.items() if each is not state})


def _of_bodies(table: Table[Any]) -> Iterator[TableMutant]:
    said: Counter[str] = Counter()
    for place, body in enumerate(bodies.bodies(table.name)):
        words = f"{table.name}: {body.function} - {body.says}"
        said[words] += 1
        again = f" ({said[words]})" if said[words] > 1 else ""
        yield TableMutant(table.name, "body", place, 0, words + again)


# ------------------------------------------------------------------------------------------------- routes
def _asks(route: Route) -> list[Fact]:
    return [ask for by_fact in route.asks for ask in by_fact]


def _exchanges(route: Route) -> list[tuple[Fact, Fact]]:
    """Each fact that is asked for alone of its kind, with each other member of the kind."""
    return [(asks[0], other) for asks in route.asks if len(asks) == 1 for other in type(asks[0]) if other not in asks]


def _of_routes(routes: Routes) -> Iterator[TableMutant]:
    for place, route in enumerate(routes.routes):
        messages = "+".join(message.__name__ for message in route.messages[:MOST])
        messages = "any" if len(route.messages) > MOST else messages
        facts = ", ".join(f"{type(ask).__name__}.{ask.name}" for ask in _asks(route))
        words = f"{routes.name}: {messages} [{facts}] {route.end}"
        yield TableMutant(routes.name, "close", place, 0, f"{words} - not there")
        for variant, ask in enumerate(_asks(route)):
            yield TableMutant(routes.name, "ask", place, variant, f"{words} - without {ask.name}")
        for variant, (ask, other) in enumerate(_exchanges(route)):
            yield TableMutant(routes.name, "fact", place, variant, f"{words} - {other.name} for {ask.name}")


def _plant_route(bench: TablePatch, routes: Routes, mutant: TableMutant) -> None:
    route = routes.routes[mutant.place]
    if mutant.operator == "close":
        bench.close(routes, [route])
        return
    if mutant.operator == "ask":
        gone = _asks(route)[mutant.variant]
        asks = tuple(tuple(ask for ask in by_fact if ask is not gone) for by_fact in route.asks)
    else:
        gone, other = _exchanges(route)[mutant.variant]
        asks = tuple((other,) if gone in by_fact and _alike(by_fact, gone) else by_fact for by_fact in route.asks)
    bench.reroute(routes, [route], asks=asks)


def _alike(asks: tuple[IntEnum, ...], one: IntEnum) -> bool:
    """Members of different kinds are equal as numbers."""
    return all(type(ask) is type(one) for ask in asks)
