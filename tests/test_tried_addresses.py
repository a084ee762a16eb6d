"""An address named for a link that is up is tried beside it, and takes it over or is given up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from support.stories import layout
from test_endpoint_calls import addresses, sockets

from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.fsm.timing import Timer
from kvproto.protocol.states import Cause, DLink
from kvproto.protocol.tables.links import LIVES
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.settings import PREFILL_GROUP
from kvproto.verify.sim.world import SimulatedWorld
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import SMALL, Pair
from kvproto.verify.testing.pools import noise

#: quick enough that a link is missed, and a trial ends, while a test waits
QUICK = replace(SMALL, timing=Timing(heartbeat=Timer(0.2, 5), call=Timer(0.05, 10, 0.2)))
#: listens, and is no rank: nobody accepts on the discard port of this host
NOWHERE = "tcp://127.0.0.1:9"
EVERY = "0.0.0.0"  # noqa: S104  # of this host alone


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(layout(2), layout(1), chunk_tokens=8, settings=QUICK) as made:
        yield made


def tried(pair: Pair) -> list[str]:
    """The addresses that are being tried."""
    rank = inside(pair.decodes[0]).rank
    return [value.beside for value in rank.links.values() if value.beside]


def restart(pair: Pair, index: int) -> None:
    """This prefill rank ends and starts anew on another address."""
    pair.prefills[index].close()
    pair.prefills[index] = pair.make_prefill(index)


def test_an_address_where_nobody_answers_costs_no_room_and_no_link(pair: Pair) -> None:
    decode, before = pair.decodes[0], sockets(pair.decodes[0])[1:]
    room = pair.open(30)
    pair.produce(room, 15, aux=None)
    pair.pump(lambda: bool(inside(decode).rank.grants))
    decode.connect(pair.plan.prefill, [NOWHERE, addresses(pair)[1]], group=PREFILL_GROUP)
    pair.pump(lambda: tried(pair) == [NOWHERE])
    assert f"{NOWHERE} is tried beside it" in decode.links()[0]
    assert not decode.ready(), "what was named last is being tried"
    assert decode.ready(PREFILL_GROUP, addresses(pair)), "the link that is up is"
    pair.finish(room)
    pair.check(room)
    assert tried(pair) == [NOWHERE] and pair.causes(room) == {Cause.NONE}
    pair.pump(lambda: not tried(pair))
    assert sockets(decode)[1:] == before and decode.ready()
    assert inside(decode).loop.counts["addresses that were tried in vain"] == 1
    assert any(f"{NOWHERE} was tried: no prefill rank answers there" in line for line in decode.reports())


class Anywhere(Pair):
    """A pair whose prefill ranks listen on every address of this host."""

    def make_prefill(self, index: int) -> PrefillEndpoint:
        held, pool = self.plan.prefill, noise(self.plan.prefill, index, self.pages, 1)
        return PrefillEndpoint(
            held, index, pool, self.transport(), chunk_tokens=self.plan.chunk_tokens, group=PREFILL_GROUP,
            settings=self.settings,
            bind=f"tcp://{EVERY}:*", insecure=True,
        )  # fmt: skip

    def connect(self, index: int, host: str = "127.0.0.1") -> None:
        there = [each.address.replace(EVERY, host) for each in self.prefills]
        self.decodes[index].connect(self.plan.prefill, there, group=PREFILL_GROUP)


def test_the_incarnation_that_has_the_link_is_not_disturbed_at_another_of_its_addresses() -> None:
    with Anywhere(layout(2), layout(1), chunk_tokens=8, settings=QUICK) as pair:
        room = pair.open(30)
        pair.produce(room, 15, aux=None)
        pair.connect(0, "127.0.0.2")
        pair.pump(lambda: len(tried(pair)) == 2)
        pair.finish(room)
        pair.pump(lambda: not tried(pair))
        pair.check(room)
        assert not any("lost" in line for endpoint in pair.endpoints for line in endpoint.reports())


def test_whoever_is_another_rank_takes_no_link(pair: Pair) -> None:
    decode, swapped = pair.decodes[0], addresses(pair)[::-1]
    decode.connect(pair.plan.prefill, swapped, group=PREFILL_GROUP)
    pair.pump(lambda: len(decode.reports()) == 2)
    assert all("listens here, not rank" in line for line in decode.reports())
    room = pair.open(30)
    pair.finish(room)
    pair.check(room)
    assert decode.ready() and not tried(pair)


def test_a_later_incarnation_takes_over_from_one_that_is_silent(pair: Pair) -> None:
    """A request may name its address before anybody has missed the former incarnation: its room waits."""
    decode, before = pair.decodes[0], sockets(pair.decodes[0])[1:]
    for index in (0, 1):
        restart(pair, index)
    pair.connect(0)
    room = pair.open(30)
    pair.finish(room)
    pair.check(room)
    assert decode.leads_to(addresses(pair)) and decode.ready()
    assert sockets(decode)[1:] == before, "the former connections are closed"


@pytest.mark.parametrize("stalled", [False, True], ids=["that beats", "whose loop stands still"])
def test_one_that_lives_keeps_its_link_from_a_later_one_under_its_name(pair: Pair, *, stalled: bool) -> None:
    decode, first = pair.decodes[0], addresses(pair)
    second: list[PrefillEndpoint] = [pair.make_prefill(index) for index in (0, 1)]
    loops = [each.poll for each in pair.prefills]
    try:
        if stalled:
            for each in pair.prefills:
                each.poll = lambda: False  # type: ignore[method-assign]
        decode.connect(pair.plan.prefill, [each.address for each in second], group=PREFILL_GROUP)
        pair.pump(lambda: len(tried(pair)) == 2)
        pair.pump(lambda: bool([each.poll() for each in second]) and not tried(pair))
        for each, poll in zip(pair.prefills, loops, strict=True):
            each.poll = poll  # type: ignore[method-assign]
        room = pair.open(30)
        pair.finish(room)
        pair.check(room)
        assert decode.leads_to(first) and decode.ready()
        assert sum(LIVES in line for line in decode.reports()) == 2
    finally:
        for each in second:
            each.close()


def test_a_room_that_the_former_incarnation_has_confirmed_ends_with_it(pair: Pair) -> None:
    decode, confirmed = pair.decodes[0], pair.name(30)
    pair.open_decode(confirmed)
    pair.open_prefill(confirmed)
    pair.pump(lambda: confirmed.key in inside(decode).rank.rooms)
    pair.pump(lambda: inside(decode).rank.rooms[confirmed.key].peers == 3)
    restart(pair, 0)
    restart(pair, 1)
    announced = Room(99)
    decode.announce(announced, 30)
    pair.connect(0)
    pair.pump(lambda: decode.ready() and ("D", 0, confirmed) in pair.outcomes)
    assert pair.outcomes["D", 0, confirmed].cause is Cause.LINK_LOST
    assert ("D", 0, announced) not in pair.outcomes and announced.key in inside(decode).rank.rooms


@pytest.mark.parametrize("beats", [0, 3])
def test_a_trial_ends_after_as_many_beats_as_a_peer_may_be_silent(beats: int) -> None:
    """In simulated time, while rooms go on, one address in the place of another begins its own trial."""
    held, timing = layout(1), Timing()
    world = SimulatedWorld(7, held, held, chunk_tokens=8)
    world.calm(3.0)
    rank = world.decode(0)
    link = rank.link_of[PREFILL_GROUP, 0]

    def name(address: str) -> None:
        _, effects = rank.call(PREFILL_GROUP, 0, world.plan, world.now, address)
        world.nodes["D", 0].interpreter.carry_out(effects, world.now)

    if beats:
        name("elsewhere")
        world.calm(beats * timing.heartbeat.period)
    name("nowhere")
    world.open_all(1 << 16, 30)
    world.produce_all(1 << 16, 30)
    world.calm(1.0)
    assert world.settled(1 << 16) and world.nodes["D", 0].outcomes == {1 << 16: Cause.NONE}
    assert rank.links[link].beside == "nowhere"
    world.calm((timing.heartbeat.tries + 2) * timing.heartbeat.period)
    assert rank.links[link].beside == "" and rank.links[link].state is DLink.UP
    assert set(world.nodes["D", 0].interpreter.place_of) == {link}, "nothing is said there any more"


def test_an_address_that_is_tried_when_its_link_goes_down_is_called_on(pair: Pair) -> None:
    """An instance that restarts elsewhere is often named before its peers miss the old one."""
    decode, old = pair.decodes[0], pair.prefills[0]
    pair.pump(decode.ready)
    pair.prefills[0] = pair.make_prefill(0)
    decode.connect(pair.plan.prefill, addresses(pair), group=PREFILL_GROUP)
    decode.poll()
    assert tried(pair) == [addresses(pair)[0]]
    old.close()
    link = next(link for link, value in inside(decode).rank.links.items() if value.beside)
    while inside(decode).rank.links[link].state is DLink.UP:  # the new one does not run yet
        decode.poll()
        decode.wait(0.01)
    pair.pump(lambda: decode.ready(PREFILL_GROUP, addresses(pair)))
    room = pair.open(30)
    pair.produce(room, 30)
    pair.finish(room)
    pair.check(room)
