"""Plans of any shape: every head, layer and token once; the field's hazards, planted, are noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from caches_judge import FORMS, Case, Group, judge
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproto.layout import byte_runs, contacts, cut
from kvproto.layout import byte_runs_numpy as slicing
from kvproto.layout.byte_runs import descriptors, pieces_of_pages
from kvproto.layout.byte_runs_numpy import slices
from kvproto.layout.contacts import Contacts
from kvproto.layout.cut import Cut, chunks, cut_at
from kvproto.layout.placement import Placement, dense
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout, LayoutError, align_chunk_tokens


@st.composite
def layouts(draw: st.DrawFn, model: dict[str, Any]) -> Layout:
    heads = model["heads"]
    tp = draw(st.sampled_from([tp for tp in range(1, 13) if heads % tp == 0 or tp % heads == 0]))
    pp = draw(st.integers(1, min(model["layers"], 3 if tp < 5 else 1)))
    cuts = sorted(draw(st.permutations(range(1, model["layers"])))[: pp - 1])
    stages = tuple(b - a for a, b in pairwise([0, *cuts, model["layers"]]))
    return Layout(
        **model,
        dtype="bits",
        page_size=draw(st.sampled_from([1, 2, 3, 4, 8])),
        tp=tp,
        pp=pp,
        order=draw(st.sampled_from(["NHD", "HND"])),
        stages=draw(st.sampled_from([(), stages])),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    model = {
        "layers": draw(st.integers(1, 4)),
        "heads": draw(st.sampled_from([1, 2, 3, 4, 6, 12])),
        "k_dim": draw(st.integers(1, 3)),
        "v_dim": draw(st.integers(0, 3)),
        "itemsize": draw(st.sampled_from([1, 2, 4])),
    }
    prefill, decode = draw(layouts(model)), draw(layouts(model))
    chunk_tokens = align_chunk_tokens(draw(st.integers(1, 16)), prefill.page_size, decode.page_size)
    prefix = draw(st.integers(0, 3)) * decode.page_size
    forms = draw(st.sampled_from(sorted(FORMS))), draw(st.sampled_from(sorted(FORMS)))
    return Case(
        prefill, decode, chunk_tokens, prefix + draw(st.integers(0, 20)), prefix, 1, draw(st.integers(0, 99)), forms
    )


@settings(max_examples=120, deadline=None)
@given(cases())
def test_every_byte_of_every_reader_once_and_nothing_else(case: Case) -> None:
    judge(case)


@settings(max_examples=120, deadline=None)
@given(cases())
def test_numpy_and_plain_python_agree_and_no_join_is_missed(case: Case) -> None:
    random = np.random.default_rng(case.seed)
    sides = zip((case.prefill, case.decode), case.forms, strict=True)
    groups = [Group(side, case.tokens, random, form) for side, form in sides]
    source, target = (group.table for group in groups)
    if case.seed % 2:
        source, target = np.sort(source), np.sort(target)
    plan = Plan(case.prefill, case.decode, case.chunk_tokens)
    for k in range(chunks(case.tokens, case.prefix, case.chunk_tokens)):
        cut = cut_at(k, case.tokens, case.prefix, case.chunk_tokens)
        cell = cut.first, cut.tokens
        for share in plan.shares:
            places = groups[0].placement(share.writer, plan), groups[1].placement(share.reader, plan)
            runs = list(descriptors(plan, share, source.tolist(), target.tolist(), *cell, *places))
            columns = slices(plan, share, source, target, *cell, *places)
            assert all(column.dtype == np.uint64 and column.flags.c_contiguous for column in columns)
            assert list(zip(*(column.tolist() for column in columns), strict=True)) == runs
            assert sum(run[4] for run in runs) == plan.part_bytes(share, Cut(0, cell[1]))
            assert not any(
                (a[0], a[1] + a[4], a[2], a[3] + a[4]) == (b[0], b[1], b[2], b[3]) for a, b in pairwise(runs)
            )


@settings(max_examples=120, deadline=None)
@given(cases(), st.integers(1, 3))
def test_pieces_of_neighbouring_pages_are_counted_as_they_are_written(case: Case, pages: int) -> None:
    plan, random = Plan(case.prefill, case.decode, case.chunk_tokens), np.random.default_rng(case.seed)
    tokens = pages * min(case.prefill.page_size, case.decode.page_size)
    sides = zip((case.prefill, case.decode), case.forms, strict=True)
    ours, theirs = (Group(side, tokens, random, form) for side, form in sides)
    for share in plan.shares:
        places = ours.placement(share.writer, plan), theirs.placement(share.reader, plan)
        runs = list(descriptors(plan, share, range(pages), range(pages), 0, tokens, *places))
        assert pieces_of_pages(plan, share, pages, *places) == len(runs)


@settings(max_examples=120, deadline=None)
@given(cases())
def test_where_pages_ascend_runs_of_dense_pools_are_as_few_as_their_bytes_allow(case: Case) -> None:
    """A plane's sorted pieces stand side by side if they adjoin on both sides; no more can be joined."""
    random = np.random.default_rng(case.seed)
    source, target = (np.sort(Group(side, case.tokens, random).table).tolist() for side in (case.prefill, case.decode))
    plan = Plan(case.prefill, case.decode, case.chunk_tokens)
    for share in plan.shares:
        runs = list(descriptors(plan, share, source, target, case.prefix, case.tokens - case.prefix))
        apart = sorted(runs)
        assert not any((a[0], a[1] + a[4], a[2], a[3] + a[4]) == (b[0], b[1], b[2], b[3]) for a, b in pairwise(apart))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_what_a_plan_answers_is_one_relation_seen_from_both_ends(case: Case) -> None:
    plan = Plan(case.prefill, case.decode, case.chunk_tokens)
    ours, theirs = range(case.prefill.ranks), range(case.decode.ranks)
    assert plan.shares == tuple(share for reader in theirs for share in plan.writers(reader))
    assert sorted(plan.shares, key=hash) == sorted((s for writer in ours for s in plan.duties(writer)), key=hash)
    for writer in ours:
        linked = tuple(reader for reader in theirs if plan.overlap(writer, reader))
        assert plan.linked(writer) == linked
        assert {share.reader for share in plan.duties(writer)} <= set(linked)
        for share in plan.duties(writer):
            assert plan.share(writer, share.reader) == plan.overlap(writer, share.reader) == share
    for reader in theirs:
        assert plan.linked_to(reader) == tuple(writer for writer in ours if reader in plan.linked(writer))
        assert plan.lead(reader) in {share.writer for share in plan.writers(reader)}
    for replica, other in pairwise(ours):
        if plan.prefill.heads_of(replica) == plan.prefill.heads_of(other) and (replica + 1) % case.prefill.tp:
            assert len(plan.duties(replica)) - len(plan.duties(other)) in (0, 1)


MODEL: dict[str, Any] = {
    "layers": 3, "heads": 4, "k_dim": 3, "v_dim": 3, "itemsize": 1, "dtype": "bits", "page_size": 2
}  # fmt: skip


def case_of(tp_p: int, tp_d: int, pp_p: int = 1, prefix: int = 0, **model: int) -> Case:
    base = MODEL | model
    return Case(Layout(**base, tp=tp_p, pp=pp_p), Layout(**base, tp=tp_d), chunk_tokens=8, tokens=14, prefix=prefix)


def rejects(case: Case, plant: Callable[[], None], words: str | None = None) -> None:
    judge(case)
    plant()
    with pytest.raises((AssertionError, LayoutError), match=words):
        judge(case)


@pytest.mark.parametrize("tps", [(4, 1), (1, 4)], ids=["writers", "readers"])
def test_replica_modulo(monkeypatch: pytest.MonkeyPatch, tps: tuple[int, int]) -> None:
    """Replicated heads dealt out by modulo instead of to consecutive ranks."""

    def heads_of(self: Layout, rank: int) -> tuple[int, int]:
        return (rank % self.tp % self.heads, 1) if self.tp > self.heads else heads_in_turn(self, rank)

    heads_in_turn = Layout.heads_of

    rejects(case_of(*tps, heads=2), lambda: monkeypatch.setattr(Layout, "heads_of", heads_of))


def test_heads_overestimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """All heads taken for heads a rank x tp, although ranks are replicas."""

    def heads_of(self: Layout, rank: int) -> tuple[int, int]:
        return rank % self.tp * self.local_heads, self.local_heads

    rejects(case_of(4, 1, heads=2), lambda: monkeypatch.setattr(Layout, "heads_of", heads_of))


def test_heads_overestimated_is_refused_in_the_handshake() -> None:
    told, true = case_of(4, 1, heads=4).prefill, case_of(4, 1, heads=2).decode
    with pytest.raises(LayoutError, match="heads-differ"):
        Plan(told, true, 8)


def test_global_rank_offset_of_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head block taken from the rank's index in the group, not from its place in the stage."""

    def heads_of(self: Layout, rank: int) -> tuple[int, int]:
        return rank * self.local_heads, self.local_heads

    rejects(case_of(2, 1, pp_p=2), lambda: monkeypatch.setattr(Layout, "heads_of", heads_of))


def test_global_rank_offset_beyond_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets into a pool counted from the model's first head, not from the rank's."""

    def common(ours: tuple[int, int], theirs: tuple[int, int]) -> tuple[int, int, int]:
        first = max(ours[0], theirs[0])
        return first, first, min(sum(ours), sum(theirs)) - first

    rejects(case_of(2, 4), lambda: monkeypatch.setattr(contacts, "common", common))


@pytest.mark.parametrize("v_dim", [0, 2, 5])
def test_kv_asymmetric_heads_in_parts(monkeypatch: pytest.MonkeyPatch, v_dim: int) -> None:
    """V staged as if it had K's head size."""
    symmetric = property(lambda self: 2 * self.k_dim * self.itemsize)
    rejects(case_of(2, 1, v_dim=v_dim), lambda: monkeypatch.setattr(Layout, "cell_bytes", symmetric), "a part")


@pytest.mark.parametrize("v_dim", [0, 2, 5])
def test_kv_asymmetric_heads_in_runs(monkeypatch: pytest.MonkeyPatch, v_dim: int) -> None:
    """V written page to page as if it had K's head size."""

    def dense_of(side: Layout, rank: int) -> Placement:
        return dense(msgspec.structs.replace(side, v_dim=side.k_dim), rank)

    def symmetric(cut: Plan) -> Plan:
        prefill, decode = (msgspec.structs.replace(side, v_dim=side.k_dim) for side in (cut.prefill, cut.decode))
        return Plan(prefill, decode, cut.chunk_tokens)

    def plant() -> None:
        monkeypatch.setattr(slicing, "forms", lambda cut, *rest: byte_runs.forms(symmetric(cut), *rest))
        monkeypatch.setattr(slicing, "planes", lambda cut, *rest: byte_runs.planes(symmetric(cut), *rest))
        monkeypatch.setattr(slicing, "dense", dense_of)

    rejects(case_of(2, 1, v_dim=v_dim), plant)


def test_non_integer_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """6 ranks serve 4 as if the ratio, 1.5, were 1."""

    def owed_to(self: Contacts, reader: int) -> Iterator[Share]:
        prefill = self.prefill.layout
        ratio, heads = prefill.tp // self.decode.layout.tp, prefill.local_heads
        for turn in range(ratio):
            yield Share(reader * ratio + turn, reader, 0, turn * heads, heads, 0, 0, prefill.layers)

    rejects(case_of(6, 4, heads=12), lambda: monkeypatch.setattr(Contacts, "owed_to", owed_to))


def test_misaligned_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells cut at multiples of the chunk size although the room begins at its prefix."""

    def on_grid(k: int, tokens: int, prefix: int, chunk_tokens: int, groups: int) -> Cut:
        first = max(prefix, (prefix // chunk_tokens + k) * chunk_tokens)
        return Cut(first, min(tokens, (first // chunk_tokens + 1) * chunk_tokens) - first)

    rejects(case_of(2, 1, prefix=6), lambda: monkeypatch.setattr(cut, "cut_at", on_grid))
