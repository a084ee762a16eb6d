"""Gather and scatter in Triton: one launch for all layers, K and V, all pages and up to eight parts.

What a cut needs on the device is made once: the table of pool addresses, with head offsets in it, and the compiled
kernel. A call then checks its arguments, takes a dozen integers and launches the compiled kernel by itself. Triton's
own launch path would look at each argument again to find the kernel it found last time, which costs more than
everything else here together. No call waits for the device, allocates on it, or copies to it; the events that
tickets hold are taken from a pool and go back when a ticket has been seen done.

The compiled kernel depends on the cut and on how the staged parts are aligned. Parts at multiples of 16 bytes, as
grants give them, move in words of 16 bytes; anything else moves in the widest words that fit it.

With TRITON_INTERPRET=1, set before Triton is imported, the same code runs on CPU tensors, for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
import triton

from kvproto.handlers.kernels.base import (
    Cut,
    Done,
    Events,
    KernelError,
    Part,
    Pool,
    Side,
    Ticket,
    check_call,
    need,
)
from kvproto.handlers.kernels.pool import Slice
from kvproto.handlers.kernels.tile import MAX_PARTS, move
from kvproto.layout import Share

INTERPRETED = not isinstance(move, triton.runtime.JITFunction)
RUN_TIME_ARGUMENTS = 7 + MAX_PARTS
MAX_ROWS = 1024
"""Units in a program; so many only where units are of a few bytes."""
MAX_UNITS = 2**31 - 2**16
"""Units of one layer in one call, and tokens of a table, that 32-bit counting bears."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How work is cut into programs; results never depend on it.

    The defaults were the best of 30 forms on an H200, by 1 to 5 % and in every row: many programs of one warp, each
    thread with four words of 16 bytes on their way. Half the tile loses a fifth to the starting of programs; larger
    ones, several layers a program, eviction policies and cache modifiers each lose a little.
    """

    tile: int = 2048
    """Bytes a program copies; a power of two, 16 at least."""
    warps: int = 1
    mixed: bool = True
    """Whether programs mix parts, where these are alike and no digests are wanted."""


class Batch:
    """Up to eight parts of a cut: constants, the table of addresses, and the compiled kernels, by alignment."""

    def __init__(self, pool: Pool, slices: Sequence[Slice], side: Side, tuning: Tuning, *, digests: bool) -> None:
        self.parts, self._layers, self._warps = len(slices), max(part.layers for part in slices), tuning.warps
        dense = not digests and all(grain.head == grain.row for grain in pool.grains)
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
        self._grid = self._layers, len(units)
        addresses = _addresses(pool, slices, self._layers)
        sizes = [part.layers * part.heads for part in slices]
        self.entries = sum(sizes)
        tail = groups + [part.layers for part in slices] + [sum(sizes[:at]) for at in range(self.parts)]
        self._table = torch.tensor(addresses + tail, dtype=torch.int64, device=pool.device)
        self._places, self._unused = self._table.data_ptr(), (0,) * (MAX_PARTS - self.parts)
        self._align = gcd(16, *addresses, *units, *(grain.align for grain in pool.grains))
        self._constants = (
            self.parts, len(units), groups[0] if uniform else 0, pool.page_size, *geometry[0], *geometry[-1],
            rows[0], rows[-1], alike, self._mixed, max(groups), side == "gather", digests,
        )  # fmt: skip
        self._launchers: dict[int, Launcher] = {}

    def launcher(self, low_bits: int) -> Launcher:
        """The compiled kernel for staged parts whose addresses, or-ed together, end in these four bits."""
        found = self._launchers.get(low_bits)
        if found is None:
            align = gcd(self._align, low_bits)
            found = self._launchers[low_bits] = _launcher((*self._constants, min(align, 8), align), self._warps)
        return found

    def launch(
        self, pages: int, first: int, tokens: int, staged: Sequence[int], digests: int, entries: int, stream: int
    ) -> None:
        """Queue the copy. `pages`, `staged` and `digests` are addresses: of the page table, of each staged part, of
        this batch's first digest in a table of `entries` a row."""
        bits, programs, together = 0, 0, self.parts if self._mixed else 1
        for address in staged:
            bits |= address
        for units, rows in self._paces:
            programs = max(programs, -(-tokens * units * together // rows))
        self.launcher(bits & 15)(
            programs * self.parts // together, *self._grid, stream,
            self._places, pages, first, tokens, self._layers, digests, entries, *staged, *self._unused,
        )  # fmt: skip


Launcher = Callable[..., None]
"""Takes the grid's three sizes, the raw stream and the kernel's run-time arguments, one after the other."""


def _addresses(pool: Pool, slices: Sequence[Slice], layers: int) -> list[int]:
    """The pool's address of each (part, K or V, layer), its first head included; 0 where a part has fewer layers."""
    return [
        tensors[part.layer + layer].data_ptr() + part.head * grain.head if layer < part.layers else 0
        for part in slices
        for tensors, grain in zip(pool.kinds, pool.grains, strict=True)
        for layer in range(layers)
    ]


def _launcher(constants: tuple[Any, ...], warps: int) -> Launcher:
    """The kernel compiled for these constants, launched without Triton's look at each argument."""
    if INTERPRETED:
        return lambda x, y, z, _, *arguments: move[x, y, z](*arguments, *constants, num_warps=warps)
    kernel = move.warmup(*[0] * RUN_TIME_ARGUMENTS, *constants, grid=(1, 1, 1), num_warps=warps)
    run, function, packed = kernel.run, kernel.function, kernel.packed_metadata

    def launch(x: int, y: int, z: int, stream: int, *arguments: int) -> None:
        run(x, y, z, stream, function, packed, None, None, None, *arguments, *constants)

    return launch


class TritonKernels:
    """Gather and scatter on one CUDA device; see `Kernels`. Of one thread."""

    def __init__(self, tuning: Tuning = Tuning()) -> None:
        power = tuning.tile & (tuning.tile - 1) == 0
        need(power and tuning.tile >= 16, f"a tile is a power of two of bytes, 16 or more, not {tuning.tile}")
        self._tuning = tuning
        self._events = Events()
        self._streams: dict[int, Any] = {}

    def prepare(self, pool: Pool, side: Side, shares: Sequence[Share], *, digests: bool = False) -> None:
        alone = [(share,) for share in shares] if side == "scatter" and len(shares) > 1 else []
        with nullcontext() if INTERPRETED else torch.cuda.device(pool.place):
            for some in (tuple(shares), *alone):
                for batch in self._batches(pool, side, some, pool.cut(side, some), digests=digests):
                    batch.launcher(0)

    def gather(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, share: Share, out: torch.Tensor,
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        return self._move("gather", pool, table, first, tokens, (share,), (out,), stream, after, digest)

    def gather_parts(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[Part],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        shares, buffers = zip(*parts, strict=True) if parts else ((), ())
        return self._move("gather", pool, table, first, tokens, shares, buffers, stream, after, digest)

    def scatter(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[Part],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        shares, buffers = zip(*parts, strict=True) if parts else ((), ())
        return self._move("scatter", pool, table, first, tokens, shares, buffers, stream, after, digest)

    def _batches(
        self, pool: Pool, side: Side, shares: tuple[Share, ...], cut: Cut, *, digests: bool
    ) -> list[Batch]:
        """What is launched for these shares: made at the first call, unless each share alone was made already.

        So a scatter of some writers of many needs nothing that a scatter of all and of each did not need.
        """
        key = self, digests
        found: list[Batch] | None = cut.plans.get(key)
        if found is None:
            alone = [pool.cut(side, (share,)).plans.get(key) for share in shares]
            if all(alone):
                found = [batch for batches in alone for batch in batches or ()]
            else:
                slices = [cut.slices[at : at + MAX_PARTS] for at in range(0, len(cut.slices), MAX_PARTS)]
                found = [Batch(pool, part, side, self._tuning, digests=digests) for part in slices]
            cut.plans[key] = found
        return found

    def _move(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, shares: tuple[Share, ...],
        buffers: tuple[torch.Tensor, ...], stream: Any, after: Any, digest: torch.Tensor | None,
    ) -> Ticket:  # fmt: skip
        cut = pool.cut(side, shares)
        check_call(pool, cut, table, first, tokens, buffers, digest)
        staged = [buffer.data_ptr() for buffer in buffers]
        digests = 0 if digest is None else digest.data_ptr()
        cell = table.data_ptr(), first, tokens, staged, digests
        if INTERPRETED:
            self._launch(self._batches(pool, side, shares, cut, digests=digests != 0), cut, *cell, 0)
            return Done()
        if torch.cuda.current_device() != pool.place:
            with torch.cuda.device(pool.place):
                return self._queue(pool, side, shares, cut, *cell, stream, after)
        return self._queue(pool, side, shares, cut, *cell, stream, after)

    def _queue(
        self, pool: Pool, side: Side, shares: tuple[Share, ...], cut: Cut, pages: int, first: int, tokens: int,
        staged: list[int], digests: int, stream: Any, after: Any,
    ) -> Ticket:  # fmt: skip
        batches = self._batches(pool, side, shares, cut, digests=digests != 0)
        if stream is None:
            stream = self._current(pool.place)
        if after is not None:
            stream.wait_event(after)
        self._launch(batches, cut, pages, first, tokens, staged, digests, stream.cuda_stream)
        return self._events.ticket(stream)

    @staticmethod
    def _launch(
        batches: list[Batch], cut: Cut, pages: int, first: int, tokens: int, staged: list[int], digests: int,
        stream: int,
    ) -> None:  # fmt: skip
        at = 0
        for batch in batches:
            if tokens > batch.max_tokens or first + tokens > MAX_UNITS:
                raise KernelError(f"tokens {first}..{first + tokens - 1} are too many for one call: use a smaller grid")
            batch.launch(pages, first, tokens, staged[at : at + batch.parts], digests, cut.entries, stream)
            at += batch.parts
            digests += 8 * batch.entries if digests else 0

    def _current(self, device: int) -> Any:
        """The caller's stream. Asking torch for it by name is slow; asking for its handle is not."""
        handle = torch._C._cuda_getCurrentRawStream(device)  # noqa: SLF001 (what Triton itself asks)
        found = self._streams.get(handle)
        if found is None:
            found = self._streams[handle] = torch.cuda.current_stream(device)
        return found
