"""Player: the engine's side of an endpoint, as far as prefill and decode ranks share it.

The endpoint's loop runs on its own thread (`started`), because a rank is away for long in forwards and in collectives,
and a rank that does not answer for some seconds is taken for lost. The main thread here is the engine: it calls, and
between its own work it looks what has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.kernels.differing import Place
from kvproto.io.transports.base import Transport
from kvproto.lab.demo.caches_job import CachesJob
from kvproto.lab.demo.caches_rank import CachesRank
from kvproto.lab.demo.job import Side
from kvproto.lab.demo.pass_counts import PassCounts
from kvproto.lab.demo.placement import device_of
from kvproto.lab.demo.rank import DemoRank
from kvproto.lab.demo.run import Route, Run
from kvproto.lab.process_group import ParentPipe
from kvproto.protocol import effects as do
from kvproto.protocol.events import room_of
from kvproto.room import Outcome, Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.pools import left_over
from kvproto.verify.trace.judged import breaches

TICK_S = 0.001  # how often a rank that only waits looks at its endpoint
SETTLE_S = 5.0  # how long a rank may hold something of rooms that are released
LOOPBACK = "127.0.0.1"
AnyRank = DemoRank | CachesRank


def make_transport(run: Run) -> Transport:
    """The transport of this process; what it moves stays on this host."""
    if run.transport == "mooncake":
        from kvproto.io.transports.mooncake import MooncakeTransport

        return MooncakeTransport(LOOPBACK)
    from kvproto.io.transports.nixl import NixlTransport

    return NixlTransport(maps=run.maps)


def rank_of(run: Run, side: Side, rank: int, directory: Path) -> AnyRank:
    """Make a rank of the run's model, without its endpoint."""
    if isinstance(run.job, CachesJob):
        return CachesRank(run.job, side, rank, directory)
    return DemoRank(run.job, side, rank, directory, device_of(run.device, side, rank))


def make_endpoint(kind: type[PrefillEndpoint | DecodeEndpoint], me: AnyRank, run: Run, route: Route) -> Any:
    """Make the rank's endpoint for one pass."""
    return kind(
        me.layout, me.rank, me.kv_pool(), make_transport(run), chunk_tokens=run.chunk_tokens,
        settings=run.settings(route, me.layout.slot_bytes(me.rank, run.chunk_tokens)),
        keys=run.keys, staging=run.staging, digests=run.digests,
    )  # fmt: skip


def wait_until(
    done: Callable[[], bool], what: str, limit_s: float, explain: Callable[[], Iterable[str]],
    step: Callable[[], object] = lambda: None,
) -> None:  # fmt: skip
    """Look every tick until `done()`; TimeoutError says what is waited for."""
    limit = time.monotonic() + limit_s
    while True:
        step()
        if done():
            return
        if time.monotonic() > limit:
            raise TimeoutError("\n".join([f"not {what} within {limit_s:g} s", *explain()]))
        time.sleep(TICK_S)


def settle(endpoint: Endpoint, step: Callable[[], object] = lambda: None) -> list[str]:
    """Wait for a time until an endpoint holds nothing of its rooms; return what it still holds."""
    until = time.monotonic() + SETTLE_S
    while left_over(endpoint) and time.monotonic() < until:
        step()
        time.sleep(TICK_S)
    return left_over(endpoint)


def complaints(endpoint: Endpoint) -> list[str]:
    """Return what the endpoint, its loop and the judge of its steps found wrong."""
    counts = [f"{text} ({count})" for text, count in inside(endpoint).loop.counts.items()]
    return [*counts, *breaches(inside(endpoint).rank), *endpoint.reports()]


class Player:
    """The common part of both sides: rooms by name, outcomes, releases, and the final report."""

    def __init__(self, line: ParentPipe, run: Run, me: AnyRank, endpoint: Endpoint, gen: int) -> None:
        self.line, self.run, self.me, self.endpoint, self.gen = line, run, me, endpoint, gen
        self.outcomes: dict[int, Outcome] = {}
        self.released: set[int] = set()
        self.began = self.ended = time.monotonic()
        self.linked_s = self.computed_s = self.warmed_s = 0.0
        self.digests: dict[int, dict[Place, int]] = {}
        names = "begun", "computed", "landed", "asked", "said"
        self.marks: dict[str, dict[int, float]] = {name: {} for name in names}
        self._mark_outcomes()

    def mark(self, what: str, room: int) -> None:
        self.marks[what][room] = time.monotonic()

    def _mark_outcomes(self) -> None:
        """When a room is over is written down by the loop: the engine may be busy then, and see it later."""
        handlers = inside(self.endpoint).loop.handlers
        announce = handlers[do.AnnounceOutcome]

        def announced(effect: do.AnnounceOutcome) -> None:
            room = room_of(effect.room)[0]
            self.marks["landed"].setdefault(room, time.monotonic())
            announce(effect)
            if self.run.digests and not effect.cause:
                self.digests[room] = self.endpoint.digests(self.name(room))

        handlers[do.AnnounceOutcome] = announced

    def name(self, room: int) -> Room:
        return Room(room, self.gen)

    def take(self) -> list[Outcome]:
        """Outcomes that are new, told to the parent; releases are noted.

        Releases are taken first: the loop goes on meanwhile, and none may be seen before its outcome.
        """
        released = self.endpoint.released()
        fresh = self.endpoint.finished()
        for outcome in fresh:
            self.outcomes[outcome.room.id] = outcome
            self.line.tell("outcome", (outcome.room.id, outcome.cause.name))
            self.ended = max(self.ended, self.marks["landed"][outcome.room.id])
        self.released.update(room.id for room in released)
        return fresh

    def until(self, done: Callable[[], bool], what: str, step: Callable[[], object] = lambda: None) -> None:
        """Look every tick until `done()`; TimeoutError says what each room waits for."""
        names = [self.name(each.room) for each in self.run.job.rooms]
        wait_until(done, what, self.run.limit_s, lambda: map(self.endpoint.explain, names), step)

    def finished(self) -> bool:
        return len(self.outcomes) == len(self.run.job.rooms)

    def all_released(self) -> bool:
        return len(self.released) == len(self.run.job.rooms)

    def warm_up(self, carry: Callable[[], None]) -> None:
        """Release the rooms that are not timed, and wait for all ranks to do so; then the clock runs."""
        start = time.monotonic()
        carry()
        self.warmed_s = time.monotonic() - start
        self.line.tell("warm")
        self.line.hear("start")
        self.began = time.monotonic()

    def report(self, counts: dict[str, int], route: Route) -> None:
        """Tell the parent what there is to say of this pass; write the trace if one is wanted."""
        ep = self.endpoint
        if self.run.trace is not None:
            ep.save_trace(Path(self.run.trace) / f"{route}-{self.me.side[0].upper()}{self.me.rank}.jsonl")
        held = settle(ep)
        self.line.tell(
            "tally",
            PassCounts(
                {k: v for k, v in counts.items() if v}, self.linked_s, self.began, self.ended, self.computed_s,
                held, complaints(ep),
                self.me.intruded(), self.marks, self.warmed_s,
                self.digests,
            ),
        )  # fmt: skip


def written(me: AnyRank) -> Any:
    """The event after which what was stored until now is in the pages; None on the CPU, where it is there."""
    if not me.on_gpu:
        return None
    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


@contextmanager
def started(endpoint: Endpoint) -> Iterator[None]:
    """The endpoint on its own thread; closed on leaving."""
    endpoint.start()
    try:
        yield
    finally:
        endpoint.close()
