"""Pools on a GPU in two processes: they are mapped, a kernel stores into them, every byte is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("nixl._api")
pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from kvproto.lab.bench.pipeline import BenchProcesses
from kvproto.lab.bench.pipeline_cases import Case, PipelineShape

ONE = PipelineShape(1, 1, (0,), (0,), layers=2, heads=4, dim=16)
SHAPES = [
    ONE, replace(ONE, page_sizes=(16, 16)), replace(ONE, prefill=2, prefill_on=(0, 0)),
    replace(ONE, decode=2, decode_on=(0, 0)),
    replace(ONE, decode_on=(1,)), replace(ONE, prefill_on=(1,)), replace(ONE, prefill_on=(1,), decode_on=(1,)),
    replace(ONE, prefill=2, prefill_on=(0, 1)), replace(ONE, decode=2, decode_on=(0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_room_is_stored_into_mapped_pages(shape: PipelineShape) -> None:
    if (needed := 1 + max(*shape.prefill_on, *shape.decode_on)) > (gpus := torch.cuda.device_count()):
        pytest.skip(f"this needs {needed} GPUs, torch sees {gpus}")
    with BenchProcesses(shape, cuda=True) as fleet:
        for rooms, maps, went in ((1, True, "mapped"), (3, True, "mapped"), (1, False, "staged")):
            row = fleet.run(Case("many", 1, 1, rooms=rooms, repeats=2, route="cost", maps=maps))
            assert row["right"] and not row["odd"], row
            assert row["went"] == went, row


PACKED = PipelineShape(1, 1, (0,), (0,), page_sizes=(16, 16))


@pytest.mark.parametrize("shape", [PACKED, replace(PACKED, decode_on=(1,))], ids=str)
def test_long_pages_go_by_copy_engines_and_their_ends_by_the_kernel(shape: PipelineShape) -> None:
    if (needed := 1 + max(*shape.prefill_on, *shape.decode_on)) > (gpus := torch.cuda.device_count()):
        pytest.skip(f"this needs {needed} GPUs, torch sees {gpus}")
    with BenchProcesses(shape, cuda=True) as fleet:
        # 8 tokens a MiB: the last page of 137 MiB is half full
        for size, fresh in ((137, False), (136, True)):
            case = Case("many", size, 256, rooms=2, repeats=2, route="pages", maps=True, packed=True, fresh=fresh)
            row = fleet.run(case)
            assert row["right"] and not row["odd"], row
            stats = fleet.members.tell("P", "stats")["P", 0]
            assert stats["engine"], stats
        row = fleet.run(Case("many", 8, 8, repeats=2, route="pages", maps=True))
        assert row["right"] and not fleet.members.tell("P", "stats")["P", 0]["engine"], "rows of layers lie apart"
