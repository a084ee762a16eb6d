"""Mutants: small changes to the tables; each brings one hazard back, and one property must then fail.

Each mutation is a function of the bench, with the hazard's name and the change in its first line.  None of them touches
the checker.  `MUTANTS` says in which configuration each is sought, and which properties count as having caught it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from kvproto.fsm.table import Table
from kvproto.verify.framework.table_patching import TablePatch

# The tables, and their modules for what rows are made of: the package gives the tables their modules' names.
dg, dr, links, pr, ps, pw = (
    import_module(f"kvproto.protocol.tables.{name}")
    for name in ("decode_grant", "decode_room", "links", "prefill_room", "prefill_send", "prefill_write")
)
GRANTS: Table[Any] = dg.decode_grant
DROOMS: Table[Any] = dr.decode_room
DLINKS: Table[Any] = links.decode_link
PLINKS: Table[Any] = links.prefill_link
PROOMS: Table[Any] = pr.prefill_room
SENDS: Table[Any] = ps.prefill_send
WRITES: Table[Any] = pw.prefill_write


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
