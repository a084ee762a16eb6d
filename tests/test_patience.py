"""A room whose KV is there does not wait for ever for a ring that another holds: between endpoints, over NIXL.

The ring has space for one chunk.  It is granted to a room whose forward has not run, so nothing moves until it does;
the other room's KV is there, runs out of patience, and goes page to page.  Whether that happens does not depend on how
fast anything is: only on who asks first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

from kvproto import DecodeEndpoint, Layout, NixlTransport, PrefillEndpoint, Room, Settings
from kvproto.fsm.timing import Timer
from kvproto.protocol.timing import Timing
from kvproto.testing.pools import noise

LAYOUT = Layout(layers=2, heads=2, k_dim=32, v_dim=16, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
GRID, CHUNK = 64, 64 * 2 * 2 * (32 + 16) * 2
#: all by the ring, as long as there is patience
SETTINGS = Settings(ring_bytes=CHUNK, slot_bytes=CHUNK, costs="free", timing=Timing(patience=Timer(0.02, 3)))


def test_a_room_whose_kv_is_there_gives_up_a_ring_that_another_room_holds() -> None:
    prefill = PrefillEndpoint(LAYOUT, 0, noise(LAYOUT, 0, 8, 1), NixlTransport(), grid=GRID, settings=SETTINGS)
    decode = DecodeEndpoint(LAYOUT, 0, noise(LAYOUT, 0, 8, 2), NixlTransport(), grid=GRID, settings=SETTINGS)
    holds, waits = Room(1), Room(2)
    pages = {holds: [0, 2, 4, 6], waits: [7, 5, 3, 1]}
    outcomes = {}

    def until(happened: Callable[[], object]) -> None:
        end = time.monotonic() + 20
        while not happened():
            assert time.monotonic() < end
            if not prefill.poll() + decode.poll():
                time.sleep(50e-6)
            outcomes.update({each.room: each for each in decode.finished()})

    def stands(room: Room) -> bool:
        """The first has the ring, the other waits for it."""
        state = "AWAIT_KV" if room is holds else "AWAIT_WATERMARK"
        return f"{state}: chunk 0" in str(prefill.explain(room))

    def sent() -> tuple[int, int]:
        """Writes into the ring, and parts that went page to page."""
        counts = prefill.metrics()
        return counts["writes"], counts["direct"]

    try:
        decode.connect(LAYOUT, [prefill.address])
        for room in (holds, waits):
            decode.open(room, GRID, pages[room][::-1])
            prefill.open(room, GRID, pages[room])
            prefill.prefetch(room)
            until(partial(stands, room))
        prefill.produced(waits, GRID)
        prefill.aux(waits, b"first")
        until(lambda: waits in outcomes)
        assert outcomes[waits].ok and holds not in outcomes and sent() == (0, 1)
        prefill.produced(holds, GRID)
        prefill.aux(holds, b"second")
        until(lambda: holds in outcomes)
        assert outcomes[holds].ok and sent() == (1, 1)
        for ours, theirs in zip([*prefill.pool.k, *prefill.pool.v], [*decode.pool.k, *decode.pool.v], strict=True):
            for room in (holds, waits):
                assert torch.equal(ours[pages[room]].view(torch.int16), theirs[pages[room][::-1]].view(torch.int16))
    finally:
        decode.close()
        prefill.close()
