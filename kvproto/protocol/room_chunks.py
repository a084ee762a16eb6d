"""Room chunks: the chunks that a room has at one rank, and the ranks that take part in each.

A room's chunks are numbered alike on all ranks: those of its tokens, then those of its state.  Where its last tokens
and its state are one chunk (`kvproto.layout.cut`), that one is the only one of its state.  A rank may hold layers of
one kind only (a pipeline stage without state, or with nothing else).  It takes part in a row of chunks without a gap:
from the first of the tokens', or of the state's, to the last of either.
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


def joined(v: _OfPlan) -> bool:
    """Return whether the room's last tokens are one chunk with its state."""
    size = v.terms.chunk_tokens
    # The tokens of its last cell; of a room without any a whole one, which is more than a joint chunk has.
    return v.tokens - v.prefix + ((v.prefix - v.tokens) // size + 1) * size <= v.terms.joint_tokens  # type: ignore[no-any-return]


def joint(v: _OfPlan) -> Tokens:
    """Return how many of the room's last tokens are one chunk with its state; 0: none are."""
    return (v.tokens - v.prefix) % v.terms.chunk_tokens if joined(v) else 0


def cells(v: _OfPlan) -> int:
    """Return the chunks of the room's tokens alone (as `cut.chunks`, whose checks a room has behind it)."""
    return -((v.prefix - v.tokens) // v.terms.chunk_tokens) * v.terms.layer_groups - joined(v)  # type: ignore[no-any-return]


def first_chunk(v: _OfPlan) -> int:
    """Return the rank's first chunk."""
    return 0 if v.terms.writes else cells(v)


def end_chunk(v: _OfPlan) -> int:
    """Return the number behind the rank's last chunk."""
    of_tokens = -((v.prefix - v.tokens) // v.terms.chunk_tokens) * v.terms.layer_groups
    return of_tokens if joined(v) else of_tokens + v.terms.state_groups  # type: ignore[no-any-return]


def taking_part(v: _OfPlan, chunk: int) -> RankMask:
    """Return the other side's ranks that write the chunk, or to which it is written."""
    return v.terms.writes if chunk < cells(v) else at_end(v)


def at_end(v: _OfPlan) -> RankMask:
    """Return those of the chunks with the room's state."""
    return v.terms.state_writes | (v.terms.writes if joined(v) else 0)  # type: ignore[no-any-return]
