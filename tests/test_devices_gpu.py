"""Several ranks of one process on any GPU: each byte is right, and no call changes the current device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("nixl._api")
pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from support.gpu_ranks import Given, GpuRanks

from kvproto.lab.bench.members import Members

#: of the prefill ranks and of the decode ranks, each side in one process
GPUS = [((0,), (0,)), ((0,), (1,)), ((1,), (1,)), ((1,), (0,)), ((0, 1), (1,)), ((1, 0), (0, 1)), ((1,), (1, 0))]
Places = tuple[int, ...]


@pytest.fixture(scope="module")
def sides() -> Iterator[Members]:
    """One process a side for all cases: what one case has compiled, the next one finds."""
    made = Members()
    made.start("P", 0, GpuRanks, "P")
    made.start("D", 0, GpuRanks, "D")
    yield made
    made.tell("PD", "end")


@pytest.mark.parametrize("route", ["cost", "staged", "pages", "pinned"])
@pytest.mark.parametrize("own_thread", [False, True], ids=["polled", "own thread"])
@pytest.mark.parametrize(("prefill", "decode"), GPUS, ids=str)
def test_ranks_on_any_gpu(sides: Members, prefill: Places, decode: Places, own_thread: bool, route: str) -> None:
    check(sides, prefill, decode, own_thread, route, "opened")


@pytest.mark.parametrize("route", ["cost", "staged"])
@pytest.mark.parametrize("own_thread", [False, True], ids=["polled", "own thread"])
@pytest.mark.parametrize("given", ["late", "replaced"])
@pytest.mark.parametrize(("prefill", "decode"), [GPUS[0], GPUS[3], GPUS[4]], ids=str)
def test_pages_that_come_late_or_are_others_the_second_time(
    sides: Members, prefill: Places, decode: Places, given: Given, own_thread: bool, route: str
) -> None:
    check(sides, prefill, decode, own_thread, route, given)


def check(sides: Members, prefill: Places, decode: Places, own_thread: bool, route: str, given: Given) -> None:
    """One room between new ranks."""
    if (needed := 1 + max(*prefill, *decode)) > (gpus := torch.cuda.device_count()):
        pytest.skip(f"this needs {needed} GPUs, torch sees {gpus}")
    made = sides.tell("P", "make", prefill, own_thread, route)
    sides.tell("D", "make", decode, own_thread, route)
    sides.tell("D", "connect", len(prefill), made["P", 0])
    ends = sides.tell("PD", "move", 1, given)
    assert {end for side in ends.values() for end in side} == {("NONE", "")}, ends
    assert sides.tell("D", "right", 1)["D", 0]
    digests = sides.tell("PD", "digests", 1)
    assert digests["P", 0] == digests["D", 0] != {}
    counts, told = sides.tell("P", "counts")["P", 0], sides.tell("PD", "told")
    assert all(not each for each in told.values()), told
    assert bool(counts["mapped"]) == (route in ("cost", "pages")), counts
