"""Pages by number over NIXL between processes: every byte, whatever the engines do meanwhile."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("nixl") is None:
    pytest.skip("nixl is not installed", allow_module_level=True)

from support.troubled_rank import TroubledRank

from kvproto.lab.bench.pipeline import BenchProcesses
from kvproto.lab.bench.pipeline_cases import SHAPES, Case
from kvproto.lab.torture.rank import ucx_over_tcp

CASE = Case("one", 2, 1, route="pages", page=16, repeats=1)
SHAPE = SHAPES["tiny1"]
#: a room's tokens, the last page of which is not full
TOKENS = CASE.size * (1 << 20) // SHAPE.token_bytes - 5


@pytest.fixture(scope="module", params=["layered", "packed"])
def fleet(request: pytest.FixtureRequest) -> Iterator[BenchProcesses]:
    """Two processes over TCP, where a write takes both of them, with a room in place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UCX_TLS", ucx_over_tcp())
        patch.setenv("UCX_NET_DEVICES", "lo")
        with BenchProcesses(SHAPE, cuda=False, kind=TroubledRank) as made:
            row = made.run(replace(CASE, packed=request.param == "packed"))
            assert row["right"] and row["went"] == "pages" and not row["odd"]
            assert row["pieces"] <= (256 if request.param == "packed" else 1024), "whole pages, not layer by layer"
            yield made


@pytest.mark.parametrize("turns", [0, 3, 40])
@pytest.mark.parametrize("kind", ["", "late", "replaced", "prefill aborts", "decode aborts"])
def test_every_byte_is_right_and_none_is_written_later(fleet: BenchProcesses, kind: str, turns: int) -> None:
    gen = 1000 + 10 * (["", "late", "replaced", "prefill aborts", "decode aborts"].index(kind)) + turns % 7
    ends = fleet.members.tell("PD", "trouble", kind, gen, TOKENS, turns)
    assert all(right for _, right in ends.values())
    if "aborts" not in kind:
        assert all(ok for ok, _ in ends.values())
