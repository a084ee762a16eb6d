"""Coverage of the tables and routes: which rows fired on parties, and which routes took a message.

Lines of Python say little about a protocol that is a table; rows say all.  A `Collector` sees every entry of the traces
of drivers that are made while it is installed.  A machine that somebody fires by hand is on no driver, and counts for
nothing; neither does one whose tables or functions are changed on purpose (`unobserved`).  Whoever does not count pays
nothing: drivers have the plain trace then.

Whether what was seen is honest traffic is not for the counts to know: whoever plays a peer or a library that breaks the
contract counts apart (`kvproto.verify.testing.coverage_plugin`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from kvproto.fsm.driver import SENT, STEP, Driver, Trace
from kvproto.fsm.routing import Route, Routes
from kvproto.fsm.table import Row, Table


class Counted(NamedTuple):
    """The rows and routes of a protocol that can be counted."""

    tables: tuple[Table[Any], ...]
    routes: tuple[Routes, ...]


class Collector:
    """Counts of rows by (table, row index), and of routes by (routes, route index)."""

    def __init__(self, of: Counted) -> None:
        self.of = of
        self.rows: Counter[tuple[str, int]] = Counter()
        self.routes: Counter[tuple[str, int]] = Counter()
        self.counting = True
        #: by identity, and with what is identified: a row that somebody puts in its place is another one
        self._rows = {id(row): (row, table.name) for table in of.tables for row in table.rows}
        self._routes = {id(route): (route, routes.name) for routes in of.routes for route in routes.routes}

    # ------------------------------------------------------------------------------------- what feeds it
    def note(self, entry: Any) -> None:
        """Count an entry of a trace: a step or a message that was heard."""
        if not self.counting or type(entry) is not tuple:
            return
        if len(entry) == STEP:
            row, table = self._rows.get(id(entry[1]), (None, ""))
            if row is not None:
                self.rows[table, row.index] += 1
        elif len(entry) != SENT:
            route, routes = self._routes.get(id(entry[2]), (None, ""))
            if route is not None:
                self.routes[routes, route.index] += 1

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
        self.rows.update(other.rows)
        self.routes.update(other.routes)

    # ------------------------------------------------------------------------------------- what it says
    def missing(self, table: Table[Any]) -> list[Row]:
        return [row for row in table.rows if not self.rows[table.name, row.index]]

    def untaken(self, routes: Routes) -> list[Route]:
        return [route for route in routes.routes if not self.routes[routes.name, route.index]]

    def percent(self) -> tuple[float, float]:
        """Return the share of all rows that fired, and of all routes that took a message, in percent."""
        rows = [(len(self.missing(table)), len(table.rows)) for table in self.of.tables]
        routes = [(len(self.untaken(each)), len(each.routes)) for each in self.of.routes]
        return _percent(rows), _percent(routes)

    # ------------------------------------------------------------------------------------- between processes
    def dump(self) -> dict[str, Any]:
        """Plain counts, for another process."""
        return {"rows": [[*key, n] for key, n in self.rows.items()],
                "routes": [[*key, n] for key, n in self.routes.items()]}  # fmt: skip

    def add_dump(self, counts: Mapping[str, Any]) -> None:
        """Add what another process's collector gave as `dump`."""
        self.rows.update({(name, row): n for name, row, n in counts["rows"]})
        self.routes.update({(name, route): n for name, route, n in counts["routes"]})


def _percent(shares: Sequence[tuple[int, int]]) -> float:
    """Return 100 less the share of what is lacking; `shares`: (lacking, all)."""
    return 100.0 * (1 - sum(lacks for lacks, _ in shares) / max(1, sum(all_ for _, all_ in shares)))


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


def lacking(counts: Collector, seen: Collector | None = None) -> list[str]:
    """List the rows and routes that `counts` lacks and `seen` has (None: all that it lacks), a line each."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for table in counts.of.tables:
        for row in counts.missing(table):
            if seen is None or seen.rows[table.name, row.index]:
                guard, why = f" [{row.when.__name__}]" if row.when else "", f": {row.why}" if row.why else ""
                line = lines.setdefault((row.where, f"{table.name}: {row.verb}", f"{guard}{why}"), [])
                line.append(f"{row.event.__name__} in {row.source.name}")
    for routes in counts.of.routes:
        for route in counts.untaken(routes):
            if seen is None or seen.routes[routes.name, route.index]:
                asked = "".join(f" {fact.name}" for facts in route.asks for fact in facts)
                why = f": {route.why}" if route.why else ""
                words = [message.__name__ for message in route.messages]
                lines[route.where, f"to {routes.name}: {route.end}", f"{asked}{why}"] = words
    return [f"{where}: {before} {_few(words)}{after}" for (where, before, after), words in lines.items()]


def _few(words: list[str], most: int = 6) -> str:
    words = list(dict.fromkeys(words))
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
