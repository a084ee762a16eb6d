"""Mutants: small changes to the tables; each brings one hazard back, and one property must then fail.

Each mutation is a function of the bench, with the hazard above it and the change in its first line.  None of them
touches the checker.  `MUTANTS` says in which world each is sought, and which properties count as having caught it.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from kvproto.fsm.table import Table
from kvproto.verify.framework.checker import PlantedBug, plants

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

MUTANTS: dict[str, PlantedBug] = {}
mutation = partial(plants, MUTANTS)
