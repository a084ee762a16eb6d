"""Memory that comes and goes between processes, over NIXL and Mooncake: bytes, and no leak."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial

import pytest

pytest.importorskip("torch")

from support.fleet import BenchProcesses, until
from support.night import by_night

#: cycles that fill what is bounded (traces, tombstones, pools of the allocator), and those that are looked at
WARM, CYCLES = by_night(100, by_day=1), by_night(1000, by_day=2)
#: bytes that a process may have grown by meanwhile
GROWTH = 16 << 20


@pytest.fixture(scope="module", params=["nixl", "mooncake"])
def fleet(request: pytest.FixtureRequest) -> Iterator[BenchProcesses]:
    """A prefill and a decode rank in processes of their own."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    made = BenchProcesses(("P1", "D1"), request.param)
    made.healthy()
    yield made
    made.close()


def detached(fleet: BenchProcesses, name: str) -> bool:
    """Whether the pool of this rank is its engine's."""
    return fleet[name].ask("detached") is not None


def cycle(fleet: BenchProcesses, rooms: str) -> None:
    """Both sides detach, and attach again; a room arrives afterwards."""
    for name in ("P1", "D1"):
        fleet[name].ask("detach", rooms)
    for name in ("P1", "D1"):
        until(partial(detached, fleet, name), f"{name} to detach")
        assert fleet[name].ask("detached") == 0, f"memory of {name} stays registered"
    for name in ("P1", "D1"):
        fleet[name].ask("attach")
    fleet.healthy()
    fleet.succeeds(fleet.room("P1", "D1", produced=100))


@pytest.mark.parametrize("rooms", ["finish", "end"])
def test_a_room_in_the_middle_ends_as_it_is_told_and_the_next_arrives(fleet: BenchProcesses, rooms: str) -> None:
    room = fleet.room("P1", "D1", produced=50)
    fleet["D1"].ask("detach", rooms)
    if rooms == "finish":
        fleet.produce(room)  # whose bytes nobody can look at afterwards: the pool goes at once
    ended = {fleet.told(room, side)[0] for side in "PD"}
    assert ended == {"NONE" if rooms == "finish" else "DECODE_ABORTED"}
    until(lambda: fleet["D1"].ask("detached") == 0, "D1 to detach")
    fleet["D1"].ask("attach")
    fleet.healthy()
    fleet.succeeds(fleet.room("P1", "D1", produced=100))


def test_nothing_is_held_that_was_not_before_however_often(fleet: BenchProcesses) -> None:
    for _ in range(WARM):
        cycle(fleet, "finish")
    before, size = fleet.held(), {name: fleet[name].ask("resident") for name in fleet.members}
    for _ in range(CYCLES):
        cycle(fleet, "end")
    fleet.rests(before)
    for name, had in size.items():
        assert fleet[name].ask("resident") - had < GROWTH, f"{name} grows"
    assert not any(fleet[name].ask("reports") for name in fleet.members)
