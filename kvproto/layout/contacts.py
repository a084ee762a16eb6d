"""Contacts: computes which ranks of two groups exchange KV.

The cost for one rank grows with the ranks that it meets, not with the groups.  Ranks hold blocks of heads and blocks of
layers, both consecutive.  So the ranks that meet an interval of heads and one of layers are a rectangle: consecutive
places in consecutive stages (`Group.meeting`).  Only these ranks are visited, and nothing is made for pairs without the
calling rank: a plan between two groups of 512 ranks has up to 262,144 contacts, and one rank has at most 512.

Replicas take turns over their readers, in reader order.  A reader's turn is its place in the rectangle, so it is known
without counting the readers before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from kvproto.layout.sharding import Interval, Layout


class Piece(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """One kind's part of a share: units and layers, in each rank's own offsets; none where `units` is 0."""

    src_unit: int = 0
    dst_unit: int = 0
    units: int = 0
    #: counted among the kind's layers on that rank
    src_layer: int = 0
    dst_layer: int = 0
    layers: int = 0
    #: of named caches: these layers as a forward of the writer's stage counts them
    depths: tuple[int, ...] = ()


class Share(msgspec.Struct, frozen=True, cache_hash=True):
    """The KV that one writer (a P rank) writes for one reader (a D rank), in each rank's own offsets.

    Of named caches `pieces` has what is shared of each kind and `heads` is 0; `src_layer`, `dst_layer` and `layers`
    are then the layers of the two ranks from the first to the last that has any of it.
    """

    writer: int
    reader: int
    src_head: int
    dst_head: int
    heads: int
    src_layer: int
    dst_layer: int
    layers: int
    #: by kind, in the layout's order; empty: heads and layers are those of every kind
    pieces: tuple[Piece, ...] = ()

    def piece(self, kind: int) -> Piece:
        """Return what the share has of the layout's kind of this number."""
        if self.pieces:
            return self.pieces[kind]
        return Piece(self.src_head, self.dst_head, self.heads, self.src_layer, self.dst_layer, self.layers)


class Rectangle(msgspec.Struct, frozen=True):
    """Ranks of consecutive places in consecutive stages, in the order of their indices."""

    #: ranks of a whole stage
    tp: int
    stages: range
    places: range

    def __iter__(self) -> Iterator[int]:
        for stage in self.stages:
            yield from range(stage * self.tp + self.places.start, stage * self.tp + self.places.stop)

    def __contains__(self, rank: int) -> bool:
        stage, place = divmod(rank, self.tp)
        return stage in self.stages and place in self.places

    def turn(self, rank: int) -> int:
        """How many of the rectangle's ranks come before this one."""
        stage, place = divmod(rank, self.tp)
        return (stage - self.stages.start) * len(self.places) + place - self.places.start


class Group:
    """The ranks of a layout, by what they hold."""

    __slots__ = ("copies", "ends", "layout")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        #: replicas of each block of heads: they have consecutive places
        self.copies = max(1, layout.tp // layout.heads)
        #: the layer after each stage's last
        self.ends = tuple(sum(layout.layers_of(rank)) for rank in range(0, layout.ranks, layout.tp))

    def meeting(self, heads: Interval, layers: Interval) -> Rectangle:
        """The ranks that hold any of these heads in any of these layers."""
        each, copies = self.layout.local_heads, self.copies
        first, last = heads[0] // each, (sum(heads) - 1) // each
        return Rectangle(self.layout.tp, self.stages(layers), range(first * copies, (last + 1) * copies))

    def stages(self, layers: Interval) -> range:
        """The stages that hold any of these layers."""
        return range(bisect_right(self.ends, layers[0]), bisect_left(self.ends, sum(layers)) + 1)

    def holding(self, rank: int) -> tuple[Interval, Interval]:
        """(heads, layers) that the rank holds."""
        return self.layout.heads_of(rank), self.layout.layers_of(rank)

    def first_copy(self, rank: int) -> int:
        """The first of the rank's replicas."""
        return rank - rank % self.layout.tp % self.copies


class Contacts:
    """The pairs of ranks of two groups that share KV, and the replica of each that writes."""

    __slots__ = ("decode", "prefill")

    def __init__(self, prefill: Layout, decode: Layout) -> None:
        self.prefill, self.decode = Group(prefill), Group(decode)

    def readers(self, writer: int) -> Rectangle:
        """Return the readers that hold something that the writer holds."""
        return self.decode.meeting(*self.prefill.holding(writer))

    def writers(self, reader: int) -> Rectangle:
        """Return the writers that hold something that the reader holds, replicas included."""
        return self.prefill.meeting(*self.decode.holding(reader))

    def owed_by(self, writer: int) -> Iterator[Share]:
        """Yield the shares that the writer writes, by reader."""
        readers, copies = self.readers(writer), self.prefill.copies
        mine = writer - self.prefill.first_copy(writer)
        return (self.meet(writer, reader) for turn, reader in enumerate(readers) if turn % copies == mine)

    def owed_to(self, reader: int) -> Iterator[Share]:
        """Yield the shares that the reader gets, by writer: one replica of each holding has the turn."""
        copies = self.prefill.copies
        for first in self.writers(reader):
            if first == self.prefill.first_copy(first):
                yield self.meet(first + self.readers(first).turn(reader) % copies, reader)

    def lead(self, reader: int) -> int:
        """Return the lowest writer to this reader on the last stage."""
        writers = self.writers(reader)
        first = writers.stages[-1] * writers.tp + writers.places.start
        return first + self.readers(first).turn(reader) % self.prefill.copies

    def fewest_layers(self) -> int:
        """Layers of the smallest share: between two neighbouring ends of stages, of either side."""
        ends = sorted({*self.prefill.ends, *self.decode.ends})
        return min(end - begin for begin, end in pairwise([0, *ends]))

    def meet(self, writer: int, reader: int) -> Share:
        """Return what the two have in common, as a share; an empty one if they do not meet."""
        ours, theirs = self.prefill.holding(writer), self.decode.holding(reader)
        heads, layers = (common(*pair) for pair in zip(ours, theirs, strict=True))
        return Share(writer, reader, *heads, *layers)


def common(ours: Interval, theirs: Interval) -> tuple[int, int, int]:
    """(source, target, count) of what two intervals have in common, offsets local to each."""
    first = max(ours[0], theirs[0])
    return first - ours[0], first - theirs[0], min(sum(ours), sum(theirs)) - first
