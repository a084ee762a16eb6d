"""What gather and scatter reach on a GPU, beside a device-to-device copy of as many bytes, in the same run.

A row is one direction of one pair of tensor-parallel sizes, at one page size, with random distinct pages. `one` is a
single share, as when each writer's part is handled as it comes; `all` is every share of the rank in one launch. The
figure is bytes read plus bytes written, over the median of the device's own time for a call; copy and kernel take
turns, so that both see the same clocks and the same neighbours. The size is that of the staged bytes, the same for
copy and kernel.

Each row is checked before it is timed, on random bytes: the outputs are filled with a marker, and then compared in
full with what plain indexing gives, pages that must not change included.

The host's part is measured apart: the time a call takes until it returns, for a chunk small enough that it matters.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kvproto.bench.kernel_work import Shape, check, make_work, random_bytes, shapes
from kvproto.handlers.kernels.base import Kernels, Side


def device_times(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """The median seconds on the device of each call, the calls taking turns.

    The device is put to sleep until all of it is queued, so that it never waits for the host between two marks.
    """
    event: Callable[..., Any] = torch.cuda.Event
    sleep: Callable[[int], Any] = torch.cuda._sleep  # noqa: SLF001 (there is no public one)
    for call in calls:
        call()
    marks = [[(event(enable_timing=True), event(enable_timing=True)) for _ in range(repeats)] for _ in calls]
    torch.cuda.synchronize()
    sleep(200_000 * repeats * len(calls))
    for turn in range(repeats):
        for call, pairs in zip(calls, marks, strict=True):
            pairs[turn][0].record()
            call()
            pairs[turn][1].record()
    torch.cuda.synchronize()
    return [statistics.median(a.elapsed_time(b) for a, b in pairs) * 1e-3 for pairs in marks]


def measure(
    shape: Shape, side: Side, every: bool, nbytes: int, kernels: Kernels, repeats: int, *, pinned: bool = False
) -> dict[str, Any]:
    """One row. With pinned host memory the bytes are counted once, as they cross the bus once."""
    work = make_work(shape, side, every, nbytes, pinned=pinned)
    right = check(work, kernels)
    source, target = random_bytes(work.nbytes), random_bytes(work.nbytes)
    if pinned and side == "gather":
        target = target.cpu().pin_memory()
    elif pinned:
        source = source.cpu().pin_memory()
    calls = [lambda: target.copy_(source, non_blocking=True), lambda: work.run(kernels)]
    copy, kernel = device_times(calls, repeats)
    moved = (1e-9 if pinned else 2e-9) * work.nbytes
    return {
        "what": side, "pair": shape.name, "page": shape.page, "parts": len(work.parts), "pinned": pinned,
        "row": work.parts[0][0].heads * work.pool.grains[0].row, "tokens": work.tokens, "bytes": work.nbytes,
        "copy_gbs": moved / copy, "kernel_gbs": moved / kernel, "ratio": copy / kernel, "right": right,
        "shape": asdict(shape),
    }  # fmt: skip


def host_times(kernels: Kernels, calls: int) -> list[dict[str, Any]]:
    """Seconds until a call of a chunk of 512 tokens and 32 layers returns: median and 99th percentile."""
    found: list[dict[str, Any]] = []
    cases: tuple[tuple[Side, Shape, bool], ...] = (
        ("gather", Shape(4, 2, layers=32), False), ("gather", Shape(1, 4, layers=32), True),
        ("scatter", Shape(4, 2, layers=32), False), ("scatter", Shape(4, 2, layers=32), True),
        ("scatter", Shape(8, 1, layers=32), True),
    )  # fmt: skip
    for side, shape, every in cases:
        plan = shape.plan()
        shares = plan.duties(0) if side == "gather" else plan.writers(0)
        shares = shares if every else shares[:1]
        work = make_work(shape, side, every, 512 * sum(plan.part_bytes(share, 1) for share in shares))
        spent = []
        for turn in range(calls + 50):
            begin = time.perf_counter()
            ticket = work.run(kernels)
            spent.append(time.perf_counter() - begin)
            if turn % 16 == 15:
                torch.cuda.synchronize()
            ticket.done()
        spent = sorted(spent[50:])
        found.append({
            "what": side, "pair": shape.name, "parts": len(shares), "tokens": work.tokens,
            "median_us": 1e6 * spent[len(spent) // 2], "p99_us": 1e6 * spent[len(spent) * 99 // 100],
        })  # fmt: skip
    return found


def machine() -> dict[str, Any]:
    return {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "python": platform.python_version(),
        "multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count,
    }  # fmt: skip


def plan_rows(side: Side, mib: int, quick: bool) -> list[tuple[Shape, bool, int]]:
    """The rows of a direction: each shape with one share and, where there are more, with all; then smaller sizes."""
    wanted = []
    for shape in shapes(quick):
        plan = shape.plan()
        several = len(plan.duties(0) if side == "gather" else plan.writers(0)) > 1
        wanted += [(shape, every, mib) for every in ((False, True) if several else (False,))]
    return wanted + [(Shape(4, 2), side == "scatter", size) for size in (16, 64, 256) if size < mib and not quick]


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"{'':8} {'heads':34} page parts  row B   MiB   copy kernel GB/s  ratio"]
    lines += [
        f"{row['what']:8} {row['pair']:34} {row['page']:4} {row['parts']:5} {row['row']:6} {row['bytes'] >> 20:5} "
        f"{row['copy_gbs']:6.0f} {row['kernel_gbs']:6.0f}       {row['ratio']:.3f}{'' if row['right'] else '  WRONG'}"
        for row in rows
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; 1 if any row was wrong, 2 if there is no GPU."""
    parser = argparse.ArgumentParser(prog="kvproto bench kernels", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--mib", type=int, default=512, help="staged MiB of a call (default 512)")
    parser.add_argument("--repeats", type=int, default=30, help="timed calls of copy and of kernel, each")
    parser.add_argument("--quick", action="store_true", help="page 16 only, fewer calls")
    parser.add_argument("--json", metavar="FILE", help="write all figures here as well ('-': standard output only)")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("This benchmark needs a CUDA GPU, and torch sees none here.", file=sys.stderr)
        return 2
    from kvproto.handlers.kernels.triton import TritonKernels

    kernels, repeats = TritonKernels(), 8 if options.quick else options.repeats
    rows = []
    sides: tuple[Side, ...] = ("gather", "scatter")
    for side in sides:
        for shape, every, mib in plan_rows(side, options.mib, options.quick):
            rows.append(measure(shape, side, every, mib << 20, kernels, repeats))
            torch.cuda.empty_cache()
    pinned = [
        measure(shape, side, False, 64 << 20, kernels, min(repeats, 12), pinned=True)
        for side in sides for shape in (Shape(4, 2), Shape(8, 1))
    ]  # fmt: skip
    host = host_times(kernels, 200 if options.quick else 2000)
    results = {"machine": machine(), "kernels": rows, "pinned": pinned, "host": host}
    if options.json == "-":
        print(json.dumps(results, indent=1))
    else:
        print(table(rows))
        print("\nstaging in pinned host memory, beside a plain copy to or from the host; bytes counted once")
        print(table(pinned))
        print("\nhost time of a call, 512 tokens x 32 layers")
        for row in host:
            print(f"{row['what']:8} {row['pair']:10} {row['parts']} parts: median {row['median_us']:.1f} us, "
                  f"p99 {row['p99_us']:.1f} us")  # fmt: skip
        if options.json:
            Path(options.json).write_text(json.dumps(results, indent=1))
    return 0 if all(row["right"] for row in rows + pinned) else 1


if __name__ == "__main__":
    raise SystemExit(main())
