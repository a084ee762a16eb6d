"""Routes as a list and as the table that is made of it, and what a party does with what it hears."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kvproto.fsm.codec import Message
from kvproto.fsm.driver import steps
from kvproto.fsm.party import Member, Party
from kvproto.fsm.routing import Fact, Route, Routes
from kvproto.fsm.table import Table, Value
from kvproto.fsm.timing import Timers
from kvproto.fsm.vocabulary import Broadcast, Effect, Event, State, Transmit


class SenderIs(Fact):
    KNOWN = 0
    STRANGE = 1
    LATE = 2


class RoomIs(Fact):
    OPEN = 0
    OVER = 1


class Ask(msgspec.Struct, frozen=True):
    n: int


class Tell(msgspec.Struct, frozen=True):
    n: int


class Asked(Event, frozen=True):
    n: int


class Counted(Event, frozen=True):
    n: int


FACTS = SenderIs, RoomIs
EVERY = [*product(SenderIs, RoomIs)]


def asked(h: Any) -> Asked | None:
    return None if h.body.n > 8 else Asked(h.body.n)


def counted(h: Any) -> Counted:
    return Counted(h.body.n + 1)


def told_back(h: Any) -> Tell:
    return Tell(-h.body.n)


def routes() -> Routes:
    made = Routes("small", (Ask, Tell), FACTS)
    made.drop((Ask, Tell), SenderIs.STRANGE, why="strangers")
    made.answer(Ask, SenderIs.KNOWN, SenderIs.LATE, RoomIs.OVER, to=told_back, why="it is over")
    made.route(Ask, SenderIs.LATE, to=asked)
    made.route(Ask, to=asked, then=counted)
    made.drop(Tell, why="nobody asked")
    return made


def test_the_first_route_that_takes_a_message_decides() -> None:
    made = routes()
    dropped, answered, alone, both, unasked = made.routes
    for sender, room in EVERY:
        strange, over = sender is SenderIs.STRANGE, room is RoomIs.OVER
        wanted = dropped if strange else answered if over else alone if sender is SenderIs.LATE else both
        assert made.find(Ask, (sender, room)) is wanted
        assert made.find(Tell, (sender, room)) is (dropped if strange else unasked)
    assert made.find(Counted, EVERY[0]) is None
    assert (answered.asks, unasked.asks) == (((SenderIs.KNOWN, SenderIs.LATE), (RoomIs.OVER,)), ((), ()))
    assert [(r.end, r.why, r.to, r.index) for r in made.routes] == [
        ("drop", "strangers", (), 0), ("answer", "it is over", (told_back,), 1), ("route", "", (asked,), 2),
        ("route", "", (asked, counted), 3), ("drop", "nobody asked", (), 4),
    ]  # fmt: skip


def test_the_table_by_facts_says_what_the_list_says() -> None:
    made = routes()
    assert [made.place(*facts) for facts in EVERY] == [0, 1, 2, 3, 4, 5]
    table = made.compiled()
    assert {kind: len(of) for kind, of in table.items()} == {Ask: 6, Tell: 6}
    for message, facts, route in made.cases():
        assert table[message][made.place(*facts)] is route is made.find(message, facts)
    assert (made.gaps(), made.hidden()) == ([], [])


def test_a_message_that_no_route_takes_is_named_with_its_facts() -> None:
    made = Routes("small", (Ask, Tell), FACTS)
    made.route(Ask, to=asked)
    made.drop(Tell, SenderIs.KNOWN, why="known")
    made.drop(Tell, RoomIs.OPEN, why="open")
    assert made.gaps() == ["Tell with STRANGE, OVER", "Tell with LATE, OVER"]
    with pytest.raises(LookupError, match="small: no route takes Tell with STRANGE, OVER"):
        made.compiled()


def test_a_route_behind_those_that_always_take_what_it_would_is_told_with_its_line() -> None:
    made = routes()
    made.drop(Tell, SenderIs.STRANGE, why="too late")
    line = sys._getframe().f_lineno - 1
    (hidden,) = made.hidden()
    assert hidden is made.routes[-1]
    assert hidden.where == f"{Path(__file__)}:{line}"


class Own(Message, frozen=True):
    n: int


class Named(Event, frozen=True):
    peer: int
    n: int


class Wide(Event, frozen=True):
    n: int
    more: int


def test_a_message_becomes_an_event_of_its_fields_and_sender_or_is_one_itself() -> None:
    made = Routes("named", (Ask, Own))
    made.route(Ask, to=Named, then=Counted)
    made.route((Own,), then=counted)
    heard = SimpleNamespace(peer=7, body=Ask(3))
    assert [to(heard) for to in made.routes[0].to] == [Named(7, 3), Counted(3)]
    own = SimpleNamespace(peer=7, body=Own(4))
    itself, more = made.routes[1].to
    assert itself(own) is own.body and more(own) == Counted(5)
    assert (made.routes[1].messages, made.routes[1].end, made.routes[1].why) == ((Own,), "route", "")
    with pytest.raises(TypeError, match="Ask is no event: name one"):
        made.route(Ask)
    with pytest.raises(TypeError, match="Ask has no 'more', Wide has"):
        made.route(Ask, to=Wide)
    assert len(made.routes) == 2


# --------------------------------------------------------------------------------------------------------- a party
class S(State):
    NEW = 0
    BUSY = 1


class Said(Effect, frozen=True):
    what: str


def both(v: Value, e: Any) -> Broadcast:
    return Broadcast(0b1110, Tell(e.n))


def alone(v: Value, e: Any) -> Transmit:
    return Transmit(3, Tell(e.n))


def said(v: Value, e: Any) -> Said:
    return Said(f"{type(e).__name__} {e.n}")


class Small(Member):
    """Party 0 of four; it knows of facts what the sender's number and the message say."""

    def __init__(self, trace: int = 512) -> None:
        super().__init__(0, {0: "me", 1: "a", 2: "b", 3: "c"}, Timers(), routes(), trace)
        table = Table("small", Value, S, initial=S.NEW, events=(Asked, Counted), timers={})
        table.opens(S.NEW, Asked, S.BUSY, do=(said,))
        table.row(S.BUSY, Asked, do=(said, both))
        table.row((S.NEW, S.BUSY), Counted, do=(said, alone))
        self.add("machines", table, lambda event: 0)

    def facts(self, heard: Any) -> int:
        sender = SenderIs.KNOWN if heard.peer == 1 else SenderIs.LATE if heard.peer == 2 else SenderIs.STRANGE
        return Routes.place(sender, RoomIs.OVER if heard.body.n < 0 else RoomIs.OPEN)


def test_a_message_becomes_an_event_or_two_an_answer_or_a_count() -> None:
    party = Small()
    assert party.receive(1, Ask(5), 0.0) == [Said("Asked 5"), Said("Counted 6"), Transmit(3, Tell(6))]
    wide = [Transmit(peer, Tell(3)) for peer in (1, 2, 3)]
    assert party.receive(2, Ask(3), 0.0) == [Said("Asked 3"), *wide]
    assert party.receive(1, Ask(9), 0.0) == [], "beyond its bound"
    assert party.receive(2, Ask(-7), 0.0) == [Transmit(2, Tell(7))]
    assert party.receive(3, Ask(1), 0.0) == party.receive(1, Tell(1), 0.0) == party.receive(3, Tell(1), 0.0) == []
    assert party.counts == {"strangers": 2, "nobody asked": 1, "it is over": 1}


def test_a_party_notes_each_message_that_comes_and_leaves_with_its_number() -> None:
    party = Small(trace=12)
    taken, strange = party._routes[Ask][0], party._routes[Ask][2]
    answered: Route = party._routes[Ask][Routes.place(SenderIs.LATE, RoomIs.OVER)]
    party.receive(1, Ask(9), 1.0, 4)
    party.receive(3, Ask(1), 2.0, 5)
    party.receive(2, Ask(-7), 3.0)
    party.handle(Asked(1), 4.0)
    party.receive(1, Ask(2), 5.0, 6)
    first, second, third, answer, _, fourth, _, *sent, _, last = party.trace
    assert (first, second) == ((1.0, (1, Ask(9)), taken, 4), (2.0, (3, Ask(1)), strange, 5))
    assert (third, answer) == ((3.0, (2, Ask(-7)), answered, 0), (Transmit(2, Tell(7)), 1))
    assert fourth == (5.0, (1, Ask(2)), taken, 6)
    assert sent == [(Transmit(peer, Tell(2)), number) for peer, number in ((1, 1), (2, 2), (3, 1))]
    assert last == (Transmit(3, Tell(3)), 2)
    party.receive(3, Tell(1), 6.0)
    assert (len(party.trace), party.trace[0]) == (12, second), "a trace keeps so many entries"
    assert [step[2] for step in steps(party.trace)] == [Asked(1), Asked(2), Counted(3)]


def test_a_party_knows_the_others_and_whom_it_is_told_to_speak_to() -> None:
    party = Small()
    assert (party.number, party.name, party.peers) == (0, "me", {1: "a", 2: "b", 3: "c"})
    for mask, heard in ((0b0100, [2]), (0b1001, [3]), (0b0001, []), (0b1110, [1, 2, 3])):
        party._out = []
        party.carry_out(Broadcast(mask, Tell(1)))
        assert [effect.peer for effect in party._out] == heard


def test_of_a_party_itself_nothing_is_known() -> None:
    party = Party(Timers(), Routes("none", (), ()))
    assert party.facts(Ask(1)) == 0
    for call in (lambda: party.noted(None), lambda: party.answer(None, None)):
        with pytest.raises(NotImplementedError):
            call()
