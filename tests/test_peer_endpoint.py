"""Peer endpoints: both directions at once over one transport, one registration and one thread.

Real endpoints, sockets and bytes; over NIXL between processes in `test_peer_processes`.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support.peers import Peers
from support.stories import layout

from kvproto.endpoint import peer_endpoint
from kvproto.endpoint.peer_endpoint import PeerEndpoint
from kvproto.endpoint.validation import make_control
from kvproto.errors import ArgumentError
from kvproto.io.clock import ManualClock
from kvproto.io.control.control import LOOPBACK
from kvproto.io.control.keys import Keys
from kvproto.io.kernels.torch import TorchKernels
from kvproto.io.transports.base import StaleEndpoint
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol.states import Cause
from kvproto.room import Room
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import SMALL
from kvproto.verify.testing.pools import noise, tokens_of

TOKENS = 30
#: ranks of the two groups
SHAPES = ((1, 1), (2, 1), (1, 2))


@pytest.fixture
def peers() -> Iterator[Peers]:
    with Peers(layout(1), layout(1)) as made:
        yield made


def test_what_an_engine_gives_reaches_both_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, listening = list[dict[str, Any]](), list[Any]()

    def noting(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*about: Any, **named: Any) -> Any:
            asked.append(named)
            return make(*about, **{**named, "keys": None})

        return made

    def listen(bind: str, keys: object, timing: object, *, insecure: bool) -> Any:
        listening.extend((bind, keys, timing, insecure))
        return make_control(bind, None, SMALL.timing, insecure=insecure)

    for name in ("DecodeEndpoint", "_PrefillRole"):
        monkeypatch.setattr(peer_endpoint, name, noting(getattr(peer_endpoint, name)))
    monkeypatch.setattr(peer_endpoint, "make_control", listen)
    monkeypatch.setattr(Keys, "load", lambda path: f"read from {path}")
    one, given = layout(1), dict[str, Any](
        chunk_tokens=16, group=9, settings=SMALL, kernels=TorchKernels(), clock=ManualClock(7.0), incarnation=5,
        staging="pinned", digests=True, insecure=True,
    )  # fmt: skip
    with PeerEndpoint(one, 0, noise(one, 0, 8, 1), MemoryTransport(Fabric()), keys="a file", **given) as made:
        wanted = {**given, "keys": "read from a file"}
        assert asked == [wanted, wanted]
        assert listening == [LOOPBACK, "read from a file", SMALL.timing, True]
    assert made.closed


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("route", ["staged", "pages", "mapped"])
def test_rooms_of_both_directions_arrive_at_the_same_time(shape: tuple[int, int], route: str) -> None:
    maps = route == "mapped"
    with Peers(*map(layout, shape), route="staged" if route == "staged" else "pages", maps=maps) as peers:
        rooms = [(each, each.open(TOKENS - size)) for size in range(3) for each in peers.both]
        for each, room in rooms:
            each.produce(room)
        peers.there.pump(lambda: all(each.over(room) for each, room in rooms))
        for each in peers.both:
            assert {cause for one, room in rooms if one is each for cause in each.causes(room)} == {Cause.NONE}
            each.check(*each.tables)
        for each in peers.both:
            each.rest()
            assert not [text for endpoint in each.endpoints for text in endpoint.reports()]


def test_one_room_number_is_two_rooms(peers: Peers) -> None:
    there, back = (each.open(TOKENS, room_id=7) for each in peers.both)
    assert there == back
    peers.there.decodes[0].abort(there)
    peers.back.finish(back)
    peers.there.pump(lambda: peers.there.over(there))
    assert (peers.there.causes(there), peers.back.causes(back)) == ({Cause.DECODE_ABORTED}, {Cause.NONE})
    peers.back.check(back)


def test_memory_is_registered_once_and_peers_know_no_slot() -> None:
    with Peers(layout(1), layout(1), route="pages") as peers:
        (near, far), ring = peers.all, peers.settings.ring_bytes
        data, known = inside(near.prefill).data, inside(far.prefill).data.transport
        transport: Any = data.transport
        planes, slots = len(near.prefill.pool.k) + len(near.prefill.pool.v), data.regions[0].index
        assert len(transport._table.regions()) == 2 + planes
        assert data.memory.pool == inside(near.decode).data.memory.pool
        assert known.remote(data.transport.instance, 0).nbytes == ring
        with pytest.raises(StaleEndpoint, match=f"no region {slots}"):
            known.remote(data.transport.instance, slots)


def test_what_was_taken_is_sent_back(peers: Peers) -> None:
    """As a prompt's KV that the other engine has evicted meanwhile."""
    near, far = (peer.prefill.pool for peer in peers.all)
    there = peers.there.open(TOKENS)
    peers.there.finish(there)
    mine, theirs, *_ = peers.there.tables[there]
    sent = tokens_of(near, mine)
    for tensor in (*near.k, *near.v):
        tensor[mine] = 0
    back = peers.back.name(TOKENS)
    peers.back.tables[back] = theirs, mine, TOKENS, 0
    peers.back.open_decode(back)
    peers.back.open_prefill(back)
    peers.back.finish(back)
    for was, taken, now in zip(sent, tokens_of(far, theirs), tokens_of(near, mine), strict=True):
        assert torch.equal(was[:TOKENS], taken[:TOKENS]) and torch.equal(was[:TOKENS], now[:TOKENS])


def test_one_thread_runs_both_roles_and_one_wait_has_the_news_of_both(peers: Peers) -> None:
    before = threading.active_count()
    for peer in peers.all:
        peer.start()
    assert threading.active_count() == before + 2
    for each in peers.both:
        room = each.open(TOKENS)
        each.produce(room)
        for group in (1, 2):
            (peer,), deadline = peers.groups[group], time.monotonic() + 10.0
            mine = peer.prefill if each.numbers[0] == group else peer.decode
            while not mine.released():
                mine.finished()
                assert time.monotonic() < deadline and peer.wait_news(5.0)
        assert not any(peer.wait_news(0.0) for peer in peers.all)


def test_news_of_each_role_wake_the_waiter_for_both(peers: Peers) -> None:
    near = peers.all[0]
    for role in (near.prefill, near.decode):
        assert not near.wait_news(0) and not select.select([near], [], [], 0)[0]
        role._news.wake()
        assert select.select([near], [], [], 0)[0] == [near]


def test_news_of_one_role_are_not_slept_through(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    near, slept = peers.all[0], list[float | None]()
    monkeypatch.setattr(near._alarm, "sleep", slept.append)
    for role in (near.prefill, near.decode):
        assert not near.wait_news(0.5) and slept.pop() == 0.5
        role._news.releases.append(Room(1))
        assert near.wait_news(0.5) and not slept
        role._news.releases.clear()
    for state, told in (("closed", False), ("broken", True)):
        with monkeypatch.context() as patch:
            patch.setattr(near._loop, state, RuntimeError("planted"))
            assert near.wait_news(0.5) is told and not slept


def test_what_drives_a_peer_drives_its_joined_loops(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    near, asked = peers.all[0], list[object]()
    monkeypatch.setattr(near._loop, "wait", asked.append)
    monkeypatch.setattr(near._loop, "adopt", lambda: asked.append("adopt"))
    near.wait(0.25)
    near.wait()
    near.adopt()
    assert asked == [0.25, 1.0, "adopt"] and near.next_deadline == near._loop.due


def test_a_peer_that_has_nothing_to_do_sleeps_and_wakes_for_each_role(peers: Peers) -> None:
    peers.there.settle()
    near = peers.all[0]
    loops = [inside(role).loop for role in (near.prefill, near.decode)]
    for peer in peers.all:
        peer.start()
    time.sleep(0.3)
    before = [loop.turns for loop in loops]
    time.sleep(0.5)
    assert all(loop.turns - turns < 100 for loop, turns in zip(loops, before, strict=True))
    for role in (near.prefill, near.decode):
        took = list[float]()
        for _ in range(5):  # a loop that nothing woke would look again after a quarter of a second each time
            asked, called = time.monotonic(), threading.Event()
            inside(role).loop.call(called.set)
            assert called.wait(5.0)
            took.append(time.monotonic() - asked)
        assert min(took) < 0.1


def test_a_pool_stays_until_the_endpoint_is_closed(peers: Peers) -> None:
    for role in (peers.all[0].prefill, peers.all[0].decode):
        with pytest.raises(ArgumentError, match="a peer endpoint keeps its pool until it is closed"):
            role.detach()
        with pytest.raises(ArgumentError, match="a peer endpoint keeps its pool until it is closed"):
            role.attach(role.pool)


def test_withdrawn_tokens_are_sent_anew_in_both_directions(peers: Peers) -> None:
    rooms = [(each, each.open(TOKENS)) for each in peers.both]
    for each, room in rooms:
        each.produce(room, TOKENS // 2, aux=None)
    peers.there.settle()
    for each, room in rooms:
        each.prefills[0].withdraw(room, 8)
    peers.there.pump(lambda: all(each.prefills[0].withdrawn(room) for each, room in rooms))
    for each, room in rooms:
        ours = each.tables[room][0]
        each.prefills[0].produced(room, TOKENS, pages=ours[2:])
        each.prefills[0].aux(room, b"aux")
    peers.there.pump(lambda: all(each.over(room) for each, room in rooms))
    for each, room in rooms:
        assert each.causes(room) == {Cause.NONE}
        each.check(room)


def test_metrics_of_each_role_are_those_of_an_endpoint(peers: Peers) -> None:
    pytest.importorskip("prometheus_client")
    from kvproto.metrics.exporter import MetricsExporter

    near = peers.all[0]
    peers.there.finish(peers.there.open(TOKENS))
    near.start()
    families = {family.name: family for family in MetricsExporter(near.prefill, near.decode, timeout=10.0).collect()}
    up = {(sample.labels["side"], sample.labels["group"]): sample.value for sample in families["kvproto_up"].samples}
    assert up == {("prefill", "1"): 1.0, ("decode", "1"): 1.0}
    ended = {sample.labels["side"] for sample in families["kvproto_outcomes"].samples if sample.value}
    assert ended == {"prefill"}, "the room was sent from here"
