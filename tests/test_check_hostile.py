"""Messages that only a breaker of the protocol sends are refused by real ranks, and harm nothing.

The checker's worlds keep to the protocol. Here they do not: a chunk number that no plan has, a room that is opened
twice, a word about another group's room (`test_foreign_groups` has them all), a part that nobody agreed to. Each test
also plants the missing refusal, to show that it is what protects.
"""

from __future__ import annotations

from typing import Any

import pytest
from test_foreign_groups import OTHER, at_work
from test_foreign_groups import ROOM as KEY

from kvproto.fsm.vocabulary import Effect, Report
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import room_key
from kvproto.protocol.routes import SenderIs, prefill_routes
from kvproto.protocol.states import Cause, DGrant, DRoom, PRoom, PSend
from kvproto.protocol.tables.decode_grant import as_agreed, decode_grant
from kvproto.protocol.tables.decode_room import decode_room
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.check.config import Config
from kvproto.verify.check.nodes_decode import DecodeNode
from kvproto.verify.check.snapshot import thaw_decode
from kvproto.verify.check.successors import Explorer
from kvproto.verify.framework.table_patching import TablePatch

CONFIG = Config(ring=1)
ROOM = CONFIG.keys[0]


def opened() -> DecodeRank:
    """A decode rank with its link up and one room open."""
    world = Explorer(CONFIG)
    node = world.nodes[1]
    assert isinstance(node, DecodeNode)
    value, _ = node.step(world.part(world.initial(), 1), ("open", 0))
    thaw_decode(node.rank, node.names, value.rank)
    return node.rank


def said(rank: DecodeRank, body: msg.Message) -> list[Effect]:
    return rank.receive(1, rank.links[1].epoch, ROOM, body, 0.0)


@pytest.mark.parametrize("chunk", [2, 63, 2**24 - 1])
def test_unbounded_index(chunk: int) -> None:
    rank = opened()
    assert [type(effect) for effect in said(rank, msg.StagingReq(chunk))] == [Report]
    assert not rank.grants and not rank.ring.live and rank.rooms[ROOM].work is None


def test_unbounded_index_planted() -> None:
    def any_chunk(v: Any, e: ev.ChunkRequested, now: float) -> bool:
        del v, e, now
        return True

    with TablePatch() as bench:
        rows = bench.rows(decode_room, (DRoom.AWAIT_PEERS, DRoom.OPEN), ev.ChunkRequested, "of_plan")
        bench.change(decode_room, rows, when=any_chunk)
        rank = opened()
        said(rank, msg.StagingReq(2**24 - 1))
        assert 2**24 - 1 in rank.grants[ROOM], "a chunk that the room has not is granted, and never given up"


def test_duplicate_room() -> None:
    rank = opened()
    before = rank.rooms[ROOM]
    effects = rank.handle(ev.RoomOpened(ROOM, before.terms, 2, 0), 0.0)
    assert [type(effect) for effect in effects] == [Report]
    assert rank.rooms[ROOM] is before
    anew = room_key(ev.room_of(ROOM)[0], 1)
    rank.handle(ev.RoomOpened(anew, before.terms, 2, 0), 0.0)
    assert rank.rooms[ROOM] is before and rank.rooms[anew].tokens == 2


def test_duplicate_room_planted() -> None:
    def merge(v: Any, e: ev.RoomOpened, now: float) -> Any:
        del now
        return type(v)(v.state, terms=e.terms, tokens=e.tokens)

    with TablePatch() as bench:
        rows = bench.rows(decode_room, DRoom.AWAIT_PEERS, ev.RoomOpened)
        bench.change(decode_room, rows, verb="row", let=merge)
        rank = opened()
        rank.handle(ev.RoomOpened(ROOM, rank.rooms[ROOM].terms, 2, 0), 0.0)
        assert rank.rooms[ROOM].tokens == 2, "the second room took the first one's place"


def outsider_acks() -> PrefillRank:
    """A prefill rank with a notified send hears a confirmation from another group's rank 0."""
    rank, links = at_work("writing")
    rank.handle(ev.BatchCompleted(KEY, 0, 0), 0.0)
    assert rank.sends[KEY][0].state is PSend.AWAIT_ACK
    rank.receive(links[OTHER], rank.links[links[OTHER]].epoch, KEY, msg.ChunkAck(0), 0.0)
    return rank


def test_foreign_room() -> None:
    assert outsider_acks().sends[KEY][0].state is PSend.AWAIT_ACK


def test_foreign_room_planted() -> None:
    with TablePatch() as bench:
        bench.close(prefill_routes, bench.routes(prefill_routes, msg.ChunkAck, SenderIs.OUTSIDER))
        assert 0 not in outsider_acks().sends[KEY], "the send is done, and nobody has confirmed it"


def outsider_aborts() -> PrefillRank:
    """A prefill rank with a room at work hears another group abort the same room id."""
    rank, links = at_work("granted")
    rank.receive(links[OTHER], rank.links[links[OTHER]].epoch, KEY, msg.Abort(Cause.DECODE_ABORTED), 0.0)
    return rank


def test_collision_kills() -> None:
    rank = outsider_aborts()
    assert rank.rooms[KEY].state is PRoom.OPEN and rank.sends[KEY]


def test_collision_kills_planted() -> None:
    with TablePatch() as bench:
        bench.close(prefill_routes, bench.routes(prefill_routes, msg.Abort, SenderIs.OUTSIDER))
        assert outsider_aborts().rooms[KEY].state is not PRoom.OPEN, "the first group's room ends"


def part_while_waiting() -> DecodeRank:
    """A decode rank whose chunk waits for a region, and then hears that a part is in the pages."""
    rank = opened()
    while rank.ring.reserve(rank.ring.size) is not None:
        pass
    said(rank, msg.StagingReq(0))
    assert rank.grants[ROOM][0].state is DGrant.AWAIT_SPACE
    said(rank, msg.StgNotify(0, 0))
    return rank


def test_zero_is_agreed() -> None:
    assert not part_while_waiting().grants[ROOM][0].arrived


def test_zero_is_agreed_planted() -> None:
    with TablePatch() as bench:
        rows = bench.rows(decode_grant, DGrant.AWAIT_SPACE, ev.PartArrived, "came_by_pages")
        bench.change(decode_grant, rows, when=as_agreed)
        assert part_while_waiting().grants[ROOM][0].arrived, "a scatter would read a part that nobody has written"
