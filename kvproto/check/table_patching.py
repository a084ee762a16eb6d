"""The bench: tables and rank functions are changed here, and put back.

A change is made in place, because the ranks compile the tables that they find; `Bench` remembers what was there and
restores it when it is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from kvproto.fsm.table import Row, Table
from kvproto.fsm.vocabulary import Event, State

ANY = "any"


class Bench:
    """A context in which tables may be changed."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._saved: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        while self._undo:
            self._undo.pop()()

    def rows(
        self, table: Table[Any], source: State | tuple[State, ...], event: type[Event], guard: str | None = ANY
    ) -> list[Row]:
        """The rows of these states on this event; `guard`: only the one with this guard (None: with none)."""
        sources = source if isinstance(source, tuple) else (source,)
        found = [
            row
            for row in table.rows
            if row.source in sources and row.event is event and guard in (ANY, row.when.__name__ if row.when else None)
        ]
        if not found:
            raise LookupError(f"{table.name} has no row on {event.__name__} in {source} [{guard}]")
        return found

    def change(self, table: Table[Any], rows: Iterable[Row], **fields: Any) -> None:
        """Change these fields of the rows."""
        self._save(table)
        for row in rows:
            table.rows[table.rows.index(row)] = replace(row, **fields)

    def drop(self, table: Table[Any], rows: Iterable[Row]) -> None:
        """Take the rows out."""
        self._save(table)
        for row in rows:
            table.rows.remove(row)

    def without(self, table: Table[Any], rows: Iterable[Row], *effects: str) -> None:
        """Take effects out of the rows, by name."""
        self._save(table)
        for row in rows:
            left = tuple(effect for effect in row.do if effect.__name__ not in effects)
            if left == row.do:
                raise LookupError(f"{row} has none of {effects}")
            table.rows[table.rows.index(row)] = replace(row, do=left)

    def patch(self, owner: Any, name: str, value: Any) -> None:
        """Put another function (or constant) in a module's or a class's place."""
        before = getattr(owner, name)
        self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    def _save(self, table: Table[Any]) -> None:
        if id(table) not in self._saved:
            self._saved.add(id(table))
            before = list(table.rows)
            self._undo.append(lambda: self._restore(table, before))

    def _restore(self, table: Table[Any], rows: list[Row]) -> None:
        table.rows[:] = rows
        self._saved.discard(id(table))
