"""Prefill groups with their own chunk sizes: a decode rank cuts each room as the sending group does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stories import layout

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.errors import ArgumentError, LinkError
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.sharding import LayoutError
from kvproto.room import Outcome, Room
from kvproto.settings import DECODE_GROUP
from kvproto.verify.testing.pair import SMALL
from kvproto.verify.testing.pools import noise, tokens_of, whole_model

LAYOUT_P, LAYOUT_D, PAGES, TOKENS = layout(2), layout(1), 20, 37
CHUNK_SIZES = {1: 8, 5: 16}


class Groups:
    """Two prefill groups, each with chunks of its own, and one decode rank that knows none."""

    def __init__(self) -> None:
        self.fabric = Fabric(auto=True)
        self.prefills = {
            group: [PrefillEndpoint(LAYOUT_P, index, noise(LAYOUT_P, index, PAGES, group), MemoryTransport(self.fabric),
                                    chunk_tokens=chunk_tokens, group=group, settings=SMALL) for index in range(2)]
            for group, chunk_tokens in CHUNK_SIZES.items()
        }  # fmt: skip
        self.decode = DecodeEndpoint(
            LAYOUT_D, 0, noise(LAYOUT_D, 0, PAGES, 2), MemoryTransport(self.fabric), group=DECODE_GROUP, settings=SMALL
        )
        self.endpoints = [*self.prefills[1], *self.prefills[5], self.decode]

    def addresses(self, group: int) -> list[str]:
        return [prefill.address for prefill in self.prefills[group]]

    def connect(self, group: int, chunk_tokens: int | None) -> None:
        self.decode.connect(LAYOUT_P, self.addresses(group), group=group, chunk_tokens=chunk_tokens)

    def turn(self, times: int) -> None:
        for _ in range(times):
            for endpoint in self.endpoints:
                endpoint.poll()
                endpoint.wait(0.001)

    def wait_ready(self, *groups: int) -> None:
        while not all(self.decode.ready(group) for group in groups):
            self.turn(1)


@pytest.fixture
def groups() -> Iterator[Groups]:
    made = Groups()
    yield made
    for endpoint in made.endpoints:
        endpoint.close()


def test_each_room_is_cut_as_its_own_group_cuts(groups: Groups) -> None:
    for group, chunk_tokens in CHUNK_SIZES.items():
        groups.connect(group, chunk_tokens)
    groups.wait_ready(*CHUNK_SIZES)
    rooms = {Room(group): [*range(4 * at, 4 * at + 10)] for at, group in enumerate(CHUNK_SIZES)}
    tables = {room: [*range(10 * at, 10 * at + 10)] for at, room in enumerate(rooms)}
    for room, pages in rooms.items():
        groups.decode.open(room, TOKENS, tables[room], group=room.id)
        for prefill in groups.prefills[room.id]:
            prefill.open(room, TOKENS, pages)
            prefill.produced(room, TOKENS)
            prefill.aux(room, b"")
    done: list[Outcome] = []
    while len(done) < len(rooms):
        groups.turn(1)
        done += groups.decode.finished()
    assert all(outcome.ok for outcome in done)
    for room, pages in rooms.items():
        theirs = tables[room]
        whole = tokens_of(noise(whole_model(LAYOUT_P), 0, PAGES, room.id), pages)
        for sent, landed in zip(whole, tokens_of(groups.decode.pool, theirs), strict=True):
            assert bool((sent[:TOKENS] == landed[:TOKENS]).all())
    assert groups.decode.metrics()["scatters"] == -(-TOKENS // 8) + -(-TOKENS // 16)


def test_another_chunk_size_than_the_groups_is_refused_by_name(groups: Groups) -> None:
    groups.connect(1, 16)
    with pytest.raises(LinkError, match="chunks of 16 tokens against 8"):
        groups.wait_ready(1)


def test_a_chunk_size_that_cannot_be_is_refused_at_the_call(groups: Groups) -> None:
    with pytest.raises(ArgumentError, match="no chunk size is known: give `connect` the prefill group's chunk_tokens"):
        groups.connect(1, None)
    with pytest.raises(LayoutError, match="chunks of 7 tokens are not whole pages"):
        groups.connect(1, 7)
    assert not groups.decode._groups._party.groups


def test_a_group_does_not_change_its_chunk_size_while_it_is_connected(groups: Groups) -> None:
    groups.connect(1, 8)
    with pytest.raises(
        ArgumentError, match="prefill group 1 is connected with another layout or chunk size: disconnect"
    ):
        groups.connect(1, 16)
    groups.wait_ready(1)
    groups.decode.disconnect(1)
    groups.connect(1, 16)
    with pytest.raises(LinkError, match="chunks of 16 tokens against 8"):
        groups.wait_ready(1)
