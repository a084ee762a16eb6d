"""Trace engines: models of chunked prefill, decode admission, prefix caches, and a router before them.

*Prefill.* One forward at a time, with a budget of tokens that requests share in the order in which they came; it takes
a fixed time and a time a token. Blocks of a prefix that the instance has computed before cost no time. *Decode.* A
request is admitted, first come first served, when there is room for its prompt and output; until then it is announced,
and renewed. It decodes for a fixed time a token. *Router.* A request goes to the prefill instance with the fewest
tokens to compute and the decode instance with the fewest tokens held. `prefetch`: a step is scheduled, so grants are
worth asking for.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from kvproto.fsm.timer_wheel import INFINITY
from kvproto.lab.bench.request_traces import BLOCK, TracedRequest
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import Cause
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.sim.member import Side
from kvproto.verify.sim.timed import TimedInstance, TimedRank, TimedWorld

#: seconds after which an engine that waits for pages says so again
RENEW = 10.0


class EngineModel(msgspec.Struct, frozen=True):
    """The speed of the engines of both sides."""

    #: tokens that a prefill instance computes a second, tokens of one step, and seconds that any step takes
    speed: float = 16_000.0
    chunk: int = 8192
    step: float = 0.005
    #: seconds a token of the output
    token: float = 0.025
    #: tokens that a decode instance has pages for
    capacity: int = 2_000_000
    #: blocks of prefixes that an instance keeps
    prefill_blocks: int = 4000
    decode_blocks: int = 4000
    #: whether prefill engines prefetch
    prefetch: bool = True


class Replayed(msgspec.Struct):
    """One request and its times, in seconds of the replay; infinity: it has not come to that."""

    number: int
    traced: TracedRequest
    arrived: float
    prefill: PrefillInstance
    decode: DecodeInstance
    #: tokens computed (-1: it was in no step), and tokens that decode has without a transfer
    done: int = -1
    prefix: int = 0
    #: when it had pages at decode, when its KV was computed, and when decode had all of it
    admitted: float = INFINITY
    produced: float = INFINITY
    over: float = INFINITY
    cause: Cause = Cause.NONE
    aborted: bool = False
    #: decode ranks that have an outcome, ranks of both sides that have released it
    ended: int = 0
    released: int = 0
    #: it holds pages of the decode instance, or waits for them
    holds: bool = True

    @property
    def tokens(self) -> int:
        return self.traced.tokens

    @property
    def size(self) -> int:
        """Return the tokens that decode needs pages for: prompt and output."""
        return self.traced.tokens + self.traced.output


class PrefixCache:
    """Blocks of prefixes, the least recently used of which go first."""

    def __init__(self, most: int) -> None:
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._most = most

    def hit(self, blocks: Iterable[int]) -> int:
        """Return how many tokens of these blocks are there, counted from the first."""
        found = 0
        for block in blocks:
            if block not in self._kept:
                break
            self._kept.move_to_end(block)
            found += BLOCK
        return found

    def keep(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._kept[block] = None
            self._kept.move_to_end(block)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


class Instance(TimedInstance):
    """The common part of both sides' instances."""

    def __init__(self, world: TimedWorld, number: int, model: EngineModel, live: dict[int, Replayed]) -> None:
        """`live`: the requests that are not settled, by number, for all instances."""
        super().__init__(world, number)
        self.model, self.live = model, live

    def tell_open(self, request: Replayed, event: ev.RoomEvent) -> None:
        for node in self.ranks:
            if request.number in node.opened and request.number not in node.outcomes:
                self.world.tell(node, event)

    def heard_release(self, rank: TimedRank, room: int) -> None:
        request = self.live[room]
        request.released += 1
        self.settle(request)

    def settle(self, request: Replayed) -> None:
        """Forget a request that is over, holds nothing, and was released by every rank."""
        ranks = len(request.prefill.ranks) + len(request.decode.ranks)
        if request.released == ranks and not request.holds:
            self.world.forget(request.number, request.prefill, request.decode)
            del self.live[request.number]


class PrefillInstance(Instance):
    """A prefill engine: one queue, one forward at a time."""

    side: ClassVar[Side] = "P"

    def __init__(self, world: TimedWorld, number: int, model: EngineModel, live: dict[int, Replayed]) -> None:
        super().__init__(world, number, model, live)
        self.cache = PrefixCache(model.prefill_blocks)
        self.queue: deque[Replayed] = deque()
        #: tokens in the queue that are not computed
        self.backlog = 0
        self._busy = False

    def open(self, request: Replayed) -> None:
        """Open a request's room on every rank, and queue it for a forward."""
        for node in self.ranks:
            assert isinstance(node.rank, PrefillRank)
            node.opened.add(request.number)
            claim = node.rank.claim(request.decode.group, b"")
            self.world.tell(node, ev.EngineOpened(request.number, request.tokens, claim))
        self.queue.append(request)
        self.backlog += request.tokens
        self._forward()

    def _forward(self) -> None:
        """Begin a step, if none runs and something is queued."""
        if self._busy or not (step := self._next_step()):
            return
        self._busy = True
        if self.model.prefetch:
            for request, _ in step:
                self.tell_open(request, ev.ForwardScheduled(request.number))
        computed = sum(upto - request.done for request, upto in step)
        self.world.at(self.world.now + self.model.step + computed / self.model.speed, self._computed, step)

    def _next_step(self) -> list[tuple[Replayed, int]]:
        """Choose the requests of the next step, each with the tokens that it will have computed then."""
        budget, step = self.model.chunk, list[tuple[Replayed, int]]()
        while self.queue and budget:
            request = self.queue[0]
            if not request.cause:
                if request.done < 0:
                    request.done = min(self.cache.hit(request.traced.blocks), request.tokens - 1)
                    self.backlog -= request.done
                upto = min(request.tokens, request.done + budget)
                budget -= upto - request.done
                step.append((request, upto))
                if upto < request.tokens:
                    break
            else:
                self.backlog -= request.tokens - max(0, request.done)
            self.queue.popleft()
        return step

    def _computed(self, step: list[tuple[Replayed, int]]) -> None:
        self._busy = False
        for request, upto in step:
            self.backlog -= upto - request.done
            request.done = upto
            if upto == request.tokens:
                request.produced = self.world.now
                self.cache.keep(request.traced.blocks)
            self.tell_open(request, ev.TokensProduced(request.number, upto))
            if upto == request.tokens:
                self.tell_open(request, ev.AuxProvided(request.number))
        self._forward()

    def heard_outcome(self, rank: TimedRank, news: do.AnnounceOutcome) -> None:
        """Take a rank's outcome of a room: no step computes more of one that has failed."""
        if news.cause:
            self.live[news.room].cause = news.cause


class DecodeInstance(Instance):
    """A decode engine: pages for so many tokens, and a queue of requests that it has no pages for yet."""

    side: ClassVar[Side] = "D"

    def __init__(self, world: TimedWorld, number: int, model: EngineModel, live: dict[int, Replayed]) -> None:
        super().__init__(world, number, model, live)
        self.cache = PrefixCache(model.decode_blocks)
        self.waiting: deque[Replayed] = deque()
        #: tokens of the requests that have pages, and of those that wait for some, too
        self.held = self.load = 0

    def open(self, request: Replayed) -> None:
        """Announce a request on every rank, and admit it if there are pages."""
        self.load += request.size
        for node in self.ranks:
            node.opened.add(request.number)
        self.waiting.append(request)
        self._admit()
        if request.admitted > self.world.now:
            for node in self.ranks:
                self.world.tell(node, ev.RoomAnnounced(request.number, self._terms(node, request), request.tokens))
            self.world.at(self.world.now + RENEW, self._renew, request)

    def abort(self, request: Replayed) -> None:
        if request.over == INFINITY and request.number in self.live:
            request.aborted = True
            self.tell_open(request, ev.EngineAborted(request.number, Cause.DECODE_ABORTED))

    def _terms(self, node: TimedRank, request: Replayed) -> ev.Terms:
        assert isinstance(node.rank, DecodeRank)
        return node.rank.terms(request.prefill.group, self.world.plan)

    def _admit(self) -> None:
        while self.waiting and self.held + self.waiting[0].size <= max(self.model.capacity, self.waiting[0].size):
            request = self.waiting.popleft()
            self.held += request.size
            request.admitted = self.world.now
            whole = (request.tokens - 1) // BLOCK * BLOCK  # the last token is computed here in any case
            request.prefix = min(self.cache.hit(request.traced.blocks), whole)
            for node in self.ranks:
                if request.number not in node.outcomes:
                    about = self._terms(node, request), request.tokens, request.prefix
                    self.world.tell(node, ev.RoomOpened(request.number, *about))

    def _renew(self, request: Replayed) -> None:
        if request.admitted == request.over == INFINITY:
            self.tell_open(request, ev.RoomRenewed(request.number))
            self.world.at(self.world.now + RENEW, self._renew, request)

    def heard_outcome(self, rank: TimedRank, news: do.AnnounceOutcome) -> None:
        """Take a rank's outcome of a room; the last one ends the request, which is decoded if all succeeded."""
        request = self.live[news.room]
        request.cause = request.cause or news.cause
        request.ended += 1
        if request.ended == len(self.ranks):
            request.over = self.world.now
            if not request.cause:
                self.cache.keep(request.traced.blocks)
            decoding = 0.0 if request.cause else request.traced.output * self.model.token
            self.world.at(self.world.now + decoding, self._decoded, request)

    def _decoded(self, request: Replayed) -> None:
        """Give the pages of a request back, or its place in the queue."""
        if request.admitted == INFINITY:
            self.waiting.remove(request)
        else:
            self.held -= request.size
        self.load -= request.size
        request.holds = False
        self._admit()
        self.settle(request)
