"""Rank: a process of either side with pages of K and V, slots of state, and an endpoint over NIXL.

A prefill rank runs the whole model and keeps its own heads of what comes out; a decode rank keeps what arrives, in
pages and a slot that were full of noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from examples.hybrid_model.job import PAGE, Job, build, forward, parts_of, prompt
from kvproto import CachePool, DecodeEndpoint, NixlTransport, PrefillEndpoint, Room, Settings

SLOTS, ROOM, LONGEST_S = 3, Room(1), 30.0
#: the room's slot on either side
SLOT = {"P": 2, "D": 1}


class Rank:
    """One rank; every command is a method."""

    def __init__(self, side: str, index: int, job: Job) -> None:
        self.side, self.index, self.job = side, index, job
        self.layout = job.layout(job.prefill if side == "P" else job.decode)
        pages = -(-job.tokens // PAGE) + 2
        noise = torch.Generator().manual_seed(100 + index)
        self.parts: dict[str, list[torch.Tensor]] = {}
        for each, rows in ((self.layout, (pages, PAGE)), *((end, (SLOTS,)) for end in self.layout.ends)):
            for kind in each.kinds:
                shape = *rows, each.units_of(kind, index)[1], kind.row // 4
                self.parts[kind.name] = [torch.randn(shape, generator=noise) for _ in kind.layers]
        tensors = {f"{name} {at}": view for name, views in self.parts.items() for at, view in enumerate(views)}
        pool = CachePool(self.layout, index, self.parts, tensors)
        make: Callable[..., Any] = PrefillEndpoint if side == "P" else DecodeEndpoint
        self.endpoint = make(
            self.layout, index, pool, NixlTransport(), chunk_tokens=job.chunk_tokens,
            settings=Settings(ring_bytes=1 << 20),
        )  # fmt: skip
        order = torch.Generator().manual_seed(index if side == "P" else 50 + index)
        self.pages = torch.randperm(pages, generator=order)[: -(-job.tokens // PAGE)]
        self.token = 0

    def address(self) -> str:
        """A prefill rank's address."""
        return str(self.endpoint.address)

    def connect(self, addresses: list[str]) -> None:
        """Call the prefill ranks, and open the room; the prefix is computed here, as an earlier request's."""
        self.endpoint.connect(self.job.layout(self.job.prefill), addresses)
        self._until(self.endpoint.ready)
        if self.job.prefix:
            _, past = forward(build(self.job), prompt(self.job)[:, : self.job.prefix])
            self._store(past, self.job.decode, self.job.prefix, state=False)
        slot = SLOT["D"]
        self.endpoint.open(ROOM, self.job.tokens, self.pages, prefix=self.job.prefix, slot=slot)

    def compute(self) -> int:
        """Run the prompt, keep this rank's heads, and tell of them; return the next token."""
        self.endpoint.open(ROOM, self.job.tokens, self.pages, slot=SLOT["P"])
        self.token, past = forward(build(self.job), prompt(self.job))
        self._store(past, self.job.prefill, self.job.tokens, state=True)
        self.endpoint.produced(ROOM, self.job.tokens)
        self.endpoint.aux(ROOM, self.token.to_bytes(4, "little"))
        return self.token

    def outcome(self) -> tuple[str, int]:
        """How the room ended here, and of a decode rank the token that came with it (-1: none)."""
        found: list[Any] = []

        def over() -> bool:
            found.extend(self.endpoint.finished())
            return bool(found)

        self._until(over)
        return found[0].cause.name, int.from_bytes(found[0].aux, "little") if found[0].aux else -1

    def arrived(self) -> dict[str, list[torch.Tensor]]:
        """Return what a decode rank's pages and slot hold of the room."""
        rows = torch.arange(self.job.tokens)
        page, place = self.pages[rows // PAGE], rows % PAGE
        return {
            name: [view[page, place] if name.startswith("full") else view[SLOT["D"]] for view in views]
            for name, views in self.parts.items()
        }

    def _store(self, past: Any, tp: int, tokens: int, *, state: bool) -> None:
        rows = torch.arange(tokens)
        page, place = self.pages[rows // PAGE], rows % PAGE
        for name, found in parts_of(past, tp, self.index).items():
            for view, part in zip(self.parts[name], found, strict=True):
                if name.startswith("full"):
                    view[page, place] = part[:tokens]
                elif state:
                    view[SLOT[self.side]] = part

    def _until(self, over: Callable[[], bool]) -> None:
        limit = time.monotonic() + LONGEST_S
        while not over():
            self.idle()
            if time.monotonic() > limit:
                raise TimeoutError(self.endpoint.explain(ROOM))

    def idle(self) -> None:
        """Poll, while nobody says anything."""
        self.endpoint.poll()
        time.sleep(1e-4)

    def end(self) -> None:
        """The last command."""
        self.endpoint.close()
