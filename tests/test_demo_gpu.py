"""Whole runs with model and KV on GPUs, if any; with two or more, every byte goes from one to another."""

from __future__ import annotations

from typing import Any, get_args

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU here", allow_module_level=True)
pytest.importorskip("transformers")

from kvproto.lab.demo.conduct import conduct
from kvproto.lab.demo.job import DemoJob, GroupShape
from kvproto.lab.demo.run import Route, Run, chunk_bytes, make_rooms

G = GroupShape


@pytest.mark.parametrize(
    ("p", "d", "more"),
    [
        (G(2), G(1), {}),
        (G(1), G(2, page_size=64), {"family": "qwen3"}),
        (G(2, page_size=64, order="HND"), G(1), {"dtype": "float8_e4m3fn"}),
        (G(1, 2), G(1), {"dtype": "float16"}),
    ],
    ids=["2->1", "1->2", "fp8 HND", "PP2"],
)
def test_rooms_are_carried_between_gpus(p: GroupShape, d: GroupShape, more: dict[str, Any]) -> None:
    """Tokens, logits and KV are those of the unsharded model on a GPU; every planted corruption is found."""
    rooms = make_rooms(5, 300, page=64, prefix=64, new=4, least=0.2, seed=2)
    job = DemoJob(p, d, rooms, **{"layers": 4, "heads": 4, "dim": 64, "width": 512, "chunk": 128, **more})
    run = Run(job, 4 * chunk_bytes(job), get_args(Route), device="cuda", warm=True)
    result = conduct(run)
    assert result.wrong == []
    found, planted = result.controlled
    assert found == planted > 0
    assert len(result.unsharded["whole"]) == 4
    assert result.machine["gpus"]
