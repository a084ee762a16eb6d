"""FlatBatch: copies up to eight parts of a cut of named caches by one launch over all their planes.

What a launch needs on the device is made once: the table of forms and planes (`kvproto.io.kernels.flat`).  A launch
gives addresses and counts as plain arguments.  Planes of one form are ordered by layer, then kind, then part, so that
programs which run at the same moment touch neighbouring memory: several writers' strips of one row meet in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

import torch

from kvproto.io.kernels.batch import MAX_ROWS, MAX_UNITS, KernelTuning
from kvproto.io.kernels.compiled import Launcher, compile_kernel
from kvproto.io.kernels.flat import flat
from kvproto.io.kernels.pool import Pool, Side, Slice
from kvproto.io.kernels.tile import MAX_PARTS
from kvproto.layout.caches import WIDEST

RUN_TIME_ARGUMENTS = 6 + MAX_PARTS
#: strides of page, token and group in the pool; groups of a token, bytes of a unit, units of a group and of a program
Form = tuple[int, int, int, int, int, int, int]
#: layer, kind and part that order it; address in the pool, staged part, staged bytes of one token before it, the first
#: of its digests, and the entry of the table that its first page is in
Plane = tuple[int, int, int, int, int, int, int, int]


class FlatBatch:
    """Parts of a cut: the table of their planes by form, and compiled kernels by alignment."""

    def __init__(self, pool: Pool, slices: Sequence[Slice], side: Side, tuning: KernelTuning, *, digests: bool) -> None:
        self.parts, self.entries = len(slices), sum(part.digests for part in slices)
        self._place, self._warps = pool.gpu, tuning.warps
        found = _planes(pool, slices, tuning.tile, digests=digests)
        self._forms, planes = list(found), [sorted(found[form]) for form in found]
        table, at = list[int](), 2 * len(planes)
        for some in planes:
            table += [at, len(some)]
            at += 5 * len(some)
        self._table = torch.tensor(
            table + [number for some in planes for plane in some for number in plane[3:]],
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
        self._constants = len(self._forms), self.parts, pool.page_size, side == "gather", digests
        self._launchers: dict[int, Launcher] = {}

    def launcher(self, low_bits: int) -> Launcher:
        """The compiled kernel for staged parts whose addresses, or-ed together, end in these four bits."""
        found = self._launchers.get(low_bits)
        if found is None:
            aligns = [gcd(align, low_bits) for align in self._aligns]
            forms = tuple((*form, min(at, 8), at) for form, at in zip(self._forms, aligns, strict=True))
            made = compile_kernel(self._place, flat, RUN_TIME_ARGUMENTS, (forms, *self._constants), self._warps)
            # Two threads may have compiled it at once: both use the one that was stored first.
            found = self._launchers.setdefault(low_bits, made)
        return found

    def prepare_cells(self) -> None:
        """Prepare nothing: launches of such batches are not joined."""

    def bind(
        self, pages: int, first: int, tokens: int, staged: Sequence[int], digests: int, entries: int
    ) -> Callable[[int], None]:  # fmt: skip
        """Return the copy, to be called with a raw stream; the arguments are those of `Batch.bind`."""
        bits = 0
        for address in staged:
            bits |= address
        programs = sum(count * -(-tokens * units // rows) for count, units, rows in self._paces)
        unused = (0,) * (MAX_PARTS - self.parts)
        arguments = self._table.data_ptr(), pages, first, tokens, digests, entries, *staged, *unused
        return partial(_queue, self.launcher(bits & 15), programs, arguments)


def _queue(launch: Launcher, programs: int, arguments: tuple[int, ...], stream: int) -> None:
    launch(programs, 1, 1, stream, *arguments)


def _planes(pool: Pool, slices: Sequence[Slice], tile: int, *, digests: bool) -> dict[Form, list[Plane]]:
    found: dict[Form, list[Plane]] = {}
    entry = 0
    for part, one in enumerate(slices):
        before = 0
        for number, (tensors, grain, mine) in enumerate(zip(pool.kinds, pool.grains, one.kinds, strict=True)):
            if not mine.layers:
                continue
            # Units that lie side by side in the pool are copied as one row, unless each needs a digest of its own.
            group = mine.units if grain.head == grain.row and not digests else 1
            unit = gcd(group * grain.row, tile // 2)
            form = (grain.page, grain.token, grain.head * group, mine.units // group, unit,
                    group * grain.row // unit, min(tile // unit, MAX_ROWS))  # fmt: skip
            for layer in range(mine.layers):
                address = tensors[mine.layer + layer].data_ptr() + mine.unit * grain.head
                first = entry + one.entries[number] + layer * mine.units
                slot = pool.slot_of[mine.layer + layer] * pool.stride if pool.slot_of else 0
                found.setdefault(form, []).append((layer, number, part, address, part, before, first, slot))
                before += mine.width
        entry += one.digests
    return found
