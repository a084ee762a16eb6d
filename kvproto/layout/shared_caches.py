"""SharedCaches: computes who exchanges what of named caches, and shares their layers among replicas.

Each kind is cut by itself: a rank may hold a block of the heads of one part and all of another.  A share has a piece
for each kind.

Ranks of two groups meet where their places overlap, each group's places taken as equal parts of one whole.  Two such
ranks have something in common of every kind, and nothing lacks: of the ranks that hold a unit some meet each reader of
it.  Those of them share the layers of the kind between them.  So a latent of 61 layers leaves eight ranks by all their
ports to a decode group of one rank, seven or eight layers each; and to a group of eight ranks each writes to one.  With
turns (as `kvproto.layout.contacts` has them for K and V), one replica would write everything to a group of one.  The
block that a replica writes moves on with the reader's place, so the larger blocks are not always the same rank's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kvproto.layout.caches import Kind
from kvproto.layout.contacts import Contacts, Group, Piece, Rectangle, Share, common
from kvproto.layout.sharding import Layout


class SharedCaches(Contacts):
    """The pairs of ranks of two groups that share named caches, and each replica's layers."""

    __slots__ = ("kinds", "sharers")

    def __init__(self, prefill: Layout, decode: Layout) -> None:
        super().__init__(prefill, decode)
        self.kinds: Sequence[Kind] = prefill.kinds
        #: replicas that share a layer of a kind for one reader, at most
        self.sharers = max(len(_over(place, decode.tp, prefill.tp)) for place in range(decode.tp))

    def readers(self, writer: int) -> Rectangle:
        """Return the readers that hold something that the writer holds."""
        return self._meeting(self.prefill, writer, self.decode)

    def writers(self, reader: int) -> Rectangle:
        """Return the writers that hold something that the reader holds, replicas included."""
        return self._meeting(self.decode, reader, self.prefill)

    def owed_by(self, writer: int) -> Iterator[Share]:
        """Yield the shares that the writer writes, by reader."""
        shares = (self._share(writer, reader, alone=False) for reader in self.readers(writer))
        return (share for share in shares if share.layers)

    def owed_to(self, reader: int) -> Iterator[Share]:
        """Yield the shares that the reader gets, by writer."""
        shares = (self._share(writer, reader, alone=False) for writer in self.writers(reader))
        return (share for share in shares if share.layers)

    def lead(self, reader: int) -> int:
        """Return the lowest writer to this reader on the last stage that writes to it."""
        writers = [share.writer for share in self.owed_to(reader)]
        last = max(writers) // self.prefill.layout.tp
        return next(writer for writer in writers if writer // self.prefill.layout.tp == last)

    def fewest_layers(self) -> int:
        """Layers of the smallest share, or fewer: of the kind of which a share has most."""
        fewest = self.prefill.layout.layers
        for begin, end in pairwise(sorted({0, *self.prefill.ends, *self.decode.ends})):
            blocks = [self._block(kind, begin, end) for kind in self.kinds]
            fewest = min(fewest, max(filter(None, blocks), default=fewest))
        return fewest

    def _block(self, kind: Kind, begin: int, end: int) -> int:
        """Layers of the kind's smallest block between these of the model; 0: it has none there."""
        layers = bisect_left(kind.layers, end) - bisect_left(kind.layers, begin)
        copies = max(1, self.prefill.layout.tp // kind.units)
        return max(1, layers // min(self.sharers, copies)) if layers else 0

    def meet(self, writer: int, reader: int) -> Share:
        """Return what the two have in common, whichever replica writes it."""
        return self._share(writer, reader, alone=True)

    def _meeting(self, ours: Group, rank: int, theirs: Group) -> Rectangle:
        places = _over(rank % ours.layout.tp, ours.layout.tp, theirs.layout.tp)
        return Rectangle(theirs.layout.tp, theirs.stages(ours.layout.layers_of(rank)), places)

    def _share(self, writer: int, reader: int, *, alone: bool) -> Share:
        pieces = tuple(self._piece(kind, writer, reader, alone=alone) for kind in self.kinds)
        depths = [depth for piece in pieces for depth in (*piece.depths[:1], *piece.depths[-1:])]
        if not depths:
            return Share(writer, reader, 0, 0, 0, 0, 0, 0, pieces)
        first, last = min(depths), max(depths)
        moved = self.prefill.layout.layers_of(writer)[0] - self.decode.layout.layers_of(reader)[0]
        return Share(writer, reader, 0, 0, 0, first, first + moved, last - first + 1, pieces)

    def _piece(self, kind: Kind, writer: int, reader: int, *, alone: bool) -> Piece:
        """`alone`: as if the writer had no replicas."""
        ours, theirs = self.prefill.layout, self.decode.layout
        src_unit, dst_unit, units = common(ours.units_of(kind, writer), theirs.units_of(kind, reader))
        src_layer, dst_layer, layers = common(ours.rows_of(kind, writer), theirs.rows_of(kind, reader))
        if units <= 0 or layers <= 0:
            return Piece()
        place, copies, near = writer % ours.tp, max(1, ours.tp // kind.units), reader % theirs.tp
        met, begin = _over(near, theirs.tp, ours.tp), place - place % copies
        sharing = [place] if alone else range(max(begin, met.start), min(begin + copies, met.stop))
        block = (sharing.index(place) + near) % len(sharing)
        first, end = (at * layers // len(sharing) for at in (block, block + 1))
        if first == end:
            return Piece()
        begin = ours.rows_of(kind, writer)[0] + src_layer
        stage = ours.layers_of(writer)[0]
        depths = tuple(layer - stage for layer in kind.layers[begin + first : begin + end])
        return Piece(src_unit, dst_unit, units, src_layer + first, dst_layer + first, end - first, depths)


def _over(place: int, places: int, others: int) -> range:
    """Return which of so many other places the place overlaps, each side's being equal parts of one whole."""
    return range(place * others // places, -(-(place + 1) * others // places))
