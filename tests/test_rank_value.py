"""A rank as a value: nothing that a step depends on is beside it, and another rank goes on from it."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any

import pytest
from support.stories import layout
from test_rank_links import decode, open_rooms, prefill

from kvproto.fsm.timer_wheel import INFINITY
from kvproto.protocol import events as ev
from kvproto.rank.base import Rank
from kvproto.rank.decode import DecodeRank
from kvproto.rank.fair_queue import FairQueue
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.value import DecodeValue, PrefillValue
from kvproto.verify.testing.simulation import FAULTS, Simulation

#: attributes of a rank that are no part of its value, by why
BESIDE = {
    "it is given when the rank is made, or before its first link": {
        "settings",
        "timing",
        "layout",
        "index",
        "group",
        "chunk_tokens",
        "incarnation",
        "build",
        "lease",
        "placement",
        "stands",
        "unprepared",
        "met",
        "native_notify",
        "costs",
        "endpoint",
        "_requests",
    },
    "the tables and the handlers of their effects": {
        "stores",
        "_timed",
        "_route",
        "inner",
        "routes",
        "_routes",
        "room_machine",
        "link_machine",
        "send_machine",
        "write_machine",
        "grant_machine",
        "_up_state",
    },
    "it follows from the value": {"link_of", "_groups"},
    "equal values are one object": {"_cuts", "_equals"},
    "it is used within one step, and empty or overwritten by the next": {"_queue", "_out", "_heard", "_call"},
    "people read it": {"trace", "log", "counts", "timer_ends", "entered", "sent", "came", "windows"},
}
KINDS = {PrefillRank: PrefillValue, DecodeRank: DecodeValue}


def made(kind: type[Rank]) -> Any:
    return kind(layout(1), 0, group=1, chunk_tokens=8, incarnation=1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_rank_keeps_is_its_value_or_is_named(kind: type[Rank]) -> None:
    """A new attribute that a step depends on, and that the checker would forget, is noticed here."""
    beside = set().union(*BESIDE.values())
    fields = set(KINDS[kind].__struct_fields__)
    assert not fields & beside
    assert vars(made(kind)).keys() - beside == fields
    every = set().union(*(vars(made(each)) for each in KINDS))
    assert beside <= every, "no name of what is no more"


@pytest.mark.parametrize("make", [prefill, decode])
def test_a_rank_that_is_restored_has_the_links_and_rooms_of_the_value(make: Any) -> None:
    rank = make()
    open_rooms(rank)
    second = second_of(rank)
    second.restore(copied(rank))
    assert said(second) == said(rank) and len(second.links) == len(second.rooms) == 4


@pytest.mark.parametrize("timers", [True, False])
@pytest.mark.parametrize("make", [prefill, decode])
def test_nothing_of_what_a_rank_was_before_is_left_when_it_is_restored(make: Any, timers: bool) -> None:
    first, second = make(), make()
    open_rooms(first)
    open_rooms(second)
    second.link_of[9, 9], second._groups[11] = 8, 9
    second.give(ev.RoomRenewed(11))
    second.restore(copied(first), timers=timers)
    assert (second.link_of, second._groups) == (first.link_of, {}) and not second.trace and not second._queue
    assert (second.next_deadline < INFINITY) is timers


def test_another_rank_takes_the_same_steps_from_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second rank takes each event of a simulation with every fault from the first one's value."""
    handle, seconds, taken = Rank.handle, dict[int, Any](), 0

    def both(rank: Any, *args: Any) -> Any:
        nonlocal taken
        if rank in seconds.values():
            return handle(rank, *args)
        second, taken = seconds.setdefault(id(rank), second_of(rank)), taken + 1
        second.restore(copied(rank))
        hearing(second, rank)
        expected = handle(second, *args)
        found = handle(rank, *args)
        assert found == expected and said(rank) == said(second)
        return found

    monkeypatch.setattr(Rank, "handle", both)
    assert not Simulation(1, 20, tuple(FAULTS), ring=4096).run().breach
    assert taken > 1000


def second_of(rank: Any) -> Any:
    """A rank that is made alike, and knows what the first one was given before its first link."""
    made = type(rank)(
        rank.layout, rank.index, group=rank.group, chunk_tokens=rank.chunk_tokens, incarnation=rank.incarnation,
        settings=rank.settings,
    )  # fmt: skip
    for name in ("placement", "stands", "native_notify", "costs", "endpoint"):
        if hasattr(rank, name):
            setattr(made, name, getattr(rank, name))
    return made


def hearing(second: Any, rank: Any) -> None:
    """Let it hear the message that the first one is hearing."""
    second._heard = copy(rank._heard)
    second._heard.rank = second
    if isinstance(rank, PrefillRank):
        second._call = rank._call


def copied(rank: Any) -> Any:
    """The rank's value with containers of its own; plans and the rank itself are shared."""
    shared = (rank, *(peer.plan for peer in rank.peers.values() if peer.plan is not None))
    return deepcopy(rank.value(), {id(each): each for each in shared})


def said(rank: Any) -> list[Any]:
    """The value in a form that can be compared."""
    value = rank.value()
    held = {name: getattr(value, name) for name in value.__struct_fields__}
    queues: dict[str, Any] = {name: [*queue] for name, queue in held.items() if isinstance(queue, FairQueue)}
    if isinstance(value, DecodeValue):
        queues |= {"ring": vars(value.ring), "space_turns": vars(value.space_turns)}
        queues |= {"space_queue": [*value.space_queue.items()]}
    return [*(held | queues).items()]
