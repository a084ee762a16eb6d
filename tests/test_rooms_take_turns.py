"""Small rooms beside a huge one, counted in passes, with and without turns; the huge one in a crowd.

Nothing here is real time: frames, writes and copies move once in each turn, and a copy takes as long as a pass may
launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import MappingProxyType
from typing import Any

import pytest
from support.stories import layout

from kvproto.data.launches import LAUNCH_S, Launches
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.rank.fair_queue import FairQueue, SendKey
from kvproto.rank.prefill_queues import PrefillQueues
from kvproto.rank.room_turns import RoomTurns
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.stage import TIMING, EngineStage

CHUNK_TOKENS, REGIONS, HUGE, SMALLS = 16, 16, 120, 4
#: turns in which the huge room is alone: as many to begin as to be measured
LONG = 20
CHUNK = Plan(layout(2), layout(1), CHUNK_TOKENS).grant_bytes(0, Cut(0, CHUNK_TOKENS))
#: turns that a small room may take beside the huge one, for each that it takes alone
MOST = 2.0
#: and chunks a turn that the huge room has landed beside them, for each that it has landed alone
LEAST = 0.7
#: small rooms that are always there, and what the huge one keeps of its pace beside so many
CROWD, LEAST_IN_CROWD = 48, 0.15


@contextmanager
def staged(slots: int, regions: int, window: int, pages: int) -> Iterator[EngineStage]:
    """A pair of groups in which each launch takes all that a pass may launch."""
    settings = Settings(
        timing=TIMING, ring_bytes=regions * CHUNK, slots=slots, slot_bytes=CHUNK, window=window, route="staged"
    )  # fmt: skip
    with EngineStage(
        layout(2), layout(1), chunk_tokens=CHUNK_TOKENS, pages=pages, settings=settings, sockets=False, late=False
    ) as stage:
        readings = count()
        setattr(stage.clock, "real", lambda: LAUNCH_S * next(readings))  # noqa: B010
        yield stage


def turns(slots: int) -> tuple[float, float]:
    """Turns of a small room beside a huge one, over those it takes alone; and the huge one's pace alike."""
    with staged(slots, REGIONS, window=32, pages=512) as stage:
        alone = [landed(stage) for _ in range(SMALLS)]
        huge = started(stage, HUGE)
        grants = inside(stage.decodes[0]).rank.ring
        marks = []
        for _ in range(2):
            marks.append(grants.next_grant)
            for _ in range(LONG):
                stage.turn()
        pace, first = (grants.next_grant - marks[1]) / LONG, grants.next_grant
        beside = [landed(stage) for _ in range(SMALLS)]
        assert ("D", 0, huge) not in stage.outcomes, "the huge room was there all the time"
        kept = (grants.next_grant - first - SMALLS) / sum(beside)
        stage.drain()
    return sum(beside) / sum(alone), kept / pace


def kept_in_crowd(slots: int) -> float:
    """Chunks a turn that a huge room lands beside a crowd of small ones, over those that it lands alone."""
    with staged(slots, regions=4, window=4, pages=1024) as stage:
        huge, smalls = started(stage, HUGE), list[Room]()
        paces, first = list[float](), 0
        for crowd in (0, CROWD):
            for turn in range(2 * LONG):
                if turn == LONG:
                    first = landed_of(stage, huge)
                smalls += [started(stage, 1) for _ in range(crowd - len(smalls))]
                stage.turn()
                smalls = [room for room in smalls if ("D", 0, room) not in stage.outcomes]
            paces.append((landed_of(stage, huge) - first) / LONG)
        assert ("D", 0, huge) not in stage.outcomes, "the huge room was there all the time"
        stage.drain()
    return paces[1] / paces[0]


def landed_of(stage: EngineStage, room: Room) -> int:
    """Chunks of an open room that are in the decode rank's pages."""
    done: int = inside(stage.decodes[0]).rank.rooms[room.key].work.done
    return done.bit_count()


def started(stage: EngineStage, chunks: int) -> Room:
    room = stage.name(chunks * CHUNK_TOKENS)
    stage.open_prefill(room)
    stage.open_decode(room)
    stage.prefetch(room)
    stage.produce(room)
    return room


def landed(stage: EngineStage) -> int:
    """Turns from the opening of a room of one chunk until its decode engine is told."""
    room, taken = started(stage, 1), 0
    while ("D", 0, room) not in stage.outcomes:
        stage.turn()
        taken += 1
        assert taken < 10_000, stage.explain()
    return taken


class StandingQueue(FairQueue):
    """A queue in which a room that has had a turn keeps its place."""

    def put_last(self, _key: SendKey) -> None:
        """Nothing."""


def standing(rank: PrefillQueues, effect: Any, free: Any = PrefillQueues._free_slot) -> None:
    """Slots for who has waited longest, whoever has just had one."""
    rank.slot_queue = StandingQueue(rank.slot_queue)
    free(rank, effect)


def oldest_launch(
    launches: Launches, _room: int, launch: Callable[[], None], ask: Any = Launches.ask, **_: bool
) -> None:
    """Launches as if they were all one room's."""
    ask(launches, 0, launch)


#: what is taken out: where it stands, what is there instead, and with how many slots it shows
WITHOUT = MappingProxyType({
    "turns for slots": (PrefillQueues, "_free_slot", standing, 1),
    "turns for launches": (Launches, "ask", oldest_launch, 8),
})  # fmt: skip


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_a_small_room_beside_a_huge_one_takes_at_most_twice_its_turns(slots: int) -> None:
    longer, kept = turns(slots)
    assert longer <= MOST and kept >= LEAST


@pytest.mark.parametrize("what", list(WITHOUT))
def test_without_one_of_the_rules_it_takes_more(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead, slots = WITHOUT[what]
    monkeypatch.setattr(where, name, instead)
    assert turns(slots)[0] > MOST


def test_a_huge_room_is_carried_beside_a_crowd_of_small_ones() -> None:
    assert kept_in_crowd(slots=2) >= LEAST_IN_CROWD


def test_without_a_larger_room_s_turns_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoomTurns, "whose", lambda _, first, __: first)
    assert kept_in_crowd(slots=2) < LEAST_IN_CROWD
