"""A protocol as one object: what every tool is given.

Its tables, its timers' numbers, where its events come from, and the digest by which two ends know each other, are
objects.  What only some tools need is named as `"module:NAME"` and imported when it is asked for, so that to lint or to
draw loads no more than the tables.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kvproto.fsm.errors import ArgumentError
from kvproto.fsm.table import Table
from kvproto.verify.framework.sources import Sources

if TYPE_CHECKING:  # each where it is needed
    from kvproto.fsm.telling import Telling
    from kvproto.verify.framework.checker import Checker
    from kvproto.verify.framework.claims import Claims
    from kvproto.verify.framework.draw.scene import Scene
    from kvproto.verify.framework.lint import Finding
    from kvproto.verify.framework.trace.coverage import Counted

T = TypeVar("T")


class Protocol(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one protocol for the tools."""

    name: str
    tables: tuple[Table[Any], ...]
    #: a struct that has the default of each timer
    timing: Any
    digest: Callable[[], str]
    #: None: the lint does not ask where events come from
    sources: Sources | None = None
    #: `"module:NAME"` each: how traces are told (a `Telling`), scenes (a tuple), what is searched (a `Checker`), what
    #: is proved of tables (a tuple of `Claims`), which mutants nobody has to notice (a dict: why, by the pattern of
    #: their names), who says what (a tuple of things with a `body`)
    telling: str
    scenes: str = ""
    checker: str = ""
    claims: str = ""
    unnoticed: str = ""
    exchanges: str = ""

    @property
    def counted(self) -> Counted:
        """Return the rows and routes that can be counted."""
        from kvproto.verify.framework.trace.coverage import Counted

        return Counted(self.tables, self.sources.routes if self.sources is not None else ())

    def chosen(self, names: list[str]) -> list[Table[Any]]:
        """The tables of these names (none: all); `ArgumentError` names those that there are."""
        known = [table.name for table in self.tables]
        for name in names:
            if name not in known:
                raise ArgumentError(f"there is no machine {name!r}; there are {', '.join(known)}")
        return [table for table in self.tables if not names or table.name in names]

    def lint(self, names: list[str]) -> list[Finding]:
        """List the errors of these tables (none: of all tables, the routes and the vocabulary)."""
        from kvproto.verify.framework.lint import lint, lint_edge
        from kvproto.verify.framework.lint_vocabulary import lint_keys, lint_vocabulary

        tables = self.chosen(names)
        found = [finding for table in tables for finding in lint(table, self.timing, self.sources)]
        telling = self.told()
        found += [] if names else lint_keys(telling)
        if self.sources is None or names:
            return found
        said = [each.body for each in named(self.exchanges, tuple)] if self.exchanges else None
        events = telling.events.values()
        return [*found, *lint_edge(self.sources), *lint_vocabulary(telling.messages, events, self.sources, said)]

    def told(self) -> Telling:
        """How traces are written and told."""
        from kvproto.fsm.telling import Telling

        return named(self.telling, Telling)

    def checked(self) -> Checker:
        """Return the checker of this protocol."""
        from kvproto.verify.framework.checker import Checker

        if not self.checker:
            raise ArgumentError(f"{self.name} names no checker: there is nothing to search")
        return named(self.checker, Checker)

    def claimed(self) -> dict[str, Claims[Any, Any]]:
        """The claims of each table, by its name; of a table without any, that its steps are sound."""
        from kvproto.verify.framework.claims import Claims

        said = {each.table.name: each for each in (named(self.claims, tuple) if self.claims else ())}
        return {table.name: said.get(table.name) or Claims(table) for table in self.tables}

    def explained(self) -> dict[str, str]:
        """Why nobody has to notice these mutants of its tables, by the pattern of their names."""
        return named(self.unnoticed, dict) if self.unnoticed else {}

    def played(self) -> tuple[Scene, ...]:
        """Its scenes."""
        return tuple(named(self.scenes, tuple)) if self.scenes else ()


def named(place: str, kind: type[T]) -> T:
    """Import the object `"module:NAME"`, also from the working directory. `ArgumentError`: there is none."""
    module, colon, name = place.partition(":")
    if not (module and colon and name):
        such = "such as examples.two_phase_commit.parties:PROTOCOL"
        raise ArgumentError(f"{place!r} names no object: write MODULE:NAME, {such}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ArgumentError(f"{place}: {error}") from error
    except Exception as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        where = f"{last.filename}:{last.lineno}"
        raise ArgumentError(f"{place}: to load it raises {type(error).__name__}: {error} ({where})") from error
    if not isinstance(found, kind):
        raise ArgumentError(f"{place} is a {type(found).__name__}, not a {kind.__name__}")
    return found
