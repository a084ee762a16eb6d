"""One replay of a request trace in simulated time, and what came of it.

Three *ways* carry the same requests: the protocol with `prefetch` (the engines tell it when a forward is scheduled),
the protocol without, and every part page by page. Their figures stand side by side, because only what differs between
them is the protocol's doing: queues for forwards and for pages at decode are the same in all three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from random import Random
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from kvproto.fsm.timer_wheel import INFINITY
from kvproto.lab.bench.request_traces import TracedRequest
from kvproto.lab.bench.trace_engines import DecodeInstance, EngineModel, PrefillInstance, Replayed
from kvproto.layout.sharding import Layout
from kvproto.protocol.timing import Timing
from kvproto.settings import Route, Settings
from kvproto.verify.sim.member import FaultChances
from kvproto.verify.sim.timed import TimedWorld

Way = Literal["prefetch", "no prefetch", "pages"]
WAYS: Final[tuple[Way, ...]] = ("prefetch", "no prefetch", "pages")
#: percentiles that are told
PARTS: Final = (50, 90, 99)
#: steps of the agenda between two looks at the clock on the wall
LOOK: Final = 4096
#: simulated seconds for which nothing may end before a replay is given up: longer than any timer of a room
STILL: Final = 3600.0
#: simulated seconds after the last release, before anything that is left counts as left over
CALM: Final = 3.0
#: seconds that a message is under way
LATENCY: Final = 100e-6


class Fleet(msgspec.Struct, frozen=True):
    prefill: int = 1
    decode: int = 1
    prefill_tp: int = 4
    decode_tp: int = 2
    layers: int = 80
    heads: int = 8
    dim: int = 128
    page: int = 16
    #: tokens of a chunk
    chunk_tokens: int = 512
    ring: int = 1 << 30
    slots: int = 4
    window: int = 4
    route: Route = "cost"
    #: what a link costs (`kvproto.layout.costs`)
    link: str = "rdma"
    #: seconds between two heartbeats of a link: with 10,000 links and one a second, beats are most of the work
    beat: float = 1.0
    closed: bool = False
    loss: float = 0.0
    failed_writes: float = 0.0
    aborts: float = 0.0
    seed: int = 1
    engines: EngineModel = EngineModel()

    def layout(self, tp: int) -> Layout:
        """Return the layout of an instance of so many ranks.  Raises `LayoutError`."""
        return Layout(
            layers=self.layers, heads=self.heads, k_dim=self.dim, v_dim=self.dim, itemsize=2, dtype="bfloat16",
            page_size=self.page, tp=tp,
        )  # fmt: skip

    def way(self, way: Way) -> Fleet:
        engines = replace(self.engines, prefetch=way == "prefetch")
        return replace(self, engines=engines, route="pages" if way == "pages" else self.route)


class TraceReplay:
    """A fleet, and the requests that it is given."""

    def __init__(self, fleet: Fleet) -> None:
        """Start every instance, and wait until all links are up."""
        self.fleet = fleet
        timing = replace(Timing(), heartbeat=replace(Timing().heartbeat, period=fleet.beat))
        settings = Settings(
            timing=timing, ring_bytes=fleet.ring, slots=fleet.slots, window=fleet.window, route=fleet.route,
            costs=fleet.link, trace=0,
            links=max(fleet.prefill * fleet.prefill_tp, fleet.decode * fleet.decode_tp),
        )  # fmt: skip
        self.world = TimedWorld(
            fleet.seed, fleet.layout(fleet.prefill_tp), fleet.layout(fleet.decode_tp), chunk_tokens=fleet.chunk_tokens,
            settings=settings, closed=fleet.closed or fleet.route == "staged", latency=LATENCY,
            chances=FaultChances(),
        )  # fmt: skip
        self.live: dict[int, Replayed] = {}
        about = fleet.engines, self.live
        self.prefill = [PrefillInstance(self.world, number, *about) for number in range(fleet.prefill)]
        self.decode = [DecodeInstance(self.world, number, *about) for number in range(fleet.decode)]
        for instance in (*self.prefill, *self.decode):
            self.world.add(instance)
        self.world.connect()
        self.world.chances = FaultChances(lose=fleet.loss, write_fails=fleet.failed_writes)
        self.begun = self.world.now
        self.replayed: list[Replayed] = []
        self._random = Random(fleet.seed)
        self._todo: Iterator[TracedRequest] = iter(())
        #: whether requests have yet to arrive
        self.more = False
        #: when a request was last settled, and how many were then
        self._moved = self.begun, 0

    @property
    def settled(self) -> int:
        """Return how many requests are over, released and forgotten."""
        return len(self.replayed) - len(self.live)

    def run(self, requests: Iterable[TracedRequest], go_on: Callable[[], bool]) -> None:
        """Replay all requests, or as many as settle while `go_on`, which is asked now and then."""
        self._todo = iter(requests)
        self._schedule()
        self.world.run(lambda: self._done(go_on))
        if not self.live and not self.more:  # peers that fail a room exchange a few messages after its release
            end = self.world.now + CALM
            self.world.run(lambda: self.world.now > end)

    def _done(self, go_on: Callable[[], bool]) -> bool:
        if self.world.steps % LOOK:
            return not self.live and not self.more
        if self.settled != self._moved[1]:
            self._moved = self.world.now, self.settled
        return self.world.now - self._moved[0] > STILL or not go_on()

    def _schedule(self) -> None:
        traced = next(self._todo, None)
        self.more = traced is not None
        if traced is not None:
            self.world.at(self.begun + traced.arrival, self._arrive, traced)

    def _arrive(self, traced: TracedRequest) -> None:
        prefill = min(self.prefill, key=attrgetter("backlog"))
        decode = min(self.decode, key=attrgetter("load"))
        request = Replayed(len(self.replayed) + 1, traced, self.world.now, prefill, decode)
        self.live[request.number] = request
        self.replayed.append(request)
        decode.open(request)
        prefill.open(request)
        if self._random.random() < self.fleet.aborts:
            until_computed = prefill.backlog / self.fleet.engines.speed
            self.world.at(self.world.now + self._random.uniform(0, 2 * until_computed), decode.abort, request)
        self._schedule()


def figures(replay: TraceReplay) -> dict[str, Any]:
    """Say what came of a replay: requests by outcome, throughput, fallbacks, and latencies in seconds."""
    world, over = replay.world, [request for request in replay.replayed if request.over < INFINITY]
    well = [request for request in over if not request.cause]
    failed = Counter(request.cause.name for request in over if request.cause and not request.aborted)
    seconds = max((request.over for request in over), default=replay.begun) - replay.begun
    fallbacks = sum(sum(node.rank.entered.values()) for node in world.nodes.values())
    return {
        "requests": len(replay.replayed), "well": len(well),
        "aborted": sum(request.aborted and request.cause > 0 for request in over),
        "failed": dict(failed), "unsettled": len(replay.live), "cut": replay.more,
        "seconds": seconds, "requests_a_second": len(well) / max(seconds, 1e-9),
        "gbs": world.counts["bytes"] / 1e9 / max(seconds, 1e-9),
        "parts_staged": world.counts["parts staged"], "parts_over_pages": world.counts["parts over pages"],
        "deferrals": world.counts["StagingQueued"], "fallbacks": fallbacks,
        "failed_writes": world.counts["writes that failed"], "messages_lost": world.counts["messages lost"],
        "transfer": spread([request.over - max(request.produced, request.admitted) for request in well]),
        "ttft": spread([request.over - request.arrived for request in well]),
        "left": world.idle() if not replay.live else [], "steps": world.steps,
    }  # fmt: skip


def spread(values: list[float]) -> dict[str, float]:
    """Return percentiles and the largest of these values; nothing of none."""
    values.sort()
    found = {f"p{part}": values[-(-len(values) * part // 100) - 1] for part in PARTS} if values else {}
    return found | ({"max": values[-1]} if values else {})
