"""State and windows on a GPU, where there is one: rooms between processes, threaded and polled."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("nixl._api")
pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from support.gpu_state import GpuState, GpuWindow

from kvproto.lab.bench.members import Members


@pytest.mark.parametrize("own_thread", [False, True], ids=["polled", "own thread"])
@pytest.mark.parametrize(("prefill", "decode"), [((0,), (0,)), ((0,), (1,)), ((1,), (0,))], ids=str)
@pytest.mark.parametrize("ranks", [GpuState, GpuWindow])
@pytest.mark.parametrize("route", ["staged", "pages"])
def test_state_and_tokens_arrive(
    prefill: tuple[int, ...], decode: tuple[int, ...], own_thread: bool, ranks: type[GpuState], route: str
) -> None:
    if (needed := 1 + max(*prefill, *decode)) > (gpus := torch.cuda.device_count()):
        pytest.skip(f"this needs {needed} GPUs, torch sees {gpus}")
    sides = Members()
    for side in "PD":
        sides.start(side, 0, ranks, side)
    try:
        made = sides.tell("P", "make", prefill, own_thread, route)
        sides.tell("D", "make", decode, own_thread, route)
        sides.tell("D", "connect", len(prefill), made["P", 0])
        for room in (1, 2):
            ends = sides.tell("PD", "move", room)
            assert {end for side in ends.values() for end in side} == {("NONE", "")}, ends
            assert sides.tell("D", "right", room)["D", 0]
        # one chunk of tokens in three, and two of state or window, a room
        counts = sides.tell("P", "counts")["P", 0]
        assert counts["writes" if route == "staged" else "mapped"] == 2 * (3 + 2)
        assert counts["mapped" if route == "staged" else "writes"] == 0
    finally:
        sides.close()
