"""Digests: one number for a head whatever holds it, and another one after any change of its bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from digest_cases import check_digests, laid, slow_digest, whole_of
from kernels_cases import BASE, PAIRS, SHAPES, Case, pool_of, table_of
from test_end_caches import FULL, LONG, of

from kvproto.io.kernels.base import Done, KernelError, Kernels, Ticket
from kvproto.io.kernels.differing import Place, differing
from kvproto.io.kernels.digest import SPREAD, digest_rows, entries, new_table, read_table, wrong_table
from kvproto.io.kernels.digesting import DigestingKernels
from kvproto.io.kernels.torch import TorchKernels
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Share, plan_between
from kvproto.verify.testing.pools import empty_caches

TORCH = TorchKernels()


@pytest.mark.parametrize("case", PAIRS + SHAPES, ids=str)
def test_every_cut_computes_the_same(case: Case) -> None:
    check_digests(TORCH, case)


ROWS = torch.randint(0, 256, (6, 2, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


def test_every_single_bit_counts() -> None:
    right = digest_rows(ROWS, 0, 0).tolist()
    for bit in range(8 * ROWS.numel()):
        flipped = ROWS.clone()
        flipped.view(-1)[bit // 8] ^= 1 << bit % 8
        found = digest_rows(flipped, 0, 0).tolist()
        head = bit // 8 // ROWS.shape[2] % 2
        assert found[head] != right[head]
        assert found[1 - head] == right[1 - head]


def test_two_bits_at_the_top_of_two_words_do_not_cancel() -> None:
    """A multiplier and a sum of the same width would forget all but one bit of where the top bit was."""
    right, top = digest_rows(ROWS, 0, 0).tolist(), torch.arange(3, ROWS.numel(), 4)
    for a in top.tolist():
        for b in top.tolist():
            flipped = ROWS.clone()
            flipped.view(-1)[a] ^= 0x80
            flipped.view(-1)[b] ^= 0x80
            assert (digest_rows(flipped, 0, 0).tolist() == right) == (a == b)


def test_parts_of_a_cell_add_up_and_know_their_place() -> None:
    whole = digest_rows(ROWS, 40, 1)
    assert torch.equal(digest_rows(ROWS[:2], 40, 1) + digest_rows(ROWS[2:], 42, 1), whole)
    assert not torch.equal(digest_rows(ROWS, 41, 1), whole)
    assert not torch.equal(digest_rows(ROWS, 40, 0), whole)
    assert slow_digest([[], [bytes(row.tolist()) for row in ROWS[:, 1]]], 40) == int(whole[1]) % (1 << 64)


CASE = replace(BASE, tp=(2, 1), layers=3, tokens=8, pages=(4, 2))
Damage = Callable[[torch.Tensor], torch.Tensor]


def flip_a_bit(staged: torch.Tensor) -> torch.Tensor:
    staged[1, 2, 5, 0, 3] ^= 0x10
    return staged


EVERYWHERE = {(layer, head) for layer in range(3) for head in (2, 3)}
DAMAGES: dict[str, tuple[Damage, set[tuple[int, int]]]] = {
    "nothing": (lambda staged: staged, set()),
    "a flipped bit": (flip_a_bit, {(2, 2)}),
    "swapped heads": (lambda staged: staged.flip(3), EVERYWHERE),
    "swapped layers": (lambda staged: staged[:, [0, 2, 1]], {(layer, head) for layer, head in EVERYWHERE if layer}),
    "K and V swapped": (lambda staged: staged.flip(0), EVERYWHERE),
    "swapped tokens": (lambda staged: staged[:, :, [1, 0, *range(2, 8)]], EVERYWHERE),
    "one token lost": (lambda staged: staged.roll(-1, 2), EVERYWHERE),
}


def flow(kernels: Any, damage: Damage, first: int = 0) -> set[tuple[int, int]]:
    """Gather by rank 1 of two, damage on the way, scatter: the (layer, head) whose digests then differ."""
    plan = CASE.plan
    pool, table = laid(CASE, plan.prefill, 1, 0, whole_of(CASE), "cpu")
    (share,) = plan.duties(1)
    out = torch.empty(plan.part_bytes(share, Cut(0, CASE.tokens)), dtype=torch.uint8)
    sent, came = new_table([share], pool.device), new_table([share], pool.device)
    kernels.gather(pool, table, 0, CASE.tokens, share, out, digest=sent)
    staged = damage(out.view(2, 3, 8, 2, 16).clone()).reshape(-1)
    target = pool_of(plan.decode, 0, 20, 2)
    kernels.scatter(target, table_of(20, 2, 16, 3), first, CASE.tokens, [(share, staged)], digest=came)
    pairs = zip(read_table(sent), read_table(came), strict=True)
    return {(at // 2, 2 + at % 2) for at, (a, b) in enumerate(pairs) if a != b}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_happens_on_the_way_is_seen_where_it_happened(name: str) -> None:
    damage, where = DAMAGES[name]
    assert flow(TORCH, damage) == where


def test_a_stale_chunk_is_seen() -> None:
    """Leftovers of an earlier chunk or another room in the ring; and bytes taken for another chunk's."""
    other = whole_of(CASE, seed=6)
    left = laid(CASE, CASE.plan.prefill, 1, 0, other, "cpu")
    (share,) = CASE.plan.duties(1)
    stale = torch.empty(CASE.plan.part_bytes(share, Cut(0, CASE.tokens)), dtype=torch.uint8)
    TORCH.gather(*left, 0, CASE.tokens, share, stale)
    assert flow(TORCH, stale.view_as) == EVERYWHERE
    half: Damage = lambda staged: torch.cat([staged[:, :, :4], stale.view_as(staged)[:, :, 4:]], 2)  # noqa: E731
    assert flow(TORCH, half) == EVERYWHERE
    assert flow(TORCH, lambda staged: staged, first=8) == EVERYWHERE


def test_calls_add_to_the_table_and_several_parts_have_their_columns() -> None:
    plan = replace(BASE, tp=(1, 2)).plan
    pool, table = pool_of(plan.prefill, 0, 8, 1), table_of(8, 4, 11, 1)
    shares = plan.duties(0)
    parts = [(share, torch.empty(plan.part_bytes(share, Cut(0, 11)), dtype=torch.uint8)) for share in shares]
    together, alone = new_table(shares, pool.device), []
    TORCH.gather_parts(pool, table, 0, 11, parts, digest=together)
    for share, out in parts:
        one = new_table([share], pool.device)
        TORCH.gather(pool, table, 0, 11, share, out, digest=one)
        alone += read_table(one)
    assert read_table(together) == alone
    TORCH.gather_parts(pool, table, 0, 11, parts, digest=together)
    assert read_table(together) == [2 * value % (1 << 64) for value in alone]


@pytest.mark.parametrize(
    "table",
    [
        torch.zeros((SPREAD, 7), dtype=torch.int64), torch.zeros((SPREAD - 1, 8), dtype=torch.int64),
        torch.zeros((SPREAD, 8), dtype=torch.int32), torch.zeros((8, SPREAD), dtype=torch.int64).T,
    ],
)  # fmt: skip
def test_a_table_that_cannot_be(table: torch.Tensor) -> None:
    plan = replace(BASE, tp=(2, 1), heads=8).plan
    (share,) = plan.duties(0)
    assert entries([share]) == 8
    pool, out = pool_of(plan.prefill, 0, 8, 1), torch.empty(plan.part_bytes(share, Cut(0, 8)), dtype=torch.uint8)
    with pytest.raises(KernelError, match="digests need a dense int64 table"):
        TORCH.gather(pool, table_of(8, 4, 11, 1), 0, 8, share, out, digest=table)


def test_a_table_is_on_the_pool_s_device() -> None:
    pool: Any = SimpleNamespace(gpu=0, device="cuda:0")
    why = wrong_table(torch.zeros((SPREAD, 8), dtype=torch.int64), 8, pool)
    assert why is not None and why.endswith("on cuda:0, not (16, 8) of torch.int64 on cpu")


def test_ranks_differ_where_two_know_a_place_by_different_digests() -> None:
    one: dict[Place, int] = {(8, 1, 0): 5, (0, 1, 0): 6, (0, 0, 1): 7}
    other: dict[Place, int] = {(8, 1, 0): 4, (0, 0, 1): 7, (0, 0, 0): 1}
    assert differing(one, other, {(0, 1, 0): 5}) == [(0, 1, 0), (8, 1, 0)]
    assert differing(one, {**one}) == differing(one) == differing() == []


#: of a stage that begins with the model's third layer, and of a rank that begins with its fifth head
SHARE = Share(writer=3, reader=0, src_head=1, dst_head=0, heads=1, src_layer=1, dst_layer=0, layers=2)
LAYOUT = Case(tp=(2, 1), pps=(2, 1), heads=8, layers=6).plan.prefill


class Inner(Kernels):
    """Writes these numbers into the table of a call's digests."""

    def __init__(self, *numbers: int) -> None:
        self.numbers, self.prepared = numbers, list[tuple[object, ...]]()

    def prepare(self, *about: Any, digests: bool = False) -> None:
        self.prepared.append((*about, digests))

    def gather_parts(self, *_: Any, digest: torch.Tensor | None = None, **__: Any) -> Ticket:
        assert digest is not None
        digest[0] = torch.tensor(self.numbers)
        return Done()

    scatter = gather_parts


def test_kernels_are_prepared_for_digests_unless_it_is_said_otherwise() -> None:
    inner = Inner()
    kernels = DigestingKernels(inner, LAYOUT, 3)
    pool = cast("Any", "pool")
    kernels.prepare(pool, "gather", [SHARE])
    kernels.prepare(pool, "scatter", [SHARE], digests=False)
    assert inner.prepared == [("pool", "gather", [SHARE], True), ("pool", "scatter", [SHARE], False)]


@pytest.mark.parametrize(("side", "layers", "head"), [("gather", (4, 5), 5), ("scatter", (3, 4), 4)])
def test_a_digest_is_unsigned_and_of_the_model_s_own_layer_and_head(
    side: str, layers: tuple[int, ...], head: int
) -> None:
    assert (LAYOUT.layers_of(3)[0], LAYOUT.heads_of(3)[0]) == (3, 4)
    kernels = DigestingKernels(Inner(-1, -(1 << 63)), LAYOUT, 3)
    pool, table = pool_of(BASE.plan.prefill, 0, 8, 1), table_of(8, 4, 8, 1)
    move = kernels.gather_parts if side == "gather" else kernels.scatter
    move(pool, table, 16, 8, [(SHARE, torch.empty(0))])
    assert kernels.read(table) == {(16, layers[0], head): (1 << 64) - 1, (16, layers[1], head): 1 << 63}
    assert kernels.read(table_of(8, 4, 8, 1)) == {}, "another table is another room's"


@pytest.mark.parametrize(("page", "known"), [(4, True), (3, False)])
def test_a_window_has_digests_where_its_tables_begin_alike_on_both_sides(page: int, known: bool) -> None:
    class Asked(Inner):
        def gather_parts(self, *_: Any, digest: torch.Tensor | None = None, **__: Any) -> Ticket:
            assert (digest is not None) is known
            return Done()

    side = of(FULL, LONG, page_size=page)
    (pool,) = empty_caches(side, 0, 8).ends
    pool.digested, table = True, table_of(8, page, 8, 1)
    state = plan_between(side, side, 12).state
    assert state is not None
    kernels = DigestingKernels(Asked(), side, 0)
    kernels.gather_parts(pool, table, 0, 8, [(state.writers(0)[0], torch.empty(0))])
    assert bool(kernels.read(table, end=pool.end, tokens=8)) is known
