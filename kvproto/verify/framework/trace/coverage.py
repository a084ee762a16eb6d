"""Coverage of the tables and routes: which rows fired, how guards came out, which row came after which, what was heard.

Lines of Python say little about a protocol that is a table; rows say all.  Four measures:

* *rows*: how often each fired;
* *guard outcomes*: whether each guard was seen to hold and to fail.  They follow from the rows that fired: where the
  third row of a pair fired, the guards of the first two had failed;
* *pairs*: which row was followed by which in the life of one machine.  Counted against all pairs that join (the
  first row's target is the second one's source), of which many cannot happen;
* *routes*: how many messages each took.

What counts is what happens on drivers: a `Collector` sees every entry of the traces of those that are made while it is
installed, and the entries of traces that were saved.  A machine that somebody fires by hand is on none, and counts
for nothing; neither does one whose tables or functions are changed on purpose (`unobserved`).  Whoever does not
count pays nothing: drivers have the plain trace then.

Whether what was seen is honest traffic is not for the counts to know: whoever plays a peer or a library that breaks the
contract counts apart (`kvproto.verify.testing.coverage_plugin`), and a file may hold counts of several kinds.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import msgspec

from kvproto.fsm.driver import SENT, STEP, Driver, Trace
from kvproto.fsm.records import HeardEntry, Log, StepEntry
from kvproto.fsm.routing import Route, Routes
from kvproto.fsm.table import Row, Table, Value
from kvproto.fsm.telling import Key

REMEMBERED = 1 << 16
#: the kinds of what tests see
HONEST, MISBEHAVING = "honest", "misbehaving"


class Counted(NamedTuple):
    """What there is to be seen of a protocol."""

    tables: tuple[Table[Any], ...]
    routes: tuple[Routes, ...]


class CoveredShare(msgspec.Struct, frozen=True):
    """So many of so many."""

    seen: int
    all: int

    def __str__(self) -> str:
        return f"{self.seen}/{self.all}"


class Collector:
    """Counts of rows and of pairs of rows by (table, row index), and of routes by (routes, route index)."""

    def __init__(self, of: Counted) -> None:
        self.of = of
        self.rows: Counter[tuple[str, int]] = Counter()
        self.pairs: Counter[tuple[str, int, int]] = Counter()
        self.routes: Counter[tuple[str, int]] = Counter()
        self.counting = True
        self._after: OrderedDict[int, tuple[Value, int]] = OrderedDict()
        #: by identity, and with what is identified: a row that somebody puts in its place is another one
        self._rows = {id(row): (row, table.name) for table in of.tables for row in table.rows}
        self._routes = {id(route): (route, routes.name) for routes in of.routes for route in routes.routes}

    # ------------------------------------------------------------------------------------- what feeds it
    def note(self, entry: Any) -> None:
        """An entry of a trace."""
        if not self.counting or type(entry) is not tuple:
            return
        if len(entry) == STEP:
            row, table = self._rows.get(id(entry[1]), (None, ""))
            if row is not None:
                self.take(row, table, entry[3], entry[4])
        elif len(entry) != SENT:
            route, routes = self._routes.get(id(entry[2]), (None, ""))
            if route is not None:
                self.routes[routes, route.index] += 1

    def take(self, row: Row, table: str, old: Value, new: Value) -> None:
        """A row fired; that one came after another is known by the value, which is the same object."""
        self.rows[table, row.index] += 1
        before = self._after.pop(id(old), None)
        if before is not None and before[0] is old:
            self.pairs[table, before[1], row.index] += 1
        self._after[id(new)] = new, row.index
        if len(self._after) > REMEMBERED:
            self._after.popitem(last=False)

    def take_log(self, log: Log) -> None:
        """Count the steps and the messages of a party's trace."""
        last: dict[tuple[str, Key], int] = {}
        for entry in log.entries:
            if isinstance(entry, StepEntry) and entry.row is not None:
                self.rows[entry.machine, entry.row] += 1
                before = last.get((entry.machine, entry.key))
                if before is not None and entry.value is None:
                    self.pairs[entry.machine, before, entry.row] += 1
                last[entry.machine, entry.key] = entry.row
            elif isinstance(entry, HeardEntry) and entry.route is not None:
                self.routes[log.head.routes, entry.route] += 1

    @contextmanager
    def installed(self) -> Iterator[Collector]:
        """Count what happens on drivers that are made while the block runs, until it ends."""
        plain = Driver.make_trace
        Driver.make_trace = staticmethod(lambda entries: watched(plain(entries), self))  # type: ignore[method-assign]
        self.counting = True
        try:
            yield self
        finally:
            Driver.make_trace, self.counting = staticmethod(plain), False  # type: ignore[method-assign]

    def add(self, other: Collector) -> None:
        """Add another's counts."""
        self.rows.update(other.rows)
        self.pairs.update(other.pairs)
        self.routes.update(other.routes)

    # ------------------------------------------------------------------------------------- what it says
    def covered(self, table: Table[Any]) -> CoveredShare:
        """Rows that fired."""
        return CoveredShare(len(table.rows) - len(self.missing(table)), len(table.rows))

    def outcomes(self, table: Table[Any]) -> CoveredShare:
        """Guard outcomes that were seen; two for each row with a guard."""
        guarded = [row for row in table.rows if row.when]
        fails = {row.index for row in guarded if any(self.rows[table.name, i] for i in _behind(table, row))}
        holds = sum(self.rows[table.name, row.index] > 0 for row in guarded)
        return CoveredShare(holds + len(fails), 2 * len(guarded))

    def joined(self, table: Table[Any]) -> CoveredShare:
        """Pairs of rows that followed one another, of those that join."""
        sources = Counter(row.source for row in table.rows)
        joined = sum(sources[row.target] for row in table.rows)
        return CoveredShare(sum(name == table.name for name, _, _ in self.pairs), joined)

    def taken(self, routes: Routes) -> CoveredShare:
        """Routes that took a message."""
        return CoveredShare(len(routes.routes) - len(self.untaken(routes)), len(routes.routes))

    def missing(self, table: Table[Any]) -> list[Row]:
        """Rows that never fired."""
        return [row for row in table.rows if not self.rows[table.name, row.index]]

    def untaken(self, routes: Routes) -> list[Route]:
        """Routes that never took a message."""
        return [route for route in routes.routes if not self.routes[routes.name, route.index]]

    # ------------------------------------------------------------------------------------- as a file
    def dump(self) -> dict[str, Any]:
        """Plain counts, for a file or another process."""
        return {"rows": [[*key, n] for key, n in self.rows.items()],
                "pairs": [[*key, n] for key, n in self.pairs.items()],
                "routes": [[*key, n] for key, n in self.routes.items()]}  # fmt: skip


class Noter(Protocol):
    """Hears of every entry of a trace."""

    def note(self, entry: Any) -> None:
        """An entry of a trace."""


class WatchedTrace(deque[Any]):
    """A trace whose every entry is noted by somebody before the next one comes."""

    def __init__(self, entries: int | None, by: tuple[Noter, ...]) -> None:
        super().__init__(maxlen=entries)
        self.by = by

    def append(self, entry: Any) -> None:
        """Keep it, and have it noted."""
        deque.append(self, entry)
        for noter in self.by:
            noter.note(entry)


_unobserved = 0


def watched(trace: Trace, by: Noter) -> Trace:
    """The trace of a new driver, of which each entry is noted by this, too."""
    if _unobserved:
        return trace
    others = trace.by if isinstance(trace, WatchedTrace) else ()
    return WatchedTrace(trace.maxlen, (*others, by))


@contextmanager
def unobserved() -> Iterator[None]:
    """Have nobody count drivers that are made while the block runs: what they do, the tables do not say."""
    global _unobserved  # noqa: PLW0603
    _unobserved += 1
    try:
        yield
    finally:
        _unobserved -= 1


def _behind(table: Table[Any], row: Row) -> Iterator[int]:
    return (r.index for r in table.rows if r.index > row.index and r.source is row.source and r.event is row.event)


def together(kinds: Mapping[str, Collector]) -> Collector:
    """All kinds as one."""
    made = Collector(next(iter(kinds.values())).of)
    for each in kinds.values():
        made.add(each)
    return made


def percent(counts: Collector) -> tuple[float, float]:
    """Rows that fired, of all tables' rows; and routes that took a message, of all sides' routes."""
    rows = [counts.covered(table) for table in counts.of.tables]
    return _percent(rows), _percent([counts.taken(routes) for routes in counts.of.routes])


def _percent(shares: list[CoveredShare]) -> float:
    return 100.0 * sum(share.seen for share in shares) / max(1, sum(share.all for share in shares))
