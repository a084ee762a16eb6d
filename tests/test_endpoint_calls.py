"""Calls to prefill groups: again, wrong ones, too many; what `ready` and `links` say of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stories import layout

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.errors import ArgumentError
from kvproto.io.clock import ManualClock
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol import effects as do
from kvproto.protocol.events import QueueOverflowed
from kvproto.protocol.states import Cause, DLink, PLink
from kvproto.room import Room, Status
from kvproto.settings import PREFILL_GROUP, Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise


class Uncalled(Pair):
    """A pair whose decode ranks have called nobody."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(layout(2), layout(1), chunk_tokens=8, settings=settings, ready=False)

    def connect(self, index: int) -> None:
        pass


@pytest.fixture
def uncalled() -> Iterator[Uncalled]:
    with Uncalled() as made:
        yield made


def addresses(pair: Pair) -> list[str]:
    return [prefill.address for prefill in pair.prefills]


def sockets(endpoint: DecodeEndpoint) -> tuple[int, int, int]:
    """Connections ever made, sockets that exist (each has one that watches it), and links with one."""
    control, known = inside(endpoint).loop.control, inside(endpoint).loop.connections
    assert len(known.peer_of) == len(known.link_at)
    return control._dialled, len(control._sockets), len(known.peer_of)


# ------------------------------------------------------------------------------------------------ connecting
def test_calling_again_disturbs_no_room_and_opens_no_socket(pair: Pair) -> None:
    decode, before = pair.decodes[0], sockets(pair.decodes[0])
    first, second = pair.open(30), pair.open(30)
    pair.produce(first, 15, aux=None)
    pair.pump(lambda: decode.status(first) is Status.TRANSFERRING)
    pair.connect(0)
    pair.turn()
    assert sockets(decode) == before
    pair.finish(first, second)
    for _ in range(50):
        pair.connect(0)
    pair.turn()
    assert sockets(decode) == before == (2, 4, 2), "links that are up are left as they are"
    third = pair.open(30)
    pair.finish(third)
    pair.check(first, second, third)
    assert not decode.reports() and decode.ready(PREFILL_GROUP)


def test_calling_again_before_the_first_answer_opens_no_socket_either(uncalled: Uncalled) -> None:
    decode = uncalled.decodes[0]
    for _ in range(20):
        decode.connect(uncalled.plan.prefill, addresses(uncalled), group=PREFILL_GROUP)
        decode.poll()
    assert sockets(decode) == (2, 4, 2)
    uncalled.pump(lambda: decode.ready(PREFILL_GROUP))
    assert sockets(decode) == (2, 4, 2)


def test_a_link_that_is_lost_is_called_at_its_new_address(pair: Pair) -> None:
    decode = pair.decodes[0]
    pair.prefills[1].close()
    pair.prefills[1] = pair.make_prefill(1)
    link = inside(decode).rank.link_of[PREFILL_GROUP, 1]
    inside(decode).loop.raise_event(QueueOverflowed(link))
    decode.poll()
    assert inside(decode).rank.links[link].state is DLink.AWAIT_RETURN and not decode.ready(PREFILL_GROUP)
    pair.connect(0)
    pair.pump(lambda: decode.ready(PREFILL_GROUP))
    room = pair.open(30)
    pair.finish(room)
    pair.check(room)
    assert sockets(decode) == (3, 4, 2), "the former connection is closed"


def test_a_new_address_is_called_although_the_old_link_still_counts_as_up(pair: Pair) -> None:
    """A replaced prefill rank has not been missed yet: the engine's word about its address counts."""
    decode = pair.decodes[0]
    pair.prefills[1].close()
    pair.prefills[1] = pair.make_prefill(1)
    assert decode.ready(PREFILL_GROUP), "nobody has noticed"
    pair.connect(0)
    assert not decode.ready(PREFILL_GROUP)
    pair.pump(lambda: decode.ready(PREFILL_GROUP))
    room = pair.open(30)
    pair.finish(room)
    pair.check(room)
    assert sockets(decode) == (3, 4, 2), "the former connection is closed"


def test_what_waits_for_a_peer_is_given_up_with_a_link_that_is_lost_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, loop, _, _), cleared = inside(pair.decodes[0]), list[int]()
    monkeypatch.setattr(loop.connections, "clear", cleared.append)
    for why in ("", "refused: planted", do.CLOSED, do.LOST):
        loop.handlers[do.AnnounceLink](do.AnnounceLink(1, why))
        assert cleared == ([1] if why == do.LOST else [])


def test_no_room_goes_back_to_an_earlier_stage(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    room, decode = pair.open(30), pair.decodes[0]
    pair.produce(room, pair.plan.chunk_tokens)
    pair.pump(lambda: decode.status(room) is Status.TRANSFERRING)
    monkeypatch.setattr(decode, "_stage", lambda _: Status.WAITING)
    assert decode.status(room) is Status.TRANSFERRING


def test_a_link_is_dialled_anew_for_every_other_address_and_for_the_former_one_again(pair: Pair) -> None:
    decode = pair.decodes[0]
    dial, (first, second) = inside(decode).loop.handlers[do.Dial], addresses(pair)
    made = list[int]()
    for address in (first, second, second, first, first):
        dial(do.Dial(1, address))
        made.append(sockets(decode)[0])
    assert made == [2, 3, 3, 4, 4]


def test_a_call_that_was_answered_or_whose_link_is_forgotten_needs_no_more_polls(pair: Pair) -> None:
    _, loop, _, data = inside(pair.decodes[0])
    assert not data.calling, "both are up"
    data.calling |= {1, 2}
    loop.handlers[do.ForgetLink](do.ForgetLink(1))
    assert data.calling == {2}
    loop.handlers[do.AnnounceLink](do.AnnounceLink(2, ""))
    assert not data.calling


def test_runs_of_pages_are_counted_of_those_that_are_to_be_written(pair: Pair) -> None:
    decode, room = pair.decodes[0], Room(99)
    decode.open(room, 24, [9, 2, 4, 5, 6, 7], prefix=8)
    decode.poll()
    assert inside(decode).rank.rooms[room.key].runs == 1


def test_a_table_that_is_on_its_way_is_waited_for_whatever_is_produced_meanwhile(pair: Pair) -> None:
    room, event = pair.open(30), object()
    prefill = pair.prefills[0]
    entry = inside(prefill).entries[room.key]
    entry.placed = event
    prefill.produced(room, 0)
    prefill.poll()
    assert entry.placed is event


def test_of_several_aux_rows_the_first_counts(pair: Pair) -> None:
    room = pair.open(30)
    pair.produce(room, 30, aux=None)
    for prefill in pair.prefills:
        prefill.aux(room, b"first")
        prefill.aux(room, b"second")
    pair.pump(lambda: pair.over(room))
    assert pair.outcomes["D", 0, room].aux == b"first"


def test_a_malformed_address_is_named_and_hinders_nothing_else(uncalled: Uncalled) -> None:
    pair, decode = uncalled, uncalled.decodes[0]
    decode.connect(pair.plan.prefill, ["nowhere", addresses(pair)[1]], group=PREFILL_GROUP)
    room = pair.open(30)
    pair.produce(room)
    pair.pump(lambda: inside(decode).rank.reached(PREFILL_GROUP, 1)[0])
    pair.settle()
    assert decode.status(room) is Status.BOOTSTRAPPING
    with pytest.raises(ConnectionError, match="'nowhere'"):
        decode.ready(PREFILL_GROUP)
    decode.connect(pair.plan.prefill, addresses(pair), group=PREFILL_GROUP)
    assert not decode.ready(PREFILL_GROUP), "what became of an earlier call counts no more"
    pair.pump(lambda: decode.ready(PREFILL_GROUP))
    pair.pump(lambda: pair.over(room))
    pair.check(room)
    assert ["'nowhere'" in text for text in decode.reports()] == [True]


def test_a_rank_that_refused_can_be_called_again(uncalled: Uncalled) -> None:
    decode, one, right, wrong = uncalled.decodes[0], layout(1), *(
        PrefillEndpoint(
            layout(1), 0, noise(layout(1), 0, 8, 1), uncalled.transport(), chunk_tokens=chunk_tokens
        ) for chunk_tokens in (8, 16)
    )  # fmt: skip
    uncalled.prefills += [right, wrong]
    decode.connect(one, [wrong.address])
    uncalled.pump(lambda: "refused" in inside(decode).rank.reached(PREFILL_GROUP, 0)[1])
    with pytest.raises(ConnectionError, match="chunks of 8 tokens against 16"):
        decode.ready()
    decode.connect(one, [right.address])
    uncalled.pump(decode.ready)


def test_each_group_is_ready_by_itself_and_those_beyond_the_bound_are_told_which() -> None:
    with Uncalled(Settings(ring_bytes=1 << 20, links=2)) as pair:
        decode = pair.decodes[0]
        for group in (PREFILL_GROUP, 7, 7):
            decode.connect(pair.plan.prefill, addresses(pair), group=group)
        decode.connect(pair.plan.prefill, ["nowhere", "nowhere"], group=8)
        with pytest.raises(KeyError, match="group 9 is not connected: call connect first"):
            decode.ready(9)
        pair.pump(lambda: decode.ready(PREFILL_GROUP))
        for group, why in ((7, "Settings.links"), (8, "Settings.links")):
            with pytest.raises(ConnectionError, match=why):
                decode.ready(group)
        room = pair.open(30)
        pair.finish(room)
        assert decode.ready(PREFILL_GROUP) and pair.causes(room) == {Cause.NONE}


def test_a_link_that_is_forgotten_leaves_no_connection_and_no_plan() -> None:
    clock = ManualClock(100.0)
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        prefill, timing = pair.prefills[0], pair.settings.timing
        rank, loop, *_ = inside(prefill)
        assert list(rank.links) == list(rank.peers) == list(loop.connections.peer_of) == [1]
        pair.decodes.pop().close()
        pair.pump(lambda: rank.links[1].state is PLink.LOST)
        clock.advance(2 * timing.forget.period)
        prefill.poll()
        assert not rank.links and not rank.peers and not loop.connections.peer_of
        pair.decodes.append(pair.make_decode(0))
        pair.connect(0)
        pair.pump(pair.decodes[0].ready)
        assert list(rank.links) == list(rank.peers) == list(loop.connections.peer_of) == [2]


def test_an_endpoint_that_cannot_be_made_leaves_its_address_to_the_next_one() -> None:
    mine, kept = layout(1), []

    def make(bind: str, slots: Settings) -> PrefillEndpoint:
        pool, transport = noise(mine, 0, 16, 1), MemoryTransport(Fabric())
        return PrefillEndpoint(mine, 0, pool, transport, chunk_tokens=8, bind=bind, settings=slots)

    with make("tcp://127.0.0.1:*", Settings()) as first:
        address = first.address
    for _ in range(2):
        with pytest.raises(ArgumentError, match="cannot be had") as told:
            make(address, Settings(slots=1 << 16, slot_bytes=1 << 40))
        kept.append(told)  # with all that was made until then
    with make(address, Settings()) as last:
        assert last.address == address
