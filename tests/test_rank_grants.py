"""A decode rank's messages about its grants: receiver, tokens, watermark and doubt.

Each effect is carried out by hand, on ranks with two rooms of each of two groups (`test_rank_queues`), so that another
room, another peer and another group stand beside what is meant.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from test_foreign_groups import answers
from test_rank_links import CHUNK_TOKENS, FIRST, SECOND, decode, open_rooms, say
from test_rank_queues import SIZE, act, ask, filled

from kvproto.layout.cut import NO_CUT, Cut
from kvproto.layout.plan import Plan
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import DGrant, DLink
from kvproto.protocol.tables.decode_grant import DGrantValue
from kvproto.rank.decode import DecodeRank

#: room 21 here: three cells of two layer groups, the last of three tokens
ROOM, PREFIX, TOKENS, GROUPS = 21, 5, 40, 2


def with_room() -> DecodeRank:
    """A rank whose ring has been gone round once and more."""
    rank = filled(4, *[(room, FIRST if room < ROOM else SECOND, 4 * CHUNK_TOKENS) for room in (11, 12, 21, 22)])
    value = rank.rooms[ROOM]
    rank.rooms[ROOM] = replace(value, tokens=TOKENS, prefix=PREFIX, terms=replace(value.terms, layer_groups=GROUPS))
    ask(rank, 11, 0, 1)
    ask(rank, 12, 0, 1, 2)
    act(rank, do.FreeSpace(1))
    assert rank.ring.mark == (0, SIZE)
    rank._out.clear()
    return rank


def made(rank: DecodeRank, *effects: Any) -> list[Any]:
    """The effects that others carry out."""
    rank._out.clear()
    assert act(rank, *effects) == []
    return list(rank._out)


def test_a_request_that_opens_a_grant_names_its_chunk() -> None:
    rank = with_room()
    assert rank.cut_of(ROOM, 5) == Cut(37, 3, 1, GROUPS)
    assert rank.cut_of(ROOM, 6) == rank.cut_of(23, 0) == NO_CUT, "there is none"
    rank.rooms[ROOM] = replace(rank.rooms[ROOM], terms=None)
    assert rank.cut_of(ROOM, 5) == NO_CUT, "it is only announced"


def test_regions_and_places_in_the_queue_are_told_with_the_watermark_as_it_is() -> None:
    rank = with_room()
    mark = 0, SIZE
    granted = made(rank, do.SendGrant(ROOM, 0b11, 5, 7, 64, 2, 128, 8.0, True))
    assert answers(granted) == [(link, msg.StagingRsp(5, 7, 64, 2, 128, *mark, 8.0, True)) for link in (3, 4)]
    assert [each.room for each in granted] == [ROOM, ROOM]
    queued = made(rank, do.SendQueued(ROOM, 0b10, 5))
    assert answers(queued) == [(4, msg.StagingQueued(5, *mark))] and queued[0].room == ROOM
    told = made(rank, do.SendWatermark(ROOM, 0b10))
    assert answers(told) == [(4, msg.Watermark(*mark))] and told[0].room == 0


def test_pages_go_by_the_link_of_who_asks() -> None:
    rank = with_room()
    logged = list[Any]()
    rank.log = logged.append
    effects = say(rank, 4, msg.PagesReq(5, 8.0), ROOM)
    assert any(each[0] in effects for each in logged if isinstance(each, tuple)), "its trace has it"
    (told,) = [each for each in effects if isinstance(each, do.TransmitPages)]
    assert told == do.TransmitPages(4, rank.links[4].epoch, ROOM, 5, Cut(37, 3, 1, GROUPS), 8.0)
    assert say(rank, 4, msg.PagesReq(5, 9.0), ROOM) == [replace(told, asked=9.0)]


def test_a_chunk_s_region_is_as_large_as_what_its_layer_group_has() -> None:
    rank = with_room()
    plan = rank.plan_of(ROOM)
    for chunk, tokens in ((0, CHUNK_TOKENS), (5, 3)):
        for waiting in [*rank.space_queue]:
            rank.space_queue.leave(waiting)
        rank.ring.ahead = -1  # nothing may be promised
        assert act(rank, do.ReserveSpace(ROOM, chunk, rank.cut_of(ROOM, chunk))) == [ev.SpaceQueued(ROOM, chunk)]
        assert dict(rank.space_queue) == {(ROOM, chunk): plan.grant_bytes(0, Cut(0, tokens, chunk % GROUPS, GROUPS))}
    rank.ring.size = rank.space_queue[ROOM, 5] - 1
    assert act(rank, do.ReserveSpace(ROOM, 5, rank.cut_of(ROOM, 5))) == [ev.SpaceDenied(ROOM, 5)]


def test_a_room_s_end_is_told_to_each_grant_with_the_doubt_of_all() -> None:
    rank = with_room()
    assert act(rank, do.StopGrants(ROOM)) == [ev.GrantsStopped(ROOM, 0)] and act(rank, do.DrainGrants(ROOM)) == []
    rank.grants[ROOM] = {
        0: DGrantValue(DGrant.FILLING, writers=0b111, asked=0b101, arrived=0b100),
        3: DGrantValue(DGrant.FILLING, writers=0b111, asked=0b010, arrived=0),
        4: DGrantValue(DGrant.AWAIT_SPACE, writers=0b1111, asked=0b1000),
    }
    assert act(rank, do.StopGrants(ROOM)) == [
        ev.RoomStopped(ROOM, 0), ev.RoomStopped(ROOM, 3), ev.RoomStopped(ROOM, 4), ev.GrantsStopped(ROOM, 0b011),
    ]  # fmt: skip
    assert act(rank, do.DrainGrants(ROOM)) == [ev.RoomDrained(ROOM, chunk) for chunk in (0, 3, 4)]


def test_links_are_asked_whether_they_are_there_or_quiet_each_with_its_own_doubt() -> None:
    rank = decode()
    open_rooms(rank)
    assert act(rank, do.AskLinks(ROOM, 0b11, quiet=False)) == [ev.OpenAsked(3, ROOM, 0), ev.OpenAsked(4, ROOM, 1)]
    assert act(rank, do.AskLinks(ROOM, 0b111, quiet=True, in_doubt=0b110)) == [
        ev.QuietAsked(3, ROOM, 0, False), ev.QuietAsked(4, ROOM, 1, True), ev.QuietAsked(0, ROOM, 2, True),
    ]  # fmt: skip
    assert act(rank, do.RaisePeerQuiet(4)) == [ev.PeerQuiet(21, 1), ev.PeerQuiet(22, 1)]


def test_a_link_without_rooms_is_needed_by_none() -> None:
    """It is looked at where a link has been silent for as long as may be, or is being left."""
    rank = decode()
    open_rooms(rank)
    for silent, leaving, needed in ((2, False, False), (3, False, True), (4, False, True), (0, True, True)):
        rank.links[3] = replace(rank.links[3], silent=silent, leaving=leaving)
        assert rank._needed(3, 3) == needed
        rooms = {room: rank.rooms.pop(room) for room in (21, 22)}
        assert not rank._needed(3, 3), "those that are left are another group's"
        rank.rooms |= rooms


def test_a_call_to_a_rank_that_is_known_keeps_its_link_and_takes_the_plan_anew() -> None:
    rank = decode()
    plan = rank.peers[1].plan
    assert plan is not None
    link, effects = rank.call(FIRST, 1, Plan(plan.prefill, plan.decode, 2 * plan.chunk_tokens), 0.0, "elsewhere")
    assert link == 2 and [each.address for each in effects if isinstance(each, do.Dial)] == ["elsewhere"]
    assert rank.links[2].state is DLink.AWAIT_RETURN and rank.next_link == 5
    assert rank.hello(9, 2).rank == 0 and rank.hello(9, 2).to_rank == 1
