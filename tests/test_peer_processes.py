"""Both directions between two processes, over NIXL and Mooncake: bytes, aborts, a killed side."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from support.peer_processes import PeerProcesses


@pytest.fixture(scope="module", params=["nixl", "mooncake"])
def peers(request: pytest.FixtureRequest) -> Iterator[PeerProcesses]:
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    made = PeerProcesses(request.param)
    yield made
    made.close()


def test_rooms_of_both_directions_arrive_at_the_same_time(peers: PeerProcesses) -> None:
    rooms = [peers.room(sends, produced=50) for _ in range(4) for sends in ("B1", "B2")]
    for number in rooms:
        peers.produce(number)
    for number in rooms:
        peers.succeeds(number)
    planes = 4
    assert {member.ask("regions") for member in peers.members.values()} == {2 + planes}


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_room_that_is_given_up_costs_the_other_direction_nothing(peers: PeerProcesses, role: str) -> None:
    there, back = peers.room("B1", produced=50), peers.room("B2", produced=50)
    peers.abort(there, "prefill" if role == "prefill" else "decode")
    peers.produce(back)
    assert {peers.told(there, "prefill"), peers.told(there, "decode")} == {f"{role.upper()}_ABORTED"}
    peers.succeeds(back)


def test_a_side_that_is_killed_ends_both_directions_and_its_next_life_takes_them_over(peers: PeerProcesses) -> None:
    there, back = peers.room("B1", produced=50), peers.room("B2", produced=50)
    peers.members["B2"].kill()
    assert (peers.told(there, "prefill"), peers.told(back, "decode")) == ("LINK_LOST", "LINK_LOST")
    peers.restart("B2")
    peers.healthy()
    for number in [peers.room(sends, produced=100) for sends in ("B1", "B2")]:
        peers.succeeds(number)
