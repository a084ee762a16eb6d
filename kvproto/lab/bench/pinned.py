"""Staging in pinned host memory, beside the plain copies between host and device, in the same run.

As the engine does it (`kvproto.data.staging_buffers`): a chunk is gathered into device memory and a copy engine takes
it to the host while the next is gathered; back, a copy engine brings a chunk and it is scattered while the next is
brought. `direct` is the same kernel reaching into host memory by itself. Times are from the first launch to the last
byte, bytes are counted once, and each form is checked on random bytes against plain indexing.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch

from kvproto.arguments import positive
from kvproto.data.device_streams import DeviceStreams
from kvproto.data.staging_buffers import Staging
from kvproto.io.kernels.base import Kernels, Side
from kvproto.io.kernels.torch import TorchKernels
from kvproto.lab.bench.kernel_work import KernelShape
from kvproto.lab.bench.pools import MARKER, marked_twin, random_bytes, random_pool, same
from kvproto.lab.bench.results import Course, command_line


def timed(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """The median seconds of each call, the calls taking turns."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats + 2):
        for call, spent in zip(calls, times, strict=True):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            call()
            torch.cuda.synchronize()
            spent.append(time.perf_counter() - begin)
    return [statistics.median(spent[2:]) for spent in times]


class StagedShare:
    """A share of a pool, its staging, and the pieces in which it is moved."""

    def __init__(self, side: Side, nbytes: int, pieces: int) -> None:
        shape = KernelShape(4, 2, layers=32)
        plan = shape.plan()
        layout = plan.prefill if side == "gather" else plan.decode
        self.side, self.share = side, (plan.duties(0) if side == "gather" else plan.writers(0))[0]
        self.per_token = plan.part_bytes(self.share, 1)
        self.step = nbytes // self.per_token // pieces
        self.tokens = self.step * pieces
        self.nbytes = self.tokens * self.per_token
        self.pool = random_pool(layout, self.tokens // shape.page * 5 // 4)
        self.table = torch.randperm(self.pool.pages, device="cuda")[: self.tokens // shape.page]
        self.lane = DeviceStreams(self.pool.device)
        self.staging = Staging(self.nbytes, self.lane, "pinned")

    def pieces(self) -> list[tuple[int, int, int]]:
        """(first token, first byte, last byte) of each."""
        size = self.step * self.per_token
        return [(i * self.step, i * size, (i + 1) * size) for i in range(self.tokens // self.step)]

    def staged(self, kernels: Kernels) -> None:
        for first, begin, end in self.pieces():
            part, stream = self.staging.near[begin:end], self.lane.stream
            if self.side == "gather":
                ticket = kernels.gather(self.pool, self.table, first, self.step, self.share, part, stream=stream)
                self.staging.sent_off(begin, end, ticket)
            else:
                self.staging.bring(begin, end)
                kernels.scatter(self.pool, self.table, first, self.step, [(self.share, part)], stream=stream)

    def direct(self, kernels: Kernels) -> None:
        for first, begin, end in self.pieces():
            part: Any = self.share, self.staging.wire[begin:end]
            if self.side == "gather":
                kernels.gather(self.pool, self.table, first, self.step, *part, stream=self.lane.stream)
            else:
                kernels.scatter(self.pool, self.table, first, self.step, [part], stream=self.lane.stream)

    def plain(self) -> None:
        to, source = self.staging.wire, self.staging.near
        if self.side == "scatter":
            to, source = source, to
        to.copy_(source, non_blocking=True)

    def right(self, kernels: Kernels) -> bool:
        """Whether the staged form moves what plain indexing does, and nothing else."""
        wire, near = self.staging.wire, self.staging.near
        if self.side == "gather":
            wire.fill_(MARKER)
            near.fill_(MARKER)
            torch.cuda.synchronize()
            self.staged(kernels)
            torch.cuda.synchronize()
            wanted = [self._reference(*piece) for piece in self.pieces()]
            return torch.equal(torch.cat(wanted), wire.cuda())
        wire.copy_(random_bytes(self.nbytes))
        near.fill_(MARKER)
        pool = marked_twin(self.pool)
        torch.cuda.synchronize()
        self.staged(kernels)
        for first, begin, end in self.pieces():
            TorchKernels().scatter(pool, self.table, first, self.step, [(self.share, wire[begin:end].cuda())])
        torch.cuda.synchronize()
        return same(pool, self.pool)

    def _reference(self, first: int, begin: int, end: int) -> torch.Tensor:
        out = torch.empty(end - begin, dtype=torch.uint8, device="cuda")
        TorchKernels().gather(self.pool, self.table, first, self.step, self.share, out)
        return out


def measure(kernels: Kernels, side: Side, mib: int, pieces: int, repeats: int) -> dict[str, Any]:
    """One row."""
    job = StagedShare(side, mib << 20, pieces)
    right = job.right(kernels)
    plain, staged = timed([job.plain, lambda: job.staged(kernels)], repeats)
    (direct,) = timed([lambda: job.direct(kernels)], max(2, repeats // 4))
    return {
        "what": side, "bytes": job.nbytes, "pieces": pieces, "copy_gbs": 1e-9 * job.nbytes / plain,
        "staged_gbs": 1e-9 * job.nbytes / staged, "direct_gbs": 1e-9 * job.nbytes / direct, "ratio": plain / staged,
        "right": right,
    }  # fmt: skip


SIDES: tuple[Side, ...] = ("gather", "scatter")
#: MiB, and chunks that they come in
SIZES = ((64, 8), (256, 16), (1024, 32))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if any row was wrong, 2 if there is no GPU."""
    parser = command_line("pinned", __doc__)
    parser.add_argument("--repeats", type=positive, default=21, help="timed calls a row (default 21)")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("This benchmark needs a CUDA GPU, and torch sees none here.", file=sys.stderr)
        return 2
    from kvproto.io.kernels.triton import TritonKernels

    course, found, kernels = Course("pinned", argv, options), list[dict[str, Any]](), TritonKernels()
    for side, (mib, pieces) in course.cases(list(product(SIDES, SIZES))):
        found.append(measure(kernels, side, mib, pieces, options.repeats))
        course.keep(found)
    course.end(found)
    return 0 if all(row["right"] for row in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
