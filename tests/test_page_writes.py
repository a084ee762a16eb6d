"""Page writes name pages, and write the bytes of the definition's runs, whatever the cut."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from kvproto.data.page_writes import CUTS, PagesBatch, PageWrites
from kvproto.io.transports.base import MemoryRegion, PeerId, RemoteRegion
from kvproto.io.transports.page_lists import PageLists, PagePiece
from kvproto.layout.byte_runs import descriptors
from kvproto.layout.cut import Cut
from kvproto.layout.placement import Placement, Strides, dense, rows
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout, LayoutError

PAGE, PAGES, LINK, PEER = 4, 24, 3, PeerId("peer")
Place = Callable[[Layout, int], Placement]


def packed(layout: Layout, rank: int) -> Placement:
    """All layers of a page in one block: K and V of a layer side by side, one region."""
    usual, each = dense(layout, rank), rows(layout)
    size, heads, layers = layout.page_size, layout.local_heads, layout.layers_of(rank)[1]
    block = [size * heads * row for row in each]
    strides = tuple(Strides(layers * sum(block), at.token, at.head) for at in usual.strides)
    planes = [(1, layer * sum(block) + sum(block[:kind])) for kind in range(len(each)) for layer in range(layers)]
    return Placement(strides, tuple(planes))


def adjoining(layout: Layout, rank: int) -> Placement:
    """Each page of K before room for all pages of V, which lie behind page 0 of K: there the two adjoin."""
    (k, v), heads, layers = rows(layout), layout.local_heads, layout.layers_of(rank)[1]
    of_k, of_v = layout.page_size * heads * k, layout.page_size * heads * v
    strides = Strides(of_k + PAGES * of_v, heads * k, k), Strides(of_v, heads * v, v)
    return Placement(strides, tuple((1 + layer, kind * of_k) for kind in (0, 1) for layer in range(layers)))


class World:
    """Page writes of one rank over a transport that keeps what it is asked."""

    def __init__(self, prefill: Layout, decode: Layout, ours: Place, theirs: Place, max_descs: int = 1 << 20) -> None:
        self.plan = Plan(prefill, decode, 64)
        self.part = self.plan.duties(0)[0]
        self.ours, self.theirs = ours(prefill, 0), cast("Any", theirs(decode, self.part.reader))
        self.made, self.dropped = list[PageLists](), list[PageLists]()
        transport: Any = SimpleNamespace(
            caps=SimpleNamespace(max_descs=max_descs, max_inflight_descs=1 << 20), page_lists=self._page_lists,
            remote=lambda peer, index: RemoteRegion(peer, index, 1, 1 << 40, "DRAM", 0), drop_lists=self.dropped.append,
        )  # fmt: skip
        regions = [MemoryRegion(index, 1, 1 << 40, "DRAM", 0) for index in range(64)]
        self.writes = PageWrites(transport, regions, self.ours)
        self.batches = list[Any]()

    def _page_lists(self, peer: PeerId, pieces: list[PagePiece]) -> PageLists:
        self.made.append(PageLists(peer, tuple(pieces)))
        return self.made[-1]

    def write(self, near: list[int], far: list[int], cut: Cut) -> set[tuple[int, ...]]:
        """Return each byte that the batches write, as (source region, offset, target region, offset)."""
        pages, theirs = np.array(near, np.int64), np.array(far, np.int64)[cut.first // self.plan.decode.page_size :]
        self.batches = list(
            self.writes.batches(LINK, PEER, self.plan, self.part, self.theirs, pages, theirs, cut)
        )  # fmt: skip
        found = list[tuple[int, ...]]()
        for batch in self.batches:
            if isinstance(batch, PagesBatch):
                runs = len(batch.lists.starts(batch.near, batch.far))
                assert batch.pieces == runs * len(batch.lists.pieces)
                assert batch.nbytes == len(batch.near) * batch.lists.nbytes
                found += [
                    (piece.src.index, piece.src_off + a * piece.src_step, piece.dst.index,
                     piece.dst_off + b * piece.dst_step, piece.nbytes)
                    for piece in batch.lists.pieces for a, b in zip(batch.near, batch.far, strict=True)
                ]  # fmt: skip
            else:
                found += [(part.src.index, int(src), part.dst.index, int(dst), int(n))
                          for part in batch for src, dst, n in part.descs]  # fmt: skip
        return bytes_of(found)

    def wanted(self, near: list[int], far: list[int], cut: Cut) -> set[tuple[int, ...]]:
        """Return the same by the definition."""
        given = self.plan, self.part, near, far, cut.first, cut.tokens, self.ours, self.theirs
        return bytes_of(list(descriptors(*given)))


def bytes_of(runs: list[Any]) -> set[tuple[int, ...]]:
    """Each byte of these runs, none of them twice."""
    each = [(a, src + i, b, dst + i) for a, src, b, dst, size in runs for i in range(size)]
    assert len({(b, at) for _, _, b, at in each}) == len(each), "no byte is written twice"
    return set(each)


def layout(tp: int = 1, page: int = PAGE, **more: Any) -> Layout:
    """Two layers, two heads of four bytes."""
    return Layout(**{"layers": 2, "heads": 2, "k_dim": 4, "v_dim": 4, "itemsize": 1, "dtype": "uint8",
                     "page_size": page, "tp": tp, **more})  # fmt: skip


FORMS: dict[str, tuple[Layout, Layout, Place, Place]] = {
    "dense": (layout(), layout(), dense, dense),
    "packed": (layout(), layout(), packed, packed),
    "packed into dense": (layout(), layout(), packed, dense),
    "head by head": (layout(order="HND"), layout(order="HND"), packed, packed),
    "another order": (layout(), layout(order="HND"), packed, packed),
    "half of the heads": (layout(2), layout(), packed, packed),
    "for one of two readers": (layout(order="HND"), layout(2, order="HND"), dense, packed),
    "K alone": (layout(v_dim=0), layout(v_dim=0), packed, packed),
    "V of other rows": (layout(v_dim=8), layout(v_dim=8), dense, dense),
    "V of other rows, packed": (layout(v_dim=8), layout(v_dim=8), packed, dense),
    "adjoining in page 0": (layout(v_dim=8), layout(v_dim=8), adjoining, adjoining),
    "smaller pages": (layout(page=2), layout(), packed, packed),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_cut_writes_the_bytes_of_the_definition(name: str) -> None:
    rng, world = Random(7), World(*FORMS[name])
    sizes = world.plan.prefill.page_size, world.plan.decode.page_size
    for turn in range(40):
        first, tokens = (0, 16) if not turn else (rng.randrange(12), rng.randrange(1, 20))
        ours, theirs = (rng.sample(range(PAGES), -(-(first + tokens) // size)) for size in sizes)
        if turn % 3 == 1:
            ours, theirs = (list(range(4, 4 + len(table))) for table in (ours, theirs))
        cut = Cut(first, tokens)
        assert world.write(ours, theirs, cut) == world.wanted(ours, theirs, cut), cut
    by_number = sizes[0] == sizes[1] and name != "adjoining in page 0"
    assert len(world.made) == by_number, "the lists are made once, where pages are alike"


def test_a_packed_pool_goes_a_whole_page_at_a_time_and_pages_in_a_row_are_one_piece() -> None:
    world = World(*FORMS["packed"])
    world.write([5, 3, 9, 0], [1, 7, 4, 2], Cut(0, 16))
    assert [batch.pieces for batch in world.batches] == [4] and len(world.made[0].pieces) == 1
    world.write([5, 6, 7, 0], [1, 2, 3, 9], Cut(0, 16))
    assert [batch.pieces for batch in world.batches] == [2]
    world.write([5, 6, 7, 8], [1, 2, 3, 4], Cut(2, 12))
    whole, head, tail = world.batches
    assert whole.pieces == 1 and whole.near.tolist() == [6, 7] and whole.far.tolist() == [2, 3]
    assert [len(part.descs) for part in head + tail] == [4, 4], "a part of a page is a piece for each plane"
    world.write([5], [2], Cut(1, 2))
    assert [len(part.descs) for batch in world.batches for part in batch] == [4]


@pytest.mark.parametrize(("most", "batches"), [(8, [8, 8]), (9, [8, 8]), (12, [12, 4]), (4, [4] * 4), (100, [16])])
def test_batches_are_of_as_many_pieces_as_the_transport_takes(most: int, batches: list[int]) -> None:
    world = World(*FORMS["dense"], max_descs=most)
    pages = [7, 3, 5, 1]
    assert world.write(pages, pages[::-1], Cut(0, 16)) == world.wanted(pages, pages[::-1], Cut(0, 16))
    assert [batch.pieces for batch in world.batches] == batches
    row = [4, 5, 6, 7]
    assert world.write(row, row, Cut(0, 16)) == world.wanted(row, row, Cut(0, 16))
    assert [batch.pieces for batch in world.batches] == [4], "pages in a row are counted as one"


def test_where_a_page_has_more_pieces_than_a_write_takes_all_is_laid_out() -> None:
    world, pages = World(*FORMS["another order"], max_descs=8), [7, 3, 5, 1]
    assert world.write(pages, pages, Cut(0, 16)) == world.wanted(pages, pages, Cut(0, 16))
    assert not world.made and max(sum(len(part.descs) for part in batch) for batch in world.batches) == 8


def test_a_table_that_ends_before_the_tokens_is_refused() -> None:
    world = World(*FORMS["packed"])
    for near, far in (([1, 2, 3], [1, 2, 3, 4]), ([1, 2, 3, 4], [1, 2, 3])):
        with pytest.raises(LayoutError, match="end before token"):
            world.write(near, far, Cut(5, 11))


def test_the_runs_of_a_cut_page_are_kept_and_bounded() -> None:
    world, kept = World(layout(page=64), layout(page=64), packed, packed), [0]
    for first in range(8):
        for tokens in range(1, 64 - first):
            world.write([1], [2], Cut(first, tokens))
            (form,) = world.writes._forms[LINK].values()
            kept.append(len(form.cuts))
    assert [*dict.fromkeys(kept)] == [*range(CUTS + 1)] and kept[-1] < CUTS


def test_a_peer_that_tells_no_placement_has_that_of_its_layout_and_another_pool_has_its_own() -> None:
    world, cut = World(*FORMS["packed into dense"]), Cut(0, 4)
    theirs, world.theirs = world.theirs, None
    given = [1], [2], cut
    found = world.write(*given)
    world.theirs = theirs
    assert found == world.wanted(*given)
    world.ours = dense(world.plan.prefill, 0)
    world.writes.move(world.ours)
    assert world.dropped == world.made and world.write(*given) == world.wanted(*given) != found


def test_where_a_peer_says_that_its_pages_overlap_all_is_laid_out() -> None:
    world = World(*FORMS["packed"])
    steps = tuple(Strides(each.page // 2, each.token, each.head) for each in world.theirs.strides)
    world.theirs = Placement(steps, world.theirs.planes)
    world.write([1], [2], Cut(0, 4))
    assert not world.made, "transports copy pages in whatever order"


def test_what_is_kept_for_a_link_is_dropped_with_it_and_made_anew_for_another_connection() -> None:
    world = World(*FORMS["packed"])
    world.write([1], [2], Cut(0, 4))
    world.writes.forget(LINK)
    world.writes.forget(LINK)
    assert world.dropped == world.made
    world.write([1], [2], Cut(0, 4))
    assert len(world.made) == 2
