"""Pools: steps of rows, tables of what travels at the end, parts of a scatter, pools without memory."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace
from test_end_caches import FULL, LONG, STATE, of

from kvproto.io.kernels.pool import ORIGIN, ByteGeometry, KernelError, Pool, grain_of
from kvproto.layout.plan import Share, plan_between
from kvproto.verify.testing.pools import empty_caches


def end(name: str, page: int = 4) -> Pool:
    pool = empty_caches(of(FULL, LONG, STATE, page_size=page), 0, 16)
    return next(each for each in pool.ends if each.end.name == name)


@pytest.mark.parametrize(
    ("page", "digested", "origin", "stride"),
    [(4, False, 4, 4), (4, True, ORIGIN, 1027), (3, True, 3, 5), (3, False, 3, 5)],
)
def test_tables_of_a_window_begin_alike_on_both_sides_where_there_are_digests(
    page: int, digested: bool, origin: int, stride: int
) -> None:
    pool = end("long", page)
    pool.digested = digested
    assert (pool.origin, pool.stride) == (origin, stride)  # 11 tokens, from any row of the first `origin` on
    for tokens, first in ((3, 0), (11, 0), (14, 3), (18, 7)):
        assert pool.first_row(tokens) == first % origin


def test_state_has_one_entry_and_a_table_only_where_it_needs_one() -> None:
    pool = end("state")
    assert (pool.stride, pool.first_row(99), pool.room_slots, pool.own_tables) == (1, 0, 1, False)
    pool.slot_of = (0, 2, 1)
    assert (pool.room_slots, pool.own_tables) == (3, True)
    pool.slot_of, pool.digested = (), True
    assert pool.own_tables and end("long").own_tables


def test_an_alignment_divides_the_row_and_every_step() -> None:
    assert ByteGeometry(16, 64, 32, 48).align == ByteGeometry(160, 640, 320, 480).align == 16
    for at in range(4):
        steps = [64, 64, 64, 64]
        steps[at] = 8 + 64 * at
        assert ByteGeometry(*steps).align == 8
    tensor = torch.zeros((3, 4, 2, 5), dtype=torch.int16)
    assert grain_of(tensor, "NHD") == ByteGeometry(10, 80, 20, 10)
    assert grain_of(tensor, "HND") == ByteGeometry(10, 80, 10, 20)


def test_a_husk_has_every_tensor_s_form_and_no_byte_of_it() -> None:
    views = [torch.zeros((3, 4, 2, 16), dtype=torch.int16)[..., :8] for _ in range(2)]
    pool = Pool(views[:1], views[1:])
    caches = empty_caches(of(FULL, LONG, STATE), 0, 16)
    for whole in (pool, caches):
        shares_cuts = whole._cuts
        husk = whole.husk()
        assert husk.is_husk and not whole.is_husk and husk._cuts is not shares_cuts
        assert type(husk) is type(whole)
        pairs = zip((*whole.every, whole.k, whole.v), (*husk.every, husk.k, husk.v), strict=True)
        for ours, theirs in pairs:
            for a, b in zip(ours, theirs, strict=True):
                assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype) and b.is_meta
        assert len(husk.ends) == len(whole.ends)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_k_and_v_may_differ_in_the_last_dimension_only(axis: int) -> None:
    shape = [3, 4, 2, 8]
    shape[axis] += 8
    k, v = torch.zeros(3, 4, 2, 8), torch.zeros(shape)
    if axis == 3:
        assert Pool([k], [v]).grains[1].row == 2 * Pool([k], []).grains[0].row
        return
    with pytest.raises(KernelError, match="may differ in the last dimension only"):
        Pool([k], [v])


def test_an_odd_stride_of_a_dimension_of_one_element_keeps_no_view_of_wider_elements_away() -> None:
    rows = torch.arange(3 * 8 * 8, dtype=torch.uint8).as_strided((3, 1, 1, 8), (8, 5, 3, 1))
    (held,) = Pool([rows], []).k
    assert torch.equal(held, rows) and held.data_ptr() == rows.data_ptr()
    assert held.view(torch.int64).shape == (3, 1, 1, 1)
    one = torch.zeros(64, dtype=torch.uint8).as_strided((3, 4, 2, 1), (8, 2, 1, 7))
    assert Pool([one], []).k[0].stride() == (8, 2, 1, 1), "the last dimension of one element is dense"


def test_a_share_of_nothing_is_refused() -> None:
    side = of(FULL)
    share, *_ = plan_between(side, side, 4).writers(0)
    pool = empty_caches(side, 0, 4)
    some = share.pieces[0], replace(share.pieces[1], units=0)
    assert pool.cut("gather", (replace(share, pieces=some),)).token_bytes == (2 * 2 * 16,)
    some = share.pieces[0], replace(share.pieces[1], layers=0)
    assert pool.cut("gather", (replace(share, pieces=some),)).token_bytes == (2 * 2 * 16,)
    byte = Share(writer=0, reader=0, src_head=0, dst_head=0, heads=1, src_layer=0, dst_layer=0, layers=1)
    assert Pool([torch.zeros((2, 4, 1, 1), dtype=torch.uint8)], []).cut("gather", (byte,)).token_bytes == (1,)
    none = tuple(replace(piece, units=0) for piece in share.pieces)
    with pytest.raises(KernelError, match="a share has nothing of any kind"):
        pool.cut("gather", (replace(share, pieces=none),))


@pytest.mark.parametrize(("layer", "head", "apart"), [
    (0, 0, False), (1, 1, False), (1, -1, False), (2, 0, True), (0, 2, True), (2, 2, True),
])  # fmt: skip
def test_parts_of_a_scatter_share_no_head_of_a_layer(layer: int, head: int, apart: bool) -> None:
    pool = Pool([torch.zeros((3, 4, 4, 8)) for _ in range(4)], [])
    first, second = (
        Share(writer=0, reader=0, src_head=0, dst_head=dst_head, heads=2, src_layer=0, dst_layer=dst_layer, layers=2)
        for dst_layer, dst_head in ((0, max(-head, 0)), (layer, max(head, 0)))
    )
    for shares in ((first, second), (second, first)):
        if apart:
            assert len(pool.cut("scatter", shares).slices) == 2
        else:
            with pytest.raises(KernelError, match="write the same head of the same layer"):
                pool.cut("scatter", shares)
