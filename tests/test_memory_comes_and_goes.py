"""Memory that comes and goes: an endpoint that runs gives its pool back, and goes on with another one.

Real endpoints, sockets and bytes; over NIXL and Mooncake between processes in
`test_memory_comes_and_goes_processes`.
"""

from __future__ import annotations

import gc
import itertools
import time
import weakref
from collections.abc import Iterator
from threading import Event as Flag
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from support.stories import layout

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import LINGER_S, Endpoint
from kvproto.endpoint.endpoint_events import EndpointEvent, PeerLeft, PeerUp, PoolAttached, PoolDetached
from kvproto.endpoint.pool_attachment import ATTACHES
from kvproto.errors import ArgumentError
from kvproto.fsm.vocabulary import Event
from kvproto.io.clock import ManualClock
from kvproto.io.kernels.base import Pool
from kvproto.io.transports.base import MemoryRegion, TransportError, UsageError
from kvproto.io.transports.memory import MemoryTransport
from kvproto.metrics.metrics import measure
from kvproto.protocol.events import EngineAborted
from kvproto.protocol.states import Cause, PLink
from kvproto.settings import Route
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import SMALL, Pair
from kvproto.verify.testing.pools import noise

TOKENS = 30


class Sleepers(Pair):
    """A pair whose engines detach and attach pools."""

    def fresh(self, endpoint: Endpoint) -> Pool:
        """A new pool of this endpoint's rank, of the noise that its first one had."""
        rank = inside(endpoint).rank
        return noise(rank.layout, rank.index, self.pages, 1 if rank.side == "prefill" else 2)

    def sleep(self, *endpoints: Endpoint) -> None:
        """Detach these, and wait until they are."""
        for endpoint in endpoints:
            endpoint.detach()
        self.pump(lambda: all(endpoint.detached for endpoint in endpoints))

    def wake(self, *endpoints: Endpoint) -> None:
        """Attach a new pool to each of these, and wait until every link is up."""
        for endpoint in endpoints:
            endpoint.attach(self.fresh(endpoint))
            if endpoint in self.decodes:  # its pool knows nothing of earlier rooms
                self.tables.clear()
        self.before = [self.fresh(endpoint) for endpoint in self.decodes]
        self.pump(lambda: all(endpoint.ready() for endpoint in self.decodes))

    def carries(self) -> None:
        """A room arrives, bit for bit, in pools that hold nothing else."""
        room = self.open(TOKENS)
        self.finish(room)
        assert self.causes(room) == {Cause.NONE}
        self.check(*self.tables)
        self.rest()


@pytest.fixture(params=["staged", "pages", "mapped"])
def pair(request: pytest.FixtureRequest) -> Iterator[Sleepers]:
    """Two ranks to two ranks, by one route."""
    route: Route = "pages" if request.param == "mapped" else request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Sleepers, "transport", lambda it: MemoryTransport(it.fabric, maps=request.param == "mapped"), raising=False
        )
        with Sleepers(layout(2), layout(1), chunk_tokens=8, settings=replace(SMALL, route=route)) as made:
            yield made


@pytest.fixture
def one() -> Iterator[Sleepers]:
    """One rank to one rank."""
    with Sleepers(layout(1), layout(1), chunk_tokens=8) as made:
        yield made


def regions(endpoint: Endpoint) -> int:
    """Regions that this endpoint's transport has."""
    return len(inside(endpoint).data.transport._table.regions())


def peers(endpoint: Endpoint) -> list[str]:
    """Instances that this endpoint's transport is connected to."""
    return [link.peer for link in inside(endpoint).data.transport._links.all()]


@pytest.mark.parametrize("sides", ["P", "D", "PD"])
def test_a_room_arrives_in_the_pool_that_was_attached_last(pair: Sleepers, sides: str) -> None:
    who = [each for side, group in (("P", pair.prefills), ("D", pair.decodes)) if side in sides for each in group]
    for _ in range(3):
        pair.carries()
        pair.sleep(*who)
        assert not any(map(regions, who))
        assert all("is up" in text for endpoint in pair.endpoints for text in endpoint.links())
        pair.wake(*who)
    pair.carries()
    assert not [text for endpoint in pair.endpoints for text in endpoint.reports()]


def test_no_peer_is_connected_to_the_memory_that_goes(one: Sleepers) -> None:
    prefill, decode = one.prefills[0], one.decodes[0]
    left: Any = inside(decode).data.transport
    former = left.instance
    assert peers(prefill) == [former]
    one.sleep(decode)
    assert left.closed and left._table.regions() == ()
    now = inside(decode).data.transport.instance
    assert peers(prefill) == [now] and now != former


def test_a_detached_endpoint_holds_no_tensor_of_the_pool(one: Sleepers) -> None:
    one.carries()
    held = [weakref.ref(endpoint.pool.k[0]) for endpoint in one.endpoints]
    held += [weakref.ref(inside(one.prefills[0]).data.staging.wire), weakref.ref(inside(one.decodes[0]).data.ring.wire)]
    one.sleep(*one.endpoints)
    gc.collect()
    assert not any(ref() is not None for ref in held)


def test_a_thread_that_polls_is_refused_and_not_blocked_while_another_one_attaches(one: Sleepers) -> None:
    decode, said, over = one.decodes[0], list[str](), Flag()
    one.sleep(decode)

    def poll() -> None:
        decode.adopt()
        while not inside(decode).loop._inbox:  # the other thread's attach waits for a pass
            time.sleep(1e-3)
        try:
            decode.detach()
        except ArgumentError as error:
            said.append(str(error))
        try:
            decode.attach(one.fresh(decode))
        except ArgumentError as error:
            said.append(str(error))
        while not over.wait(1e-3):
            decode.poll()

    polling = Thread(target=poll, daemon=True)
    polling.start()
    while inside(decode).loop.mine:
        time.sleep(1e-3)
    attaching = Thread(target=lambda: decode.attach(one.fresh(decode)), daemon=True)
    attaching.start()
    attaching.join(10.0)
    over.set()
    polling.join(10.0)
    if attaching.is_alive() or polling.is_alive():
        inside(decode).loop._closing = True  # the fixture's close would wait for them, too
        pytest.fail("each of the two threads waits for the other")
    assert said == [ATTACHES] * 2 and not decode.pool_words()
    decode.adopt()
    one.tables.clear()
    one.before = [one.fresh(decode)]
    one.pump(decode.ready)
    one.carries()


def test_rooms_under_way_are_finished_and_new_ones_refused(one: Sleepers) -> None:
    room, late = one.open(TOKENS), one.name(TOKENS)
    one.pump(lambda: one.prefills[0].opened_by_all(room))
    assert " And " not in one.decodes[0].explain(room)
    for endpoint in one.endpoints:
        endpoint.detach()
    one.settle()
    assert not any(endpoint.detached for endpoint in one.endpoints)
    for begin in (one.open_prefill, one.open_decode):
        with pytest.raises(ArgumentError, match=r"is being detached, which waits for 1 rooms, room 1 among them"):
            begin(late)
    assert "is being detached" in one.decodes[0].explain(room)
    one.finish(room)
    one.pump(lambda: all(endpoint.detached for endpoint in one.endpoints))
    assert one.causes(room) == {Cause.NONE}
    with pytest.raises(ArgumentError, match="this endpoint's pool is detached: attach a pool first"):
        one.open_decode(late)
    with pytest.raises(ArgumentError, match="this endpoint's pool is detached: attach a pool first"):
        one.decodes[0].announce(late, TOKENS)


@pytest.mark.parametrize(("side", "cause"), [("P", Cause.PREFILL_ABORTED), ("D", Cause.DECODE_ABORTED)])
def test_rooms_that_are_to_end_do_so_on_both_sides_and_say_why(one: Sleepers, side: str, cause: Cause) -> None:
    room = one.open(TOKENS)
    one.pump(lambda: one.prefills[0].opened_by_all(room))
    leaves = one.prefills[0] if side == "P" else one.decodes[0]
    leaves.detach(rooms="end")
    one.pump(lambda: leaves.detached and one.over(room))
    assert one.causes(room) == {cause}
    assert all("its engine detaches the pool" in outcome.reason for outcome in one.outcomes.values())


@pytest.mark.parametrize("route", ["staged", "pages"])
def test_the_pool_stays_until_a_write_in_flight_has_landed(route: Route) -> None:
    with Sleepers(layout(1), layout(1), chunk_tokens=32, settings=replace(SMALL, route=route)) as pair:
        room, decode = pair.open(TOKENS), pair.decodes[0]
        pair.fabric.auto = False
        pair.produce(room)
        pair.pump(lambda: bool(pair.fabric.options()))
        happened, happen = list[Event](), decode._happen
        decode._happen = lambda event: (happened.append(event), happen(event))[1]  # type: ignore[func-returns-value, method-assign]
        decode.detach(rooms="end")
        pair.pump(lambda: ("D", 0, room) in pair.outcomes)
        pair.settle()
        assert sum(isinstance(event, EngineAborted) for event in happened) == 1, "each room is ended once"
        assert not decode.detached and regions(decode) and not pair.releases["D", 0, room]
        pair.fabric.auto = True
        pair.pump(lambda: decode.detached)
        pair.wake(decode)
        pair.settle()
        pair.check()  # nothing has landed in the new pool
        pair.carries()


def test_a_peer_that_is_gone_holds_the_pool_for_lease_and_write_and_no_longer() -> None:
    clock = ManualClock(0.0)
    with Sleepers(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        decode, timing = pair.decodes[0], pair.settings.timing
        decode.detach()  # and nobody polls the prefill rank, as if its process had stopped
        longest, step = timing.lease.period + timing.write.period, timing.call.period / 20
        decode.poll()
        clock.advance(1.0)
        decode.poll()
        began = clock.now()
        while not decode.detached and clock.now() < began + 1.2 * longest:
            assert "a peer that may still write: link 1" in decode.pool_words() and regions(pair.prefills[0])
            clock.advance(step)
            decode.poll()
        assert decode.detached and clock.now() - began > longest


def test_a_prefill_rank_that_comes_while_the_decode_pool_is_away_is_served_afterwards(one: Sleepers) -> None:
    one.sleep(one.decodes[0])
    one.prefills[0].close()
    one.prefills[0] = one.make_prefill(0)
    one.connect(0)
    one.pump(one.decodes[0].ready)
    one.wake(one.decodes[0])
    one.carries()


def test_what_cannot_be_is_refused_by_a_sentence(one: Sleepers) -> None:
    decode = one.decodes[0]
    with pytest.raises(ArgumentError, match="this endpoint has a pool: detach it first"):
        decode.attach(one.fresh(decode))
    with pytest.raises(ArgumentError, match="rooms='later': rooms 'end' or 'finish'"):
        decode.detach(rooms="later")  # type: ignore[arg-type]
    room = one.open(TOKENS)
    decode.detach()
    with pytest.raises(ArgumentError, match=r"is being detached.*again once another one is attached"):
        decode.detach()
    with pytest.raises(ArgumentError, match=r"is being detached.*wait until it is"):
        decode.attach(one.fresh(decode))
    one.finish(room)
    one.pump(lambda: decode.detached)
    with pytest.raises(ArgumentError, match="is detached: it can be detached again once another one is attached"):
        decode.detach()
    point: Any = SimpleNamespace(upto=0)
    with pytest.raises(ArgumentError, match="pool is detached: attach a pool first"):
        decode.digest_pages(point, [])
    decode._digesting = point
    with pytest.raises(ArgumentError, match=r"pool is detached.*: ask for digests before"):
        decode.digests(room)
    decode._digesting = None
    other = noise(layout(2), 0, 64, 1)
    with pytest.raises(ArgumentError, match="the layout gives rank 0"):
        decode.attach(other)
    mine = one.fresh(decode)
    with pytest.raises(ArgumentError, match="the pool is on meta, and this endpoint works on cpu"):
        decode.attach(Pool([each.to("meta") for each in mine.k], [each.to("meta") for each in mine.v], mine.order))
    one.wake(decode)


def test_a_pool_of_other_strides_and_pages_is_another_of_the_same_layout(pair: Sleepers) -> None:
    pair.sleep(*pair.endpoints)
    for endpoint in pair.endpoints:
        wide = pair.fresh(endpoint)
        k, v = ([torch.cat([each, each], dim=2)[:, :, : each.shape[2]] for each in kind] for kind in (wide.k, wide.v))
        endpoint.attach(Pool(k, v, wide.order))
    pair.before = [pair.fresh(endpoint) for endpoint in pair.decodes]
    pair.carries()


class Refusing(MemoryTransport):
    """Takes as much memory as it is told."""

    most = 100

    def successor(self) -> Refusing:
        return Refusing(self.fabric)

    def register(self, addr: int, nbytes: int, kind: Any = "DRAM", dev: int = 0) -> MemoryRegion:
        if len(self._table.regions()) >= self.most:
            raise UsageError("no region is left")
        return super().register(addr, nbytes, kind, dev)


def test_memory_that_is_not_taken_leaves_the_endpoint_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sleepers, "transport", lambda it: Refusing(it.fabric), raising=False)
    with Sleepers(layout(1), layout(1), chunk_tokens=8) as pair:
        pair.sleep(*pair.endpoints)
        monkeypatch.setattr(Refusing, "most", 2)
        for endpoint in pair.endpoints:
            with pytest.raises(UsageError, match="no region is left"):
                endpoint.attach(pair.fresh(endpoint))
            assert endpoint.detached and not regions(endpoint)
        monkeypatch.undo()
        pair.wake(*pair.endpoints)
        pair.carries()


def test_endpoints_with_threads_of_their_own_do_so_too(one: Sleepers) -> None:
    one.start()
    one.turn = lambda: bool(one.collect())  # type: ignore[method-assign,func-returns-value]
    for _ in range(3):
        one.carries()
        one.sleep(*one.endpoints)
        one.wake(*one.endpoints)
    one.carries()


def test_events_metrics_and_links_tell_of_it(one: Sleepers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pair, "collect", lambda _: None)
    prefill, decode = one.prefills[0], one.decodes[0]
    told: dict[str, list[EndpointEvent]] = {"P": prefill.events(), "D": decode.events()}

    def attached() -> list[float]:
        return [each.value for each in measure(decode) if each.name == "kvproto_pool_attached"]  # type: ignore[misc]

    assert attached() == [1]
    one.sleep(decode)
    assert attached() == [0] and decode.metrics()["pools detached"] == 1
    one.wake(decode)
    one.pump(lambda: inside(prefill).rank.links[1].state is PLink.UP)
    told["P"] += prefill.events()
    told["D"] += decode.events()
    assert [each for each in told["D"] if not isinstance(each, PeerUp)] == [PoolDetached(), PoolAttached()]
    assert told["P"] == [PeerLeft(2, 0), PeerUp(2, 0)] * 2
    assert attached() == [1] and decode.pool_words() == ""
    assert decode.metrics()["pools attached"] == decode.metrics()["pools detached"] == 1


def test_a_released_room_that_its_engine_has_not_taken_holds_no_pool(
    one: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pair, "collect", lambda _: None)
    room = one.open(TOKENS)
    one.produce(room)
    one.pump(lambda: all(endpoint._news.releases for endpoint in one.endpoints))
    one.sleep(*one.endpoints)
    for endpoint in one.endpoints:
        assert [outcome.room for outcome in endpoint.finished()] == [room] == endpoint.released()
        assert "detached" not in endpoint.explain(room), "it is over"


def test_an_endpoint_may_be_closed_while_its_pool_goes_and_when_it_is_gone(one: Sleepers) -> None:
    one.open(TOKENS)
    one.decodes[0].detach()
    one.settle()
    one.decodes[0].close()
    one.decodes.clear()
    one.prefills[0].detach(rooms="end")
    one.pump(lambda: one.prefills[0].detached)


def test_a_room_that_succeeds_as_the_last_one_does_so_on_both_sides(pair: Sleepers) -> None:
    decode = pair.decodes[0]
    for _ in range(3):
        room = pair.open(TOKENS)
        pair.pump(lambda room=room: all(each.opened_by_all(room) for each in pair.prefills))  # type: ignore[misc]
        decode.detach()
        pair.produce(room)
        pair.pump(lambda: decode.detached)
        pair.pump(lambda room=room: pair.over(room))  # type: ignore[misc]
        assert pair.causes(room) == {Cause.NONE}
        pair.wake(decode)


def test_the_event_of_an_attach_comes_when_rooms_may_be_opened(one: Sleepers, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, told = one.decodes[0], dict[type, str]()
    monkeypatch.setattr(decode._news, "add", lambda event: told.setdefault(type(event), decode.pool_words()))
    one.sleep(decode)
    one.wake(decode)
    assert told[PoolDetached] == "this endpoint's pool is detached" and told[PoolAttached] == ""


def test_a_pool_that_the_transport_does_not_take_leaves_nothing_and_another_may_be_attached() -> None:
    with Sleepers(layout(1), layout(1), chunk_tokens=8) as one:
        prefill = one.prefills[0]
        one.sleep(prefill)
        data = inside(prefill).data
        assert isinstance(data.transport, MemoryTransport)
        register, calls = data.transport.register, itertools.count(1)

        def refuses(*about: Any) -> Any:
            if next(calls) == 3:
                raise TransportError("no more memory can be registered")
            return register(*about)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(data.transport, "register", refuses)
            with pytest.raises(TransportError, match="no more memory can be registered") as caught:
                prefill.attach(one.fresh(prefill))
        assert not hasattr(caught.value, "__notes__"), "nothing stays registered"
        assert data.transport._table.regions() == () and data.staging.wire.numel() == 0
        assert prefill.detached
        one.wake(prefill)
        one.carries()


def test_a_rank_that_lets_its_memory_go_leaves_peers_the_time_to_end_their_last_rooms() -> None:
    done: list[str] = []
    loop = SimpleNamespace(now=7.0)
    rank: Any = SimpleNamespace(
        _loop=loop, _rank=SimpleNamespace(awaits_return=lambda: 0),
        _data=SimpleNamespace(succeed=lambda: done.append("succeed"), leave_memory=lambda: done.append("leave")),
        _groups=SimpleNamespace(call_anew=lambda: done.append("call")),
    )  # fmt: skip
    leaving = DecodeEndpoint._leave_memory(rank)
    for loop.now in (7.0, 7.0 + LINGER_S / 2):
        assert next(leaving) == "peers, which end their last rooms" and not done
    loop.now = 7.0 + LINGER_S
    assert not list(leaving) and done == ["succeed", "call", "leave"]


def test_a_pool_that_comes_back_is_prepared_anew(one: Sleepers) -> None:
    """Its tensors may have other memory by then, and what kernels were prepared with are addresses."""
    one.carries()
    for endpoint in one.endpoints:
        pool = endpoint.pool
        known = dict(pool._cuts)
        one.sleep(endpoint)
        endpoint.attach(pool)
        assert known and all(pool.cut(*key) is not cut for key, cut in known.items())
