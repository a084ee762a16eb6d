"""Staging in pinned host memory over a port of 400 Gbit/s, by simulation: what the copies add, where there is none.

The endpoints are real, and every byte is moved and compared; what their kernels, their copies and the wire take is a
simulated clock's.  Each of these is a lane that does one thing after the other: gathers and scatters on their devices,
a copy engine of either host, and the wire.  A byte stands for `SCALE` bytes.  The host takes no time but `LAUNCH`, by
which each gather and each scatter is seen to have ended later.

`wire` is what the bytes take on the wire alone, `device` a transfer whose staging the port reaches on the GPU, `pinned`
one through both hosts; `exposed` is what the copies add, by what they take one after the other.  Rates are those of an
H200's host and of the profile `rdma` (`kvproto.layout.costs`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kvproto.io.clock import ManualClock
from kvproto.io.kernels.base import Launch, Pool, Side, StagedPart
from kvproto.io.kernels.torch import TorchKernels
from kvproto.io.transports.base import Handle, PeerId
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.regions import Request
from kvproto.layout.costs import PROFILES
from kvproto.layout.sharding import Layout, chunks
from kvproto.settings import Settings
from kvproto.verify.testing import Pair, inside
from kvproto.verify.testing.simulated_control import SimulatedNetwork

LAYOUT = Layout(layers=2, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
TOKEN = 128 * 1024  # bytes that a token counts for
SCALE = TOKEN // (2 * 2 * 16 * 2)
#: bytes a second of a copy between host and device, and of a gather or scatter, each byte counted once
HOST, KERNEL = 53e9, 2000e9
LAUNCH = 100e-6
MIB = 1 << 20
#: (rooms, MiB of each, MiB of a chunk)
CASES = ((1, 64, 16), (1, 256, 16), (1, 1024, 16), (1, 1024, 64), (8, 256, 16), (8, 1024, 16), (8, 1024, 64))


class Lane:
    """Something that does one thing after the other."""

    free = 0.0

    def take(self, ready: float, seconds: float) -> float:
        """When something is over that takes so long and can begin at `ready`."""
        self.free = max(self.free, ready) + seconds
        return self.free


@dataclass
class SimulatedTime:
    """The clock, and when on it something ends."""

    clock: ManualClock = field(default_factory=ManualClock)
    ends: list[float] = field(default_factory=list)

    def ends_at(self, when: float) -> float:
        """Something ends then."""
        self.ends.append(when)
        return when

    def go_on(self) -> None:
        """To the next end; AssertionError if nothing is under way."""
        later = [when for when in self.ends if when > self.clock.now()]
        assert later, "nothing is under way, and nothing is over"
        self.ends = later
        self.clock.advance(min(later) - self.clock.now())


class Moment:
    """The ticket of what is over at a time."""

    def __init__(self, clock: ManualClock, at: float) -> None:
        self._clock, self._at = clock, at

    def done(self) -> bool:
        """Whether it is."""
        return self._clock.now() >= self._at


class TimedKernels(TorchKernels):
    """A rank's kernels, with the copy between device and host that a gather is followed by or a scatter waits for."""

    def __init__(self, time: SimulatedTime, *, pinned: bool) -> None:
        super().__init__()
        self._time, self._pinned, self._kernel, self._copy = time, pinned, Lane(), Lane()

    def bind(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart]
    ) -> Launch:  # fmt: skip
        """As ever; it is over when the clock says so."""
        launch = super().bind(side, pool, table, first, tokens, parts)
        nbytes = SCALE * sum(part.numel() for _, part in parts)

        def launched(stream: Any, after: Any) -> Moment:
            launch(stream, after)
            lanes = [(self._kernel, nbytes / KERNEL)]
            lanes += [(self._copy, nbytes / HOST)] * self._pinned
            at = self._time.clock.now()
            for lane, seconds in lanes if side == "gather" else lanes[::-1]:
                at = lane.take(at, seconds)
            return Moment(self._time.clock, self._time.ends_at(at + LAUNCH))

        return launched


class TimedFabric(Fabric):
    """A wire of this rate; what a write brings is there, and told, when it is over."""

    def __init__(self, time: SimulatedTime, rate: float, piece: float) -> None:
        super().__init__()
        self._time, self._rate, self._piece, self._wire = time, rate, piece, Lane()
        self._due: deque[tuple[float, PeerId, Handle]] = deque()

    def launch(self, writer: PeerId, target: PeerId, handle: Handle, request: Request, tag: bytes) -> None:
        """Put it on the wire."""
        super().launch(writer, target, handle, request, tag)
        seconds = self._piece * request.count + SCALE * float(request.local[:, 1].sum()) / self._rate
        end = self._wire.take(self._time.clock.now(), seconds)
        self._due.append((self._time.ends_at(end), writer, handle))

    def news(self, instance: PeerId) -> list[Any]:
        """What is over has landed and arrived."""
        while self._due and self._due[0][0] <= self._time.clock.now():
            _, *write = self._due.popleft()
            while steps := [step for step in self.options() if [step.writer, step.handle] == write]:
                self.take(steps[0])
        return super().news(instance)


def simulated(rooms: int, size: int, chunk: int, *, pinned: bool) -> float:
    """Seconds from the moment that all is produced to the last room's success; AssertionError: a byte is wrong."""
    time, profile = SimulatedTime(), PROFILES["rdma"]
    tokens, chunk_tokens = size * MIB // TOKEN, chunk * MIB // TOKEN
    parts, per_token = chunks(tokens, 0, chunk_tokens), TOKEN // SCALE
    settings = Settings(
        window=min(parts, 32), slots=16, slot_bytes=chunk_tokens * per_token,
        ring_bytes=(rooms * parts + 1) * chunk_tokens * per_token, route="staged",
    )  # fmt: skip
    pages = 2 * rooms * tokens // LAYOUT.page_size + 8
    with Pair(LAYOUT, LAYOUT, chunk_tokens=chunk_tokens, pages=pages, settings=settings,
              fabric=TimedFabric(time, profile.rate, profile.piece), clock=lambda: time.clock) as pair:  # fmt: skip
        network = SimulatedNetwork()
        for endpoint in pair.endpoints:
            loop, data = inside(endpoint).loop, inside(endpoint).data
            network.tap(loop.control, [*loop.connections.link_at])
            kernels = data.kernels = TimedKernels(time, pinned=pinned)
            if endpoint in pair.prefills:
                data.gathers.kernels, data.gathers.small = kernels, data.gathers.small // SCALE
            else:
                data.small //= SCALE
        names = [pair.open(tokens) for _ in range(rooms)]
        _rest(pair, network)
        began = time.clock.now()
        for room in names:
            pair.produce(room)
        _rest(pair, network)
        while not all(("D", 0, room) in pair.outcomes for room in names):
            time.go_on()
            _rest(pair, network)
        pair.check(*names)
        return time.clock.now() - began


def _rest(pair: Pair, network: SimulatedNetwork) -> None:
    """Until nothing more happens at this moment."""
    idle = 0
    while idle < 2:  # what the one has said at last the other hears in a pass of its own
        network.settle()
        idle = 0 if pair.turn() or network.busy() else idle + 1


def row(rooms: int, size: int, chunk: int) -> dict[str, Any]:
    """A case."""
    nbytes = rooms * size * MIB
    device, pinned = (simulated(rooms, size, chunk, pinned=each) for each in (False, True))
    wire = nbytes / PROFILES["rdma"].rate
    return {
        "rooms": rooms, "size": size, "chunk": chunk, "wire_ms": 1e3 * wire, "device_ms": 1e3 * device,
        "pinned_ms": 1e3 * pinned, "share": wire / pinned, "exposed": (pinned - device) / (2 * nbytes / HOST),
    }  # fmt: skip
