"""An engine's calls of its decode endpoint: construction, groups, tables, aux rows and stages."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, call

import msgspec
import pytest
from msgspec.structs import replace
from support.stories import layout

from kvproto.data.room_entry import NO_TABLE
from kvproto.endpoint import decode_endpoint
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.validation import make_control
from kvproto.errors import ArgumentError, EndpointError, NotFoundError
from kvproto.io.kernels.digesting import read_back
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import LayoutError
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import Cause, DRoom
from kvproto.protocol.versions import ANNOUNCE
from kvproto.room import Outcome, Room, Status
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import SMALL, Pair
from kvproto.verify.testing.pools import noise

CHUNK_TOKENS, TOKENS = 8, 45


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS) as made:
        yield made


# ------------------------------------------------------------------------------------------------ construction
def test_a_constructor_passes_on_each_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, make = list[tuple[Any, ...]](), make_control

    def control(*about: Any, insecure: bool) -> Any:
        asked.append((*about, insecure))
        return make(None, None, about[2], insecure=False)

    monkeypatch.setattr(decode_endpoint, "make_control", control)
    one, transport = layout(1), MemoryTransport(Fabric())
    with DecodeEndpoint(one, 0, noise(one, 0, 8, 1), transport, settings=SMALL, keys="a file", insecure=True) as made:
        rank, loop, _, data = inside(made)
        assert asked == [(None, "a file", SMALL.timing, True)]
        assert (rank.chunk_tokens, rank.group, rank.settings) == (0, DECODE_GROUP, SMALL)
        assert data.transport is transport and made._ages.look in loop.every_second
        with pytest.raises(ArgumentError, match="no chunk size is known"):
            made.connect(one, ["tcp://127.0.0.1:1"])
    with pytest.raises(EndpointError, match="closed"):
        made.ready()


def test_a_group_is_not_ready_at_a_loop_that_has_broken(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = pair.decodes[0]
    assert decode.ready()
    monkeypatch.setattr(inside(decode).loop, "broken", RuntimeError("planted"))
    with pytest.raises(EndpointError, match="the loop has stopped"):
        decode.ready()


# ------------------------------------------------------------------------------------------------ groups
def test_a_group_is_called_with_an_address_for_each_rank_and_a_ring_that_is_large_enough(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, asked = pair.decodes[0], list[tuple[Any, ...]]()
    monkeypatch.setattr(decode_endpoint, "need_ring_for_last_rows", lambda *about: asked.append(about))
    with pytest.raises(ArgumentError, match="1 addresses for 2 prefill ranks"):
        decode.connect(layout(2), [pair.prefills[0].address])
    assert not asked
    decode.connect(layout(1), [pair.prefills[0].address])
    assert asked == [(decode._groups.get(PREFILL_GROUP).to.plan, 0, SMALL, decode._data.memory.placement)]


def test_where_the_links_of_a_group_lead_and_whether_it_agrees_is_told(pair: Pair) -> None:
    decode, address = pair.decodes[0], pair.prefills[0].address
    assert decode.any_up() is True and decode.agreed() is True
    assert (decode.any_up(77), decode.agreed(77)) == (False, False)
    assert decode.leads_to([address]) is True and decode.leads_to(["tcp://127.0.0.1:1"]) is False
    with pytest.raises(NotFoundError):
        decode.leads_to([address], 77)


@pytest.mark.parametrize("why", ["", do.LOST])
def test_a_link_that_is_up_or_lost_is_settled(pair: Pair, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    settle = Mock()
    monkeypatch.setattr(pair.decodes[0]._groups.links, "settle", settle)
    pair.decodes[0]._link(do.AnnounceLink(1, why))
    assert settle.mock_calls == [call(1, up=not why)]


# ------------------------------------------------------------------------------------------------ rooms
def test_a_room_is_opened_for_what_follows_its_prefix(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, said = pair.decodes[0], list[Any]()
    groups = Mock(return_value=1)
    monkeypatch.setattr(decode, "_layer_groups", groups)
    monkeypatch.setattr(decode, "_happen", said.append)
    size = pair.plan.decode.page_size
    pages = [9, 20, 1, 2, 3, 7]
    with pytest.raises(LayoutError, match="prefix"):
        decode.open(Room(1), 6 * size, pages, prefix=size + 1)
    decode.open(Room(1), 6 * size, pages, prefix=2 * size)
    decode.poll()
    assert groups.mock_calls == [call(decode._groups.get(PREFILL_GROUP).to.plan, 4 * size, None)]
    (event,) = (each for each in said if isinstance(each, ev.RoomOpened))
    assert (event.tokens, event.prefix, event.runs) == (6 * size, 2 * size, 2), "pages 1, 2 and 3 are one run, 7 is one"


@pytest.mark.parametrize("device", [False, True])
def test_a_table_of_a_room_that_was_announced_is_put_off_once_more_where_it_is_not_there(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, device: bool
) -> None:
    """The entry that `open` makes is not the room's: that one was made with the announcement."""
    decode, put = pair.decodes[0], list[object]()
    plain = inside(decode).data.streams.put_off

    def put_off(entry: Any) -> None:
        put.append(entry)
        if not device:
            plain(entry)

    monkeypatch.setattr(inside(decode).data.streams, "put_off", put_off)
    room = pair.name(TOKENS)
    decode.announce(room, TOKENS)
    kept = inside(decode).entries[room.key]
    before = len(put)
    decode.open(room, TOKENS, pair.tables[room][1])
    assert (kept.table is NO_TABLE) is device
    assert [each is kept for each in put[before:]] == [False, *[True] * device]


def test_a_room_is_not_announced_to_a_build_that_keeps_none(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = Mock(return_value="prefill rank 3 cannot")
    monkeypatch.setattr(inside(pair.decodes[0]).rank, "lacking", lacking)
    with pytest.raises(ArgumentError, match="prefill rank 3 cannot, or open the room when it has pages"):
        pair.decodes[0].announce(Room(1), TOKENS)
    assert lacking.mock_calls == [call(PREFILL_GROUP, ANNOUNCE)] and not inside(pair.decodes[0]).entries


def test_an_aux_row_is_there_from_its_arrival_until_its_room_is_handed_out(pair: Pair) -> None:
    decode, room = pair.decodes[0], pair.open(TOKENS)
    with pytest.raises(NotFoundError, match="has not landed"):
        decode.aux(room)
    pair.produce(room, aux=b"a row")
    while decode.status(room) is not Status.SUCCESS:
        for each in pair.endpoints:
            each.poll()
    assert decode.aux(room) == b"a row"
    pair.finish(room)
    with pytest.raises(NotFoundError, match="has not landed"):
        decode.aux(room)


class Work(msgspec.Struct):
    done: int = 0
    live: int = 0
    aux: bool = False


@pytest.mark.parametrize(
    ("state", "work", "stage"),
    [
        (DRoom.OPEN, None, Status.WAITING), (DRoom.OPEN, Work(), Status.WAITING),
        (DRoom.OPEN, Work(done=1), Status.TRANSFERRING), (DRoom.OPEN, Work(live=1), Status.TRANSFERRING),
        (DRoom.OPEN, Work(aux=True), Status.TRANSFERRING), (DRoom.AWAIT_AUX, Work(), Status.TRANSFERRING),
        (DRoom.AWAIT_AUX, None, Status.TRANSFERRING), (DRoom.AWAIT_PEERS, Work(), Status.BOOTSTRAPPING),
    ],
)  # fmt: skip
def test_a_room_waits_until_something_of_it_moves(pair: Pair, state: DRoom, work: Work | None, stage: Status) -> None:
    assert pair.decodes[0]._stage(SimpleNamespace(state=state, work=work)) == stage


@pytest.mark.parametrize("cause", [Cause.NONE, Cause.STALLED])
def test_bytes_are_counted_of_rooms_that_succeed(pair: Pair, monkeypatch: pytest.MonkeyPatch, cause: Cause) -> None:
    arrived = Mock()
    monkeypatch.setattr(inside(pair.decodes[0]).data, "arrived", arrived)
    room = pair.open(TOKENS)
    entry = inside(pair.decodes[0]).entries[room.key]
    pair.decodes[0]._time_outcome(entry, cause)
    assert arrived.mock_calls == [call(entry)] * (not cause) and entry.ended > 0


# ------------------------------------------------------------------------------------------------ layer groups
def test_a_room_is_cut_into_as_many_groups_as_pay_for_an_average_rank(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, asked = pair.decodes[0], list[tuple[Any, ...]]()
    monkeypatch.setattr(decode_endpoint, "groups_that_pay", lambda *about: asked.append(about) or 3)  # type: ignore[func-returns-value]
    both = replace(layout(2), pp=2, layers=3)
    plan, settings = Plan(both, both, CHUNK_TOKENS), inside(decode).rank.settings
    assert decode._layer_groups(plan, TOKENS, None) == 1 and not asked, "one is all that there may be"
    monkeypatch.setattr(inside(decode).rank, "settings", replace(settings, layer_groups=2))
    assert plan.fewest_layers == 1 and decode._layer_groups(plan, TOKENS, None) == 1 and not asked
    deep = replace(both, layers=5)
    plan = Plan(deep, deep, CHUNK_TOKENS)
    token = (deep.held_bytes(0) + deep.held_bytes(2)) // 2
    for tokens, moved in ((TOKENS, CHUNK_TOKENS), (3, 3)):
        assert decode._layer_groups(plan, tokens, None) == 3
        assert asked.pop() == (inside(decode).data.costs, token * moved, 2)


# ------------------------------------------------------------------------------------------------ digests of pages
def test_parts_have_digests_of_pages_where_a_successful_room_has_no_others(pair: Pair) -> None:
    decode, plan = pair.decodes[0], pair.plan
    places = Mock(side_effect=lambda side, first, shares: [(first, 0, 0), (first, 0, 1)])
    ended = Outcome(Room(1), Cause.NONE)
    entry = cast("Any", SimpleNamespace(end=ended, carried=(plan, 0), tokens=2 * CHUNK_TOKENS))
    assert not list(decode._by_pages(entry, ())), "it makes no digests"
    decode._digesting = cast("Any", SimpleNamespace(places=places))
    (share,) = plan.writers(0)
    mine = read_back(share)
    known = [(0, 0, 0), (0, 0, 1), (CHUNK_TOKENS, 0, 1)]
    assert list(decode._by_pages(entry, known)) == [(CHUNK_TOKENS, CHUNK_TOKENS, mine)]
    assert places.mock_calls == [call("gather", 0, (mine,)), call("gather", CHUNK_TOKENS, (mine,))]
    for change in ({"end": replace(ended, cause=Cause.STALLED)}, {"end": None}, {"carried": None}):
        assert not list(decode._by_pages(cast("Any", SimpleNamespace(**{**vars(entry), **change})), ()))
