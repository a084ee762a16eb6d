"""Processes of ranks on any GPU: each byte is right, and no call changes the current device.

Pages, state and windows go between them, threaded and polled; mapped pools are stored into.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("nixl._api")
pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from support.gpu_ranks import Given, GpuRanks
from support.gpu_state import GpuState, GpuWindow

from kvproto.lab.bench.members import Members
from kvproto.lab.bench.pipeline import BenchProcesses
from kvproto.lab.bench.pipeline_cases import Case, PipelineShape

#: of the prefill ranks and of the decode ranks, each side in one process
GPUS = [((0,), (0,)), ((0,), (1,)), ((1,), (1,)), ((1,), (0,)), ((0, 1), (1,)), ((1, 0), (0, 1)), ((1,), (1, 0))]
Places = tuple[int, ...]


def need_gpus(*used: int) -> None:
    if (needed := 1 + max(used)) > (gpus := torch.cuda.device_count()):
        pytest.skip(f"this needs {needed} GPUs, torch sees {gpus}")


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
    need_gpus(*prefill, *decode)
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


@pytest.mark.parametrize("own_thread", [False, True], ids=["polled", "own thread"])
@pytest.mark.parametrize(("prefill", "decode"), [((0,), (0,)), ((0,), (1,)), ((1,), (0,))], ids=str)
@pytest.mark.parametrize("ranks", [GpuState, GpuWindow])
@pytest.mark.parametrize("route", ["staged", "pages"])
def test_state_and_tokens_arrive(
    prefill: Places, decode: Places, own_thread: bool, ranks: type[GpuState], route: str
) -> None:
    need_gpus(*prefill, *decode)
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
        apart = ranks is GpuState and route == "pages" and prefill != decode
        assert counts["engine"] == 2 * 2 * apart, "long rows of a state go by copy engines to another GPU"
    finally:
        sides.close()


# ---------------------------------------------------------------------------------------- mapped pools
ONE = PipelineShape(1, 1, (0,), (0,), layers=2, heads=4, dim=16)
SHAPES = [
    ONE, replace(ONE, page_sizes=(16, 16)), replace(ONE, prefill=2, prefill_on=(0, 0)),
    replace(ONE, decode=2, decode_on=(0, 0)),
    replace(ONE, decode_on=(1,)), replace(ONE, prefill_on=(1,)), replace(ONE, prefill_on=(1,), decode_on=(1,)),
    replace(ONE, prefill=2, prefill_on=(0, 1)), replace(ONE, decode=2, decode_on=(0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_room_is_stored_into_mapped_pages(shape: PipelineShape) -> None:
    need_gpus(*shape.prefill_on, *shape.decode_on)
    with BenchProcesses(shape, cuda=True) as fleet:
        for rooms, maps, went in ((1, True, "mapped"), (3, True, "mapped"), (1, False, "staged")):
            row = fleet.run(Case("many", 1, 1, rooms=rooms, repeats=2, route="cost", maps=maps))
            assert row["right"] and not row["odd"], row
            assert row["went"] == went, row


PACKED = PipelineShape(1, 1, (0,), (0,), page_sizes=(16, 16))


@pytest.mark.parametrize("shape", [PACKED, replace(PACKED, decode_on=(1,))], ids=str)
def test_long_pages_go_by_copy_engines_and_their_ends_by_the_kernel(shape: PipelineShape) -> None:
    need_gpus(*shape.prefill_on, *shape.decode_on)
    with BenchProcesses(shape, cuda=True) as fleet:
        # 8 tokens a MiB: the last page of 137 MiB is half full
        for size, fresh in ((137, False), (136, True)):
            case = Case("many", size, 256, rooms=2, repeats=2, route="pages", maps=True, packed=True, fresh=fresh)
            row = fleet.run(case)
            assert row["right"] and not row["odd"], row
            stats = fleet.members.tell("P", "stats")["P", 0]
            assert bool(stats["engine"]) is (shape is not PACKED), f"on one device the kernel is faster: {stats}"
        row = fleet.run(Case("many", 8, 8, repeats=2, route="pages", maps=True))
        assert row["right"] and not fleet.members.tell("P", "stats")["P", 0]["engine"], "rows of layers lie apart"
