"""Deeper worlds, by name, on demand: several faults at once, in the smallest world that can have them.

Each is about what two small worlds together do not show: a second fault that comes while the first is being mended.
"""

from __future__ import annotations

from kvproto.check.config import Budget, Config
from kvproto.check.small_worlds import AT_ONCE

DEEP: dict[str, Config] = {
    "deep-fan-in-unordered": Config(
        prefills=2, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(early=1, duplicate=1),
        about="two writers, messages overtake each other, one comes twice and one timer ends early",
    ),
    "deep-slot": Config(
        ring=1, rooms=3, chunks=1, engine=AT_ONCE, swift=True, budget=Budget(write=1, late=2, timeout=1),
        about="a chain of failures on one slot: leases that are over, and a write that fails",
    ),
    "deep-link-drop": Config(ring=1, chunks=1, engine=AT_ONCE, budget=Budget(link=1, drop=1, abort=1),
                             about="a link is lost, a message, and an engine gives up"),
    "deep-crash-link": Config(ring=1, chunks=1, engine=AT_ONCE, budget=Budget(crash=1, link=1, drop=1),
                              about="a rank dies, a link is lost, and a message"),
    "deep-doubt-crash": Config(ring=1, chunks=1, engine=AT_ONCE, budget=Budget(doubt=1, crash=1, late=1),
                               about="a write is in doubt, and a rank dies"),
    "deep-reuse-crash": Config(lives=2, chunks=1, engine=AT_ONCE, budget=Budget(crash=1, abort=1, drop=1),
                               about="ids are used again by a rank that has come back"),
}  # fmt: skip
