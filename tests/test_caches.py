"""Named caches in one page table: every byte once; both sides agree by name; replicas share."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import msgspec
import numpy as np
import pytest
from caches_judge import FORMS, Case, Group, judge
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproto.layout.byte_runs import descriptors
from kvproto.layout.byte_runs_numpy import slices
from kvproto.layout.caches import END, WINDOW, Cache, CachePart, wrong_caches
from kvproto.layout.contacts import Piece
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout, LayoutError, align_chunk_tokens
from kvproto.layout.shared_caches import SharedCaches
from kvproto.observe.rank_traces import TELLING
from kvproto.protocol.messages import Hello

#: a latent with the key and the scale of an index beside it, and the KV of a draft model on the last layer
LATENT = Cache("latent", (CachePart("latent", 1, 656),), dtype="fp8_ds_mla")
INDEX = Cache("index", (CachePart("key", 1, 128), CachePart("scale", 1, 4)), tuple(range(0, 61, 2)), "uint8")
DRAFT = Cache("draft", (CachePart("k", 8, 256), CachePart("v", 8, 192)), (60,), "bfloat16")


def of(*caches: Cache, tp: int = 1, layers: int = 61, **more: Any) -> Layout:
    return Layout.of_caches(caches, layers=layers, page_size=64, tp=tp, **more)


@st.composite
def caches(draw: st.DrawFn, layers: int) -> list[Cache]:
    """Caches whose layers together are all of the model's, so that any stages will do."""
    found, left = [], set(range(layers))
    for number in range(draw(st.integers(1, 3))):
        held = draw(st.sets(st.integers(0, layers - 1), min_size=1))
        left -= held
        parts = draw(st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 9)), min_size=1, max_size=3))
        named = tuple(CachePart(f"part {at}", *form) for at, form in enumerate(parts))
        found.append(Cache(f"cache {number}", named, tuple(sorted(held)), "bits"))
    if left:
        found.append(Cache("others", (CachePart("row", draw(st.sampled_from([1, 2])), 16),), tuple(sorted(left))))
    return found


@st.composite
def layouts(draw: st.DrawFn, found: list[Cache], layers: int) -> Layout:
    pp = draw(st.integers(1, min(layers, 3)))
    cuts = sorted(draw(st.permutations(range(1, layers)))[: pp - 1])
    return Layout.of_caches(
        draw(st.permutations(found)), layers=layers, page_size=draw(st.sampled_from([1, 2, 4])),
        tp=draw(st.sampled_from([1, 2, 4])), pp=pp, order=draw(st.sampled_from(["NHD", "HND"])),
        stages=draw(st.sampled_from([(), tuple(b - a for a, b in pairwise([0, *cuts, layers]))])),
    )  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> Case:
    layers = draw(st.integers(1, 6))
    found = draw(caches(layers))
    prefill, decode = draw(layouts(found, layers)), draw(layouts(found, layers))
    chunk_tokens = align_chunk_tokens(draw(st.integers(1, 8)), prefill.page_size, decode.page_size)
    prefix = draw(st.integers(0, 2)) * decode.page_size
    groups = draw(st.integers(1, Plan(prefill, decode, chunk_tokens).fewest_layers))
    return Case(
        prefill, decode, chunk_tokens, prefix + draw(st.integers(1, 9)), prefix, groups, draw(st.integers(0, 99)),
        (draw(st.sampled_from(FORMS[:2])), draw(st.sampled_from(FORMS[:2]))),
    )  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(cases())
def test_every_byte_of_every_reader_once_and_nothing_else(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize(("groups", "tp", "pp"), [(2, (1, 1), (1, 1)), (3, (2, 4), (1, 1)), (2, (4, 1), (2, 1))])
def test_every_byte_once_in_groups_of_layers(groups: int, tp: tuple[int, int], pp: tuple[int, int]) -> None:
    every, some = Cache("every", (CachePart("k", 2, 6), CachePart("v", 2, 4))), (0, 1, 3, 4, 5, 7, 8)
    found = every, Cache("some", (CachePart("row", 1, 5),), some), Cache("draft", (CachePart("k", 4, 2),), (8,))
    sides = [Layout.of_caches(found, layers=9, page_size=2, tp=each, pp=stages)
             for each, stages in zip(tp, pp, strict=True)]  # fmt: skip
    assert Plan(sides[0], sides[1], 4).fewest_layers >= groups
    judge(Case(sides[0], sides[1], 4, 7, 2, groups))


@settings(max_examples=30, deadline=None)
@given(cases())
def test_numpy_and_plain_python_agree(case: Case) -> None:
    random = np.random.default_rng(case.seed)
    groups = [Group(side, case.tokens, random, form)
              for side, form in zip((case.prefill, case.decode), case.forms, strict=True)]  # fmt: skip
    plan, (ours, theirs) = Plan(case.prefill, case.decode, case.chunk_tokens), [group.table for group in groups]
    for share in plan.shares:
        places = groups[0].placement(share.writer, plan), groups[1].placement(share.reader, plan)
        found = list(descriptors(plan, share, ours.tolist(), theirs.tolist(), 0, case.tokens, *places))
        columns = slices(plan, share, ours, theirs, 0, case.tokens, *places)
        assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == sorted(found)


@settings(max_examples=30, deadline=None)
@given(cases())
def test_both_ends_find_the_same_shares_and_a_lead_on_the_last_stage(case: Case) -> None:
    plan = Plan(case.prefill, case.decode, case.chunk_tokens)
    by_writer = [share for writer in range(case.prefill.ranks) for share in plan.duties(writer)]
    assert sorted(by_writer, key=lambda share: (share.reader, share.writer)) == list(plan.shares)
    for reader in range(case.decode.ranks):
        writers = [share.writer for share in plan.writers(reader)]
        assert set(writers) <= set(plan.linked_to(reader))
        lead = plan.lead(reader)
        assert lead in writers and lead // case.prefill.tp == max(writers) // case.prefill.tp
    for writer, reader in product(range(case.prefill.ranks), range(case.decode.ranks)):
        assert (reader in plan.linked(writer)) == (writer in plan.linked_to(reader))


def test_a_cache_of_k_and_v_is_cut_as_a_layout_without_names_is() -> None:
    named = Cache("kv", (CachePart("k", 8, 256), CachePart("v", 8, 128)))
    for ours, theirs, pp in ((1, 8, 1), (4, 2, 2), (2, 2, 3), (8, 4, 1)):
        sides = (ours, pp), (theirs, 1)
        plain = [Layout(6, 8, 128, 64, 2, "bfloat16", 64, tp, stages) for tp, stages in sides]
        caches = [of(named, tp=tp, layers=6, pp=stages) for tp, stages in sides]
        one, other = (Plan(pair[0], pair[1], 512) for pair in (plain, caches))
        assert [(share.writer, share.reader) for share in one.shares] == [(s.writer, s.reader) for s in other.shares]
        for share, twin in zip(one.shares, other.shares, strict=True):
            assert [msgspec.structs.replace(piece, depths=()) for piece in twin.pieces] == [share.piece(0)] * 2
            assert one.part_bytes(share, Cut(0, 100)) == other.part_bytes(twin, Cut(0, 100))
            begins = [plan.part_offset(share.reader, share.writer, Cut(0, 100)) for plan in (one, other)]
            assert begins[0] == begins[1]
        assert [one.lead(reader) for reader in range(theirs)] == [other.lead(reader) for reader in range(theirs)]


def test_a_layout_without_names_says_nothing_of_caches_on_the_wire() -> None:
    plain = Layout(2, 4, 8, 8, 2, "bfloat16", 16, 1)
    fields = ["layers", "heads", "k_dim", "v_dim", "itemsize", "dtype", "page_size", "tp", "pp", "order", "stages"]
    assert list(msgspec.msgpack.decode(msgspec.msgpack.encode(plain))) == fields
    caches = of(LATENT, INDEX, tp=4)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(caches), type=Layout) == caches


@pytest.mark.parametrize("layout", [Layout(2, 4, 8, 8, 2, "bfloat16", 16, 1), of(LATENT, INDEX)])
def test_a_trace_has_the_caches_of_a_call_and_reads_them_back(layout: Layout) -> None:
    call = Hello(1, "digest", 2, 3, 0, layout, 64, 1.0, b"")
    written = TELLING.json.plain(call)
    assert isinstance(written, dict) and isinstance(told := written["layout"], dict)
    assert ("caches" in told) is bool(layout.named)
    assert TELLING.json.struct(Hello, written) == call


def test_widely_aligned_rows_come_first_in_a_part_so_that_every_kind_begins_aligned() -> None:
    one, other = of(LATENT, INDEX, DRAFT), of(DRAFT, INDEX, LATENT)
    assert [kind.name for kind in one.kinds] == [kind.name for kind in other.kinds]
    assert [kind.row % 16 for kind in one.kinds] == [0, 0, 0, 0, 4]


#: MB that each of eight prefill ranks sends to one decode rank for 8,192 tokens
def sent(layout: Layout, decode: Layout) -> list[float]:
    plan = Plan(layout, decode, 512)
    room = Cut(0, 8192)
    return [sum(plan.part_bytes(share, room) for share in plan.duties(writer)) / 1e6 for writer in range(layout.ranks)]


def test_replicas_share_the_layers_of_a_cache() -> None:
    everywhere = Cache("index", INDEX.parts, dtype="uint8")
    loads = sent(of(LATENT, everywhere, tp=8), of(LATENT, everywhere))
    assert sum(loads) == pytest.approx(61 * (656 + 132) * 8192 / 1e6)
    assert min(loads) > 45
    assert max(loads) < 52
    assert max(loads) <= 1.1 * sum(loads) / 8
    heads = Cache("kv", (CachePart("k", 2, 256), CachePart("v", 2, 256)), tuple(range(3, 60, 4)))
    loads = sent(of(heads, tp=4, layers=60), of(heads, layers=60))
    assert max(loads) <= 1.1 * sum(loads) / 4


def test_the_smallest_share_is_of_the_reader_with_most_writers() -> None:
    """The middle one of three ranks overlaps three of five, and each of the others two."""
    plan = Plan(of(LATENT, tp=5, layers=6), of(LATENT, tp=3, layers=6), 512)
    assert [len(plan.writers(reader)) for reader in range(3)] == [2, 3, 2]
    assert plan.fewest_layers == min(share.layers for share in plan.shares) == 2


HEADS = Cache("kv", (CachePart("k", 8, 256),))
#: of twelve layers all but two, which are what the second stage of two and the first two of three have in common
GAPS = msgspec.structs.replace(HEADS, layers=(0, 1, 2, 3, 6, 7, 8, 9, 10, 11))


@pytest.mark.parametrize(
    ("cache", "layers", "tp", "pp", "fewest"),
    [
        (HEADS, 6, (8, 1), (1, 1), 6), (HEADS, 6, (4, 1), (1, 1), 6), (LATENT, 2, (5, 3), (1, 1), 1),
        (LATENT, 6, (4, 1), (1, 1), 1), (GAPS, 12, (1, 1), (2, 3), 2),
    ],
)  # fmt: skip
def test_layers_of_the_smallest_share(
    cache: Cache, layers: int, tp: tuple[int, int], pp: tuple[int, int], fewest: int
) -> None:
    sides = [of(cache, layers=layers, tp=each, pp=stages) for each, stages in zip(tp, pp, strict=True)]
    assert Plan(sides[0], sides[1], 512).fewest_layers == fewest


def test_what_two_ranks_have_in_common_is_told_by_its_pieces() -> None:
    shared = SharedCaches(of(HEADS, layers=6, tp=4), of(HEADS, layers=6, tp=2, pp=2))
    for writer in (0, 1):  # two units before those of the reader, or just before them
        assert shared.meet(writer, 1) == Share(writer, 1, 0, 0, 0, 0, 0, 0, (Piece(),)), "nothing"
    stages = SharedCaches(of(HEADS, layers=6, pp=3), of(HEADS, layers=6, pp=3))
    assert stages.meet(0, 2) == Share(0, 2, 0, 0, 0, 0, 0, 0, (Piece(),)), "no layer"
    found = SharedCaches(of(HEADS, layers=6, pp=3), of(HEADS, layers=6)).meet(2, 0)
    assert (found.src_layer, found.dst_layer, found.layers) == (0, 4, 2)
    found = shared.meet(2, 3)
    assert found == Share(2, 3, 0, 0, 0, 3, 0, 3, (Piece(0, 0, 2, 3, 0, 3, (3, 4, 5)),))


def test_the_larger_blocks_of_layers_move_on_with_the_reader() -> None:
    plan = Plan(of(LATENT, tp=8), of(LATENT, tp=8), 512)
    loads = [sum(share.layers for share in plan.duties(writer)) for writer in range(8)]
    assert loads == [61] * 8


def test_which_replica_writes_which_layers_is_the_same_in_every_build() -> None:
    """Both ends of a link compute it, perhaps by different builds."""
    plan = Plan(of(LATENT, tp=6, layers=6), of(LATENT, tp=2, layers=6), 512)
    blocks = {(share.writer, share.reader): share.pieces[0].depths for share in plan.shares}
    assert blocks == {
        (0, 0): (0, 1), (1, 0): (2, 3), (2, 0): (4, 5), (3, 1): (2, 3), (4, 1): (4, 5), (5, 1): (0, 1),
    }  # fmt: skip
    assert (both := plan.overlap(4, 1)) is not None and both.layers == 6, "whichever replica writes it"


def test_a_part_that_every_rank_holds_adds_no_writer_to_a_reader() -> None:
    """Else B and C of one group would come to each rank from all others, too."""
    mixed = Cache("mixed", (CachePart("k", 8, 256), CachePart("b", 1, 256)))
    for ours, theirs, fan_in in ((8, 8, 1), (8, 2, 4), (8, 1, 8), (2, 8, 1), (4, 2, 2)):
        for cache in (mixed, LATENT):
            plan = Plan(of(cache, tp=ours), of(cache, tp=theirs), 512)
            assert {len(plan.writers(reader)) for reader in range(theirs)} == {fan_in}
            loads = [sum(share.layers for share in plan.duties(writer)) for writer in range(ours)]
            assert min(loads) > 0
            assert {len(plan.linked_to(reader)) for reader in range(theirs)} == {fan_in}


ONE = (CachePart("a", 1, 1),)
REFUSED = [
    ((), "0 caches; a layout names from 1 to 16"),
    ((LATENT, LATENT), "two caches have one name"),
    (tuple(Cache(f"{n}", (CachePart("a", 1, 1), CachePart("b", 1, 1))) for n in range(9)), "18 parts in all caches"),
    ((Cache("x", ()),), "cache 'x': its parts are named []"),
    ((Cache("", (CachePart("a", 1, 1),)),), "each with a name of its own"),
    ((Cache("x", (CachePart("a", 1, 1), CachePart("a", 2, 1))),), "each with a name of its own"),
    ((Cache("x", (CachePart("a", 1, 1),), travels="512"),), "it travels '512'; all tokens do"),
    ((Cache("x", (CachePart("a", 1, 1),), (3, 3)),), "they must be a tuple of ascending numbers below the model's 61"),
    ((Cache("x", (CachePart("a", 1, 1),), (60, 61)),), "must be a tuple of ascending numbers"),
    *(((Cache("x", ONE, held),), "must be a tuple of ascending numbers")  # type: ignore[arg-type]
      for held in ([0, 1], (False, 1), (0, "1"), 7)),
    ((Cache("x", (CachePart("a", 0, 1),)),), "part 'a' has 0 units of 1 bytes, out of bounds"),
    ((Cache("x", (CachePart("a", True, 1),)),), "out of bounds"),
    ((LATENT, "index"), "it must be a tuple of Cache"),
    *(((Cache("x", ONE, groups=groups),), f"it has {groups} groups; there are 1 to 1,") for groups in (0, 2, True)),
    *(((Cache("x", ONE, (), "", END, groups=groups),), "groups; there are 1 to 64,") for groups in (0, 65)),
    ((Cache("x", ONE, window=1),), "its window has 1 tokens; where 'all' travels it has 0 to 0"),
    *(((Cache("x", ONE, (), "", WINDOW, window=window),), "where 'window' travels it has 1 to 16777216")
      for window in (0, True, (1 << 24) + 1)),
    ((DRAFT,), "no cache has a layer of stage 0 (0..29)"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "why"), REFUSED)
def test_caches_refused_by_name(found: tuple[Any, ...], why: str) -> None:
    with pytest.raises(LayoutError) as refused:
        of(*found, pp=2)
    assert refused.value.reason == "bad-caches" and why in refused.value.sentence


def test_a_layout_names_as_many_caches_and_parts_as_there_may_be() -> None:
    assert len(of(*(Cache(f"{n}", ONE) for n in range(16))).kinds) == 16
    with pytest.raises(LayoutError, match="17 caches; a layout names from 1 to 16"):
        of(*(Cache(f"{n}", ONE) for n in range(17)))
    assert wrong_caches((Cache("x", ONE, (), "", END, groups=64),), 61) == ""
    assert wrong_caches((Cache("x", ONE, (), "", WINDOW, window=1 << 24),), 61) == ""
    assert wrong_caches((Cache("x", (CachePart("a", 1 << 16, 1 << 24),)),), 61) == ""


def test_of_several_faults_that_of_a_cache_is_named_before_that_of_all() -> None:
    found = Cache("x", (), (), "", END), Cache("y", ONE, (), "", END, groups=2)
    assert "cache 'x': its parts are named []" in wrong_caches(found, 61)
    assert "its groups differ (z in 1, y in 2)" in wrong_caches((Cache("z", ONE, (), "", END), found[1]), 61)


def test_a_list_is_no_tuple_of_caches() -> None:
    assert "it must be a tuple of Cache" in wrong_caches([LATENT], 61)


def test_units_that_tp_does_not_divide_are_refused_by_the_part_s_name() -> None:
    with pytest.raises(LayoutError, match=r"heads-do-not-divide: 8 units of draft.k on tp 3"):
        of(LATENT, DRAFT, tp=3)


def test_heads_beside_caches_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"use Layout\.of_caches"):
        Layout(61, 8, 128, 128, 2, "bfloat16", 64, 1, caches=(LATENT,))


DIFFER = [
    ((LATENT, DRAFT), (LATENT,), "cache 'draft' is on the prefill side only"),
    ((LATENT,), (LATENT, DRAFT), "cache 'draft' is on the decode side only"),
    ((LATENT,), (msgspec.structs.replace(LATENT, dtype="bf16"),),
     "cache 'latent': dtype is fp8_ds_mla on the prefill side and bf16 on the decode side"),
    ((INDEX,), (msgspec.structs.replace(INDEX, layers=()),), "cache 'index': layers is (0, 2,"),
    ((DRAFT,), (msgspec.structs.replace(DRAFT, parts=DRAFT.parts[:1]),),
     "part 'v' is 8 units of 192 bytes on the prefill side and missing on the decode side"),
    ((LATENT,), (Cache("latent", (CachePart("latent", 1, 576),), dtype="fp8_ds_mla"),),
     "part 'latent' is 1 units of 656 bytes on the prefill side and 1 units of 576 bytes on the decode side"),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "why"), DIFFER)
def test_sides_whose_caches_differ_refuse_each_other_by_name(
    ours: tuple[Cache, ...], theirs: tuple[Cache, ...], why: str
) -> None:
    with pytest.raises(LayoutError) as refused:
        Plan(of(*ours), of(*theirs), 512)
    assert refused.value.reason == "caches-differ" and why in refused.value.sentence


def test_named_caches_and_a_layout_of_k_and_v_refuse_each_other() -> None:
    plain = Layout(61, 1, 656, 0, 1, "fp8_ds_mla", 64, 1)
    with pytest.raises(LayoutError, match="only the prefill side names its caches"):
        Plan(of(LATENT), plain, 512)
    with pytest.raises(LayoutError, match="only the decode side names its caches"):
        Plan(plain, of(LATENT), 512)


def test_a_layout_without_named_caches_has_the_parts_k_and_v_of_one() -> None:
    held = Layout(layers=2, heads=4, k_dim=8, v_dim=16, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
    assert [(each.name, each.units, each.row) for each in held.kinds] == [("kv.k", 4, 16), ("kv.v", 4, 32)]
