"""Settings and timers that cannot work are named where they are made, and against each other."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.fsm.timing import Timer
from kvproto.layout.costs import Costs
from kvproto.protocol.timing import Timing
from kvproto.rank.settings import BOUNDS, Settings


@pytest.mark.parametrize("period", [0, 0.0, -1.0, math.nan, math.inf, -math.inf, True])
def test_a_period_is_a_time(period: float) -> None:
    with pytest.raises(ValueError, match="period"):
        Timer(period)


@pytest.mark.parametrize("tries", [0, -1, 1.5, True, "2"])
def test_tries_are_a_number_of_times(tries: Any) -> None:
    with pytest.raises(ValueError, match="tries"):
        Timer(1.0, tries)


@pytest.mark.parametrize(
    ("timers", "names"),
    [
        ({"heartbeat": Timer(1.0, 1)}, "heartbeat"),
        ({"lease": Timer(0.2)}, "resend"),
        ({"patience": Timer(31.0, 4)}, "patience"),
        ({"lease": Timer(1.0), "write": Timer(30.0), "call": Timer(100.0)}, "call"),
    ],
)
def test_timers_that_do_not_go_together_are_named(timers: dict[str, Timer], names: str) -> None:
    with pytest.raises(ValueError, match=f"Timing: .*{names}"):
        Timing(**timers)
    with pytest.raises(ValueError, match=names):
        replace(Timing(), **timers)


@pytest.mark.parametrize("name", [name for name, _, _ in BOUNDS])
@pytest.mark.parametrize("value", [-1, 1 << 62, 1.5, True, "4", None])
def test_a_setting_beyond_its_bounds_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"Settings.{name}"):
        Settings(**{name: value})


def test_a_route_and_its_costs_are_named() -> None:
    with pytest.raises(ValueError, match=r"Settings\.route"):
        Settings(route="slices")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Settings.costs is 'nvlink': .* cuda_ipc, rdma"):
        Settings(costs="nvlink")
    with pytest.raises(ValueError, match=r"Costs\.rate"):
        Costs(rate=0.0)


def test_what_is_given_by_default_goes_together() -> None:
    assert Settings().timing == Timing()
