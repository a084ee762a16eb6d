"""Links without use: an engine lets go of a group, peers leave for good, callers come to nothing.

What they held is free for others, and nothing that might still be written is given back early.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.stories import layout
from test_foreign_groups import CHUNK_TOKENS, OURS, hello

from kvproto import DecodeEndpoint, LinkError, NotFoundError, PrefillEndpoint
from kvproto.fsm.timing import Timer
from kvproto.io.clock import ManualClock
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.plan import Plan
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause, DLink, DRoom, PLink
from kvproto.protocol.tables.links import DLinkValue, decode_link
from kvproto.protocol.timing import Timing
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.check.configs import CONFIGS
from kvproto.verify.check.search import check
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise

LINKS = 4
TIMING = Timing()
#: seconds by which 1,200 calls may come late: each by a slot of the wheel
LAG = 30.0


# ------------------------------------------------------------------------------ the prefill rank's callers
def called(rank: PrefillRank, group: int, now: float, *, fits: bool = True) -> PLink | None:
    """A decode rank of this group calls; what its link is then (None: there is none)."""
    said = (
        hello(group) if fits else msg.Hello(*(*[getattr(hello(group), f) for f in FIELDS], 2 * CHUNK_TOKENS, 1.0, b""))
    )
    link, _ = rank.hello(said, now, group.to_bytes(8, "big"))
    return PLink(rank.links[link].state) if link else None


FIELDS = ("version", "digest", "session", "group", "rank", "layout")


def full_prefill(*, wired: int) -> PrefillRank:
    """A prefill rank all of whose links are taken: so many are up, the others are refused."""
    rank = PrefillRank(OURS, 0, group=1, chunk_tokens=CHUNK_TOKENS, incarnation=3, settings=Settings(links=LINKS))
    for group in range(10, 10 + LINKS):
        fits = group < 10 + wired
        called(rank, group, 0.0, fits=fits)
        if fits:
            rank.handle(ev.WiredUp(rank.link_of[group, 0], 1, f"wire {group}"), 0.0)
    return rank


def test_callers_that_came_to_nothing_give_way() -> None:
    rank = full_prefill(wired=1)
    for group in range(100, 1500):
        assert called(rank, group, 0.0, fits=False) is PLink.REFUSED
        assert len(rank.links) == len(rank.peers) == len(rank.link_of) == LINKS
    assert called(rank, 2000, 0.0) is PLink.AWAIT_WIRE_UP
    assert rank.links[rank.link_of[10, 0]].state is PLink.UP
    assert rank.counts["links that gave way"] == 1401


def test_the_newest_of_those_that_are_not_up_gives_way() -> None:
    rank = full_prefill(wired=LINKS - 1)
    rank.handle(ev.TransportLost(rank.link_of[10, 0]), 0.0)
    called(rank, 100, 0.0, fits=False)
    called(rank, 101, 0.0, fits=False)
    assert {group for group, _ in rank.link_of} == {10, 11, 12, 101}


def test_links_that_are_up_or_coming_up_give_way_to_nobody() -> None:
    rank = full_prefill(wired=LINKS)
    assert called(rank, 100, 0.0) is None
    assert rank.counts["calls beyond the bound"] == 1
    assert {group for group, _ in rank.link_of} == {10, 11, 12, 13}


def test_a_link_with_a_write_in_flight_does_not_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = full_prefill(wired=LINKS)
    rank.handle(ev.TransportLost(rank.link_of[10, 0]), 0.0)
    monkeypatch.setattr(rank, "_writes_to", lambda link: link == rank.link_of[10, 0])
    assert called(rank, 100, 0.0) is None and (10, 0) in rank.link_of
    monkeypatch.undo()
    assert called(rank, 100, 0.0) is PLink.AWAIT_WIRE_UP and (10, 0) not in rank.link_of


# ------------------------------------------------------------------------------- the decode rank's links
def decode() -> tuple[DecodeRank, Plan]:
    rank = DecodeRank(OURS, 0, group=2, chunk_tokens=CHUNK_TOKENS, incarnation=3, settings=Settings(links=LINKS))
    return rank, Plan(OURS, OURS, CHUNK_TOKENS)


def passes(rank: DecodeRank, seconds: float, now: float = 0.0) -> float:
    """Let so much time pass, timer by timer."""
    end = now + seconds
    while rank.next_deadline <= end:
        rank.tick(max(now, rank.next_deadline))
    return end


def test_a_link_that_nobody_answers_is_forgotten_in_time() -> None:
    rank, plan = decode()
    rank.call(1, 0, plan, 0.0, "somewhere")
    now = passes(rank, TIMING.forget.period - 2.0)
    assert rank.links[1].state is DLink.AWAIT_WELCOME
    passes(rank, LAG, now)
    assert not rank.links and not rank.peers and not rank.link_of
    assert rank.next_deadline == float("inf"), "nothing is said to it any more"


def test_a_link_that_a_room_waits_for_is_not_forgotten() -> None:
    rank, plan = decode()
    rank.call(1, 0, plan, 0.0, "somewhere")
    now = passes(rank, TIMING.forget.period - 20.0)
    rank.handle(ev.RoomOpened(7, rank.terms(1, plan), 64, 0), now)
    now = passes(rank, 40.0, now)
    assert rank.rooms and rank.links
    passes(rank, 60.0, now)
    assert not rank.rooms and not rank.links


def test_a_refused_link_is_forgotten_in_time() -> None:
    rank, plan = decode()
    rank.call(1, 0, plan, 0.0, "somewhere")
    rank.handle(ev.RefusalReceived(1, rank.links[1].session, "no"), 0.0)
    now = passes(rank, TIMING.forget.period - 2.0)
    assert rank.links[1].state is DLink.REFUSED
    passes(rank, 4.0, now)
    assert not rank.links


def test_a_room_at_a_group_that_was_forgotten_ends_at_once() -> None:
    rank, plan = decode()
    rank.call(1, 0, plan, 0.0, "somewhere")
    terms = rank.terms(1, plan)
    passes(rank, TIMING.forget.period + LAG)
    rank.handle(ev.RoomOpened(7, terms, 64, 0), 1000.0)
    assert not rank.rooms and rank.tombs[7].work.cause is Cause.REFUSED


def decode_with_link(state: DLink) -> tuple[DecodeRank, msg.Welcome]:
    """A decode rank whose one link, to rank 0 of group 1, is in this state."""
    rank, plan = decode()
    rank.call(1, 0, plan, 0.0, "somewhere")
    said = msg.Welcome(msg.VERSION, rank.build.digest, rank.links[1].session, 5, 1, 0, OURS, CHUNK_TOKENS, rank.lease)
    if state is not DLink.AWAIT_WELCOME:
        rank.receive(1, 0, 0, said, 0.0, b"there")
    if state is DLink.AWAIT_RETURN:
        rank.handle(ev.ResetReceived(1, 5), 0.0)
    assert rank.links[1].state is state
    return rank, said


CALLED_OR_UP = (DLink.AWAIT_WELCOME, DLink.UP, DLink.AWAIT_RETURN)


@pytest.mark.parametrize("state", CALLED_OR_UP)
def test_rooms_of_a_group_that_is_let_go_end_whatever_its_link_is(state: DLink) -> None:
    rank, _ = decode_with_link(state)
    terms = rank.terms(1, Plan(OURS, OURS, CHUNK_TOKENS))
    rank.handle(ev.RoomOpened(7, terms, 64, 0), 0.0)
    assert rank.value_of(7).state is DRoom.AWAIT_PEERS
    rank.leave(1, 0.0)
    rank.handle(ev.RoomOpened(8, terms, 64, 0), 0.0)
    for room in (7, 8):
        assert rank.value_of(room).state is not DRoom.AWAIT_PEERS
        assert rank.value_of(room).work.cause is Cause.DISCONNECTED


@pytest.mark.parametrize("state", CALLED_OR_UP)
def test_a_group_that_is_let_go_and_called_in_one_breath_stays(state: DLink) -> None:
    rank, _ = decode_with_link(state)
    plan = Plan(OURS, OURS, CHUNK_TOKENS)
    rank.leave(1, 0.0)
    rank.call(1, 0, plan, 0.0, "somewhere")
    assert not rank.links[1].leaving
    rank.handle(ev.RoomOpened(7, rank.terms(1, plan), 64, 0), 0.0)
    assert rank.value_of(7).state is DRoom.AWAIT_PEERS


# ------------------------------------------------------------------------------------------- endpoints
def test_a_refused_group_that_is_let_go_and_called_in_one_breath_is_called() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8, ready=False) as pair:
        decode = pair.decodes[0]
        pair.pump(lambda: bool(inside(decode).rank.links))
        rank = inside(decode).rank
        inside(decode).loop.submit(rank.handle(ev.RefusalReceived(1, rank.links[1].session, "no"), 0.0))
        with pytest.raises(LinkError, match="refused: no"):
            decode.ready()
        decode.disconnect()
        pair.connect(0)
        pair.pump(decode.ready)


def test_a_group_that_is_let_go_ends_its_rooms_and_leaves_nothing(pair: Pair) -> None:
    decode, room, done = pair.decodes[0], pair.open(20), pair.open(20)
    pair.finish(done)
    pair.produce(room, 10, aux=None)
    pair.settle()
    decode.disconnect()
    pair.pump(lambda: pair.over(room))
    assert pair.causes(room) == {Cause.DISCONNECTED} and pair.causes(done) == {Cause.NONE}
    reasons = {outcome.reason for (side, _, name), outcome in pair.outcomes.items() if (side, name) == ("D", room)}
    assert reasons == {"the decode engine let go of the prefill group"}
    pair.pump(lambda: not inside(decode).rank.links)
    pair.rest()
    loop = inside(decode).loop
    assert not (inside(decode).rank.peers or loop.connections.peer_of or decode._groups.links.links)
    assert not decode._groups._party.groups and len(loop.control._sockets) == 0
    for call in (decode.ready, decode.disconnect, lambda: decode.open(Room(99), 8, [0])):
        with pytest.raises(NotFoundError, match="call connect first"):
            call()
    ends = [inside(each).rank.links.values() for each in pair.prefills]
    pair.pump(lambda: all(link.state is PLink.LOST for links in ends for link in links), 3.0)


def test_what_a_link_that_is_being_left_waits_for_is_told(pair: Pair) -> None:
    decode, room = pair.decodes[0], pair.open(20)
    pair.produce(room, 10, aux=None)
    pair.settle()
    assert [text.split(" is up")[0] for text in decode.links()] == [
        "link 1 to prefill rank 0 of group 1", "link 2 to prefill rank 1 of group 1",
    ]  # fmt: skip
    decode.disconnect()
    while "DISCONNECTED" not in decode.explain(room):
        decode.poll()
    waits = f"the engine has let go of it, and 1 of its rooms have yet to end (room {room.id})"
    assert all(
        text.endswith(f"after it was last heard; it works at wire version {msg.VERSION}; {waits}.")
        for text in decode.links()
    )
    assert waits in decode.explain(room) and "link 2 to prefill rank 1 of group 1 is up" in decode.explain(room)
    pair.pump(lambda: pair.over(room))
    while not inside(decode).rank.tombs:
        pair.turn()
    assert all(text.endswith("and it is forgotten when its timer ends.") for text in decode.links())
    pair.pump(lambda: not decode.links())
    assert "the engine has let go" not in decode.explain(room)


def test_where_a_link_stands_is_told_in_every_state() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        for end in (pair.prefills[0], pair.decodes[0]):
            rank = inside(end).rank
            for state in type(rank.UP):
                rank.links[1] = replace(rank.links[1], state=state, silent=3, why="another chunk size")
                (text,) = end.links()
                assert text.startswith(f"link 1 to {rank.other_side} rank 0 of group ") and text.endswith("."), text
                assert ("another chunk size" in text) == (state.name == "REFUSED")
            rank.links.clear()
            assert end.links() == []


def test_a_group_that_was_let_go_can_be_called_again(pair: Pair) -> None:
    decode = pair.decodes[0]
    for _ in range(3):
        decode.disconnect()
        pair.connect(0)
        pair.pump(decode.ready)
        pair.finish(room := pair.open(20))
        assert pair.causes(room) == {Cause.NONE}
    decode.disconnect()
    pair.pump(lambda: not inside(decode).rank.links)
    pair.connect(0)
    pair.pump(decode.ready)
    pair.finish(room := pair.open(20))
    assert pair.causes(room) == {Cause.NONE}
    pair.rest()


def test_a_fleet_whose_prefill_groups_come_and_go() -> None:
    """Five times as many groups as there may be links, one after another."""
    settings = Settings(ring_bytes=1 << 16, slot_bytes=1 << 12, links=LINKS, timing=Timing(heartbeat=Timer(0.05, 40)))
    held, fabric = layout(1), Fabric(auto=True)
    decode = DecodeEndpoint(held, 0, noise(held, 0, 8, 2), MemoryTransport(fabric), chunk_tokens=8, settings=settings)
    with decode:
        for group in range(100, 100 + 5 * LINKS):
            with PrefillEndpoint(
                held, 0, noise(held, 0, 8, 1), MemoryTransport(fabric), chunk_tokens=8, group=group, settings=settings
            ) as prefill:
                ends: tuple[PrefillEndpoint | DecodeEndpoint, ...] = (prefill, decode)
                decode.connect(held, [prefill.address], group=group)
                while not decode.ready(group):
                    prefill.poll(), decode.poll()
                room, over = Room(group), 0
                decode.open(room, 8, [1, 2], group=group)
                prefill.open(room, 8, [1, 2])
                prefill.produced(room, 8)
                prefill.aux(room, b"x")
                while over < len(ends):
                    for end in ends:
                        end.poll()
                        assert all(outcome.ok for outcome in end.finished())
                        over += len(end.released())
                decode.disconnect(group)
                while inside(decode).rank.links:
                    prefill.poll(), decode.poll()
        assert not decode._groups._party.groups


def test_the_engine_hears_of_a_link_that_was_forgotten() -> None:
    clock = ManualClock(100.0)
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock, ready=False) as pair:
        pair.prefills.pop().close()
        decode = pair.decodes[0]
        for _ in range(1300):
            clock.advance(1.0)
            decode.poll()
        assert not inside(decode).rank.links
        with pytest.raises(LinkError, match=r"forgotten: .* call connect again"):
            decode.ready()
        decode.disconnect()
        decode.poll()
        assert not decode._groups._party.groups, "of a group that is let go of nothing is known"
        pair.prefills.append(pair.make_prefill(0))
        pair.connect(0)
        pair.pump(decode.ready)


def test_of_the_calls_to_one_who_is_away_one_alone_waits() -> None:
    clock = ManualClock(100.0)
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        pair.prefills.pop().close()
        decode = pair.decodes[0]
        loop = inside(decode).loop
        ((link, peer),) = loop.connections.peer_of.items()

        def called() -> bool:
            clock.advance(0.5)
            return not decode.ready() and loop.control.outboxes.depth(peer)[0] == 1

        # Until libzmq's thread has seen that the connection broke, it takes the calls, and none waits.
        pair.pump(called)
        for session in range(5):
            loop.handlers[do.SayHello](do.SayHello(link, session))
            assert loop.control.outboxes.depth(peer)[0] == 1, "a later call takes the place of the one that waits"


# --------------------------------------------------------------------------------------------- the checker
def test_a_link_that_is_forgotten_before_its_rooms_have_drained_is_found() -> None:
    def at_once(v: DLinkValue, e: ev.TimerFired, now: float) -> bool:
        del e, now
        return v.leaving

    with TablePatch() as bench:
        bench.change(decode_link, bench.rows(decode_link, DLink.UP, ev.TimerFired, "let_go"), when=at_once)
        found = check("fan-in-leave", CONFIGS["fan-in-leave"])
    assert found.violations
