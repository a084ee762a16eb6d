"""Peer endpoints whose constructors, calls, peers and ends fail: a role does not pay for the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.peers import CHUNK_TOKENS, PAGES, Peers
from support.stories import QUICK, layout
from support.stubborn_transport import StubbornTransport

from kvproto.endpoint import peer_endpoint
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.peer_endpoint import PeerEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.errors import ArgumentError, EndpointError
from kvproto.io.control.control import ControlError
from kvproto.io.transports.base import TransportError, UsageError
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.loop.event_loop import DEAF
from kvproto.protocol.states import Cause
from kvproto.room import Room, Status
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import SMALL, TICK_S
from kvproto.verify.testing.pools import noise

TOKENS = 30


@pytest.fixture
def peers() -> Iterator[Peers]:
    """One rank and one rank, whose timers are short."""
    with Peers(layout(1), layout(1), settings=Settings(timing=QUICK, ring_bytes=1 << 20, slot_bytes=1 << 18)) as made:
        yield made


def make(transport: Any, **named: Any) -> PeerEndpoint:
    return PeerEndpoint(
        layout(1), 0, noise(layout(1), 0, PAGES, 1), transport, **{"chunk_tokens": CHUNK_TOKENS, "group": 1,
        "settings": SMALL, **named},
    )  # fmt: skip


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --------------------------------------------------------------------------------------------- constructors
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
def test_whatever_call_of_the_transport_fails_all_memory_and_every_socket_is_taken_back() -> None:
    refused, notes, held, threads = 0, list[str](), descriptors(), threading.active_count()
    planes = 2 * layout(1).layers
    for number in range(1, 20):
        transport = StubbornTransport(Fabric(auto=True))
        transport.refuses = number
        try:
            made = make(transport)
        except UsageError as error:
            refused += 1
            notes += getattr(error, "__notes__", ())
            assert transport._table.regions() == () and not transport.fabric._memory[transport.instance]
            assert (descriptors(), threading.active_count()) == (held, threads)
            transport.close()
            continue
        made.close()
        break
    assert refused == 1 + planes + 1 + 1 + 1, "ring, planes, the description for peers; slots, and whether they lift"
    assert not notes, "each region is taken back once"


def test_an_address_that_cannot_be_had_leaves_the_transport_as_it_was() -> None:
    with make(MemoryTransport(Fabric(auto=True))) as first:
        transport, held = MemoryTransport(Fabric(auto=True)), descriptors()
        for _ in range(2):
            with pytest.raises(ControlError):
                make(transport, bind=first.address)
            assert transport._table.regions() == () and descriptors() == held
        with make(transport) as made:
            assert made.address != first.address


def test_a_control_plane_that_listens_is_closed_when_a_role_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **_named: object) -> None:
        raise ArgumentError("planted")

    held = descriptors()
    for role in ("DecodeEndpoint", "_PrefillRole"):
        with monkeypatch.context() as patch:
            patch.setattr(peer_endpoint, role, refuse)
            with pytest.raises(ArgumentError, match="planted"):
                make(MemoryTransport(Fabric(auto=True)))
        assert descriptors() == held


def test_a_transport_serves_one_peer_endpoint_and_nothing_beside_it() -> None:
    transport, pool = MemoryTransport(Fabric(auto=True)), noise(layout(1), 0, PAGES, 2)
    with make(transport):
        before = transport._table.regions()
        for side in (PrefillEndpoint, DecodeEndpoint):
            with pytest.raises(ArgumentError, match="make a transport for each endpoint"):
                side(layout(1), 0, pool, transport, chunk_tokens=CHUNK_TOKENS, settings=SMALL)
        with pytest.raises(ArgumentError, match="make a transport for each endpoint"):
            make(transport)
        assert transport._table.regions() == before


# -------------------------------------------------------------------------------------- one role, the other
def test_a_goodbye_in_one_direction_is_none_in_the_other(peers: Peers) -> None:
    there, back = (each.open(TOKENS) for each in peers.both)
    peers.there.settle()
    peers.there.decodes[0].disconnect(1)
    peers.there.pump(lambda: peers.there.over(there))
    assert peers.there.causes(there) == {Cause.DISCONNECTED}
    peers.back.finish(back)
    later = peers.back.open(TOKENS)
    peers.back.finish(later)
    assert peers.back.causes(back) == peers.back.causes(later) == {Cause.NONE}
    peers.back.check(back, later)


@pytest.mark.parametrize("hangs", [0, 1])
def test_a_write_that_hangs_in_one_direction_holds_up_no_room_of_the_other(peers: Peers, hangs: int) -> None:
    bad, good = peers.both[hangs], peers.both[1 - hangs]
    peers.fabric.auto, writer = False, inside(good.prefills[0]).data.transport.instance
    room = bad.open(TOKENS)
    bad.produce(room)
    rooms = [good.open(TOKENS) for _ in range(3)]

    def moves() -> bool:
        for step in [each for each in peers.fabric.options() if each.writer == writer][:1]:
            peers.fabric.take(step)
        return good.over(*rooms)

    for each in rooms:
        good.produce(each)
    good.pump(moves)
    assert all(good.causes(each) == {Cause.NONE} for each in rooms) and not bad.over(room)
    good.check(*rooms)
    peers.fabric.auto = True
    bad.finish(room)


def test_a_deaf_role_is_raised_when_the_other_has_had_its_pass(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    near = peers.all[0]

    def deaf(_limit: int) -> None:
        raise OSError("planted")

    room = peers.there.open(TOKENS)
    monkeypatch.setattr(inside(near.decode).loop.control, "receive", deaf)
    for _ in range(DEAF):
        peers.turn()
    assert any("planted" in text for text in near.decode.reports()) and not near.prefill.reports()
    peers.there.produce(room)
    end = time.monotonic() + 10.0
    while not peers.there.over(room) and time.monotonic() < end:
        with pytest.raises(OSError, match="planted"):
            near.poll()
        if not peers.all[1].poll():
            time.sleep(TICK_S)
        peers.there.collect()
    assert peers.there.causes(room) == {Cause.NONE}
    monkeypatch.undo()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_ends_for_both_roles(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    near = peers.all[0]

    def ends() -> bool:
        raise SystemExit

    near.start()
    monkeypatch.setattr(inside(near.decode).loop, "turn", ends)
    inside(near.decode).loop.control.wake()
    assert near.wait_news(10.0)
    for role in (near.prefill, near.decode):
        with pytest.raises(EndpointError, match="the loop has stopped, by SystemExit"):
            role.finished()
    monkeypatch.undo()


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_to_close_one_role_is_to_close_both(peers: Peers, role: str) -> None:
    near, far = peers.all
    there, back = (each.open(TOKENS) for each in peers.both)
    peers.there.settle()
    far.start()
    getattr(near, role).close()
    assert near.closed and near.prefill.closed and near.decode.closed
    assert [outcome.room for each in (near.prefill, near.decode) for outcome in each.finished()] == [there, back]
    for each in (near.prefill, near.decode):
        each.released()
    assert not near.wait_news(), "it does not block, either"
    with pytest.raises(EndpointError, match="this endpoint is closed"):
        near.poll()
    near.close()
    ended = dict[Room, Cause]()
    while len(ended) < 1 or not far.prefill.released():
        assert far.wait_news(10.0)
        ended |= {outcome.room: outcome.cause for outcome in far.decode.finished()}
        far.prefill.finished()
    assert ended == {there: Cause.PREFILL_ABORTED} and far.prefill.status(back) is Status.FAILED


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_role_that_cannot_be_closed_holds_up_neither_the_other_nor_the_transport(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    made = make(transport := MemoryTransport(Fabric(auto=True)))
    role: Any = getattr(made, side)

    def refuse() -> None:
        raise TransportError("planted")

    monkeypatch.setattr(role._data, "close", refuse)
    with pytest.raises(EndpointError, match=f"its {side} role: .*planted"):
        made.close()
    with pytest.raises(UsageError, match="closed"):
        transport.register(0, 1)
    assert all(inside(each).loop.control._closed for each in (made.prefill, made.decode))


@pytest.mark.parametrize("group", [1, 2])
def test_rooms_of_both_directions_end_when_a_peer_is_killed_and_its_next_life_works(peers: Peers, group: int) -> None:
    rooms = [(each, each.open(TOKENS)) for each in peers.both]
    for each, room in rooms:
        each.produce(room, TOKENS // 2, aux=None)
    peers.there.settle()
    gone = peers.kill(group)
    peers.there.pump(lambda: all(each.over(room) for each, room in rooms), seconds=20.0)
    assert all(each.causes(room) == {Cause.LINK_LOST} for each, room in rooms)
    peers.restart(group)
    peers.there.pump(peers.ready)
    for each in peers.both:
        each.tables.clear()
        room = each.open(TOKENS)
        each.finish(room)
        assert each.causes(room) == {Cause.NONE}
        each.rest()
        if each.numbers[1] == group:  # of the pool that is left, half a room has been written
            each.check(room)
    with pytest.raises(EndpointError):  # its control planes were closed
        gone.close()
