"""State at the end: chunks of its own behind the tokens', each segment cut by itself, every byte once."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import recurrence
import torch
from caches_judge import Group, by_staging, held_units, parts_of
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrence import DELTA as DELTA_STATE
from recurrence import MAMBA as MAMBA_STATE
from recurrence import Recurrence, whole

from kvproto.io.kernels.base import KernelError
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.io.kernels.torch import TorchKernels
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.cut import Cut, chunks, cut_at
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout, LayoutError

#: of six layers: full attention on two, a latent of a draft on the last; Mamba2 with one group (B and C are on every
#: rank) and gated delta nets beside it, as a model of both would have them
FULL = Cache("full", (CachePart("k", 2, 16), CachePart("v", 2, 24)), (1, 3))
DRAFT = Cache("draft", (CachePart("latent", 1, 36),), (5,))
MAMBA = (CachePart("x", 4, 12), CachePart("B", 1, 6), CachePart("C", 1, 6), CachePart("ssm", 4, 64))
DELTA = (CachePart("q", 2, 6), CachePart("k", 2, 6), CachePart("v", 8, 6), CachePart("heads", 8, 32))
LAYERS, CHUNK = 6, 8


def state(layers: tuple[int, ...], parts: tuple[CachePart, ...] = MAMBA + DELTA) -> Cache:
    return Cache("state", parts, layers, "bfloat16 and float32", END)


def of(*caches: Cache, tp: int = 1, pp: int = 1, **more: Any) -> Layout:
    return Layout.of_caches(caches, layers=LAYERS, page_size=more.pop("page_size", 4), tp=tp, pp=pp, **more)


#: layers with state: a stage of two has none, or nothing else, or both have both
HELD = [(0, 2, 4), (0,), (3, 4), (0, 1, 2, 3, 4, 5)]


@st.composite
def sides(draw: st.DrawFn) -> tuple[Layout, Layout]:
    held = draw(st.sampled_from(HELD))
    cuts = [draw(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3]))) for _ in range(2)]
    tokens = [Cache("full", FULL.parts, draw(st.sampled_from([(1, 3), (0, 2, 5), (1, 2, 3, 4, 5)]))), DRAFT]
    free = sorted(set(range(LAYERS)) - {layer for cache in tokens for layer in cache.layers} - set(held))
    tokens[1] = Cache("draft", DRAFT.parts, tuple(sorted({5, *free})))  # so that every layer has something
    caches, pages = draw(st.permutations([*tokens, state(held)])), st.sampled_from([1, 2, 4])
    one, other = (of(*caches, tp=tp, pp=pp, page_size=draw(pages)) for tp, pp in cuts)
    return one, other


def move(plan: Plan, tokens: int, prefix: int, groups: int, state_groups: int) -> int:
    """Move a room chunk by chunk; check every byte of every decode pool, and return the bytes that moved."""
    random = np.random.default_rng(tokens)
    pairs = {False: (plan.prefill, plan.decode, tokens), True: (plan.prefill.state, plan.decode.state, 1)}
    pools, truths, moved = {}, {}, 0
    for kind, (ours, theirs, rows) in pairs.items():
        assert ours is not None and theirs is not None
        held = {(cache.name, part.name) for cache in ours.named if kind or cache.travels != END for part in cache.parts}
        truths[kind] = {
            name: random.integers(0, 256, (len(layers), rows, units, row), np.uint8)
            for name, (units, row, layers) in parts_of(ours).items() if name in held
        }  # fmt: skip
        pools[kind] = [Group(side, rows, random) for side in (ours, theirs)]
        for group in pools[kind]:
            group.parts = {name: form for name, form in group.parts.items() if name in held}
            for pool in group.ranks:
                pool.planes = {name: planes for name, planes in pool.planes.items() if name in held}
        pools[kind][0].fill(truths[kind], 0, rows)
    kept = {kind: pair[1].bytes() for kind, pair in pools.items()}
    for k in range(chunks(tokens, prefix, plan.chunk_tokens, groups, state_groups)):
        cut = cut_at(k, tokens, prefix, plan.chunk_tokens, groups, state_groups)
        cell = (0, 1) if cut.state else (cut.first, cut.tokens)
        for reader in range(plan.decode.ranks):
            end = 0
            for share in plan.of(cut).writers(reader):
                assert reader in plan.linked(share.writer) and share.writer in plan.linked_to(reader)
                part = plan.part(share.writer, reader, cut)
                assert part.offset >= end and part.offset % 256 == 0 and part.nbytes > 0
                end = part.offset + part.nbytes
                assert part.offset == plan.part_offset(reader, share.writer, cut)
                assert part.nbytes == plan.part_bytes(part.share, cut)
                prefill, decode = pools[cut.state]
                moved += by_staging(plan.of(cut), part.share, cell, prefill, decode, part.nbytes)
            assert end <= plan.grant_bytes(reader, cut) < end + 256
    for kind, (_, decode) in pools.items():
        arrived = decode.bytes()
        for region, before in zip((r for pool in decode.ranks for r in pool.regions), kept[kind], strict=True):
            region[:] = before
        decode.fill(truths[kind], 0 if kind else prefix, 1 if kind else tokens)
        assert all(np.array_equal(one, other) for one, other in zip(arrived, decode.bytes(), strict=True))
    return moved


def held_bytes(layout: Layout, tokens: int) -> int:
    """Bytes that the ranks hold of a room of so many tokens, replicas counted, by the declaration alone."""
    at_all = {cache.name for cache in layout.named if cache.travels == END}
    return sum(
        len(each) * row * len(layers) * (1 if cache in at_all else tokens)
        for (cache, _), (units, row, layers) in parts_of(layout).items() for each in held_units(units, layout.tp)
    )  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(sides(), st.sampled_from([(13, 0), (13, 8), (13, 13), (8, 0)]), st.integers(1, 2), st.integers(1, 3))
def test_every_byte_of_tokens_and_state_once(
    pair: tuple[Layout, Layout], room: tuple[int, int], groups: int, state_groups: int
) -> None:
    plan = Plan(*pair, CHUNK)
    assert plan.state is not None
    tokens, prefix = room
    found = move(plan, tokens, prefix, min(groups, plan.fewest_layers), min(state_groups, plan.state.fewest_layers))
    assert found == held_bytes(pair[1], tokens - prefix)


def test_a_full_hit_still_moves_the_state() -> None:
    for tp, td in product([1, 2, 4], repeat=2):
        plan = Plan(of(FULL, DRAFT, state((0, 2, 4)), tp=tp), of(FULL, DRAFT, state((0, 2, 4)), tp=td), CHUNK)
        assert chunks(16, 16, CHUNK) == 0 and chunks(16, 16, CHUNK, 1, 2) == 2
        cut = cut_at(0, 16, 16, CHUNK, 1, 2)
        assert cut == Cut(16, 0, 0, 2, state=True) and cut.end == 16
        # no layers are shared out if only one rank has a unit, so fewer groups than layers are asked for
        assert move(plan, 16, 16, 1, 1) == held_bytes(plan.decode, 0) > 0


def test_state_chunks_come_behind_those_of_the_tokens_and_no_chunk_behind_them() -> None:
    found = [cut_at(k, 13, 0, CHUNK, 2, 2) for k in range(chunks(13, 0, CHUNK, 2, 2))]
    assert [(cut.first, cut.tokens, cut.group, cut.state) for cut in found] == [
        (0, 8, 0, False), (0, 8, 1, False), (8, 5, 0, False), (8, 5, 1, False), (13, 0, 0, True), (13, 0, 1, True)
    ]  # fmt: skip
    for k, state_groups in ((6, 2), (4, 0)):
        with pytest.raises(LayoutError, match="no-such-chunk"):
            cut_at(k, 13, 0, CHUNK, 2, state_groups)


def test_b_and_c_of_one_group_come_once_whole_to_every_rank_and_never_as_intervals() -> None:
    """One interval over x, B and C, or four intervals of B, is what others have got wrong."""
    caches = FULL, Cache("rest", DRAFT.parts, (2, 4, 5)), state((0,), MAMBA)
    plan = Plan(of(*caches, tp=4), of(*caches, tp=1), CHUNK).state
    assert plan is not None
    names = [kind.part for kind in plan.prefill.kinds]
    pieces = {share.writer: dict(zip(names, share.pieces, strict=True)) for share in plan.writers(0)}
    assert sorted((w, p["x"].dst_unit, p["x"].units) for w, p in pieces.items()) == [(w, w, 1) for w in range(4)]
    for name in ("B", "C"):
        assert [(p[name].dst_unit, p[name].units) for p in pieces.values() if p[name].units] == [(0, 1)]


def test_replicas_of_the_state_share_its_layers() -> None:
    held, rows = tuple(range(LAYERS)), (CachePart("whole", 1, 1024),)
    plan = Plan(of(FULL, state(held, rows), tp=4), of(FULL, state(held, rows)), CHUNK)
    assert plan.state is not None
    sent = [sum(plan.state.part_bytes(share, Cut(0, 1)) for share in plan.state.duties(w)) for w in range(4)]
    assert sum(sent) == LAYERS * 1024 and max(sent) - min(sent) <= 1024


def test_a_stage_with_state_alone_writes_no_token_and_one_without_writes_no_state() -> None:
    caches = Cache("full", FULL.parts, (3, 4, 5)), state((0, 1, 2))
    plan = Plan(of(*caches, pp=2), of(*caches), CHUNK)
    assert plan.state is not None
    assert [[share.writer for share in each.writers(0)] for each in (plan, plan.state)] == [[1], [0]]
    assert plan.linked_to(0) == (0, 1) and plan.lead(0) == 1 and not plan.duties(0)
    turned = Plan(of(*caches), of(*caches, pp=2), CHUNK)
    assert [turned.lead(reader) for reader in range(2)] == [0, 0] and turned.linked(0) == (0, 1)


@pytest.mark.parametrize(("caches", "why"), [
    ((FULL, state((0,)), Cache("other", MAMBA, (2,), "", END, 2)), "its groups differ .state in 1, other in 2.: give"),
    ((FULL, Cache("state", MAMBA, (0,), "", "last")), "it travels 'last'; all tokens do"),
])  # fmt: skip
def test_state_that_is_not_carried_is_refused_by_name(caches: tuple[Cache, ...], why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        of(*caches)


def test_sides_of_which_one_says_that_every_token_travels_refuse_each_other() -> None:
    said = [of(FULL, Cache("state", MAMBA, tuple(range(LAYERS)), "", way)) for way in ("all", END)]
    with pytest.raises(LayoutError, match="cache 'state': travels is all on the prefill side and end on the decode"):
        Plan(said[0], said[1], CHUNK)


def test_a_chunk_of_state_in_a_layout_without_is_refused() -> None:
    layout = of(FULL, Cache("rest", DRAFT.parts, (0, 2, 4, 5)))
    plan = Plan(layout, layout, CHUNK)
    assert plan.state is None
    with pytest.raises(LayoutError, match="nothing in the layout travels at the end"):
        plan.part(0, 0, Cut(8, 0, state=True))


@pytest.mark.parametrize("model", [MAMBA_STATE, DELTA_STATE], ids=["x B C", "q k v"])
def test_kernels_move_a_slot_between_engines_tensors(model: Recurrence) -> None:
    for tp, td in product([1, 2, 4], repeat=2):
        held = 3 * sum(max(part.units, td) * part.row_bytes for part in model.parts)
        for groups in (1, 3) if (tp, td) in ((1, 1), (1, 4)) else (1,):
            assert recurrence.move(TorchKernels(), model, (tp, td), groups) == held


# ------------------------------------------------------------------------------------------ conv-as-interval
class AsInterval(Recurrence):
    """The segments are one part of as many units: of the right form on every rank."""

    @property
    def parts(self) -> tuple[CachePart, ...]:
        *segments, ssm = super().parts
        return CachePart("conv", self.heads, sum(part.units * part.row_bytes for part in segments) // self.heads), ssm

    def views(self, tensors: dict[str, torch.Tensor], mine: int) -> dict[str, list[torch.Tensor]]:
        conv = tensors["conv"]
        units = conv.view(*conv.shape[:2], mine, conv.shape[2] // mine, conv.shape[3])
        return {"conv": list(units.flatten(3)), "ssm": list(tensors["ssm"].flatten(3))}


def test_segments_as_one_interval_are_of_the_right_form_and_arrive_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    model = AsInterval(DELTA_STATE.segments, DELTA_STATE.heads, DELTA_STATE.head)
    monkeypatch.setattr(recurrence, "views_of", lambda _model, tp, _place, mine: model.views(mine, model.heads // tp))
    monkeypatch.setattr(recurrence, "whole", lambda _model, random: whole(DELTA_STATE, random))
    assert recurrence.move(TorchKernels(), model, (2, 2), 1), "nothing is cut, so nothing is wrong"
    for tp in ((2, 1), (1, 4)):
        with pytest.raises(AssertionError, match="'conv'"):
            recurrence.move(TorchKernels(), model, tp, 1)


def test_a_tensor_of_state_that_is_no_part_is_refused_by_name() -> None:
    random = torch.Generator().manual_seed(1)
    layout = recurrence.layout_of(MAMBA_STATE, 1)
    mine = recurrence.tensors_of(MAMBA_STATE, 1, 0, "cpu", random)
    parts = {f"state.{name}": views for name, views in recurrence.views_of(MAMBA_STATE, 1, 0, mine).items()}
    kv = {f"full.{name}": [torch.zeros(3, 16, 2, 32, dtype=torch.bfloat16)] for name in ("k", "v")}
    tensors = {name: views[0] for name, views in kv.items()} | mine
    with pytest.raises(KernelError, match=r"tensor 'ema' is in no cache: give it a part"):
        CachePool(layout, 0, kv | parts, tensors | {"ema": torch.zeros(4)})
    with pytest.raises(KernelError, match=r"parts are .*; the layout has .*state\.ssm"):
        CachePool(layout, 0, kv, tensors)
    with pytest.raises(KernelError, match=r"rank 0 needs \(tokens, units, bytes\) = \(1, 8, 96\) in a page"):
        CachePool(layout, 0, kv | parts | {"state.x": parts["state.B"]}, tensors)
