"""FlatBatch: copies up to eight parts of a cut of named caches by one launch over all their planes.

What a launch needs on the device is made once: the table of forms and planes (`kvproto.io.kernels.flat`).  A launch
gives addresses and counts as plain arguments.  Planes of one form are ordered by layer, then kind, then part, so that
programs which run at the same moment touch neighbouring memory: several writers' strips of one row meet in the cache.

Rows of few bytes, or of an odd number, are cut into narrow units: 132 bytes into 33 words, each with a look at the
page table.  Where such rows follow one another, a page is one run of bytes and has wide units.  So a batch of narrow
rows has a second one whose rows are pages, for calls of whole pages.

Copies of several batches, as a joint chunk has them, are one launch where that was prepared (`prepare_joined`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd

import torch

from kvproto.io.kernels.batch import MAX_ROWS, MAX_UNITS, KernelTuning
from kvproto.io.kernels.compiled import Launcher, compile_kernel
from kvproto.io.kernels.flat import MAX_SOURCES, flat
from kvproto.io.kernels.pool import Pool, Side, Slice
from kvproto.io.kernels.tile import MAX_PARTS
from kvproto.layout.caches import WIDEST

#: bytes of a unit below which whole pages are worth a kernel of their own
NARROW = 32
#: arguments of a launch
RUN_TIME_ARGUMENTS = 4 * MAX_SOURCES + 2 + MAX_PARTS
#: addresses of the planes and of the page table, the first token in it and how many there are
Cell = tuple[int, int, int, int]
NO_CELL = 0, 0, 0, 0
#: strides of page, token and group in the pool; groups of a token, bytes of a unit, units of a group and of a program
Form = tuple[int, int, int, int, int, int, int]
#: layer, kind and part that order it; address in the pool, staged part, staged bytes of one token before it, the first
#: of its digests, and the entry of the table that its first page is in
Plane = tuple[int, int, int, int, int, int, int, int]


@dataclass(slots=True)
class FlatCopy:
    """A copy of one batch; call it with the raw stream on which it is queued."""

    batch: FlatBatch
    launch: Launcher
    #: whether its staged parts lie at multiples of 16 bytes
    aligned: bool
    programs: int
    cell: Cell
    staged: Sequence[int]
    arguments: tuple[int, ...]

    def __call__(self, stream: int) -> None:
        _queue(self.launch, self.programs, self.arguments, stream)


class FlatBatch:
    """Parts of a cut: the table of their planes by form, and compiled kernels by alignment."""

    def __init__(
        self, pool: Pool, slices: Sequence[Slice], side: Side, tuning: KernelTuning, *, digests: bool,
        pages: dict[Form, list[Plane]] | None = None,
    ) -> None:  # fmt: skip
        """`pages`: the planes of a batch whose rows are pages; None: they are tokens."""
        self.parts, self.entries = len(slices), sum(part.digests for part in slices)
        self._place, self._warps = pool.gpu, tuning.warps
        found = pages or _planes(pool, slices, tuning.tile, digests=digests)
        self._forms, planes = list(found), [sorted(found[form]) for form in found]
        self._table = torch.tensor(
            [number for some in planes for plane in some for number in plane[3:]],
            dtype=torch.int64, device=pool.device,
        )  # fmt: skip
        #: of each form: how many planes, units of a token, units of a program
        self._paces = [(len(some), form[3] * form[5], form[6]) for form, some in zip(self._forms, planes, strict=True)]
        self.max_tokens = MAX_UNITS // max(count * units for count, units, _ in self._paces)
        #: the widest word that divides every address and step of a form: the compiled kernel relies on it
        self._aligns = [
            gcd(WIDEST, *form[:3], form[4], *(number for plane in some for number in (plane[3], plane[5])))
            for form, some in zip(self._forms, planes, strict=True)
        ]
        #: of each form, 1 where some plane's first page is not in the table's first entry
        self._shifted = [int(any(plane[-1] for plane in some)) for some in planes]
        self._unused = (0,) * (MAX_PARTS - self.parts)
        self._page = page = 1 if pages else pool.page_size
        self._constants = side == "gather", digests
        self._launchers: dict[int, Launcher] = {}
        #: by the batches behind this one: the kernel of them all
        self.joined: dict[tuple[FlatBatch, ...], Launcher] = {}
        self._by_page: FlatBatch | None = None
        if not digests and min(form[4] for form in self._forms) < NARROW:
            whole = _planes(pool, slices, tuning.tile, digests=False, page=page)
            if min((form[4] for form in whole), default=0) > min(form[4] for form in self._forms):
                self._by_page = FlatBatch(pool, slices, side, tuning, digests=False, pages=whole)

    def launcher(self, low_bits: int) -> Launcher:
        """The compiled kernel for staged parts whose addresses, or-ed together, end in these four bits."""
        found = self._launchers.get(low_bits)
        if found is None:
            # Two threads may have compiled it at once: both use the one that was stored first.
            found = self._launchers.setdefault(low_bits, self._compiled(low_bits, ()))
        return found

    def _compiled(self, low_bits: int, others: Sequence[FlatBatch]) -> Launcher:
        forms, parts = list[tuple[int, ...]](), 0
        for source, each in enumerate((self, *others)):
            forms += each.forms_of(low_bits, source, parts)
            parts += each.parts
        constants = tuple(forms), len(forms), parts, *self._constants
        return compile_kernel(self._place, flat, RUN_TIME_ARGUMENTS, constants, self._warps)

    def forms_of(self, low_bits: int, source: int, part: int) -> list[tuple[int, ...]]:
        """Return what is compiled of its forms, as the source and with the first part of these numbers."""
        found, first = list[tuple[int, ...]](), 0
        about = zip(self._forms, self._aligns, self._shifted, self._paces, strict=True)
        for form, align, shifted, (planes, _, _) in about:
            widest = gcd(align, low_bits)
            found.append((*form, min(widest, 8), widest, self._page, shifted, part, source, first, planes))
            first += planes
        return found

    def prepare_cells(self) -> None:
        """Make the kernel of whole pages; launches of such batches are not joined."""
        if self._by_page is not None:
            self._by_page.launcher(0)

    def bind(
        self, pages: int, first: int, tokens: int, staged: Sequence[int], digests: int, entries: int
    ) -> FlatCopy:  # fmt: skip
        """Return the copy, to be queued; the arguments are those of `Batch.bind`."""
        if self._by_page is not None and not (first % self._page or tokens % self._page):
            return self._by_page.bind(pages, first // self._page, tokens // self._page, staged, digests, entries)
        bits = 0
        for address in staged:
            bits |= address
        programs = sum(count * -(-tokens * units // rows) for count, units, rows in self._paces)
        planes = self._table.data_ptr()
        # One source of the four that a launch may have.
        arguments = (
            planes, 0, 0, 0, pages, 0, 0, 0, first, 0, 0, 0, tokens, 0, 0, 0, digests, entries, *staged, *self._unused,
        )  # fmt: skip
        cell = planes, pages, first, tokens
        return FlatCopy(self, self.launcher(bits & 15), not bits & 15, programs, cell, staged, arguments)

    def prepare_joined(self, others: Sequence[FlatBatch]) -> None:
        """Compile the kernel of one launch of this batch and of these, where a launch has room for them."""
        key = tuple(others)
        if sum(each.parts for each in (self, *key)) <= MAX_PARTS and len(key) < MAX_SOURCES and key not in self.joined:
            self.joined[key] = self._compiled(0, key)


def joined(copies: Sequence[object]) -> Callable[[int], None] | None:
    """Return one launch of these copies without digests.

    None: it was not prepared, or some are of another kind.
    """
    cells, staged, batches, programs = [NO_CELL] * MAX_SOURCES, list[int](), list[FlatBatch](), 0
    for at, copy in enumerate(copies):
        if not isinstance(copy, FlatCopy) or not copy.aligned or at == MAX_SOURCES:
            return None
        cells[at] = copy.cell
        batches.append(copy.batch)
        staged += copy.staged
        programs += copy.programs
    launch = batches[0].joined.get(tuple(batches[1:]))
    if launch is None:
        return None
    planes, pages, first, tokens = zip(*cells, strict=True)
    arguments = *planes, *pages, *first, *tokens, 0, 0, *staged, *(0,) * (MAX_PARTS - len(staged))
    return partial(_queue, launch, programs, arguments)


def _queue(launch: Launcher, programs: int, arguments: tuple[int, ...], stream: int) -> None:
    launch(programs, 1, 1, stream, *arguments)


def _planes(
    pool: Pool, slices: Sequence[Slice], tile: int, *, digests: bool, page: int = 1
) -> dict[Form, list[Plane]]:  # fmt: skip
    """Return the planes by form; `page`: tokens of a row ({}: its heads lie apart)."""
    found: dict[Form, list[Plane]] = {}
    entry = 0
    for part, one in enumerate(slices):
        before = 0
        for number, (tensors, grain, mine) in enumerate(zip(pool.kinds, pool.grains, one.kinds, strict=True)):
            if not mine.layers:
                continue
            # Units that lie side by side in the pool are copied as one row, unless each needs a digest of its own.
            group = mine.units if grain.head == grain.row and not digests else 1
            groups, step, width = mine.units // group, grain.head * group, group * grain.row
            if page > 1 and groups > 1:
                return {}
            if page > 1 and grain.token == width:  # the tokens of a page are one run
                step, width = grain.page, page * width
            elif page > 1:
                groups, step = page, grain.token
            unit = gcd(width, tile // 2)
            token = grain.token if page == 1 else grain.page
            form = grain.page, token, step, groups, unit, width // unit, min(tile // unit, MAX_ROWS)
            for layer in range(mine.layers):
                address = tensors[mine.layer + layer].data_ptr() + mine.unit * grain.head
                first = entry + one.entries[number] + layer * mine.units
                slot = pool.slot_of[mine.layer + layer] * pool.stride if pool.slot_of else 0
                found.setdefault(form, []).append((layer, number, part, address, part, page * before, first, slot))
                before += mine.width
        entry += one.digests
    return found
