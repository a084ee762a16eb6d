"""A rank's links, call by call: whom it hears and tells, and what it keeps of a former incarnation.

Each rank has two groups at its other end, of two ranks each, with the same indices.  So whatever is meant for one link,
one rank, one group or one epoch has another beside it that must not have it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from support.stories import layout
from test_foreign_groups import answers

from kvproto.errors import ArgumentError
from kvproto.fsm.copies import CopyNumbers
from kvproto.fsm.driver import SENT
from kvproto.fsm.vocabulary import Effect
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.placement import dense
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.events import Claim, PeerBuild, Terms
from kvproto.protocol.routes import NOT_UP, SenderIs
from kvproto.protocol.states import Cause, DLink, PLink, PRoom
from kvproto.protocol.tables.decode_room import DecodeWork
from kvproto.protocol.tables.prefill_room import PrefillWork
from kvproto.rank import base
from kvproto.rank.base import BESIDE, CURRENT, STRANGER, LinkPeer, Rank, by_link, by_room
from kvproto.rank.decode import DecodeRank, by_chunk
from kvproto.rank.prefill import PrefillRank, by_send, by_write
from kvproto.settings import Settings

ONE, TWO, CHUNK_TOKENS, TOKENS = layout(1), layout(2), 16, 32
OWN, FIRST, SECOND = 9, 1, 2
BORN = (1 << 48) - 1
LEASE = 30.0
DIGEST = tables_digest()


def prefill() -> PrefillRank:
    """One prefill rank; the decode ranks (1, 0), (1, 1), (2, 0), (2, 1) have links 1 to 4, which are up."""
    rank = PrefillRank(ONE, 0, group=OWN, chunk_tokens=CHUNK_TOKENS, incarnation=BORN)
    for group in (FIRST, SECOND):
        for index in range(2):
            link, _ = rank.hello(hello(group, index), 0.0, bytes([group, index]))
            rank.handle(ev.WiredUp(link, 1, f"wire {link}"), 0.0)
    assert [value.state for value in rank.links.values()] == [PLink.UP] * 4
    return rank


def hello(group: int, index: int, session: int = 1, /, **changed: Any) -> msg.Hello:
    said = msg.Hello(msg.VERSION, DIGEST, session, group, index, TWO, CHUNK_TOKENS, LEASE, b"pool", None, OWN, 0)
    return replace(said, **changed)


def decode() -> DecodeRank:
    """One decode rank; the prefill ranks (1, 0), (1, 1), (2, 0), (2, 1) have links 1 to 4, which are up."""
    rank = DecodeRank(ONE, 0, group=OWN, chunk_tokens=CHUNK_TOKENS, incarnation=BORN)
    for group in (FIRST, SECOND):
        plan = Plan(TWO, ONE, CHUNK_TOKENS)
        for index in range(2):
            link, _ = rank.call(group, index, plan, 0.0, f"{group}.{index}")
            rank.receive(link, 0, 0, welcome(rank, link, group, index), 0.0)
    assert [value.state for value in rank.links.values()] == [DLink.UP] * 4
    return rank


def welcome(rank: DecodeRank, link: int, group: int, index: int, /, **changed: Any) -> msg.Welcome:
    session = rank.links[link].session
    said = msg.Welcome(msg.VERSION, DIGEST, session, 100 + link, group, index, TWO, CHUNK_TOKENS, LEASE)
    return replace(said, **changed)


def open_rooms(rank: Rank) -> dict[int, list[int]]:
    """Two rooms of each group, confirmed by whoever is at the other end, by group."""
    rooms = {FIRST: [11, 12], SECOND: [21, 22]}
    for group, of in rooms.items():
        for room in of:
            links = [link for link, peer in rank.peers.items() if peer.group == group]
            if isinstance(rank, DecodeRank):
                rank.handle(ev.RoomOpened(room, rank.terms(group, rank.peers[links[0]].plan or fail()), TOKENS, 0), 0.0)
            else:
                rank.handle(ev.EngineOpened(room, TOKENS, Claim(group)), 0.0)
            for link in links:
                say(rank, link, msg.Opened() if isinstance(rank, DecodeRank) else msg.Open(TOKENS, 0), room)
    return rooms


def fail() -> Any:
    raise AssertionError


def say(rank: Rank, link: int, body: msg.Message, room: int = 0, *, epoch: int | None = None) -> list[Effect]:
    return rank.receive(link, rank.links[link].epoch if epoch is None else epoch, room, body, 0.0)


RANKS = pytest.mark.parametrize("make", [prefill, decode])


def lose(rank: Rank, link: int) -> None:
    """The link is lost: by its transport, or because the other end knows nothing of it."""
    end = ev.TransportLost(link) if isinstance(rank, PrefillRank) else ev.ResetReceived(link, rank.links[link].epoch)
    rank.handle(end, 0.0)


def states(rank: Rank, rooms: dict[int, list[int]], group: int) -> set[str]:
    return {rank.value_of(room).state.name for room in rooms[group]}


# ------------------------------------------------------------------------------------------- who is heard
@RANKS
@pytest.mark.parametrize("off", [-1, 1])
def test_of_another_epoch_nothing_is_heard_and_it_is_no_sign_of_life(make: Any, off: int) -> None:
    rank = make()
    open_rooms(rank)
    room, body = (11, msg.Abort(Cause.DECODE_ABORTED)) if make is prefill else (11, msg.Drained(Cause.WRITE_FAILED))
    before = rank.rooms[room]
    rank.heard_by.clear()  # what came with the opening
    assert say(rank, 1, body, room, epoch=rank.links[1].epoch + off) == []
    assert rank.rooms[room] is before and rank.counts[NOT_UP] == 1 and not rank.heard_by
    say(rank, 1, body, room)
    assert rank.value_of(room) is not before and rank.heard_by == {1}, "and of its own it is"


@RANKS
def test_by_a_link_that_is_down_nothing_is_heard_nor_said(make: Any) -> None:
    rank = make()
    open_rooms(rank)
    rank._out.clear()
    rank._send(do.Send(11, 0b100, msg.Noted()))
    rank._transmit_to(rank.link_to(11, 2), 11, msg.Noted())
    assert not rank._out, "no link leads to rank 2"
    lose(rank, 1)
    assert rank.links[1].state is not rank.UP
    body = msg.Watermark(1, 64) if make is prefill else msg.WatermarkReq()
    assert say(rank, 1, body) == [] and rank.counts[NOT_UP] == 1
    rank._send(do.Send(11, 0b11, msg.Noted()))
    rank._transmit_to(1, 11, msg.Noted())
    said = [effect for effect in rank._out if isinstance(effect, do.Transmit)]
    assert [(each.link, each.room) for each in said] == [(2, 11)], "only where it is up, on the links of the group"


def test_a_call_in_the_name_of_another_rank_is_not_heard() -> None:
    rank = prefill()
    before = dict(rank.links)
    for said in (hello(SECOND, 0, 9), hello(FIRST, 1, 9)):
        rank.receive(1, 0, 0, said, 0.0, b"\1\0")
    assert rank.links == before and rank.counts["calls in another rank's name"] == 2
    rank.receive(1, 0, 0, hello(FIRST, 0, 9), 0.0, b"\1\0")
    assert [value.state is PLink.UP for value in rank.links.values()] == [False, True, True, True]


@pytest.mark.parametrize(("to_group", "to_rank"), [(OWN, 1), (OWN + 1, 0)])
def test_a_call_that_means_another_rank_is_refused_and_makes_no_link(to_group: int, to_rank: int) -> None:
    rank = prefill()
    said = hello(7, 0, 5, to_group=to_group, to_rank=to_rank)
    link, effects = rank.hello(said, 0.0, b"there")
    why = f"rank 0 of group {OWN} listens here, not rank {to_rank} of group {to_group}"
    assert (link, effects) == (0, [do.RefuseCall(b"there", 5, why)]) and len(rank.links) == len(rank.peers) == 4
    assert rank.counts["calls for another rank"] == 1 and rank.next_link == 5


MISFITS = [
    ({"version": msg.OLDEST - 1}, f"rank speaks {msg.OLDEST - 1}, the "),
    ({"version": msg.VERSION + 1, "oldest": msg.VERSION + 1}, "no common wire version: the "),
    ({"version": msg.VERSION, "oldest": msg.VERSION + 1}, "are no range"),
    ({"agreements": "ring:2"}, "the agreement ring has version 2 on the "),
    ({"agreements": "skew:2"}, "the agreement skew has version 2 on the "),
    ({"agreements": "ring"}, "that is no version"),
    ({"chunk_tokens": CHUNK_TOKENS + 1}, f"chunks of {CHUNK_TOKENS + 1} tokens against {CHUNK_TOKENS}"),
    ({"lease": 29.0}, "lease of 29.0 s against 30.0 s"),
    ({"rank": 2}, "rank 2 of 2"),
    ({"layout": layout(2, heads=8)}, "heads"),
]


@pytest.mark.parametrize(("changed", "why"), MISFITS)
def test_who_does_not_fit_is_refused_by_both_sides_with_the_reason(changed: dict[str, Any], why: str) -> None:
    caller = prefill()
    link, _ = caller.hello(hello(3, 0, **changed), 0.0, b"there")
    assert caller.links[link].state is PLink.REFUSED and why in caller.links[link].why
    rank = DecodeRank(ONE, 0, group=OWN, chunk_tokens=CHUNK_TOKENS, incarnation=1)
    rank.call(FIRST, 0, Plan(TWO, ONE, CHUNK_TOKENS), 0.0, "somewhere")
    rank.receive(1, 0, 0, welcome(rank, 1, FIRST, 0, **changed), 0.0)
    assert rank.links[1].state is DLink.REFUSED and why in rank.links[1].why
    assert rank.reached(FIRST, 0) == (False, f"refused: {rank.links[1].why}")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"group": SECOND}, "group 2 rank 0 answers for 1 rank 0"),
        ({"rank": 1}, "group 1 rank 1 answers for 1 rank 0"),
        ({"layout": layout(1), "rank": 0},
         "the prefill group's layout is not the one that was called: tp (1 against 2)"),
    ],
)
def test_an_answer_of_another_rank_than_was_called_is_none(changed: dict[str, Any], why: str) -> None:
    rank = DecodeRank(ONE, 0, group=OWN, chunk_tokens=CHUNK_TOKENS, incarnation=1)
    rank.call(FIRST, 0, Plan(TWO, ONE, CHUNK_TOKENS), 0.0, "somewhere")
    rank.receive(1, 0, 0, welcome(rank, 1, FIRST, 0, **changed), 0.0)
    assert (rank.links[1].state, rank.links[1].why) == (DLink.REFUSED, why)


def test_a_layout_that_differs_in_joint_chunks_alone_is_named_by_them() -> None:
    """As of a decode engine that makes the layout by hand, towards a prefill group of an earlier build."""
    caches = Cache("full", (CachePart("k", 2, 16),)), Cache("state", (CachePart("ssm", 2, 64),), travels=END)
    said, called, ours = (
        Layout.of_caches(caches, layers=2, page_size=16, tp=tp, joint=joint)
        for tp, joint in ((2, False), (2, True), (1, True))
    )
    settings = Settings(ring_bytes=1 << 20)
    rank = DecodeRank(ours, 0, group=OWN, chunk_tokens=CHUNK_TOKENS, incarnation=1, settings=settings)
    rank.call(FIRST, 0, Plan(called, ours, CHUNK_TOKENS), 0.0, "somewhere")
    rank.receive(1, 0, 0, welcome(rank, 1, FIRST, 0, layout=said), 0.0)
    assert rank.links[1].why.endswith("not the one that was called: joint (left out against True)")


def test_a_call_says_whom_it_means_and_the_chunk_size_that_was_agreed_on() -> None:
    rank = decode()
    rank.call(7, 3, Plan(layout(4), ONE, 2 * CHUNK_TOKENS), 0.0, "elsewhere")
    said = rank.hello(77, 5)
    assert (said.to_group, said.to_rank, said.chunk_tokens, said.session) == (7, 3, 2 * CHUNK_TOKENS, 77)
    said = rank.hello(78)
    assert (said.to_group, said.to_rank, said.chunk_tokens) == (0, 0, CHUNK_TOKENS)


def test_a_room_that_is_over_is_still_its_group_s_alone() -> None:
    rank = decode()
    plan = rank.peers[1].plan or fail()
    rank.handle(ev.RoomOpened(11, rank.terms(FIRST, plan), CHUNK_TOKENS, 0), 0.0)
    for body in (msg.Opened(), msg.StagingReq(0), msg.StgNotify(0, 1), msg.Aux(b"aux")):
        for link in (1, 2):
            say(rank, link, body, 11)
    rank.handle(ev.Scattered(11, 0), 0.0)
    assert 11 in rank.tombs and 11 not in rank.rooms
    assert answers(say(rank, 3, msg.StgNotify(0, 1), 11)) == [(3, msg.Gone())]
    assert answers(say(rank, 1, msg.StgNotify(0, 1), 11)) == [(1, msg.ChunkAck(0))], "for its own it is in place"


# ----------------------------------------------------------------------------- one life and the next
def test_sessions_and_epochs_are_numbers_that_no_earlier_life_has_used() -> None:
    ours, theirs = prefill(), decode()
    assert [value.epoch for value in ours.links.values()] == [BORN << 16 | n for n in (1, 2, 3, 4)]
    assert [value.session for value in theirs.links.values()] == [BORN << 16] * 4
    theirs.call(FIRST, 0, Plan(TWO, ONE, 2 * CHUNK_TOKENS), 0.0, "elsewhere")
    assert theirs.links[1].session == (BORN << 16) + 1, "a call on other terms is a call anew"
    for link in (1, 3):
        lose(ours, link)
    ours.hello(hello(FIRST, 0, 2), 0.0, b"back")
    assert ours.links[1].epoch == BORN << 16 | 5


def test_a_link_that_was_often_lost_wakes_its_rank_no_more_often_than_another() -> None:
    def wakes(rank: Rank, until: float) -> int:
        count = 0
        while rank.next_deadline <= until:
            rank.tick(rank.next_deadline, 1)
            count += 1
        return count

    calm, restless = decode(), decode()
    for turn in range(20):
        lose(restless, 1)
        restless.receive(1, 0, 0, welcome(restless, 1, FIRST, 0, epoch=900 + turn), 0.0)
    for rank in (calm, restless):
        wakes(rank, 1.5)
    assert restless.links[1].state is DLink.UP and wakes(restless, 3.5) == wakes(calm, 3.5) == 8


def test_more_links_than_are_allowed_are_not_called() -> None:
    rank = DecodeRank(ONE, 0, group=OWN, chunk_tokens=CHUNK_TOKENS, incarnation=1, settings=Settings(links=2))
    for index in (0, 1, 0):
        rank.call(FIRST, index, Plan(TWO, ONE, CHUNK_TOKENS), 0.0, "somewhere")
    with pytest.raises(ArgumentError, match="more than 2 links"):
        rank.call(SECOND, 0, Plan(TWO, ONE, CHUNK_TOKENS), 0.0, "somewhere")
    assert len(rank.links) == len(rank.peers) == 2


def test_who_calls_again_is_what_it_says_now() -> None:
    rank = prefill()
    rank.watch[1].append((0, 64, 11, 0, 0))
    rank.peers[1].placement = dense(TWO, 0)
    rank.peers[1].estimates[1, 1, 1], rank.peers[1].owed[1] = Any, Any  # type: ignore[assignment]
    terms = rank.peers[1].terms
    said = hello(FIRST, 0, 2, endpoint=b"new", layout=layout(1))
    lose(rank, 1)
    _, effects = rank.hello(said, 0.0, b"back")
    peer = rank.peers[1]
    assert peer.plan is not None and peer.plan.decode == layout(1)
    assert (peer.endpoint, peer.placement, peer.owed, peer.estimates) == (b"new", None, {}, {})
    assert peer.terms is not None and terms is not None and (peer.terms.everyone, terms.everyone) == (0b1, 0b11)
    assert rank.watch[1] == [], "nobody of its former life waits for its watermark"
    assert [each for each in effects if isinstance(each, do.Connect)] == [do.Connect(1, 2)]


@pytest.mark.parametrize("state", [DLink.AWAIT_WELCOME, DLink.UP, DLink.AWAIT_RETURN])
def test_an_address_that_is_being_tried_is_not_tried_once_more(state: DLink) -> None:
    rank, plan = decode(), Plan(TWO, ONE, CHUNK_TOKENS)
    if state is DLink.AWAIT_WELCOME:
        rank.call(3, 0, plan, 0.0, "3.0")
    elif state is DLink.AWAIT_RETURN:
        lose(rank, 1)
    group = 3 if state is DLink.AWAIT_WELCOME else FIRST
    link, effects = rank.call(group, 0, plan, 0.0, "elsewhere")
    assert rank.links[link].state is state
    assert [effect.address for effect in effects if isinstance(effect, do.TryAddress)] == ["elsewhere"]
    before = rank.links[link]
    assert rank.call(group, 0, plan, 0.0, "elsewhere") == (link, []) and rank.links[link] == before
    _, effects = rank.call(group, 0, plan, 0.0, "a third place")
    assert [effect.address for effect in effects if isinstance(effect, do.TryAddress)] == ["a third place"]


def test_of_a_link_that_is_forgotten_nothing_is_left() -> None:
    for rank in (prefill(), decode()):
        open_rooms(rank)
        for link in range(1, 5):
            say(rank, link, msg.Heartbeat())
            say(rank, link, msg.Watermark(0, 1) if isinstance(rank, PrefillRank) else msg.WatermarkReq())
            lose(rank, link)
        now = 0.0
        while rank.links and now < 10 * rank.settings.timing.forget.period:
            now = rank.next_deadline
            rank.tick(now)
        assert not rank.links and not rank.peers and not rank.link_of and not rank.heard_by
        assert not rank.sent._ways and not rank.came._ways, "numbers of copies"
        assert not getattr(rank, "watch", {}) and rank.next_link == 5, "a link's number is not used again"


def test_a_link_that_is_forgotten_before_its_next_beat_leaves_nothing_either() -> None:
    rank = decode()
    say(rank, 1, msg.Heartbeat())
    rank.call(FIRST, 0, Plan(TWO, ONE, 2 * CHUNK_TOKENS), 0.0, "elsewhere")
    rank.receive(1, 0, 0, welcome(rank, 1, FIRST, 0, chunk_tokens=CHUNK_TOKENS + 1), 0.0)
    assert rank.links[1].state is DLink.REFUSED and rank.heard_by == {1}
    rank.leave(FIRST, 0.0)
    assert sorted(rank.links) == [2, 3, 4] and not rank.heard_by


def test_what_is_said_to_a_call_and_by_one_is_in_the_trace() -> None:
    ours, theirs = prefill(), decode()
    ours.hello(hello(3, 0, chunk_tokens=CHUNK_TOKENS + 1), 0.0, b"there")
    for rank in (ours, theirs):
        rank.tick(1.25 * rank.settings.timing.heartbeat.period)
    left = [{type(entry[0]) for entry in rank.trace if len(entry) == SENT} for rank in (ours, theirs)]
    assert left == [{do.SayWelcome, do.SayRefusal, do.Transmit}, {do.SayHello, do.Transmit}]


@RANKS
def test_what_leaves_is_numbered_apart_as_calls_as_beats_and_of_rooms(make: Any) -> None:
    rank = make()
    rank.sent = CopyNumbers()
    for _ in range(3):
        rank._leave(do.SayHello(1, 7))
        rank._transmit_to(1, 0, msg.Heartbeat())
        rank._transmit_to(1, 11, msg.Noted())
    assert [entry[1] for entry in list(rank.trace)[-9:]] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_timer_that_is_ended_by_hand_is_its_machine_s() -> None:
    for rank in (prefill(), decode()):
        open_rooms(rank)
        if isinstance(rank, PrefillRank):
            rank.handle(ev.ForwardScheduled(11), 0.0)
        for name in ("rooms", "links", "sends")[: 3 if isinstance(rank, PrefillRank) else 2]:
            store = rank.stores[name]
            for key in dict(store.items()):
                timer = store.timer_of(key, 3)
                assert isinstance(timer, ev.TimerFired) and timer.tries == 3 and rank.kind_of(timer) == name
                assert (store.key(timer) if store.within is None else (store.within(timer), store.key(timer))) == key


def test_what_belongs_to_a_send_a_write_or_a_grant_is_found_by_room_chunk_and_peer() -> None:
    event = ev.SendStopped(11, 3, 1)
    assert (by_room(event), by_send(event), by_write(event)) == (11, 3 << 16 | 1, (11, 3 << 16 | 1))
    assert by_send(ev.SendStopped(11, -1, 1)) == (-1 << 16) + 1, "the aux row"
    assert by_chunk(ev.RoomStopped(11, 3)) == 3 and by_link(ev.WatermarkAsked(4)) == 4


def test_a_copy_has_its_number_by_link_by_epoch_and_by_what_it_is_about() -> None:
    rank = prefill()
    rank.trace.clear()
    for link, room, epoch in ((1, 11, None), (1, 0, None), (1, 11, None), (2, 11, None), (1, 11, 5), (1, 11, 0)):
        say(rank, link, msg.Noted() if room else msg.Watermark(0, 1), room, epoch=epoch)
    rank.receive(0, 5, 11, msg.Noted(), 0.0)
    rank.receive(99, 5, 11, msg.Noted(), 0.0)
    heard = [(entry[1][0], entry[3]) for entry in rank.trace if len(entry) == 4]
    assert heard == [(1, 1), (1, 1), (1, 2), (2, 1), (1, 1), (1, 0), (0, 0), (0, 1)], "(link, number)"


# ------------------------------------------------------------------------------------------- who is told
@RANKS
def test_a_link_s_end_and_return_are_told_to_all_rooms_of_its_group_and_to_no_other(make: Any) -> None:
    rank = make()
    rooms = open_rooms(rank)
    told = list[tuple[str, int, int]]()
    for kind in (ev.LinkCameUp, ev.LinkWentDown, ev.PeerQuiet):
        rank.take(kind, lambda event, _now: told.append((type(event).__name__, event.room, event.peer)))
    lose(rank, 2)
    assert told == [("LinkWentDown", room, 1) for room in rooms[FIRST]]
    told.clear()
    if isinstance(rank, DecodeRank):
        rank.receive(2, 0, 0, welcome(rank, 2, FIRST, 1, epoch=900), 0.0)
        assert sorted(told) == [(name, room, 1) for name in ("LinkCameUp", "PeerQuiet") for room in rooms[FIRST]]


def test_a_watermark_is_said_to_every_writer_and_to_whoever_asks() -> None:
    rank = decode()
    open_rooms(rank)
    rank._send_watermark(do.SendWatermark(21, 0b11))
    mark = msg.Watermark(*rank.ring.mark)
    assert answers(rank._out) == [(3, mark), (4, mark)]
    asked = say(rank, 4, msg.WatermarkReq())
    assert answers(asked) == [(4, mark)] and [each.room for each in asked if isinstance(each, do.Transmit)] == [0]


@pytest.mark.parametrize(("room", "peer", "link"), [(11, 0, 1), (12, 1, 2), (21, 0, 3), (22, 1, 4)])
def test_writes_are_counted_for_the_rank_of_the_group_that_they_go_to(room: int, peer: int, link: int) -> None:
    rank = prefill()
    open_rooms(rank)
    rank.writes[room, 5 << 16 | peer] = object()
    assert [at for at in rank.links if rank._writes_to(at)] == [link]
    assert [at for at in rank.links if rank._link_timer(at, 0).busy] == [link]
    lose(rank, link)
    group, index = rank.peers[link].group, rank.peers[link].rank
    rank.hello(hello(group, index, 2), 0.0, b"back")
    assert rank.links[link].session == 1, "while one is in flight, no call is taken"
    rank.writes.clear()
    rank.hello(hello(group, index, 2), 0.0, b"back")
    assert rank.links[link].session == 2


def test_a_group_that_is_let_go_is_let_go_by_all_its_links_and_those_of_others_stay() -> None:
    rank = decode()
    rooms = open_rooms(rank)
    rank.leave(FIRST, 0.0)
    assert [value.leaving for value in rank.links.values()] == [True, True, False, False]
    assert states(rank, rooms, SECOND) == {"OPEN"} and states(rank, rooms, FIRST) != {"OPEN"}
    rank.rooms.pop(11), rank.rooms.pop(12)
    assert [rank._needed(link, 5) for link in range(1, 5)] == [False] * 4
    assert rank._needed(3, 0) and not rank._needed(3, 1), "a link that is heard is not asked about its rooms"


def test_what_has_come_counts_once_as_a_sign_of_life() -> None:
    rank = prefill()
    say(rank, 1, msg.Watermark(0, 1))
    timers = [rank._link_timer(link, 3) for link in (1, 1, 2)]
    assert [timer.heard for timer in timers] == [True, False, False]
    assert [(timer.room, timer.peer, timer.tries) for timer in timers] == [(0, 1, 3), (0, 1, 3), (0, 2, 3)]


# --------------------------------------------------------------------------------------------- what is kept
def test_terms_of_rooms_that_cut_their_cells_are_shared_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = prefill()
    terms = rank.peers[1].terms
    assert terms is not None and rank.cut(terms, 1) is terms and rank.peers[3].terms is not terms
    assert rank.cut(terms, 2) is rank.cut(terms, 2) and rank.cut(terms, 2) == replace(terms, layer_groups=2)
    others = replace(terms, writes=0b01)
    assert rank.cut(others, 2) == replace(others, layer_groups=2), "the same group's, by another plan"
    rank._cuts.clear()
    rank.cut(terms, 2)
    monkeypatch.setattr(base, "CUTS", 3)
    sizes = [(rank.cut(terms, groups), len(rank._cuts))[1] for groups in (2, 3, 4, 5, 6)]
    assert sizes == [1, 2, 3, 1, 2]


def test_terms_name_who_takes_part_who_writes_and_who_sends_the_aux_row() -> None:
    rank = DecodeRank(TWO, 1, group=OWN, chunk_tokens=CHUNK_TOKENS, incarnation=1)
    assert rank.terms(FIRST, Plan(TWO, TWO, CHUNK_TOKENS)) == Terms(FIRST, 0b10, 0b10, 0b10, CHUNK_TOKENS)
    one_head = layout(1, heads=1)
    rank = DecodeRank(one_head, 0, group=OWN, chunk_tokens=CHUNK_TOKENS, incarnation=1)
    assert rank.terms(FIRST, Plan(layout(2, heads=1), one_head, CHUNK_TOKENS)) == Terms(
        FIRST, 0b11, 0b01, 0b01, CHUNK_TOKENS
    )


def test_peers_of_one_group_share_their_terms() -> None:
    ours, theirs = prefill(), decode()
    for rank in (ours, theirs):
        terms = [peer.terms for peer in rank.peers.values()]
        assert terms[0] is not terms[2] and [each.group for each in terms if each] == [1, 1, 2, 2]
    assert theirs.terms(FIRST, Plan(TWO, ONE, CHUNK_TOKENS)) is theirs.peers[1].terms
    assert isinstance(ours.peers[1], LinkPeer)


# ------------------------------------------------------------------------------------ what the engine asks of links
def test_links_that_are_down_and_wanted_are_called_at_once() -> None:
    rank = decode()
    lose(rank, 2)
    rank.call(3, 0, Plan(TWO, ONE, CHUNK_TOKENS), 0.0, "3.0")
    lose(rank, 4)
    rank.handle(ev.DisconnectAsked(4), 0.0)
    assert rank.links[4].leaving and rank.links[4].state is DLink.AWAIT_RETURN
    assert rank.to_call_anew() == [2, 5]
    said = [(each.link, each.session) for each in rank.call_anew(2, 1.0) if isinstance(each, do.SayHello)]
    assert said == [(2, rank.links[2].session)], "it does not wait for its timer"


def test_an_epoch_is_later_by_the_incarnation_that_it_names() -> None:
    rank = decode()
    rank.links[1] = replace(rank.links[1], epoch=5 << 16 | 9)
    assert [rank.is_later(1, epoch) for epoch in (4 << 16 | 9, 5 << 16, 5 << 16 | 10, 6 << 16)] == [
        False, False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(("heard", "stands"), [(False, False), (True, False), (False, True)])
def test_a_link_lives_by_what_came_or_by_its_connection(heard: bool, stands: bool) -> None:
    rank = decode()
    rank.heard_by = {1} if heard else {2}
    rank.stands = lambda link: stands and link == 1
    assert rank.lives(1) == (heard or stands)


@RANKS
def test_a_link_s_timer_has_its_longest_silence_while_its_connection_stands_alone(make: Any) -> None:
    rank = make()
    assert not rank.stands(1), "nobody has said so"
    most = rank.settings.timing.silent_beats
    for heard, stands, longest in ((False, True, most), (True, True, 0), (False, False, 0), (True, False, 0)):
        rank.heard_by, rank.stands = {1} if heard else set(), lambda _, stands=stands: stands
        event = rank._link_timer(1, 3)
        assert (event.peer, event.heard, event.longest) == (1, heard, longest) and most > 0


@RANKS
def test_a_rank_that_takes_leave_closes_each_link_by_its_number_epoch_and_call(make: Any) -> None:
    rank = make()
    rank.handle = lambda event, now: [(event, now)]
    closed = (ev.CloseAsked(link, at.epoch, quiet=True, session=at.session) for link, at in rank.links.items())
    assert rank.take_leave(7.0) == [(each, 7.0) for each in closed]


def test_the_build_of_a_peer_is_the_common_version_with_its_own_digest_and_capabilities() -> None:
    said = hello(FIRST, 0, digest="tables:1", capabilities="runs events")
    assert prefill().spoken_with(said) == PeerBuild(msg.VERSION, "tables:1", "runs events")


@RANKS
def test_what_comes_by_an_address_that_is_tried_beside_a_link_is_of_that_link_and_no_sign_of_life(make: Any) -> None:
    rank = make()
    for link, fact, of in ((2, CURRENT, 2), (-2, BESIDE, 2), (0, STRANGER, 0), (-9, STRANGER, 0)):
        heard, rank.heard_by = rank._heard, set()
        heard.link, heard.epoch, heard.room, heard.body = link, rank.links[2].epoch, 0, msg.Heartbeat()
        assert Rank.facts(rank, heard) // len(SenderIs) == fact // len(SenderIs) and heard.link == of
        assert rank.heard_by == ({2} if fact == CURRENT else set())


def test_the_first_rank_of_the_group_that_is_up_and_cannot_is_named() -> None:
    rank = decode()
    able = {1: "events", 2: "", 3: "", 4: "runs events"}
    for link, words in able.items():
        build = replace(rank.links[link].build, capabilities=words)
        rank.links[link] = replace(rank.links[link], build=build)
    assert rank.lacking(SECOND, "events").startswith("prefill rank 0 of group 2 works at wire version")
    assert rank.lacking(FIRST, "events").startswith("prefill rank 1 of group 1 works at wire version")
    lose(rank, 2)
    assert rank.lacking(FIRST, "events") == "", "who is away is not asked"
    del rank.peers[3]
    assert rank.lacking(SECOND, "events") == "", "a link that is being forgotten has no peer any more"


def test_a_link_that_comes_up_is_told_to_rooms_that_are_over_and_untold() -> None:
    rank = decode()
    rooms = open_rooms(rank)
    for room, untold in ((11, 0b01), (12, 0b10), (21, 0b11), (22, 0b11)):
        value = rank.rooms.pop(room)
        rank.tombs[room] = replace(value, work=DecodeWork(untold=untold))
    rank.tombs[rooms[SECOND][1]] = replace(rank.tombs[rooms[SECOND][1]], work=None)
    for link, told in ((1, [11]), (2, [12]), (3, [21])):
        rank._queue.clear()
        rank._raise_up(do.RaiseLinkUp(link))
        assert list(rank._queue) == [ev.LinkCameUp(room, rank.peers[link].rank) for room in told]


def test_another_incarnation_under_the_name_of_one_that_answers_is_told_what_to_do() -> None:
    rank = prefill()
    rank.links[2] = replace(rank.links[2], life=5)
    rank._out.clear()
    rank._refuse_rival(do.RefuseRival(2, b"there", 7 << 16 | 3))
    why = (
        "decode rank 1 of group 1 is connected already, as incarnation 5, and answers; this is incarnation 7: "
        "give each instance a group of its own"
    )
    assert rank._out == [do.RefuseCall(b"there", 7 << 16 | 3, why)]
    assert rank.counts["calls under a name that is taken"] == 1


def test_a_room_that_is_over_leads_to_its_group() -> None:
    rank = prefill()
    open_rooms(rank)
    rank.tombs[11] = rank.rooms.pop(11)
    rank._groups.clear()
    assert rank.link_to(11, 1) == 2 and rank.link_to(13, 1) == 0


def test_rooms_of_layer_groups_need_kernels_for_so_many() -> None:
    rank = prefill()
    assert [rank.cut_for(1, groups) is None for groups in (1, 2, 3)] == [False, False, True]
    rank.unprepared = lambda groups: f"no kernels for {groups}"
    assert [rank.cut_for(1, groups) is None for groups in (1, 2)] == [False, True]
    assert rank._why_not_cut(1, 2) == "no kernels for 2" and rank._why_not_cut(1, 1) == ""


DECLINED, OWNED = PrefillWork(owned=False, cause=Cause.DECLINED), PrefillWork()
GAVE_UP = PrefillWork(owned=False, cause=Cause.DECODE_ABORTED)


@pytest.mark.parametrize(
    ("work", "state", "fact", "shown", "becomes"),
    [
        (DECLINED, PRoom.ABORTED, SenderIs.UNCLAIMED, b"", SenderIs.UNCLAIMED),
        (DECLINED, PRoom.ABORTED, SenderIs.PARTY, b"", SenderIs.OUTSIDER),
        (DECLINED, PRoom.ABORTED, SenderIs.PARTY, b"word", SenderIs.PARTY),
        (OWNED, PRoom.AWAIT_FORWARD, SenderIs.UNCLAIMED, b"", SenderIs.OUTSIDER),
        (OWNED, PRoom.AWAIT_FORWARD, SenderIs.UNCLAIMED, b"word", SenderIs.UNCLAIMED),
        (OWNED, PRoom.AWAIT_FORWARD, SenderIs.OUTSIDER, b"word", SenderIs.OUTSIDER),
        (GAVE_UP, PRoom.ABORTED, SenderIs.UNCLAIMED, b"", SenderIs.RIVAL),
        (None, PRoom.AWAIT_ENGINE, SenderIs.UNCLAIMED, b"", SenderIs.RIVAL),
    ],
)
def test_a_sender_is_of_the_room_if_it_shows_its_secret(
    work: PrefillWork | None, state: PRoom, fact: SenderIs, shown: bytes, becomes: SenderIs
) -> None:
    rank = prefill()
    open_rooms(rank)
    facts = replace(rank.rooms[11].facts, claim=Claim(FIRST, b"word"))
    rank.rooms[11] = replace(rank.rooms[11], state=state, work=work, facts=facts)
    heard: Any = SimpleNamespace(body=msg.Open(TOKENS, 0, shown), room=11)
    assert rank._shown_fact(heard, fact) == becomes
    assert rank._shown_fact(SimpleNamespace(body=heard.body, room=13), fact) == fact  # type: ignore[arg-type]
