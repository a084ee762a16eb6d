"""Mooncake between processes that stop, die and change: bounded polls, and no false certainty."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from transport_peer import ProcessPeer, Rank, drain, failed, make, make_or_skip, wait

from kvproto.io.transports.base import (
    BackendUnavailable,
    Busy,
    Completed,
    Handle,
    PeerGone,
    PeerId,
    PeerLost,
    TransportEvent,
)
from kvproto.io.transports.mooncake import SUBMITS_A_POLL
from kvproto.io.transports.regions import bulk

BIG = 1 << 24  # more than the kernel takes for a stopped reader


@pytest.fixture(scope="module")
def rank() -> Iterator[Rank]:
    out = Rank(make_or_skip("mooncake"), BIG)
    out.buffers[0][:] = 7
    yield out
    out.close()


@pytest.fixture
def peer(rank: Rank) -> Iterator[ProcessPeer]:
    out = ProcessPeer("mooncake", BIG).ready()
    yield out
    if out.process.is_alive():
        out.kill()


def write(rank: Rank, peer: PeerId, rows: object = None) -> Handle:
    target = rank.transport.remote(peer, 0)
    descs = bulk(0, 0, 65536) if rows is None else rows
    return rank.transport.write(peer, rank.regions[0], target, descs, b"")  # type: ignore[arg-type]


def link(rank: Rank, peer: ProcessPeer) -> PeerId:
    name = rank.transport.connect(peer.ask("endpoint"))
    assert rank.transport.warm(name)
    handle = write(rank, name)
    assert drain(rank) == [Completed(handle)]
    return name


def test_a_killed_peer_is_lost_and_the_others_are_not(rank: Rank, peer: ProcessPeer) -> None:
    other = ProcessPeer("mooncake", BIG).ready()
    dead, alive = link(rank, peer), link(rank, other)
    peer.kill()
    first, second = write(rank, dead), write(rank, alive)
    events = drain(rank)
    assert failed(events) == [(first, "peer_lost", True)]
    assert [e.peer for e in events if isinstance(e, PeerLost)] == [dead]
    assert Completed(second) in events
    rank.transport.disconnect(dead)
    rank.transport.disconnect(alive)
    assert other.end() == 0


def test_a_peer_that_is_gone_is_not_connected(rank: Rank, peer: ProcessPeer) -> None:
    endpoint = peer.ask("endpoint")
    peer.kill()
    with pytest.raises(PeerGone, match="does not answer"):
        rank.transport.connect(endpoint)


def test_a_stopped_peer_is_silence_and_work_stays_bounded(rank: Rank, peer: ProcessPeer) -> None:
    name = link(rank, peer)
    peer.stop()
    rows = [(i * 8192, i * 8192, 4096) for i in range(2000)]
    handle = write(rank, name, rows)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert rank.poll() == []
        time.sleep(0.001)
    with pytest.raises(Busy):
        rank.transport.deregister(rank.regions[0])
    peer.resume()
    assert drain(rank) == [Completed(handle)]
    landed = np.frombuffer(peer.ask("read", 0, 0, BIG), dtype=np.uint8).reshape(-1, 8192)
    assert (landed[8:2000, :4096] == 7).all()  # `link` wrote the first eight pages whole
    assert not landed[8:, 4096:].any()
    rank.transport.disconnect(name)


def test_a_write_whose_pieces_wait_behind_another_s_is_not_over(rank: Rank, peer: ProcessPeer) -> None:
    name, transport, taken = link(rank, peer), cast("Any", rank.transport), list[int]()
    engine = transport._engine

    def take(_address: str, source: int, *_: int) -> int:
        taken.append(source)
        return len(taken)

    transport._engine = SimpleNamespace(transfer_submit_write=take, transfer_check_status=lambda _task: 1)
    rows = [(i * 8192, i * 8192, 64) for i in range(3 * SUBMITS_A_POLL)]
    handles = [write(rank, name, rows) for _ in range(2)]
    assert drain(rank) == [Completed(handle) for handle in handles]
    assert len(taken) == 2 * len(rows) and len(set(taken)) == len(rows)
    transport._engine = engine
    rank.transport.disconnect(name)


def test_an_abandoned_write_submits_no_more(rank: Rank, peer: ProcessPeer) -> None:
    name = link(rank, peer)
    rows = [(i * 8192, i * 8192, 64) for i in range(2000)]
    handle = write(rank, name, rows)
    rank.transport.abandon(handle)
    assert drain(rank) == []
    assert rank.transport.quiescent(handle)
    landed = np.frombuffer(peer.ask("read", 0, 0, BIG), dtype=np.uint8).reshape(-1, 8192)
    assert not landed[1000:, :64].any()
    rank.transport.disconnect(name)


def test_a_peer_killed_with_writes_in_flight_fails_each_of_them(rank: Rank, peer: ProcessPeer) -> None:
    name = link(rank, peer)
    peer.stop()
    handles = [write(rank, name, bulk(0, 0, BIG)) for _ in range(3)]
    assert rank.poll() == []
    peer.kill()
    events = drain(rank)
    assert sorted(h for h, _, _ in failed(events)) == handles
    assert [e.peer for e in events if isinstance(e, PeerLost)] == [name]
    assert all(rank.transport.quiescent(h) for h in handles)
    rank.transport.disconnect(name)


def test_memory_that_the_peer_gave_back_is_not_written_and_leaves_doubt(rank: Rank, peer: ProcessPeer) -> None:
    name = link(rank, peer)
    index = peer.ask("add", 4096)
    rank.transport.connect(peer.ask("endpoint"))
    peer.ask("drop", 1)
    target = rank.transport.remote(name, index)
    handle = rank.transport.write(name, rank.regions[0], target, bulk(0, 0, 4096), b"")
    events: list[TransportEvent] = []
    wait(lambda: events or events.extend(rank.poll()), "the failure")  # type: ignore[func-returns-value]
    assert failed(events) == [(handle, "in_doubt", False)]
    assert peer.ask("read", 1, 0, 4096) == bytes(4096)
    again = write(rank, name)
    wait(lambda: rank.transport.quiescent(again) or events.extend(rank.poll()), "a good write")  # type: ignore[func-returns-value]
    assert events[-1] == Completed(again)
    assert not rank.transport.quiescent(handle)
    peer.kill()
    write(rank, name)
    drain(rank)
    assert rank.transport.quiescent(handle)


def test_one_engine_a_process(rank: Rank) -> None:
    with pytest.raises(BackendUnavailable, match="one a process"):
        make("mooncake")


SCRIPT = """
import numpy as np
from kvproto.io.transports.mooncake import MooncakeTransport
t = MooncakeTransport("127.0.0.1")
x = np.ones(4096, np.uint8)
t.register(x.ctypes.data, 4096)
"""


@pytest.mark.parametrize("ending", ["", "t.close()", "t.close(); MooncakeTransport('127.0.0.1')"])
def test_a_process_ends_with_status_zero_however_it_ends(rank: Rank, ending: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + ending], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
