"""The bench: tables, routes and rank functions are changed here, and put back.

A change is made in place, because the ranks compile the tables that they find; `TablePatch` remembers what was there
and restores it when it is left.  Nobody counts what its drivers do (`kvproto.verify.framework.trace.coverage`): they
are not ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from kvproto.fsm.routing import Fact, Route, Routes
from kvproto.fsm.table import Row, Table
from kvproto.fsm.vocabulary import Event, State
from kvproto.verify.framework.trace.coverage import unobserved

ANY = "any"


class TablePatch:
    """A context in which tables may be changed."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._saved: set[int] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(unobserved())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        while self._undo:
            self._undo.pop()()
        self._stack.close()

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

    def routes(self, routes: Routes, message: type[Any], *asks: Fact) -> list[Route]:
        """The routes of this message that ask for these facts, whatever else they ask for."""
        found = [
            route
            for route in routes.routes
            if message in route.messages and set(asks) <= {ask for by_fact in route.asks for ask in by_fact}
        ]
        if not found:
            raise LookupError(f"{routes.name} has no route of {message.__name__} that asks for {asks}")
        return found

    def reroute(self, routes: Routes, found: Iterable[Route], **fields: Any) -> None:
        """Change these fields of the routes."""
        self._save(routes.routes)
        for route in found:
            routes.routes[routes.routes.index(route)] = replace(route, **fields)

    def close(self, routes: Routes, found: Iterable[Route]) -> None:
        """Take the routes out."""
        self._save(routes.routes)
        for route in found:
            routes.routes.remove(route)

    def change(self, table: Table[Any], rows: Iterable[Row], **fields: Any) -> None:
        """Change these fields of the rows."""
        self._save(table.rows)
        for row in rows:
            table.rows[table.rows.index(row)] = replace(row, **fields)

    def drop(self, table: Table[Any], rows: Iterable[Row]) -> None:
        """Take the rows out."""
        self._save(table.rows)
        for row in rows:
            table.rows.remove(row)

    def ignore(self, table: Table[Any], source: State | tuple[State, ...], event: type[Event]) -> None:
        """Make machines in these states ignore an event that cannot reach them in the unchanged tables."""
        self._save(table.rows)
        table.ignore(source, event, "it comes of another change")

    def without(self, table: Table[Any], rows: Iterable[Row], *effects: str) -> None:
        """Take effects out of the rows, by name."""
        self._save(table.rows)
        for row in rows:
            left = tuple(effect for effect in row.do if effect.__name__ not in effects)
            if left == row.do:
                raise LookupError(f"{row} has none of {effects}")
            table.rows[table.rows.index(row)] = replace(row, do=left)

    def patch(self, owner: Any, name: str, value: Any) -> None:
        """Put another function (or constant) in a module's or a class's place."""
        if name in vars(owner):
            before = vars(owner)[name]
            self._undo.append(lambda: setattr(owner, name, before))
        else:  # it is inherited, and has to be again: a copy would hide what is later put in the parent's place
            getattr(owner, name)
            self._undo.append(lambda: delattr(owner, name))
        setattr(owner, name, value)

    def _save(self, lines: list[Any]) -> None:
        if id(lines) not in self._saved:
            self._saved.add(id(lines))
            before = list(lines)
            self._undo.append(lambda: self._restore(lines, before))

    def _restore(self, lines: list[Any], before: list[Any]) -> None:
        lines[:] = before
        self._saved.discard(id(lines))
