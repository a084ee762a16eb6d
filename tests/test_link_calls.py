"""Link calls: the connections by which calls leave, and those beside a link; by hand."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from kvproto.endpoint.link_calls import LinkCalls
from kvproto.io.control.control import ControlError
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import DLink

LINK, PEER, OTHER = 1, 70, 71
HERE, THERE = "tcp://10.0.0.1:7000", "tcp://10.0.0.2:7000"


class Connections:
    """Connections that keep what they are asked; `away`: links whose frames wait."""

    def __init__(self) -> None:
        self.peer_of, self.link_at = dict[int, int](), dict[int, int]()
        self.away, self.sent, self.done = set[int](), list[tuple[Any, ...]](), list[tuple[Any, ...]]()

    def bind(self, link: int, peer: int) -> None:
        self.peer_of[link], self.link_at[peer] = peer, link

    def waits(self, link: int) -> bool:
        return link in self.away

    def send(self, *frame: Any) -> None:
        self.sent.append(frame)

    def __getattr__(self, name: str) -> Any:
        return lambda *about: self.done.append((name, *about))


class World:
    """Calls of one link, and everything that they touch."""

    def __init__(self, state: DLink = DLink.AWAIT_WELCOME) -> None:
        self.events, self.told = list[Any](), list[Any]()
        self.calling, self.unanswered = set[int](), list[Any]()
        self.refuses: Exception | None = None
        self.dialled = list[str]()
        self.connections = Connections()
        loop: Any = SimpleNamespace(
            connections=self.connections, raise_event=self.events.append, counts=Counter[str](),
            control=SimpleNamespace(outboxes=SimpleNamespace(emptied=None), connect=self._connect),
            logs=SimpleNamespace(untaken=lambda *words: self.told.append(words)),
        )  # fmt: skip
        rank: Any = SimpleNamespace(
            links={LINK: SimpleNamespace(state=state, address=HERE)}, peers={LINK: SimpleNamespace(plan="the plan")},
            hello=lambda session, link: ("hello", session, link),
        )  # fmt: skip
        self.loop, self.rank = loop, rank
        self.calls = LinkCalls(loop, rank, self.calling, "link {}".format, self.unanswered.append)
        self.calls.add(LINK, 1, 0)

    def _connect(self, address: str) -> int:
        if self.refuses is not None:
            raise self.refuses
        self.dialled.append(address)
        return PEER if address == HERE else OTHER

    def hello(self, session: int) -> list[tuple[Any, ...]]:
        """Say hello, and return what was sent."""
        before = len(self.connections.sent)
        self.calls.say_hello(do.SayHello(LINK, session))
        return self.connections.sent[before:]


def test_a_link_is_dialled_once_and_again_where_its_address_or_its_connection_is_another() -> None:
    at = World()
    for address in (HERE, HERE, THERE):
        at.calls.dial(do.Dial(LINK, address))
    assert at.dialled == [HERE, THERE] and at.connections.peer_of[LINK] == OTHER
    del at.connections.peer_of[LINK]  # it was forgotten
    at.calls.dial(do.Dial(LINK, THERE))
    assert at.dialled == [HERE, THERE, THERE] and not at.events


@pytest.mark.parametrize("address", [HERE, "tcp://nobody.knows.this:7000"])
def test_an_address_that_cannot_be_dialled_is_told_to_the_table(address: str) -> None:
    at = World()
    at.refuses = ControlError("no such place")
    at.calls.dial(do.Dial(LINK, address))
    [failed] = at.events
    assert isinstance(failed, ev.DialFailed) and failed.peer == LINK and failed.why
    assert at.calls.links[LINK].dialled == "" and LINK not in at.connections.peer_of


def test_a_dial_that_failed_is_repeated_with_each_call_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at = World()
    at.refuses = ControlError("no socket to be had")
    at.calls.dial(do.Dial(LINK, HERE))
    for _ in range(2):
        at.hello(8)
    assert len(at.events) == 1
    at.refuses = ControlError("another reason")
    at.hello(8)
    assert [event.why for event in at.events] == ["no socket to be had", "another reason"]
    at.refuses = None
    at.hello(8)
    assert at.dialled == [HERE] and at.connections.peer_of[LINK] == PEER
    at.hello(8)
    assert at.dialled == [HERE] and len(at.events) == 2


def test_for_an_absent_peer_only_the_newest_hello_is_kept_and_it_is_encoded_once() -> None:
    at = World()
    at.connections.away.add(LINK)
    assert at.hello(8) == [(LINK, 0, 0, ("hello", 8, LINK))]
    assert at.hello(8) == []  # it waits as it is
    assert at.hello(9) == [(LINK, 0, 0, ("hello", 9, LINK))]
    assert at.connections.done == [("clear", LINK)] * 2
    assert at.calling == set() and len(at.unanswered) == 3
    at.connections.away.clear()
    assert at.hello(9) == [(LINK, 0, 0, ("hello", 9, LINK))] and at.calling == {LINK}


def test_a_new_beginning_of_the_call_encodes_its_hello_again() -> None:
    at = World()
    at.connections.away.add(LINK)
    for session in (1, 8):
        at.hello(session)
        at.calls.add(LINK, 1, 0)
        assert at.hello(session) != [] and at.calls.links[LINK].group == 1


@pytest.mark.parametrize("state", [DLink.AWAIT_WELCOME, DLink.UP])
def test_a_call_that_waited_is_polled_for_when_it_leaves_unless_it_was_answered(state: DLink) -> None:
    at = World(state)
    at.calls.dial(do.Dial(LINK, HERE))
    at.connections.away.add(LINK)
    at.hello(8)
    emptied = at.loop.control.outboxes.emptied
    emptied(OTHER)  # another peer's
    assert at.calling == set()
    emptied(PEER)
    assert at.calling == ({LINK} if state is DLink.AWAIT_WELCOME else set())
    at.rank.links.clear()
    at.calling.clear()
    emptied(PEER)  # the link was forgotten meanwhile
    assert at.calling == set()


def test_an_answered_call_is_polled_for_no_more_and_keeps_its_plan() -> None:
    at = World()
    at.hello(8)
    at.calls.settle(LINK)
    assert at.calling == set() and at.calls.links[LINK].agreed is None
    assert at.connections.done[-1] == ("forget", -LINK)
    at.calls.settle(LINK, up=True)
    assert at.calls.links[LINK].agreed is at.rank.peers[LINK].plan
    assert at.calls.forget(LINK).agreed is at.rank.peers[LINK].plan and LINK not in at.calls.links
    assert at.connections.done[-2:] == [("forget", -LINK), ("forget", LINK)]


def test_another_address_is_called_beside_the_link_with_one_hello_at_a_time() -> None:
    at = World()
    at.calls.try_address(do.TryAddress(LINK, THERE, 8))
    assert at.connections.peer_of[-LINK] == OTHER and at.calls.links[LINK].tried == THERE
    assert at.connections.done == [("forget", -LINK)]  # of an address that was tried before
    at.connections.away.add(-LINK)
    at.calls.try_address(do.TryAddress(LINK, THERE, 8))
    assert at.connections.sent == [(-LINK, 0, 0, ("hello", 8, LINK))] and at.dialled == [THERE]
    at.connections.away.clear()
    at.calls.try_address(do.TryAddress(LINK, HERE, 9))
    assert at.connections.sent[-1] == (-LINK, 0, 0, ("hello", 9, LINK)) and at.dialled == [THERE, HERE]
    assert at.connections.done == [("forget", -LINK)] * 2


def test_an_address_beside_the_link_that_cannot_be_dialled_is_its_answer() -> None:
    at = World()
    at.refuses = ControlError("no such place")
    at.calls.try_address(do.TryAddress(LINK, THERE, 8))
    assert at.events == [ev.AddressAnswered(LINK, 8, "no such place")]
    assert at.calls.links[LINK].tried == "" and at.connections.sent == []


def test_an_address_that_answered_is_the_links_own_and_one_that_did_not_is_told() -> None:
    at = World()
    at.calls.try_address(do.TryAddress(LINK, THERE, 8))
    at.calls.take_address(do.TakeAddress(LINK, THERE))
    assert at.connections.done[-1] == ("take", -LINK, LINK)
    assert (at.calls.links[LINK].dialled, at.calls.links[LINK].tried) == (THERE, "")
    at.calls.try_address(do.TryAddress(LINK, HERE, 9))
    for words in (HERE, "its new address"):
        at.calls.leave_address(do.LeaveAddress(LINK, "nobody answers"))
        assert at.told[-1] == (f"link {LINK}", words, "nobody answers")
    assert at.loop.counts == {"addresses that were tried in vain": 2} and at.calls.links[LINK].tried == ""
