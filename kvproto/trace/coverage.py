"""Coverage of the tables: which rows fired, how guards came out, which row came after which.

Lines of Python say little about a protocol that is a table; rows say all.  Three measures:

* *rows*: how often each fired;
* *guard outcomes*: whether each guard was seen to hold and to fail.  They follow from the rows that fired: where the
  third row of a pair fired, the guards of the first two had failed;
* *pairs*: which row was followed by which in the life of one machine.  Counted against all pairs that join (the
  first row's target is the second one's source), of which many cannot happen.

A `Collector` counts in a running program (it wraps the steps of machines made while it is installed) or from traces.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kvproto.errors import KvprotoError
from kvproto.fsm.machine import Fire, Fired, Machine
from kvproto.fsm.table import Row, Table, Value
from kvproto.fsm.vocabulary import Event
from kvproto.protocol.tables import TABLES
from kvproto.trace.records import Log, StepEntry

FORMAT = 1
REMEMBERED = 1 << 16


class CoverageError(KvprotoError, ValueError):
    """A coverage file that cannot be read."""


class CoveredShare(msgspec.Struct, frozen=True):
    """So many of so many."""

    seen: int
    all: int

    def __str__(self) -> str:
        return f"{self.seen}/{self.all}"


class Collector:
    """Counts of rows and of pairs of rows, by (table, row index)."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[str, int]] = Counter()
        self.pairs: Counter[tuple[str, int, int]] = Counter()
        self._after: OrderedDict[int, tuple[Value, int]] = OrderedDict()

    # ------------------------------------------------------------------------------------- what feeds it
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
        """Count the steps of a rank's trace."""
        last: dict[tuple[str, tuple[int, ...]], int] = {}
        for step in log.entries:
            if isinstance(step, StepEntry) and step.row is not None:
                self.rows[step.machine, step.row] += 1
                before = last.get((step.machine, step.key))
                if before is not None and step.value is None:
                    self.pairs[step.machine, before, step.row] += 1
                last[step.machine, step.key] = step.row

    @contextmanager
    def installed(self) -> Iterator[Collector]:
        """Count what fires on machines that are made while the block runs, until it ends."""
        original, counting = Machine._compile, True  # noqa: SLF001
        known = {id(table): table.name for table in TABLES}

        def compiled(machine: Machine[Any], rows: list[Row]) -> Fire:
            step, name = original(machine, rows), known.get(id(machine.table))

            def fire(value: Any, event: Event, now: float) -> Fired[Any]:
                fired = step(value, event, now)
                if counting and fired[0] is not None and name is not None:
                    self.take(fired[0], name, value, fired[1])
                return fired

            return fire

        Machine._compile = compiled  # type: ignore[assignment,method-assign]  # noqa: SLF001
        try:
            yield self
        finally:
            Machine._compile, counting = original, False  # type: ignore[method-assign]  # noqa: SLF001

    def add(self, other: Collector) -> None:
        """Add another's counts."""
        self.rows.update(other.rows)
        self.pairs.update(other.pairs)

    # ------------------------------------------------------------------------------------- what it says
    def covered(self, table: Table[Any]) -> CoveredShare:
        """Rows that fired."""
        return CoveredShare(sum(self.rows[table.name, row.index] > 0 for row in table.rows), len(table.rows))

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

    def missing(self, table: Table[Any]) -> list[Row]:
        """Rows that never fired."""
        return [row for row in table.rows if not self.rows[table.name, row.index]]

    # ------------------------------------------------------------------------------------- as a file
    def dump(self) -> dict[str, Any]:
        """Plain counts, for a file or another process."""
        return {"format": FORMAT, "rows": [[*key, n] for key, n in self.rows.items()],
                "pairs": [[*key, n] for key, n in self.pairs.items()]}  # fmt: skip

    def save(self, path: Path) -> None:
        """Write the counts."""
        path.write_text(json.dumps(self.dump()))


def _behind(table: Table[Any], row: Row) -> Iterator[int]:
    return (r.index for r in table.rows if r.index > row.index and r.source is row.source and r.event is row.event)


def undump(data: dict[str, Any]) -> Collector:
    """The counts that `dump` gave.  Raises `CoverageError`."""
    if data.get("format") != FORMAT:
        raise CoverageError(f"coverage of format {data.get('format')!r}; this version reads format {FORMAT}")
    made = Collector()
    made.rows.update({(name, row): n for name, row, n in data["rows"]})
    made.pairs.update({(name, first, second): n for name, first, second, n in data["pairs"]})
    return made


def load(path: Path) -> Collector:
    """Read counts from a file.  Raises `CoverageError`."""
    try:
        return undump(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CoverageError(f"{path}: no coverage can be read: {error}") from error


def report(counts: Collector) -> str:
    """A table for the terminal, and where the rows stand that never fired."""
    lines = [f"{'machine':<14} {'rows':>9} {'guards':>9} {'pairs':>11}"]
    for table in TABLES:
        shares = (counts.covered(table), counts.outcomes(table), counts.joined(table))
        lines.append(f"{table.name:<14} {shares[0]!s:>9} {shares[1]!s:>9} {shares[2]!s:>11}")
    for table in TABLES:
        lines += [f"never fired: {row.where}: {table.name}: {row}" for row in counts.missing(table)]
    return "\n".join(lines)


def percent(counts: Collector) -> float:
    """Rows that fired, of all tables' rows."""
    shares = [counts.covered(table) for table in TABLES]
    return 100.0 * sum(share.seen for share in shares) / sum(share.all for share in shares)
