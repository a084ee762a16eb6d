"""Named caches on a GPU, where there is one: the CPU's cases again."""

from __future__ import annotations

import pytest
import recurrence
import torch
from cache_case import CASES, CacheCase, check_case

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU here", allow_module_level=True)

from kvproto.io.kernels.triton import KernelTuning, TritonKernels


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tuning", [KernelTuning(), KernelTuning(tile=256)], ids=["default", "small tiles"])
def test_a_gpu_moves_what_a_copy_row_by_row_moves(case: CacheCase, tuning: KernelTuning) -> None:
    for digests in (False, True):
        assert check_case(TritonKernels(tuning), case, "cuda", digests=digests) > 0


@pytest.mark.parametrize("model", [recurrence.MAMBA, recurrence.DELTA], ids=["x B C", "q k v"])
@pytest.mark.parametrize("tp", [(4, 1), (1, 4), (2, 4), (2, 2)])
def test_a_gpu_moves_a_room_s_state_between_engines_tensors(model: recurrence.Recurrence, tp: tuple[int, int]) -> None:
    for slot_of in ((), recurrence.TWO):
        assert recurrence.move(TritonKernels(), model, tp, 1, "cuda", slot_of) > 0
