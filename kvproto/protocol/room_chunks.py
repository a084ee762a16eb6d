"""Room chunks: the chunks that a room has at one rank, and the ranks that take part in each.

A room's chunks are numbered alike on all ranks: those of its tokens, then those of its state.  A rank may hold layers
of one kind only (a pipeline stage without state, or with nothing else).  It takes part in a row of chunks without a
gap: from the first of the tokens', or of the state's, to the last of either.
"""

from __future__ import annotations

from kvproto.protocol.events import Terms
from kvproto.protocol.kinds import RankMask, Tokens


def cells(terms: Terms, tokens: Tokens, prefix: Tokens) -> int:
    """Return the chunks of the room's tokens (as `cut.chunks`, whose checks a room has behind it)."""
    return -((prefix - tokens) // terms.chunk_tokens) * terms.layer_groups


def first_chunk(terms: Terms, tokens: Tokens, prefix: Tokens) -> int:
    """Return the rank's first chunk."""
    return 0 if terms.writes else cells(terms, tokens, prefix)


def end_chunk(terms: Terms, tokens: Tokens, prefix: Tokens) -> int:
    """Return the number behind the rank's last chunk."""
    return cells(terms, tokens, prefix) + terms.state_groups


def taking_part(terms: Terms, tokens: Tokens, prefix: Tokens, chunk: int) -> RankMask:
    """Return the other side's ranks that write the chunk, or to which it is written."""
    return terms.writes if chunk < cells(terms, tokens, prefix) else terms.state_writes
