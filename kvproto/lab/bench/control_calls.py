"""How many Python calls a room takes on each side: what the control path costs, without a clock.

Two real endpoints on one link, in one process: engines' calls, loops, ranks, control sockets, and the in-memory
transport.  Time stands still and frames are handed over pass by pass, so a build counts the same each time, and a count
can be a test where a time cannot.  What counts are the calls of this package's functions and of generated steps; what
libraries do inside does not, and neither do the kernels.

A room of one chunk, from `open` to `released`; and what each further chunk of a room adds.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from kvproto.endpoint.endpoint import Endpoint
from kvproto.io.clock import MonotonicClock
from kvproto.layout.sharding import Layout
from kvproto.verify.testing import Pair, inside
from kvproto.verify.testing.simulated_control import SimulatedNetwork

HOME = str(Path(__file__).parents[2])
APART = tuple(f"{HOME}/{part}" for part in (
    "io/kernels", "io/transports/fabric", "io/transports/memory", "verify/testing", "lab/bench",
    "verify/framework/trace/coverage",
))  # fmt: skip
LAYOUT = Layout(layers=1, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
CHUNK_TOKENS, WARM, ROOMS, MORE = 32, 2, 4, 4


class CallCounter:
    """Counts calls while something is done; by file, or name of what was generated, and function."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self._ours: dict[str, bool] = {}

    def during(self, action: Callable[[], Any]) -> Any:
        """Run `action` with its calls counted, and return its result."""
        sys.setprofile(self._note)
        try:
            return action()
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        file = frame.f_code.co_filename
        ours = self._ours.get(file)
        if ours is None:
            ours = self._ours[file] = file.startswith((HOME, "<")) and not file.startswith(APART)
        if ours:
            self.calls[file.removeprefix(HOME + "/"), frame.f_code.co_name] += 1


def transfer(pair: Pair, network: SimulatedNetwork, counters: list[CallCounter], tokens: int) -> None:
    """One room of so many tokens, alone."""
    room, told = pair.name(tokens), Counter[int]()
    ours, theirs, *_ = pair.tables[room]
    (prefill,), (decode,) = pair.prefills, pair.decodes

    def begin() -> None:
        prefill.open(room, tokens, ours)
        prefill.prefetch(room)
        prefill.produced(room, tokens)
        prefill.aux(room, b"token")

    counters[1].during(lambda: decode.open(room, tokens, theirs))
    counters[0].during(begin)
    while any(told[at] < 1 for at in range(len(counters))):
        network.settle()
        for at, endpoint in enumerate(pair.endpoints):
            counters[at].during(endpoint.poll)
            told[at] += counters[at].during(partial(_told, endpoint))


def _told(endpoint: Endpoint) -> int:
    """How many rooms are released, once their outcomes are handed out."""
    endpoint.finished()
    return len(endpoint.released())


def count() -> dict[str, dict[str, float]]:
    """By side: calls of a `room` of one chunk, and of each further `chunk` of a room."""
    by_chunks = {chunks: counted(chunks) for chunks in (1, 1 + MORE)}
    return {
        side: {
            "room": by_chunks[1][at].total() / ROOMS,
            "chunk": (by_chunks[1 + MORE][at].total() - by_chunks[1][at].total()) / ROOMS / MORE,
        }
        for at, side in enumerate(("prefill", "decode"))
    }  # fmt: skip


def counted(chunks: int) -> list[Counter[tuple[str, str]]]:
    """The calls of `ROOMS` rooms of so many chunks, of the prefill side and of the decode side."""
    pages = 2 * (WARM + ROOMS) * chunks * CHUNK_TOKENS // LAYOUT.page_size
    with Pair(LAYOUT, LAYOUT, chunk_tokens=CHUNK_TOKENS, pages=pages, clock=lambda: MonotonicClock(float)) as pair:
        network = SimulatedNetwork()
        for endpoint in pair.endpoints:
            loop = inside(endpoint).loop
            network.tap(loop.control, [*loop.connections.link_at])
        for _ in range(WARM):
            transfer(pair, network, [CallCounter(), CallCounter()], chunks * CHUNK_TOKENS)
        counters = [CallCounter(), CallCounter()]
        for _ in range(ROOMS):
            transfer(pair, network, counters, chunks * CHUNK_TOKENS)
        return [counter.calls for counter in counters]
