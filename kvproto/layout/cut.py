"""Cuts: which tokens and which layers one chunk of a room is, and where its bytes lie.

A room's tokens behind its prefix are cut into cells.  Cells begin at ``prefix + k * chunk_tokens``, never at absolute
multiples: after a prefix hit both sides still name the same tokens by the same k.  The last cell may be shorter.

A room may cut each cell once more, by layers, so that KV can leave while later layers are computed.  What the protocol
calls a chunk is then one group of layers of one cell, numbered cell by cell: chunk k is group ``k % groups`` of cell
``k // groups``.  Each share is cut by itself into the room's number of groups, so every writer of a grant has a part of
every chunk, with pipeline stages or without.  If the layers of the model were cut, a stage without those layers would
have no part of a chunk, and the fan-in of grants would change from chunk to chunk.  So a room has at most as many
groups as the smallest share has layers.  Of named caches the layers that have any of a share are counted, each with all
of its caches.  The first groups are the larger ones, because only the last one is left when
the forward ends.

State travels at the end, in chunks of its own behind the tokens': its layers in so many groups, each without tokens of
the room.  So a prompt of which the decode side has every token still sends its state.  A state chunk begins where the
room ends, so it may leave when all of the room's tokens are computed.  The last window of a cache travels alike, and a
model's state and windows together: their layers are cut as those of one cache.  A part of such a chunk has a block for
each cache (`block_offsets`), because each has another number of rows.

Where both sides' layouts say so (`Layout.joint`) and the last cell is short (`Layout.joint_tokens`), its tokens and the
state are one chunk, a *joint* one: each writer's part has a block of either.  Rooms of several layer groups have none.

A send derives its cut once, when it opens.  Rows, effects and handlers pass the cut on, and none of them computes
tokens, shares or offsets again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from kvproto.layout.caches import WIDEST
from kvproto.layout.contacts import Piece, Share
from kvproto.layout.sharding import LayoutError


class Cut(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """One chunk of a room, in group `group` of layers: `tokens` tokens from `first` on, or its end."""

    first: int
    tokens: int
    group: int = 0
    groups: int = 1
    #: it has the state, or the window, after its end, which is the room's; a joint one has tokens, too
    state: bool = False

    @property
    def end(self) -> int:
        """The first token behind it."""
        return self.first + self.tokens

    def only(self, *, at_end: bool) -> Cut:
        """Return what is of the end of a joint chunk, or of its tokens; any other chunk itself."""
        if not (self.state and self.tokens):
            return self
        return Cut(self.end, 0, state=True) if at_end else Cut(self.first, self.tokens)

    def of_end(self, tokens: int) -> Cut:
        """A chunk of what travels at the end as its own plan counts it: after so many tokens."""
        return Cut(0, tokens, self.group, self.groups)


class Block(msgspec.Struct, frozen=True, gc=False):
    """A part's bytes of tokens, or of what travels at the end."""

    share: Share
    #: bytes from the part's start
    offset: int
    nbytes: int
    at_end: bool


class Part(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """One writer's part of a chunk for one reader: heads, layers, and bytes of the reader's region."""

    share: Share
    #: bytes from the region's start
    offset: int
    nbytes: int
    #: of a joint chunk: what it has of either
    joint: tuple[Block, ...] = ()

    def blocks(self, cut: Cut) -> tuple[Block, ...]:
        """Return what it has in this chunk, by table: of tokens, and of what travels at the end."""
        return self.joint or (Block(self.share, 0, self.nbytes, cut.state),)


#: of an aux row, which has no bytes of the pool
NO_CUT = Cut(0, 0)
NO_PART = Part(Share(0, 0, 0, 0, 0, 0, 0, 0), 0, 0)


def chunks(
    tokens: int, prefix: int, chunk_tokens: int, groups: int = 1, state_groups: int = 0, joint: int = 0
) -> int:  # fmt: skip
    """The number of chunks of a room of `tokens` tokens of which the first `prefix` need no transfer.

    Up to `joint` last tokens are one chunk with the state.
    """
    if chunk_tokens < 1:
        raise LayoutError(
            "chunk-tokens-not-positive", f"chunk_tokens is {chunk_tokens}; it must be whole pages of both sides"
        )
    if not 0 <= prefix <= tokens:
        raise LayoutError("prefix-outside-room", f"prefix {prefix} of {tokens} tokens; it must lie within them")
    merged = state_groups > 0 and groups == 1 and 0 < (tokens - prefix) % chunk_tokens <= joint
    return -((prefix - tokens) // chunk_tokens) * groups + state_groups - merged


def cut_at(
    k: int, tokens: int, prefix: int, chunk_tokens: int, groups: int = 1, state_groups: int = 0, joint: int = 0
) -> Cut:
    """Return chunk k of a room of `tokens` tokens; up to `joint` last ones are one chunk with the state.

    Raises LayoutError: the room has no such chunk.
    """
    first = prefix + k // groups * chunk_tokens
    if not (chunk_tokens >= 1 and 0 <= prefix <= first < tokens):
        total = chunks(tokens, prefix, chunk_tokens, groups, state_groups, joint)
        if total - state_groups <= k < total:
            return Cut(tokens, 0, k - total + state_groups, state_groups, state=True)
        raise LayoutError("no-such-chunk", f"chunk {k} of a room of {total} chunks; both sides must derive one plan")
    return Cut(first, min(chunk_tokens, tokens - first), k % groups, groups, tokens - first <= joint and groups == 1)


@lru_cache(maxsize=4096)
def layers_of(share: Share, group: int, groups: int) -> Share:
    """The share in that group of its layers, of so many; all of it where there is one."""
    held = sorted({depth for piece in share.pieces for depth in piece.depths})
    layers = len(held) or share.layers
    first, end = (-(layers * at // -groups) for at in (group, group + 1))
    if not 0 <= group < groups or first == end:
        raise LayoutError("layer-groups", f"group {group} of {groups} of {layers} layers has none")
    pieces = share.pieces
    if pieces:  # layers without any of the share lie between those that are counted
        mine = range(held[first], held[end - 1] + 1)
        pieces = tuple(_within(piece, mine) for piece in pieces)
        first, end = mine.start - share.src_layer, mine.stop - share.src_layer
    source, target = share.src_layer + first, share.dst_layer + first
    return replace(share, src_layer=source, dst_layer=target, layers=end - first, pieces=pieces)


def block_offsets(sizes: Iterable[int]) -> list[int]:
    """Return where blocks of these bytes begin in a part, and where the last one ends."""
    found, at = list[int](), 0
    for size in sizes:
        # One without bytes takes no place: a part of one cache alone is that cache's rows.
        at = -(at // -WIDEST) * WIDEST if size else at
        found.append(at)
        at += size
    return [*found, at]


@lru_cache(maxsize=4096)
def in_block(share: Share, first: int, end: int) -> Share:
    """The share with the pieces of these kinds alone: those of one cache."""
    return replace(share, pieces=share.pieces[first:end])


def _within(piece: Piece, layers: range) -> Piece:
    """The piece in these layers of the writer's stage."""
    first, end = (bisect_left(piece.depths, at) for at in (layers.start, layers.stop))
    if first == end:
        return Piece()
    source, target = piece.src_layer + first, piece.dst_layer + first
    return replace(piece, src_layer=source, dst_layer=target, layers=end - first, depths=piece.depths[first:end])
