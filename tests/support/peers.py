"""Peers: two groups of peer endpoints, joined by a pair for each direction, with common pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from msgspec.structs import replace

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.peer_endpoint import PeerEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.clock import Clock
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.sharding import Layout
from kvproto.settings import Route, Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import SMALL, Pair
from kvproto.verify.testing.pools import noise

CHUNK_TOKENS, PAGES = 8, 128


class Direction(Pair):
    """Rooms from one group of peers to another; endpoints and free pages are the peers'."""

    def __init__(self, peers: Peers, sends: int, takes: int) -> None:
        """`sends`, `takes`: the numbers of the two groups."""
        self.peers, self.numbers, self.seeds = peers, (sends, takes), (sends, takes)
        layouts = peers.layouts[sends], peers.layouts[takes]
        super().__init__(*layouts, chunk_tokens=CHUNK_TOKENS, pages=PAGES, settings=peers.settings, ready=False)
        self.free = peers.free

    def make_prefill(self, index: int) -> PrefillEndpoint:
        return self.peers.groups[self.numbers[0]][index].prefill

    def make_decode(self, index: int) -> DecodeEndpoint:
        return self.peers.groups[self.numbers[1]][index].decode

    def turn(self) -> bool:
        """One pass of every peer, and what the engines are told of both directions."""
        return self.peers.turn()


class Peers:
    """Groups 1 and 2, connected in both directions."""

    def __init__(
        self, first: Layout, second: Layout, *, route: Route = "staged", maps: bool = False,
        settings: Settings = SMALL, clock: Callable[[], Clock] | None = None,
    ) -> None:  # fmt: skip
        """`maps`: pools are mapped by peers; `clock` makes one for each peer (default: real time)."""
        self.fabric, self.layouts, self._maps, self._clock = Fabric(auto=True), {1: first, 2: second}, maps, clock
        self.settings, self.free = replace(settings, route=route), list(range(PAGES - 1, -1, -1))
        self.groups = {
            group: [self.make(group, index) for index in range(layout.ranks)] for group, layout in self.layouts.items()
        }
        self.there = Direction(self, 1, 2)
        self.back = Direction(self, 2, 1)
        self.both = self.there, self.back
        self.there.pump(self.ready)

    def make(self, group: int, index: int) -> PeerEndpoint:
        layout = self.layouts[group]
        return PeerEndpoint(
            layout, index, noise(layout, index, PAGES, group), MemoryTransport(self.fabric, maps=self._maps),
            chunk_tokens=CHUNK_TOKENS, group=group, settings=self.settings,
            clock=self._clock() if self._clock else None,
        )  # fmt: skip

    @property
    def all(self) -> list[PeerEndpoint]:
        return [*self.groups[1], *self.groups[2]]

    def ready(self) -> bool:
        """Whether every link of both directions is up."""
        return all(peer.decode.ready(3 - group) for group, peers in self.groups.items() for peer in peers)

    def kill(self, group: int) -> PeerEndpoint:
        """End the one rank of this group as a process that is killed: sockets and memory, without a word."""
        (gone,), self.groups[group] = self.groups[group], []
        self.fabric.kill(inside(gone.prefill).data.transport.instance)
        for role in (gone.prefill, gone.decode):
            inside(role).loop.control.close()
        for each in self.both:
            each.prefills, each.decodes = self._roles(each)
        return gone

    def restart(self, group: int) -> None:
        """A new life of the rank of this group, at another address, with another pool."""
        new, (other,) = self.make(group, 0), self.groups[3 - group]
        self.groups[group] = [new]
        for each in self.both:
            each.prefills, each.decodes = self._roles(each)
        new.decode.connect(self.layouts[3 - group], [other.address], group=3 - group)
        other.decode.connect(self.layouts[group], [new.address], group=group)

    def _roles(self, each: Direction) -> tuple[list[PrefillEndpoint], list[DecodeEndpoint]]:
        sends, takes = (self.groups[group] for group in each.numbers)
        return [peer.prefill for peer in sends], [peer.decode for peer in takes]

    def turn(self) -> bool:
        """One pass of every peer, and what its engine is told; whether anything happened."""
        moved = False
        for peer in self.all:
            moved |= peer.poll()
        for direction in self.both:
            direction.collect()
        return moved

    def close(self) -> None:
        for peer in self.all:
            peer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
