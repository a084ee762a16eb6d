"""Batches of a launch: constants, tables, programs and arguments by hand; nothing is compiled."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

import torch

from kvproto.io.kernels import batch
from kvproto.io.kernels.batch import MAX_UNITS, Batch, Cells, Copy, KernelTuning
from kvproto.io.kernels.cells import move_cells
from kvproto.io.kernels.pool import Pool, Side
from kvproto.io.kernels.tile import MAX_PARTS, move
from kvproto.layout.plan import Share

SMALL = KernelTuning(tile=256)


def pool(k: int = 8, v: int = 0, heads: int = 4, order: Any = "NHD") -> Pool:
    """Two layers of three pages of four tokens, in elements of two bytes."""
    inner = (4, heads) if order == "NHD" else (heads, 4)
    kinds = [[torch.zeros((3, *inner, dim), dtype=torch.int16) for _ in range(2)] if dim else [] for dim in (k, v)]
    return Pool(kinds[0], kinds[1], order)


def share(heads: int = 4, head: int = 0, layers: int = 2, layer: int = 0) -> Share:
    return Share(writer=0, reader=0, src_head=head, dst_head=head, heads=heads, src_layer=layer, dst_layer=layer,
                 layers=layers)  # fmt: skip


def made(
    of: Pool, *shares: Share, side: Side = "gather", digests: bool = False, tuning: KernelTuning = SMALL
) -> Batch:  # fmt: skip
    return Batch(of, of.cut(side, shares).slices, side, tuning, digests=digests)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Record each compilation; a launcher is what it was given."""
    found = list[tuple[Any, ...]]()

    def compile_kernel(*about: Any) -> Any:
        found.append(about)
        return found[-1]

    monkeypatch.setattr(batch, "compile_kernel", compile_kernel)
    return found


def test_heads_side_by_side_are_one_row_and_kinds_have_tiles_of_their_own() -> None:
    of = pool(8, 24, heads=2)
    one = made(of, share(2))
    # K's row of 32 bytes is a unit, V's of 96 has three; a program has eight
    assert one._constants == (1, 2, 1, 4, 128, 32, 32, 32, 1, 384, 96, 96, 32, 3, 8, 8, False, False, 1, True, False)
    assert (sorted(one._paces), one.grid, one.entries, one._align) == ([(1, 8), (3, 8)], (2, 2), 4, 16)
    assert one.max_tokens == MAX_UNITS // 3
    assert one._table.tolist() == [each.data_ptr() for each in (*of.k, *of.v)] + [1, 2, 0]


def test_each_head_is_a_row_where_digests_are_wanted_or_heads_lie_apart() -> None:
    one = made(pool(8, heads=2), share(2), digests=True, side="scatter")
    assert one._constants == (1, 1, 2, 4, 128, 32, 16, 16, 1, 128, 32, 16, 16, 1, 16, 16, True, False, 2, False, True)
    one = made(pool(8, heads=2, order="HND"), share(2))
    assert one._constants == (1, 1, 2, 4, 128, 16, 64, 16, 1, 128, 16, 64, 16, 1, 16, 16, True, False, 2, True, False)
    assert one._paces == ((2, 16),)


def test_heads_that_lie_apart_in_one_kind_are_rows_of_their_own_in_both() -> None:
    apart = [torch.zeros((3, 4, 2, 16), dtype=torch.int16)[..., :8] for _ in range(2)]
    of = Pool(pool(8, heads=2).k, apart)
    assert made(of, share(2))._constants[2] == 2


def test_alike_parts_are_mixed_unless_digests_or_the_tuning_forbid_it() -> None:
    of, two = pool(8), (share(2), share(2, head=2))
    assert made(of, *two)._mixed and not made(of, share(2))._mixed
    assert not made(of, *two, digests=True)._mixed
    assert not made(of, *two, tuning=KernelTuning(tile=256, mixed=False))._mixed
    assert not made(pool(8, 24), *two)._mixed, "K and V differ"
    assert not made(of, share(2), share(1, head=2))._mixed and not made(of, share(2), share(2, head=2, layers=1))._mixed
    assert made(pool(8, 8), *two)._mixed


def test_parts_that_differ_have_their_groups_layers_and_entries_in_the_table() -> None:
    of = pool(8)
    one = made(of, share(3, layers=1, layer=1), share(1, head=3))
    assert one._constants[:4] == (2, 1, 0, 4) and one._constants[-5:] == (True, False, 3, True, False)
    begin = [of.k[1].data_ptr(), 0, of.k[0].data_ptr() + 48, of.k[1].data_ptr() + 48]
    assert one._table.tolist() == [*begin, 3, 1, 1, 2, 0, 3]
    assert (one.entries, one.parts, one.grid, one._paces) == (5, 2, (2, 1), ((3, 16),))
    assert one.max_tokens == MAX_UNITS // 2 // 3
    assert one._align == 16
    even = made(of, share(4), share(2, head=1))
    assert even._constants[8] == 1 and even._constants[7] == 32, "two heads are a row of both"


def test_units_and_rows_have_bounds() -> None:
    wide, narrow = made(pool(512, heads=1), share(1)), Pool([torch.zeros((3, 4, 1, 1), dtype=torch.uint8)], [])
    assert wide._constants[7:9] == (128, 8) and wide._paces == ((8, 2),), "a unit is half a tile at most"
    one = made(narrow, share(1, layers=1), tuning=KernelTuning(tile=4096))
    assert one._constants[7:9] == (1, 1) and one._paces == ((1, 1024),) and one._align == 1


def test_the_narrowest_step_or_address_bounds_the_words(compiled: list[tuple[Any, ...]]) -> None:
    assert [made(pool(dim), share(2, head=2))._align for dim in (8, 4, 2, 1, 3)] == [16, 8, 4, 2, 2]
    assert made(pool(4), share(1, head=1))._align == 8
    one = made(pool(8), share())
    for low_bits, words in ((0, (8, 16)), (8, (8, 8)), (4, (4, 4)), (12, (4, 4)), (1, (1, 1))):
        assert one.launcher(low_bits) is one.launcher(low_bits)
        assert compiled[-1] == (-1, move, 7 + MAX_PARTS, (*one._constants, *words), 1)
    assert len(compiled) == 5


def test_a_copy_has_as_many_programs_as_its_slowest_kind(compiled: list[tuple[Any, ...]]) -> None:
    of = pool(8, 24)
    one = made(of, share(1), share(1, head=1))
    copy = one.bind(1000, 7, 11, [64, 128], 5000, 9)
    assert isinstance(copy, Copy) and copy.aligned
    # V's rows of 48 bytes are three units of 16, sixteen a program; the parts have programs of their own
    assert copy.programs == 2 * 3
    places = one._table.data_ptr()
    assert copy.arguments == (places, 1000, 7, 11, 2, 5000, 9, 64, 128, *[0] * 6)
    launched = list[tuple[Any, ...]]()
    copy.launch = lambda *about: launched.append(about)
    copy(77)
    assert launched == [(6, 2, 2, 77, *copy.arguments)]
    assert not one.bind(0, 0, 1, [64, 130], 0, 0).aligned and compiled[-1][3][-2:] == (2, 2)
    mixed = made(pool(8), share(2), share(2, head=2))
    assert mixed.bind(0, 0, 5, [64, 128], 0, 0).programs == 2, "ten units of 32 bytes, eight a program"


def test_cells_are_one_launch_where_it_was_prepared_and_all_parts_are_aligned(compiled: list[tuple[Any, ...]]) -> None:
    one = made(pool(8), share(2), share(2, head=2), share(1))
    copies = [one.bind(100 + at, 10 + at, 20 + 40 * at, [64 + at * 256, 128 + at * 256, 192], 0, 0) for at in range(3)]
    assert one.join(copies) is None
    one.prepare_cells()
    one.prepare_cells()
    assert compiled[-1] == (-1, move_cells, 2 + 4 * MAX_PARTS, (2, *one._constants, 8, 16), 1)
    assert sum(each[1] is move_cells for each in compiled) == 1
    joined = one.join(copies)
    assert joined is not None and joined[1:] == [copies[2]]
    first = joined[0]
    assert isinstance(first, Cells)
    assert first.grid == (max(copies[0].programs, copies[1].programs) * 2, 2, 1)
    assert first.arguments == (
        one._table.data_ptr(), 2, 100, 101, *[0] * 6, 10, 11, *[0] * 6, 20, 60, *[0] * 6,
        64, 128, 192, 320, 384, 192, 0, 0,
    )  # fmt: skip
    launched = list[tuple[Any, ...]]()
    first.launch = lambda *about: launched.append(about)
    first(5)
    assert launched == [(*first.grid, 5, *first.arguments)]
    crooked = one.bind(0, 0, 1, [64, 128, 200], 0, 0)
    assert one.join([copies[0], crooked]) is None


@pytest.mark.parametrize("digests", [True, False])
def test_batches_of_many_parts_or_with_digests_are_not_joined(compiled: list[tuple[Any, ...]], digests: bool) -> None:
    parts = [share(1)] if digests else [share(1, head=at % 4, layers=1, layer=at // 4) for at in range(5)]
    one = made(pool(8), *parts, digests=digests)
    one.prepare_cells()
    assert not compiled and one.join([one.bind(0, 0, 1, [64] * len(parts), 0, 0)]) is None
    four = made(pool(8), *(share(1, head=at) for at in range(4)))
    four.prepare_cells()
    assert compiled[-1][3][0] == 2
