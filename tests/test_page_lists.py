"""Page lists: pieces of a page are checked once, and page numbers become the rows that they stand for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from kvproto.io.transports.base import Kind, MemoryRegion, PeerId, RemoteRegion, TransportCaps, UsageError
from kvproto.io.transports.page_lists import PageLists, PagePiece, PagesRequest
from kvproto.io.transports.regions import RegionTable

PEER = PeerId("peer")
CAPS = TransportCaps("here", ("DRAM", "VRAM"), 64, 6, 64, native_notify=True, needs_target_progress=False)


def made(*pieces: tuple[int, ...], kinds: tuple[Kind, ...] = ("DRAM",), there: Kind | None = None) -> PageLists:
    """Lists of pieces (two offsets, two steps, bytes), each in a region of 100 bytes of its own."""
    table, remotes, given = RegionTable(("DRAM", "VRAM")), dict[int, RemoteRegion](), list[PagePiece]()
    for at, (src_off, dst_off, src_step, dst_step, nbytes) in enumerate(pieces):
        kind = kinds[at % len(kinds)]
        src = MemoryRegion(at, 10_000 * (at + 1), 100, kind, 3)
        table.add(src)
        remotes[at] = RemoteRegion(PEER, at, 500_000 * (at + 1), 1000, there or kind, 7)
        given.append(PagePiece(src, remotes[at], src_off, dst_off, src_step, dst_step, nbytes))
    lists = PageLists(PEER, tuple(given))
    lists.fit(table, remotes)
    return lists


def request(lists: PageLists, near: list[int], far: list[int], dtype: Any = np.int64) -> PagesRequest:
    return PagesRequest(lists, np.array(near, dtype), np.array(far, dtype), CAPS)


def rows(found: Any) -> list[tuple[int, ...]]:
    return [tuple(map(int, row)) for row in found]


@pytest.mark.parametrize(
    ("pieces", "joins"), [
        ([(0, 0, 10, 10, 10)], True),
        ([(0, 0, 10, 20, 10)], False),
        ([(0, 0, 20, 10, 10)], False),
        ([(0, 0, 10, 10, 10), (0, 0, 20, 20, 10)], False),
    ],
)  # fmt: skip
def test_pages_are_joined_where_every_piece_fills_its_step_on_both_sides(pieces: Any, joins: bool) -> None:
    lists = made(*pieces)
    assert lists.joins is joins
    near, far = np.array([0, 1, 2, 3, 5, 4]), np.array([3, 4, 6, 7, 8, 9])
    assert lists.starts(near, far).tolist() == ([0, 2, 4, 5] if joins else list(range(6)))
    assert lists.starts(near[:2], far[:2]).tolist() == ([0] if joins else [0, 1])
    assert lists.starts(near[:1], far[:1]).tolist() == [0]


def test_rows_are_the_addresses_lengths_and_devices_of_the_runs_of_each_piece() -> None:
    laid = request(made((0, 5, 10, 10, 10), (30, 40, 10, 10, 10)), [2, 3, 6], [0, 1, 2]).laid()
    assert rows(laid.local) == [(10_020, 20, 3), (10_060, 10, 3), (20_050, 20, 3), (20_090, 10, 3)]
    assert rows(laid.remote) == [(500_005, 20, 7), (500_025, 10, 7), (1_000_040, 20, 7), (1_000_060, 10, 7)]
    assert (laid.local_kind, laid.remote_kind, laid.sources) == ("DRAM", "DRAM", (0, 1))
    lifted = request(made((0, 0, 10, 10, 10), there="VRAM"), [0], [0]).laid()
    assert (lifted.local_kind, lifted.remote_kind) == ("DRAM", "VRAM")


def test_indices_name_the_pages_of_one_piece_behind_those_of_another() -> None:
    asked = request(made((0, 5, 10, 10, 10), (30, 40, 10, 10, 10)), [2, 3, 6], [0, 1, 2])
    near, far = asked.lists.near, asked.lists.far
    assert (near, far) == (7, 96)  # of the piece that has the fewest
    assert asked.indices("near").tolist() == [2, 3, 6, near + 2, near + 3, near + 6]
    assert asked.indices("far").tolist() == [0, 1, 2, far, far + 1, far + 2]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int64])
def test_numbers_of_any_width_are_compared_without_wrapping_around(dtype: Any) -> None:
    asked = request(made((0, 0, 10, 10, 10)), [9, 8, 0], [0, 1, 99], dtype)
    assert asked.count == 3 and rows(asked.laid().local)[0] == (10_090, 10, 3)
    assert {each.dtype for each in (asked.near, asked.far)} == {np.dtype(np.int64)}


def test_a_write_has_as_many_descriptors_as_the_backend_takes_and_no_more() -> None:
    two = made((0, 0, 10, 20, 10), (0, 0, 10, 20, 10))
    assert request(two, [0, 1, 2], [0, 1, 2]).count == CAPS.max_descs
    with pytest.raises(UsageError, match="8 descriptors; here takes at most 6 a write"):
        request(two, [0, 1, 2, 3], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("near", "far", "why"), [
        ([10], [0], "pages 10..10 of a source of 10 pages"),
        ([0], [100], "pages 100..100 of a target of 100 pages"),
        ([-1], [0], "pages -1..-1 of a source"),
        ([0, 1], [0], "not (2,) (1,)"),
        ([], [], "not (0,) (0,)"),
    ],
)  # fmt: skip
def test_what_is_no_page_is_refused(near: list[int], far: list[int], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        request(made((0, 0, 10, 10, 10)), near, far)


def test_pieces_outside_their_region_or_of_two_kinds_of_memory_are_refused() -> None:
    assert made((0, 0, 100, 1000, 100)).near == 1  # a page as large as the region
    assert made((90, 0, 10, 10, 10)).near == 1  # the region's last bytes
    assert made((0, 0, 10, 10, 1)).near == 10
    for piece in ((91, 0, 10, 10, 10), (0, -1, 10, 10, 10), (0, 0, 9, 10, 10), (0, 0, 10, 10, 0)):
        with pytest.raises(UsageError, match="a piece of"):
            made(piece)
    with pytest.raises(UsageError, match="one list cannot mix memory kinds"):
        made((0, 0, 10, 10, 10), (0, 0, 10, 10, 10), kinds=("DRAM", "VRAM"))
    with pytest.raises(UsageError, match="at least one piece"):
        made()
