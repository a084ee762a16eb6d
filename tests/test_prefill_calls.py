"""An engine's calls of its prefill endpoint: ended rooms, bounds, steps, waiting callers and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call, patch

import msgspec
import pytest
from support.stories import layout

from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.errors import ArgumentError, NotFoundError
from kvproto.fsm.vocabulary import Event
from kvproto.layout.placement import Placement
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import encode
from kvproto.protocol.states import Cause
from kvproto.room import Caller, Room
from kvproto.settings import DECODE_GROUP
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import SMALL, Pair

CHUNK_TOKENS, TOKENS = 8, 45


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS) as made:
        yield made


def heard(prefill: PrefillEndpoint, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events that its rank takes from now on."""
    said, happen = list[Event](), prefill._happen

    def note(event: Event) -> None:
        said.append(event)
        happen(event)

    monkeypatch.setattr(prefill, "_happen", note)
    return said


# ------------------------------------------------------------------------------------------------ rooms
def test_of_a_room_that_was_handed_out_nothing_is_said_any_more(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    room, prefill = pair.open(TOKENS), pair.prefills[0]
    pair.finish(room)
    pair.rest()
    called = list[object]()
    monkeypatch.setattr(inside(prefill).loop, "call", called.append)
    prefill.prefetch(room)
    prefill.produced(room, TOKENS)
    prefill.withdraw(room, 0)
    prefill.aux(room, b"late")
    prefill.abort(room)
    assert not called and prefill.withdrawn(room)
    for late in (prefill.prefetch, lambda it: prefill.produced(it, 1), lambda it: prefill.aux(it, b"")):
        with pytest.raises(NotFoundError, match="is not open here"):
            late(Room(99))


def test_chunks_are_told_one_then_two_then_four_as_gathers_end(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill, later = pair.prefills[0], list[Any]()
    said = heard(prefill, monkeypatch)
    monkeypatch.setattr(inside(prefill).data.gathers, "later", later.append)
    room = pair.open(77, prefix=8)
    pair.pump(lambda: prefill.opened_by_all(room))
    prefill.produced(room, 4)
    prefill.poll()
    prefill.produced(room, 77)
    prefill.poll()
    while later:
        later.pop()()
    assert said == [ev.TokensProduced(room.key, upto) for upto in (4, 16, 32, 64, 77)]
    said.clear()
    prefill.produced(room, 77)
    prefill.poll()
    assert said == [ev.TokensProduced(room.key, 77)] and not later


def test_what_is_kept_after_a_withdrawal_is_told_a_chunk_at_first(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefill, later = pair.prefills[0], list[Any]()
    monkeypatch.setattr(inside(prefill).data.gathers, "later", later.append)
    room = pair.open(40)
    pair.pump(lambda: prefill.opened_by_all(room))
    prefill.produced(room, 40)
    prefill.poll()
    said = heard(prefill, monkeypatch)
    prefill.withdraw(room, 35)
    prefill.poll()
    assert said == [ev.TokensWithdrawn(room.key, 35), ev.TokensProduced(room.key, 16)]
    later[0]()
    assert len(said) == 2, "the announcements of before have stopped"
    later[1]()
    assert said[2:] == [ev.TokensProduced(room.key, 32)]


def test_of_chunks_of_one_token_the_first_is_told_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pair(layout(1, page=1), layout(1, page=1), chunk_tokens=1) as pair:
        (prefill,), later, room = pair.prefills, list[Any](), pair.name(4)
        prefill.open(room, 4, pair.tables[room][0])
        pair.open_decode(room)
        pair.pump(lambda: prefill.opened_by_all(room))
        said = heard(prefill, monkeypatch)
        monkeypatch.setattr(inside(prefill).data.gathers, "later", later.append)
        prefill.produced(room, 4)
        prefill.poll()
        while later:
            later.pop()()
        assert said == [ev.TokensProduced(room.key, upto) for upto in (1, 3, 4)]


def test_pages_that_come_later_are_waited_for_by_the_first_launch(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    (prefill,), room, event = pair.prefills, pair.name(TOKENS), object()
    prefill.open(room, TOKENS)
    monkeypatch.setattr(inside(prefill).data.streams, "extend", lambda *_: event)
    prefill.produced(room, 4, pages=[3])
    prefill.poll()
    assert inside(prefill).entries[room.key].placed is event


def test_what_needs_no_other_pages_waits_for_no_withdrawal(pair: Pair) -> None:
    room, prefill = pair.open(TOKENS), pair.prefills[0]
    prefill.withdraw(room, 16)
    prefill.produced(room, 16)
    assert not prefill.withdrawn(room) and inside(prefill).entries[room.key].full == 16


def test_a_room_is_known_here_if_its_engine_has_spoken_of_it(pair: Pair) -> None:
    (prefill,), refused, asked = pair.prefills, pair.name(20), pair.name(20)
    prefill.refuse(refused)
    pair.open_decode(asked)
    pair.pump(lambda: prefill.opened_by_all(asked))
    for room in (refused, asked):
        assert not prefill._knows_room(room.key)
        with pytest.raises(NotFoundError, match="is not open here"):
            prefill.prefetch(room)
        pair.open_prefill(room)
        prefill.poll()
    assert prefill._knows_room(asked.key)
    prefill.open(Room(98), 20, range(5))
    prefill.poll()
    assert inside(prefill).rank.rooms[98].work is None and prefill._knows_room(98)


def test_what_was_to_be_told_later_is_not_told_of_a_room_that_is_gone(pair: Pair) -> None:
    room, prefill = pair.open(TOKENS), pair.prefills[0]
    entry = inside(prefill).entries[room.key]
    pair.finish(room)
    assert not inside(prefill).entries
    prefill._announce(room.key, entry, TOKENS, 1, entry.taken)
    inside(prefill).rank.tombs.clear()
    inside(prefill).entries[room.key] = entry
    prefill._announce(room.key, entry, TOKENS, 1, entry.taken)
    assert not prefill.reports()


def test_layers_of_a_forward_are_told_with_their_depth(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    room, prefill = pair.open(TOKENS), pair.prefills[0]
    entry, event = inside(prefill).entries[room.key], SimpleNamespace(query=lambda: True)
    said = heard(prefill, monkeypatch)
    prefill.produced(room, CHUNK_TOKENS, event, layers=1)
    assert (entry.full, entry.ahead, entry.layers, entry.computed) == (0, CHUNK_TOKENS, 1, 0.0)
    prefill.poll()
    assert said == [ev.TokensProduced(room.key, 0, CHUNK_TOKENS, 1)] and entry.marks == [(CHUNK_TOKENS, 1, event)]
    prefill.produced(room, CHUNK_TOKENS)
    prefill.poll()
    assert entry.marks == [(CHUNK_TOKENS, 1, event)], "no event was given"
    assert inside(prefill).data.streams.forward is event
    said.clear()
    prefill.produced(room, 2 * CHUNK_TOKENS, layers=1)
    prefill.withdraw(room, 0)
    prefill.poll()
    assert said == [ev.TokensWithdrawn(room.key, 0)], "the layers were taken back before the loop heard of them"
    said.clear()
    prefill.produced(room, 0, layers=1)
    inside(prefill).entries[room.key] = replace(entry)
    prefill.poll()
    assert not said, "it is the room of another attempt"
    inside(prefill).entries[room.key] = entry


def test_when_all_of_it_was_computed_is_noted_once(pair: Pair) -> None:
    room, prefill = pair.open(TOKENS), pair.prefills[0]
    entry = inside(prefill).entries[room.key]
    prefill.produced(room, TOKENS - 1)
    assert entry.full == TOKENS - 1 and not entry.computed
    prefill.produced(room, CHUNK_TOKENS)
    assert entry.full == TOKENS - 1, "less has been said before"
    prefill.produced(room, TOKENS)
    entry.computed = computed = entry.computed - 1.0
    assert computed > 0
    prefill.produced(room, TOKENS)
    assert entry.computed == computed
    prefill.withdraw(room, TOKENS)
    assert entry.computed == computed, "nothing was taken back"


@pytest.mark.parametrize(("upto", "given", "full"), [(0, 0, 0), (7, 2, 7), (8, 2, 8), (40, 5, 10), (TOKENS, 5, 10)])
def test_what_is_taken_back_has_no_pages_and_is_not_computed(pair: Pair, upto: int, given: int, full: int) -> None:
    room, prefill = pair.name(TOKENS), pair.prefills[0]
    prefill.open(room, TOKENS, pair.tables[room][0][:5])
    entry = inside(prefill).entries[room.key]
    prefill.produced(room, 10)
    prefill.produced(room, 20, layers=1)
    entry.computed = 1.0
    for turn in (1, 2):
        prefill.withdraw(room, upto)
        assert (entry.given, entry.full, entry.ahead, entry.layers) == (given, full, 0, 0)
        assert entry.taken == turn and entry.computed == 0.0 and not prefill.withdrawn(room)
        prefill.poll()
        assert entry.heard == turn and prefill.withdrawn(room)


def test_an_aux_row_has_a_bound(pair: Pair) -> None:
    room, prefill = pair.open(TOKENS), pair.prefills[0]
    with pytest.raises(ArgumentError, match=f"{msg.MAX_AUX + 1} bytes, more than {msg.MAX_AUX}"):
        prefill.aux(room, bytes(msg.MAX_AUX + 1))
    prefill.aux(room, bytes(msg.MAX_AUX))
    pair.produce(room, aux=None)
    pair.pump(lambda: pair.over(room))
    assert pair.outcomes["D", 0, room].aux == bytes(msg.MAX_AUX)


def test_runs_of_pages_are_counted_where_all_are_there(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill, called = pair.prefills[0], list[Any]()
    monkeypatch.setattr(inside(prefill).loop, "call", called.append)
    for number, pages in enumerate(([1, 2, 7], [1, 2], [])):
        prefill.open(Room(50 + number), 12, pages, within=4.5)
    assert [(event.runs, event.tokens) for event in called] == [(2, 12), (0, 12), (0, 12)]


# ------------------------------------------------------------------------------------------------ who waits
def test_a_room_for_no_group_is_the_first_one_s_that_shows_the_secret(pair: Pair) -> None:
    room, prefill = pair.name(TOKENS), pair.prefills[0]
    prefill.open(room, TOKENS, group=None, secret=b"s")
    prefill.poll()
    rank = inside(prefill).rank
    assert rank.rooms[room.key].facts.claim == rank.claim(0, b"s")


def test_who_waits_for_a_room_is_known_when_all_of_it_does() -> None:
    with Pair(layout(1), layout(2, page=8), chunk_tokens=CHUNK_TOKENS) as pair:
        (prefill,), room = pair.prefills, Room(5)
        rank = inside(prefill).rank
        assert prefill.caller(room) is None and prefill.prefix(room) is None
        prefill.open(Room(6), 24, [1, 2, 3, 4, 5, 6])
        prefill.poll()
        assert prefill.caller(Room(6)) is None, "nobody has said a word of it"
        pair.decodes[1].open(room, 24, [1, 2, 3], prefix=16)
        pair.pump(lambda: rank.value_of(room.key) is not None)
        assert prefill.caller(room) is None and not prefill.opened_by_all(room), "one of two"
        pair.decodes[0].open(room, 24, [1, 2, 3], prefix=16)
        pair.pump(lambda: prefill.opened_by_all(room))
        assert prefill.caller(room) == Caller(DECODE_GROUP, tokens=24, prefix=16, page_size=8)
        assert prefill.prefix(room) == 16
        for link in list(rank.peers):
            peer = rank.peers[link]
            peer.plan, plan = None, peer.plan
            assert (prefill.caller(room) is None) == (peer.rank == 0), "the first of them is asked for the layout"
            if peer.rank == 0:
                assert (DECODE_GROUP, 0) not in prefill.routes()
            peer.plan = plan
        pair.decodes[0].abort(room)
        pair.pump(lambda: not prefill.opened_by_all(room))
        told = prefill.caller(room)
        assert told is not None and told.cause is Cause.DECODE_ABORTED and prefill.prefix(room) is None
        pair.decodes[1].open(Room(7), 24, [1, 2, 3])
        pair.pump(lambda: rank.value_of(7) is not None)
        pair.decodes[1].abort(Room(7))
        pair.pump(lambda: (it := prefill.caller(Room(7))) is not None and it.cause is Cause.DECODE_ABORTED, 2.0)
        with patch.dict(rank.peers, clear=True):  # a link that is closed says goodbye to its peer
            assert prefill.caller(room) is None, "who has left cannot be asked"


# ------------------------------------------------------------------------------------------------ links
@pytest.mark.parametrize("route", ["cost", "pages"])
def test_kernels_for_what_is_owed_are_made_before_a_link_is_up_unless_nothing_is_staged(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, route: Any
) -> None:
    (prefill,), made = pair.prefills, Mock()
    rank, loop, _, data = inside(prefill)
    monkeypatch.setattr(rank, "settings", msgspec.structs.replace(SMALL, route=route, layer_groups=2))
    monkeypatch.setattr(data.kernels, "prepare", made)
    monkeypatch.setattr(prefill._wire_up, "connect", lambda *given: given[3]())
    loop.handlers[do.Connect](do.Connect(1, 7))
    owed = [call(prefill.pool, "gather", shares) for shares in pair.plan.cuts(pair.plan.duties(0), 2)]
    assert len(owed) == 3 and made.mock_calls == (owed if route == "cost" else [])


def test_the_helper_thread_ends_with_its_endpoint(pair: Pair) -> None:
    (prefill,) = pair.prefills
    assert not prefill._wire_up._pool._shutdown
    prefill.close()
    assert prefill._wire_up._pool._shutdown


def test_what_the_helper_thread_says_wakes_the_loop(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill, woken = pair.prefills[0], list[bool]()
    loop, said = inside(prefill).loop, list[tuple[str, str]]()
    monkeypatch.setattr(loop.control, "wake", lambda: woken.append(True))
    monkeypatch.setattr(loop.logs, "wire", lambda *told: said.append(told))
    events: list[ev.WireFailed | ev.WiredUp] = [ev.WireFailed(1, 7, "planted"), ev.WiredUp(1, 7, "peer")]
    told = heard(prefill, monkeypatch)
    for event in events:
        prefill._wired(event, "")
    assert woken
    prefill.poll()
    assert told == events and said == [("link 1 to rank 0 of group 2", "planted")]


def test_a_refusal_is_cut_to_what_a_frame_may_say(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill, sent = pair.prefills[0], list[tuple[Any, ...]]()
    loop = inside(prefill).loop
    monkeypatch.setattr(loop.connections, "send", lambda *given: sent.append(given))
    loop.handlers[do.SayRefusal](do.SayRefusal(1, 7, "x" * 2000))
    assert sent == [(1, 0, 0, msg.Refusal(7, "x" * 1024))]
    loop.handlers[do.SayWelcome](do.SayWelcome(1, 7, 3))
    assert sent[1] == (1, 3, 0, inside(prefill).rank.welcome(7, 3))


def test_a_stranger_s_refusal_goes_where_he_is_and_is_cut_too(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill, sent = pair.prefills[0], list[tuple[Any, ...]]()
    loop = inside(prefill).loop
    monkeypatch.setattr(loop.control, "send", lambda *given: sent.append(given))
    (peer,) = loop.connections.peer_of.values()
    loop.handlers[do.RefuseCall](do.RefuseCall(peer.place, 7, "x" * 2000))
    assert sent == [(peer, encode(0, 0, msg.Refusal(7, "x" * 1024)))]


def test_an_aux_row_that_was_never_given_is_empty(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill, room, sent = pair.prefills[0], pair.open(TOKENS), list[tuple[Any, ...]]()
    rank, loop = inside(prefill).rank, inside(prefill).loop
    pair.pump(lambda: room.key in rank.rooms and rank.rooms[room.key].terms is not None)
    known = rank.rooms[room.key]
    monkeypatch.setattr(loop.connections, "send", lambda *given: sent.append(given))
    value = SimpleNamespace(traceparent=b"trace", tokens=known.tokens, prefix=known.prefix, terms=known.terms)
    monkeypatch.setattr(rank, "value_of", lambda _room: value)
    for row in (None, b"row"):
        inside(prefill).entries[room.key].aux = row
        loop.handlers[do.TransmitAux](do.TransmitAux(1, 3, room.key))
    assert sent == [(1, 3, room.key, msg.Aux(row, b"trace")) for row in (b"", b"row")]


def test_a_peer_that_connects_is_learnt_of_and_why_it_is_staged_is_told_by_its_side(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    (prefill,), asked = pair.prefills, list[tuple[Any, ...]]()
    rank, data = inside(prefill).rank, inside(prefill).data
    ((link, caller),) = rank.peers.items()
    monkeypatch.setattr(data, "learn", lambda *about: asked.append(about))
    monkeypatch.setattr(prefill._wire_up, "connect", lambda *_: None)
    monkeypatch.setattr(inside(prefill).loop.logs, "staged", lambda _, why: asked.append((why,)))
    effect: Any = SimpleNamespace(link=link, session=1)
    prefill._connect(effect)
    monkeypatch.setattr(caller, "placement", Placement((), (), "planted"))
    prefill._connect(effect)
    assert asked == [(link,), (link,), ("the pool of the decode rank is closed: planted",)]


def test_with_another_pool_pages_of_connected_peers_are_mapped_anew_at_the_end_too(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    (prefill,), asked = pair.prefills, list[tuple[Any, ...]]()
    rank, data = inside(prefill).rank, inside(prefill).data
    ((link, caller),) = rank.peers.items()
    plan: Any = SimpleNamespace(
        cuts=lambda *_: ["chunks"], state_cuts=lambda *_: ["ends"], duties=lambda _: (), state=None
    )  # fmt: skip
    monkeypatch.setattr(data.mapped, "make", lambda *about: asked.append(about))
    monkeypatch.setattr(data.mapped, "make_ends", lambda *about: asked.append(about))
    monkeypatch.setattr(data, "reach_anew", lambda link: asked.append((link,)))
    monkeypatch.setattr(caller, "plan", plan)
    prefill._tell_peers()
    peer = data.link_peer[link]
    assert asked == [*((peer, plan, what, caller.placement) for what in ("chunks", "ends")), (link,)]
    asked.clear()
    with monkeypatch.context() as patch:
        patch.delitem(data.link_peer, link)
        prefill._tell_peers()
    assert asked == [(link,)], "the transport is not connected yet"
    monkeypatch.setattr(caller, "plan", None)
    prefill._tell_peers()
    assert asked == [(link,)], "a stranger"
