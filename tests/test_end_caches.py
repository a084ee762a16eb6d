"""Several caches at the end: every byte once, for any cut; a wrong block, table or floor is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ends_judge import Move
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvproto.data import chunk_launch
from kvproto.io.kernels.base import KernelError
from kvproto.io.kernels.pool import Pool
from kvproto.io.kernels.torch import TorchKernels
from kvproto.layout import cut
from kvproto.layout.caches import ALL, END, WINDOW, Cache, CachePart
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout, LayoutError

LAYERS = 6
FULL = Cache("full", (CachePart("k", 2, 16), CachePart("v", 2, 24)), (1, 3))
DRAFT = Cache("draft", (CachePart("latent", 1, 36),), (5,))
#: rows of 6 and 12 bytes: a block ends beside a multiple of 16
STATE = Cache("state", (CachePart("x", 4, 12), CachePart("B", 1, 6), CachePart("ssm", 4, 64)), (0, 2, 4), "", END)
LONG = Cache("long", (CachePart("k", 4, 8), CachePart("v", 4, 20)), (0, 1, 2, 3), "", WINDOW, window=11)
SHORT = Cache("short", (CachePart("latent", 1, 18),), (3, 4, 5), "", WINDOW, window=3)
TABLES = {"long": (1, 0, 2, 1), "state": (1, 0, 1)}
ROOMS = [(13, 0), (13, 8), (16, 16), (2, 0), (21, 12), (9, 4)]


def of(*caches: Cache, tp: int = 1, pp: int = 1, **more: Any) -> Layout:
    return Layout.of_caches(caches, layers=LAYERS, page_size=more.pop("page_size", 4), tp=tp, pp=pp, **more)


@st.composite
def moves(draw: st.DrawFn) -> Move:
    ends = draw(st.lists(st.sampled_from([STATE, LONG, SHORT]), min_size=1, unique=True))
    held = [draw(st.sets(st.sampled_from(each.layers), min_size=1)) for each in ends]
    some = [replace(each, layers=tuple(sorted(mine))) for each, mine in zip(ends, held, strict=True)]
    named = draw(st.sampled_from([(), tuple(TABLES)]))
    tables = {each.name: TABLES[each.name][: len(each.layers)] for each in some if each.name in named}
    free = set(range(LAYERS)) - {layer for each in (FULL, *some) for layer in each.layers}
    caches = [FULL, replace(DRAFT, layers=tuple(sorted({5, *free}))), *some]
    cuts = [(draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2, 4])))
            for _ in range(2)]  # fmt: skip
    ours, theirs = (of(*draw(st.permutations(caches)), tp=tp, pp=pp, page_size=size) for tp, pp, size in cuts)
    at_end = Plan(ours, theirs, 8).state
    assert at_end is not None
    several = draw(st.integers(1, min(2, at_end.fewest_layers)))
    tokens, prefix = draw(st.sampled_from(ROOMS))
    return Move(in_groups(ours, several), in_groups(theirs, several), 8, tokens, prefix, groups=draw(st.integers(1, 2)),
                tables=tables)  # fmt: skip


def in_groups(layout: Layout, groups: int) -> Layout:
    return replace(layout, caches=tuple(replace(each, groups=groups) if each.travels != ALL else each
                                        for each in layout.named))  # fmt: skip


def moved(move: Move) -> None:
    move.run(TorchKernels())
    move.judge()


@settings(deadline=None, max_examples=60)
@given(moves())
def test_every_byte_of_tokens_states_and_windows_once(move: Move) -> None:
    moved(move)


def cases() -> list[Move]:
    caches = FULL, DRAFT, STATE, LONG, SHORT
    cuts: list[tuple[int, int, int, Any]] = [(1, 1, 1, {}), (4, 1, 2, TABLES), (2, 2, 4, {}), (1, 3, 1, TABLES)]
    return [
        Move(of(*caches, tp=tp, pp=pp), of(*caches, tp=td, page_size=2), 8, 21, 12, tables=several)
        for tp, pp, td, several in cuts
    ]


def test_all_that_travels_at_the_end_is_one_chunk_with_a_block_a_cache() -> None:
    move = cases()[0]
    # by name: eleven tokens on four layers, three on three, a row of state on three
    long, short, state = 4 * 11 * 4 * 28, 3 * 3 * 18, 3 * (4 * 12 + 6 + 4 * 64)
    assert (long % 16, short % 16) == (0, 2)
    part = move.plan.part(0, 0, cut.Cut(11, 0, state=True))
    assert move.plan.state_groups == 1 and part.nbytes == long + short + 14 + state
    assert move.slot_bytes(0) >= part.nbytes


def from_the_prefix(patch: pytest.MonkeyPatch, move: Move) -> None:
    """Windows begin at the prefix, where it is later."""
    right, (_, prefix) = Layout.last_rows, move.room
    patch.setattr(Layout, "last_rows", lambda self, n: min(right(self, n), n - prefix) if self.window else 1)


def rows_of_the_first_cache(patch: pytest.MonkeyPatch, _: Move) -> None:
    """Each block has as many rows as the first one."""
    right = Layout.last_rows
    patch.setattr(Layout, "last_rows", lambda self, tokens: right(self, tokens) if self.name == "long" else 3)


def kinds_of_the_first_cache(_: pytest.MonkeyPatch, move: Move) -> None:
    """The second cache moves the pieces of the first one."""
    for pool in (each for pools in move.pools for each in pools):
        if len(pool.ends) > 1:
            pool.ends[1].block = pool.ends[0].block


def dense_blocks(patch: pytest.MonkeyPatch, _: Move) -> None:
    """Blocks follow one another without a gap, on the prefill side: the decode side aligns them."""
    right, side = cut.block_offsets, ["gather"]

    def bind(*arguments: Any) -> Any:
        side[0] = arguments[1]
        return bound(*arguments)

    def offsets(sizes: Any) -> list[int]:
        found = list(sizes)
        return [sum(found[:at]) for at in range(len(found) + 1)] if side[0] == "gather" else right(found)

    bound = chunk_launch.bind_chunk
    patch.setattr("ends_judge.bind_chunk", bind)
    patch.setattr(chunk_launch, "block_offsets", offsets)


def table_of_the_first_cache(_: pytest.MonkeyPatch, move: Move) -> None:
    """A decode rank's second cache is put where its first one is."""
    for entry in move.entries[1]:
        entry.ends, entry.end_tables = entry.ends[:1] * len(entry.ends), entry.end_tables[:1] * len(entry.ends)


def one_table(patch: pytest.MonkeyPatch, _: Move) -> None:
    """The layers of a window are all in the first of its tables."""
    patch.setattr(Pool, "stride", 0)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch, Move], None], int]] = [
    (from_the_prefix, 0), (rows_of_the_first_cache, 0), (kinds_of_the_first_cache, 0), (dense_blocks, 0),
    (table_of_the_first_cache, 0), (one_table, 1),
]  # fmt: skip


@pytest.mark.parametrize(("mutant", "case"), MUTANTS)
def test_the_judge_knows_a_wrong_block_a_wrong_table_and_a_wrong_floor(
    mutant: Callable[[pytest.MonkeyPatch, Move], None], case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = cases()[case]
    mutant(monkeypatch, move)
    with pytest.raises((AssertionError, KernelError)):
        moved(move)


@pytest.mark.parametrize("number", range(4))
def test_without_a_mutant_the_same_rooms_are_right(number: int) -> None:
    moved(cases()[number])


def test_what_travels_at_the_end_is_cut_into_the_same_groups() -> None:
    why = r"its groups differ \(state in 2, long in 1\): give it equal"
    with pytest.raises(LayoutError, match=why):
        of(FULL, DRAFT, replace(STATE, groups=2), LONG)
    caches = FULL, DRAFT, *(replace(each, groups=3) for each in (STATE, SHORT))
    with pytest.raises(LayoutError, match="3 groups of state, and the smallest share has 2 layers"):
        Plan(of(*caches, pp=2), of(*caches), 8)


def test_bytes_of_kv_leave_out_what_aligns_one_cache_behind_another() -> None:
    row, slot, window, layers = 3, 7, 5, 2
    caches = [
        Cache("base", (CachePart("rows", 1, row),)),
        Cache("local", (CachePart("rows", 1, row),), travels="window", window=window),
        Cache("state", (CachePart("rows", 1, slot),), travels="end"),
    ]
    layout = Layout.of_caches(caches, layers=layers, page_size=4, tp=1)
    plan, end = Plan(layout, layout, 8), cut.Cut(10, 0, state=True)
    (share,) = plan.of(end).writers(0)
    assert plan.kv_bytes(share, end) == layers * (window * row + slot) < plan.part_bytes(share, end)
    for tp in (1, 2, 4):
        several = Plan(Layout.of_caches(caches, layers=layers, page_size=4, tp=tp), layout, 8)
        for each in (cut.Cut(3, 0, state=True), end, cut.Cut(0, 8)):  # of each rank its own, whoever writes it
            owed = [several.kv_bytes(share, each) for share in several.of(each).writers(0)]
            assert several.owed_bytes(0, each) == sum(owed) == several.owed_bytes(0, each)
    late = Cache("state", (CachePart("rows", 1, slot),), (1,), travels="end")
    staged = Layout.of_caches([caches[0], late], layers=layers, page_size=4, tp=1, pp=2)  # the first stage has no state
    assert [Plan(staged, staged, 8).owed_bytes(at, end) for at in (0, 1)] == [0, slot]
