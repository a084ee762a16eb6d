"""Flat batches: forms, planes, alignments, programs and arguments by hand; nothing is compiled."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

import torch
from msgspec.structs import replace
from test_end_caches import FULL, STATE, of

from kvproto.io.kernels import flat_batch
from kvproto.io.kernels.batch import MAX_UNITS, KernelTuning
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.io.kernels.flat import flat
from kvproto.io.kernels.flat_batch import FlatBatch
from kvproto.io.kernels.pool import Pool, Side
from kvproto.io.kernels.tile import MAX_PARTS
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.plan import Share, plan_between
from kvproto.verify.testing.pools import empty_caches

#: three layers of an index key of 20 bytes beside two of K and V of two heads
INDEX = Cache("index", (CachePart("key", 1, 20),), (0, 2, 4))
SIDE = of(FULL, INDEX)
SMALL = KernelTuning(tile=128)


Recorded = tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Record what is compiled, and what each launch is given."""
    compiled, launched = list[tuple[Any, ...]](), list[tuple[Any, ...]]()

    def compile_kernel(*about: Any) -> Any:
        compiled.append(about)
        return lambda *given: launched.append(given)

    monkeypatch.setattr(flat_batch, "compile_kernel", compile_kernel)
    return compiled, launched


def made(
    pool: Pool, *shares: Share, side: Side = "gather", digests: bool = False, tuning: KernelTuning = SMALL
) -> FlatBatch:  # fmt: skip
    return FlatBatch(pool, pool.cut(side, shares).slices, side, tuning, digests=digests)


def whole() -> tuple[CachePool, Share]:
    (share,) = plan_between(SIDE, SIDE, 4).writers(0)
    return empty_caches(SIDE, 0, 6), share


def addresses(pool: CachePool) -> list[int]:
    return [each.data_ptr() for tensors in pool.kinds for each in tensors]


def test_planes_are_listed_by_form_and_in_it_by_layer() -> None:
    pool, share = whole()
    one = made(pool, share)
    k1, k3, v1, v3, *keys = addresses(pool)
    forms = [(4 * 32, 32, 32, 1, 32, 1, 4), (4 * 48, 48, 48, 1, 16, 3, 8), (80, 20, 20, 1, 4, 5, 32)]
    assert one._forms == forms
    planes = [
        [(k1, 0, 0, 0, 0), (k3, 0, 32, 2, 0)], [(v1, 0, 64, 4, 0), (v3, 0, 112, 6, 0)],
        [(key, 0, 160 + 20 * at, 8 + at, 0) for at, key in enumerate(keys)],
    ]  # fmt: skip
    assert one._table.tolist() == [n for some in planes for plane in some for n in plane]
    assert (one._paces, one.entries, one.parts) == ([(2, 1, 4), (2, 3, 8), (3, 5, 32)], 11, 1)
    assert one.max_tokens == MAX_UNITS // 15
    assert one._aligns == [16, 16, 4]
    assert one._constants == (True, False) and one._page == 4


def test_each_unit_is_a_group_where_digests_are_wanted() -> None:
    pool, share = whole()
    one = made(pool, share, digests=True, side="scatter")
    assert one._forms == [(128, 32, 16, 2, 16, 1, 8), (192, 48, 24, 2, 8, 3, 16), (80, 20, 20, 1, 4, 5, 32)]
    assert one._constants == (False, True)


def test_heads_that_lie_apart_are_copied_one_by_one() -> None:
    side = of(FULL, order="HND")
    (share,) = plan_between(side, side, 4).writers(0)
    assert [form[3] for form in made(empty_caches(side, 0, 6), share)._forms] == [2, 2]


def test_parts_of_several_writers_follow_one_another_in_a_layer() -> None:
    ours = of(FULL, INDEX, tp=2)
    shares = plan_between(ours, SIDE, 4).writers(0)
    pool = empty_caches(SIDE, 0, 6)
    one = made(pool, *shares, side="scatter")
    k1, k3, *_ = addresses(pool)
    both = [(part, piece) for part, share in enumerate(shares) for piece in share.pieces[:1]]
    assert [piece.dst_unit for _, piece in both] == [0, 1]
    rows = planes_of(one)[:4]
    entries = pool.cut("scatter", shares).slices[0].digests
    assert rows == [[k1, 0, 0, 0, 0], [k1 + 16, 1, 0, entries, 0], [k3, 0, 16, 1, 0], [k3 + 16, 1, 16, entries + 1, 0]]
    assert one._forms[0] == (128, 32, 16, 1, 16, 1, 8) and one.parts == 2
    assert one.entries == sum(each.digests for each in pool.cut("scatter", shares).slices)


def test_words_are_no_wider_than_an_address_of_a_plane_is_aligned() -> None:
    pool, share = whole()
    whole_key = pool.kinds[2][1]
    moved = torch.zeros(whole_key.numel() + 2, dtype=torch.uint8)[2:].view(whole_key.shape)
    pool.kinds[2][1] = moved
    assert made(pool, share)._aligns == [16, 16, 2]
    pool.kinds[0][0] = torch.zeros(8 + 6 * 128, dtype=torch.uint8)[8:].view(6, 4, 2, 16)
    assert made(pool, share)._aligns == [8, 16, 2]


def test_a_kind_of_which_a_part_has_nothing_has_no_form() -> None:
    pool, share = whole()
    k, v, key = share.pieces
    one = made(pool, replace(share, pieces=(k, replace(v, units=0, layers=0), key)))
    assert one._forms == [(128, 32, 32, 1, 32, 1, 4), (80, 20, 20, 1, 4, 5, 32)]
    assert one.entries == 7 and one._table.tolist()[2 * 5 + 2] == 64, "keys follow two layers of K"


def test_a_plane_begins_in_the_entry_of_its_slot() -> None:
    side = of(FULL, STATE)
    pool = empty_caches(side, 0, 6)
    (end,) = pool.ends
    end.slot_of = (1, 0, 2)
    assert side.state is not None
    (share,) = plan_between(side, side, 4).state.writers(0)  # type: ignore[union-attr]
    cut = end.cut("gather", (share,))
    one = FlatBatch(end, cut.slices, "gather", SMALL, digests=False)
    planes, kinds = planes_of(one), len(end.kinds)
    assert len(planes) == 3 * kinds
    slot_of = {end.kinds[kind][at].data_ptr(): (1, 0, 2)[at] for kind in range(kinds) for at in range(3)}
    assert {plane[0]: plane[4] for plane in planes} == slot_of
    assert [form[10] for form in one.forms_of(0, 0, 0)] == [1] * len(one._forms), "and a program asks which it is"
    end.slot_of = (0, 0, 0)
    assert [form[10] for form in made(end, share).forms_of(0, 0, 0)] == [0] * len(one._forms), "unless all begin alike"


def test_a_launch_has_the_programs_of_all_forms_and_plain_arguments(recorded: Recorded) -> None:
    compiled, launched = recorded
    pool, share = whole()
    one = made(pool, share)
    one.bind(1000, 7, 11, [64], 5000, 9)(77)
    # eleven tokens: 2 x 3 programs of 4 units, 2 x 5 of 8 (of three units a token), 3 x 2 of 32 (of five)
    assert launched == [(6 + 10 + 6, 1, 1, 77, *arguments((one._table.data_ptr(), 1000, 7, 11), given=(5000, 9, 64)))]
    for low_bits, words in ((0, ((8, 16), (8, 16), (4, 4))), (8, ((8, 8), (8, 8), (4, 4))), (1, ((1, 1),) * 3)):
        one.launcher(low_bits)
        planes = (4, 0, 0, 0, 0, 2), (4, 0, 0, 0, 2, 2), (4, 0, 0, 0, 4, 3)
        forms = tuple((*form, *word, *each) for form, word, each in zip(one._forms, words, planes, strict=True))
        assert compiled[-1] == (-1, flat, 18 + MAX_PARTS, (forms, 3, 1, True, False), 1)
    count = len(compiled)
    one.bind(1000, 7, 11, [64 + 16 * 3 + 1], 5000, 9)
    assert len(compiled) == count == 3, "kernels are kept by the lowest bits of the addresses"
    one.prepare_cells()
    assert len(compiled) == count + 1, "and that of whole pages is made, too"
    one.bind(1000, 8, 12, [64], 5000, 9)
    assert len(compiled) == count + 1, "for parts that lie at multiples of 16 bytes"
    bound = one.bind(1000, 7, 11, [64 + 8], 5000, 9)
    assert bound.launch is one.launcher(8) is not one.launcher(0) and not bound.aligned


def arguments(*sources: tuple[int, ...], given: tuple[int, ...]) -> list[int]:
    """Return what a launch of these sources gets, with digests, entries and staged parts."""
    columns = [[source[at] for source in sources] + [0] * (4 - len(sources)) for at in range(4)]
    return [*(number for column in columns for number in column), *given, *[0] * (MAX_PARTS + 2 - len(given))]


def test_copies_of_several_batches_are_one_launch_where_it_was_prepared(recorded: Recorded) -> None:
    compiled, launched = recorded
    side = of(FULL, STATE)
    plan = plan_between(side, side, 4)
    assert plan.state is not None
    pool = empty_caches(side, 0, 6)
    one, other = made(pool, *plan.writers(0)), made(pool.ends[0], *plan.state.writers(0))

    def copies(address: int) -> list[flat_batch.FlatCopy]:
        return [one.bind(1000, 7, 11, [64], 0, 9), other.bind(2000, 3, 1, [address], 0, 9)]

    assert flat_batch.joined(copies(128)) is None, "nothing compiles when it is launched"
    one.prepare_joined([other])
    count = len(compiled)
    one.prepare_joined([other])
    assert len(compiled) == count, "once"
    (forms, forms_count, parts, *rest) = compiled[-1][3]
    assert (forms_count, parts, rest) == (len(one._forms) + len(other._forms), 2, [True, False])
    assert [form[9:13] for form in forms] == [(4, 0, 0, 0)] * len(one._forms) + [(1, 0, 1, 1)] * len(other._forms)
    assert [form[7:9] for form in forms][:3] == [(8, 16), (8, 16), (8, 16)], "of staged parts at multiples of 16 bytes"
    assert [form[13] for form in forms] == [0, 2, *range(0, 3 * len(other._forms), 3)][: len(forms)]
    found, each = flat_batch.joined(copies(128)), copies(128)
    assert found is not None
    found(77)
    tables = one._table.data_ptr(), other._table.data_ptr()
    sources = (tables[0], 1000, 7, 11), (tables[1], 2000, 3, 1)
    total = sum(copy.programs for copy in each)
    assert launched == [(total, 1, 1, 77, *arguments(*sources, given=(0, 0, 64, 128)))]
    assert flat_batch.joined(copies(136)) is None, "parts elsewhere need another kernel"
    assert flat_batch.joined(copies(128)[::-1]) is None
    assert flat_batch.joined([*copies(128), print]) is None, "that is of another kind"
    assert flat_batch.joined([one.bind(1000, 7, 11, [64], 0, 9)] * 5) is None, "and a launch has four sources"


def test_a_source_is_behind_all_parts_of_those_before_it(recorded: Recorded) -> None:
    side = of(FULL)
    (share,) = plan_between(side, side, 4).writers(0)
    pool = empty_caches(side, 0, 6)
    five, two, one = (made(pool, *[share] * parts) for parts in (5, 2, 1))
    five.prepare_joined([two, one])
    assert {form[11:13] for form in recorded[0][-1][3][0]} == {(0, 0), (5, 1), (7, 2)}, "as many as a launch has"
    one.prepare_joined([one] * 3)
    assert len(one.joined) == 1, "and four sources"


def test_no_more_sources_and_parts_are_joined_than_a_launch_has() -> None:
    side = of(FULL)
    (share,) = plan_between(side, side, 4).writers(0)
    pool = empty_caches(side, 0, 6)
    one, four, five = made(pool, share), made(pool, *[share] * 4), made(pool, *[share] * 5)
    for others in ([one] * 4, [four, four], [one, one, one, five]):
        one.prepare_joined(others)
        assert not one.joined


def test_whole_pages_of_narrow_rows_are_rows_of_wide_units(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = list[tuple[Any, ...]]()
    monkeypatch.setattr(flat_batch, "compile_kernel", lambda *_: lambda *given: launched.append(given))
    pool, share = whole()
    one = made(pool, share)
    pages = one._by_page
    assert pages is not None and pages._page == 1 and pages._constants == (True, False)
    # a page has 4 tokens of 32, 48 and 20 bytes; of two heads of one writer its tokens lie apart
    assert pages._forms == [(128, 128, 128, 1, 64, 2, 2), (192, 192, 192, 1, 64, 3, 2), (80, 80, 80, 1, 16, 5, 8)]
    one.bind(1000, 8, 12, [64], 0, 9)(77)
    table, programs = pages._table.data_ptr(), 2 * 3 + 2 * 5 + 3 * 2
    assert launched == [(programs, 1, 1, 77, *arguments((table, 1000, 2, 3), given=(0, 9, 64)))]
    for first, tokens in ((8, 11), (7, 12)):
        one.bind(1000, first, tokens, [64], 0, 9)(77)
        assert launched[-1][4] == one._table.data_ptr(), "part of a page goes token by token"
    assert [row[2] for row in planes_of(pages)] == [4 * row[2] for row in planes_of(one)]


def planes_of(batch: FlatBatch) -> list[list[int]]:
    table = batch._table.tolist()
    return [table[at : at + 5] for at in range(0, len(table), 5)]


def test_a_page_is_no_row_where_units_are_wide_heads_lie_apart_or_digests_are_wanted() -> None:
    pool, share = whole()
    assert made(pool, share, digests=True)._by_page is None
    wide = of(Cache("wide", (CachePart("x", 1, 32),), (0, 2)))
    (alone,) = plan_between(wide, wide, 4).writers(0)
    assert made(empty_caches(wide, 0, 6), alone)._by_page is None
    for page in (2, 4):
        parts = CachePart("x", 2, 4), CachePart("y", 1, 4)
        narrow = of(Cache("narrow", parts, (0, 2)), order="HND", page_size=page)
        (apart,) = plan_between(narrow, narrow, page).writers(0)
        assert made(empty_caches(narrow, 0, 6), apart)._by_page is None
    strips, every = (of(Cache("strips", (CachePart("x", 4, 4),), (0, 2)), tp=tp) for tp in (2, 1))
    batch = made(empty_caches(every, 0, 6), *plan_between(strips, every, 4).writers(0), side="scatter")
    assert batch._by_page is None, "strips of two heads are as narrow in a page as in a token"
    parts = CachePart("x", 4, 4), CachePart("y", 1, 32)
    mixed, every = (of(Cache("strips", parts, (0, 2)), tp=tp) for tp in (2, 1))
    batch = made(empty_caches(every, 0, 6), *plan_between(mixed, every, 4).writers(0), side="scatter")
    assert batch._by_page is None, "whatever other rows would gain"


def test_pages_of_two_tokens_are_rows_too_and_those_of_one_are_none() -> None:
    for page, found in ((1, False), (2, True)):
        side = of(Cache("narrow", (CachePart("x", 2, 4),), (0, 2)), page_size=page)
        (share,) = plan_between(side, side, page).writers(0)
        pages = made(empty_caches(side, 0, 6), share)._by_page
        assert (pages is not None) is found
        assert pages is None or pages._forms == [(16, 16, 16, 1, 16, 1, 8)]
    side, whole_side = (of(Cache("strips", (CachePart("x", 4, 4), CachePart("y", 1, 4)), (0, 2)), tp=tp, page_size=2)
                        for tp in (2, 1))  # fmt: skip
    pages = made(empty_caches(whole_side, 0, 6), *plan_between(side, whole_side, 2).writers(0), side="scatter")._by_page
    assert pages is not None and sorted(form[3:6] for form in pages._forms) == [(1, 8, 1), (2, 8, 1)]


def test_units_and_rows_have_bounds() -> None:
    side = of(Cache("wide", (CachePart("x", 1, 512), CachePart("y", 1, 1)), (0,)), INDEX)
    (share,) = plan_between(side, side, 4).writers(0)
    pool = empty_caches(side, 0, 6)
    large = made(pool, share, tuning=KernelTuning(tile=4096))
    assert {form[4:] for form in large._forms} == {(512, 1, 8), (1, 1, 1024), (4, 5, 1024)}
    assert {form[4:] for form in made(pool, share)._forms} == {(64, 8, 2), (1, 1, 128), (4, 5, 32)}
