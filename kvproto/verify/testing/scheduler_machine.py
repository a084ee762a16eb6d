"""Scheduler machine: a hypothesis machine around your schedulers, with any schedule of their world.

    class Ours(SchedulerMachine):
        prefill, decode, chunk_tokens, pages = layout_p, layout_d, 64, 40

        def make_prefill(self, endpoint, index):
            return OurPrefillScheduler(endpoint)          # takes an endpoint, and pages of endpoint.pool

        def make_decode(self, endpoint, index):
            return OurDecodeScheduler(endpoint)

    TestOurs = Ours.TestCase

The endpoints, their loops, tables and bytes are the real ones; frames, pieces, copies and time are hypothesis's, with
losses, repetitions, failed writes and silences (`stage_moves`).  A scheduler is stepped by the machine and polls its
endpoint itself, as in its engine; it must not sleep or start threads.  What it asserts of itself (the KV in its pages
when a request runs, for one) is as good as what is looked at here:

* a decode scheduler gives no page to a room while another room that is not released may still be written there
  (pages of a prefix hit may be shared);
* no endpoint is given a call, and no rank an event, that breaks the protocol;
* at the end, when requests come no more and the world is kind, every scheduler is idle, every room that was opened has
  been handed back as released, and nothing is left on any rank.

Needs hypothesis, torch, numpy and pyzmq.
"""

from __future__ import annotations

import sys
from random import Random
from typing import Any, ClassVar, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint_events import EndpointEvent, RoomReleased
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.layout.sharding import Layout
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.stage import LEAP_S, LEAPS, TIMING, EngineStage
from kvproto.verify.testing.stage_moves import ANY, StageMoves

MOST_REQUESTS = 6


class Scheduler(Protocol):
    """The machine's view of a scheduler with an endpoint inside."""

    def arrive(self, request: int, tokens: int) -> None:
        """A request has come: each scheduler hears of it, with the same number."""

    def cancel(self, request: int) -> None:
        """Its client has left; it may be unknown, or over."""

    def step(self) -> bool:
        """One bounded step, with one poll of the endpoint in it; whether anything happened."""

    def idle(self) -> bool:
        """Nothing of any request is left: no pages are taken, and nobody is waited for."""


class SchedulerStage(EngineStage):
    """A stage whose engines are somebody's schedulers; each polls its own endpoint."""

    schedulers: list[Scheduler] | None = None

    def watch(self, schedulers: list[Scheduler]) -> None:
        """Poll these from now on, and record which room of each decode endpoint has which pages."""
        self.schedulers, self.watched.landing = schedulers, None
        self.held: list[dict[Room, set[int]]] = [{} for _ in self.endpoints]
        for index, endpoint in enumerate(self.endpoints):
            self._watch(index, endpoint)

    def _watch(self, index: int, endpoint: Any) -> None:
        held, open_room, released, events = self.held[index], endpoint.open, endpoint.released, endpoint.events

        def opened(room: Room, tokens: int, pages: Any = (), *args: Any, **more: Any) -> Any:
            mine = set[int]()
            if isinstance(endpoint, DecodeEndpoint):
                mine = {int(page) for page in pages[more.get("prefix", 0) // endpoint.pool.page_size :]}
                for other, theirs in held.items():
                    assert not mine & theirs, f"pages {sorted(mine & theirs)} of {other}, not yet released, for {room}"
            answer = open_room(room, tokens, pages, *args, **more)
            held[room] = mine
            return answer

        def handed_back() -> list[Room]:
            rooms: list[Room] = released()
            for room in rooms:
                held.pop(room, None)
            return rooms

        def told() -> list[EndpointEvent]:
            found: list[EndpointEvent] = events()
            for event in found:
                if isinstance(event, RoomReleased):
                    held.pop(event.room, None)
            return found

        endpoint.open, endpoint.released, endpoint.events = opened, handed_back, told

    def poll(self, index: int) -> bool:
        """One step of this endpoint's scheduler."""
        if self.schedulers is None:
            return super().poll(index)
        self.post.settle()
        return self.schedulers[index].step()

    def judge(self) -> None:
        """Require the invariants of ranks; schedulers judge their engines' news themselves."""
        assert self.judges is not None
        self.judges.ranks()

    def drain(self) -> None:
        """No request comes any more, and the world is kind."""
        assert self.schedulers is not None
        for name in list(self.stalled):
            self.fabric.resume(name)
        self.stalled.clear()
        self.post.held.clear()
        for _ in range(LEAPS):
            self.settled()
            self.judge()
            if all(each.idle() for each in self.schedulers) and not self.leaks() and not any(self.held):
                return
            self.clock.advance(LEAP_S)
        busy = [index for index, each in enumerate(self.schedulers) if not each.idle()]
        kept = [f"{room} was never handed back as released" for held in self.held for room in held]
        raise AssertionError("\n".join([f"after {LEAPS * LEAP_S:.0f} s: not idle: {busy}", *kept, *self.leaks()]))


class SchedulerMachine(StageMoves):
    """Requests that come and go, schedulers that step, and everything that may happen to them."""

    prefill: ClassVar[Layout]
    decode: ClassVar[Layout]
    chunk_tokens: ClassVar[int]
    #: of each pool
    pages: ClassVar[int] = 24
    #: tokens of a request, at most
    longest: ClassVar[int] = 40
    settings: ClassVar[Settings] = Settings(timing=TIMING, ring_bytes=1 << 16, slots=2, window=2)
    #: where the stage is looked at, it is one of schedulers
    stage: SchedulerStage
    handled: BaseException | None = None

    def make_prefill(self, endpoint: PrefillEndpoint, index: int) -> Scheduler:
        """The scheduler of this prefill rank."""
        raise NotImplementedError

    def make_decode(self, endpoint: DecodeEndpoint, index: int) -> Scheduler:
        """The scheduler of this decode rank."""
        raise NotImplementedError

    @initialize(piece=st.sampled_from((0, 64)), seed=ANY, tags=st.booleans())
    def begin(self, piece: int, seed: int, *, tags: bool) -> None:
        """Two groups are connected, and their schedulers begin."""
        self.handled, self.requests = sys.exc_info()[1], 0
        self.stage = SchedulerStage(
            self.prefill, self.decode, chunk_tokens=self.chunk_tokens, pages=self.pages, settings=self.settings,
            piece=piece, tags=tags,
            sockets=False,
        )
        self.stage.random = Random(seed)
        self.schedulers: list[Scheduler] = [
            *(self.make_prefill(endpoint, index) for index, endpoint in enumerate(self.stage.prefills)),
            *(self.make_decode(endpoint, index) for index, endpoint in enumerate(self.stage.decodes)),
        ]
        self.stage.watch(self.schedulers)

    @rule(share=st.floats(0.0, 1.0))
    def arrive(self, share: float) -> None:
        """A request comes."""
        if self.requests < MOST_REQUESTS:
            self.requests += 1
            for each in self.schedulers:
                each.arrive(self.requests, 1 + int(share * (self.longest - 1)))

    @rule(request=ANY, who=ANY)
    def cancel(self, request: int, who: int) -> None:
        """A client leaves, and one of the schedulers hears of it."""
        if self.requests:
            self.schedulers[who % len(self.schedulers)].cancel(1 + request % self.requests)

    @invariant()
    def judged(self) -> None:
        """Every invariant of the stage's ranks."""
        if hasattr(self, "stage"):
            self.stage.judge()

    def teardown(self) -> None:
        """Everything comes to its end, unless the example was broken off."""
        if not hasattr(self, "stage"):
            return
        try:
            if sys.exc_info()[1] is self.handled:
                self.stage.drain()
        finally:
            self.stage.close()
