"""A transfer in ten lines: two prefill ranks and one decode rank, NIXL between them, polled in turn by one thread."""

from __future__ import annotations

import time

import torch

from kvproto import DecodeEndpoint, Layout, NixlTransport, Pool, PrefillEndpoint, Room, Settings

SIZES = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18)
HERE, THERE = [2, 8, 31, 4, 0, 60, 7], [9, 3, 27, 5, 40, 1, 12]  # the pages of the prompt on either side


def layout(tp: int) -> Layout:
    """Eight KV heads, shared by `tp` ranks."""
    return Layout(layers=2, heads=8, k_dim=64, v_dim=64, itemsize=2, dtype="bfloat16", page_size=16, tp=tp)


def pool(heads: int) -> Pool:
    """64 pages a layer, K and V: [page, token, head, dim]."""
    k, v = torch.randn(2, 2, 64, 16, heads, 64).to(torch.bfloat16)
    return Pool([*k], [*v])


def main() -> None:
    """Move the KV of one prompt of 100 tokens."""
    prefill = [PrefillEndpoint(layout(2), i, pool(4), NixlTransport(), chunk_tokens=64, settings=SIZES) for i in (0, 1)]
    decode = DecodeEndpoint(layout(1), 0, pool(8), NixlTransport(), chunk_tokens=64, settings=SIZES)
    decode.connect(layout(2), [rank.address for rank in prefill])
    decode.open(Room(1), 100, THERE)
    for rank in prefill:
        rank.open(Room(1), 100, HERE)  # before the forward, so that regions are asked for meanwhile
        rank.prefetch(Room(1))
        rank.produced(Room(1), 100)  # after it: the KV is in the pages
        rank.aux(Room(1), b"the first token")
    while not (outcomes := decode.finished()):
        if not sum(rank.poll() for rank in (decode, *prefill)):  # every rank has its turn
            time.sleep(50e-6)

    print(outcomes)
    for i, rank in enumerate(prefill):
        for sent, came in zip([*rank.pool.k, *rank.pool.v], [*decode.pool.k, *decode.pool.v], strict=True):
            whole = came[THERE].flatten(0, 1)[:100]
            assert torch.equal(sent[HERE].flatten(0, 1)[:100], whole[:, 4 * i : 4 * i + 4])
    for endpoint in (decode, *prefill):
        endpoint.close()


if __name__ == "__main__":
    main()
