"""Gather and scatter in Triton: one launch for all layers, all kinds, all pages and up to eight parts.

What a cut needs on the device is made once (`batch`): the table of pool addresses, with head offsets in it, and the
compiled kernel. A call then checks its arguments and launches. No call waits for the device, allocates on it, or
copies to it; the events that tickets hold are taken from a pool and go back when a ticket has been seen done.

With TRITON_INTERPRET=1, set before Triton is imported, the same code runs on CPU tensors, for tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from kvproto.io.kernels.across import SPARING, AcrossTuning, PagesAcross
from kvproto.io.kernels.base import (
    Done,
    Events,
    KernelError,
    Launch,
    Pool,
    Side,
    SliceCopy,
    StagedPart,
    Ticket,
    check_call,
    need,
)
from kvproto.io.kernels.batch import BEST, MAX_UNITS, Batch, Copy, KernelTuning
from kvproto.io.kernels.compiled import INTERPRETED
from kvproto.io.kernels.crossing import Crossing, Most, PagesCopy, all_of_them
from kvproto.io.kernels.current_device import use_device
from kvproto.io.kernels.flat_batch import FlatBatch, FlatCopy, joined
from kvproto.io.kernels.tile import MAX_PARTS
from kvproto.layout.plan import Share

__all__ = ["INTERPRETED", "KernelTuning", "TritonKernels"]

class DeviceCopy:
    """A share on its way into a peer's pages, by kernels of this device."""

    def __init__(
        self, launch: Callable[..., Launch], copies: Sequence[PagesAcross], sparing: Sequence[PagesAcross], most: Most
    ) -> None:  # fmt: skip
        """`sparing`: the same copies in the form for few programs; none: it is the only one."""
        self._launch, self._copies, self._sparing, self._most = launch, copies, sparing, most

    def bind(self, table: torch.Tensor, theirs: torch.Tensor, first: int, tokens: int) -> Launch:
        cell = table.data_ptr(), theirs.data_ptr(), first, tokens
        bound = [copy.bind(*cell) for copy in self._copies]
        if self._sparing:
            bound = [partial(self._queue, *each, cell) for each in zip(bound, self._sparing, strict=True)]
        return self._launch(bound, (table, theirs))

    def _queue(
        self, whole: Callable[[int], None], sparing: PagesAcross, cell: tuple[int, int, int, int], stream: int
    ) -> None:  # fmt: skip
        percent = self._most()
        (whole if percent >= WHOLE else sparing.bind(*cell, percent))(stream)


class DeviceLaunch:
    """Cells that are bound, as the contract of `Launch` has it."""

    __slots__ = ("copies", "held", "kernels", "place")

    def __init__(
        self, kernels: TritonKernels, place: int, copies: Sequence[Callable[[int], None]], held: object
    ) -> None:  # fmt: skip
        """`held`: what the addresses are of, not to be freed while the launch is kept."""
        self.kernels, self.place, self.copies, self.held = kernels, place, copies, held

    def __call__(self, stream: Any, after: Any) -> Ticket:
        return self.kernels.launch(self.place, self.copies, stream, after)


#: percent of the multiprocessors
WHOLE = 100
ALONE = "alone"
"""Marks what was prepared of a single share, for scatters of some of them."""


class TritonKernels:
    """Gather and scatter on the pool's own CUDA device, whatever the current one is; see `Kernels`.

    If two threads prepare one cut at a time, the first result stays: its table may be in use by then.
    """

    def __init__(self, tuning: KernelTuning = BEST, across: AcrossTuning = AcrossTuning()) -> None:  # noqa: B008
        power = tuning.tile.bit_count() == 1
        need(power and tuning.tile >= 16, f"a tile is a power of two of bytes, 16 or more, not {tuning.tile}")
        self._tuning, self._across = tuning, across
        #: by device
        self._events: defaultdict[int, Events] = defaultdict(Events)
        #: by device and the stream's handle: every device has a stream 0
        self._streams: dict[tuple[int, int], Any] = {}

    def prepare(self, pool: Pool, side: Side, shares: Sequence[Share], *, digests: bool = False) -> None:
        alone = [(share,) for share in shares] if side == "scatter" and len(shares) > 1 else []
        for some in (tuple(shares), *alone):
            cut = pool.cut(side, some)
            found = cut.plans.get((self, digests)) or self._make(pool, side, cut, digests=digests)
            for batch in found:
                batch.launcher(0)
                batch.prepare_cells()
            if some in alone:
                cut.plans[self, digests, ALONE] = found

    def gather(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, share: Share, out: torch.Tensor,
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        return self._move("gather", pool, table, first, tokens, (share,), (out,), stream, after, digest)

    def gather_parts(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        shares, buffers = zip(*parts, strict=True) if parts else ((), ())
        return self._move("gather", pool, table, first, tokens, shares, buffers, stream, after, digest)

    def scatter(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        shares, buffers = zip(*parts, strict=True) if parts else ((), ())
        return self._move("scatter", pool, table, first, tokens, shares, buffers, stream, after, digest)

    def cross(self, pool: Pool, crossings: Sequence[Crossing], most: Most = all_of_them) -> PagesCopy | None:
        forms = self._across, *(() if most is all_of_them else (SPARING,))
        copies, *sparing = ([PagesAcross(each, pool.device, form) for each in crossings] for form in forms)
        spared = [each for some in sparing for each in some]
        return DeviceCopy(partial(DeviceLaunch, self, pool.gpu), copies, spared, most)

    def _make(self, pool: Pool, side: Side, cut: SliceCopy, *, digests: bool) -> list[Batch | FlatBatch]:
        slices = [cut.slices[at : at + MAX_PARTS] for at in range(0, len(cut.slices), MAX_PARTS)]
        found: list[Batch | FlatBatch]
        if pool.of is None:
            found = [Batch(pool, part, side, self._tuning, digests=digests) for part in slices]
        else:
            found = [FlatBatch(pool, part, side, self._tuning, digests=digests) for part in slices]
        return self._first(cut, found, digests=digests)

    def _first(self, cut: SliceCopy, made: list[Batch | FlatBatch], *, digests: bool) -> list[Batch | FlatBatch]:
        """Store the batches of a cut, unless there are some already; return the stored ones."""
        kept: list[Batch | FlatBatch] = cut.plans.setdefault((self, digests), made)
        return kept

    def _batches(
        self, pool: Pool, side: Side, shares: tuple[Share, ...], cut: SliceCopy, *, digests: bool
    ) -> list[Batch | FlatBatch]:
        """Return the batches of these shares, made at the first call unless each was prepared.

        So a scatter of some writers of many, of which there are too many kinds to prepare, compiles nothing.
        """
        found: list[Batch | FlatBatch] | None = cut.plans.get((self, digests))
        if found is None:
            alone = [pool.cut(side, (share,)).plans.get((self, digests, ALONE)) for share in shares]
            if not all(alone):
                return self._make(pool, side, cut, digests=digests)
            found = self._first(cut, [batch for batches in alone for batch in batches or ()], digests=digests)
        return found

    def bind(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart]
    ) -> Launch:  # fmt: skip
        shares, buffers = zip(*parts, strict=True) if parts else ((), ())
        return self._bind(side, pool, table, first, tokens, shares, buffers, None)

    def _move(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, shares: tuple[Share, ...],
        buffers: tuple[torch.Tensor, ...], stream: Any, after: Any, digest: torch.Tensor | None,
    ) -> Ticket:  # fmt: skip
        return self._bind(side, pool, table, first, tokens, shares, buffers, digest)(stream, after)

    def _bind(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, shares: tuple[Share, ...],
        buffers: tuple[torch.Tensor, ...], digest: torch.Tensor | None,
    ) -> Launch:  # fmt: skip
        cut = pool.cut(side, shares)
        check_call(pool, cut, table, first, tokens, buffers, digest)
        batches = self._batches(pool, side, shares, cut, digests=digest is not None)
        pages, staged = table.data_ptr(), [buffer.data_ptr() for buffer in buffers]
        digests, copies, at = 0 if digest is None else digest.data_ptr(), list[Callable[[int], None]](), 0
        for batch in batches:
            if tokens > batch.max_tokens or first + tokens > MAX_UNITS:
                last = first + tokens - 1
                raise KernelError(f"tokens {first}..{last} are too many for one call: use smaller chunks")
            ours = staged[at : at + batch.parts]
            copies.append(batch.bind(pages, first, tokens, ours, digests, cut.entries))
            at += batch.parts
            digests += 8 * batch.entries if digests else 0
        return DeviceLaunch(self, pool.gpu, copies, (table, buffers, digest))

    def prepare_joint(self, side: Side, chunk: Sequence[tuple[Pool, Sequence[Share]]]) -> None:
        found = [
            batch for pool, shares in chunk
            for batch in self._batches(pool, side, tuple(shares), pool.cut(side, tuple(shares)), digests=False)
        ]  # fmt: skip
        first, *others = (batch for batch in found if isinstance(batch, FlatBatch))
        first.prepare_joined(others)

    def join(self, launches: Sequence[Launch]) -> Launch | None:
        bound = [each for each in launches if isinstance(each, DeviceLaunch)]
        if not bound or len(bound) < len(launches):
            return None
        copies = [copy for each in bound for copy in each.copies]
        if isinstance(copies[0], FlatCopy):
            one = joined(copies)
            return None if one is None else DeviceLaunch(self, bound[0].place, [one], launches)
        cells = [copy for copy in copies if isinstance(copy, Copy)]
        if not cells:  # into peers' pages: kernels of their own, of which one event tells
            return DeviceLaunch(self, bound[0].place, copies, launches)
        alike = len(cells) == len(copies) == len(bound) and all(copy.batch is cells[0].batch for copy in cells)
        found = cells[0].batch.join(cells) if alike else None
        return None if found is None else DeviceLaunch(self, bound[0].place, found, launches)

    def launch(self, place: int, copies: Sequence[Callable[[int], None]], stream: Any, after: Any) -> Ticket:
        if INTERPRETED:
            for copy in copies:
                copy(0)
            return Done()
        with use_device(place):
            if stream is None:
                stream = self._current(place)
            if after is not None:
                stream.wait_event(after)
            try:
                for copy in copies:
                    copy(stream.cuda_stream)
                return self._events[place].ticket(stream)
            except Exception:
                stream.synchronize()  # to the caller nothing was launched, and a copy before this one may be under way
                raise

    def _current(self, device: int) -> Any:
        """The caller's stream. Asking torch for it by name is slow; asking for its handle is not."""
        handle = torch._C._cuda_getCurrentRawStream(device)  # noqa: SLF001 (what Triton itself asks)
        found = self._streams.get((device, handle))
        if found is None:
            found = self._streams[device, handle] = torch.cuda.current_stream(device)
        return found
