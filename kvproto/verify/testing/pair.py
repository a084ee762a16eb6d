"""Pair: two groups in one process with real ranks, loops, sockets and bytes, over a simulated fabric.

The prefill pools are filled with seeded noise. The transport is the in-memory fabric, which moves the bytes for real;
its schedule can be taken over (`fabric.auto = False`, then `take`, `stall`, `cut`, `kill`).

    with Pair(layout_p, layout_d, chunk_tokens=64) as pair:
        room = pair.open(tokens=200)
        pair.finish(room)
        pair.check(room)          # the KV, bit for bit, and no other page touched

Endpoints are polled by the caller (`pump`), or run on threads of their own (`start`); a `ManualClock` may stand in
for time where they are polled.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Self

import torch
from msgspec.structs import replace

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.fsm.timing import Timer
from kvproto.io.clock import Clock
from kvproto.io.kernels.base import Pool
from kvproto.io.transports.base import Transport
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.protocol.timing import Timing
from kvproto.room import Outcome, Room
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pools import left_over, noise, tokens_of, whole_model

TICK_S = 50e-6
#: seconds between two looks at whether all is still, and the most that it may take; how much longer a frame that has
#: not come is waited for, and one that may be lost with an endpoint that is gone
LOOK_S, SETTLED_S, LATE, LOST = 1e-3, 5.0, 50, 10
SMALL = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18)
#: no send leaves the staged route, and nothing is said twice, because a busy machine answers late
PATIENT = replace(SMALL, timing=Timing(resend=Timer(20.0, 3), grant_retry=Timer(20.0, 3, 20.0)))


class Pair:
    """Two groups, connected; `ready` waits until every link is up."""

    #: the numbers of the groups, and the seeds of the noise in their pools, the prefill side first
    numbers, seeds = (PREFILL_GROUP, DECODE_GROUP), (1, 2)

    def __init__(
        self, prefill: Layout, decode: Layout, *, chunk_tokens: int, pages: int = 64, settings: Settings | None = None,
        fabric: Fabric | None = None, clock: Callable[[], Clock] | None = None, ready: bool = True,
    ) -> None:  # fmt: skip
        """`pages`: of each pool; `clock` makes one for each endpoint (default: real time)."""
        self.fabric = fabric or Fabric(auto=True)
        self.plan, self.pages, self.settings = Plan(prefill, decode, chunk_tokens), pages, settings or SMALL
        self._clock = clock
        self.free = list(range(pages - 1, -1, -1))
        self.tables: dict[Room, tuple[list[int], list[int], int, int]] = {}
        self.outcomes: dict[tuple[str, int, Room], Outcome] = {}
        self.releases: Counter[tuple[str, int, Room]] = Counter()
        self._next = 1
        self.prefills = [self.make_prefill(index) for index in range(prefill.ranks)]
        self.before = [self.pool(decode, index, self.seeds[1]) for index in range(decode.ranks)]
        self.decodes = [self.make_decode(index) for index in range(decode.ranks)]
        self._first = self.endpoints
        for index in range(decode.ranks):
            self.connect(index)
        if ready:
            self.pump(lambda: all(endpoint.ready() for endpoint in self.decodes))

    def transport(self) -> Transport:
        """A transport of a new rank."""
        return MemoryTransport(self.fabric)

    def pool(self, layout: Layout, index: int, seed: int) -> Pool:
        """The noise of a new rank of this group."""
        return noise(layout, index, self.pages, seed)

    def make_prefill(self, index: int) -> PrefillEndpoint:
        """A new life of this prefill rank, on an address of its own."""
        layout = self.plan.prefill
        return PrefillEndpoint(
            layout, index, self.pool(layout, index, self.seeds[0]), self.transport(),
            chunk_tokens=self.plan.chunk_tokens, group=self.numbers[0], settings=self.settings,
            clock=self._clock() if self._clock else None,
        )  # fmt: skip

    def make_decode(self, index: int) -> DecodeEndpoint:
        """A new life of this decode rank; it has called nobody yet."""
        layout = self.plan.decode
        return DecodeEndpoint(
            layout, index, self.pool(layout, index, self.seeds[1]), self.transport(),
            chunk_tokens=self.plan.chunk_tokens, group=self.numbers[1], settings=self.settings,
            clock=self._clock() if self._clock else None,
        )  # fmt: skip

    def connect(self, index: int) -> None:
        """The decode rank calls the prefill group."""
        self.decodes[index].connect(self.plan.prefill, [p.address for p in self.prefills], group=self.numbers[0])

    @property
    def endpoints(self) -> list[Endpoint]:
        """All of them, the prefill side first."""
        return [*self.prefills, *self.decodes]

    # ----------------------------------------------------------------------------------------- driving
    def turn(self) -> bool:
        """One pass of every endpoint, and what its engine is told; whether anything happened."""
        moved = False
        for endpoint in self.endpoints:
            moved |= endpoint.poll()
        self.collect()
        return moved

    def collect(self) -> None:
        """Take the engines' news: an outcome and a release come once each (AssertionError)."""
        for side, group in (("P", self.prefills), ("D", self.decodes)):
            for index, endpoint in enumerate(group):
                self.collect_from(side, index, endpoint)

    def collect_from(self, side: str, index: int, endpoint: Endpoint) -> None:
        """Collect the outcomes and releases of this rank's engine."""
        for outcome in endpoint.finished():
            key = side, index, outcome.room
            assert key not in self.outcomes, f"a second outcome: {outcome} on {side}{index}"
            self.outcomes[key] = outcome
        for room in endpoint.released():
            self.releases[side, index, room] += 1
            assert self.releases[side, index, room] == 1, f"{room} was released twice on {side}{index}"

    def settle(self, looks: int = 20) -> None:
        """Turn until nothing has moved at so many looks in a row, and frames that were sent have arrived.

        Sockets deliver in a thread of their own, which a busy machine may keep waiting.  An endpoint that is gone takes
        its counts with it, so frames are not waited for without end.
        """
        still, deadline = 0, time.monotonic() + SETTLED_S
        late = LATE if self.endpoints == self._first else LOST
        while still < looks * (late if self.under_way() else 1) and time.monotonic() < deadline:
            still = 0 if self.turn() else still + 1
            time.sleep(LOOK_S)

    def under_way(self) -> bool:
        """Whether frames were sent that have not been received, or never will be since an endpoint is gone."""
        counts = [inside(endpoint).loop.control.counts for endpoint in self.endpoints]
        return sum(each.sent for each in counts) != sum(each.received for each in counts)

    def pump(self, done: Callable[[], bool], seconds: float = 10.0) -> None:
        """Turn until `done`; AssertionError with what every room waits for after so many (real) seconds."""
        deadline = time.monotonic() + seconds
        while not done():
            if not self.turn():
                time.sleep(TICK_S)
            assert time.monotonic() < deadline, "\n".join(["not done:", *self.explain(), *self.leaks()])

    def explain(self) -> list[str]:
        """Return the waits of every room on every rank."""
        names = [(f"{type(each).__name__} {inside(each).rank.index}", each) for each in self.endpoints]
        return [f"{name}: {each.explain(room)}" for name, each in names for room in self.tables]

    def start(self) -> None:
        """Every loop on a thread of its own; afterwards only `collect` and the engine's calls."""
        for endpoint in self.endpoints:
            endpoint.start()

    # ------------------------------------------------------------------------------------------- rooms
    def name(self, tokens: int, *, prefix: int = 0, gen: int = 0, room_id: int | None = None) -> Room:
        """A room with pages on both sides; nobody has opened it."""
        self._next += room_id is None
        room = Room(self._next - 1 if room_id is None else room_id, gen)
        sizes = self.plan.prefill.page_size, self.plan.decode.page_size
        ours, theirs = ([self.free.pop() for _ in range(-(-tokens // size))] for size in sizes)
        self.tables[room] = ours, theirs, tokens, prefix
        return room

    def open(self, tokens: int, *, prefix: int = 0, gen: int = 0, room_id: int | None = None) -> Room:
        """A room that every engine has opened, and whose forward is scheduled."""
        room = self.name(tokens, prefix=prefix, gen=gen, room_id=room_id)
        self.open_decode(room)
        self.open_prefill(room)
        return room

    def open_prefill(self, room: Room, ranks: list[int] | None = None) -> None:
        """These prefill engines (all) open the room and schedule it."""
        ours, _, tokens, _ = self.tables[room]
        for endpoint in self.prefills if ranks is None else [self.prefills[i] for i in ranks]:
            endpoint.open(room, tokens, ours, group=self.numbers[1])
            endpoint.prefetch(room)

    def open_decode(self, room: Room, ranks: list[int] | None = None) -> None:
        """These decode engines (all) open the room."""
        _, theirs, tokens, prefix = self.tables[room]
        for endpoint in self.decodes if ranks is None else [self.decodes[i] for i in ranks]:
            endpoint.open(room, tokens, theirs, prefix=prefix, group=self.numbers[0])

    def produce(self, room: Room, tokens: int | None = None, *, aux: bytes | None = b"aux") -> None:
        """Every prefill engine has computed so many tokens (all), and gives the aux row."""
        for endpoint in self.prefills:
            endpoint.produced(room, self.tables[room][2] if tokens is None else tokens)
            if aux is not None:
                endpoint.aux(room, aux)

    def over(self, *rooms: Room) -> bool:
        """Every endpoint that knows these rooms has told its engine the outcome and the release."""
        names = [("P", i) for i in range(len(self.prefills))] + [("D", i) for i in range(len(self.decodes))]
        return all((*name, room) in self.outcomes and self.releases[*name, room] for name in names for room in rooms)

    def finish(self, *rooms: Room, seconds: float = 10.0) -> None:
        """Produce all of these rooms and pump until they are over."""
        for room in rooms:
            self.produce(room)
        self.pump(lambda: self.over(*rooms), seconds)

    def causes(self, room: Room) -> set[Cause]:
        """How the room ended, over all ranks that have told."""
        return {outcome.cause for (_, _, name), outcome in self.outcomes.items() if name == room}

    # --------------------------------------------------------------------------------------- judgement
    def check(self, *rooms: Room) -> None:
        """The KV of these rooms is in the decode pages bit for bit, and no other byte of any pool has changed."""
        layout, whole = self.plan.decode, noise(whole_model(self.plan.prefill), 0, self.pages, self.seeds[0])
        for endpoint, before in zip(self.decodes, self.before, strict=True):
            index = inside(endpoint).rank.index
            (head, heads), (layer, layers) = layout.heads_of(index), layout.layers_of(index)
            every = list(range(self.pages))
            wanted, have = tokens_of(before, every), tokens_of(endpoint.pool, every)
            for room in rooms:
                ours, theirs, tokens, prefix = self.tables[room]
                source = tokens_of(whole, ours)
                own = [*range(layer, layer + layers)]
                own += [self.plan.prefill.layers + at for at in own] if layout.v_dim else []
                for target, at in zip(wanted, own, strict=True):
                    size = layout.page_size
                    rows = [theirs[t // size] * size + t % size for t in range(tokens)]
                    target[rows[prefix:]] = source[at][prefix:tokens, head : head + heads]
            for at, (want, found) in enumerate(zip(wanted, have, strict=True)):
                assert torch.equal(want, found), f"decode rank {index}, tensor {at} differs"

    def rest(self) -> None:
        """Pump until nothing is left of rooms that are over: the last confirmations have arrived."""
        self.pump(lambda: not self.leaks())

    def leaks(self) -> list[str]:
        """Return the remains of rooms that are over, on any rank; empty when there are none."""
        return [text for endpoint in self.endpoints for text in left_over(endpoint)]

    def close(self) -> None:
        """End every endpoint: decode ranks first, for a prefill rank waits for answers to its goodbyes."""
        for endpoint in reversed(self.endpoints):
            endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
