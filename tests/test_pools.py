"""Pools: steps of rows, what travels at the end, parts of a scatter, and the forms of named caches."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from msgspec.structs import replace
from support.stories import layout
from test_end_caches import FULL, LONG, STATE, of

from kvproto.io.kernels.cache_pool import ANY_PAGE, CachePool, _span
from kvproto.io.kernels.pool import ORIGIN, ByteGeometry, KernelError, Pool, grain_of
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.plan import Share, plan_between
from kvproto.layout.sharding import Layout
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


Parts = dict[str, list[torch.Tensor]]


def parts_of(side: Layout, rank: int = 0, pages: int = 6) -> Parts:
    """An engine's tensors of these caches, by part."""
    made = Parts()
    for each in (side, *side.ends):
        for kind in each.kinds:
            inner = (each.page_size, each.units_of(kind, rank)[1])
            shape = pages, *(inner if each.order == "NHD" else inner[::-1]), kind.row
            made[kind.name] = [torch.zeros(shape, dtype=torch.uint8) for _ in range(each.rows_of(kind, rank)[1])]
    return made


def pool(side: Layout, parts: Parts, rank: int = 0, **more: Any) -> CachePool:
    """The pool of these parts, each of which is a tensor of the engine."""
    return CachePool(side, rank, parts, {f"{name} {at}": t for name, ts in parts.items() for at, t in enumerate(ts)},
                     **more)  # fmt: skip


def test_a_layout_of_k_and_v_has_no_pool_of_caches() -> None:
    with pytest.raises(KernelError, match="needs a layout that names them"):
        CachePool(layout(1), 0, {}, {})


def test_all_parts_are_on_one_device() -> None:
    side = of(FULL, STATE)
    parts = parts_of(side)
    assert (pool(side, parts).device, pool(side, parts).gpu) == (torch.device("cpu"), -1)
    parts["state.x"] = [each.to("meta") for each in parts["state.x"]]
    with pytest.raises(KernelError, match="must be on one device"):
        pool(side, parts)


def test_a_pool_of_caches_counts_bytes_and_has_no_heads() -> None:
    made = pool(of(FULL), parts_of(of(FULL)))
    assert (made.dtype, made.itemsize, made.heads) == (torch.uint8, 1, 0)


def test_a_stage_of_state_alone_has_pages_of_any_number() -> None:
    caches = Cache("kv", (CachePart("k", 1, 8),), (0,)), Cache("s", (CachePart("x", 2, 6),), (1,), "", END)
    side = Layout.of_caches(caches, layers=2, page_size=4, tp=1, pp=2)
    made = pool(side, parts_of(side, 1), 1)
    assert (made.pages, made.kinds, made.grains) == (ANY_PAGE, ([],), (ByteGeometry(8, 8, 8, 8),))
    (end,) = made.ends
    assert (end.pages, end.page_size, end.layers, end.slots.tolist()) == (6, 1, 1, [*range(6)])
    assert pool(side, parts_of(side)).pages == 6 and not pool(side, parts_of(side)).ends


@pytest.mark.parametrize("order", ["NHD", "HND"])
def test_dimensions_of_one_element_may_be_missing(order: Literal["NHD", "HND"]) -> None:
    one = Cache("one", (CachePart("x", 1, 12),), (0, 2, 4), "", END)
    side = of(FULL, Cache("latent", (CachePart("c", 1, 36),), (5,)), one, STATE, order=order)
    whole = parts_of(side)
    given = dict(whole)
    given["latent.c"] = [each.flatten(1).view(6, 4, 36) for each in whole["latent.c"]]
    given["one.x"] = [each.flatten(1) for each in whole["one.x"]]
    given["state.x"] = [each.flatten(1).view(6, 4, 12) for each in whole["state.x"]]
    ours, theirs = pool(side, given), pool(side, whole)
    for a, b in zip((ours, *ours.ends), (theirs, *theirs.ends), strict=True):
        assert [t.shape for ts in a.kinds for t in ts] == [t.shape for ts in b.kinds for t in ts]
        assert (a.grains, a.units, a.order, a.axes) == (b.grains, b.units, b.order, b.axes)
    for name, form in (("full.k", (6, 8, 16)), ("state.x", (6, 48)), ("latent.c", (6, 144))):
        with pytest.raises(KernelError, match=f"{name} is .* it needs four dimensions, the last one dense"):
            pool(side, {**whole, name: [torch.zeros(form, dtype=torch.uint8) for _ in whole[name]]})


def test_slots_are_of_a_cache_at_the_end_by_its_name_or_of_the_only_one() -> None:
    side = of(FULL, STATE)
    assert pool(side, parts_of(side)).ends[0].slot_of == ()
    for slot_of in ((1, 0, 1), {"state": (1, 0, 1)}):
        assert pool(side, parts_of(side), slot_of=slot_of).ends[0].slot_of == (1, 0, 1)
    both = of(FULL, STATE, LONG)
    made = pool(both, parts_of(both), slot_of={"long": (0, 0, 1, 1)})
    assert {end.end.name: end.slot_of for end in made.ends} == {"state": (), "long": (0, 0, 1, 1)}
    assert {end.end.name: end.block for end in made.ends} == {"long": (0, 2), "state": (2, 5)}
    with pytest.raises(KernelError, match="slot_of: say of which cache it is, of long, state"):
        pool(both, parts_of(both), slot_of=(0, 0, 1, 1))
    with pytest.raises(KernelError, match="slot_of is of full; at the end travel long, state"):
        pool(both, parts_of(both), slot_of={"full": (0, 1)})
    with pytest.raises(KernelError, match="slot_of names 2 layers of state, and rank 0 holds 3"):
        pool(side, parts_of(side), slot_of=(0, 1))


PAGE = 4 * 2 * 16


@pytest.mark.parametrize(
    ("before", "behind", "fits"),
    [
        (0, 0, True), (1, 0, True), (PAGE - 1, 0, True), (0, PAGE, True), (20, PAGE - 40, True), (0, 2 * PAGE, False),
        (PAGE, PAGE, False), (PAGE, PAGE // 2, False),
    ],
)  # fmt: skip
def test_less_than_a_page_at_a_tensor_s_ends_is_in_no_part(before: int, behind: int, fits: bool) -> None:
    side = of(Cache("full", (CachePart("k", 2, 16),), (1,)), STATE)
    parts = parts_of(side)
    whole = torch.zeros(before + 6 * PAGE + behind, dtype=torch.uint8)
    parts["full.k"] = [whole[before : before + 6 * PAGE].view(6, 4, 2, 16)]
    parts |= {kind.name: [each[:3] for each in parts[kind.name]] for end in side.ends for kind in end.kinds}
    tensors = {f"{name} {at}": t for name, ts in parts.items() for at, t in enumerate(ts)} | {"full.k 0": whole}
    if fits:
        assert CachePool(side, 0, parts, tensors).pages == 6
    else:
        with pytest.raises(KernelError, match=f"{before + behind} of {whole.nbytes} bytes of 'full.k 0' are"):
            CachePool(side, 0, parts, tensors)


def test_a_tensor_without_a_byte_may_be_left_out_and_a_tensor_ends_behind_its_last_element() -> None:
    side = of(Cache("full", (CachePart("k", 2, 16),), (1,)), STATE)
    parts = parts_of(side)
    tensors = {f"{name} {at}": t for name, ts in parts.items() for at, t in enumerate(ts)}
    CachePool(side, 0, parts, {**tensors, "empty": torch.zeros(0)}, left_out={"empty": "this rank has none of it"})
    some = torch.zeros((3, 4), dtype=torch.int16)
    assert _span(some) == (some.data_ptr(), some.data_ptr() + some.nbytes)


def test_what_lies_between_parts_is_not_rounded() -> None:
    side = of(Cache("full", (CachePart("k", 2, 16),), (1,)), STATE)
    parts = parts_of(side)
    whole = torch.zeros((6, PAGE + 8), dtype=torch.uint8)
    parts["full.k"] = [whole[:, :PAGE].view(6, 4, 2, 16)]
    tensors = {f"{name} {at}": t for name, ts in parts.items() for at, t in enumerate(ts)} | {"full.k 0": whole}
    with pytest.raises(KernelError, match=f"48 of {whole.nbytes} bytes of 'full.k 0' are in no part"):
        CachePool(side, 0, parts, tensors)


@pytest.mark.parametrize(("between", "fits"), [(0, True), (8, False)])
def test_ends_are_before_the_first_and_behind_the_last_of_several_parts(between: int, fits: bool) -> None:
    side = of(Cache("full", (CachePart("k", 2, 16),), (1, 3)), STATE)
    parts = parts_of(side)
    whole = torch.zeros(16 + 6 * PAGE + between + 6 * PAGE + 32, dtype=torch.uint8)
    starts = 16, 16 + 6 * PAGE + between
    parts["full.k"] = [whole[at : at + 6 * PAGE].view(6, 4, 2, 16) for at in starts]
    tensors = {f"{name} {at}": t for name, ts in parts.items() for at, t in enumerate(ts) if name != "full.k"}
    if fits:
        assert CachePool(side, 0, parts, {**tensors, "both": whole}).pages == 6
    else:
        with pytest.raises(KernelError, match=f"56 of {whole.nbytes} bytes of 'both' are in no part"):
            CachePool(side, 0, parts, {**tensors, "both": whole})
