"""Beside rank: a pipeline rank whose GPU also runs an engine's work, alone or beside a transfer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from kvproto.lab.bench.bare import begin_at
from kvproto.lab.bench.pipeline_rank import LONGEST_S, PipelineRank, give_way
from kvproto.room import Room
from kvproto.verify.testing import inside

#: rows and columns of the products, and bytes that are copied at a time
SIDE, COPIED = 8192, 1 << 30
#: seconds that the work begins before the transfer
AHEAD_S = 3e-4
#: the room of the forward that runs meanwhile: its KV leaves later, so no decode rank opens it
NEXT, NEXT_PAGES = Room(1 << 20, 0), 1 << 12


class BesideRank(PipelineRank):
    """A prefill rank multiplies matrices, as a forward does; a decode rank reads and writes memory."""

    def __init__(self, side: str, index: int, device: str) -> None:
        super().__init__(side, index, device)
        self.step: Callable[[], Any] = lambda: None
        self.stream: Any = None
        self._forwards = 0
        if self.device.type != "cuda":
            return
        self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        if side == "P":
            a, b = (torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device=self.device) for _ in range(2))
            out = torch.empty_like(a)
            self.step = lambda: torch.matmul(a, b, out=out)
        else:
            source = torch.empty(COPIED, dtype=torch.uint8, device=self.device)
            into = torch.empty_like(source)
            self.step = lambda: into.copy_(source)

    def open_next(self) -> None:
        """Open the room whose forward runs beside transfers."""
        self._forwards = 0
        if self.side == "P":
            pages = [page % 64 for page in range(NEXT_PAGES)]
            self.endpoint.open(NEXT, NEXT_PAGES * self.form.prefill.page_size, pages)

    def alone(self, steps: int) -> float:
        """Milliseconds of the work with nothing beside it."""
        return self._over(self._begin(steps))

    def beside(
        self, way: str, rooms: list[tuple[int, int]], tokens: int, at: float, side: str, steps: int
    ) -> tuple[float, float, float]:  # fmt: skip
        """Transfer from the moment `at` beside so many steps of a side's work; (begin, end, ms of work)."""
        begin_at(self.endpoint, at - AHEAD_S)
        work = self._begin(steps if side == self.side else 0)
        if work is not None and self.side == "P":
            # As an engine does: the KV of the next prompt is said to be there when its forward, just launched, is over.
            self._forwards += 1
            self.endpoint.produced(NEXT, self._forwards * self.form.prefill.page_size, work[1])
            self.endpoint.poll()
        if way not in ("bulk", "floor"):
            begin, end, _ = self.go(rooms, tokens, at)
        elif self.side == "P":
            begin, end = self.bulk(tokens, at) if way == "bulk" else self.straight(rooms[0][1], at)
        else:
            begin = end = at
        return begin, end, self._over(work)

    def straight(self, percent: int, at: float) -> tuple[float, float]:
        """Store a bulk write's bytes, from its buffer into the mapped ring, by so many multiprocessors."""
        from kvproto.io.kernels.across import AcrossTuning  # Triton's: a machine without it runs the rest
        from kvproto.lab.bench.straight_stores import straight_stores

        assert self.source is not None
        inner, buffer = inside(self.endpoint), self.source[0]
        (peer,) = set(inner.data.link_peer.values())
        programs = max(1, AcrossTuning().programs * percent // 100)
        launch = straight_stores(buffer, inner.data.transport.maps(peer)[0], programs)
        stream = inner.data.streams.stores[0]
        end: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        begin = begin_at(self.endpoint, at)
        with torch.cuda.stream(stream):
            launch()
            end.record()
        while not end.query():
            give_way()
        return begin, time.perf_counter()

    def _begin(self, steps: int) -> Any:
        """Launch the work; its two events, None without a device or without work."""
        if self.stream is None or not steps:
            return None
        with torch.cuda.stream(self.stream):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            for _ in range(steps):
                self.step()
            end.record()
        return begin, end

    def _over(self, work: Any) -> float:
        """Poll until the work is over; its milliseconds."""
        limit = time.perf_counter() + LONGEST_S
        while work is not None and not work[1].query():
            if self.endpoint is not None:
                self.endpoint.poll()
            give_way()
            if time.perf_counter() > limit:
                raise TimeoutError("the work beside the transfer does not end")
        return float(work[0].elapsed_time(work[1])) if work is not None else 0.0
