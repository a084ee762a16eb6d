"""Plans of any shape: every head, layer and token of every reader once; both run makers agree."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from caches_judge import FORMS, Case, Group, judge
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproto.layout.byte_runs import descriptors, pieces_of_pages
from kvproto.layout.byte_runs_numpy import slices
from kvproto.layout.cut import Cut, chunks, cut_at
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout, align_chunk_tokens


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
