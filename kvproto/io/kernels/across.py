"""Pages to pages: one kernel that reads a share from this rank's pool and stores it into a peer's.

Where the peer's pool is mapped into this process (`kvproto.io.transports.device_maps`) a page of it is an address like
any other, and a kernel that stores there is a write over the link.  So what goes page to page needs no piece a page:
the two tables of pages are all that the kernel has to know, and one launch moves a whole chunk of any cut at the rate
of the link.  Nothing is gathered before, and nothing scattered after.

Both sides are paged, so what is counted along is the share: *units*, the largest power of two bytes that divides what
is contiguous on both sides (all heads of the share at a token, or one of them).  A program takes tiles of units in
turn, `programs` tiles apart.  A link is slower than the device's memory, so a program a multiprocessor fills it; more
would only hold back whoever computes meanwhile.

How a peer's rows lie it says itself, and anew when it calls again, so its strides are arguments at run time: what is
compiled is one of a few forms (pages' tokens, units, alignment), however many strides there are.

Page numbers are trusted by the kernel, on both sides: those that come from a peer are checked before (`PagesAcross`'s
caller knows how large its regions are).  A store outside of mapped memory would end this process's use of the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
import triton
import triton.language as tl

from kvproto.io.kernels.compiled import compile_kernel
from kvproto.io.kernels.crossing import Crossing
from kvproto.io.kernels.pool import need
from kvproto.io.kernels.tile import aimed


@dataclass(frozen=True, slots=True)
class AcrossTuning:
    """How work is cut into programs; results never depend on it.

    On two H200s 1 GiB went at 367 GB/s by 132 programs or more, 358 by 64, 351 by 32 and 315 by 16 of this form; tiles
    of 8 KiB by 4 warps reach 367 with 132 programs, 206 with 16. Through endpoints a room of 1 GiB alone takes 3.26 ms
    by 132 programs and 3.40 by 64 (staged 3.44, its bulk write 2.84), eight of 256 MiB 6.16 and 6.29 (6.22, 5.55).
    Matrix products of 25.2 ms take 28.5 beside 3 GiB that 132 programs store, 28.1 beside 64, 27.2 beside 32 and 29.9
    beside 264 (two H100s, medians that differ by 0.5 from turn to turn), and the stores 12.7, 12.5, 13.9 and 10.7:
    where forwards are dearer than transfers, take fewer.
    """

    tile: int = 32768
    warps: int = 16
    programs: int = 132


def _across(
    planes: tl.int64, ours: tl.int64, theirs: tl.int64, first: tl.int32, tokens: tl.int32, begin: tl.int32,
    tiles: tl.int32, total: tl.int32, programs: tl.int32, t_page: tl.int64, t_token: tl.int64, t_group: tl.int64,
    O_SIZE: tl.constexpr, O_PAGE: tl.constexpr, O_TOKEN: tl.constexpr, O_GROUP: tl.constexpr,
    T_SIZE: tl.constexpr, GROUPS: tl.constexpr, UNIT: tl.constexpr, PIECES: tl.constexpr, ROWS: tl.constexpr,
    WORD: tl.constexpr, ALIGN: tl.constexpr,
) -> None:  # fmt: skip
    """Copy some tiles from pages here to pages there.

    `planes` is a table of int64 pairs (here, there); `ours` of int64 page numbers from the room's first token on,
    `theirs` of uint32 ones from page `begin` on; a plane has so many `tiles`, all of them `total`."""
    words = tl.arange(0, UNIT // WORD)[None, :]
    places = planes.to(tl.pointer_type(tl.int64))
    near, far = ours.to(tl.pointer_type(tl.int64)), theirs.to(tl.pointer_type(tl.uint32))
    for tile in range(tl.program_id(0), total, programs):
        plane = tile // tiles
        unit = (tile % tiles) * ROWS + tl.arange(0, ROWS)
        live = unit < tokens * (GROUPS * PIECES)
        token = first + unit // (GROUPS * PIECES)
        piece = unit % (GROUPS * PIECES)
        group, within = (piece // PIECES).to(tl.int64), (piece % PIECES) * UNIT
        page = tl.load(near + token // O_SIZE, mask=live, other=0)
        source = page * O_PAGE + (token % O_SIZE).to(tl.int64) * O_TOKEN + group * O_GROUP + within
        there = tl.load(far + (token // T_SIZE - begin), mask=live, other=0).to(tl.int64)
        target = there * t_page + (token % T_SIZE).to(tl.int64) * t_token + group * t_group + within
        source += tl.load(places + 2 * plane)
        target += tl.load(places + 2 * plane + 1)
        data = tl.load(aimed(source[:, None], ALIGN, WORD) + words, mask=live[:, None])
        tl.store(aimed(target[:, None], ALIGN, WORD) + words, data, mask=live[:, None])


#: the form of which few programs carry most, beside a forward: each has a multiprocessor to itself
SPARING = AcrossTuning(tile=65536, warps=32)
RUN_TIME = (
    "planes", "ours", "theirs", "first", "tokens", "begin", "tiles", "total", "programs",
    "t_page", "t_token", "t_group",
)  # fmt: skip
across: Any = triton.jit(do_not_specialize=list(RUN_TIME))(_across)


class PagesAcross:
    """The kernel of one kind's planes, compiled, and its table of addresses on the device."""

    def __init__(self, crossing: Crossing, device: torch.device, tuning: AcrossTuning) -> None:
        ours, theirs, row = crossing.ours, crossing.theirs, crossing.row
        heads = crossing.heads if crossing.dense else 1
        self._groups, width = crossing.heads // heads, heads * row
        unit = gcd(width, tuning.tile // 2)
        self._pieces, self._rows = width // unit, tuning.tile // unit
        self._planes, self._page, self._programs = len(crossing.planes), theirs.page_size, tuning.programs
        flat = [address for pair in crossing.planes for address in pair]
        align = gcd(16, *flat, unit, *((each.page | each.token | each.head * heads) for each in (ours, theirs)))
        self._table = torch.tensor(flat, dtype=torch.int64, device=device)
        self._address = self._table.data_ptr()
        constants = (
            ours.page_size, ours.page, ours.token, ours.head * heads,
            theirs.page_size, self._groups, unit, self._pieces, self._rows, min(align, 8), align,
        )  # fmt: skip
        self._strides = theirs.page, theirs.token, theirs.head * heads
        place = -1 if device.index is None else device.index
        self._launch = compile_kernel(place, across, len(RUN_TIME), constants, tuning.warps)

    def bind(self, ours: int, theirs: int, first: int, tokens: int, percent: int = 100) -> Callable[[int], None]:
        """Return the copy of these tokens, to be called with a raw stream.

        `ours` is the address of the room's int64 page table here, `theirs` that of the uint32 pages there, from the one
        with token `first` on. `percent` of the programs do it."""
        units = tokens * self._groups * self._pieces
        need(first + tokens < 1 << 31 and units < 1 << 31, f"{tokens} tokens are too many for one call")
        tiles = -(-units // self._rows)
        total = tiles * self._planes
        need(total < 1 << 31, f"{tokens} tokens are too many for one call")
        programs = min(total, max(1, self._programs * percent // 100))
        arguments = (
            self._address, ours, theirs, first, tokens, first // self._page, tiles, total, programs,
            *self._strides,
        )  # fmt: skip
        return lambda stream: self._launch(programs, 1, 1, stream, *arguments)
