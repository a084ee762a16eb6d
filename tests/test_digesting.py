"""Kernels that keep digests, around inner ones that make whatever digests the test wants."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from kernels_cases import BASE, Case, pool_of, table_of
from test_end_caches import FULL, LONG, of

from kvproto.io.kernels.base import Done, Kernels, Ticket
from kvproto.io.kernels.digesting import DigestingKernels
from kvproto.layout.plan import Share, plan_between
from kvproto.verify.testing.pools import empty_caches

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
