"""A GPU's copy engine carries from staging's twin into another mapping of a ring, asked by threads that know no GPU."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from kvproto.io.kernels.host_buffer import HostBuffer
from kvproto.io.transports.base import MemoryRegion, PeerId
from kvproto.io.transports.copy_engine import CopyEngine, EngineCopy
from kvproto.io.transports.endpoint import RegionEntry
from kvproto.io.transports.host_memory import HostMaps, share

NBYTES, FIRST = 1 << 26, 12_345
PEER = PeerId("peer")


def region(buffer: HostBuffer) -> MemoryRegion:
    return MemoryRegion(0, buffer.bytes.data_ptr(), NBYTES, "DRAM", 0)


def test_it_is_begun_and_seen_to_its_end_on_threads_without_a_context() -> None:
    twin = torch.arange(NBYTES, device="cuda", dtype=torch.int64).to(torch.uint8)
    torch.cuda.synchronize()
    near, far = HostBuffer(NBYTES, page_locked=True, twin=twin), HostBuffer(NBYTES, page_locked=True)
    engine = CopyEngine()
    engine.attach(region(near))
    maps, ring = HostMaps(engine.lock), region(far)
    maps.open(PEER, [RegionEntry(0, ring.addr, NBYTES, "DRAM", 0, share(ring))])
    part = maps.find(PEER, ring.addr + FIRST, NBYTES - 2 * FIRST)
    assert part is not None and part.lock is not None, "the ring is mapped a second time, and locked"

    def wait(copy: EngineCopy) -> bool:
        seen_under_way = not copy.done()
        while not copy.done():
            time.sleep(0)
        return seen_under_way

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as another:
        copy = one.submit(engine.start, region(near).addr + FIRST, part).result()
        assert copy is not None and another.submit(wait, copy).result(), "64 MiB take a millisecond"
    assert copy.exception() is None
    expected = np.zeros(NBYTES, np.uint8)
    expected[FIRST : NBYTES - FIRST] = np.arange(FIRST, NBYTES - FIRST).astype(np.uint8)
    assert np.array_equal(far.bytes.numpy(), expected)
    assert not near.bytes.any(), "it came from the device"
    engine.close()
    maps.close_all()
