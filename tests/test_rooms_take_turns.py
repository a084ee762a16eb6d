"""Small rooms beside a huge one, counted in passes: what each takes, and what it would take without turns.

Nothing here is real time: frames, writes and copies move once in each turn, and a copy takes as long as a pass may
launch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from types import MappingProxyType
from typing import Any

import pytest
from support.stories import layout

from kvproto.engine.launches import LAUNCH_S, Launches
from kvproto.engine.room import Room
from kvproto.layout.plan import Plan
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill_queues import PrefillQueues
from kvproto.rank.settings import Settings
from kvproto.testing.access import inside
from kvproto.testing.stage import TIMING, EngineStage

GRID, REGIONS, HUGE, SMALLS = 16, 16, 120, 4
#: turns in which the huge room is alone: as many to begin as to be measured
LONG = 20
CHUNK = Plan(layout(2), layout(1), GRID).grant_bytes(0, GRID)
#: turns that a small room may take beside the huge one, for each that it takes alone
MOST = 2.0
#: and chunks a turn that the huge room has landed beside them, for each that it has landed alone
LEAST = 0.7


def turns(slots: int) -> tuple[float, float]:
    """Turns of a small room beside a huge one for each that it takes alone; the huge one's pace for its own alone."""
    settings = Settings(
        timing=TIMING, ring_bytes=REGIONS * CHUNK, slots=slots, slot_bytes=CHUNK, window=32, route="staged"
    )  # fmt: skip
    with EngineStage(
        layout(2), layout(1), grid=GRID, pages=512, settings=settings, sockets=False, late=False
    ) as stage:
        readings = count()
        setattr(stage.clock, "real", lambda: LAUNCH_S * next(readings))  # noqa: B010
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


def started(stage: EngineStage, chunks: int) -> Room:
    room = stage.name(chunks * GRID)
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


def oldest_region(rank: DecodeRank, _given: object) -> Any:
    """The ring's queue without shares."""
    return next(iter(rank.space_queue.items()), None)


def unheard_of(rank: DecodeRank, _given: object, turn: Any = DecodeRank._turn) -> Any:
    """Shares of what grants have heard of, as if nothing had just been given."""
    return turn(rank, Counter())


def oldest_slot(rank: PrefillQueues) -> Any:
    """The slots' queue, whoever has how many."""
    return next(iter(rank.slot_queue))


def oldest_launch(launches: Launches, _room: int, launch: Callable[[], None]) -> None:
    """Launches as if they were all one room's."""
    launches._rooms.setdefault(0, deque()).append(launch)


#: what is taken out: where it stands, what is there instead, and with how many slots it shows
WITHOUT = MappingProxyType({
    "shares of the ring": (DecodeRank, "_turn", oldest_region, 8),
    "regions given in the same pass": (DecodeRank, "_turn", unheard_of, 8),
    "turns for slots": (PrefillQueues, "_next_in_turn", oldest_slot, 2),
    "turns for launches": (Launches, "ask", oldest_launch, 8),
})  # fmt: skip


@pytest.mark.parametrize("slots", [2, 8])
def test_a_small_room_beside_a_huge_one_takes_at_most_twice_its_turns(slots: int) -> None:
    longer, kept = turns(slots)
    assert longer <= MOST and kept >= LEAST


@pytest.mark.parametrize("what", list(WITHOUT))
def test_without_one_of_the_rules_it_takes_more(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead, slots = WITHOUT[what]
    monkeypatch.setattr(where, name, instead)
    assert turns(slots)[0] > MOST
