"""Kernels: rates of gather and scatter on a GPU beside a copy of as many bytes on the device.

A row is one direction of one pair of tensor-parallel sizes, at one page size, with random distinct pages. `one` is a
single share; `all` is every share of the rank in one launch. The figure is bytes read plus bytes written over the
median of the device's own time for a call; copy and kernel take turns, so that both see the same clocks. Each row is
checked in full before it is timed, on random bytes between markers.

Measured apart: the host's time until a call returns, what digests cost, and, where SGLang's wheel is given, its kernels
on the same bytes. Chunks of models with several caches have a table of their own (`cache_calls`). A rank whose pool has
more heads than a share reads or writes strips of rows, for which no copy reaches what a plain one does; what torch's
own strided copy reaches is printed beside. A launch takes 0.6 us more than a copy of any size: of 16 MiB that is a
twentieth, of 512 nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import torch

from kvproto.arguments import positive
from kvproto.io.kernels.base import Kernels, Side
from kvproto.io.kernels.digest import new_table
from kvproto.lab.bench import peer
from kvproto.lab.bench.cache_calls import SHAPES, measure_caches
from kvproto.lab.bench.kernel_work import (
    KERNEL_SHAPES,
    OTHERS,
    KernelShape,
    check,
    check_digests,
    device_times,
    host_times,
    make_work,
)  # fmt: skip
from kvproto.lab.bench.pools import random_bytes
from kvproto.lab.bench.results import Course, command_line, need_gpus
from kvproto.layout.cut import Cut


def measure(shape: KernelShape, side: Side, every: bool, nbytes: int, kernels: Kernels, repeats: int) -> dict[str, Any]:
    work = make_work(shape, side, every, nbytes)
    right = check(work, kernels)
    source, target = random_bytes(work.nbytes), random_bytes(work.nbytes)
    copy, kernel = device_times([lambda: target.copy_(source), lambda: work.run(kernels)], repeats)
    return {
        "what": side, "pair": shape.name, "page": shape.page, "parts": len(work.parts),
        "row": work.parts[0][0].heads * work.pool.grains[0].row, "tokens": work.tokens, "bytes": work.nbytes,
        "copy_gbs": 2e-9 * work.nbytes / copy, "kernel_gbs": 2e-9 * work.nbytes / kernel, "ratio": copy / kernel,
        "right": right,
    }  # fmt: skip


STRIPS = ((128, 1024), (256, 2048), (512, 2048), (1024, 2048))
"""(bytes of a strip, bytes of a row): one head of eight in fp8, one, two and four of eight in bf16."""


def measure_strip(strip: int, row: int, nbytes: int, repeats: int) -> dict[str, Any]:
    """Measure torch's copy between a dense tensor and a strip of each row of a wide one."""
    dense, other = random_bytes(nbytes).view(torch.int64), random_bytes(nbytes).view(torch.int64)
    wide = random_bytes(nbytes // strip, row).view(torch.int64)[:, : strip // 8]
    narrow = dense.view(-1, strip // 8)
    copy, written, read = device_times(
        [lambda: other.copy_(dense), lambda: wide.copy_(narrow), lambda: narrow.copy_(wide)], repeats
    )
    return {"strip": strip, "of": row, "bytes": nbytes, "write_ratio": copy / written, "read_ratio": copy / read}


DIGESTED = (
    KernelShape(4, 2), KernelShape(4, 1), KernelShape(1, 4), KernelShape(8, 1), KernelShape(8, 1, page=1), *OTHERS,
)  # fmt: skip


def measure_digests(shape: KernelShape, side: Side, nbytes: int, kernels: Kernels, repeats: int) -> dict[str, Any]:
    """One row: the same call with digests and without, in turns. One destination, or all writers."""
    every = side == "scatter"
    work = make_work(shape, side, every, nbytes)
    right, digest = check_digests(work, kernels), new_table([share for share, _ in work.parts], work.pool.device)
    plain, digested = device_times([lambda: work.run(kernels), lambda: work.run(kernels, digest)], repeats)
    return {
        "what": side, "pair": shape.name, "page": shape.page, "parts": len(work.parts), "bytes": work.nbytes,
        "plain_gbs": 2e-9 * work.nbytes / plain, "digests_gbs": 2e-9 * work.nbytes / digested,
        "cost": digested / plain - 1, "right": right,
    }  # fmt: skip


def measure_host(kernels: Kernels, calls: int) -> list[dict[str, Any]]:
    """Seconds until a call of a chunk of 512 tokens and 32 layers returns: median and 99th percentile."""
    found: list[dict[str, Any]] = []
    cases: tuple[tuple[Side, KernelShape, bool], ...] = (
        ("gather", KernelShape(4, 2, layers=32), False), ("gather", KernelShape(1, 4, layers=32), True),
        ("scatter", KernelShape(4, 2, layers=32), False), ("scatter", KernelShape(4, 2, layers=32), True),
        ("scatter", KernelShape(8, 1, layers=32), True),
    )  # fmt: skip
    for side, shape, every in cases:
        plan = shape.plan()
        shares = plan.duties(0) if side == "gather" else plan.writers(0)
        shares = shares if every else shares[:1]
        work = make_work(shape, side, every, 512 * sum(plan.part_bytes(share, Cut(0, 1)) for share in shares))
        spent = sorted(host_times(partial(work.run, kernels), calls + 50)[50:])
        found.append({
            "what": side, "pair": shape.name, "parts": len(shares), "tokens": work.tokens,
            "median_us": 1e6 * spent[len(spent) // 2], "p99_us": 1e6 * spent[len(spent) * 99 // 100],
        })  # fmt: skip
    return found


def plan_rows(side: Side, mib: int) -> list[tuple[KernelShape, bool, int]]:
    """Return a direction's rows: each shape with one share and with all, then smaller sizes."""
    wanted = []
    for shape in KERNEL_SHAPES:
        plan = shape.plan()
        several = len(plan.duties(0) if side == "gather" else plan.writers(0)) > 1
        wanted += [(shape, every, mib) for every in ((False, True) if several else (False,))]
    return wanted + [(KernelShape(4, 2), side == "scatter", size) for size in (16, 64, 256) if size < mib]


def run(options: argparse.Namespace, course: Course) -> dict[str, Any]:
    from kvproto.io.kernels.triton import TritonKernels

    kernels, repeats, mib = TritonKernels(), options.repeats, options.mib
    sides: tuple[Side, ...] = ("gather", "scatter")
    found: dict[str, Any] = {"kernels": [], "caches": [], "digests": []}
    found["strips"] = [measure_strip(strip, row, mib << 20, repeats) for strip, row in STRIPS]
    torch.cuda.empty_cache()
    found["host"] = measure_host(kernels, 2000)
    course.keep(found, "strips of rows, and the host's time")
    rows = [(side, *row) for side in sides for row in plan_rows(side, mib)]
    for side, shape, every, size in course.cases(rows, 4):
        row = measure(shape, side, every, size << 20, kernels, repeats)
        found["kernels"].append(row | {"usual": size == mib and row["parts"] == calls_of(shape, side)})
        course.keep(found, told(found["kernels"][-1]))
        torch.cuda.empty_cache()
    for model in course.cases(SHAPES, 3):
        for row in measure_caches(model, kernels, repeats):
            found["caches"].append(row)
            form = f"{row['model']} {row['pair']}, {row['bytes'] >> 20} MiB"
            course.keep(found, f"{row['what']} {form}: {row['ratio']:.3f} of the copy")
        torch.cuda.empty_cache()
    for side, shape in course.cases(list(product(sides, DIGESTED)), 2):
        found["digests"].append(measure_digests(shape, side, mib << 20, kernels, repeats))
        course.keep(found, f"{side} {shape.name}: digests {found['digests'][-1]['cost']:+.1%}")
        torch.cuda.empty_cache()
    other = peer.find(options.peer)
    if isinstance(other, str):
        return found | {"peer": {"missing": other}}
    return found | {"peer": peer.figures(other, mib, kernels, repeats)}


def calls_of(shape: KernelShape, side: Side) -> int:
    """Count the parts of a call as endpoints make it: one destination's gather, all writers' scatter."""
    return 1 if side == "gather" else len(shape.plan().writers(0))


def told(row: dict[str, Any]) -> str:
    form = f"page {row['page']}, {row['bytes'] >> 20} MiB, parts {row['parts']}"
    return f"{row['what']} {row['pair']}, {form}: {row['ratio']:.3f} of the copy"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; 1 if any row of ours was wrong, 2 if there is no GPU."""
    parser = command_line("kernels", __doc__)
    parser.add_argument("--mib", type=positive, default=512, help="staged MiB of a call (default 512)")
    parser.add_argument("--repeats", type=positive, default=30, help="timed calls of copy and of kernel, each")
    parser.add_argument("--peer", metavar="PATH", help="SGLang's wheel, or the directory that it is in")
    options = parser.parse_args(argv)
    need_gpus(1)
    course = Course("kernels", argv, options)
    found = run(options, course)
    course.end(found)
    rows = found["kernels"] + found["caches"] + found["digests"] + found["peer"].get("kernels", [])
    return 0 if all(row["right"] for row in rows) else 1
