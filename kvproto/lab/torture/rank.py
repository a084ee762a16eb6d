"""Rank: the process of one rank, with an endpoint polled between acts, and the line to the parent.

What the parent says: `open` rooms; `connect` to prefill groups; `links`, `holdings`, `weigh`, `explain`: questions;
`jump`: the clock; `save` the trace; `close`. What it hears: `told`, `wrong`, answers, and `late`: this process was kept
from running.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvproto.endpoint.decode_endpoint import STALL_S, DecodeEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.clock import MonotonicClock, SteadyClock
from kvproto.io.transports.base import Transport
from kvproto.lab.process_group import ParentPipe
from kvproto.lab.torture.engine import TortureEngine
from kvproto.lab.torture.fleet import CHUNK_TOKENS, DECODE, GROUP_OF, LATE_S, PREFILL, Carrier
from kvproto.lab.torture.kernels import TroubledKernels
from kvproto.lab.torture.memory import RankMemory
from kvproto.lab.torture.plan import TorturePlan, TortureRoom
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.holdings import holdings, resident
from kvproto.verify.trace.judged import monitor

NAP_S = 0.003
LONGEST_ROOM = 224


class SkewedTime:
    """Seconds of a clock with an origin and a rate of its own, that can jump ahead."""

    def __init__(self, origin: float, rate: float) -> None:
        self.origin, self.rate = origin, rate

    def __call__(self) -> float:
        return self.origin + self.rate * time.monotonic()


def ucx_over_tcp() -> str:
    """The value of UCX_TLS for writes over TCP alone, as between hosts."""
    # Where there are GPUs, NIXL refuses to start without cuda_copy; elsewhere UCX warns of it.
    return "tcp,cuda_copy" if Path("/dev/nvidiactl").exists() else "tcp"


def make_transport(carrier: Carrier) -> Transport:
    """As between hosts (TCP), or as within one (shared memory)."""
    if carrier == "mooncake":
        from kvproto.io.transports.mooncake import MooncakeTransport

        return MooncakeTransport("127.0.0.1")
    os.environ["UCX_NET_DEVICES"] = "lo"
    if carrier == "nixl-tcp":
        os.environ["UCX_TLS"] = ucx_over_tcp()
    from kvproto.io.transports.nixl import NixlTransport

    return NixlTransport()


class JudgedRank:
    """A rank that does what the parent says, and whose every step is judged; `endpoint` is what it serves."""

    endpoint: Endpoint

    def __init__(self, line: ParentPipe, name: str) -> None:
        self.line, self.name, self.over = line, name, False
        self.broken: list[str] = []
        self.monitor = monitor(self.broken.append)

    def make(self, *args: Any, decodes: bool, **named: Any) -> None:
        """Make the endpoint, whose steps are judged from then on."""
        kind: Callable[..., Any] = DecodeEndpoint if decodes else PrefillEndpoint
        with self.monitor.installed():
            self.endpoint = kind(*args, chunk_tokens=CHUNK_TOKENS, **named)
        self.monitor.start()

    def serve(self) -> None:
        """Until the parent has had enough, or kills this process."""
        self.line.tell("here", getattr(self.endpoint, "address", ""))
        last = time.monotonic()
        while not self.over:
            moved = self.endpoint.poll()
            self.work()
            if self.line.waiting():
                kind, data = self.line.listen()
                getattr(self, f"_{kind}")(*data)
            elif not moved:
                self.endpoint.wait(NAP_S)
            now = time.monotonic()
            if now - last > LATE_S:
                self.line.tell("late", (last, now))
            last = now
        self.endpoint.close()

    def work(self) -> None:
        """Do the engine's part of a pass, and tell what is new."""
        while self.broken:
            self.line.tell("broken", self.broken.pop(0))

    def _explain(self, rooms: list[Room]) -> None:
        self.line.tell("explain", [self.endpoint.explain(room) for room in rooms])

    def _save(self, directory: str) -> None:
        self.endpoint.save_trace(Path(directory) / f"{self.name}.jsonl")
        self.line.tell("saved", self.name)

    def _close(self) -> None:
        self.over = True


class TortureRank(JudgedRank):
    """Rank `name` in its `life`-th life."""

    def __init__(self, line: ParentPipe, plan: TorturePlan, name: str, life: int, carrier: Carrier) -> None:
        super().__init__(line, name)
        self.plan = plan
        (group, index), layout = GROUP_OF[name], plan.fleet.layout(GROUP_OF[name][0])
        self.time = SkewedTime(*plan.fleet.clocks[name])
        tokens = (2 * plan.size.at_once + 4) * LONGEST_ROOM
        self.memory = RankMemory(layout, index, tokens, (plan.seed * 64 + group * 2 + index) * 64 + life)
        self.kernels = TroubledKernels(self._room_at)
        self.make(
            layout, index, self.memory.pool, make_transport(carrier), decodes=group in DECODE, group=group,
            kernels=self.kernels, settings=plan.fleet.settings(name),
            clock=SteadyClock(STALL_S, self.time) if group in DECODE else MonotonicClock(self.time),
        )  # fmt: skip
        self.engine = TortureEngine(plan, (group, index), self.endpoint, self.memory)

    def _room_at(self, page: int) -> TortureRoom:
        return self.plan.room(self.memory.owner(page))

    def work(self) -> None:
        """Let what is due happen, and tell what came of it."""
        self.kernels.tick()
        self.engine.step()
        self.engine.collect()
        self._tell()
        super().work()

    def _tell(self) -> None:
        engine = self.engine
        if engine.told or engine.released or engine.owned:
            self.line.tell("told", (engine.told, engine.released, engine.owned))
            engine.told, engine.released, engine.owned = [], [], []
        if engine.wrong:
            self.line.tell("wrong", engine.wrong)
            engine.wrong = []

    # ------------------------------------------------------------------------------- what the parent says
    def _open(self, numbers: list[int]) -> None:
        for number in numbers:
            self.engine.enter(number)

    def _connect(self, addresses: dict[int, list[str]]) -> None:
        assert isinstance(self.endpoint, DecodeEndpoint)
        for group in PREFILL:
            self.endpoint.connect(self.plan.fleet.layout(group), addresses[group], group=group)

    def _links(self) -> None:
        """By (group, rank) of the other end: the epoch of each link that is up."""
        rank = inside(self.endpoint).rank
        up = [(rank.peers[link], value) for link, value in rank.links.items() if value.state is rank.UP]
        self.line.tell("links", {(peer.group, peer.rank): value.epoch for peer, value in up})

    def _holdings(self) -> None:
        self.engine.look()
        self.monitor.rest()
        self._tell()
        super().work()
        faults = [text for text in self.endpoint.reports() if "the copy failed" not in text]
        counts = {**self.endpoint.metrics(), "troubled kernels": self.kernels.hit, "judged": self.monitor.steps}
        self.line.tell("holdings", (holdings(self.endpoint), resident(), counts, faults))

    def _weigh(self) -> None:
        self.line.tell("weighed", resident() / (1 << 20))

    def _jump(self, seconds: float) -> None:
        self.time.origin += seconds


def log_nothing() -> None:
    """Silence the log: rooms that fail are the rule here, and what is wrong, the parent says."""
    log = logging.getLogger("kvproto")
    log.addHandler(logging.NullHandler())
    log.propagate = False


def program(line: ParentPipe, plan: TorturePlan, name: str, life: int, carrier: Carrier) -> None:
    log_nothing()
    TortureRank(line, plan, name, life, carrier).serve()
