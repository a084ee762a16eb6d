"""GPU ranks of one process on several GPUs, beside an engine that never says which one is current.

A process has one side. It is told what to make and what to do (`kvproto.lab.bench.members`), and looks after every call
whether its thread's current device is still the first. What a decode pool has to hold is known without the library:
equal seeds give equal noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import torch

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.kernels.base import Pool
from kvproto.io.transports.nixl import NixlTransport
from kvproto.layout.sharding import Layout
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.pools import noise, tokens_of

PAGES, TOKENS, CHUNK_TOKENS = 32, 96, 32
LONGEST_S = 30.0
#: seconds in which a rank may make ready what it knows of a room
READY_S = 0.05
#: when the prefill engine names a room's pages: with `open`, with `produced`, or with both, others the second time
Given = Literal["opened", "late", "replaced"]


def layout(tp: int) -> Layout:
    return Layout(layers=2, heads=4, k_dim=64, v_dim=64, itemsize=2, dtype="bfloat16", page_size=16, tp=tp)


def pages(room: int) -> list[int]:
    """Six pages of the pool, in no order."""
    return [(room * 7 + step * 5) % PAGES for step in range(TOKENS // 16)]


class GpuRanks:
    """One side's ranks."""

    digesting, slot_bytes = True, 1 << 20

    def __init__(self, side: str) -> None:
        self.prefill, self.ranks, self.pools = side == "P", list[Any](), list[Pool]()
        self.own_thread = False
        self.moved: list[str] = []

    def make(self, gpus: tuple[int, ...], own_thread: bool, route: str) -> list[str]:
        """New ranks on these GPUs; the addresses of prefill ranks. `route`: `Settings.route`, or "pinned"."""
        self.close()
        self.own_thread, form = own_thread, self.layout(len(gpus))
        way: Any = "staged" if route == "pinned" else route
        settings = Settings(route=way, ring_bytes=4 * self.slot_bytes, slot_bytes=self.slot_bytes)
        kind: Callable[..., Any] = PrefillEndpoint if self.prefill else DecodeEndpoint
        for index, gpu in enumerate(gpus):
            pool = self.pool(form, index, f"cuda:{gpu}")
            torch.cuda.synchronize(gpu)
            staging = "pinned" if route == "pinned" else "device"
            self.pools.append(pool)
            self.ranks.append(
                self.do(kind, form, index, pool, NixlTransport(), chunk_tokens=CHUNK_TOKENS, settings=settings,
                        staging=staging, digests=self.digesting)
            )  # fmt: skip
        for each in self.ranks if own_thread else ():
            self.do(each.start)
        return [each.address for each in self.ranks] if self.prefill else []

    layout = staticmethod(layout)

    def pool(self, form: Layout, index: int, device: str) -> Pool:
        host = noise(form, index, PAGES, 1 if self.prefill else 2)
        return Pool([t.to(device) for t in host.k], [t.to(device) for t in host.v])

    def do(self, call: Callable[..., Any], *given: Any, **more: Any) -> Any:
        """A call of the engine's, which is not to change its thread's device."""
        answer = call(*given, **more)
        if (now := torch.cuda.current_device()) != 0:
            self.moved.append(f"{getattr(call, '__qualname__', call)} left device {now}")
            torch.cuda.set_device(0)
        return answer

    def idle(self) -> None:
        for each in self.ranks if not self.own_thread else ():
            self.do(each.poll)
        time.sleep(1e-4)

    def connect(self, tp: int, addresses: list[str]) -> None:
        for each in self.ranks:
            self.do(each.connect, self.layout(tp), addresses)
        self._until(lambda: all(each.ready() for each in self.ranks))

    def move(self, number: int, given: Given = "opened") -> list[tuple[str, str]]:
        """One room to its end; of each rank how it ended, and why."""
        room = Room(number)
        others = {"opened": pages(number), "late": [], "replaced": pages(number + 1)}[given]
        first = others if self.prefill else pages(number)
        for each in self.ranks:
            self.do(each.open, room, TOKENS, first, **self.slot_of(number))
            if self.prefill:
                self.do(each.prefetch, room)
        if self.prefill:
            self._produce(room, given)
        ends: dict[int, Any] = {}

        def over() -> bool:
            for at, each in enumerate(self.ranks):
                ends.update((at, outcome) for outcome in self.do(each.finished))
            return len(ends) == len(self.ranks)

        self._until(over)
        return [(ends[at].cause.name, ends[at].reason) for at in sorted(ends)]

    def slot_of(self, _number: int) -> dict[str, int]:
        """Name what `open` is given besides."""
        return {}

    def _produce(self, room: Room, given: Given) -> None:
        later = [] if given == "opened" else pages(room.id)
        until = time.monotonic() + READY_S
        self._until(lambda: not later or time.monotonic() > until)
        for each in self.ranks if given == "replaced" else ():
            self.do(each.withdraw, room, 0)
        self._until(lambda: given != "replaced" or all(each.withdrawn(room) for each in self.ranks))
        for each, pool in zip(self.ranks, self.pools, strict=True):
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(pool.device))
            self.do(each.produced, room, TOKENS, event, pages=later)
            self.do(each.aux, room, b"row")

    def digests(self, number: int) -> dict[tuple[int, int, int], int]:
        """Return the digests of a room, of all ranks of the side."""
        found: dict[Any, int] = {}
        for each in self.ranks:
            found |= self.do(each.digests, Room(number))
        return found

    def right(self, number: int) -> bool:
        """Whether decode pools have the prefill bytes in the room's pages, and their own in all others."""
        found, own = list[bool](), pages(number)
        rest = [page for page in range(PAGES) if page not in own]
        for index, pool in enumerate(self.pools):
            mine = Pool([t.cpu() for t in pool.k], [t.cpu() for t in pool.v])
            for seed, which in ((1, own), (2, rest)):
                wanted = tokens_of(noise(layout(len(self.pools)), index, PAGES, seed), which)
                found += [torch.equal(a, b) for a, b in zip(tokens_of(mine, which), wanted, strict=True)]
        return all(found)

    def counts(self) -> dict[str, int]:
        names = "mapped", "engine", "pages", "direct", "writes", "faults"
        return {name: sum(each.metrics().get(name, 0) for each in self.ranks) for name in names}

    def told(self) -> list[str]:
        """Calls that changed the device, and what went wrong."""
        return [*self.moved, *(report for each in self.ranks for report in each.reports())]

    def close(self) -> None:
        for each in self.ranks:
            self.do(each.close)
        self.ranks, self.pools = [], []

    def end(self) -> None:
        self.close()

    def _until(self, over: Callable[[], bool]) -> None:
        limit = time.monotonic() + LONGEST_S
        while not over():
            self.idle()
            if time.monotonic() > limit:
                told = [each.explain(room) for each in self.ranks for rooms in each.rooms().values() for room in rooms]
                raise TimeoutError(f"after {LONGEST_S:g} s: {told} {self.told()}")
