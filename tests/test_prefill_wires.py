"""A prefill rank's connections of the transport: whose they are, and when one is taken down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from kvproto.io.transports.base import Busy, Fault, PeerId, PeerLost
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import Heartbeat
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.handler_stage import HandlerStage

A, B = PeerId("a"), PeerId("b")


class Wires:
    """A rank's links and connections; a removal is recorded, unless the transport is busy with it."""

    def __init__(self, stage: HandlerStage) -> None:
        _, self.loop, _, self.data = inside(stage.prefills[0])
        self.data.link_peer.clear()
        # what a link costs follows from its peer: of links 2 and 3 there is a connection alone
        cast("Any", self.data)._stores = lambda _link, _peer: False
        cast("Any", self.data.rank).reach = lambda _link, _costs, mapped: None
        self.down: list[PeerId] = []
        self.left: list[PeerId] = []
        self.busy = False
        self.told: list[Any] = []
        transport = cast("Any", self.data.transport)
        transport.disconnect = self.disconnect
        self.forgotten: list[PeerId] = []
        self.data.mapped.forget = self.forgotten.append  # type: ignore[method-assign, assignment]
        self.data.prepared_writes.leave = self.left.append  # type: ignore[method-assign, assignment]
        self.loop.raise_event = self.told.append  # type: ignore[method-assign, assignment]

    def disconnect(self, peer: PeerId) -> None:
        if self.busy:
            raise Busy("something is in flight")
        self.down.append(peer)

    def do(self, *effects: Any) -> None:
        for effect in effects:
            self.loop.handlers[type(effect)](effect)


@pytest.fixture
def wires() -> Iterator[Wires]:
    stage = HandlerStage(slots=1)
    yield Wires(stage)
    stage.close()


def test_a_connection_goes_with_the_last_link_that_has_it(wires: Wires) -> None:
    wires.do(do.AdoptWire(1, A), do.AdoptWire(2, A), do.AdoptWire(1, A))
    assert wires.data.link_peer == {1: A, 2: A} and not wires.left
    wires.do(do.Disconnect(1), do.Disconnect(1))
    assert not wires.down and not wires.left
    wires.do(do.Disconnect(2))
    assert wires.down == wires.left == [A] and not wires.data.leaving


def test_a_link_that_gets_another_connection_leaves_the_former_one(wires: Wires) -> None:
    wires.do(do.AdoptWire(1, A), do.AdoptWire(1, B))
    assert wires.data.link_peer == {1: B} and wires.down == wires.left == [A]


def test_a_link_that_is_told_of_its_connection_again_keeps_it(wires: Wires) -> None:
    wires.do(do.AdoptWire(1, A), do.AdoptWire(1, A))
    assert wires.data.link_peer == {1: A} and not wires.down and not wires.left


def test_a_connection_that_nobody_has_adopted_goes_at_once(wires: Wires) -> None:
    wires.do(do.AdoptWire(1, A), do.DropWire(A), do.DropWire(B))
    assert wires.down == [B]


def test_one_that_is_busy_goes_when_it_is_idle_unless_it_is_adopted_again(wires: Wires) -> None:
    wires.busy = True
    wires.do(do.DropWire(A), do.DropWire(B))
    assert wires.data.leaving == {A, B} and wires.left == [A, B] and not wires.forgotten
    wires.data.poll()
    wires.do(do.AdoptWire(1, B))
    wires.busy = False
    wires.data.poll()
    assert wires.down == wires.forgotten == [A] and not wires.data.leaving
    wires.data.poll()
    assert wires.down == [A]


def test_no_connection_goes_while_one_is_being_made(wires: Wires) -> None:
    busy = True
    wires.data.wiring = lambda: busy
    wires.do(do.DropWire(A), do.DropWire(B))
    wires.data.poll()
    assert not wires.down and wires.data.leaving == {A, B}
    wires.do(do.AdoptWire(1, A))  # the call that was being wired up
    busy = False
    wires.data.poll()
    assert wires.down == [B] and wires.data.link_peer == {1: A}


def test_of_a_peer_that_is_left_no_time_of_a_nudge_stays(wires: Wires) -> None:
    wires.data._nudged |= {A: 1.0, B: 2.0}
    wires.data._deaf |= {A, B}
    wires.do(do.DropWire(A))
    assert wires.data._nudged == {B: 2.0} and wires.data._deaf == {B}


def test_a_peer_whom_rings_do_not_reach_for_now_is_woken_by_a_heartbeat_and_rung_again(
    wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, sent = wires.data, list[tuple[int, Any]]()
    (link,) = data.rank.peers
    data.link_peer[link] = A
    answers = [True, None, None, True, False]
    monkeypatch.setattr(data.bell, "ring", lambda peer: answers.pop(0) if peer == A else False)
    data.loop.connections.send = lambda to, *about: sent.append((to, about[-1]))  # type: ignore[method-assign]
    for beats in (0, 1, 2, 2, 3, 4):
        data._nudged[A] = -1.0  # longer ago than nudges are apart
        data.nudge(A)
        assert sent == [(link, Heartbeat())] * beats
        assert data._deaf == ({A} if not answers else set())
    assert not answers, "one that has no bell is not rung again"


def test_each_link_of_a_lost_peer_is_told_and_no_other(wires: Wires) -> None:
    wires.do(do.AdoptWire(1, A), do.AdoptWire(2, B), do.AdoptWire(3, A))
    transport = cast("Any", wires.data.transport)
    transport.poll = lambda: [PeerLost(A, Fault("backend", "planted"))]
    assert wires.data.poll()
    assert wires.told == [ev.TransportLost(1), ev.TransportLost(3)]
    assert wires.data.link_peer == {1: A, 2: B, 3: A}, "their machines say what becomes of it"


def test_what_is_known_of_a_link_goes_with_it(wires: Wires) -> None:
    data, (link,) = wires.data, list(wires.data.rank.peers)
    forgotten = list[int]()
    data.page_writes.forget = forgotten.append  # type: ignore[method-assign, assignment]
    data.learn(link)
    wires.do(do.AdoptWire(link, A), do.AdoptWire(link, B), do.Disconnect(link), do.ForgetLink(link))
    assert forgotten == [link] * 4, "its rows may lie elsewhere, its connection is another one, or none, and it is gone"
    assert not wires.loop.connections.peer_of
