"""Edges of the kernels on a GPU, where there is one: what the interpreter is asked of, again.

Pages that are mapped, page ids beyond 16 bits, digests of odd forms, parts that are many, and cells that are too many
for one launch.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cache_case import CacheCase, check_case
from crossing_cases import ROWS, CrossedCase, check_crossing, check_far_crossing
from digest_cases import check_digests
from kernels_cases import BASE, Case, check_cells, check_far_pages, check_gathers, check_scatters

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU here", allow_module_level=True)

from kvproto.io.kernels.across import AcrossTuning
from kvproto.io.kernels.triton import INTERPRETED, KernelTuning, TritonKernels
from kvproto.layout.caches import Cache, CachePart

if INTERPRETED:
    pytest.skip("the interpreter was chosen for this process", allow_module_level=True)

SMALL = KernelTuning(tile=16), KernelTuning(tile=256), KernelTuning(tile=256, mixed=False)


@pytest.mark.parametrize("tuning", [AcrossTuning(128, 1, 5), AcrossTuning()], ids=["small", "default"])
@pytest.mark.parametrize("order", ["NHD", "HND"])
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_a_copy_into_pages_that_are_mapped_is_the_hosts_copy(
    case: CrossedCase, order: str, tuning: AcrossTuning
) -> None:
    check_crossing(TritonKernels(across=tuning), case, order, "cuda")


def test_page_ids_need_more_than_sixteen_bits() -> None:
    check_far_crossing(TritonKernels(), "cuda")
    for side in ("gather", "scatter"):
        check_far_pages(TritonKernels(), side, "cuda")


@pytest.mark.parametrize(
    "case",
    [
        replace(BASE, dims=(6, 10)), replace(BASE, dims=(128, 128), heads=2, tokens=3),
        replace(BASE, tp=(1, 1), heads=1, layers=1, dims=(8, 0), tokens=260), replace(BASE, tp=(1, 1), tokens=3),
        replace(BASE, tp=(1, 1), tokens=3, dims=(8, 24)),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("tuning", SMALL, ids=str)
def test_digests_of_odd_forms(case: Case, tuning: KernelTuning) -> None:
    check_digests(TritonKernels(tuning), case, "cuda")


@pytest.mark.parametrize("parts", [5, 8])
@pytest.mark.parametrize("tuning", SMALL[1:], ids=str)
def test_each_of_many_parts_has_its_own_memory(tuning: KernelTuning, parts: int) -> None:
    check_scatters(TritonKernels(tuning), replace(BASE, tp=(parts, 1), heads=parts, tokens=3), "cuda")
    check_gathers(TritonKernels(tuning), replace(BASE, tp=(1, parts), heads=parts, tokens=3), "cuda")
    many = Cache("kv", (CachePart("k", parts, 4),))
    assert check_case(TritonKernels(tuning), CacheCase((many,), layers=1, tp=(parts, 1), tokens=3), "cuda") > 0


def test_one_token_of_a_named_cache_has_digests() -> None:
    one = Cache("kv", (CachePart("k", 2, 4),))
    assert check_case(TritonKernels(), CacheCase((one,), layers=1, tp=(2, 1), tokens=1), "cuda", digests=True) > 0


def test_cells_that_are_many_or_uneven() -> None:
    check_cells(TritonKernels(KernelTuning(tile=1024)), replace(BASE, tokens=20), "cuda", cells=9)
    check_cells(TritonKernels(KernelTuning(tile=256)), replace(BASE, dims=(32, 12)), "cuda")
