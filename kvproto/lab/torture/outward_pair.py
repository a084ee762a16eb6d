"""Outward pair: endpoints whose outward calls go through an injector, in one of several set-ups.

    staged    rooms through the ring, after an endpoint that cannot be made; then the prefill engine does not poll
    pages     rooms page to page; the decode engine leaves the prefill group and comes back
    mapped    rooms that kernels store into the peer's pages; both engines detach their pools and attach them again
    slow      copies that end a turn later, with digests; the transport loses the peer while a write is in flight
    device    a fake device: copies wait in streams, and small ones are launched together
    threads   each loop on a thread of its own, and a metrics server that asks them
    nixl      NIXL on the CPU's memory; the decode engine leaves and comes back
    peers     two peer endpoints, each on a thread of its own; a room goes the other way, too

Time stands still while anything moves and goes on when nothing does, so a run takes as long as its work does.  With
threads a turn is over when each loop has been woken and has made a whole pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal
from unittest.mock import patch

import msgspec
import torch

from kvproto.data import decode_data, prefill_data
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.group_table import PENDING
from kvproto.endpoint.peer_endpoint import PeerEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.errors import KvprotoError
from kvproto.fsm.timing import Timer
from kvproto.io.kernels.base import Kernels
from kvproto.io.kernels.torch import TorchKernels
from kvproto.io.transports.base import Kind, MemoryRegion, UsageError
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.io.transports.nixl import NixlTransport
from kvproto.lab.torture.outward_calls import Injected, Injector, Spans
from kvproto.layout.sharding import Layout
from kvproto.protocol.timing import Timing
from kvproto.settings import Route, Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.deferred_kernels import DeferredKernels
from kvproto.verify.testing.fake_device import FakeDevice, SlowKernels, SlowStreams
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise, tokens_of, whole_model

MODEL = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
TIMING = Timing(
    resend=Timer(0.25, 8, 1.0), grant_retry=Timer(0.25, 3), call=Timer(0.5, 8), engine=Timer(6.0), bootstrap=Timer(6.0),
    stall=Timer(12.0), lease=Timer(4.0), write=Timer(4.0), kernel=Timer(4.0), connect_timeout=Timer(4.0),
    heartbeat=Timer(1.0, 8), silence=Timer(4.0), forget=Timer(100.0),
)  # fmt: skip
#: turns in which nothing moves before time does, by how much, and how much time a run has
IDLE, STEP_S, LONGEST_S = 8, 0.25, 240.0
#: seconds for which an engine does not poll: longer than the beats that end a link
SILENCE_S = 12.0
#: seconds of real time: between two looks, and until a loop that makes no pass is given up
TICK_S, DEAD_S = 2e-5, 10.0


class Setup(msgspec.Struct, frozen=True):
    """The set-up of a run: how endpoints are made, and the faults beside the rooms."""

    route: Route = "staged"
    backend: Literal["memory", "nixl"] = "memory"
    maps: bool = False
    slow: bool = False
    device: bool = False
    threads: bool = False
    refused: bool = False
    silent: bool = False
    leaves: bool = False
    sleeps: bool = False
    cut: bool = False
    late: bool = False
    peers: bool = False


SETUPS: dict[str, Setup] = {
    "staged": Setup(refused=True, silent=True), "pages": Setup("pages", leaves=True, late=True),
    "mapped": Setup("pages", maps=True, sleeps=True), "slow": Setup(slow=True, cut=True), "device": Setup(device=True),
    "threads": Setup(threads=True), "nixl": Setup(backend="nixl", leaves=True),
    "doors": Setup("pages", backend="nixl"), "peers": Setup(peers=True, threads=True),
}  # fmt: skip


class FullTransport(MemoryTransport):
    """Takes the staging memory, and no more."""

    def register(self, addr: int, nbytes: int, kind: Kind = "DRAM", dev: int = 0) -> MemoryRegion:
        if self.holds:
            raise UsageError("no region is left")
        return super().register(addr, nbytes, kind, dev)

    @property
    def holds(self) -> int:
        return len(self._table.regions())


class InjectedPair(Pair):
    """One prefill and one decode rank whose outward calls go through an injector."""

    def __init__(self, injector: Injector, setup: Setup) -> None:
        self.injector, self.setup = injector, setup
        #: what calls of the engines have raised
        self.raised = list[BaseException]()
        #: what has ended a pass of a loop that the engine polls
        self.ended = list[Exception]()
        self.transports, self.made, self.peers = list[Any](), list[Endpoint](), list[PeerEndpoint]()
        self.copies, self.device = list[DeferredKernels](), FakeDevice()
        settings = Settings(timing=TIMING, ring_bytes=1 << 14, slot_bytes=1 << 12, slots=2, route=setup.route)
        super().__init__(
            MODEL, MODEL, chunk_tokens=8, pages=48, settings=settings, fabric=Fabric(auto=True), ready=False
        )
        if setup.peers:
            self.connect_back()
        if setup.threads:
            self.ask(self.start)

    def parts(self, side: str, transport: Any = None) -> dict[str, Any]:
        nixl, maps = self.setup.backend == "nixl", self.setup.maps
        if transport is None:
            transport = NixlTransport(maps=False) if nixl else MemoryTransport(self.fabric, maps=maps)
            self.transports.append(transport)
        real = {"transport": transport, "kernels": self._kernels(), "clock": self.injector.time}
        made: dict[str, Any] = {part: Injected(self.injector, side, part, each) for part, each in real.items()}
        return made | {"digests": self.setup.slow, "settings": self.settings, "chunk_tokens": 8}

    def _kernels(self) -> Kernels:
        if self.setup.device:
            return SlowKernels(self.device, lambda _: "", lambda *_: None)
        if self.setup.slow:
            self.copies.append(DeferredKernels())
            return self.copies[-1]
        return TorchKernels()

    def _streams(self, module: Any, name: str) -> AbstractContextManager[Any]:
        """Use the fake device's streams for objects made in this block, in a set-up with one."""
        if not self.setup.device:
            return nullcontext()
        return patch.object(module, "DeviceStreams", lambda _: SlowStreams(self.device, name))

    def _dress(self, side: str, made: Any) -> Any:
        self.made.append(made)
        loop, data = inside(made).loop, inside(made).data
        loop.control = Injected(self.injector, side, "control", loop.control)  # type: ignore[assignment]
        data.bell = Injected(self.injector, side, "bell", data.bell)
        made.spans = Injected(self.injector, side, "spans", Spans())
        return made

    def make_prefill(self, index: int) -> PrefillEndpoint:
        if self.setup.peers:
            return self._dress("prefill", self._peer("prefill", 0).prefill)  # type: ignore[no-any-return]
        with self._streams(prefill_data, "P"):
            made = PrefillEndpoint(MODEL, index, self.pool(MODEL, index, 1), **self.parts("prefill"))
        return self._dress("prefill", made)  # type: ignore[no-any-return]

    def make_decode(self, index: int) -> DecodeEndpoint:
        with self._streams(decode_data, "D"):
            made = (
                self._peer("decode", 1).decode if self.setup.peers else
                DecodeEndpoint(MODEL, index, self.pool(MODEL, index, 2), **self.parts("decode"))
            )  # fmt: skip
        groups = made._groups  # noqa: SLF001
        groups._rank = Injected(self.injector, "decode", "ranks", groups._rank)  # type: ignore[assignment] # noqa: SLF001
        return self._dress("decode", made)  # type: ignore[no-any-return]

    def _peer(self, side: str, at: int) -> PeerEndpoint:
        pool = self.pool(MODEL, 0, self.seeds[at])
        made = PeerEndpoint(MODEL, 0, pool, **self.parts(side), group=self.numbers[at])
        self.peers.append(made)
        loop = inside((made.decode, made.prefill)[at]).loop  # the role that is not dressed
        loop.control = Injected(self.injector, side, "control", loop.control)  # type: ignore[assignment]
        return made

    def connect_back(self) -> None:
        """The prefill rank's process calls the other one, which sends KV, too."""
        near, far = self.peers
        self.ask(near.decode.connect, MODEL, [far.address], group=self.numbers[1])

    def refused(self) -> str:
        """Make an endpoint whose memory is not taken; what is wrong with how that ends (empty: nothing)."""
        full, open_ = FullTransport(self.fabric), msgspec.structs.replace(self.settings, route="cost")
        try:
            PrefillEndpoint(MODEL, 0, self.pool(MODEL, 0, 1), **self.parts("refused", full) | {"settings": open_})
        except (UsageError, RuntimeError, KeyboardInterrupt) as error:
            told = str([error, *getattr(error, "__notes__", ())])
        else:
            return "an endpoint was made over a transport that takes no pool"
        struck = self.injector.strike is not None and self.injector.strike.call == "transport.deregister"
        return f"{full.holds} regions stay registered: {told}" if full.holds and not struck else ""

    # ------------------------------------------------------------------------------------------ driving
    def ask(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """An engine's call, whose engine notes what it raises and goes on."""
        try:
            return call(*args, **named)
        except (KvprotoError, RuntimeError, KeyboardInterrupt) as error:
            self.raised.append(error)
            return None

    def collect(self) -> None:
        """Collect outcomes and releases; an engine with a broken loop gets none."""
        for side, endpoint in (("P", self.prefills[0]), ("D", self.decodes[0])):
            self.ask(self.collect_from, side, 0, endpoint)

    def poll(self, endpoint: Endpoint) -> Any:
        """One pass; what ends it is noted, unless it asks the process to end, as `raised`."""
        try:
            return endpoint.poll()
        except KeyboardInterrupt as error:
            self.raised.append(error)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is found
            self.ended.append(error)
        return None

    def turn(self) -> bool:
        """One pass of every loop, and what its engine is told; whether anything happened."""
        for kernels in self.copies:
            while kernels.pending:
                kernels.finish()
        self.device.idle()
        moved = [self._pass(each) if self.setup.threads else self.poll(each) for each in self.endpoints]
        self.collect()
        return any(moved)

    def _pass(self, endpoint: Endpoint) -> bool:
        loop, end = inside(endpoint).loop, time.monotonic() + DEAD_S
        turns, moved = loop.turns, sum(loop.passes.counts)
        while loop.turns < turns + 2 and loop.broken is None and time.monotonic() < end:
            vars(loop.control)["_real"].wake()  # the run's own call, and none of the endpoint's
            time.sleep(TICK_S)
        return sum(loop.passes.counts) > moved

    def until(self, done: Callable[[], Any]) -> bool:
        """Let the run proceed, with time passing while it is idle; return whether it ended in time."""
        idle, end = 0, self.injector.time.now() + LONGEST_S
        while not done():
            idle = 0 if self.turn() else idle + 1
            if idle >= IDLE:
                idle = 0
                self.injector.time.advance(STEP_S)
                if self.injector.time.now() > end:
                    return False
            elif idle:
                time.sleep(TICK_S)
        return True

    def sleep(self) -> None:
        """Both engines detach their pools, and attach the same again, twice if a call has failed."""
        pools = [(endpoint, endpoint.pool) for endpoint in self.endpoints]
        for endpoint, _ in pools:
            self.ask(endpoint.detach)
        self.until(lambda: not any("is being detached" in endpoint.pool_words() for endpoint, _ in pools))
        for endpoint, pool in pools * 2:
            if endpoint.detached:
                self.ask(endpoint.attach, pool)

    def silence(self) -> None:
        """The prefill engine does not poll for a while, and its process is there."""
        end = self.injector.time.now() + SILENCE_S
        while self.injector.time.now() < end:
            self.poll(self.decodes[0])
            self.injector.time.advance(STEP_S)

    def pending(self) -> list[str]:
        """Return the called groups whose ranks are still to be called, though nothing is under way."""
        if self.broken("D"):
            return []
        groups = self.decodes[0]._groups._party.groups  # noqa: SLF001
        return [f"group {group} stays {value.state.name}" for group, value in groups.items() if value.state in PENDING]

    def broken(self, side: str) -> bool:
        return inside((self.prefills if side == "P" else self.decodes)[0]).loop.broken is not None

    def right(self, room: Any) -> bool:
        """Whether the room's KV is in the decode pages, or these went with a detached pool."""
        if self.decodes[0].pool.is_husk:
            return True
        ours, theirs, tokens, _ = self.tables[room]
        wanted, have = (tokens_of(pool, pages) for pool, pages in (
            (noise(whole_model(MODEL), 0, self.pages, 1), ours), (self.decodes[0].pool, theirs)
        ))  # fmt: skip
        return all(torch.equal(a[:tokens], b[:tokens]) for a, b in zip(wanted, have, strict=True))
