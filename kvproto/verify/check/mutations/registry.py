"""Mutants: small changes to the tables; each brings one hazard back, and one property must then fail.

Each mutation is a function of the bench, with the hazard's name and the change in its first line.  None of them touches
the checker.  `MUTANTS` says in which configuration each is sought, and which properties count as having caught it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kvproto.verify.framework.table_patching import TablePatch


class Mutation(msgspec.Struct, frozen=True):
    """One mutant."""

    name: str
    about: str
    #: properties of which one must fail
    expect: tuple[str, ...]
    #: the configuration in which it is sought
    config: str
    apply: Callable[[TablePatch], None]


MUTANTS: dict[str, Mutation] = {}


def mutation(
    name: str, config: str, *expect: str
) -> Callable[[Callable[[TablePatch], None]], Callable[[TablePatch], None]]:
    """Enter a mutant."""

    def enter(apply: Callable[[TablePatch], None]) -> Callable[[TablePatch], None]:
        about = " ".join((apply.__doc__ or "").split())  # a row of the kill table is one line
        MUTANTS[name] = Mutation(name, about, expect, config, apply)
        return apply

    return enter
