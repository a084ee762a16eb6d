"""A rank's explanation of a room and of a link, word for word: the peer, the cause and the time.

Ranks alone, with two groups of two ranks at their other end (`test_rank_links`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from support.stories import layout
from test_rank_links import CHUNK_TOKENS, FIRST, SECOND, TOKENS, decode, lose, open_rooms, prefill, say
from test_rank_queues import SIZE, ask, filled
from test_rank_queues import prefill as with_rooms

from kvproto.endpoint.explain import SENDS, explain, explain_link, unlinked
from kvproto.fsm.table import Table
from kvproto.fsm.timing import Timer
from kvproto.io.clock import ManualClock
from kvproto.layout.costs import Costs
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Claim, room_key
from kvproto.protocol.states import Cause, DLink, DRoom, PSend
from kvproto.protocol.tables.decode_room import DecodeWork, decode_room
from kvproto.protocol.tables.prefill_room import PrefillWork, prefill_room
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.protocol.timing import Timing
from kvproto.rank.base import Rank
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import SMALL, Pair

NOW = 9.0


def of(rank: Rank, room: int, now: float = NOW) -> str:
    """The explanation of the room, without its name."""
    return explain(rank, room, now).removeprefix(f"room {room} ")


def test_a_prefill_room_says_in_every_state_for_whom_it_waits() -> None:
    rank = prefill()
    assert (rank.side, rank.other_side) == ("prefill", "decode")
    assert of(rank, 31) == "is not known here: it was never opened, or is long over."
    say(rank, 2, msg.Open(TOKENS, 0), 31)
    assert of(rank, 31) == (
        "was opened by decode rank 1 and waits for this rank's engine to open it, since 9.0 s; last event: PeerOpened."
    )
    rank.handle(ev.EngineOpened(32, TOKENS, Claim(FIRST)), 1.0)
    assert of(rank, 32) == "waits for a decode group to open it, since 8.0 s; last event: EngineOpened."
    say(rank, 1, msg.Open(TOKENS, 0), 32)
    assert of(rank, 32).startswith("waits for decode rank 1 to open it, ")
    say(rank, 2, msg.Open(TOKENS, 0), 32)
    assert of(rank, 32).startswith("is known to every decode rank and waits for the engine to schedule the forward, ")
    rank.handle(ev.EngineAborted(32, Cause.PREFILL_ABORTED), 2.0)
    assert of(rank, 32) == (
        "has failed (PREFILL_ABORTED) and waits for decode ranks 0, 1 to confirm, since 7.0 s; "
        "last event: SendsStopped."
    )
    for link in (1, 2):
        say(rank, link, msg.Noted(), 32)
    assert of(rank, 32).startswith("is over: ABORTED (PREFILL_ABORTED); last event: ")
    later = room_key(33, 4)
    say(rank, 1, msg.Abort(Cause.DECODE_ABORTED), later)
    assert explain(rank, later, NOW).startswith("room 33 (gen 4) is over: ABORTED (")


def test_a_room_under_way_says_what_each_send_waits_for_and_what_routes_cost() -> None:
    rank = with_rooms(max_unanswered_requests=1, slots=1, page_writes=1, costs=Costs(piece=1e-3))
    rank.handle(ev.ForwardScheduled(11), 3.0)
    assert of(rank, 11).startswith(
        "is under way: AWAIT_KV (waits for this rank's engine to compute the KV): chunk 0 to decode rank 0, "
    )
    rank.handle(ev.TokensProduced(11, TOKENS), 4.0)
    figures = "a piece 1e+03 us, a large write 390 GB/s"
    costs = "".join(f"; to decode rank {peer}: {rank.estimate(11, peer)} ({figures})" for peer in (0, 1))
    waits = "waits for this rank's engine to give the aux row"
    aux = f"AWAIT_AUX ({waits}): chunk aux to decode rank 0, aux to decode rank 1"
    assert of(rank, 11) == (
        "is under way: AWAIT_GRANT (waits for the decode rank to answer with a region, or a place in its queue): "
        "chunk 0 to decode rank 0, 0 to decode rank 1; AWAIT_CREDIT (waits to ask: as many "
        "requests as may be are unanswered): chunk 1 to decode rank 0, 1 to decode rank 1; "
        f"{aux}{costs}, since 5.0 s; last event: KvProduced."
    )
    say(rank, 1, msg.StagingQueued(0, 0, 0), 11)
    say(rank, 2, msg.StagingRefused(0), 11)
    text = of(rank, 11)
    turn = "AWAIT_TURN (waits its turn: the ring is full, and serves its queue in turn)"
    assert f"{turn}: chunk 0 to decode rank 0;" in text
    assert "AWAIT_PAGES (waits for the decode rank to name its pages): chunk 0 to decode rank 1;" in text
    assert "last event: CreditTaken" in text
    del rank.peers[2], rank.link_of[FIRST, 1]
    text = of(rank, 11)
    assert "; to decode rank 0: " in text and "; to decode rank 1: " not in text, "nobody is there who would cost it"
    for key in [key for key in rank.sends[11] if key > 0]:
        del rank.sends[11][key]
    assert f": chunk 0 to decode rank 0; {aux}; to decode rank 0: " in of(rank, 11)
    del rank.sends[11][0]
    assert of(rank, 11).startswith(f"is under way: {aux}, since "), "the aux row has one way only"
    rank.sends.pop(11)
    assert of(rank, 11).startswith("is under way: no send is open, ")


def test_a_prefill_room_that_has_failed_says_what_is_still_in_flight() -> None:
    rank = with_rooms(route="staged")
    rank.handle(ev.TokensProduced(11, CHUNK_TOKENS), 2.0)
    say(rank, 2, msg.StagingRsp(0, 1, 0, 0, SIZE, 0, 0), 11)
    rank.handle(ev.EngineAborted(11, Cause.PREFILL_ABORTED), 3.0)
    text = of(rank, 11)
    assert text.startswith(
        "has failed (PREFILL_ABORTED) and drains: DRAINING (waits for a gather or a write in flight to end): "
        "chunk 0 to decode rank 1; last event: "
    )


def test_a_decode_room_says_in_every_state_for_whom_it_waits() -> None:
    rank = decode()
    assert (rank.side, rank.other_side) == ("decode", "prefill")
    plan = rank.peers[1].plan
    assert plan is not None
    rank.handle(ev.RoomAnnounced(31, rank.terms(FIRST, plan), TOKENS), 1.0)
    assert of(rank, 31) == (
        "was announced, and waits for this rank's engine to have pages, since 8.0 s; last event: RoomAnnounced."
    )
    rank.handle(ev.RoomOpened(32, rank.terms(FIRST, plan), TOKENS, 0), 2.0)
    assert of(rank, 32) == "waits for prefill ranks 0, 1 to confirm it, since 7.0 s; last event: RoomOpened."
    say(rank, 1, msg.Opened(), 32)
    assert of(rank, 32).startswith(
        "waits for prefill rank 1 to confirm it; prefill rank 0 asked for nothing yet: its engine has not opened "
    )
    say(rank, 2, msg.Opened(), 32)
    assert of(rank, 32) == (
        "is under way: no chunk is being filled; the aux row has not landed: prefill rank 0 owes it; "
        "prefill ranks 0, 1 asked for nothing yet: their engines have not opened the room, or not computed its KV, "
        "since 9.0 s; last event: PeerReady."
    )
    say(rank, 1, msg.StagingReq(0), 32)
    assert "chunk 0 AWAIT_WRITERS of prefill rank 1; " in of(rank, 32)
    say(rank, 2, msg.StagingReq(0), 32)
    say(rank, 2, msg.PagesReq(1), 32)
    grant = rank.grants[32][0].grant
    assert "; the aux row has not landed: prefill rank 0 owes it, since " in of(rank, 32)
    say(rank, 1, msg.StgNotify(0, grant), 32)
    say(rank, 1, msg.Aux(b"aux"), 32)
    assert of(rank, 32).startswith(
        "is under way: chunk 0 FILLING of prefill rank 1; chunk 1 AWAIT_WRITERS of prefill rank 0; "
        "the aux row has landed, since "
    )
    say(rank, 2, msg.StgNotify(0, grant), 32)
    assert "chunk 0 SCATTERING of no prefill rank; " in of(rank, 32)
    under_way = rank.rooms[32]
    rank.rooms[32] = replace(under_way, state=DRoom.AWAIT_AUX)
    assert of(rank, 32).startswith("has every chunk in place; the aux row has landed, since ")
    rank.rooms[32] = under_way
    rank.handle(ev.EngineAborted(32, Cause.DECODE_ABORTED), 3.0)
    assert of(rank, 32).startswith("has failed (DECODE_ABORTED); prefill ranks 0, 1 may still write, since 6.0 s; ")
    for link in (1, 2):
        say(rank, link, msg.Drained(Cause.NONE), 32)
    assert of(rank, 32).startswith("has failed (DECODE_ABORTED) and frees its grants: chunk 0 ")
    rank.handle(ev.Scattered(32, 0), 4.0)
    assert of(rank, 32) == "is over: ABORTED (DECODE_ABORTED); last event: GrantClosed."


def test_a_room_that_has_gone_well_is_done() -> None:
    rank = decode()
    plan = rank.peers[1].plan
    assert plan is not None
    rank.handle(ev.RoomOpened(32, rank.terms(FIRST, plan), TOKENS, TOKENS), 2.0)
    for link in (1, 2):
        say(rank, link, msg.Opened(), 32)
        say(rank, link, msg.Aux(b"aux"), 32)
    assert of(rank, 32).startswith("is done; last event: ")


def test_a_chunk_in_the_ring_s_queue_says_whether_its_room_or_others_hold_the_ring() -> None:
    rank = filled(3, (11, FIRST, 9 * CHUNK_TOKENS), (21, SECOND, 9 * CHUNK_TOKENS))
    ask(rank, 11, 0, 1, 2)
    queue = "AWAIT_SPACE of prefill ranks 0, 1 (in the ring's queue: "
    assert f"chunk 2 {queue}the room holds its share, {2 * SIZE} of {2 * SIZE} bytes)" in of(rank, 11)
    rank.ring.ahead = 0
    ask(rank, 21, 0, 1)
    share = f"the ring is promised to others, {SIZE} of {2 * SIZE} bytes)"
    assert f"chunk 0 FILLING of prefill ranks 0, 1; chunk 1 {queue}{share}" in of(rank, 21)


# ------------------------------------------------------------------------------------------------ links
def test_a_room_names_those_of_its_links_that_are_not_up() -> None:
    rank = prefill()
    open_rooms(rank)
    down = "link 2 to decode rank 1 of group 1 was lost: it is the other end's to call again"
    assert "link" not in of(rank, 11)
    lose(rank, 2)
    assert of(rank, 11).endswith(f"; {down}.") and "link" not in of(rank, 21)
    assert explain_link(rank, 2) == f"{down}." and explain_link(rank, 9) == ""
    whose = "link 1 to decode rank 0 of group 1 is up, 0 of our beats after it was last heard"
    assert explain_link(rank, 1) == f"{whose}; it works at wire version {msg.VERSION}."
    assert [unlinked(rank, room) for room in (11, 21, 99)] == ["decode rank 1", "", ""]
    rank.handle(ev.EngineOpened(41, TOKENS, Claim(FIRST)), 0.0)
    lose(rank, 1)
    assert unlinked(rank, 41) == "" and "link" not in of(rank, 41), "no rank has opened it yet"
    assert unlinked(rank, 11) == "decode ranks 0, 1" and 11 in rank.tombs and "link" not in of(rank, 11), "it is over"


def test_a_room_names_four_of_its_links_at_most_and_none_that_is_half_gone() -> None:
    rank = prefill()
    open_rooms(rank)
    lose(rank, 2)
    rank.rooms[13] = replace(rank.rooms[21], terms=replace(rank.rooms[21].terms, everyone=0b11111))
    for peer in range(5):
        rank.link_of[SECOND, peer] = 2
    assert of(rank, 13).count("was lost") == 4
    rank.link_of[SECOND, 0] = 99
    assert of(rank, 13).count("was lost") == 4, "a link that is gone takes no place of another's"
    del rank.peers[2], rank.links[1]
    assert [explain_link(rank, link) for link in (1, 2)] == ["", ""], "as another thread may see it"


def test_a_link_that_is_being_left_names_the_rooms_that_keep_it() -> None:
    rank = decode()
    open_rooms(rank)
    plan = rank.peers[1].plan
    assert plan is not None
    rank.leave(FIRST, 0.0)
    heard = "link 1 to prefill rank 0 of group 1 is up, 0 of our beats after it was last heard"
    whose = f"{heard}; it works at wire version {msg.VERSION}"
    up = f"{whose}; the engine has let go of it, and "
    assert explain_link(rank, 1) == f"{up}2 of its rooms have yet to end (room 11, room 12)."
    assert f"; {up}2 of its rooms" in of(rank, 11) and "link" not in of(rank, 21)
    assert "let go" not in explain_link(rank, 3)
    rank.rooms[13] = rank.rooms[11]
    assert explain_link(rank, 1) == f"{up}3 of its rooms have yet to end (room 11, room 12, room 13)."
    rank.rooms[14] = rank.rooms[11]
    assert explain_link(rank, 1) == f"{up}4 of its rooms have yet to end (room 11, room 12, room 13, ...)."
    for room in (11, 12, 13, 14):
        del rank.rooms[room]
    assert explain_link(rank, 1) == f"{up}it is forgotten when its timer ends."


# ------------------------------------------------------------------------------------------------ since when
@pytest.mark.parametrize("waited", [0.0, 0.3, 2.0, 5.0])
def test_without_a_trace_a_room_waits_since_its_timer_was_first_started(waited: float) -> None:
    rank = decode()
    plan = rank.peers[1].plan
    assert plan is not None
    rank.handle(ev.RoomOpened(32, rank.terms(FIRST, plan), TOKENS, 0), 1.0)
    while rank.next_deadline <= 1.0 + waited:
        rank.tick(rank.next_deadline)
    told = of(rank, 32, 1.0 + waited)
    assert told.endswith("last event: RoomOpened."), "asking again is no news"
    assert float(told.partition("since ")[2].partition(" s")[0]) == pytest.approx(waited, abs=0.2)
    rank.trace.clear()
    told = of(rank, 32, 1.0 + waited)
    assert told.startswith("waits for prefill ranks 0, 1 to confirm it, since ") and "older than the trace" in told
    since = float(told.partition("since ")[2].partition(" s")[0])
    assert since == pytest.approx(waited, abs=0.2)


def test_a_state_with_a_period_of_its_own_or_none_tells_as_much() -> None:
    rank = prefill()
    own = Timing().bootstrap.period / 2
    rank.handle(ev.EngineOpened(31, TOKENS, Claim(FIRST), within=own), 1.0)
    rank.handle(ev.EngineOpened(32, TOKENS, Claim(FIRST)), 2.0)
    rank.trace.clear()
    assert [of(rank, room).partition("; ")[0] for room in (31, 32)] == [
        "waits for a decode group to open it, since 8.0 s",
        "waits for a decode group to open it, since 7.0 s",
    ]
    rank.handle(ev.EngineAborted(32, Cause.PREFILL_ABORTED), 3.0)
    rank.trace.clear()
    assert of(rank, 32).endswith("(PREFILL_ABORTED); last event: older than the trace."), "what is over has no timer"


def test_what_happened_last_is_what_changed_the_room() -> None:
    rank = decode()
    open_rooms(rank)
    say(rank, 1, msg.StagingReq(0), 11)
    last = of(rank, 11).rpartition("last event: ")[2]
    say(rank, 3, msg.Aux(b"another room's"), 21)
    say(rank, 1, msg.Opened(), 11)
    rank.tick(Settings().timing.heartbeat.period)
    assert of(rank, 11).endswith(last)


# ------------------------------------------------------------------------------------------------ every state
def test_every_state_of_a_send_says_what_ends_its_wait() -> None:
    final = {state.name for state in prefill_send.final} | {prefill_send.initial.name}
    assert SENDS.keys() == {state.name for state in PSend} - final


@pytest.mark.parametrize("table", [prefill_room, decode_room], ids=lambda table: table.name)
def test_every_state_of_a_room_says_what_it_waits_for(table: Table[Any]) -> None:
    """None falls through to the words of a room that is over."""
    rank = prefill() if table is prefill_room else decode()
    open_rooms(rank)
    value = rank.rooms[11]
    work = value.work or (PrefillWork() if table is prefill_room else DecodeWork())
    for state in table.states:
        if state in table.final or state is table.initial:
            continue
        rank.rooms[11] = replace(value, state=state, work=replace(work, cause=Cause.STALLED), due=NOW + 1e3)
        text = of(rank, 11)
        assert "is over" not in text and "is done" not in text, state
        assert ("since " in text) == (state in table.timers), state


def test_who_has_asked_for_nothing_is_named_until_it_asks() -> None:
    rank = decode()
    plan = rank.peers[1].plan
    assert plan is not None
    rank.handle(ev.RoomOpened(32, rank.terms(FIRST, plan), TOKENS, 0), 2.0)
    assert "asked for nothing" not in of(rank, 32), "nobody has confirmed the room"
    for link in (1, 2):
        say(rank, link, msg.Opened(), 32)
    assert "; prefill ranks 0, 1 asked for nothing yet: their engines have not opened the room" in of(rank, 32)
    say(rank, 1, msg.StagingReq(0), 32)
    assert "; prefill rank 1 asked for nothing yet: its engine has not opened the room" in of(rank, 32)
    assert "chunk 0 AWAIT_WRITERS of prefill rank 1" in of(rank, 32)
    say(rank, 2, msg.StagingReq(0), 32)
    assert "asked for nothing" not in of(rank, 32)


def test_who_owes_state_alone_is_named_too_and_who_has_sent_the_aux_row_owes_no_more() -> None:
    rank = decode()
    plan = rank.peers[1].plan
    assert plan is not None
    terms = replace(rank.terms(FIRST, plan), writes=0b10, state_writes=0b01, aux=0b10)
    rank.handle(ev.RoomOpened(32, terms, TOKENS, 0), 2.0)
    for link in (1, 2):
        say(rank, link, msg.Opened(), 32)
    assert "; prefill ranks 0, 1 asked for nothing yet" in of(rank, 32)
    rank.rooms[32] = replace(rank.rooms[32], prefix=TOKENS, terms=replace(terms, aux=0))
    assert "; prefill rank 0 asked for nothing yet" in of(rank, 32), "a prefix that is here is not written again"
    rank.rooms[32] = replace(rank.rooms[32], terms=replace(terms, aux=0, state_writes=0))
    assert "asked for nothing" not in of(rank, 32), "all is here"
    work = DecodeWork(aux=True)
    rank.rooms[32] = replace(rank.rooms[32], terms=terms, work=work)
    assert "; prefill rank 0 asked for nothing yet" in of(rank, 32), "the aux row is here"
    rank.rooms[32] = replace(rank.rooms[32], work=replace(work, aux=False))
    assert "; prefill ranks 0, 1 asked for nothing yet" in of(rank, 32)


def test_a_link_tells_of_a_second_instance_under_its_peer_s_name_and_of_another_build() -> None:
    rank = prefill()
    open_rooms(rank)
    up = "link 1 to decode rank 0 of group 1 is up, 0 of our beats after it was last heard"
    for rival, why, told in ((5, "a second instance", "; a second instance"), (5, "", ""), (0, "an earlier one", "")):
        rank.links[1] = replace(rank.links[1], rival=rival, why=why)
        assert explain_link(rank, 1) == f"{up}{told}; it works at wire version {msg.VERSION}."
        assert (f"; {up}{told}" in of(rank, 11)) is bool(told), "a room names its links that are not plain"
    rank.build = replace(rank.build, digest="table:1")
    rank.links[1] = replace(rank.links[1], build=replace(rank.links[1].build, digest="table:2"))
    assert ", and the builds differ in table (2 against 1)" in explain_link(rank, 1)


def test_a_link_that_is_called_at_another_address_tells_of_it_once() -> None:
    rank = decode()
    for state, count in ((rank.UP, 1), (DLink.AWAIT_RETURN, 1)):
        rank.links[1] = replace(rank.links[1], state=state, beside="tcp://10.0.0.9:5")
        assert explain_link(rank, 1).count("; tcp://10.0.0.9:5 is tried beside it") == count
    rank.links[1] = replace(rank.links[1], state=rank.UP, beside="")
    assert "beside" not in explain_link(rank, 1)


@pytest.mark.parametrize("entries", [4, 512])
def test_since_when_does_not_depend_on_the_length_of_the_trace(entries: int) -> None:
    rank = decode()
    plan = rank.peers[1].plan
    assert plan is not None
    rank.handle(ev.RoomOpened(32, rank.terms(FIRST, plan), TOKENS, 0), 2.0)
    for link in (1, 2):
        say(rank, link, msg.Opened(), 32)
    told = of(rank, 32).partition("; last event")[0]
    while len(rank.trace) > entries % 7:
        rank.trace.popleft()
    assert of(rank, 32).partition("; last event")[0] == told


#: a short trace, and links that are never lost, however slow the machine
CALM = replace(SMALL, trace=4, timing=Timing(heartbeat=Timer(1.0, 10_000)))
#: of the wheel's slots, and of passes: how far the time that is told may be from what has passed
SLACK_S = 0.6


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def pair(clock: ManualClock) -> Iterator[Pair]:
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock, settings=CALM) as made:
        yield made


def since(pair: Pair, room: Room) -> float:
    """Seconds that the decode rank tells; the trace knows nothing of the room any more."""
    text = pair.decodes[0].explain(room)
    assert "older than the trace" in text
    found = re.search(r"since ([\d.]+) s", text)
    assert found, text
    return float(found[1])


def wait(pair: Pair, clock: ManualClock, seconds: float, step: float) -> None:
    """Time passes on the decode rank, to which nobody says anything; a timer ends up to a step late."""
    for _ in range(round(seconds / step)):
        clock.advance(step)
        for _ in range(5):
            pair.decodes[0].poll()


@pytest.mark.parametrize("seconds", [0.25, 3.0, 4.5])
def test_a_room_that_asks_again_and_again_waits_since_it_was_opened(
    pair: Pair, clock: ManualClock, seconds: float
) -> None:
    room = pair.name(20)
    inside(pair.prefills[0]).loop.hear = lambda *_: None  # type: ignore[method-assign]  # it never confirms
    pair.open_decode(room)
    pair.turn()
    wait(pair, clock, seconds, 0.05)
    inside(pair.decodes[0]).rank.trace.clear()
    assert since(pair, room) == pytest.approx(seconds, abs=SLACK_S)


def test_a_room_in_which_nothing_moves_waits_since_it_was_confirmed(pair: Pair, clock: ManualClock) -> None:
    room = pair.open(20)
    pair.pump(lambda: room in pair.decodes[0].rooms().get("OPEN", []))
    began = clock.now()
    inside(pair.decodes[0]).loop.hear = lambda *_: None  # type: ignore[method-assign]
    wait(pair, clock, 220.0, 0.25)
    assert clock.now() - began == 220.0
    inside(pair.decodes[0]).rank.trace.clear()
    assert since(pair, room) == pytest.approx(220.0, abs=2 * SLACK_S)
