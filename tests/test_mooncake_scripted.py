"""The Mooncake transport over a scripted engine: the contract, its bounds, and every way to fail.

What the engine itself does is asked of the real one, in `test_transport_contract` and `test_transport_mooncake`.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.mooncake_library import Engine, Library

pytest.register_assert_rewrite("kvproto.verify.testing.transport_contract")

from kvproto.io.transports import mooncake
from kvproto.io.transports.base import (
    BackendUnavailable,
    Busy,
    Completed,
    Failed,
    Handle,
    PeerGone,
    PeerId,
    PeerLost,
    StaleEndpoint,
    TransportCaps,
    TransportError,
    UsageError,
)
from kvproto.io.transports.endpoint import decode
from kvproto.io.transports.mooncake import SUBMITS_A_POLL, WINDOW, MooncakeTransport
from kvproto.verify.testing.transport_contract import Ends, TransportContract
from kvproto.verify.testing.transport_ends import LocalPeer, Rank, wait

SIZE = 1 << 16
#: several engines a process, which the real one does not have
MANY = SimpleNamespace(acquire=lambda blocking: not blocking, release=lambda: None)


class TestScripted(TransportContract):
    @pytest.fixture(scope="class")
    @classmethod
    def ends(cls) -> Iterator[Ends]:
        with pytest.MonkeyPatch.context() as patch:
            library = Library()
            patch.setattr(mooncake, "_load", lambda: library.module)
            patch.setattr(mooncake, "_running", MANY)
            yield Rank(MooncakeTransport("host")), LocalPeer(MooncakeTransport("host"))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(mooncake, "_load", lambda: made.module)
    monkeypatch.setattr(mooncake, "_running", threading.Lock())
    return made


class World:
    """A writer, and two readers that it knows."""

    def __init__(self, library: Library, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(mooncake, "_running", MANY)
        self.library, self.writer = library, MooncakeTransport("w")
        self.near = np.arange(SIZE, dtype=np.uint64).astype(np.uint8)
        self.region = self.writer.register(self.near.ctypes.data, SIZE)
        self.readers = [MooncakeTransport(name) for name in ("r", "s")]
        self.far = [np.zeros(SIZE, np.uint8) for _ in self.readers]
        for reader, memory in zip(self.readers, self.far, strict=True):
            reader.register(memory.ctypes.data, SIZE)
        self.peers = [self.writer.connect(reader.endpoint()) for reader in self.readers]

    def write(self, pieces: int, to: int = 0) -> Handle:
        """Write so many pieces that do not touch."""
        rows = [(2 * at, 2 * at, 1) for at in range(pieces)]
        peer = self.peers[to]
        return self.writer.write(peer, self.region, self.writer.remote(peer, 0), rows, b"")

    def submitted(self, to: int = 0) -> int:
        """Pieces that the engine has been given for this reader."""
        return Counter(address for address, *_ in self.library.submitted)[self.readers[to].address]

    def told(self) -> list[Any]:
        """The events of a poll, short."""
        return [
            (each.handle, each.error.kind, each.quiescent) if isinstance(each, Failed)
            else each.peer if isinstance(each, PeerLost) else each for each in self.writer.poll()
        ]  # fmt: skip

    def ended(self) -> list[Any]:
        """The events of polls until there is one: a probe has a thread of its own."""
        told: list[Any] = []
        wait(lambda: told or told.extend(self.told()), "an end")  # type: ignore[func-returns-value]
        return told


@pytest.fixture
def world(library: Library, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(library, monkeypatch)


# -- how it starts


def test_the_library_is_quiet_unless_somebody_has_said_how_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    environ, engine = dict[str, str](), object()
    monkeypatch.setattr(mooncake, "os", SimpleNamespace(environ=environ))
    monkeypatch.setitem(sys.modules, "mooncake", SimpleNamespace(engine=engine))
    assert mooncake._load() is engine and environ == {"MC_LOG_LEVEL": "ERROR"}
    environ["MC_LOG_LEVEL"] = "INFO"
    assert mooncake._load() is engine and environ == {"MC_LOG_LEVEL": "INFO"}
    monkeypatch.setitem(sys.modules, "mooncake", None)
    with pytest.raises(BackendUnavailable, match="libibverbs1"):
        mooncake._load()


def test_there_is_one_engine_a_process_and_one_that_does_not_start_is_none(library: Library) -> None:
    first = MooncakeTransport("host", "me", "rdma", "mlx5_0")
    assert (first.instance, first.address) == ("me", "host:15001")
    assert first.caps == TransportCaps(
        "mooncake", ("DRAM",), mooncake.MAX_TAG, mooncake.MAX_DESCS, mooncake.MAX_INFLIGHT_DESCS, False, False
    )
    assert decode(first.endpoint(), "mooncake").blob == b"host:15001"
    with pytest.raises(BackendUnavailable, match="one a process"):
        MooncakeTransport("host")
    first.close()
    library.status = -3
    with pytest.raises(BackendUnavailable, match="with tcp: status -3"):
        MooncakeTransport("host")
    library.status, library.portless = 0, True
    with pytest.raises(RuntimeError, match="listens nowhere"):
        MooncakeTransport("host")
    library.portless = False
    second = MooncakeTransport("host")
    assert second.instance != first.instance
    second.close()


def test_device_memory_is_for_engines_that_were_built_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mooncake, "_running", MANY)
    for module, kinds in (
        (Library(cuda=True).module, ("DRAM", "VRAM")), (Library().module, ("DRAM",)),
        (SimpleNamespace(TransferEngine=lambda: Engine(Library())), ("DRAM",)),
    ):  # fmt: skip
        monkeypatch.setattr(mooncake, "_load", lambda module=module: module)
        assert MooncakeTransport("host").caps.kinds == kinds


def test_memory_that_the_engine_refuses_is_no_region(library: Library) -> None:
    transport, memory = MooncakeTransport("host"), np.zeros(64, np.uint8)
    library.status = -1
    with pytest.raises(UsageError, match="status -1"):
        transport.register(memory.ctypes.data, 64)
    library.status = 0
    region = transport.register(memory.ctypes.data, 64)
    (engine,) = library.engines.values()
    assert engine.memory == {memory.ctypes.data: 64}
    library.status = -4
    with pytest.raises(TransportError, match="status=-4"):
        transport.deregister(region)
    library.status = 0
    again = transport.register(memory.ctypes.data, 64)
    transport.deregister(again)
    assert not engine.memory


# -- peers


def test_who_answers_no_probe_is_not_connected(world: World) -> None:
    world.writer.disconnect(world.peers[0])
    world.library.silent.add(world.readers[0].address)
    with pytest.raises(PeerGone, match="does not answer"):
        world.writer.connect(world.readers[0].endpoint())
    with pytest.raises(StaleEndpoint, match="not connected"):
        world.writer.remote(world.peers[0], 0)


def test_warming_writes_nothing_from_our_memory_to_theirs(world: World) -> None:
    assert world.writer.warm(world.peers[0])
    assert world.library.synced == [
        (world.readers[0].address, world.near.ctypes.data, world.far[0].ctypes.data, 0)
    ]  # fmt: skip
    world.library.fails.add(world.readers[0].address)
    assert not world.writer.warm(world.peers[0])
    assert world.writer.tell(world.peers[0], b"word") is False, "it has no way for a tag alone"
    empty = MooncakeTransport("empty")
    assert not empty.warm(empty.connect(world.readers[0].endpoint()))
    assert not world.writer.warm(world.writer.connect(empty.endpoint()))


# -- bounds


def test_pieces_are_submitted_some_at_a_time_and_by_turns(world: World) -> None:
    """So many a poll, whosever they are; what is left over goes to the next in turn."""
    world.library.stands = True
    world.write(SUBMITS_A_POLL + 8)
    assert world.submitted() == SUBMITS_A_POLL
    world.write(2 * SUBMITS_A_POLL, to=1)
    assert world.submitted(1) == SUBMITS_A_POLL
    assert world.writer.poll() == []
    assert (world.submitted(), world.submitted(1)) == (SUBMITS_A_POLL + 8, 2 * SUBMITS_A_POLL - 8)
    world.library.stands = False
    handles: list[Any] = []
    while world.writer.busy():
        handles += world.writer.poll()
    assert sorted(each.handle for each in handles) == [0, 1]
    assert (world.far[0][: 2 * (SUBMITS_A_POLL + 8) : 2] == world.near[: 2 * (SUBMITS_A_POLL + 8) : 2]).all()
    assert not world.far[0][1::2].any()


def test_the_engine_holds_a_window_of_each_peer_at_most(world: World) -> None:
    world.library.stands = True
    handles = [world.write(WINDOW), world.write(8), world.write(8, to=1)]
    for _ in range(WINDOW // SUBMITS_A_POLL + 2):
        assert world.writer.poll() == []
    assert (world.submitted(), world.submitted(1)) == (WINDOW, 8)
    world.library.stands = False
    assert world.writer.poll() + world.writer.poll() == [Completed(handles[at]) for at in (1, 2, 0)]
    world.library.stands = True
    world.write(WINDOW + 1)
    for _ in range(WINDOW // SUBMITS_A_POLL + 2):
        world.writer.poll()
    assert world.submitted() == 2 * WINDOW + 8, "what has ended counts no longer"


def test_a_write_of_which_the_engine_has_nothing_yet_is_not_over(world: World) -> None:
    world.library.stands = True
    first = world.write(WINDOW)
    while world.submitted() < WINDOW:
        assert world.writer.poll() == []
    second = world.write(8)
    assert world.writer.poll() == [] and world.submitted() == WINDOW
    world.library.stands = False
    assert world.writer.poll() == [Completed(first)]
    assert world.writer.poll() == [Completed(second)] and world.submitted() == WINDOW + 8


def test_what_a_former_connection_had_in_the_engine_counts_no_longer(world: World) -> None:
    world.write(SUBMITS_A_POLL)
    world.writer.poll()
    world.writer.disconnect(world.peers[0])
    assert world.peers[0] not in world.writer._tasks


def test_an_abandoned_write_ends_with_what_the_engine_has_of_it(world: World) -> None:
    world.library.stands = True
    handle = world.write(3 * SUBMITS_A_POLL)
    world.writer.abandon(handle)
    assert world.writer.poll() == [] and world.writer.busy()
    world.library.stands = False
    assert world.writer.poll() == [] and not world.writer.busy()
    assert world.submitted() == SUBMITS_A_POLL


# -- failures


def test_pieces_that_fail_at_a_peer_that_lives_leave_doubt_until_it_is_lost(world: World) -> None:
    world.library.fails.add(world.readers[0].address)
    handle = world.write(3 * SUBMITS_A_POLL)
    assert world.ended() == [(handle, "in_doubt", False)]
    assert world.submitted() == SUBMITS_A_POLL, "what was not submitted is not"
    for _ in range(3):
        assert world.writer.poll() == [] and not world.writer.quiescent(handle)
    world.library.silent.add(world.readers[0].address)
    second = world.write(1)
    assert world.ended() == [(second, "peer_lost", True), world.peers[0]]
    world.writer.poll()
    assert world.writer.quiescent(handle) and not world.writer.busy()
    assert world.write(1, to=1) == 2 and world.writer.poll() == [Completed(Handle(2))]


def test_a_write_fails_when_the_engine_has_answered_for_all_of_it(world: World) -> None:
    world.library.silent.add(world.readers[0].address)
    world.library.room = 8
    handle = world.write(SUBMITS_A_POLL)
    world.library.stands = True
    for _ in range(3):
        assert world.writer.poll() == [] and world.writer.busy()
    assert world.submitted() == 8, "it took no more, and is asked for no more"
    world.library.stands = False
    assert world.ended() == [(handle, "peer_lost", True), world.peers[0]]
    world.writer.disconnect(world.peers[0])


def test_of_a_lost_peer_every_write_is_over_when_the_engine_is_done_with_it(world: World) -> None:
    address = world.readers[0].address
    world.library.silent.add(address)
    world.library.fails.add(address)
    first, second = world.write(1), world.write(3 * SUBMITS_A_POLL)
    world.writer.poll()
    told = world.ended()
    assert told[0] == (first, "peer_lost", True)
    assert sorted(map(str, told[1:])) == sorted(map(str, [(second, "peer_lost", False), world.peers[0]]))
    world.writer.poll()
    assert world.writer.quiescent(second) and not world.writer.busy()


def test_the_owner_does_not_wait_for_a_probe(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, probe = threading.Event(), Engine.send_probe

    def slow(engine: Engine, address: str) -> int:
        assert answer.wait(5.0)
        return probe(engine, address)

    monkeypatch.setattr(Engine, "send_probe", slow)
    world.library.fails.add(world.readers[0].address)
    handle = world.write(1)
    for _ in range(3):
        assert world.writer.poll() == []
    asked = [thread for thread in threading.enumerate() if thread.name == "kvproto-probe"]
    assert len(asked) == 1, "it is asked once"
    assert asked[0].daemon, "nor does a process that ends wait for it"
    with pytest.raises(Busy):
        world.writer.disconnect(world.peers[0])
    answer.set()
    assert world.ended() == [(handle, "in_doubt", False)]


def test_an_engine_is_let_go_and_another_may_start(library: Library) -> None:
    transport = MooncakeTransport("host")
    engine = weakref.ref(library.engines.popitem()[1])
    transport.close()
    transport.close()
    gc.collect()
    assert engine() is None, "an engine lives that could still write"
    assert MooncakeTransport("host").instance != PeerId("")
