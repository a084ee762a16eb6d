"""The resources that a rank gives out in turn: slots, credits, permits, watermarks, ring regions.

Each is asked for and given back here by hand, as the machines of sends and grants do, with another room, another peer
and another group beside it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from test_rank_links import (
    BORN,
    CHUNK_TOKENS,
    DIGEST,
    FIRST,
    LEASE,
    ONE,
    OWN,
    SECOND,
    TOKENS,
    TWO,
    decode,
    hello,
    open_rooms,
    say,
)
from test_rank_links import prefill as linked

from kvproto.fsm.vocabulary import Effect, Event
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Claim, Terms
from kvproto.protocol.states import DGrant, DLink
from kvproto.rank.base import Rank
from kvproto.rank.decode import DecodeRank
from kvproto.rank.fair_queue import FairQueue
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.room_turns import digits
from kvproto.rank.space_queue import SpaceQueue
from kvproto.settings import Settings

Key = tuple[int, int, int]


def prefill(**changed: Any) -> PrefillRank:
    """A prefill rank with links 1 to 4 to (1, 0) to (2, 1), rooms 11 and 12 of group 1, 21 and 22 of 2."""
    rank = PrefillRank(ONE, 0, group=OWN, chunk_tokens=CHUNK_TOKENS, incarnation=BORN, settings=Settings(**changed))
    for group in (FIRST, SECOND):
        for index in range(2):
            link, _ = rank.hello(hello(group, index), 0.0, bytes([group, index]))
            rank.handle(ev.WiredUp(link, 1, f"wire {link}"), 0.0)
    open_rooms(rank)
    return rank


def act(rank: Rank, *effects: Effect) -> list[Event]:
    """Carry these out; the events that come of it."""
    for effect in effects:
        rank.inner[type(effect)](effect)
    events = list(rank._queue)
    rank._queue.clear()
    return events


# ------------------------------------------------------------------------------------------------- slots
def test_the_last_slot_is_not_for_a_decode_rank_that_holds_all_others() -> None:
    """Writes to one decode rank would keep all slots if it stopped; another rank's room has one at once."""
    rank = prefill(slots=4)
    mine: list[Key] = [(room, chunk, 0) for chunk in range(3) for room in (11, 12)]
    assert len(act(rank, *[do.TakeSlot(*key) for key in mine])) == 3 and list(rank.slot_queue) == mine[3:]
    assert act(rank, do.TakeSlot(21, 0, 0)) == [ev.SlotTaken(21, 0, 0, 0)]
    assert act(rank, do.FreeSlot(21, 0, 0)) == [] and rank.free_slots == [0], "it is kept for the others"
    assert len(act(rank, do.FreeSlot(*mine[0]))) == 1 and rank.free_slots == [0]
    act(rank, do.TakeSlot(12, 7, 1))
    assert len(act(rank, do.FreeSlot(*mine[1]))) == 1 and not rank.free_slots, "another decode rank has one"
    for key in [*rank.slot_of]:
        act(rank, do.FreeSlot(*key))
    assert len(rank.slot_of) + len(rank.free_slots) == 4


@pytest.mark.parametrize("slots", [1, 2])
def test_the_only_decode_rank_has_all_slots_and_one_slot_is_anybody_s(slots: int) -> None:
    rank = prefill(slots=slots)
    for link in [2, 3, 4] if slots > 1 else []:
        del rank.links[link]
    keys: list[Key] = [(11, chunk, 0) for chunk in range(slots)]
    assert len(act(rank, *[do.TakeSlot(*key) for key in keys])) == slots and not rank.slot_queue


def test_slots_go_round_among_decode_ranks_and_rooms_and_belong_to_one_send_each() -> None:
    rank = prefill(slots=2)
    assert act(rank, do.TakeSlot(11, 0, 0), do.TakeSlot(12, 0, 1)) == [
        ev.SlotTaken(12, 0, 1, 0),
        ev.SlotTaken(11, 0, 0, 1),
    ]
    waiting: list[Key] = [(11, 1, 0), (11, 2, 1), (12, 1, 1), (21, 0, 0)]
    assert act(rank, *[do.TakeSlot(*key) for key in waiting]) == [] and list(rank.slot_queue) == waiting
    assert act(rank, do.FreeSlot(11, 0, 0)) == [ev.SlotTaken(11, 1, 0, 1)], "nobody else waits for that decode rank"
    assert list(rank.slot_queue) == [(11, 2, 1), (12, 1, 1), (21, 0, 0)]
    assert act(rank, do.FreeSlot(11, 0, 0)) == [], "it is free already"
    assert rank.slot_of == {(12, 0, 1): 0, (11, 1, 0): 1} and rank.free_slots == []
    assert act(rank, do.FreeSlot(12, 0, 1)) == [ev.SlotTaken(11, 2, 1, 0)], "the others of that room are last now"
    assert act(rank, do.LeaveQueue(12, 1, 1), do.FreeSlot(11, 1, 0)) == [ev.SlotTaken(21, 0, 0, 1)]
    assert act(rank, do.FreeSlot(21, 0, 0), do.FreeSlot(11, 2, 1)) == []
    assert sorted(rank.free_slots) == [0, 1] and not rank.slot_of and not rank.slot_queue


def test_decode_ranks_take_turns_however_many_sends_each_has_waiting() -> None:
    queue = FairQueue(link=lambda key: key[2])
    for key in ((11, 0, 0), (12, 0, 0), (13, 0, 0), (21, 0, 1), (22, 0, 1)):
        queue.put(key)
    assert [queue.take() for _ in range(5)] == [(11, 0, 0), (21, 0, 1), (12, 0, 0), (22, 0, 1), (13, 0, 0)]


@pytest.mark.parametrize("seed", range(20))
def test_the_queue_for_slots_is_what_a_list_would_be(seed: int) -> None:
    chance, queue, plain = Random(seed), FairQueue(), list[Key]()
    for _ in range(200):
        key = room, *_ = chance.randrange(3), chance.randrange(4), chance.randrange(2)
        match chance.randrange(6):
            case 0 | 1:
                queue.put(key)
                plain += [key] * (key not in plain)
            case 2:
                queue.leave(key)
                plain = [other for other in plain if other != key]
            case 3 if plain:
                assert queue.take() == plain.pop(0)
            case 4:
                queue.put_last(key)
                plain.sort(key=lambda waiting: waiting[0] == room)
            case _:
                queue = FairQueue(queue)
        assert list(queue) == plain and len(queue) == len(plain) and repr(queue) == f"FairQueue({plain})"
    rooms = {room for turns in queue.turns.values() for room in turns._of_room}
    assert rooms == {waiting[0] for waiting in plain}, "nothing is kept for a room that does not wait"


def test_a_turn_for_a_slot_costs_what_the_room_has_waiting_and_not_the_queue() -> None:
    class Unread(OrderedDict[Key, None]):
        """In this order nobody looks for a room."""

        def __iter__(self) -> Iterator[Key]:
            raise AssertionError("somebody walks through the queue")

    rank = prefill(slots=1)
    act(rank, *[do.TakeSlot(room, chunk, 0) for room in (11, 12) for chunk in range(3)])
    (turns,) = rank.slot_queue.turns.values()
    order = turns.order = Unread(turns.order)
    assert act(rank, do.FreeSlot(11, 0, 0)) == [ev.SlotTaken(12, 0, 0, 0)]
    assert act(rank, do.FreeSlot(12, 0, 0)) == [ev.SlotTaken(11, 1, 0, 0)]
    assert act(rank, do.FreeSlot(11, 1, 0)) == [ev.SlotTaken(12, 1, 0, 0)] and len(order) == 2
    with pytest.raises(AssertionError, match="walks"):
        list(rank.slot_queue)


# ------------------------------------------------------------------------------------- credits and permits
def test_requests_are_bounded_by_link_and_asked_in_their_order() -> None:
    rank = prefill(max_unanswered_requests=2)
    keys: list[Key] = [(11, 0, 0), (11, 1, 0), (12, 0, 0), (12, 1, 0), (11, 2, 0)]
    assert act(rank, *[do.TakeCredit(*key) for key in keys]) == [ev.CreditTaken(*key) for key in keys[1::-1]]
    assert act(rank, do.TakeCredit(21, 0, 0), do.TakeCredit(12, 5, 1)) == [
        ev.CreditTaken(12, 5, 1),
        ev.CreditTaken(21, 0, 0),
    ]
    assert rank.credits == {1: {*keys[:2]}, 3: {(21, 0, 0)}, 2: {(12, 5, 1)}} and list(rank.credit_queues) == [1]
    assert act(rank, do.FreeCredit(12, 5, 1), do.FreeCredit(21, 0, 0)) == [] and list(rank.credits) == [1]
    assert act(rank, do.FreeCredit(11, 1, 0)) == [ev.CreditTaken(*keys[2])]
    assert act(rank, do.FreeCredit(11, 1, 0)) == [], "it has given it back"
    assert act(rank, do.LeaveQueue(*keys[3])) == [] and list(rank.credit_queues[1]) == [keys[4]]
    assert act(rank, do.FreeCredit(*keys[0]), do.FreeCredit(*keys[2])) == [ev.CreditTaken(*keys[4])]
    assert rank.credits == {1: {keys[4]}} and rank.credit_queues == {}
    assert act(rank, do.LeaveQueue(*keys[3]), do.FreeCredit(*keys[4])) == [] and rank.credits == {}, "nothing is kept"


def test_who_leaves_the_queue_as_the_last_leaves_nothing_behind() -> None:
    rank = prefill(max_unanswered_requests=1)
    act(rank, do.TakeCredit(21, 0, 0), do.TakeCredit(21, 1, 0), do.LeaveQueue(21, 1, 0), do.FreeCredit(21, 0, 0))
    assert rank.credit_queues == rank.credits == {}
    act(rank, do.TakeCredit(11, 0, 0), do.TakeCredit(11, 1, 0), do.LeaveQueue(11, 1, 0))
    assert rank.credit_queues == {} and rank.credits == {1: {(11, 0, 0)}}
    assert act(rank, do.TakeCredit(12, 0, 0), do.FreeCredit(11, 0, 0)) == [ev.CreditTaken(12, 0, 0)]


def test_who_has_no_link_asks_on_nobody_s_account() -> None:
    rank = prefill(max_unanswered_requests=1)
    act(rank, do.TakeCredit(11, 0, 0), do.TakeCredit(12, 0, 0))
    assert act(rank, do.TakeCredit(11, 0, 7)) == [ev.CreditTaken(11, 0, 7)]
    assert act(rank, do.FreeCredit(11, 0, 7)) == [] and rank.credits == {1: {(11, 0, 0)}}
    assert act(rank, do.FreeCredit(11, 0, 7)) == [], "nobody has taken one"
    assert list(rank.credit_queues[1]) == [(12, 0, 0)]


def test_writes_over_pages_are_bounded_and_begin_in_their_order() -> None:
    rank = prefill(page_writes=2)
    keys: list[Key] = [(11, 0, 0), (21, 0, 0), (12, 0, 1), (12, 1, 1), (22, 0, 0)]
    assert act(rank, *[do.TakePermit(*key) for key in keys]) == [ev.PermitTaken(*key) for key in keys[1::-1]]
    assert act(rank, do.LeaveQueue(*keys[2])) == [] and list(rank.permit_queue) == keys[3:]
    assert act(rank, do.FreePermit(*keys[2])) == [], "it has none"
    assert act(rank, do.FreePermit(*keys[0])) == [ev.PermitTaken(*keys[3])] and rank.permits == {keys[1], keys[3]}
    assert act(rank, do.FreePermit(*keys[1]), do.FreePermit(*keys[3])) == [ev.PermitTaken(*keys[4])]
    assert rank.permits == {keys[4]} and not rank.permit_queue


def test_one_that_comes_while_another_waits_for_a_free_permit_goes_behind_it() -> None:
    rank = prefill(page_writes=2)
    mine: list[Key] = [(11, chunk, 0) for chunk in range(3)]
    assert act(rank, *[do.TakePermit(*key) for key in mine]) == [ev.PermitTaken(*mine[0])], "the last is for the other"
    assert act(rank, do.FreePermit(*mine[0]), do.TakePermit(*mine[0])) == [ev.PermitTaken(*mine[1])]
    assert list(rank.permit_queue) == [mine[2], mine[0]]


def test_the_last_permit_is_not_for_a_decode_rank_that_holds_all_others() -> None:
    rank = prefill(page_writes=3)
    mine: list[Key] = [(11, chunk, 0) for chunk in range(4)]
    assert len(act(rank, *[do.TakePermit(*key) for key in mine])) == 2 and list(rank.permit_queue) == mine[2:]
    assert act(rank, do.TakePermit(21, 0, 0)) == [ev.PermitTaken(21, 0, 0)]
    assert act(rank, do.FreePermit(21, 0, 0)) == [] and len(rank.permits) == 2, "it is kept for the others"
    assert act(rank, do.FreePermit(*mine[0])) == [ev.PermitTaken(*mine[2])]


# --------------------------------------------------------------------------------------------- watermarks
def test_a_watermark_lets_those_go_whose_regions_it_has_passed_in_the_ring_s_order() -> None:
    rank = prefill()
    for watched in (
        (11, 0, 0, 2, 96), (11, 1, 0, 1, 64), (12, 0, 0, 2, 32), (12, 1, 0, 1, 256), (21, 0, 0, 1, 64),
    ):  # fmt: skip
        act(rank, do.WatchWatermark(*watched))
    assert len(rank.watch[3]) == 1 and act(rank, do.ReleaseWaiting(1)) == []
    rank.links[1] = replace(rank.links[1], mark_round=0, mark_tail=64)
    assert act(rank, do.ReleaseWaiting(1)) == [ev.WatermarkReached(11, 1, 0)]
    rank.links[1] = replace(rank.links[1], mark_round=1, mark_tail=95)
    assert act(rank, do.ReleaseWaiting(1)) == [ev.WatermarkReached(12, 1, 0), ev.WatermarkReached(12, 0, 0)]
    assert rank.watch[1] == [(2, 96, 11, 0, 0)]
    rank._out.clear()
    act(rank, do.AskWatermark(21, 0))
    assert [(each.link, each.room, each.body) for each in rank._out] == [(3, 0, msg.WatermarkReq())]


# ------------------------------------------------------------------------------------------------ the ring
SIZE = Plan(TWO, ONE, CHUNK_TOKENS).grant_bytes(0, Cut(0, CHUNK_TOKENS))


def filled(regions: int, *rooms: tuple[int, int, int]) -> DecodeRank:
    """A decode rank with so many regions and no more, in which these rooms (room, group, tokens) are open."""
    rank = DecodeRank(
        ONE,
        0,
        group=OWN,
        chunk_tokens=CHUNK_TOKENS,
        incarnation=1,
        settings=Settings(ring_bytes=regions * SIZE, ring_rounds_ahead=1),
    )
    for link, (group, index) in enumerate([(FIRST, 0), (FIRST, 1), (SECOND, 0), (SECOND, 1)], 1):
        rank.call(group, index, Plan(TWO, ONE, CHUNK_TOKENS), 0.0, "there")
        session = rank.links[link].session
        said = msg.Welcome(msg.VERSION, DIGEST, session, link, group, index, TWO, CHUNK_TOKENS, LEASE)
        rank.receive(link, 0, 0, said, 0.0)
    for room, group, tokens in rooms:
        rank.handle(ev.RoomOpened(room, rank.terms(group, Plan(TWO, ONE, CHUNK_TOKENS)), tokens, 0), 0.0)
        for link in (1, 2) if group == FIRST else (3, 4):
            say(rank, link, msg.Opened(), room)
    return rank


def ask(rank: DecodeRank, room: int, *chunks: int) -> None:
    """Both writers of these chunks ask for a region."""
    first = 1 if rank.value_of(room).terms.group == FIRST else 3
    for chunk in chunks:
        for link in (first, first + 1):
            say(rank, link, msg.StagingReq(chunk), room)


def given(rank: DecodeRank) -> list[tuple[int, int]]:
    """The owners of the regions, in the order in which they were given."""
    return [rank.chunk_of[grant] for grant in sorted(rank.chunk_of)]


def test_a_room_alone_has_all_but_one_region_and_with_others_half_of_the_ring() -> None:
    rank = filled(6, (11, FIRST, 9 * CHUNK_TOKENS), (21, SECOND, 9 * CHUNK_TOKENS))
    ask(rank, 11, *range(8))
    assert given(rank) == [(11, chunk) for chunk in range(5)] and rank.held(11) == 5 * SIZE and rank.held(21) == 0
    assert (rank.share(11, SIZE), rank.share(21, SIZE), rank.share(21, 4 * SIZE)) == (5 * SIZE, 3 * SIZE, 8 * SIZE)
    ask(rank, 21, 0, 1)
    assert given(rank)[5:7] == [(21, 0), (21, 1)] and list(rank.space_queue) == [(11, 5), (11, 6), (11, 7)]
    assert set(rank.space_queue.values()) == {SIZE}
    assert (rank.share(11, SIZE), rank.share(21, SIZE)) == (3 * SIZE, 3 * SIZE), "both hold some of it"
    act(rank, do.CancelSpace(11, 6), do.FreeSpace(min(rank.chunk_of)))
    assert list(rank.space_queue) == [(11, 5), (11, 7)], "it still holds more than half"


def test_a_room_alone_has_as_much_from_the_queue_and_is_told_of_it() -> None:
    rank = filled(6, (11, FIRST, 9 * CHUNK_TOKENS))
    ask(rank, 11, *range(8))
    assert given(rank) == [(11, chunk) for chunk in range(5)]
    del rank.grants[11][0]
    assert act(rank, do.FreeSpace(1)) == [ev.SpaceReserved(11, 5, 6, 5 * SIZE, 0, 6 * SIZE)]
    assert given(rank) == [(11, chunk) for chunk in range(1, 6)] and list(rank.space_queue) == [(11, 6), (11, 7)]


def test_what_is_given_in_one_go_counts_in_the_room_s_share() -> None:
    rank = filled(6, (11, FIRST, 9 * CHUNK_TOKENS), (21, SECOND, 9 * CHUNK_TOKENS))
    ask(rank, 21, 0)
    rank.ring.ahead = -1  # nothing more may be promised
    ask(rank, 11, 3, 4, 5, 6, 7)
    ask(rank, 21, 1)
    assert given(rank) == [(21, 0)] and len(rank.space_queue) == 6
    rank.ring.ahead = 1
    act(rank, do.FreeSpace(1))
    assert given(rank) == [(11, 3), (11, 4), (11, 5), (21, 1)] and list(rank.space_queue) == [(11, 6), (11, 7)]


def test_a_room_s_smaller_chunk_does_not_overtake_an_older_one_that_waits() -> None:
    """It would fit into the room's share, and use up what the older one waits for."""
    rank = filled(6, (11, FIRST, 9 * CHUNK_TOKENS + 1))
    ask(rank, 11, *range(6), 9)
    assert given(rank) == [(11, chunk) for chunk in range(5)] and list(rank.space_queue) == [(11, 5), (11, 9)]


def test_a_chunk_that_is_larger_than_the_ring_is_denied_and_one_that_just_fits_is_not() -> None:
    for size, denied in ((SIZE, False), (SIZE - 1, True)):
        rank = filled(1, (11, FIRST, CHUNK_TOKENS))
        rank.ring.size = size
        ask(rank, 11, 0)
        assert (not rank.chunk_of and not rank.space_queue) if denied else given(rank) == [(11, 0)]


def small_and_large() -> DecodeRank:
    """Twenty small rooms that have asked, and a large one that has not; the ring holds two regions."""
    rank = filled(2, (50, SECOND, 40 * CHUNK_TOKENS), *[(room, FIRST, CHUNK_TOKENS) for room in range(11, 31)])
    for room in range(11, 31):
        ask(rank, room, 0)
    return rank


def served(rank: DecodeRank, times: int) -> list[int]:
    """The rooms that get regions while the oldest region is given back so many times."""
    rooms, first = list[int](), rank.ring.next_grant
    for _ in range(times):
        oldest = min(rank.chunk_of)
        room, chunk = rank.chunk_of[oldest]
        del rank.grants[room][chunk]
        act(rank, do.FreeSpace(oldest))
        rooms += [rank.chunk_of[grant][0] for grant in range(first, rank.ring.next_grant)]
        first = rank.ring.next_grant
    return rooms


def test_a_larger_room_has_one_turn_of_four_and_then_the_small_have_three_again() -> None:
    rank = small_and_large()
    ask(rank, 50, *range(4))
    order = served(rank, 15)
    assert [at for at, room in enumerate(order) if room == 50][:3] == [3, 7, 11]


def test_turns_that_went_before_nobody_larger_do_not_count() -> None:
    rank = small_and_large()
    assert 50 not in served(rank, 5)
    ask(rank, 50, 0)
    assert served(rank, 6).index(50) == 3


def test_who_need_not_wait_goes_before_nobody() -> None:
    rank = small_and_large()
    ask(rank, 50, 0)
    order = served(rank, 2)
    assert rank.space_turns.passed == len(order) > 0, "some have gone before the larger one"
    for key in [*rank.space_queue]:
        act(rank, do.CancelSpace(*key))
    served(rank, 2)
    ask(rank, 11, 0)
    assert rank.space_turns.passed == 0 and (11, 0) in given(rank)


@pytest.mark.parametrize("seed", range(20))
def test_whose_turn_it_is_is_what_a_walk_through_the_queue_finds(seed: int) -> None:
    chance, queue, plain, tokens = Random(seed), SpaceQueue(), dict[tuple[int, int], int](), (1, 3, 3, 9, 40)

    def walked(least: int) -> tuple[int, int] | None:
        return next((key for key, size in plain.items() if may(key, size) and digits(tokens[key[0]]) > least), None)

    for _ in range(300):
        key = room, _ = chance.randrange(len(tokens)), chance.randrange(6)
        size, barred = chance.randrange(1, 9), {chance.randrange(len(tokens)) for _ in range(3)}
        if chance.random() < 0.6:
            queue.put(key, size, tokens[room])
            plain.setdefault(key, size)
        else:
            queue.leave(key)
            plain.pop(key, None)

        def may(key: tuple[int, int], size: int, barred: set[int] = barred) -> bool:
            return key[0] not in barred and size < 7

        first = queue.oldest(may)
        assert first == walked(-1) and list(queue.items()) == list(plain.items()) and len(queue) == len(plain)
        assert first is None or queue.oldest(may, than=first) == walked(digits(tokens[first[0]]))
        again = SpaceQueue()
        for key, size in plain.items():
            again.put(key, size, tokens[key[0]])
        assert again == queue and repr(queue) == f"SpaceQueue({[*plain.items()]})"
        assert (not plain or again != SpaceQueue()) and queue != plain
        assert queue._by_digits.keys() == {digits(tokens[room]) for room, _ in plain}, "nothing is kept of others"


def test_regions_that_are_freed_cost_the_same_however_many_rooms_wait() -> None:
    class Looked(dict[int, Any]):
        """Rooms, and how often somebody has looked at one."""

        looks = 0

        def get(self, room: int, default: Any = None) -> Any:
            self.looks += 1
            return super().get(room, default)

        def __getitem__(self, room: int) -> Any:
            self.looks += 1
            return super().__getitem__(room)

    looks = list[int]()
    for last in (18, 74):
        rank = filled(2, *[(room, FIRST, CHUNK_TOKENS) for room in range(11, last + 1)])
        for room in range(11, last + 1):
            ask(rank, room, 0)
        rooms = rank.rooms = Looked(rank.rooms)
        (first, second, *_), held = rank.space_queue, sorted(rank.chunk_of)
        act(rank, do.FreeSpace(held[0]), do.FreeSpace(held[1]))
        assert given(rank)[len(held) - 2 :] == [first, second], "a round is free, and two regions are given"
        looks.append(rooms.looks)
    assert looks[0] == looks[1]


def test_what_becomes_usable_is_told_to_each_and_what_is_free_is_given_at_once() -> None:
    rank = filled(
        4,
        (11, FIRST, 2 * CHUNK_TOKENS),
        (12, FIRST, 2 * CHUNK_TOKENS),
        (21, SECOND, 2 * CHUNK_TOKENS),
        (22, SECOND, 2 * CHUNK_TOKENS),
    )
    for room in (11, 12, 21, 22):
        ask(rank, room, 0, 1)
    assert given(rank) == [(room, chunk) for room in (11, 12, 21, 22) for chunk in (0, 1)]
    assert act(rank, do.FreeSpace(1)) == [ev.SpaceUsable(21, 0)]
    assert act(rank, do.FreeSpace(3)) == [] and act(rank, do.FreeSpace(2)) == [
        ev.SpaceUsable(21, 1),
        ev.SpaceUsable(22, 0),
    ]
    ask(rank, 22, 1)
    assert not rank.space_queue and sorted(rank.chunk_of) == [4, 5, 6, 7, 8]


def test_what_will_be_scattered_is_expected_from_the_regions_given_since() -> None:
    rank = filled(4, (11, FIRST, 2 * CHUNK_TOKENS - 3), (21, SECOND, 2 * CHUNK_TOKENS))
    ask(rank, 11, 0, 1)
    ask(rank, 21, 0)
    values = [rank.grants[11][0], rank.grants[11][1], rank.grants[21][0]]
    assert [value.state for value in values] == [DGrant.FILLING] * 3
    expected = [
        do.LaunchScatter(11, 0, 0b11, values[0].offset, values[0].end, Cut(0, CHUNK_TOKENS)),
        do.LaunchScatter(11, 1, 0b11, values[1].offset, values[1].end, Cut(CHUNK_TOKENS, CHUNK_TOKENS - 3)),
        do.LaunchScatter(21, 0, 0b11, values[2].offset, values[2].end, Cut(0, CHUNK_TOKENS)),
    ]
    assert [rank.expected_scatters(since) for since in (1, 2, 4)] == [expected, expected[1:], []]
    del rank.chunk_of[2], rank.grants[21][0]
    assert rank.expected_scatters(1) == expected[:1]


# -------------------------------------------------------------------------------------------- a room's group
def test_a_room_has_its_plan_and_its_terms_from_whatever_link_is_left() -> None:
    rank = decode()
    open_rooms(rank)
    plan = rank.peers[1].plan
    assert rank.plan_of(11) is plan and rank.plan_of(21) is rank.peers[3].plan
    for peer in (0, 1):
        link = rank.link_of.pop((FIRST, peer))
        if peer:
            with pytest.raises(LookupError, match="no link leads to the group of room 11"):
                rank.plan_of(11)
        else:
            assert rank.plan_of(11) is rank.peers[2].plan, link
    known = rank.peers[3]
    assert known.plan is not None and known.terms is not None
    assert rank.terms(SECOND, known.plan, 2) == replace(known.terms, layer_groups=2)
    assert rank.terms(7, known.plan).group == 7, "another group may hold its KV alike"
    lead = Plan(TWO, ONE, CHUNK_TOKENS).lead(0)
    assert rank.terms(7, Plan(TWO, ONE, CHUNK_TOKENS), 2) == Terms(
        7, 0b11, 0b11, 1 << lead, CHUNK_TOKENS, layer_groups=2
    )


def test_a_refused_link_is_called_anew_and_a_link_that_is_left_is_needed_by_its_rooms_alone() -> None:
    rank = decode()
    session = rank.links[1].session
    rank.links[1] = replace(rank.links[1], state=DLink.REFUSED, session=session + 5)
    refused = rank.links[1].session
    rank.call(FIRST, 0, Plan(TWO, ONE, CHUNK_TOKENS), 0.0, "1.0")
    assert (refused, rank.links[1].session) == (session + 5, session + 6), (
        "what was said of the refused call is not said of this one"
    )
    open_rooms(rank)
    rank.links[3] = replace(rank.links[3], leaving=True)
    assert rank._needed(3, 99) and not rank._needed(4, 99)


# --------------------------------------------------------------------------------------- rooms of others
def test_rooms_that_only_others_have_opened_are_counted_and_no_others() -> None:
    rank = linked()
    object.__setattr__(rank, "settings", Settings(unclaimed_rooms=2))
    rank.handle(ev.EngineOpened(31, 8, Claim(FIRST)), 0.0)
    say(rank, 1, msg.Open(8, 0), 31)
    assert not rank.unclaimed, "the engine knows it"
    for room in (32, 33):
        say(rank, 1, msg.Open(8, 0), room)
    assert rank.unclaimed == {32, 33}
    rank.tombs[40] = rank.rooms[31]
    assert [rank.full(room) for room in (31, 32, 40, 41)] == [False, False, False, True]
    assert rank.counts["rooms beyond the bound"] == 1


def test_a_call_is_in_the_trace_as_what_it_is() -> None:
    rank = linked()
    heard = [entry[1] for entry in rank.trace if len(entry) == 4]
    assert [(link, epoch, room) for link, epoch, room, _ in heard] == [(link, 0, 0) for link in (1, 2, 3, 4)]


def test_nothing_is_kept_for_a_link_or_a_room_that_has_nothing_left() -> None:
    rank = prefill()
    rank.credits.clear()
    assert act(rank, do.FreeCredit(11, 0, 0)) == []
    rank.credits[2], rank.credit_queues[2] = set(), OrderedDict()
    rank._tidy(2)
    assert not rank.credits and not rank.credit_queues
    queue = SpaceQueue()
    queue.put((11, 0), 64, TOKENS)
    queue.leave((11, 0))
    assert not queue and not queue._of_room and not queue._by_digits
