"""Checker: the named worlds of a protocol, their suites, and the bugs that can be planted.

A checker is what `kvproto check` drives.  A planted bug changes tables in place while a world is searched; a search
that does not find it would not find its like either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec

from kvproto.fsm.bounded_files import FileError, text_of
from kvproto.fsm.errors import ArgumentError
from kvproto.verify.framework.search import Progress, Result
from kvproto.verify.framework.story import Counterexample, ReplayedWay
from kvproto.verify.framework.table_patching import TablePatch

if TYPE_CHECKING:
    from kvproto.fsm.telling import Telling
    from kvproto.verify.framework.explore.exploration import Exploration

__all__ = ["Checker", "PlantedBug", "Planter", "ReplayedWay", "plants"]
Planter = Callable[[TablePatch], None]


class PlantedBug(msgspec.Struct, frozen=True):
    """A bug: what is changed, where it is looked for, and the properties of which one must fail."""

    about: str
    world: str
    expect: tuple[str, ...]
    apply: Planter


def plants(known: dict[str, PlantedBug], name: str, world: str, *expect: str) -> Callable[[Planter], Planter]:
    """Enter a function that plants a bug; its docstring says what it changes."""

    def enter(apply: Planter) -> Planter:
        about = " ".join((apply.__doc__ or "").split())  # a row of the kill table is one line
        known[name] = PlantedBug(about, world, expect, apply)
        return apply

    return enter


class Checker:
    """Worlds and planted bugs by name; a subclass searches them."""

    #: what is searched if nothing is named
    first = "smoke"
    suites: Mapping[str, Sequence[str]] = {}  # as annotated, nobody changes it
    planted: Mapping[str, PlantedBug] = {}
    #: engines that `search` can be asked for, by `engine`; they have the same results
    engines: ClassVar[Sequence[str]] = ()

    def worlds(self) -> Mapping[str, str]:
        """Every world, and a line about it."""
        raise NotImplementedError

    def search(self, name: str, *, limit: int | None, memory: int, report: Callable[[Progress], None] | None) -> Result:
        """Search one world."""
        raise NotImplementedError

    def check_engine(self, engine: str) -> None:
        """Raises ArgumentError if there is no such engine here, with the remedy."""
        if engine not in self.engines:
            raise ArgumentError(f"these worlds are searched in Python alone: leave --engine {engine} out")

    def walk(self, text: str) -> ReplayedWay:
        """Walk a recorded counterexample again.  ArgumentError: this is not one."""
        raise NotImplementedError

    def explored(self, name: str, telling: Telling) -> Exploration:
        """Return the world of this name to click through."""
        raise NotImplementedError

    def explored_way(self, once: Counterexample, telling: Telling) -> Exploration:
        """Return the world of a recorded counterexample to click through."""
        raise NotImplementedError

    def walk_file(self, path: Path) -> ReplayedWay:
        """Walk the counterexample of a file again.  `FileError`: there is none in it."""
        try:
            return self.walk(text_of(path))
        except ArgumentError as error:
            raise FileError(f"{path}: {error}") from error

    def named(self, asked: str) -> Sequence[str]:
        """The worlds of a suite, or the world of this name.  Raises ArgumentError with what comes close."""
        if asked in self.suites:
            return self.suites[asked]
        known = self.worlds()
        if asked in known:
            return (asked,)
        near = get_close_matches(asked, (*self.suites, *known)) or list(self.suites) or list(known)
        raise ArgumentError(f"no configuration {asked!r}; is it {' or '.join(near)}?  kvproto check --list has all")

    @contextmanager
    def planting(self, name: str) -> Iterator[PlantedBug]:
        """The bug is in the tables while the block runs.  Raises ArgumentError with all names."""
        if name not in self.planted:
            raise ArgumentError(f"no planted bug {name!r}: one of {', '.join(self.planted) or 'none'}")
        with TablePatch() as bench:
            self.planted[name].apply(bench)
            yield self.planted[name]
