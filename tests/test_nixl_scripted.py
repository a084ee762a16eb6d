"""The NIXL transport over a scripted library: the contract in no time, and every possible error.

What the library itself does is asked of the real one, in `test_transport_contract` and `test_transport_nixl`.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace
from support.nixl_library import Agent, Library

pytest.register_assert_rewrite("kvproto.verify.testing.transport_contract")

from kvproto.io.transports import host_memory, nixl
from kvproto.io.transports.base import (
    Arrived,
    BackendUnavailable,
    BadEndpoint,
    Busy,
    Completed,
    Failed,
    Fault,
    Handle,
    PeerGone,
    PeerId,
    PeerLost,
    StaleEndpoint,
    TransportCaps,
    TransportError,
    UsageError,
    WritePart,
)
from kvproto.io.transports.endpoint import decode, encode
from kvproto.io.transports.nixl import MAX_TAG, NixlTransport
from kvproto.io.transports.page_lists import PageLists, PagePiece
from kvproto.io.transports.regions import bulk
from kvproto.lab.torture.nixl_samples import metadata
from kvproto.verify.testing.transport_contract import Ends, TransportContract
from kvproto.verify.testing.transport_ends import LocalPeer, Rank, wait

SIZE = 4096
KINDS = {
    "nixlRemoteDisconnectError": "peer_lost", "nixlCancelledError": "peer_lost", "nixlBackendError": "peer_lost",
    "nixlUnknownError": "peer_lost", "nixlNotFoundError": "stale_endpoint", "nixlNotAllowedError": "stale_endpoint",
    "nixlInvalidParamError": "usage", "nixlMismatchError": "usage", "nixlNotPostedError": "usage",
    "nixlRepostActiveError": "busy", "nixlNotSupportedError": "backend",
}  # fmt: skip


class TestScripted(TransportContract):
    @pytest.fixture(scope="class")
    @classmethod
    def ends(cls) -> Iterator[Ends]:
        with pytest.MonkeyPatch.context() as patch:
            library = Library()
            patch.setattr(nixl, "load", lambda: (library.api, library.bindings))
            yield Rank(NixlTransport()), LocalPeer(NixlTransport())


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(nixl, "load", lambda: (made.api, made.bindings))
    return made


class World:
    """A writer and a reader of one region each, who know each other."""

    def __init__(self, library: Library, **options: Any) -> None:
        self.library, self.writer, self.reader = library, NixlTransport("w", **options), NixlTransport("r")
        self.near, self.far = np.full(SIZE, 7, np.uint8), np.zeros(SIZE, np.uint8)
        self.region = self.writer.register(self.near.ctypes.data, SIZE)
        self.reader.register(self.far.ctypes.data, SIZE)
        self.peer = self.writer.connect(self.reader.endpoint())

    @property
    def transfers(self) -> dict[int, Any]:
        return self.library.agents["w"].transfers

    def parts(self, nbytes: int = 8) -> list[WritePart]:
        return [WritePart(self.region, self.writer.remote(self.peer, 0), bulk(0, 0, nbytes))]

    def write(self, tag: bytes = b"tag", nbytes: int = 8) -> Handle:
        return self.writer.write_many(self.peer, self.parts(nbytes), tag)

    def told(self) -> list[Any]:
        """The events of a poll, short."""
        return [
            (each.handle, each.error.kind, each.quiescent) if isinstance(each, Failed)
            else each.peer if isinstance(each, PeerLost) else each for each in self.writer.poll()
        ]  # fmt: skip


@pytest.fixture
def world(library: Library) -> World:
    return World(library)


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


# -- how it starts, and ends


def test_agents_have_the_names_and_parameters_that_are_asked_for(library: Library) -> None:
    transport = NixlTransport("me", {"num_threads": "2"})
    assert transport.instance == "me"
    assert transport.caps == TransportCaps(
        "nixl", ("DRAM", "VRAM"), MAX_TAG, nixl.MAX_DESCS, nixl.MAX_INFLIGHT_DESCS, True, True
    )
    assert list(library.agents) == ["me"]
    assert library.called("create_backend") == [["UCX", {"num_threads": "2"}]]
    transport.close()
    library.mems = ["DRAM_SEG", "FILE_SEG"]
    first, second = NixlTransport(), NixlTransport()
    assert first.instance != second.instance and first.caps.kinds == ("DRAM",)
    assert library.called("create_backend")[-1] == ["UCX", {}]


@pytest.mark.parametrize("error", ["RuntimeError", "nixlBackendError"])
@pytest.mark.parametrize("call", ["nixl_agent", "create_backend"])
def test_what_does_not_start_is_unavailable(library: Library, call: str, error: str) -> None:
    library.refuses[call] = error
    with pytest.raises(BackendUnavailable, match="does not start here"):
        NixlTransport()


def test_memory_that_the_library_refuses_is_no_region(library: Library) -> None:
    transport, memory = NixlTransport(), np.zeros(64, np.uint8)
    library.refuses["register_memory"] = "nixlBackendError"
    with pytest.raises(UsageError, match="cannot register"):
        transport.register(memory.ctypes.data, 64)
    library.refuses.clear()
    region = transport.register(memory.ctypes.data, 64)
    assert all(len(agent.regions) == 1 for agent in library.agents.values())
    transport.deregister(region)
    assert not any(agent.regions for agent in library.agents.values())
    transport.close()


@pytest.mark.parametrize("stays", [False, True])
def test_what_a_failed_registration_has_taken_goes_back_or_is_named(
    library: Library, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    transport, memory = NixlTransport(), np.zeros(64, np.uint8)
    error: list[BaseException] = [library.errors["nixlBackendError"]("planted"), OSError("planted")]

    def share(_: Any) -> None:
        raise error.pop()

    monkeypatch.setattr(host_memory, "share", share)
    if stays:
        library.refuses["deregister_memory"] = "nixlBackendError"
    with pytest.raises(OSError, match="planted"):
        transport.register(memory.ctypes.data, 64)
    with pytest.raises(UsageError, match="cannot register") as told:
        transport.register(memory.ctypes.data, 64)
    assert ("; and it stays registered: " in str(told.value)) is stays


def test_memory_that_the_library_does_not_let_go_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.library.refuses["deregister_memory"] = "nixlBackendError"
    with pytest.raises(TransportError, match=r"NIXL does not let go of .*planted in deregister_memory"):
        world.writer.deregister(world.region)
    later = world.writer.register(np.zeros(64, np.uint8).ctypes.data, 64)
    monkeypatch.setattr(Agent, "deregister_memory", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.writer.deregister(later)


def test_an_end_that_is_interrupted_is_so_when_all_is_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Agent, "remove_remote_agent", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.writer.close()
    assert world.writer.closed and world.library.called("deregister_memory")


def test_the_instance_after_this_one_is_made_alike(library: Library) -> None:
    for maps in (False, True):
        first = NixlTransport(params={"num_threads": "2"}, maps=maps)
        second = first.successor()
        assert library.called("create_backend")[-1] == ["UCX", {"num_threads": "2"}]
        assert (second._maps is not None) is maps and second.instance != first.instance


def test_the_rest_of_a_write_is_posted_when_the_copy_before_it_is_over_unless_it_or_its_peer_failed() -> None:
    fault, refuses = Fault("peer_lost", "planted"), [KeyError("planted")]

    def make(*about: Any) -> int:
        if about[-1] == b"refused":
            raise refuses[0]
        return 7

    def joined(
        lost: Fault | None = None, error: Exception | None = None, tag: bytes = b"", *, over: bool = True
    ) -> tuple[Any, ...]:  # fmt: skip
        copy = SimpleNamespace(done=lambda: over, exception=lambda: error)
        started = list[Any]()
        transport: Any = SimpleNamespace(
            _links=SimpleNamespace(known=lambda _: SimpleNamespace(lost=lost)), _raw=None, _errors=(KeyError,),
            _make=make, _start=lambda _, write: started.append(write.raw), _fault=lambda each: each,
        )  # fmt: skip
        write: Any = SimpleNamespace(peer="peer", twin="its copy", error=None, raw=0)
        twin: Any = SimpleNamespace(copy=copy, tail="the rest", tag=tag)
        return NixlTransport._joined(transport, write, twin), write.twin, write.error, started

    failed = OSError("planted")
    assert joined(over=False) == (False, "its copy", None, [])
    assert joined() == (True, None, None, [7])
    assert joined(error=failed) == joined(fault, failed) == (True, None, failed, [])
    assert joined(fault) == (True, None, fault, [])
    assert joined(tag=b"refused") == (True, None, refuses[0], [])


def test_who_closes_at_rest_says_goodbye_and_lets_his_memory_go(library: Library) -> None:
    world = World(library)
    agent = library.agents["w"]
    ends = [weakref.ref(library.agents.pop(name)) for name in ("w",)]
    world.writer.close()
    assert library.called("remove_remote_agent") == [["w", "r"]]
    assert library.called("deregister_memory") == [["w", (world.near.ctypes.data, SIZE, 0)]] and not agent.regions
    del agent
    gc.collect()
    assert [end() for end in ends] == [None], "an agent lives that could still write"


def test_who_closes_with_a_write_in_flight_leaves_at_once(world: World) -> None:
    world.library.stands = True
    handle = world.write()
    world.writer.close(drain_s=0.0)
    assert not world.library.called("remove_remote_agent") + world.library.called("deregister_memory")
    assert world.told() == [(handle, "in_doubt", True)]


# -- peers


@pytest.mark.parametrize(("error", "raised"), [
    ("nixlBackendError", PeerGone), ("nixlRemoteDisconnectError", PeerGone), ("nixlNotAllowedError", StaleEndpoint),
    ("nixlNotFoundError", StaleEndpoint), ("nixlInvalidParamError", BadEndpoint), ("nixlMismatchError", BadEndpoint),
])  # fmt: skip
def test_a_peer_that_the_library_refuses_is_not_connected(world: World, error: str, raised: type[Exception]) -> None:
    world.writer.disconnect(world.peer)
    world.library.refuses["add_remote_agent"] = error
    with pytest.raises(raised, match=r"\br\b"):
        world.writer.connect(world.reader.endpoint())
    with pytest.raises(StaleEndpoint, match="not connected"):
        world.writer.remote(world.peer, 0)
    world.library.refuses.clear()
    assert world.writer.connect(world.reader.endpoint()) == world.peer


def test_what_the_metadata_of_another_release_says_is_asked_of_the_library(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be read before; so whom it is of is looked at afterwards."""
    NixlTransport().close()
    assert "cannot be checked" not in caplog.text
    library.form = lambda *about: b"a new form: " + metadata(*about)
    world, other = World(library), NixlTransport("other")
    assert "a peer's metadata reaches NIXL unread" in caplog.text
    told, theirs = (decode(each.endpoint(), "nixl") for each in (world.reader, other))
    world.writer.disconnect(world.peer)
    with pytest.raises(BadEndpoint, match="of agent 'other'"):
        world.writer.connect(encode(replace(told, blob=theirs.blob)))
    assert library.agents["w"].known == {}
    assert world.writer.connect(encode(told)) == "r"
    assert world.writer.connect(encode(theirs)) == "other"
    with pytest.raises(BadEndpoint, match="of agent 'other'"):
        world.writer.connect(encode(replace(told, serial=told.serial + 1, blob=theirs.blob)))
    assert set(library.agents["w"].known) == {"r", "other"}, "a forged endpoint ends no other peer's link"


def test_the_name_of_an_agent_is_text_or_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Agent.add_remote_agent
    monkeypatch.setattr(Agent, "add_remote_agent", lambda *about: add(*about).decode())
    world.writer.disconnect(world.peer)
    assert world.writer.connect(world.reader.endpoint()) == "r"


@pytest.mark.parametrize("willing", [True, False])
def test_a_peer_is_forgotten_whatever_the_agent_says(library: Library, willing: bool) -> None:
    world = World(library)
    if not willing:  # it has lost it already, and says so
        library.agents["w"].known.clear()
        library.agents["w"].remove_remote_agent = _refusing(library)  # type: ignore[method-assign]
    world.writer.disconnect(world.peer)
    assert library.agents["w"].known == {}
    world.writer.close()


def _refusing(library: Library) -> Any:
    def refuse(_: object) -> None:
        raise library.errors["nixlNotFoundError"]

    return refuse


class Maps:
    """The peers' mapped memory as the script has it."""

    def __init__(self) -> None:
        self.opened: list[tuple[Any, ...]] = []
        self.closed: list[str] = []

    def open(self, peer: PeerId, regions: Any, device: int) -> None:
        self.opened.append((peer, [(region.share, region.gpu) for region in regions], device))

    def of(self, peer: PeerId) -> dict[int, int]:
        return {0: len(peer)}

    def apart(self, peer: PeerId) -> bool:
        return peer == "r"

    def elsewhere(self, peer: PeerId) -> bool:
        return peer == "r"

    def why_not(self, peer: PeerId) -> str:
        return f"why not {peer}"

    def close(self, peer: PeerId) -> None:
        self.closed.append(peer)

    def close_all(self) -> None:
        self.closed.append("all")


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nixl, "DeviceMaps", Maps)
    monkeypatch.setattr(nixl, "share", lambda region: b"share" if region.kind == "VRAM" else b"")
    monkeypatch.setattr(nixl, "uuid_of", lambda device: b"device %d" % device)


@pytest.mark.usefixtures("mapped")
def test_peers_memory_is_mapped_for_whom_has_device_memory_himself(library: Library) -> None:
    world = World(library)
    maps: Any = world.writer._maps
    assert maps.opened == [], "no device, no kernel"
    both = [world.writer.register(1 << 40, 64, "VRAM", 3), world.writer.register(1 << 41, 64, "VRAM", 2)]
    theirs = world.reader.register(1 << 42, 64, "VRAM", 1)
    world.writer.connect(world.reader.endpoint())
    assert maps.opened == [("r", [(b"", b""), (b"share", b"device 1")], 3)] and world.writer.apart(world.peer)
    assert world.writer.elsewhere(world.peer)
    assert (world.writer.maps(world.peer), world.writer.unmapped(world.peer)) == ({0: 1}, "why not r")
    world.reader.deregister(theirs)
    assert [entry.share for entry in decode(world.reader.endpoint(), "nixl").regions] == [b""]
    for region in both:
        world.writer.deregister(region)
    world.writer.disconnect(world.peer)
    world.writer.close()
    assert maps.closed == ["r", "all"]


@pytest.mark.usefixtures("mapped")
def test_memory_that_a_kernel_stores_to_stays_mapped_when_all_else_ends(world: World) -> None:
    world.writer.run(world.peer, lambda: SimpleNamespace(done=lambda: False), ())
    world.writer.close(drain_s=0.0)
    assert cast("Any", world.writer._maps).closed == []


@pytest.mark.usefixtures("mapped")
def test_who_wants_no_maps_has_none_and_tells_no_handles(library: Library) -> None:
    world = World(library, maps=False)
    region = world.writer.register(1 << 40, 64, "VRAM", 3)
    world.reader.register(1 << 42, 64, "VRAM", 1)
    world.writer.connect(world.reader.endpoint())
    assert (world.writer.maps(world.peer), world.writer.unmapped(world.peer)) == (None, "")
    assert world.writer.apart(world.peer) is None and not world.writer.elsewhere(world.peer)
    assert [entry.share for entry in decode(world.writer.endpoint(), "nixl").regions] == [b"", b""]
    world.writer.deregister(region)
    world.writer.disconnect(world.peer)
    world.writer.close()


# -- warming


def test_warming_is_a_write_of_nothing_between_memory_of_one_kind(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(library)
    far = world.reader.register(1 << 42, 64, "VRAM", 1)
    world.reader.deregister(world.reader._table.regions()[0])
    world.writer.connect(world.reader.endpoint())
    assert not world.writer.warm(world.peer), "host memory here, device memory there"
    assert not library.called("createXferReq")
    world.writer.register(1 << 40, 64, "VRAM", 3)
    made, agent = list[Any](), library.agents["w"]
    post = agent.postXferReq

    def noted(handle: int, tag: bytes) -> None:
        made.append(agent.transfers[handle])
        post(handle, tag)

    monkeypatch.setattr(agent, "postXferReq", noted)
    assert world.writer.warm(world.peer)
    assert [(each.near.rows, each.far.rows, each.tag) for each in made] == [
        ([[1 << 40, 0, 3]], [[far.addr, 0, 1]], b"")
    ]
    assert not world.transfers and not world.writer.busy() and world.reader.poll() == []


def test_there_is_nothing_to_warm_with_where_one_side_has_no_memory(world: World) -> None:
    other = NixlTransport("empty")
    assert not other.warm(other.connect(world.reader.endpoint()))
    assert not world.writer.warm(world.writer.connect(other.endpoint()))


def test_warming_that_is_not_over_in_time_is_left_to_the_owner(world: World) -> None:
    world.library.stands = True
    assert not world.writer.warm(world.peer, 0.0)
    assert world.writer.busy() and len(world.transfers) == 1
    with pytest.raises(Busy):
        world.writer.disconnect(world.peer)
    with pytest.raises(Busy):
        world.writer.deregister(world.region)
    assert world.writer.poll() == [] and world.writer.busy()
    world.library.stands = False
    assert world.writer.poll() == [] and not world.writer.busy() and not world.transfers
    world.writer.disconnect(world.peer)


@pytest.mark.parametrize("call", ["createXferReq", "postXferReq", "getXferStatus"])
def test_warming_that_fails_says_so_and_the_owner_learns_of_a_lost_peer(world: World, call: str) -> None:
    world.library.refuses[call] = "nixlRemoteDisconnectError"
    assert not world.writer.warm(world.peer, 1.0)
    assert len(world.library.called("getXferStatus")) == (call == "getXferStatus"), "what has failed is asked once"
    assert world.told() == ([] if call == "createXferReq" else [world.peer])
    assert not world.writer.busy() and not world.transfers


def test_who_is_lost_is_not_warmed(world: World) -> None:
    world.library.refuses["getXferStatus"] = "nixlRemoteDisconnectError"
    world.write()
    world.writer.poll()
    world.library.refuses.clear()
    assert not world.writer.warm(world.peer) and not world.writer.busy()


def test_warming_ends_with_its_transport(world: World) -> None:
    world.library.stands = True
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(world.writer.warm(world.peer, 60.0)))
    thread.start()
    wait(lambda: world.library.called("getXferStatus"), "warming to begin")
    world.writer.close(drain_s=0.0)
    assert not world.library.called("remove_remote_agent"), "its agent is in another thread's hands"
    thread.join(5.0)
    assert answers == [False]


# -- tags alone


def test_a_tag_alone_arrives_or_it_is_said_that_it_cannot(world: World) -> None:
    for tag in (b"word", b"x" * MAX_TAG):
        assert world.writer.tell(world.peer, tag) is True
        assert world.reader.poll() == [Arrived(PeerId("w"), tag)]
    for peer, tag in ((PeerId("nobody"), b"word"), (world.peer, b""), (world.peer, b"x" * (MAX_TAG + 1))):
        assert world.writer.tell(peer, tag) is False
    world.library.refuses["genNotif"] = "nixlBackendError"
    assert world.writer.tell(world.peer, b"word") is False
    world.library.refuses = {"getXferStatus": "nixlBackendError"}
    world.write()
    world.writer.poll()
    assert world.writer.tell(world.peer, b"word") is False, "it is lost"
    assert world.reader.poll() == []


# -- writes


@pytest.mark.parametrize("error", KINDS)
def test_a_write_that_fails_says_of_what_kind_its_fault_is(world: World, error: str) -> None:
    kind = KINDS[error]
    for call in ("postXferReq", "getXferStatus"):
        world.library.refuses = {call: error}
        handles = [world.write(), world.write()]
        lost = [world.peer] * (kind == "peer_lost")
        assert world.told() == [*((handle, kind, True) for handle in handles), *lost]
        assert not world.writer.busy() and not world.transfers
        world.library.refuses.clear()
        if lost:
            world.writer.disconnect(world.peer)
            world.writer.connect(world.reader.endpoint())
    handle = world.write()
    assert world.writer.poll() == [Completed(handle)] and not world.transfers


def test_why_a_write_was_not_posted_is_told_even_if_the_library_has_forgotten_it(world: World) -> None:
    world.library.forgets = True
    world.library.refuses["postXferReq"] = "nixlRemoteDisconnectError"
    handle = world.write()
    assert world.told() == [(handle, "peer_lost", True), world.peer] and not world.transfers


@pytest.mark.parametrize(("error", "raised"), [("nixlNotFoundError", StaleEndpoint), ("nixlMismatchError", UsageError)])
def test_a_write_that_the_library_refuses_is_none(world: World, error: str, raised: type[Exception]) -> None:
    world.library.refuses["createXferReq"] = error
    for call in (world.write, lambda: world.writer.prepare(world.peer, world.parts(), b"")):
        with pytest.raises(raised, match="NIXL refuses the write to r"):
            call()
    assert not world.writer.busy() and world.writer.poll() == []


def test_a_write_that_cannot_be_made_for_its_peer_is_gone_fails_later(world: World) -> None:
    world.library.refuses["createXferReq"] = "nixlRemoteDisconnectError"
    prepared, spare = (world.writer.prepare(world.peer, world.parts(), b"") for _ in range(2))
    world.writer.drop(spare)
    assert len(world.library.called("createXferReq")) == 2, "it is known by then, and not tried again"
    first, second = world.writer.post(prepared), world.write()
    assert len(world.library.called("createXferReq")) == 3
    assert world.told() == [(first, "peer_lost", True), (second, "peer_lost", True), world.peer]
    assert not world.writer.busy() and not world.library.called("releaseXferReq")
    assert len(world.library.called("createXferReq")) == 3


def test_a_prepared_write_is_the_transfer_that_is_posted(world: World) -> None:
    prepared, spare = (world.writer.prepare(world.peer, world.parts(), tag) for tag in (b"kept", b"spare"))
    kept, _ = world.transfers.values()
    world.writer.drop(spare)
    assert list(world.transfers.values()) == [kept] and not kept.posted
    world.library.stands = True
    handle = world.writer.post(prepared)
    world.writer.drop(prepared)
    assert kept.posted and list(world.transfers.values()) == [kept], "it is not a prepared write any more"
    world.library.stands = False
    assert world.writer.poll() == [Completed(handle)] and not world.transfers
    assert world.reader.poll() == [Arrived(PeerId("w"), b"kept")]


def test_what_cannot_be_released_is_over_all_the_same(world: World) -> None:
    world.library.refuses["releaseXferReq"] = "nixlBackendError"
    handle = world.write()
    assert world.writer.poll() == [Completed(handle)] and not world.writer.busy()


def test_an_agent_that_is_broken_reaches_nobody(world: World) -> None:
    other = NixlTransport("other")
    world.writer.connect(other.endpoint())
    world.library.refuses["getNotifs"] = "nixlBackendError"
    assert sorted(world.told()) == ["other", "r"]
    assert world.told() == []


# -- pages by number


def pages_of(world: World) -> PageLists:
    piece = PagePiece(world.region, world.writer.remote(world.peer, 0), 0, 0, 64, 64, 64)
    return world.writer.page_lists(world.peer, [piece])


def test_lists_are_prepared_once_a_link_and_writes_are_made_of_indices(world: World) -> None:
    lists, pages = pages_of(world), np.array([3, 1])
    world.near[:] = np.arange(SIZE) // 64
    for turn in range(3):
        handle = world.writer.write_pages(lists, pages, pages + turn, b"")
        assert world.told() == [Completed(handle)]
    assert len(world.library.called("prepXferDlist")) == 2 and len(world.library.called("makeXferReq")) == 3
    assert [int(world.far[64 * page]) for page in range(7)] == [0, 1, 1, 1, 3, 3, 0]
    world.writer.disconnect(world.peer)
    agent = world.library.agents["w"]
    assert not agent.lists and not agent.transfers, "nothing of the link is left"


def test_the_indices_of_each_side_count_that_side_s_pages(world: World) -> None:
    """Our pages are 128 bytes apart and theirs 64: of ours half as many precede the second piece's."""
    theirs = world.writer.remote(world.peer, 0)
    pieces = [PagePiece(world.region, theirs, at, at, 128, 64, 32) for at in (0, 32)]
    lists = world.writer.page_lists(world.peer, pieces)
    world.near[:] = np.arange(SIZE) // 32
    handle = world.writer.write_pages(lists, np.array([1, 2]), np.array([3, 5]), b"")
    assert world.told() == [Completed(handle)] and 2 * lists.near == lists.far
    assert [int(world.far[32 * half]) for half in (6, 7, 10, 11)] == [4, 5, 8, 9]
    assert np.count_nonzero(world.far) == 4 * 32


def test_lists_go_with_the_region_that_they_read(world: World) -> None:
    pages_of(world)
    agent = world.library.agents["w"]
    assert len(agent.lists) == 2
    world.writer.deregister(world.region)
    assert not agent.lists and not world.writer._links.known(world.peer).lists


@pytest.mark.parametrize("call", [1, 2])
def test_what_was_prepared_of_lists_that_are_refused_is_released(
    world: World, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    agent, calls = world.library.agents["w"], list[str]()
    prep = agent.prepXferDlist

    def refuse(whose: str, *rest: Any) -> int:
        calls.append(whose)
        if len(calls) == call:
            raise world.library.errors["nixlInvalidParamError"]("planted")
        return prep(whose, *rest)

    monkeypatch.setattr(agent, "prepXferDlist", refuse)
    with pytest.raises(UsageError, match="refuses the pages"):
        pages_of(world)
    assert not agent.lists and not world.writer._links.known(world.peer).lists


@pytest.mark.parametrize("error", ["nixlNotFoundError", "nixlRemoteDisconnectError", ""])
def test_where_the_library_has_no_lists_the_rows_are_written(
    world: World, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    def refuse(*_: Any) -> int:
        raise world.library.errors[error]("planted") if error else TypeError("no such call")

    monkeypatch.setattr(world.library.agents["w"], "prepXferDlist", refuse)
    if error == "nixlNotFoundError":
        with pytest.raises(StaleEndpoint, match="refuses the pages"):
            pages_of(world)
        return
    handle = world.writer.write_pages(pages_of(world), np.array([1]), np.array([2]), b"")
    assert world.told() == [Completed(handle)] and not world.library.called("makeXferReq")
    assert world.far[128:192].tolist() == [7] * 64


def test_lists_of_more_entries_than_indices_have_bits_for_are_not_prepared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nixl, "MAX_INDEX", SIZE // 64 - 1)
    assert pages_of(world).raw is None
    monkeypatch.setattr(nixl, "MAX_INDEX", SIZE // 64)
    assert pages_of(world).raw is not None
    theirs = world.writer.remote(world.peer, 0)
    for steps in ((64, 128), (128, 64)):
        lists = world.writer.page_lists(world.peer, [PagePiece(world.region, theirs, 0, 0, *steps, 64)])
        assert lists.raw is not None
        monkeypatch.setattr(nixl, "MAX_INDEX", SIZE // 64 - 1)
        lists = world.writer.page_lists(world.peer, [PagePiece(world.region, theirs, 0, 0, *steps, 64)])
        assert lists.raw is None, "the side with more pages counts"
        monkeypatch.setattr(nixl, "MAX_INDEX", SIZE // 64)


def test_pages_to_a_lost_peer_fail_at_once_and_prepare_nothing(world: World) -> None:
    lists = pages_of(world)
    world.library.refuses["postXferReq"] = "nixlRemoteDisconnectError"
    world.write()
    world.told()
    world.reader.register(np.zeros(64, np.uint8).ctypes.data, 64)
    handle = world.writer.write_pages(lists, np.array([1]), np.array([2]), b"")
    assert world.told() == [(handle, "peer_lost", True)]
    assert len(world.library.called("prepXferDlist")) == 2
