"""Equal groups in their own processes, over NIXL: by ring, pages, and the cheaper; byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nixl._api")

from kvproto.lab.bench.pipeline import BenchProcesses
from kvproto.lab.bench.pipeline_cases import Case
from kvproto.lab.bench.route import PAIRS, _RouteWay, loss_of, measured
from kvproto.settings import Route

#: through which route, whether pages lie in a row, and how it goes: host memory is written page by page cheaply
WAYS: list[tuple[Route, bool, str]] = [
    ("staged", False, "staged"), ("staged", True, "staged"), ("pages", False, "pages"), ("cost", True, "pages"),
]  # fmt: skip


def test_equal_groups_go_as_they_are_told_and_every_byte_is_right() -> None:
    with BenchProcesses(PAIRS["tiny"], cuda=False) as fleet:
        for route, fresh, went in WAYS:
            row: dict[str, Any] = fleet.run(Case("one", 1, 1, repeats=1, route=route, fresh=fresh))
            assert row["right"] and not row["odd"], row
            assert row["went"] == went, row
            assert row["pieces"] == (1 if went == "staged" else 4 if fresh else row["pieces"])
        row = measured(fleet, 1, 2, "shm", fresh=True)
        assert row["right"] and not row["odd"] and row["chosen"] == "pages" and row["pieces"] == 4, row
        assert "mapped_ms" not in row, "no kernel stores into host memory"


def test_the_loss_is_of_rounds_that_the_choice_and_the_best_way_have_both() -> None:
    times = {"staged": {0: 3.0, 1: 3.0, 2: 3.0}, "pages": {0: 1.0, 1: 2.0}, "cost": {0: 1.1, 1: 2.2, 2: 9.0}}
    ways = {name: _RouteWay(name, [1], 16, times=each) for name, each in times.items()}
    best, loss = loss_of(ways)
    assert best == "pages" and loss == pytest.approx(0.1)
