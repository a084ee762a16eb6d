"""A GPU's copy engine carries from staging's twin into another mapping of a ring, on other threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from kvproto.io.kernels.host_buffer import HostBuffer
from kvproto.io.transports.base import Arrived, Completed, MemoryRegion, PeerId
from kvproto.io.transports.copy_engine import CopyEngine, EngineCopy
from kvproto.io.transports.endpoint import RegionEntry
from kvproto.io.transports.host_memory import HostMaps, share
from kvproto.io.transports.nixl import NixlTransport
from kvproto.verify.testing.transport_ends import wait

NBYTES, FIRST = 1 << 26, 12_345
PEER = PeerId("peer")


def region(buffer: HostBuffer) -> MemoryRegion:
    return MemoryRegion(0, buffer.bytes.data_ptr(), NBYTES, "DRAM", 0)


def test_it_is_begun_and_seen_to_its_end_on_threads_without_a_context(gpu: str) -> None:
    twin = torch.arange(NBYTES, device=gpu, dtype=torch.int64).to(torch.uint8)
    torch.cuda.synchronize(gpu)
    near, far = HostBuffer(NBYTES, page_locked=True, twin=twin), HostBuffer(NBYTES, page_locked=True)
    engine = CopyEngine()
    engine.attach(region(near))
    maps, ring = HostMaps(engine.lock), region(far)
    maps.open(PEER, [RegionEntry(0, ring.addr, NBYTES, "DRAM", 0, share(ring))])
    part = maps.find(PEER, ring.addr + FIRST, NBYTES - 2 * FIRST)
    assert part is not None and part.lock is not None, "the ring is mapped a second time, and locked"

    def seen(copy: EngineCopy) -> bool:
        seen_under_way = not copy.done()
        while not copy.done():
            time.sleep(0)
        return seen_under_way

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as another:
        row = region(near).addr + FIRST, part.here.ctypes.data, part.here.size
        for _ in range(20):  # 64 MiB take a millisecond, and a busy host may take as long to look
            copy = one.submit(engine.start, [row], part).result()
            assert copy is not None
            if another.submit(seen, copy).result():
                break
        else:
            pytest.fail("no copy was seen under way")
    assert copy.exception() is None
    expected = np.zeros(NBYTES, np.uint8)
    expected[FIRST : NBYTES - FIRST] = np.arange(FIRST, NBYTES - FIRST).astype(np.uint8)
    assert np.array_equal(far.bytes.numpy(), expected)
    assert not near.bytes.any(), "it came from the device"
    engine.close()
    maps.close_all()


@pytest.mark.parametrize("maps", [True, False], ids=["mapped", "brought"])
def test_what_a_transport_writes_is_what_the_device_has(maps: bool, gpu: str) -> None:
    pytest.importorskip("nixl._api")
    twin = torch.randint(0, 256, (NBYTES,), device=gpu, dtype=torch.uint8)
    torch.cuda.synchronize(gpu)
    near, far = HostBuffer(NBYTES, page_locked=True, twin=twin), HostBuffer(NBYTES, page_locked=True)
    writer, reader = NixlTransport(), NixlTransport(maps=maps)  # who does not share is not mapped
    source, expected = writer.register(near.bytes.data_ptr(), NBYTES), np.zeros(NBYTES, np.uint8)
    assert writer.lifts(source)
    reader.register(far.bytes.data_ptr(), NBYTES)
    peer, copy = writer.connect(reader.endpoint()), twin.cpu().numpy()
    rows = [(FIRST, 7, 1 << 25), (0, 1 << 25 | 99, 1), (5, 1 << 25 | 200, FIRST)]
    for first, to, nbytes in rows:
        expected[to : to + nbytes] = copy[first : first + nbytes]
    handle, events = writer.write(peer, source, writer.remote(peer, 0), rows, b"tag"), list[object]()

    def over() -> bool:
        events.extend([*writer.poll(), *reader.poll()])
        return len(events) == 2

    wait(over, "the write and its tag")
    assert Completed(handle) in events and Arrived(writer.instance, b"tag") in events
    assert np.array_equal(far.bytes.numpy(), expected)
    writer.close()
    reader.close()
