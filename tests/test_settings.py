"""Settings and timers that cannot work are named where they are made, and against each other."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.fsm.timing import Timer
from kvproto.layout.costs import Costs
from kvproto.protocol.timing import Timing
from kvproto.settings import BOUNDS, Settings


@pytest.mark.parametrize("period", [0, 0.0, -1.0, math.nan, math.inf, -math.inf, True])
def test_a_period_is_a_time(period: float) -> None:
    with pytest.raises(ValueError, match="period"):
        Timer(period)


@pytest.mark.parametrize("longest", [-0.5, math.nan, math.inf, False])
def test_a_longest_period_is_a_time_or_none(longest: float) -> None:
    with pytest.raises(ValueError, match="longest"):
        Timer(1.0, 1, longest)
    assert Timer(1.0, 1, 0.0).longest == 0.0


@pytest.mark.parametrize("tries", [0, -1, 1.5, True, "2"])
def test_tries_are_a_number_of_times(tries: Any) -> None:
    with pytest.raises(ValueError, match="tries"):
        Timer(1.0, tries)


@pytest.mark.parametrize(
    ("timers", "names"),
    [
        ({"heartbeat": Timer(1.0, 1)}, "heartbeat"),
        ({"lease": Timer(0.2)}, "resend"),
        ({"grant_retry": Timer(31.0, 4)}, "grant_retry"),
        ({"lease": Timer(1.0), "write": Timer(30.0), "call": Timer(100.0)}, "call is .* and write, 31.0 s"),
    ],
)
def test_timers_that_do_not_go_together_are_named(timers: dict[str, Timer], names: str) -> None:
    with pytest.raises(ValueError, match=f"Timing: .*{names}"):
        Timing(**timers)
    with pytest.raises(ValueError, match=names):
        replace(Timing(), **timers)


def test_timers_and_timings_are_such() -> None:
    with pytest.raises(ValueError, match=r"Timing\.lease is 3\.0: it is a Timer"):
        Timing(lease=3.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Settings\.timing is 3: it is a Timing"):
        Settings(timing=3)  # type: ignore[arg-type]
    assert Timing(silence=Timer(10.5), heartbeat=Timer(2.0, 3)).silent_beats == 6


def test_timers_may_be_as_close_to_each_other_as_is_said() -> None:
    with pytest.raises(ValueError, match="resend is not shorter than the lease of 2"):
        Timing(resend=Timer(2.0), lease=Timer(2.0))
    close = Timing(heartbeat=Timer(1.0, 2), lease=Timer(2.0), write=Timer(1.0), call=Timer(3.0))
    assert close.return_ == Timer(3.0, 1), "one call lasts as long as what it waits for"
    assert close.named("renew") == Timer(0.5) and close.named("idle") == Timer(100.0, 2)
    assert close.named("welcome") == Timer(3.0, 200)
    assert Timing(forget=Timer(0.5)).welcome_.tries == 1, "one call makes that up"


@pytest.mark.parametrize(("name", "least", "most"), BOUNDS)
def test_a_setting_may_be_anything_within_its_bounds(name: str, least: int, most: int) -> None:
    for value in (least, most):
        changed: dict[str, Any] = {name: value}
        assert getattr(Settings(**changed), name) == value
    for value in (least - 1, most + 1):
        changed = {name: value}
        with pytest.raises(ValueError, match=f"Settings.{name} is {value}: it is a whole number from {least} to"):
            Settings(**changed)


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
