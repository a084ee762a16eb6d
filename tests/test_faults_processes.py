"""Ranks that die, stop and come back, in processes of their own over NIXL.

Every test asks the same things: both sides are told in bounded time, with the reason; nothing is left of the room, of
its writes or of the link that is gone; and the rooms that it does not concern are carried as if nothing had happened.

A prefill rank asks for a region when its KV is computed, and writes as soon as it has one.  To meet a region that is
granted and not written yet, a test takes the rank's staging slots away; to meet a write in flight, it stops the decode
rank then, and gives them back.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support import fleet as processes
from support.fleet import CHUNK_TOKENS, QUICK, BenchProcesses, Member, until

from kvproto.endpoint.endpoint import SILENCES
from kvproto.io.transports.base import BackendUnavailable
from kvproto.protocol.events import SlotTaken
from kvproto.verify.testing import inside

SILENCE_S = QUICK.heartbeat.period * (QUICK.heartbeat.tries + 1)
#: seconds after which a process that is there, and says nothing, loses its links
FROZEN_S = QUICK.heartbeat.period * (QUICK.silent_beats + 1)
QUARANTINE_S = QUICK.lease.period + QUICK.write.period
SLACK_S = 2.5  # for a machine that is shared


class HoldingMember(Member):
    """A member whose staging slots a test can take away: its sends wait, and keep their regions."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.taken: list[int] = []

    def take_slots(self) -> bool:
        """Prefill: take the slots that are free; whether all are taken."""
        free = inside(self.endpoint).rank.free_slots
        self.taken += free
        free.clear()
        return len(self.taken) == processes.SETTINGS.slots

    def give_slots(self) -> None:
        """Prefill: give them to the sends that wait, or back."""
        rank, loop = inside(self.endpoint).rank, inside(self.endpoint).loop
        while self.taken:
            slot = self.taken.pop()
            if not rank.slot_queue:
                rank.free_slots.append(slot)
                continue
            key = rank.slot_queue.take()
            assert key is not None
            room, chunk, peer = key
            rank.slot_of[key] = slot
            loop.raise_event(SlotTaken(room, chunk, peer, slot))

    def hold(self, seconds: float) -> None:
        """Hold Python's lock for so long, as an engine does that compiles."""
        ctypes.PyDLL(None).usleep(round(seconds * 1e6))

    def placed(self, room: int) -> int:
        """Decode: how many of the room's chunks are in their pages."""
        work = getattr(inside(self.endpoint).rank.value_of(room), "work", None)
        return work.done.bit_count() if work else 0


@pytest.fixture(scope="module")
def running() -> Iterator[BenchProcesses]:
    try:
        import nixl._api  # noqa: F401
    except (ImportError, BackendUnavailable):
        pytest.skip("nixl is not installed here")
    fleet = BenchProcesses(kind=HoldingMember)
    yield fleet
    fleet.close()


@pytest.fixture
def fleet(running: BenchProcesses) -> BenchProcesses:
    """Every rank lives, and every link is up."""
    for name, member in running.members.items():
        if member.process.is_alive():
            member.resume()
            if name.startswith("P"):
                member.ask("give_slots")
        else:
            running.restart(name)
    running.healthy()
    return running


def all_ways(fleet: BenchProcesses) -> None:
    """A room each way, so that every link has carried bytes."""
    rooms = [fleet.room(p, d, produced=100) for p in ("P1", "P2") for d in ("D1", "D2")]
    for room in rooms:
        fleet.succeeds(room)


@pytest.fixture
def before(fleet: BenchProcesses) -> dict[str, Any]:
    all_ways(fleet)
    fleet.rests({name: {**held, "rooms": []} for name, held in fleet.held().items()})
    return fleet.held()


def bystanders(fleet: BenchProcesses, victim: str) -> list[int]:
    """Rooms that have nothing to do with the victim, and one that shares the other end of its link."""
    return [fleet.room(p, d, produced=40) for p in ("P1", "P2") for d in ("D1", "D2") if victim not in (p, d)]


def granted(fleet: BenchProcesses, *rooms: int, tokens: int = 64, placed: int = 0) -> None:
    """So many chunks of one prefill rank's rooms are in place; later ones are granted, not written."""
    until(lambda: all(fleet[fleet.rooms[room][1]].ask("placed", room) == placed for room in rooms), f"{placed} chunks")
    prefill = fleet[fleet.rooms[rooms[0]][0]]
    until(lambda: prefill.ask("take_slots"), "all slots")
    for room in rooms:
        fleet.produce(room, tokens)
        fleet.reaches(room, "P", "AWAIT_SLOT")
        fleet.reaches(room, "D", "FILLING")


def writes_into(fleet: BenchProcesses, stopped: str, room: int, tokens: int = 64) -> None:
    """This decode rank is stopped, and the room's prefill rank writes into it."""
    granted(fleet, room, tokens=tokens)
    fleet[stopped].stop()
    fleet[fleet.rooms[room][0]].ask("give_slots")
    fleet.reaches(room, "P", "WRITING")


def back(fleet: BenchProcesses, before: dict[str, Any], name: str) -> None:
    """The rank comes back under its name, and everything is as before."""
    fleet.restart(name)
    fleet.healthy()
    all_ways(fleet)
    fleet.rests(before)


def test_a_decode_rank_that_is_killed(fleet: BenchProcesses, before: dict[str, Any]) -> None:
    rooms = [fleet.room(p, "D1", produced=40) for p in ("P1", "P2")]
    others = bystanders(fleet, "D1")
    killed = time.monotonic()
    fleet["D1"].kill()
    for room in rooms:
        cause, told, released = fleet.told(room, "P")
        assert cause == "LINK_LOST"
        assert told - killed < SILENCE_S + SLACK_S and released - killed < SILENCE_S + SLACK_S
        assert "LINK_LOST" in fleet[fleet.rooms[room][0]].ask("explain", room)
    for room in others:
        fleet.produce(room)
        fleet.succeeds(room)
    back(fleet, before, "D1")


def test_a_prefill_rank_that_is_killed(fleet: BenchProcesses, before: dict[str, Any]) -> None:
    rooms = [fleet.room("P1", d, produced=40) for d in ("D1", "D2")]
    others = bystanders(fleet, "P1")
    granted(fleet, *rooms, placed=1)
    killed = time.monotonic()
    fleet["P1"].kill()
    for room in rooms:
        cause, told, released = fleet.told(room, "D")
        assert cause == "LINK_LOST" and told - killed < SILENCE_S + SLACK_S
        assert released - told > QUARANTINE_S - 0.5, "its writes might still have landed"
        assert released - killed < SILENCE_S + QUARANTINE_S + SLACK_S
    for room in others:
        fleet.produce(room)
        fleet.succeeds(room)
    back(fleet, before, "P1")


def test_a_prefill_rank_that_comes_back_ends_the_quarantine(fleet: BenchProcesses, before: dict[str, Any]) -> None:
    room = fleet.room("P1", "D1", produced=40)
    granted(fleet, room, placed=1)
    fleet["P1"].kill()
    fleet.restart("P1")
    cause, _, _ = fleet.told(room, "D")
    assert cause == "LINK_LOST"
    fleet.healthy()
    again = fleet.room("P1", "D1", produced=100)
    fleet.succeeds(again)
    all_ways(fleet)
    fleet.rests(before)


def test_a_prefill_rank_that_is_killed_in_the_middle_of_a_write(fleet: BenchProcesses, before: dict[str, Any]) -> None:
    room = fleet.room("P1", "D1")
    other = fleet.room("P2", "D1", produced=40)
    fleet.reaches(room, "P", "AWAIT_KV")
    writes_into(fleet, "D1", room)
    fleet["P1"].kill()
    fleet["D1"].resume()
    cause, _, _ = fleet.told(room, "D")
    assert cause == "LINK_LOST"
    fleet.produce(other)
    fleet.succeeds(other)
    back(fleet, before, "P1")


@pytest.mark.parametrize("name", ["P1", "D1"])
def test_a_rank_that_is_stopped_for_a_moment(fleet: BenchProcesses, before: dict[str, Any], name: str) -> None:
    room = fleet.room("P1", "D1", produced=40)
    others = bystanders(fleet, name)
    fleet[name].stop()
    for other in others:
        fleet.produce(other)
        fleet.succeeds(other)
    time.sleep(SILENCE_S / 3)
    fleet[name].resume()
    fleet.produce(room)
    fleet.succeeds(room)
    fleet.rests(before)


@pytest.mark.parametrize("name", ["P1", "D1"])
def test_a_rank_that_holds_the_lock_for_longer_than_beats_may_be_missed(
    fleet: BenchProcesses, before: dict[str, Any], name: str
) -> None:
    room = fleet.room("P1", "D1", produced=40)
    other = "D1" if name == "P1" else "P1"
    until(lambda: fleet["D1"].ask("placed", room) == 1, "a chunk: no write is in flight, which would need its help")
    silences = fleet[other].ask("metrics").get(SILENCES, 0)
    fleet[name].ask("hold", 2 * SILENCE_S)
    fleet.produce(room)
    fleet.succeeds(room)
    assert fleet[other].ask("metrics")[SILENCES] == silences + 1
    fleet.rests(before)


def test_a_write_outlasts_a_stop_of_its_decode_rank(fleet: BenchProcesses, before: dict[str, Any]) -> None:
    room = fleet.room("P1", "D1")
    fleet.reaches(room, "P", "AWAIT_KV")
    writes_into(fleet, "D1", room)
    time.sleep(2 * QUICK.write.period)
    assert fleet["P1"].ask("call", "status", room).name == "TRANSFERRING", "its link lasts, and so does its write"
    fleet["D1"].resume()
    fleet.produce(room)
    fleet.succeeds(room)
    fleet.rests(before)


def test_a_decode_rank_that_is_stopped_for_long(fleet: BenchProcesses, before: dict[str, Any]) -> None:
    room = fleet.room("P1", "D1")
    others = bystanders(fleet, "D1")
    fleet.reaches(room, "P", "AWAIT_KV")
    stopped = time.monotonic()
    writes_into(fleet, "D1", room, tokens=CHUNK_TOKENS)  # one chunk: the rank's other slot is for the other rooms
    outcome = until(lambda: fleet["P1"].ask("call", "status", room).name == "FAILED", "the prefill side to be told")
    assert outcome and time.monotonic() - stopped < FROZEN_S + QUICK.write.period + SLACK_S
    for other in others:
        fleet.produce(other)
        fleet.succeeds(other)
    assert fleet["P1"].ask("told", room) is None, "a write is in flight: the pages are not released"
    fleet["D1"].resume()
    assert fleet.told(room, "P")[0] in ("WRITE_FAILED", "LINK_LOST")
    assert fleet.told(room, "D")[0] in ("WRITE_FAILED", "LINK_LOST")
    fleet.healthy()
    all_ways(fleet)
    fleet.rests(before)


def test_a_prefill_rank_that_is_stopped_for_long(fleet: BenchProcesses, before: dict[str, Any]) -> None:
    room = fleet.room("P1", "D1", produced=40)
    others = bystanders(fleet, "P1")
    granted(fleet, room, placed=1)
    stopped = time.monotonic()
    fleet["P1"].stop()
    for other in others:
        fleet.produce(other)
        fleet.succeeds(other)
    cause, told, _ = fleet.told(room, "D")
    assert cause == "LINK_LOST" and SILENCE_S < told - stopped < FROZEN_S + SLACK_S
    fleet["P1"].resume()
    assert fleet.told(room, "P")[0] == "LINK_LOST"
    fleet["P1"].ask("give_slots")
    fleet.healthy()
    all_ways(fleet)
    fleet.rests(before)
