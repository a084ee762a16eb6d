"""A batch of up to eight parts of a cut: its kernel's constants, a table of addresses, the launch.

The compiled kernel depends on the cut and on how the staged parts are aligned. Parts at multiples of 16 bytes, as
grants give them, move in words of 16 bytes; anything else moves in the widest words that fit it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

import torch

from kvproto.io.kernels.cells import move_cells
from kvproto.io.kernels.compiled import Launcher, compile_kernel
from kvproto.io.kernels.pool import Pool, Side, Slice
from kvproto.io.kernels.tile import MAX_PARTS, move

RUN_TIME_ARGUMENTS, CELL_ARGUMENTS = 7 + MAX_PARTS, 2 + 4 * MAX_PARTS
MAX_ROWS = 1024
"""Units in a program; so many only where units are of a few bytes."""
MAX_UNITS = 2**31 - 2**16
"""Units of one layer in one call, and tokens of a table, that 32-bit counting bears."""


@dataclass(frozen=True, slots=True)
class KernelTuning:
    """How work is cut into programs; results never depend on it.

    The defaults were the best of 30 forms on an H200, by 1 to 5 % and in every row: many programs of one warp, each
    thread with four words of 16 bytes on their way. Half the tile loses a fifth to the starting of programs; larger
    ones, several layers a program, eviction policies and cache modifiers each lose a little. Mixing the parts of a row
    gives a scatter of 128-byte rows 2 % and a gather of two heads of eight for four ranks at once as much.

    What one writer alone scatters in strips of 128 bytes of 1,024 (one head of eight in fp8) stays at 0.87 of a copy:
    nine forms reach 0.80 to 0.88, cache hints 0.84 and 0.86, torch's own copy of such strips without pages 0.81.
    """

    tile: int = 2048
    """Bytes a program copies; a power of two, 16 at least."""
    warps: int = 1
    mixed: bool = True
    """Whether programs mix parts, where these are alike and no digests are wanted."""


BEST = KernelTuning()


@dataclass(slots=True)
class Copy:
    """One cell to be copied: its batch, the number of programs, and the kernel's arguments.

    Call it with the raw stream on which it is queued.
    """

    batch: Batch
    launch: Launcher
    #: whether its staged parts lie at multiples of 16 bytes
    aligned: bool
    programs: int
    arguments: tuple[int, ...]

    def __call__(self, stream: int) -> None:
        self.launch(self.programs, *self.batch.grid, stream, *self.arguments)


@dataclass(slots=True)
class Cells:
    """Copies of one batch that are one launch, as `Copy` is."""

    launch: Launcher
    grid: tuple[int, int, int]
    arguments: tuple[int, ...]

    def __call__(self, stream: int) -> None:
        self.launch(*self.grid, stream, *self.arguments)


class Batch:
    """Up to eight parts of a cut: constants, the address table, and compiled kernels by alignment."""

    def __init__(self, pool: Pool, slices: Sequence[Slice], side: Side, tuning: KernelTuning, *, digests: bool) -> None:
        self.parts, self._layers = len(slices), max(part.layers for part in slices)
        self._place, self._warps = pool.gpu, tuning.warps
        dense = not digests and all(grain.head == grain.row for grain in pool.grains)
        # Heads that lie side by side are copied as one row, unless each of them needs a digest of its own.
        group = gcd(*(part.heads for part in slices)) if dense else 1
        groups = [part.heads // group for part in slices]
        uniform = len({(part.heads, part.layers) for part in slices}) == 1
        units = [gcd(group * grain.row, tuning.tile // 2) for grain in pool.grains]
        pieces = [group * grain.row // unit for grain, unit in zip(pool.grains, units, strict=True)]
        rows = [min(tuning.tile // unit, MAX_ROWS) for unit in units]
        geometry = [
            (grain.page, grain.token, grain.head * group, unit, piece)
            for grain, unit, piece in zip(pool.grains, units, pieces, strict=True)
        ]
        alike = geometry[0] == geometry[-1]
        #: Parts are mixed, or each has programs of its own.
        self._mixed = tuning.mixed and alike and uniform and not digests and self.parts > 1
        #: Distinct (units of a token, units of a program), of K and of V.
        self._paces = tuple({(max(groups) * piece, row) for piece, row in zip(pieces, rows, strict=True)})
        self.max_tokens = MAX_UNITS // self.parts // max(units for units, _ in self._paces)
        self.grid = self._layers, len(units)
        addresses = _addresses(pool, slices, self._layers)
        sizes = [part.layers * part.heads for part in slices]
        self.entries = sum(sizes)
        tail = groups + [part.layers for part in slices] + [sum(sizes[:at]) for at in range(self.parts)]
        self._table = torch.tensor(addresses + tail, dtype=torch.int64, device=pool.device)
        self._places, self._unused = self._table.data_ptr(), (0,) * (MAX_PARTS - self.parts)
        # The widest word that divides every address and step: the compiled kernel relies on it.
        self._align = gcd(16, *addresses, *units, *(grain.align for grain in pool.grains))
        self._constants = (
            self.parts, len(units), groups[0] if uniform else 0, pool.page_size, *geometry[0], *geometry[-1],
            rows[0], rows[-1], alike, self._mixed, max(groups), side == "gather", digests,
        )  # fmt: skip
        self._launchers: dict[int, Launcher] = {}
        #: how many cells can be copied at once, and what does it where their parts lie at multiples of 16 bytes
        self._most = 1 if digests else MAX_PARTS // self.parts
        self._cells: Launcher | None = None

    def launcher(self, low_bits: int) -> Launcher:
        """The compiled kernel for staged parts whose addresses, or-ed together, end in these four bits."""
        found = self._launchers.get(low_bits)
        if found is None:
            constants = *self._constants, *self._aligned(low_bits)
            made = compile_kernel(self._place, move, RUN_TIME_ARGUMENTS, constants, self._warps)
            # Two threads may have compiled it at once: both use the one that was stored first.
            found = self._launchers.setdefault(low_bits, made)
        return found

    def _aligned(self, low_bits: int) -> tuple[int, int]:
        align = gcd(self._align, low_bits)
        return min(align, 8), align

    def prepare_cells(self) -> None:
        """Make what `join` needs, where it can be of use."""
        if self._most > 1 and self._cells is None:
            constants = self._most, *self._constants, *self._aligned(0)
            self._cells = compile_kernel(self._place, move_cells, CELL_ARGUMENTS, constants, self._warps)

    def join(self, copies: Sequence[Copy]) -> list[Callable[[int], None]] | None:
        """Join copies of this batch in as few launches as possible; None: nothing was prepared for that."""
        if self._cells is None or not all(copy.aligned for copy in copies):
            return None
        return [self._joined(copies[at : at + self._most]) for at in range(0, len(copies), self._most)]

    def _joined(self, copies: Sequence[Copy]) -> Callable[[int], None]:
        if len(copies) == 1 or self._cells is None:
            return copies[0]
        cells = [copy.arguments for copy in copies]
        none = (0,) * (MAX_PARTS - len(cells))
        tables, firsts, tokens = ((*(cell[at] for cell in cells), *none) for at in (1, 2, 3))
        staged = [part for cell in cells for part in cell[7 : 7 + self.parts]]
        grid = max(copy.programs for copy in copies) * self._most, *self.grid
        unused = (0,) * (MAX_PARTS - len(staged))
        arguments = self._places, self._layers, *tables, *firsts, *tokens, *staged, *unused
        return Cells(self._cells, grid, arguments)

    def bind(self, pages: int, first: int, tokens: int, staged: Sequence[int], digests: int, entries: int) -> Copy:
        """Return the copy, to be queued.

        `pages`, `staged` and `digests` are addresses: of the page table, of each staged part, of this batch's first
        digest in a table of `entries` a row."""
        bits, programs, together = 0, 0, self.parts if self._mixed else 1
        for address in staged:
            bits |= address
        for units, rows in self._paces:
            programs = max(programs, -(-tokens * units * together // rows))
        arguments = self._places, pages, first, tokens, self._layers, digests, entries, *staged, *self._unused
        return Copy(self, self.launcher(bits & 15), not bits & 15, programs * self.parts // together, arguments)


def _addresses(pool: Pool, slices: Sequence[Slice], layers: int) -> list[int]:
    """Return the pool's address of each (part, K or V, layer) and its first head; 0: no such layer."""
    return [
        tensors[mine.layer + layer].data_ptr() + mine.unit * grain.head if layer < mine.layers else 0
        for part in slices
        for tensors, grain, mine in zip(pool.kinds, pool.grains, part.kinds, strict=True)
        for layer in range(layers)
    ]
