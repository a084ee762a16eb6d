"""Shifted pages: prefill ranks that store the heads of a recurrence one place off."""

from __future__ import annotations

from typing import Any

from kvproto.lab.demo import caches_rank, rank_program
from kvproto.lab.demo.caches_pages import CachesPages
from kvproto.lab.demo.rank_program import decode

__all__ = ["decode", "prefill"]


class ShiftedPages(CachesPages):
    """Each head has the state of the one before."""

    def store(self, rows: Any, *places: Any) -> None:
        """As `CachesPages` does."""
        shifted = {key: value.roll(1, 1) if key[0] == "state.ssm" else value for key, value in rows.items()}
        super().store(shifted, *places)


def prefill(*args: Any) -> None:
    """Run a prefill rank with these pages."""
    vars(caches_rank)["CachesPages"] = ShiftedPages
    rank_program.prefill(*args)
