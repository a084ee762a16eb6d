"""A rank that is closed in good order gives its rooms up, and its peers hear of it at once.

Without that they wait until its heartbeats are missed: the rooms fail there by LINK_LOST, as by a crash.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest
import torch
from support.stories import layout

import kvproto.endpoint.endpoint as endpoint_module
from kvproto.endpoint.endpoint import Endpoint
from kvproto.io.transports.base import Transport
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol.states import Cause
from kvproto.room import Room
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import Pair

CHUNK_TOKENS, TOKENS, LONG = 8, 20, 20.0


def only_decode(pair: Pair) -> Room:
    """A room that the prefill engine has not opened."""
    room = pair.name(TOKENS)
    pair.open_decode(room)
    pair.pump(lambda: bool(inside(pair.prefills[0]).rank.rooms))
    return room


def no_kv(pair: Pair) -> Room:
    """A room of which nothing is computed."""
    room = pair.open(TOKENS)
    pair.pump(lambda: pair.prefills[0].opened_by_all(room))
    return room


def in_flight(pair: Pair) -> Room:
    """A room that has a write in flight."""
    pair.fabric.auto = False
    room = pair.open(TOKENS)
    pair.produce(room)
    pair.pump(lambda: bool(inside(pair.prefills[0]).rank.writes))
    pair.fabric.auto = True
    return room


def hear_of_it(pair: Pair, closed: Endpoint, other: Endpoint, name: tuple[str, int, Room]) -> Cause:
    """Close one end while the other has a thread of its own; return how the room ended there."""
    other.start()
    closed.close()
    pair.prefills = [each for each in pair.prefills if each is not closed]
    pair.decodes = [each for each in pair.decodes if each is not closed]
    deadline = time.monotonic() + LONG
    while name not in pair.outcomes or not pair.releases[name]:
        pair.collect()
        assert time.monotonic() < deadline, pair.explain()
        time.sleep(0.001)
    return pair.outcomes[name].cause


@pytest.mark.parametrize(
    ("closed", "begin"), [("P", only_decode), ("P", no_kv), ("P", in_flight), ("D", no_kv), ("D", in_flight)]
)
def test_a_rank_that_is_closed_ends_its_rooms_at_the_other_side(
    closed: str, begin: Callable[[Pair], Room], caplog: pytest.LogCaptureFixture
) -> None:
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS) as pair:
        room, ends = begin(pair), (pair.prefills[0], pair.decodes[0])
        caplog.set_level(logging.WARNING, "kvproto.rooms")
        if closed == "P":
            assert hear_of_it(pair, *ends, ("D", 0, room)) is Cause.PREFILL_ABORTED
        else:
            assert hear_of_it(pair, *ends[::-1], ("P", 0, room)) is Cause.DECODE_ABORTED
        assert not [each for each in caplog.records if each.name == "kvproto.rooms"]


def test_a_rank_that_is_closed_waits_until_its_rooms_are_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS) as pair:
        room, prefill = in_flight(pair), pair.prefills[0]
        monkeypatch.setattr(endpoint_module, "LINGER_S", LONG)
        pair.decodes[0].start()
        prefill._give_up()
        assert room.key not in inside(prefill).rank.rooms


def test_a_peer_that_never_confirms_does_not_keep_a_rank_from_being_closed() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS) as pair:
        in_flight(pair)
        pair.fabric.auto = False
        pair.prefills[0].close()
        assert inside(pair.prefills[0]).loop.closed


class Late:
    """The event of a forward that ends when it is told to."""

    over = False

    def query(self) -> bool:
        return self.over


class Mapped(Pair):
    """A pair whose prefill ranks store into mapped pages."""

    def transport(self) -> Transport:
        return MemoryTransport(self.fabric, maps=True)


def test_a_store_that_comes_after_the_close_is_of_a_room_that_is_not_released() -> None:
    """The prefill rank does not poll while the decode rank closes, and its forward ends afterwards."""
    with Mapped(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS) as pair:
        room, (prefill,), (decode,) = pair.open(CHUNK_TOKENS), pair.prefills, pair.decodes
        forward = Late()
        prefill.produced(room, CHUNK_TOKENS, forward)
        pair.pump(lambda: bool(inside(prefill).rank.writes))
        before = [tensor.clone() for tensor in decode.pool.k]
        decode.close()
        assert [outcome.cause for outcome in decode.finished()] == [Cause.DECODE_ABORTED]
        forward.over = True
        while not prefill.finished():
            prefill.poll()
        assert not all(map(torch.equal, before, decode.pool.k)), "it has stored"
        assert decode.released() == []
