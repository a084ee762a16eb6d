"""A prefill rank's sends of its rooms: which exist, whose KV is there, and what a gather reports.

Each effect is carried out by hand, on ranks with two rooms of each of two groups (`test_rank_queues`), so that another
room, another peer and another group stand beside what is meant.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from test_rank_links import CHUNK_TOKENS, FIRST, SECOND, say
from test_rank_queues import act, prefill

from kvproto.layout.costs import Costs
from kvproto.layout.cut import NO_PART, Cut, cut_at
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Target
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.protocol.states import PSend
from kvproto.protocol.tables.prefill_room import PrefillWork
from kvproto.protocol.tables.prefill_send import PSendValue
from kvproto.rank import prefill as of_sends
from kvproto.rank.base import LinkPeer
from kvproto.rank.prefill import PrefillRank

#: room 21 here: three cells of two layer groups, the last of three tokens
ROOM, PREFIX, TOKENS, GROUPS = 21, 5, 40, 2
WAITS, WAITS_PAGES = PSendValue(PSend.AWAIT_KV), PSendValue(PSend.AWAIT_PAGES_KV)


def key(chunk: int, peer: int) -> int:
    return (chunk << 16) + peer


def with_room(*, groups: int = GROUPS, work: PrefillWork | None = None, **changed: Any) -> PrefillRank:
    """A rank in whose room 21 so much is done, and which has no send yet."""
    rank = prefill(costs=Costs(piece=1e-3), **changed)
    value = rank.rooms[ROOM]
    terms = replace(value.terms, layer_groups=groups)
    rank.rooms[ROOM] = replace(value, tokens=TOKENS, prefix=PREFIX, terms=terms, work=work)
    rank._out.clear()
    return rank


def made(rank: PrefillRank, *effects: Any) -> list[Any]:
    """The effects that others carry out."""
    rank._out.clear()
    assert act(rank, *effects) == []
    return list(rank._out)


#: an aux row's
NO_CUT = Target().cut


def target(rank: PrefillRank, link: int, peer: int, cut: Cut = NO_CUT) -> Target:
    """The target of a send to this rank, with its part of the chunk."""
    plan = rank.peers[link].plan
    assert plan is not None
    return Target(link, rank.links[link].epoch, cut, plan.part(0, peer, cut) if cut.tokens else NO_PART)


# ------------------------------------------------------------------------------------------ gathers and pages
def test_what_will_be_gathered_is_foreseen_of_the_oldest_rooms_into_the_slots_that_they_will_get(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = with_room(slots=3)
    first, second, third = Target(1), Target(2), Target(3)
    rank.sends[11] = {key(0, 0): PSendValue(PSend.AWAIT_GRANT), key(1, 1): replace(WAITS, to=first)}
    rank.sends[11][key(AUX_CHUNK, 0)] = WAITS_PAGES
    rank.sends[ROOM] = {key(5, 1): replace(WAITS, to=second), key(4, 0): replace(WAITS, to=third), key(3, 0): WAITS}
    one = do.LaunchGather(11, 1, 1, first, 2, 0, 0)
    two = do.LaunchGather(ROOM, 5, 1, second, 1, 0, 0)
    three = do.LaunchGather(ROOM, 4, 0, third, 0, 0, 0)
    assert rank.expected_gathers() == [one, two, three]
    act(rank, do.TakeSlot(12, 0, 0))
    assert rank.expected_gathers() == [replace(one, slot=1), replace(two, slot=0)], "so many slots are free"
    monkeypatch.setattr(of_sends, "OLDEST", 1)
    assert rank.expected_gathers() == [replace(one, slot=1)]


def test_what_will_be_written_into_pages_is_foreseen_but_for_what_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = with_room()
    mapped, other = Target(2), Target(3)
    rank.peers = {2: LinkPeer(1, 1, mapped=True), 3: LinkPeer(1, 2)}
    waits = replace(WAITS_PAGES, pages=b"page", to=mapped)
    rank.sends[11] = {key(0, 0): replace(WAITS, to=mapped), key(1, 1): waits}
    rank.sends[ROOM] = {key(5, 1): waits, key(4, 0): replace(WAITS, to=other), key(4, 1): replace(waits, to=other)}
    one, two, three = (
        do.PreparePages(room, chunk, 1, to, b"page")
        for room, chunk, to in ((11, 1, mapped), (ROOM, 5, mapped), (ROOM, 4, other))
    )
    assert rank.expected_stores((), 3) == [one, two, three] and rank.expected_stores((), 2) == [one, two]
    assert rank.expected_stores({(11, 1, 1)}, 3) == [two, three]
    assert rank.expected_stores({(11, 1, 1)}, 2) == [two], "with those that are made"
    monkeypatch.setattr(of_sends, "BATCH", 1)
    assert rank.expected_stores((), 3) == [one]


# ------------------------------------------------------------------------------------------- which sends
def opened(
    rank: PrefillRank, first: int, last: int, *, aux: bool, linked: int = 0b11
) -> list[tuple[int, int, bool]]:  # fmt: skip
    """(chunk, peer, ready) of the sends that a window opens; `linked`: peers (mask) to which a link leads."""
    events = act(rank, do.OpenWindow(ROOM, first, last, aux))
    assert all(isinstance(event, ev.SendOpened) and event.room == ROOM for event in events)
    for event in events:
        assert isinstance(event, ev.SendOpened)
        costs = rank.estimate(ROOM, event.peer)
        assert costs.staged != costs.pages
        of_kv, of_aux = (rank.native_notify, False, costs.staged, costs.pages), (False, True, 0.0, 0.0)
        given = (event.native_notify, event.aux, event.staged_cost, event.pages_cost)
        cut = cut_at(event.chunk, TOKENS, PREFIX, CHUNK_TOKENS, GROUPS) if event.chunk >= 0 else NO_CUT
        bound = target(rank, 3 + event.peer, event.peer, cut) if linked >> event.peer & 1 else Target(0, 0, cut)
        assert event.to == bound
        assert given == (of_aux if event.chunk == AUX_CHUNK else of_kv)
    return [(event.chunk, event.peer, event.ready) for event in events if isinstance(event, ev.SendOpened)]


def test_a_window_opens_each_chunk_for_each_reader_and_says_whose_kv_is_there() -> None:
    rank = with_room()
    assert not rank.native_notify, "before its transport has said so"
    every = [(chunk, peer) for chunk in (1, 2) for peer in (0, 1)]
    assert opened(rank, 1, 3, aux=False) == [(*each, False) for each in every], "the engine is not at work"
    rank = with_room(work=PrefillWork(produced=PREFIX + CHUNK_TOKENS))
    rank.native_notify = True
    assert opened(rank, 1, 3, aux=True) == [
        (1, 0, True), (1, 1, True), (2, 0, False), (2, 1, False), (AUX_CHUNK, 0, False), (AUX_CHUNK, 1, False),
    ]  # fmt: skip
    rank = with_room(work=PrefillWork(aux=True, ahead=PREFIX + CHUNK_TOKENS, layers=1))
    rank.native_notify = True
    assert opened(rank, 0, 3, aux=True) == [
        (0, 0, True), (0, 1, True), (1, 0, False), (1, 1, False), (2, 0, False), (2, 1, False),
        (AUX_CHUNK, 0, True), (AUX_CHUNK, 1, True),
    ], "the first layer of the first cell is there"  # fmt: skip


@pytest.mark.parametrize(
    ("readers", "aux_readers", "first", "last", "aux", "at_work"),
    [
        (0b11, 0b11, 0, 2, True, True), (0b11, 0, 0, 2, False, True), (0b11, 0, 2, 2, False, False),
        (0, 0b10, 0, 2, True, True), (0, 0b10, 0, 2, False, False), (0, 0, 0, 2, True, False),
        (0b10, 0b01, 2, 2, True, True),
    ],
)  # fmt: skip
def test_a_room_is_at_work_from_its_first_send_on_and_until_its_last(
    readers: int, aux_readers: int, first: int, last: int, aux: bool, at_work: bool
) -> None:
    rank = with_room()
    rank.native_notify = True
    terms = replace(rank.rooms[ROOM].terms, writes=readers, aux=aux_readers)
    rank.rooms[ROOM] = replace(rank.rooms[ROOM], terms=terms)
    found = opened(rank, first, last, aux=aux)
    chunks = [(chunk, peer) for chunk in range(first, last) for peer in (0, 1) if readers >> peer & 1]
    assert [each[:2] for each in found] == chunks + [
        (AUX_CHUNK, peer) for peer in (0, 1) if aux and aux_readers >> peer & 1
    ]
    assert rank._groups == ({ROOM: SECOND} if at_work else {}) and bool(found) == at_work
    rank._forget_group(ROOM)
    rank._forget_group(12)
    assert rank._groups == {}


# ------------------------------------------------------------------------------------------- whose KV is there
def of_room(rank: PrefillRank, *keys: tuple[int, int], **changed: Any) -> dict[int, PSendValue]:
    """Sends of these chunks to these peers, which wait for their KV."""
    cuts = {chunk: cut_at(chunk, TOKENS, PREFIX, CHUNK_TOKENS, GROUPS) for chunk, _ in keys}
    return {
        key(chunk, peer): PSendValue(PSend.AWAIT_KV, to=target(rank, 3 + peer, peer, cuts[chunk]), **changed)
        for chunk, peer in keys
    }


EACH = [(chunk, peer) for chunk in range(6) for peer in (0, 1)]


def told(rank: PrefillRank, effect: Any) -> list[tuple[str, int, int]]:
    events: list[Any] = act(rank, effect)
    assert all(event.room == ROOM for event in events)
    return [(type(event).__name__, event.chunk, event.peer) for event in events]


def test_sends_hear_of_their_kv_when_it_is_there_and_once() -> None:
    for work, there in (
        (PrefillWork(produced=PREFIX + CHUNK_TOKENS - 1), {}),
        (PrefillWork(produced=PREFIX + CHUNK_TOKENS), {0: 2, 1: 2}),
        (PrefillWork(produced=PREFIX + CHUNK_TOKENS, ahead=PREFIX + 2 * CHUNK_TOKENS, layers=1), {0: 2, 1: 2, 2: 1}),
        (PrefillWork(produced=PREFIX + CHUNK_TOKENS, ahead=TOKENS, layers=2), {0: 2, 1: 2, 2: 1, 3: 2, 4: 2, 5: 2}),
        (PrefillWork(produced=TOKENS), {0: 2, 1: 2, 2: 1, 3: 2, 4: 2, 5: 2}),
    ):
        rank = with_room(work=work)
        rank.sends[ROOM] = of_room(rank, *EACH) | of_room(rank, (2, 1), kv=True)
        rank.sends[ROOM][key(AUX_CHUNK, 0)], rank.sends[11] = PSendValue(PSend.AWAIT_AUX), {key(0, 0): WAITS}
        peers = {2: (0, 1), 1: (0,)}
        wanted = [("KvProduced", chunk, peer) for chunk, count in there.items() for peer in peers[count]]
        assert told(rank, do.OfferKv(ROOM)) == wanted
    rank = with_room(work=PrefillWork(produced=TOKENS))
    assert told(rank, do.OfferKv(ROOM)) == told(rank, do.WithdrawKv(ROOM)) == told(rank, do.OfferAux(ROOM)) == []


def test_of_a_rank_that_no_link_leads_to_no_layers_are_waited_for() -> None:
    rank = with_room(work=PrefillWork(ahead=TOKENS, layers=2))
    del rank.links[4]
    assert opened(rank, 0, 1, aux=False, linked=0b01) == [(0, 0, True), (0, 1, False)]


def test_sends_whose_kv_is_taken_back_hear_of_it() -> None:
    rank = with_room(work=PrefillWork(produced=PREFIX + CHUNK_TOKENS, ahead=PREFIX + 2 * CHUNK_TOKENS, layers=1))
    rank.sends[ROOM] = of_room(rank, *EACH, kv=True) | of_room(rank, (5, 0))
    rank.sends[ROOM][key(AUX_CHUNK, 0)] = PSendValue(PSend.AWAIT_AUX_ACK, kv=True)
    wanted = [("KvWithdrawn", chunk, peer) for chunk in (3, 4, 5) for peer in (0, 1) if (chunk, peer) != (5, 0)]
    assert told(rank, do.WithdrawKv(ROOM)) == wanted


def test_of_a_rank_that_has_forgotten_the_room_what_may_have_told_counts_as_confirmed() -> None:
    rank, asks = with_room(), PSendValue(PSend.AWAIT_PAGES)
    told = replace(asks, told=True)
    rank.sends[ROOM] = {key(3, 1): told, key(2, 1): asks, key(3, 0): told, key(4, 1): told}
    assert act(rank, do.ConfirmTold(ROOM, 1)) == [ev.ChunkAcked(ROOM, 3, 1), ev.ChunkAcked(ROOM, 4, 1)]
    assert act(rank, do.ConfirmTold(22, 1)) == []


def test_state_is_there_when_all_tokens_have_passed_and_layers_when_a_part_has_some() -> None:
    state = Cut(TOKENS, 0, state=True)
    for produced, there in ((TOKENS - 1, False), (TOKENS, True), (TOKENS + 1, True)):
        assert of_sends._computed(PrefillWork(produced=produced), state, NO_PART) is there
    work, share = PrefillWork(produced=0, ahead=8, layers=2), SimpleNamespace(src_layer=1, layers=1)
    for nbytes, there in ((0, False), (1, True)):
        part: Any = SimpleNamespace(nbytes=nbytes, share=share)
        assert of_sends._computed(work, Cut(0, 8), part) is there


def test_windows_are_counted_and_the_first_of_a_room_says_that_everybody_is_there() -> None:
    rank, met = with_room(), list[int]()
    rank.met = met.append
    assert rank.windows == 0
    for aux, windows, said in ((True, 1, [ROOM]), (False, 2, [ROOM])):
        opened(rank, 0, 1, aux=aux)
        assert (rank.windows, met) == (windows, said)


def test_aux_rows_and_ends_are_told_to_the_sends_of_the_room() -> None:
    rank = with_room(work=PrefillWork())
    rank.sends[11] = {key(AUX_CHUNK, 0): PSendValue(PSend.AWAIT_AUX)}
    keys = [(0, 0), (0, 1), (1, 0), (AUX_CHUNK, 0), (AUX_CHUNK, 1)]
    rank.sends[ROOM] = {key(*each): PSendValue(PSend.AWAIT_AUX) for each in keys}
    assert act(rank, do.OfferAux(ROOM)) == [ev.AuxReady(ROOM, AUX_CHUNK, 0), ev.AuxReady(ROOM, AUX_CHUNK, 1)]
    assert act(rank, do.StopSends(ROOM)) == [*(ev.SendStopped(ROOM, *each) for each in keys), ev.SendsStopped(ROOM)]
    assert act(rank, do.StopSends(22)) == [ev.SendsStopped(22)]


def test_an_aux_row_goes_by_the_link_that_its_send_was_opened_with() -> None:
    rank = prefill()
    rank.handle(ev.EngineOpened(31, 8, ev.Claim(FIRST)), 0.0)
    for link in (1, 2):
        say(rank, link, msg.Open(8, 0), 31)
    rows = [each for each in rank.handle(ev.AuxProvided(31), 0.0) if isinstance(each, do.TransmitAux)]
    assert rows == [do.TransmitAux(link, rank.links[link].epoch, 31) for link in (1, 2)]


def test_a_peer_lacks_a_part_that_is_not_yet_on_its_way() -> None:
    """The sends that are open for it in this room; aux rows are sends, too."""
    rank = with_room()
    on_its_way = (PSend.WRITING, PSend.WRITING_PAGES, PSend.AWAIT_ACK, PSend.AWAIT_AUX_ACK)
    assert not rank.unsent(ROOM, 0), "nothing is open"
    for state in PSend:
        rank.sends[ROOM] = {key(2, 0): PSendValue(PSend.WRITING), key(1, 1): PSendValue(state)}
        assert rank.unsent(ROOM, 1) is (state not in on_its_way)
        assert not rank.unsent(ROOM, 0) and not rank.unsent(ROOM + 1, 1)
        told = PSendValue(state, told=True)
        rank.sends[ROOM] = {key(1, 1): told}
        assert rank.unsent(ROOM, 1) is (state not in (*on_its_way, PSend.AWAIT_PAGES)), "a failed write may have told"
    rank.sends[ROOM] = {key(AUX_CHUNK, 1): PSendValue(PSend.AWAIT_AUX), key(0, 0): PSendValue(PSend.AWAIT_AUX_ACK)}
    assert rank.unsent(ROOM, 1) and not rank.unsent(ROOM, 0)


def test_the_aux_row_leaves_by_the_send_s_link_and_the_trace_has_it() -> None:
    rank, logged = with_room(), list[Any]()
    rank.log = logged.append
    effect = do.TransmitAux(3, rank.links[3].epoch, ROOM)
    assert made(rank, effect) == [effect] == [each[0] for each in logged]
