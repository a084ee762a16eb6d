"""A scheduler with an endpoint inside: what an engine does to send, or to receive, the KV of its requests.

A step of a scheduler is bounded work and one `poll()`: one bounded pass that never blocks. With nothing to compute,
`wait()` sleeps until a message comes or a transfer needs attention. No other thread is needed.

Prefill   a request arrives -> pages, `open`, `prefetch` -> one chunk of one forward a step, `produced` after each ->
          the first token into `aux` -> `released`: only now do the pages go back.
Decode    a request arrives -> when there are pages, `open` -> `finished`: it runs, or it has failed -> `released`.
          A request that failed keeps its pages until then: a write may still be on its way.

One prefill rank (this process) feeds two decode ranks (processes of their own), which share the heads. The model is a
stand-in with the one property that matters here: the KV of a token depends on that token alone, so that a decode rank
can compute what must be in its pages. Client number 5 hangs up half-way through its prompt.
"""

from __future__ import annotations

import multiprocessing
import random
from collections import deque
from multiprocessing.connection import Connection

import torch

from kvproto import Cause, DecodeEndpoint, Layout, NixlTransport, Pool, PrefillEndpoint, Room, Settings

PAGE, PAGES, CHUNK, HEADS, DIM, LAYERS = 16, 40, 64, 4, 32, 2
SHARE = HEADS // 2
ONE, TWO = (
    Layout(layers=LAYERS, heads=HEADS, k_dim=DIM, v_dim=DIM, itemsize=4, dtype="float32", page_size=PAGE, tp=tp)
    for tp in (1, 2)
)
SIZES = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18)
TOKENS = {request: random.Random(request).randint(30, 250) for request in range(1, 13)}
HANGS_UP, STEPS = 5, 6  # the client that leaves; steps that a request runs on the decode side


def kv(request: int, layer: int, kind: int) -> torch.Tensor:
    """[tokens, heads, dim]: what the model computes for a prompt, K (0) or V (1)."""
    prompt = torch.randint(1 << 10, (TOKENS[request],), generator=torch.Generator().manual_seed(request))
    place = torch.arange(HEADS * DIM).reshape(HEADS, DIM) + 1000 * (2 * layer + kind)
    return torch.sin(prompt[:, None, None] * 0.37 + place)


class Memory:
    """A rank's pool, and which request has which of its pages."""

    def __init__(self, heads: int) -> None:
        empty = torch.zeros(2, LAYERS, PAGES, PAGE, heads, DIM)
        self.kv, self.pool = empty, Pool([*empty[0]], [*empty[1]])
        self.free, self.pages = random.sample(range(PAGES), PAGES), dict[int, list[int]]()

    def take(self, request: int) -> bool:
        """Give the request pages, if there are enough."""
        count = -(-TOKENS[request] // PAGE)
        if count > len(self.free):
            return False
        self.pages[request], self.free = self.free[:count], self.free[count:]
        return True

    def where(self, request: int, first: int, upto: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(page, slot) of these tokens."""
        token = torch.arange(first, upto)
        return torch.tensor(self.pages[request])[token // PAGE], token % PAGE


class PrefillScheduler(Memory):
    """Runs prompts chunk by chunk, in turn."""

    def __init__(self) -> None:
        super().__init__(HEADS)
        self.endpoint = PrefillEndpoint(ONE, 0, self.pool, NixlTransport(), chunk_tokens=CHUNK, settings=SIZES)
        self.arrived, self.running = deque(TOKENS), deque[tuple[int, int]]()

    def step(self) -> None:
        """One chunk of one request, and one pass of the endpoint."""
        if self.arrived and self.take(self.arrived[0]):
            request = self.arrived.popleft()
            self.endpoint.open(Room(request), TOKENS[request], self.pages[request])
            self.endpoint.prefetch(Room(request))
            self.running.append((request, 0))
        if self.running:
            self.forward(*self.running.popleft())
        if not self.endpoint.poll() and not self.running:
            self.endpoint.wait()
        for outcome in self.endpoint.finished():
            print(f"prefill: request {outcome.room.id}: {outcome.cause.name}")
            if not outcome.ok:  # whoever gave it up
                self.running = deque(each for each in self.running if each[0] != outcome.room.id)
        for room in self.endpoint.released():
            self.free += self.pages.pop(room.id)

    def forward(self, request: int, first: int) -> None:
        """The KV of one chunk comes to be in the pages."""
        room, upto = Room(request), min(first + CHUNK, TOKENS[request])
        if request == HANGS_UP and first:
            self.endpoint.abort(room)
            return
        page, slot = self.where(request, first, upto)
        for layer in range(LAYERS):
            for kind in (0, 1):
                self.kv[kind, layer][page, slot] = kv(request, layer, kind)[first:upto]
        self.endpoint.produced(room, upto)
        if upto < TOKENS[request]:
            self.running.append((request, upto))
        else:
            self.endpoint.aux(room, request.to_bytes(8, "little"))  # as if it were the first token


class DecodeScheduler(Memory):
    """Runs requests whose KV has come; `rank` holds half of the heads."""

    def __init__(self, rank: int, address: str) -> None:
        super().__init__(SHARE)
        self.endpoint = DecodeEndpoint(TWO, rank, self.pool, NixlTransport(), chunk_tokens=CHUNK, settings=SIZES)
        self.endpoint.connect(ONE, [address])
        self.own = slice(rank * SHARE, (rank + 1) * SHARE)
        self.arrived, self.running, self.over = deque(TOKENS), dict[int, int](), dict[int, Cause]()
        self.released = set[int]()

    def step(self) -> None:
        """One token of every request that runs, and one pass of the endpoint."""
        while self.arrived and self.take(self.arrived[0]):
            request = self.arrived.popleft()
            self.endpoint.open(Room(request), TOKENS[request], self.pages[request])
        for request in [*self.running]:
            self.running[request] += 1
            if self.running[request] == STEPS:
                del self.running[request]
        if not self.endpoint.poll() and not self.running:
            self.endpoint.wait()
        for outcome in self.endpoint.finished():
            request = outcome.room.id
            self.over[request] = outcome.cause
            if outcome.ok:
                assert outcome.aux == request.to_bytes(8, "little")
                self.check(request)
                self.running[request] = 0
        self.released.update(room.id for room in self.endpoint.released())
        for request in self.released & self.pages.keys() - self.running.keys():
            self.free += self.pages.pop(request)

    def check(self, request: int) -> None:
        """The pages hold what the model would have computed here."""
        where = self.where(request, 0, TOKENS[request])
        for layer in range(LAYERS):
            for kind in (0, 1):
                assert torch.equal(self.kv[kind, layer][where], kv(request, layer, kind)[:, self.own])


def decode(rank: int, address: str, pipe: Connection) -> None:
    """The process of one decode rank."""
    scheduler = DecodeScheduler(rank, address)
    while scheduler.arrived or scheduler.pages:
        scheduler.step()
    pipe.send(scheduler.over)
    scheduler.endpoint.close()


def main() -> None:
    """Serve all requests; every one that nobody gave up has arrived on both decode ranks."""
    scheduler, context = PrefillScheduler(), multiprocessing.get_context("spawn")
    pipes = []
    for rank in range(2):
        ours, theirs = context.Pipe()
        pipes.append(ours)
        context.Process(target=decode, args=(rank, scheduler.endpoint.address, theirs), daemon=True).start()
        theirs.close()
    while scheduler.arrived or scheduler.pages:
        scheduler.step()
    for rank, pipe in enumerate(pipes):
        over = pipe.recv()
        good = sum(cause is Cause.NONE for cause in over.values())
        assert over.pop(HANGS_UP) is Cause.PREFILL_ABORTED
        assert good == len(over) == len(TOKENS) - 1
        print(f"decode rank {rank}: {good} requests arrived, request {HANGS_UP} was given up")
    scheduler.endpoint.close()


if __name__ == "__main__":
    main()
