"""Transfers under asyncio: each is one `await`.

Each endpoint's loop runs on a thread of its own, and wakes asyncio's.
An endpoint is a file descriptor (`add_reader`), readable while it has events.  This example has both ranks in one
process; an engine has one endpoint a process, and needs the same class for each.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import torch

from kvproto import (
    DecodeEndpoint,
    Layout,
    NixlTransport,
    Outcome,
    PeerLost,
    PeerUp,
    Pool,
    PrefillEndpoint,
    Room,
    RoomFinished,
    RoomReleased,
    Settings,
)

LAYOUT = Layout(layers=2, heads=8, k_dim=64, v_dim=64, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
SIZES = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18)
REQUESTS, TOKENS, PAGES = 6, 100, 7


class Transfers:
    """The rooms of one endpoint, as futures."""

    def __init__(self, endpoint: PrefillEndpoint | DecodeEndpoint) -> None:
        """Start the endpoint; it must not be polled by anyone else.  Called in a running asyncio loop."""
        self.endpoint, self.linked = endpoint, asyncio.Event()
        self._over, self._free = (defaultdict[Room, asyncio.Future[Any]](asyncio.Future) for _ in range(2))
        endpoint.events()  # what happens is recorded from here on
        endpoint.start()
        asyncio.get_running_loop().add_reader(endpoint, self._hear)

    def _hear(self) -> None:
        self.endpoint.wait_news(0)  # the descriptor is not readable any more, until the next event
        for event in self.endpoint.events():
            match event:
                case RoomFinished(outcome):
                    self._over[outcome.room].set_result(outcome)
                case RoomReleased(room):
                    self._free[room].set_result(None)
                case PeerUp():
                    self.linked.set()
                case PeerLost(group, rank, why):
                    print(f"rank {rank} of group {group} is lost: {why}")

    async def over(self, room: Room) -> Outcome:
        """Wait for the room's outcome."""
        outcome: Outcome = await self._over[room]
        return outcome

    async def free(self, room: Room) -> None:
        """Wait until the room's pages may be reused."""
        await self._free[room]
        del self._over[room], self._free[room]

    def close(self) -> None:
        """Stop and close the endpoint."""
        asyncio.get_running_loop().remove_reader(self.endpoint)
        self.endpoint.close()


def pool() -> Pool:
    """64 pages a layer, K and V: [page, token, head, dim]."""
    k, v = torch.randn(2, 2, 64, 16, 8, 64).to(torch.bfloat16)
    return Pool([*k], [*v])


async def main() -> None:
    """Move the KV of a few prompts at once."""
    prefill = PrefillEndpoint(LAYOUT, 0, pool(), NixlTransport(), chunk_tokens=64, settings=SIZES)
    decode = DecodeEndpoint(LAYOUT, 0, pool(), NixlTransport(), chunk_tokens=64, settings=SIZES)
    sending, receiving = Transfers(prefill), Transfers(decode)
    decode.connect(LAYOUT, [prefill.address])
    await receiving.linked.wait()

    async def send(room: Room, pages: list[int]) -> None:
        prefill.open(room, TOKENS, pages)
        await asyncio.sleep(0.01)  # the forward runs meanwhile
        prefill.produced(room, TOKENS)
        prefill.aux(room, b"first token of %d" % room.id)
        await sending.free(room)

    async def receive(room: Room, pages: list[int]) -> bytes:
        decode.open(room, TOKENS, pages)
        outcome = await receiving.over(room)
        assert outcome.ok, outcome.reason
        for sent, came in zip([*prefill.pool.k, *prefill.pool.v], [*decode.pool.k, *decode.pool.v], strict=True):
            assert torch.equal(sent[pages].flatten(0, 1)[:TOKENS], came[pages].flatten(0, 1)[:TOKENS])
        await receiving.free(room)
        return outcome.aux

    tables = {Room(i): list(range(i * PAGES, (i + 1) * PAGES)) for i in range(REQUESTS)}
    rows, _ = await asyncio.gather(
        asyncio.gather(*(receive(*each) for each in tables.items())),
        asyncio.gather(*(send(*each) for each in tables.items())),
    )
    print(*rows, sep="\n")
    for transfers in (receiving, sending):
        transfers.close()


if __name__ == "__main__":
    asyncio.run(main())
