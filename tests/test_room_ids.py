"""Room ids that two have drawn: the room that was there goes on, whoever the other one is.

Two prefill instances and two decode instances, endpoints on real sockets, everybody linked to everybody.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from typing import TypeVar

import pytest
import torch
from support.stories import layout

from kvproto import DecodeEndpoint, PrefillEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.errors import ArgumentError
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol.states import Cause
from kvproto.room import Outcome, Room
from kvproto.settings import Settings
from kvproto.verify.testing.pools import noise, tokens_of

CHUNK_TOKENS, TOKENS, PAGES, PATIENCE_S = 8, 24, 16, 10.0
SETTINGS = Settings(ring_bytes=1 << 16, slot_bytes=1 << 12)
ROOM = Room(7)
E = TypeVar("E", PrefillEndpoint, DecodeEndpoint)


class Fleet:
    """Prefill instances 1 and 2, decode instances 11 and 12."""

    def __init__(self, ends: ExitStack) -> None:
        fabric, self.held = Fabric(auto=True), layout(1)
        self.prefills, self.decodes = dict[int, PrefillEndpoint](), dict[int, DecodeEndpoint]()

        def made(kind: type[E], group: int) -> E:
            endpoint = kind(
                self.held, 0, noise(self.held, 0, PAGES, group), MemoryTransport(fabric), chunk_tokens=CHUNK_TOKENS,
                group=group, settings=SETTINGS,
            )  # fmt: skip
            return ends.enter_context(endpoint)

        for group in (1, 2):
            self.prefills[group] = made(PrefillEndpoint, group)
        for group in (11, 12):
            self.decodes[group] = made(DecodeEndpoint, group)
        self.outcomes: dict[int, list[Outcome]] = defaultdict(list)
        for decode, (group, prefill) in product(self.decodes.values(), self.prefills.items()):
            decode.connect(self.held, [prefill.address], group=group)
        self.pump(lambda: all(decode.ready(group) for decode in self.decodes.values() for group in self.prefills))

    def pump(self, over: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        ends: dict[int, Endpoint] = {**self.prefills, **self.decodes}
        while not over():
            for group, each in ends.items():
                each.poll()
                self.outcomes[group] += each.finished()
                each.released()
            assert time.monotonic() < end, [each.explain(ROOM) for each in ends.values()]

    def pages(self, first: int) -> list[int]:
        return list(range(first, first + -(-TOKENS // self.held.page_size)))

    def serve(self, prefill: int, decode: int) -> None:
        """This prefill instance opens the room for this decode instance."""
        self.prefills[prefill].open(ROOM, TOKENS, self.pages(0), group=decode)

    def produce(self, prefill: int) -> None:
        self.prefills[prefill].produced(ROOM, TOKENS)
        self.prefills[prefill].aux(ROOM, b"%d" % prefill)

    def causes(self, group: int) -> list[Cause]:
        return [outcome.cause for outcome in self.outcomes[group]]

    def right(self, prefill: int, decode: int, at: int) -> bool:
        """Whether the pages from `at` on have what this prefill instance has."""
        ours = tokens_of(self.prefills[prefill].pool, self.pages(0))
        theirs = tokens_of(self.decodes[decode].pool, self.pages(at))
        return all(torch.equal(a[:TOKENS], b[:TOKENS]) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with ExitStack() as ends:
        yield Fleet(ends)


@pytest.mark.parametrize("when", ["before the owner", "under way", "and gives it up"])
def test_another_decode_instance_ends_its_own_room_alone(fleet: Fleet, when: str) -> None:
    owner, other = fleet.decodes[11], fleet.decodes[12]
    before = [each.clone() for each in tokens_of(other.pool, list(range(PAGES)))]
    if when == "before the owner":
        other.open(ROOM, TOKENS, fleet.pages(0), group=1)
        fleet.pump(lambda: bool(fleet.prefills[1].rooms()))
    fleet.serve(1, 11)
    owner.open(ROOM, TOKENS, fleet.pages(4), group=1)
    if when != "before the owner":
        fleet.pump(lambda: fleet.prefills[1].opened_by_all(ROOM))
        other.open(ROOM, TOKENS, fleet.pages(0), group=1)
        if when == "and gives it up":
            other.abort(ROOM)
        fleet.pump(lambda: bool(fleet.outcomes[12]))
    fleet.produce(1)
    fleet.pump(lambda: bool(fleet.outcomes[11] and fleet.outcomes[1] and fleet.outcomes[12]))
    assert fleet.causes(11) == fleet.causes(1) == [Cause.NONE]
    assert fleet.causes(12) in ([Cause.NOT_ENTITLED], [Cause.DECODE_ABORTED])
    assert fleet.right(1, 11, 4) and fleet.outcomes[11][0].aux == b"1"
    assert all(map(torch.equal, before, tokens_of(other.pool, list(range(PAGES)))))


def test_two_prefill_instances_with_one_id_serve_two_decode_instances(fleet: Fleet) -> None:
    """No collision at all: each rank has one room of that id."""
    for prefill, decode in ((1, 11), (2, 12)):
        fleet.serve(prefill, decode)
        fleet.decodes[decode].open(ROOM, TOKENS, fleet.pages(4), group=prefill)
        fleet.produce(prefill)
    fleet.pump(lambda: all(fleet.outcomes[group] for group in (1, 2, 11, 12)))
    assert all(fleet.causes(group) == [Cause.NONE] for group in (1, 2, 11, 12))
    assert fleet.right(1, 11, 4) and fleet.right(2, 12, 4)


def test_at_one_decode_instance_the_second_open_is_refused_and_the_first_room_goes_on(fleet: Fleet) -> None:
    decode = fleet.decodes[11]
    fleet.serve(1, 11)
    fleet.serve(2, 11)
    decode.open(ROOM, TOKENS, fleet.pages(4), group=1)
    for again in (decode.open, lambda *given, **at: decode.announce(*given[:2], **at)):
        with pytest.raises(ArgumentError, match="a new attempt needs a new gen"):
            again(ROOM, TOKENS, fleet.pages(8), group=2)
    fleet.produce(2)
    fleet.prefills[2].abort(ROOM)
    fleet.pump(lambda: bool(fleet.outcomes[2]))
    fleet.produce(1)
    fleet.pump(lambda: bool(fleet.outcomes[11] and fleet.outcomes[1]))
    assert fleet.causes(11) == fleet.causes(1) == [Cause.NONE]
    assert fleet.right(1, 11, 4) and fleet.outcomes[11][0].aux == b"1"


def test_a_crossed_pair_harms_neither(fleet: Fleet) -> None:
    """Each prefill instance has the room for one decode instance, and each of those opens it at the other."""
    for prefill, decode, asked in ((1, 11, 2), (2, 12, 1)):
        fleet.serve(prefill, decode)
        fleet.decodes[decode].open(ROOM, TOKENS, fleet.pages(4), group=asked)
    fleet.pump(lambda: bool(fleet.outcomes[11] and fleet.outcomes[12]))
    assert fleet.causes(11) == fleet.causes(12) == [Cause.NOT_ENTITLED]
    assert not fleet.outcomes[1] and not fleet.outcomes[2], "their own callers have yet to come"
