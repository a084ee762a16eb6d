"""Room chunks: the chunks that a room has at one rank, and the ranks that take part in each.

A room's chunks are numbered alike on all ranks: those of its tokens, then those of its state.  A rank may hold layers
of one kind only (a pipeline stage without state, or with nothing else).  It takes part in a row of chunks without a
gap: from the first of the tokens', or of the state's, to the last of either.
"""

from __future__ import annotations

from typing import Any, Protocol

from kvproto.protocol.kinds import RankMask, Tokens


class _OfPlan(Protocol):
    """A room's value on either side, once it has terms."""

    @property
    def terms(self) -> Any:
        """The terms of a plan."""

    @property
    def tokens(self) -> Tokens:
        """Tokens of the prompt."""

    @property
    def prefix(self) -> Tokens:
        """First tokens that the decode rank has already."""


def cells(v: _OfPlan) -> int:
    """Return the chunks of the room's tokens (as `cut.chunks`, whose checks a room has behind it)."""
    return -((v.prefix - v.tokens) // v.terms.chunk_tokens) * v.terms.layer_groups  # type: ignore[no-any-return]


def first_chunk(v: _OfPlan) -> int:
    """Return the rank's first chunk."""
    return 0 if v.terms.writes else cells(v)


def end_chunk(v: _OfPlan) -> int:
    """Return the number behind the rank's last chunk."""
    return cells(v) + v.terms.state_groups  # type: ignore[no-any-return]


def taking_part(v: _OfPlan, chunk: int) -> RankMask:
    """Return the other side's ranks that write the chunk, or to which it is written."""
    return v.terms.writes if chunk < cells(v) else v.terms.state_writes  # type: ignore[no-any-return]
