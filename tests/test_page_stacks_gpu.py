"""A GPU's copy engines carry the rows of a slot as one copy, near and far apart."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from kvproto.io.kernels.page_stacks import LEAST_BYTES, LEAST_ROWS, MOST_PITCH, PageRun, device_stacks

LAYERS, ROW = LEAST_ROWS + 1, LEAST_BYTES // LEAST_ROWS
#: slots here and there, and heads of a slot there
SLOTS, THERE, HEADS = 5, 3, 4


@pytest.mark.parametrize("spare", [0, (1 + MOST_PITCH) // (HEADS * ROW) + 1], ids=["near", "far apart"])
def test_the_rows_of_a_slot_are_one_copy(spare: int) -> None:
    near = torch.randint(0, 255, (LAYERS, SLOTS, ROW), dtype=torch.uint8, device="cuda:0")
    whole = torch.empty((LAYERS, THERE + spare, HEADS, ROW), dtype=torch.uint8, device="cuda:0")
    far = whole[:, :THERE]
    far.zero_()
    torch.cuda.synchronize()
    runs = [
        PageRun(ours.data_ptr(), theirs[0, 1].data_ptr(), ROW, ROW, HEADS * ROW)
        for ours, theirs in zip(near, far, strict=True)
    ]  # fmt: skip
    (stack,), left = device_stacks(runs, 0)
    assert not left and stack.nbytes == LAYERS * ROW
    stream = torch.cuda.Stream("cuda:0")
    with torch.cuda.device(0):
        assert stack(4, 2, stream.cuda_stream) == 0
    stream.synchronize()
    assert torch.equal(far[:, 2, 1].cpu(), near[:, 4].cpu())
    far[:, 2, 1] = 0
    assert not far.any()


def test_rows_of_several_allocations_are_no_copy() -> None:
    torch.cuda.empty_cache()
    tensors = [torch.empty(LEAST_BYTES * 8, dtype=torch.uint8, device="cuda:0") for _ in range(2 * LEAST_ROWS)]
    far = torch.empty((2 * LEAST_ROWS, ROW), dtype=torch.uint8, device="cuda:0")
    first, *others = sorted(tensors, key=torch.Tensor.data_ptr)
    ends = [each.data_ptr() - first.data_ptr() for each in others]
    runs = [
        PageRun(ours.data_ptr(), theirs.data_ptr(), ROW, ROW, ROW)
        for ours, theirs in zip((first, *others), far, strict=True)
    ]  # fmt: skip
    assert device_stacks(runs, 0) == ([], runs), ends
