"""NIXL between processes that stop, die, restart and leave: the writer's events, and no crash."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.night import by_night
from transport_peer import ProcessPeer, Rank, drain, failed, make, wait

from kvproto.io.transports.base import (
    Busy,
    Completed,
    Handle,
    PeerGone,
    PeerId,
    PeerLost,
    StaleEndpoint,
    TransportEvent,
    UsageError,
)
from kvproto.io.transports.page_lists import PagePiece
from kvproto.io.transports.regions import bulk
from kvproto.lab.torture.rank import ucx_over_tcp

pytestmark = pytest.mark.skipif(importlib.util.find_spec("nixl") is None, reason="nixl is not installed")

SMALL = 65536
BIG = 1 << 24  # more than the kernel takes for a stopped reader


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True)
def tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use TCP: over cross-memory attach a write needs nothing of its target once the link is up."""
    monkeypatch.setenv("UCX_TLS", ucx_over_tcp())


@pytest.fixture
def rank() -> Iterator[Rank]:
    out = Rank(make("nixl"), BIG)
    out.buffers[0][:] = 7
    yield out
    out.close()


@pytest.fixture
def peer() -> Iterator[ProcessPeer]:
    out = start()
    yield out
    if out.process.is_alive():
        out.kill()


def start() -> ProcessPeer:
    return ProcessPeer("nixl", BIG).ready()


def link(rank: Rank, peer: ProcessPeer) -> PeerId:
    """Connect, and write once: an established link."""
    name = rank.transport.connect(peer.ask("endpoint"))
    write(rank, name, b"")
    drain(rank)
    return name


def write(rank: Rank, peer: PeerId, tag: bytes, nbytes: int = SMALL) -> Handle:
    target = rank.transport.remote(peer, 0)
    return rank.transport.write(peer, rank.regions[0], target, bulk(0, 0, nbytes), tag)


def lost(events: list[TransportEvent]) -> list[PeerId]:
    return [e.peer for e in events if isinstance(e, PeerLost)]


def test_a_killed_peer_is_lost_at_the_next_write_and_the_others_are_not(rank: Rank, peer: ProcessPeer) -> None:
    other = start()
    dead, alive = link(rank, peer), link(rank, other)
    peer.kill()
    first, second, third = write(rank, dead, b"1"), write(rank, alive, b"2"), write(rank, dead, b"3")
    events = drain(rank)
    assert failed(events) == [(first, "peer_lost", True), (third, "peer_lost", True)]
    assert lost(events) == [dead]
    assert isinstance(events[-1], PeerLost) or events[-1] == Completed(second)
    assert Completed(second) in events
    wait(lambda: [tag for _, tag, _ in other.ask("arrived")] == [b"2"], "the other peer's tag")
    fourth = write(rank, dead, b"4")
    assert failed(rank.poll()) == [(fourth, "peer_lost", True)]
    rank.transport.disconnect(dead)
    assert other.end() == 0


def test_a_stopped_peer_is_silence_and_continues_where_it_was(rank: Rank, peer: ProcessPeer) -> None:
    name = link(rank, peer)
    peer.stop()
    handle = write(rank, name, b"patience", BIG)
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        assert rank.poll() == []
        time.sleep(0.001)
    assert rank.transport.busy()
    with pytest.raises(Busy):
        rank.transport.deregister(rank.regions[0])
    peer.resume()
    assert drain(rank) == [Completed(handle)]
    wait(lambda: [row[1:] for row in peer.ask("arrived")] == [(b"patience", 7 * BIG)], "the tag, after the bytes")
    assert peer.end() == 0


def test_a_peer_killed_with_writes_in_flight_fails_each_of_them(rank: Rank, peer: ProcessPeer) -> None:
    name = link(rank, peer)
    peer.stop()
    handles = [write(rank, name, b"x", BIG) for _ in range(5)]
    forgotten = write(rank, name, b"y")
    rank.transport.abandon(forgotten)
    assert rank.poll() == []
    peer.kill()
    events = drain(rank)
    assert sorted(h for h, _, _ in failed(events)) == handles
    assert {kind for _, kind, _ in failed(events)} == {"peer_lost"}
    assert lost(events) == [name]
    assert all(rank.transport.quiescent(h) for h in (*handles, forgotten))
    rank.transport.disconnect(name)


def test_a_peer_that_closed_is_lost(rank: Rank, peer: ProcessPeer) -> None:
    name = link(rank, peer)
    assert peer.end() == 0
    handle = write(rank, name, b"late")
    events = drain(rank)
    assert failed(events) == [(handle, "peer_lost", True)]
    assert lost(events) == [name]


def test_a_restarted_peer_is_another_instance(rank: Rank, peer: ProcessPeer) -> None:
    former = link(rank, peer)
    region = rank.transport.remote(former, 0)
    peer.kill()
    write(rank, former, b"")
    assert lost(drain(rank)) == [former]
    again = start()
    name = link(rank, again)
    assert name != former
    with pytest.raises(StaleEndpoint, match="not in its current endpoint"):
        rank.transport.write(name, rank.regions[0], region, bulk(0, 0, 8), b"")
    rank.transport.disconnect(former)
    handle = write(rank, name, b"new life")
    assert drain(rank) == [Completed(handle)]
    wait(lambda: [tag for _, tag, _ in again.ask("arrived")] == [b"new life"], "the tag")
    assert again.end() == 0


def test_a_peer_that_vanished_before_the_first_write_is_lost(rank: Rank, peer: ProcessPeer) -> None:
    endpoint = peer.ask("endpoint")
    peer.kill()
    try:
        name = rank.transport.connect(endpoint)
    except PeerGone:
        return  # the backend looked; over a network it cannot, and then the first write tells
    assert not rank.transport.warm(name, 0.2)
    handle = write(rank, name, b"")
    events = drain(rank)
    assert (handle, "peer_lost", True) in failed(events)
    assert lost(events) == [name]


def test_warming_gives_up_on_a_stopped_peer_and_leaves_nothing_behind(rank: Rank, peer: ProcessPeer) -> None:
    name = rank.transport.connect(peer.ask("endpoint"))
    peer.stop()
    answers: list[bool] = []
    transport: Any = rank.transport
    thread = threading.Thread(target=lambda: answers.append(transport.warm(name, 2.0)))
    thread.start()
    wait(transport._links.held, "warming to begin")
    with pytest.raises(Busy, match="warmed by another thread"):
        transport.disconnect(name)
    while thread.is_alive():
        rank.poll()
        time.sleep(0.001)
    assert answers == [False]
    assert rank.transport.busy()
    with pytest.raises(Busy):
        rank.transport.disconnect(name)
    peer.resume()
    assert drain(rank) == []
    rank.transport.disconnect(name)


class Spy:
    """NIXL's agent, with a note of every handle that is released before its end was seen."""

    def __init__(self, raw: Any, success: object) -> None:
        self._raw, self._success = raw, success
        self.ended: set[int] = set()
        self.released: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def getXferStatus(self, handle: int) -> object:  # noqa: N802 (NIXL's name)
        try:
            status = self._raw.getXferStatus(handle)
        except Exception:
            self.ended.add(handle)
            raise
        if status == self._success:
            self.ended.add(handle)
        return status

    def releaseXferReq(self, handle: int) -> None:  # noqa: N802 (NIXL's name)
        assert handle in self.ended, "a handle was released in flight"
        self.released.append(handle)
        self._raw.releaseXferReq(handle)


def test_a_handle_is_released_once_and_never_in_flight(rank: Rank, peer: ProcessPeer) -> None:
    name = link(rank, peer)
    transport: Any = rank.transport
    transport._raw = spy = Spy(transport._raw, transport._nixl.NIXL_SUCCESS)
    peer.stop()
    kept, dropped = write(rank, name, b"kept", BIG), write(rank, name, b"dropped", BIG)
    rank.transport.abandon(dropped)
    for _ in range(50):
        assert rank.poll() == []
    assert spy.released == []
    peer.resume()
    assert drain(rank) == [Completed(kept)]
    assert len(spy.released) == len(set(spy.released)) == 2
    transport._raw = spy._raw


def test_links_come_and_go_on_another_thread_under_traffic(rank: Rank, peer: ProcessPeer) -> None:
    other = start()
    name, endpoint = link(rank, peer), other.ask("endpoint")
    done = 0
    with ThreadPoolExecutor(1) as pool:
        for _ in range(10):
            up = pool.submit(lambda: rank.transport.warm(rank.transport.connect(endpoint), 5.0))
            while not up.done():
                handle = write(rank, name, b"")
                assert drain(rank) == [Completed(handle)]
                done += 1
            assert up.result() is True
            rank.transport.disconnect(rank.transport.connect(endpoint))
    assert done >= 10
    assert other.end() == 0


def test_links_with_prepared_pages_that_come_and_go_leave_no_memory_behind(rank: Rank, peer: ProcessPeer) -> None:
    """The library keeps some 2 KiB of every link, so links with lists are compared to links without."""
    endpoint = peer.ask("endpoint")

    def grown(by: int, *, lists: bool) -> int:
        before = resident()
        for _ in range(by):
            name = rank.transport.connect(endpoint)
            if lists:
                here, there = rank.regions[0], rank.transport.remote(name, 0)
                made = rank.transport.page_lists(name, [PagePiece(here, there, *at, 64) for at in places])
                assert made.raw is not None and made.near == BIG // 4096
            rank.transport.disconnect(name)
        return resident() - before

    places = [(64 * at, 64 * at, 4096, 4096) for at in range(64)]
    for lists in (False, True):
        grown(40, lists=lists)
    links = by_night(1000, by_day=200)
    assert grown(links, lists=True) - grown(links, lists=False) < links << 11, "lists that stay are 8 KiB a link"
    pages = np.array([5, 2])
    name = rank.transport.connect(endpoint)
    piece = PagePiece(rank.regions[0], rank.transport.remote(name, 0), 0, 0, 4096, 4096, 4096)
    handle = rank.transport.write_pages(rank.transport.page_lists(name, [piece]), pages, pages, b"")
    wait(lambda: Completed(handle) in rank.poll(), "the write")
    assert peer.ask("read", 0, 5 * 4096, 4096) == b"\7" * 4096


def test_closing_with_writes_in_flight_ends_them_and_the_process_survives(rank: Rank, peer: ProcessPeer) -> None:
    endpoint = peer.ask("endpoint")
    name = link(rank, peer)
    peer.stop()
    handle = write(rank, name, b"never", BIG)
    rank.transport.close(drain_s=0.05)
    assert failed(rank.poll()) == [(handle, "in_doubt", True)]
    assert rank.poll() == []
    with pytest.raises(UsageError, match="closed"):
        rank.transport.endpoint()
    with pytest.raises(UsageError, match="closed"):
        rank.transport.connect(endpoint)
    peer.resume()
    assert peer.end() == 0


@pytest.mark.parametrize("over", [True, False])
def test_what_a_kernel_may_still_be_storing_to_stays_mapped(rank: Rank, peer: ProcessPeer, over: bool) -> None:
    name, transport, closed = link(rank, peer), cast("Any", rank.transport), list[str]()
    transport._maps = SimpleNamespace(close_all=lambda: closed.append("all"))
    rank.transport.run(name, lambda: SimpleNamespace(done=lambda: over), ())
    rank.transport.close(drain_s=0.01)
    assert closed == ["all"] * over


def test_device_memory_is_refused_clearly_where_there_is_no_device(rank: Rank) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a device here")
    with pytest.raises(UsageError, match="register"):
        rank.transport.register(1 << 40, 4096, "VRAM", 0)


SCRIPT = """
import numpy as np, os, sys, time
from kvproto.io.transports.base import Arrived
from kvproto.io.transports.regions import bulk
from kvproto.io.transports.nixl import NixlTransport
p, d = NixlTransport(), NixlTransport()
x, y = np.ones(4096, np.uint8), np.zeros(4096, np.uint8)
source, target = p.register(x.ctypes.data, 4096), d.register(y.ctypes.data, 4096)
peer = p.connect(d.endpoint())
p.write(peer, source, p.remote(peer, target.index), bulk(0, 0, 4096), b"t")
events = []
while not any(isinstance(e, Arrived) for e in events):
    events += p.poll() + d.poll()
    time.sleep(0)
assert y.all()
print("moved", "torch" in sys.modules, os.environ.get("UCX_MODULES"))
"""


LEFT_IN_FLIGHT = "p.write(peer, source, p.remote(peer, 0), bulk(0, 0, 9), b'')"


@pytest.mark.parametrize("ending", ["", "p.close(); d.close()", LEFT_IN_FLIGHT])
def test_a_process_ends_with_status_zero_however_it_ends(ending: str) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("UCX_", "NIXL_"))}
    env["UCX_NET_DEVICES"] = "lo"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + ending], capture_output=True, text=True, timeout=60, env=env, check=False
    )
    said = [line for line in done.stdout.splitlines() if "UCX  WARN" not in line]  # of the write never finished
    modules = None if list(Path("/sys/class").glob("infiniband/*")) else "^ib"
    assert (done.returncode, said, done.stderr) == (0, [f"moved False {modules}"], "")
    assert ending == LEFT_IN_FLIGHT or "UCX" not in done.stdout
