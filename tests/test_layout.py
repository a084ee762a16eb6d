"""The plan against facts: known head slices and chunk sizes, every refusal by name, and its answers."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any, get_args

import msgspec
import numpy as np
import pytest

from kvproto.layout import plan as plans
from kvproto.layout.agreement import agree
from kvproto.layout.byte_runs import Form, descriptors, pieces_of_pages
from kvproto.layout.byte_runs_numpy import slices
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.cut import Cut, Part, chunks, cut_at, layers_of
from kvproto.layout.placement import Placement, Strides
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout, LayoutError, Reason, align_chunk_tokens

MODEL: dict[str, Any] = {"layers": 4, "heads": 8, "k_dim": 16, "v_dim": 16, "itemsize": 2, "dtype": "bfloat16"}


def layout(tp: int = 1, heads: int = 8, page_size: int = 64, **more: Any) -> Layout:
    return Layout(**(MODEL | {"tp": tp, "heads": heads, "page_size": page_size} | more))


def named(*names: str) -> Layout:
    caches = [Cache(name, (CachePart("row", 1, 16),)) for name in names]
    return Layout.of_caches(caches, layers=4, page_size=64, tp=1)


def plan(tp_p: int, tp_d: int, heads: int, pp_p: int = 1, pp_d: int = 1, **more: Any) -> Plan:
    return Plan(layout(tp_p, heads, pp=pp_p, **more), layout(tp_d, heads, pp=pp_d, **more), 8192)


def head_slice(share: Share | None) -> tuple[int, int, int]:
    assert share is not None
    return share.src_head, share.heads, share.dst_head


@pytest.mark.parametrize(
    ("tp_p", "tp_d", "heads", "expected"),
    [
        (4, 2, 8, [(0, 2, 0), (0, 2, 2), (0, 2, 0), (0, 2, 2)]),
        (2, 4, 8, [(0, 2, 0), (2, 2, 0), (0, 2, 0), (2, 2, 0)]),
        (1, 4, 2, [(0, 1, 0), (0, 1, 0), (1, 1, 0), (1, 1, 0)]),
        (4, 1, 2, [(0, 1, 0), (0, 1, 0), (0, 1, 1), (0, 1, 1)]),
        (1, 4, 4, [(0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0)]),
    ],
)
def test_known_head_slices(tp_p: int, tp_d: int, heads: int, expected: list[tuple[int, int, int]]) -> None:
    subject = plan(tp_p, tp_d, heads)
    pairs = [(w, r) for w in range(tp_p) for r in subject.linked(w)]
    assert [head_slice(subject.overlap(*pair)) for pair in pairs] == expected


def test_known_fan_in() -> None:
    assert [len(plan(4, 2, 8).writers(reader)) for reader in range(2)] == [2, 2]
    assert [len(plan(2, 4, 8).writers(reader)) for reader in range(4)] == [1, 1, 1, 1]
    assert [share.dst_head for share in plan(4, 1, 2).writers(0)] == [0, 1]  # 4 ranks, 2 distinct heads


def test_a_ratio_that_is_not_whole() -> None:
    got = [(s.writer, s.reader, s.src_head, s.heads, s.dst_head) for s in plan(6, 4, 12).shares]
    assert got == [
        (0, 0, 0, 2, 0), (1, 0, 0, 1, 2), (1, 1, 1, 1, 0), (2, 1, 0, 2, 1),
        (3, 2, 0, 2, 0), (4, 2, 0, 1, 2), (4, 3, 1, 1, 0), (5, 3, 0, 2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("chunked", "page", "expected"),
    [(8192, 64, 8192), (None, 64, 8192), (16, 64, 64), (8200, 64, 8192), (4096, 1, 4096)],
)
def test_known_chunk_sizes(chunked: int | None, page: int, expected: int) -> None:
    assert align_chunk_tokens(chunked, page, page) == expected


def test_chunk_sizes_are_whole_pages_of_both() -> None:
    assert align_chunk_tokens(100, 16, 64) == 64
    assert align_chunk_tokens(100, 12, 8) == 96
    assert align_chunk_tokens(10, 12, 8) == 24
    assert align_chunk_tokens(8192, 64, 16) == align_chunk_tokens(8192, 16, 64) == 8192


@pytest.mark.parametrize(
    ("tokens", "cells"),
    [
        (14336, [(6144, 8192)]),
        (22528, [(6144, 8192), (14336, 8192)]),
        (28672, [(6144, 8192), (14336, 8192), (22528, 6144)]),
    ],
)
def test_known_cells_after_a_prefix(tokens: int, cells: list[tuple[int, int]]) -> None:
    assert plan(4, 2, 8).admit(tokens, 6144) == len(cells)
    assert [cut_at(k, tokens, 6144, 8192) for k in range(len(cells))] == [Cut(*cell) for cell in cells]


@pytest.mark.parametrize(("prefix", "chunk_tokens", "groups"), [(0, 64, 1), (64, 1, 1), (48, 16, 4), (17, 5, 2)])
def test_cells_follow_one_another_up_to_the_end(prefix: int, chunk_tokens: int, groups: int) -> None:
    at, total = prefix, chunks(100, prefix, chunk_tokens, groups)
    for k in range(0, total, groups):
        cuts = [cut_at(each, 100, prefix, chunk_tokens, groups) for each in range(k, k + groups)]
        count = cuts[0].tokens
        assert cuts == [Cut(at, count, group, groups) for group in range(groups)] and 0 < count <= chunk_tokens
        at += count
        assert cuts[0].end == at
    assert at == 100
    with pytest.raises(LayoutError, match=f"chunk {total} of a room of {total} chunks"):
        cut_at(total, 100, prefix, chunk_tokens, groups)


def test_a_part_is_its_layers_and_its_place_and_chunks_of_one_size_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = plan(2, 1, 8, layers=3)
    for cut in (Cut(0, 64), Cut(64, 7, 1, 2), Cut(0, 7, 0, 2)):
        share = layers_of(subject.share(1, 0), cut.group, cut.groups)
        offset = subject.part_offset(0, 1, cut)
        part = subject.part(1, 0, cut)
        assert part == Part(share, offset, subject.part_bytes(share, cut)) and offset > 0
        assert subject.part(1, 0, msgspec.structs.replace(cut, first=128)) is part
    kept = subject.part(1, 0, Cut(0, 64))
    monkeypatch.setattr(plans, "PARTS", 3)
    assert subject.part(1, 0, Cut(0, 1)) != kept and subject.part(1, 0, Cut(0, 64)) is not kept, "it was forgotten"
    with pytest.raises(LayoutError, match="no-duty"):
        subject.part(0, 3, Cut(0, 64))


def test_a_full_prefix_moves_nothing() -> None:
    assert chunks(6144, 6144, 8192) == 0
    assert plan(4, 2, 8).admit(6100, 6100) == 0
    assert chunks(0, 0, 8192) == 0


def refused(reason: Reason, **fields: Any) -> Any:
    return pytest.param(fields, reason, id=f"{reason}-{'-'.join(fields)}")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        *(refused("bad-field", **{name: 0}) for name in ("layers", "heads", "k_dim", "itemsize")),
        *(refused("bad-field", **{name: 0}) for name in ("page_size", "tp", "pp")),
        *(refused("bad-field", **{name: 1 << 40}) for name in ("layers", "heads", "k_dim", "v_dim", "tp", "pp")),
        refused("bad-field", v_dim=-1),
        refused("bad-field", tp=True),
        refused("bad-field", heads=8.0),
        refused("bad-field", dtype=""),
        refused("bad-field", dtype="x" * 65),
        refused("bad-field", dtype=b"bfloat16"),
        refused("bad-field", order="DNH"),
        refused("too-many-ranks", tp=512, pp=2, heads=512),
        refused("fewer-layers-than-stages", pp=5),
        refused("stages-do-not-add-up", stages=(4,), pp=2),
        refused("stages-do-not-add-up", stages=(1, 2), pp=2),
        refused("stages-do-not-add-up", stages=(2, 2)),
        refused("bad-field", stages=(4, 0), pp=2),
        refused("bad-field", stages=[2, 2], pp=2),
        refused("bad-field", stages=(True, 3), pp=2),
        refused("heads-do-not-divide", tp=3),
        refused("replicas-do-not-divide", tp=12),
    ],
)
def test_layouts_refused_by_name(fields: dict[str, Any], reason: Reason) -> None:
    with pytest.raises(LayoutError) as caught:
        layout(**fields)
    assert caught.value.reason == reason
    assert str(caught.value) == f"{reason}: {caught.value.sentence}"
    assert caught.value.args == (reason, caught.value.sentence)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        refused("layers-differ", layers=5),
        refused("heads-differ", heads=16),
        refused("k-dim-differs", k_dim=8),
        refused("v-dim-differs", v_dim=8),
        refused("itemsize-differs", itemsize=1),
        refused("dtype-differs", dtype="float16"),
        refused("chunk-tokens-not-whole-pages", page_size=48),
    ],
)
def test_pairs_refused_by_name_on_both_sides(fields: dict[str, Any], reason: Reason) -> None:
    for sides in ((layout(), layout(**fields)), (layout(**fields), layout())):
        with pytest.raises(LayoutError) as caught:
            Plan(*sides, 128)
        assert caught.value.reason == reason


@pytest.mark.parametrize(
    "about",
    [
        (None, layout(), 128), (layout(), "layout", 128), (layout(), layout(), True), (layout(), layout(), 128.0),
        (layout(), layout(), "128"),
    ],
)  # fmt: skip
def test_no_layout_and_no_whole_number_agree_with_anything(about: tuple[Any, Any, Any]) -> None:
    with pytest.raises(LayoutError) as caught:
        agree(*about)
    assert caught.value.reason == "bad-field"


def test_a_chunk_has_at_most_the_tokens_of_the_longest_room() -> None:
    most = (1 << 32) - 1
    agree(layout(page_size=1), layout(page_size=5), most)
    with pytest.raises(LayoutError) as caught:
        agree(layout(page_size=1), layout(page_size=1), most + 1)
    assert caught.value.reason == "chunk-tokens-not-positive"


def test_a_chunk_size_that_does_not_fit_is_refused_with_one_that_does() -> None:
    with pytest.raises(LayoutError, match=r"pages of 16 \(prefill\) and 24 \(decode\): take a multiple of 48$"):
        Plan(layout(page_size=16), layout(page_size=24), 128)
    Plan(layout(page_size=16), layout(page_size=24), 96)


def test_tp_pp_pages_and_order_may_differ() -> None:
    Plan(layout(4, pp=2, order="HND", page_size=16), layout(2, pp=3, page_size=64), 128)


CALLS: dict[str, tuple[Reason, Any]] = {
    "no chunk size": ("chunk-tokens-not-positive", lambda p: Plan(p.prefill, p.decode, 0)),
    "no size for chunks": ("chunk-tokens-not-positive", lambda p: chunks(10, 0, 0)),
    "not chunked is None": ("chunk-tokens-not-positive", lambda p: align_chunk_tokens(-1, 64, 64)),
    "prefix beyond the room": ("prefix-outside-room", lambda p: p.admit(64, 128)),
    "negative prefix": ("prefix-outside-room", lambda p: chunks(64, -64, 64)),
    "prefix inside a page": ("prefix-off-page", lambda p: p.admit(128, 65)),
    "a cell of no tokens": ("chunk-tokens-not-positive", lambda p: cut_at(0, 64, 0, 0)),
    "cells that go backwards": ("chunk-tokens-not-positive", lambda p: cut_at(-1, 64, 0, -64)),
    "a room that begins before its first token": ("prefix-outside-room", lambda p: cut_at(0, 64, -64, 64)),
    "chunk beyond the room": ("no-such-chunk", lambda p: cut_at(1, 64, 0, 64)),
    "negative chunk": ("no-such-chunk", lambda p: cut_at(-1, 64, 0, 64)),
    "chunk of a full hit": ("no-such-chunk", lambda p: cut_at(0, 64, 64, 64)),
    "negative writer": ("no-such-rank", lambda p: p.duties(-1)),
    "writer beyond the group": ("no-such-rank", lambda p: p.linked(4)),
    "reader beyond the group": ("no-such-rank", lambda p: p.writers(2)),
    "overlap with no writer": ("no-such-rank", lambda p: p.overlap(4, 0)),
    "overlap with no reader": ("no-such-rank", lambda p: p.overlap(0, 2)),
    "lead of no reader": ("no-such-rank", lambda p: p.lead(2)),
    "rank of a layout": ("no-such-rank", lambda p: p.prefill.heads_of(4)),
    "share of no pair": ("no-duty", lambda p: p.share(3, 0)),
    "offset of no pair": ("no-duty", lambda p: p.part_offset(0, 3, Cut(0, 64))),
    "negative part": ("negative-tokens", lambda p: p.part_bytes(p.shares[0], Cut(0, -1))),
    "negative grant": ("negative-tokens", lambda p: p.grant_bytes(0, Cut(0, -1))),
    "negative cell": ("negative-tokens", lambda p: slices(p, p.shares[0], [0], [0], -1, 2)),
    "a cell of negative size": ("negative-tokens", lambda p: slices(p, p.shares[0], [0], [0], 2, -1)),
    "a cell of negative size, plainly": (
        "negative-tokens",
        lambda p: list(descriptors(p, p.shares[0], [0], [0], 2, -1)),
    ),
    "short table": ("table-too-short", lambda p: slices(p, p.shares[0], [0, 1], [0], 0, 65)),
    "short table, plainly": ("table-too-short", lambda p: list(descriptors(p, p.shares[0], [0], [0, 1], 0, 65))),
    "short table of the reader, plainly": (
        "table-too-short",
        lambda p: list(descriptors(p, p.shares[0], [0, 1], [0], 0, 65)),
    ),
    "negative page": ("negative-page", lambda p: slices(p, p.shares[0], [0, -1], [0, 1], 0, 65)),
    "a group too many": ("layer-groups", lambda p: layers_of(p.shares[0], 2, 2)),
    "caches of another number": ("caches-differ", lambda p: Plan(named("a"), named("a", "b"), 64)),
    "caches without a part": ("bad-caches", lambda p: Layout.of_caches([Cache("a", ())], layers=4, page_size=64, tp=1)),
    "negative page, plainly": ("negative-page", lambda p: list(descriptors(p, p.shares[0], [0], [-1], 0, 4))),
}


@pytest.mark.parametrize(("reason", "call"), CALLS.values(), ids=CALLS.keys())
def test_calls_refused_by_name(reason: Reason, call: Any) -> None:
    with pytest.raises(LayoutError) as caught:
        call(plan(4, 2, 8))
    assert caught.value.reason == reason


def test_a_negative_page_is_named_with_its_place_in_the_table() -> None:
    subject = plan(4, 2, 8)
    for call in (slices, lambda *given: list(descriptors(*given))):
        with pytest.raises(LayoutError, match="entry 2 of the page table is -1"):
            call(subject, subject.shares[0], [0, 1, -1], [0, 1, 2], 64, 128)


def test_every_reason_is_tested() -> None:
    marks = [*test_layouts_refused_by_name.pytestmark, *test_pairs_refused_by_name_on_both_sides.pytestmark]
    tested = {case.values[1] for mark in marks for case in mark.args[1]} | {reason for reason, _ in CALLS.values()}
    assert tested == set(get_args(Reason))


def test_a_layout_may_be_as_large_as_the_bounds_say() -> None:
    largest = layout(tp=256, pp=2, heads=1, layers=2, dtype="x" * 64, v_dim=0, itemsize=16, page_size=1 << 20)
    assert layout(dtype="x", page_size=1).dtype == "x"
    assert (largest.ranks, largest.heads_of(511), largest.layers_of(511)) == (512, (0, 1), (1, 1))


def test_a_layout_travels_and_a_bad_one_is_refused_on_arrival() -> None:
    sent = layout(4, pp=2, order="HND", stages=(1, 3))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Layout) == sent
    forged = msgspec.to_builtins(sent) | {"tp": 3}
    with pytest.raises(msgspec.ValidationError, match="tp must divide the heads"):
        msgspec.convert(forged, Layout)


def test_the_last_stages_hold_the_layers_that_do_not_divide() -> None:
    cut = layout(tp=2, layers=11, pp=4)
    assert [cut.layers_of(rank) for rank in range(8)] == [
        (0, 2), (0, 2), (2, 3), (2, 3), (5, 3), (5, 3), (8, 3), (8, 3)
    ]  # fmt: skip


def test_stages_that_are_named_hold_what_they_are_told() -> None:
    """Thirty layers on four stages, the middle ones larger; by default the last ones are."""
    told, usual = layout(tp=2, layers=30, pp=4, stages=(7, 8, 8, 7)), layout(tp=2, layers=30, pp=4)
    assert [told.layers_of(rank) for rank in (0, 1, 2, 4, 7)] == [(0, 7), (0, 7), (7, 8), (15, 8), (23, 7)]
    assert [usual.layers_of(rank)[1] for rank in (0, 2, 4, 6)] == [7, 7, 8, 8]
    shares = Plan(told, layout(layers=30), 64).writers(0)
    assert [(each.writer, each.src_layer, each.dst_layer, each.layers) for each in shares[::2]] == [
        (0, 0, 0, 7), (2, 0, 7, 8), (4, 0, 15, 8), (6, 0, 23, 7)
    ]  # fmt: skip
    between = Plan(told, usual, 64)
    assert [share.layers for share in between.writers(4)] == [1, 7]
    assert between.lead(4) == 4


def test_replicas_share_the_duties_and_stay_linked() -> None:
    subject = plan(8, 4, 2)  # four replicas of each of two heads, two readers of each
    assert [len(subject.duties(writer)) for writer in range(8)] == [1, 1, 0, 0, 1, 1, 0, 0]
    assert [subject.linked(writer) for writer in range(8)] == [(0, 1)] * 4 + [(2, 3)] * 4
    assert subject.linked_to(0) == subject.linked_to(1) == (0, 1, 2, 3)
    spread = Counter(share.writer for share in plan(4, 16, 1).shares)
    assert spread == {0: 4, 1: 4, 2: 4, 3: 4}


def test_the_lead_is_on_the_last_stage_that_writes_to_the_reader() -> None:
    assert plan(4, 2, 8).lead(1) == 2
    assert plan(2, 1, 8, pp_p=2).lead(0) == 2
    assert [plan(2, 1, 8, pp_p=2, pp_d=2).lead(reader) for reader in range(2)] == [0, 2]
    replicated = plan(8, 4, 2)
    assert [replicated.lead(reader) for reader in range(4)] == [0, 1, 4, 5]  # a replica with the duty, not the first


def test_parts_are_aligned_and_fill_the_grant() -> None:
    subject = plan(6, 4, 12, pp_p=2, k_dim=3, v_dim=2, itemsize=1)
    for reader in range(4):
        end = 0
        for share in subject.writers(reader):
            start = subject.part_offset(reader, share.writer, Cut(0, 7))
            assert start == -(-end // 256) * 256
            end = start + subject.part_bytes(share, Cut(0, 7))
            assert subject.part_bytes(share, Cut(0, 7)) == share.heads * share.layers * 7 * 5
        assert subject.grant_bytes(reader, Cut(0, 7)) == -(-end // 256) * 256


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (plan(2, 2, 8), True),
        (plan(2, 2, 8, pp_p=2), True),
        (plan(4, 2, 1, v_dim=0, k_dim=576), True),
        (plan(4, 2, 8), False),
        (Plan(layout(2), layout(2, order="HND"), 64), False),
        (Plan(layout(8), layout(8, order="HND"), 64), True),
        (Plan(layout(2, page_size=1), layout(2, page_size=1, order="HND"), 64), True),
        (Plan(layout(2, page_size=16), layout(2), 64), False),
    ],
    ids=["same", "same-but-stages", "one-latent-head", "tp-differs", "order", "one-head", "one-token", "page"],
)
def test_direct_is_whole_rows_in_equal_pages(subject: Plan, expected: bool) -> None:
    assert {subject.direct(share) for share in subject.shares} == {expected}


@pytest.mark.parametrize("order", ["NHD", "HND"])
def test_a_direct_share_goes_by_runs_of_whole_pages(order: str) -> None:
    subject = plan(2, 2, 8, order=order)
    page = 64 * 4 * 16 * 2
    table, other = [5, 6, 9, 2], [0, 1, 2, 7]
    _, src, _, dst, length = slices(subject, subject.shares[1], table, other, 0, 256)
    assert (src[:3] // page).tolist() == [5, 9, 2]
    assert (dst[:3] // page).tolist() == [0, 2, 7]
    assert (length[:3] // page).tolist() == [2, 1, 1]
    assert not np.any(np.concatenate((src, dst, length)) % page)


def test_regions_count_k_of_every_layer_then_v() -> None:
    subject = plan(1, 1, 8, pp_p=2)
    share = subject.share(1, 0)
    runs = list(descriptors(subject, share, [0], [0], 0, 1))
    assert [(run[0], run[2]) for run in runs] == [(1, 3), (2, 4), (3, 7), (4, 8)]
    subject = plan(1, 1, 8, pp_d=2)
    runs = list(descriptors(subject, subject.share(0, 1), [0], [0], 0, 1))
    assert [(run[0], run[2]) for run in runs] == [(3, 1), (4, 2), (7, 3), (8, 4)]


def test_a_walk_takes_in_one_piece_what_lies_together_on_both_sides() -> None:
    """Rows of 2 bytes in pages of 8 tokens (`single`: of 1): does a walk over heads go head by head?"""
    tokens, heads, single = Strides(64, 8, 2), Strides(64, 2, 16), Strides(8, 2, 2)
    for source, target, whole, by_head in (
        (tokens, tokens, True, (False, False)), (heads, heads, False, (True, True)),
        (tokens, heads, False, (False, False)), (heads, tokens, False, (False, False)),
        (single, single, True, (True, False)), (single, heads, False, (True, True)),
    ):  # fmt: skip
        form = Form(2, source, target)
        assert (form.whole, (form.by_head(1), form.by_head(4))) == (whole, by_head)


@pytest.mark.parametrize("order", ["NHD", "HND"])
def test_runs_may_begin_within_a_page(order: str) -> None:
    subject = Plan(layout(2, page_size=4, order=order), layout(4, page_size=8, order=order), 8)
    for first, tokens in ((1, 2), (3, 6), (5, 11)):
        given = (subject, subject.shares[1], [4, 1, 2, 7], [3, 0], first, tokens)
        assert [*zip(*(column.tolist() for column in slices(*given)), strict=True)] == list(descriptors(*given))


def test_a_cell_of_no_tokens_has_no_runs() -> None:
    subject = plan(4, 2, 8)
    assert list(descriptors(subject, subject.shares[0], [], [], 0, 0)) == []
    assert [len(column) for column in slices(subject, subject.shares[0], [], [], 0, 0)] == [0] * 5


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)])
def test_planes_of_one_block_join_in_whatever_order_they_lie(order: tuple[int, ...]) -> None:
    """K and V of two layers in blocks of all four planes: a page is one run, a row of pages is one, too."""
    side = layout(layers=2, heads=1, page_size=4)
    page = 4 * 16 * 2
    block = Placement((Strides(4 * page, 32, 32),) * 2, tuple((1, page * at) for at in order))
    subject = Plan(side, side, 8)
    given = (subject, subject.shares[0], [5, 7, 8], [0, 1, 2], 0, 12, block, block)
    runs = [(1, 20 * page, 1, 0, 4 * page), (1, 28 * page, 1, 4 * page, 8 * page)]
    assert list(descriptors(*given)) == runs
    assert [*zip(*(column.tolist() for column in slices(*given)), strict=True)] == runs
    assert pieces_of_pages(subject, subject.shares[0], 2, block, block) == 1


@pytest.mark.parametrize(
    "places",
    [
        ((1, 4096), (2, 64), (3, 0), (4, 8192)),
        ((1, 4096), (2, 64), (1, 0), (3, 128)),
        ((2, 0), (2, 64), (1, 0), (1, 999)),
    ],
    ids=["each alone", "two of them together", "in pairs"],
)  # fmt: skip
def test_planes_may_begin_anywhere_alone_or_together(places: tuple[tuple[int, int], ...]) -> None:
    """K and V of two layers and widths: a usual pool's runs, each plane's moved to its beginning."""
    side = layout(layers=2, heads=2, page_size=2, k_dim=4, v_dim=2)
    ours = Placement((Strides(10000, 16, 8), Strides(10000, 8, 4)), places)
    elsewhere = tuple((7 - region, 3 * at) for region, at in places)
    theirs = Placement((Strides(20000, 32, 8), Strides(20000, 16, 4)), elsewhere)
    subject = Plan(side, side, 2)
    given = (subject, subject.shares[0], [5, 7], [0, 1], 1, 3, ours, theirs)
    wanted = []
    for plane, ((source, src), (target, dst)) in enumerate(zip(ours.planes, theirs.planes, strict=True)):
        token = 16 if plane < 2 else 8
        wanted += [(source, src + 5 * 10000 + token, target, dst + 2 * token, token)]
        wanted += [(source, src + 7 * 10000 + at * token, target, dst + 20000 + at * 2 * token, token) for at in (0, 1)]
    assert sorted(descriptors(*given)) == sorted(wanted)
    assert [*zip(*(column.tolist() for column in slices(*given)), strict=True)] == list(descriptors(*given))


def test_no_room_has_more_groups_than_the_smallest_share_has_layers() -> None:
    def fewest(*stages: tuple[int, ...]) -> int:
        ours, theirs = (layout(layers=12, pp=len(each), stages=each) for each in stages)
        return Plan(ours, theirs, 64).fewest_layers

    assert (fewest((12,), (12,)), fewest((7, 5), (12,)), fewest((12,), (7, 5))) == (12, 5, 5)
    assert (fewest((7, 5), (4, 8)), fewest((4, 8), (7, 5)), fewest((2, 2, 8), (6, 6))) == (3, 3, 2)


def test_a_share_is_cut_by_its_layers_and_the_first_groups_are_the_larger_ones() -> None:
    share = Share(0, 0, 0, 0, 1, 3, 1, 5)
    for groups, layers in ((1, [5]), (2, [3, 2]), (3, [2, 2, 1]), (5, [1] * 5)):
        found = [layers_of(share, group, groups) for group in range(groups)]
        starts = [sum(layers[:group]) for group in range(groups)]
        assert [each.layers for each in found] == layers
        assert [(each.src_layer - 3, each.dst_layer - 1) for each in found] == [(at, at) for at in starts]
    subject = plan(1, 1, 8, pp_p=2, layers=12)  # shares of 6 layers
    for most, cuts in ((1, [1]), (3, [1, 2]), (4, [1, 2, 4]), (64, [1, 2, 4])):
        wanted = [[layers_of(each, at, of) for each in subject.shares] for of in cuts for at in range(of)]
        assert [*subject.cuts(subject.shares, most)] == wanted


def test_the_layout_needs_no_array_library() -> None:
    heavy = ("numpy", "torch", "zmq", "nixl")
    code = f"import sys, kvproto.layout.plan, kvproto.layout.byte_runs; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
