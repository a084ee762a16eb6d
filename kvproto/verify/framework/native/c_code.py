"""C code: prints tables as C, one function for each, beside the two printers of Python.

`kvproto.fsm.machine` prints a step that returns its result, `kvproto.fsm.machine_code` one that carries it out; this
one prints a step that writes its result into memory.  It starts from the rows, not from their generated Python, so the
two can be judged by each other.

A step takes a value, an event, the time and the timers' numbers, and leaves the number of the row (-1: there is none),
the new value and the effects, each with its tag.  A row that refuses leaves no effect: its report follows from the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any, NamedTuple

from kvproto.fsm.table import Row, Table
from kvproto.fsm.timer_wheel import QUANTUM
from kvproto.fsm.vocabulary import Event, State, TimerFired
from kvproto.verify.framework.native.c_types import INT, MASK_WORDS, REAL, Record, Term, UnprintableError
from kvproto.verify.framework.native.expressions import UnprintableRowError
from kvproto.verify.framework.native.functions import Functions
from kvproto.verify.framework.native.records import Records

NONE = -1


class TableCode(NamedTuple):
    """One table in C: its function, and the numbers of its events."""

    table: Table[Any]
    function: str
    events: dict[type[Event], int]


class CCode(NamedTuple):
    """A file of C, and what the words in it stand for."""

    source: str
    tables: tuple[TableCode, ...]
    records: Records


class TablePrinter:
    """Prints the tables of one file."""

    functions_of = Functions
    runtime = (files(__package__) / "runtime.c").read_text()

    def __init__(self) -> None:
        self.records = Records()
        self.functions = self.functions_of(self.records)
        self.steps: list[str] = []
        self.tables: list[TableCode] = []

    # ----------------------------------------------------------------------------------------------- tables
    def add(self, table: Table[Any]) -> None:
        known = dict.fromkeys([*table.events, *(row.event for row in table.rows)])
        events = {event: at for at, event in enumerate(known)}
        name = f"step{len(self.tables)}_{table.name}"
        value = self.records.c(Record(table.value))
        cases = [line for (state, event), rows in table.pairs().items()
                 for line in self._pair(table, events[event] * len(table.states) + state, event, rows)]  # fmt: skip
        self.steps += [
            f"int64_t {name}(Run *run, const {value} *v, int64_t event, const void *what, double now,",
            f"               const Timer *timers, {value} *new, Out *out) {{",
            "    (void)what; (void)now; (void)timers; (void)out;",
            "    run->made = 0;",
            f"    switch (event * {len(table.states)} + v->state) {{",
            *(f"    {line}" for line in cases),
            "    }",
            "    *new = *v;",
            f"    return {NONE};",
            "}",
        ]
        self.tables.append(TableCode(table, name, events))

    def _pair(self, table: Table[Any], case: int, event: type[Event], rows: list[Row]) -> Iterator[str]:
        kind = self.records.name(event)
        yield f"case {case}: {{ /* {rows[0].source.name} {event.__name__} */"
        yield f"    const {kind} *e = what; (void)e;"
        for row in rows:
            yield f"    if ({self.guard(table, row)}) {{"
            yield from (f"        {line}" for line in self.block(table, row))
            yield f"        return {row.index};"
            yield "    }"
        yield "    break;"
        yield "}"

    # ------------------------------------------------------------------------------------------------- rows
    def guard(self, table: Table[Any], row: Row) -> str:
        return "1" if row.when is None else self.functions.operators.truth(self._asked(table, row, row.when))

    def _asked(self, table: Table[Any], row: Row, function: Any) -> Term:
        value, event = Term("(*v)", Record(table.value), place=True), Term("(*e)", Record(row.event), place=True)
        return self.functions.call(function, [value, event, Term("now", REAL)])

    def block(self, table: Table[Any], row: Row) -> list[str]:
        if row.verb != "row":
            return ["*new = *v;"]
        lines = [f"*new = {self.changed(table, row)};", *self.moved(table, row)]
        for at, build in enumerate(row.do):
            lines.append(self.effect(table, row, at, build))
        return [*lines, f"run->made = {len(row.do)};"]

    def changed(self, table: Table[Any], row: Row) -> str:
        """Return the new value, in the old state."""
        if row.let is None:
            return "*v"
        return self.functions.operators.convert(self._asked(table, row, row.let), Record(table.value)).code

    def moved(self, table: Table[Any], row: Row) -> list[str]:
        """Return the lines that set state and timer."""
        if row.target is row.source and not row.again:
            return []
        return [f"new->due = {self.due(table, row)};", f"new->state = {self.target(row)};"]

    def target(self, row: Row) -> int:
        return int(row.target)

    def due(self, table: Table[Any], row: Row) -> str:
        """Return the end of the new state's timer."""
        if row.target not in table.timers:
            return "__builtin_inf()"
        times, value = "0", Term("(*v)", Record(table.value), place=True)
        if table.tries is not None and row.target is row.source and issubclass(row.event, TimerFired):
            tries = self.functions.operators.convert(self.functions.call(table.tries, [value]), INT)
            times = f"add(run, {tries.code}, 1)"
        found = f"due(timers[{self.timer(row.target)}], now, {times})"
        period = table.periods.get(row.target)
        if period is None:
            return found
        own = self.functions.operators.convert(self.functions.call(period, [value._replace(code="(*new)")]), REAL)
        return f"({{ double own = {own.code}; own != 0 ? slot(now + own) : {found}; }})"

    def timer(self, state: State) -> int:
        return int(state)

    def effect(self, table: Table[Any], row: Row, at: int, build: Any) -> str:
        """Return the line that makes one effect, from the new value."""
        types = [Record(table.value), Record(row.event)]
        return f"{self.functions.printed(build, types, effect=True).name}(run, new, e, &out[{at}]);"

    # ------------------------------------------------------------------------------------------------- file
    def file(self) -> CCode:
        head = {"MASK_WORDS": MASK_WORDS, "BOX_WORDS": self.records.box_words, "OUT_WORDS": self.records.out_words,
                "SLOTS": round(1 / QUANTUM)}  # fmt: skip
        defined = [f"#define {name} {number}" for name, number in head.items()]
        parts = [*defined, self.runtime, *self.records.declarations(), *self.functions.text, *self.steps]
        return CCode("\n".join(parts) + "\n", tuple(self.tables), self.records)


def c_code(tables: Iterable[Table[Any]], printer: type[TablePrinter] = TablePrinter) -> CCode:
    """Print these tables as one file."""
    made = printer()
    for table in tables:
        made.add(table)
    return made.file()


def unprintable(table: Table[Any]) -> Iterator[tuple[Row | None, str, str]]:
    """Yield what of a table C cannot say: the row (None: its value), file and line, and why."""
    printer = TablePrinter()
    try:
        printer.records.name(table.value)
    except UnprintableError as error:
        yield None, "?", str(error)
        return
    for row in table.rows:
        try:
            printer.records.name(row.event)
            printer.guard(table, row)
            printer.block(table, row)
        except UnprintableRowError as error:
            yield row, error.where, error.why
        except UnprintableError as error:
            yield row, row.where, str(error)
