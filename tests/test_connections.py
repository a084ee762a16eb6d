"""The connection of a link, and what a rank's loop makes of frames and effects, on a script."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest

from kvproto.fsm.codec import WireError
from kvproto.fsm.vocabulary import Report
from kvproto.io.control.control import Peer, Sent
from kvproto.loop import rank_loop as loops
from kvproto.loop.blames import Blames
from kvproto.loop.connections import Connections
from kvproto.loop.rank_loop import CALLS, Loop
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import ForeignCallError, RawHello, decode, encode
from kvproto.protocol.states import Cause
from kvproto.protocol.versions import Build

A, B = Peer.at(b"a"), Peer.at(b"b")
BEAT, OPEN = msg.Heartbeat(), msg.Open(8, 0)


class Script:
    """Control plane, rank and clock: what they are told is kept, what they answer is set."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.full = False
        self.outboxes: Any = self
        self.waiting = {A}
        self.counts, self.side, self.index = Counter[str](), "prefill", 0
        self.strangers = 0
        self.next_deadline = float("inf")
        self.differs = "another build"
        self.last_away = ""
        self.away = Counter[str]()

    # the control plane
    def send(self, peer: Peer, frame: bytes, *, urgent: bool = False, later: bool = False) -> Sent:
        self.told.append(("send", peer, *decode(frame), urgent, later))
        return Sent.FULL if self.full else Sent.TAKEN

    def stands(self, peer: Peer) -> bool:
        self.told.append(("stands", peer))
        return True

    def disconnect(self, peer: Peer) -> None:
        self.told.append(("disconnect", peer))

    def forget(self, peer: Peer) -> None:
        self.told.append(("forget", peer))

    def __contains__(self, peer: object) -> bool:
        return peer in self.waiting

    # the rank
    def receive(self, *about: Any) -> list[Any]:
        self.told.append(("receive", *about))
        self.counts["messages of strangers"] += self.strangers
        return []

    def unlike(self, theirs: Build) -> str:
        self.told.append(("other build", theirs.oldest, theirs.newest))
        return self.differs

    # the clock
    def now(self) -> float:
        return 1.0

    def again(self) -> float:
        return 2.0


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def links(script: Script) -> Connections:
    at: Any = SimpleNamespace(control=script)
    return Connections(at, script.counts, lambda link: script.told.append(("lost", link)), Blames(Mock()))


def test_a_link_has_one_connection_and_its_former_one_is_taken_down(links: Connections, script: Script) -> None:
    links.bind(1, A)
    links.bind(1, A)
    links.bind(2, B)
    assert not script.told
    links.forget(2)
    links.forget(2)
    assert script.told == [("disconnect", B)] and links.peer_of == {1: A} and links.link_at == {A: 1}
    links.bind(1, B)
    assert script.told[1:] == [("disconnect", A)] and links.peer_of == {1: B} and links.link_at == {B: 1}


def test_the_connection_of_one_link_becomes_another_s(links: Connections, script: Script) -> None:
    links.bind(1, A)
    links.bind(2, B)
    links.take(2, 1)
    assert (links.peer_of, links.link_at) == ({1: B}, {B: 1}) and script.told == [("disconnect", A)]
    assert (links.stands(1), links.stands(2)) == (True, False) and script.told[1:] == [("stands", B)]


def test_who_is_to_blame_goes_with_what_ends_a_room(links: Connections, script: Script) -> None:
    links.bind(1, A)
    settings = SimpleNamespace(tombstones=8)
    links.blames.rank = cast("Any", SimpleNamespace(side="prefill", index=0, settings=settings))
    links.blames.fail(7, Cause.KERNEL_FAILED, "a kernel")
    links.send(1, 5, 7, msg.Abort(Cause.KERNEL_FAILED))
    (_, _, _, _, body, _, _), *_ = script.told
    assert body.blame is not None and body.blame.why == "a kernel"


def test_what_waits_for_a_link_is_what_waits_for_its_peer(links: Connections, script: Script) -> None:
    links.bind(1, A)
    links.bind(2, B)
    assert [links.waits(link) for link in (1, 2, 3)] == [True, False, False]
    for link in (1, 3):
        links.clear(link)
    assert script.told == [("forget", A)]


@pytest.mark.parametrize(("epoch", "room", "urgent", "later"), [(1, 0, True, True), (5, 7, False, True),
                                                               (0, 0, True, False)])  # fmt: skip
def test_what_is_about_a_link_goes_first_and_what_has_an_epoch_leaves_later(
    links: Connections, script: Script, epoch: int, room: int, urgent: bool, later: bool
) -> None:
    links.bind(1, A)
    body = OPEN if room else BEAT
    links.transmit(do.Transmit(1, epoch, room, body))
    assert script.told == [("send", A, epoch, room, body, urgent, later)]
    assert links.said == {type(body): 1} and not script.counts


def test_a_peer_without_room_is_lost_and_what_is_said_to_nobody_is_counted(links: Connections, script: Script) -> None:
    links.bind(1, A)
    script.full = True
    links.send(1, 5, 7, OPEN)
    assert script.told[1:] == [("forget", A), ("lost", 1)] and script.counts == {"queue full": 1}
    links.send(2, 5, 7, OPEN)
    assert len(script.told) == 3 and script.counts["messages to nobody"] == 1
    assert links.said == {msg.Open: 1}


# ------------------------------------------------------------------------------------------------ the loop
@pytest.fixture
def loop(script: Script) -> Loop:
    made = Loop(cast("Any", script), cast("Any", script), cast("Any", script))
    made.control = cast("Any", SimpleNamespace(
        send=script.send, counts=SimpleNamespace(away=script.away), last_away="a key"))  # fmt: skip
    return made


def test_its_rank_asks_whether_a_connection_stands_and_what_is_done_once_a_second_has_a_name(
    loop: Loop, script: Script
) -> None:
    assert cast("Any", script).stands == loop._stands
    told = list[str]()
    loop.attempt = lambda name, _: told.append(name)  # type: ignore[method-assign, assignment]
    loop.every_second = [loop._tell_away, partial(loop._tell_away)]
    loop.passed()
    assert told == ["Loop._tell_away", "what is done once a second"]


def test_a_frame_is_the_rank_s_by_its_link_and_its_place_is_said_of_links_alone(loop: Loop, script: Script) -> None:
    loop.connections.bind(3, A)
    loop.hear(A, encode(5, 7, OPEN))
    loop.hear(A, encode(5, 0, BEAT))
    assert script.told == [("receive", 3, 5, 7, OPEN, 2.0, b""), ("receive", 3, 5, 0, BEAT, 2.0, A.place)]
    assert loop.heard == {msg.Open: 1, msg.Heartbeat: 1} and loop.now == 2.0
    script.strangers = 1
    loop.hear(A, encode(5, 7, OPEN))
    assert loop.logs.frames.left == 10, "what a known peer says is no stranger's"


def test_a_stranger_is_told_of_if_nobody_heard_it(loop: Loop, script: Script) -> None:
    script.counts["what was not heard before"] = 5
    loop.hear(B, encode(5, 7, OPEN))
    assert script.told == [("receive", 0, 5, 7, OPEN, 2.0, b"")] and loop.logs.frames.left == 10
    script.strangers = 1
    loop.hear(B, encode(5, 7, OPEN))
    assert loop.logs.frames.left == 9


def test_what_is_no_message_is_counted_and_no_call_is_refused(loop: Loop, script: Script) -> None:
    loop.hear(A, b"nonsense")
    assert loop.counts == {"malformed frames": 1} and not script.told and len(loop.reports) == 1


def test_a_message_of_a_newer_build_is_counted_apart_and_the_next_one_is_heard(loop: Loop, script: Script) -> None:
    loop.connections.bind(3, A)
    for body in (["HINT"], ["HINT", 1, {"a": [2]}, b"x" * 4096]):
        loop.hear(A, msgspec.msgpack.encode([5, 7, 0, body]))
    loop.hear(A, msgspec.msgpack.encode([5, 7, 0, ["H" * 65]]))
    loop.hear(A, encode(5, 7, OPEN))
    assert loop.counts == {"messages of newer builds": 2, "malformed frames": 1}
    assert script.told == [("receive", 3, 5, 7, OPEN, 2.0, b"")]
    assert "this build knows no message HINT" in loop.reports[0]


@pytest.mark.parametrize(("side", "why", "refused"), [("prefill", "x" * 2000, True), ("prefill", "", False),
                                                      ("decode", "other", False)])  # fmt: skip
def test_a_call_of_another_build_is_refused_by_a_prefill_rank(
    loop: Loop, script: Script, monkeypatch: pytest.MonkeyPatch, side: str, why: str, refused: bool
) -> None:
    def foreign(_frame: bytes) -> Any:
        raise ForeignCallError(RawHello(9, "d", 4), "planted")

    monkeypatch.setattr(loops, "decode", foreign)
    script.side, script.differs = side, why
    loop.hear(A, b"")
    said = [("send", A, 0, 0, msg.Refusal(4, why[:1024]), False, False)] if refused else []
    assert [each for each in script.told if each[0] == "send"] == said
    assert [each for each in script.told if each[0] != "send"] == [("other build", 9, 9)] * (side == "prefill")
    assert loop.counts["malformed frames"] == 1 and loop.counts["calls of other builds"] == refused
    assert issubclass(ForeignCallError, WireError)


def test_so_many_calls_of_a_connection_are_heard_in_a_second(
    loop: Loop, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = SimpleNamespace()
    monkeypatch.setattr(loops, "Hello", type(call))
    monkeypatch.setattr(loops, "decode", lambda _: (0, 0, call))
    for _ in range(CALLS + 2):
        loop.hear(A, b"")
    loop.hear(B, b"")
    assert len(script.told) == CALLS + 1 and loop.counts == {"calls put off, too many a second": 2}
    loop.passed()
    loop.hear(A, b"")
    assert len(script.told) == CALLS + 2


def test_effects_of_every_rank_are_carried_out(loop: Loop, script: Script) -> None:
    loop.handlers |= {
        do.BindLink: loop.bind_link, do.Transmit: loop.connections.transmit, do.SayReset: loop.send_reset,
        Report: loop.report,
    }  # fmt: skip
    loop.submit([do.BindLink(1, A.place), do.Transmit(1, 5, 0, BEAT), do.SayReset(B.place, 6)])
    assert loop.connections.peer_of == {1: A}
    assert script.told == [("send", A, 5, 0, BEAT, True, True), ("send", B, 6, 0, msg.Reset(), False, False)]
    loop.submit([Report("what", "why")])
    assert loop.counts["refused events"] == 1 and list(loop.reports) == ["what: why"]


def test_a_full_outbox_is_an_event_of_its_link(loop: Loop, script: Script) -> None:
    events = list[Any]()
    loop.raise_event = events.append  # type: ignore[method-assign, assignment]
    loop.connections.bind(1, A)
    script.full = True
    loop.control = cast("Any", script)
    loop.connections.send(1, 5, 0, BEAT)
    assert events == [ev.QueueOverflowed(1)]


def test_a_handler_s_fault_ends_its_room_and_nothing_that_was_only_said(loop: Loop) -> None:
    events, blamed = list[Any](), list[Any]()
    loop.raise_event = events.append  # type: ignore[method-assign, assignment]
    loop.logs.blame = lambda *about: blamed.append(about)
    loop.failed(do.PostBatch(7, 0, 1), ValueError("planted"))
    assert events == [ev.RoomFailed(7, Cause.KERNEL_FAILED)]
    assert blamed == [(7, Cause.KERNEL_FAILED, "PostBatch: ValueError: planted")]
    loop.failed(do.Transmit(1, 5, 7, OPEN), ValueError("planted"))
    loop.failed(do.BindLink(1, b""), ValueError("planted"))
    assert len(events) == len(blamed) == 1
    loop.fault("what", ValueError("planted"))
    assert len(loop.reports) == 1


def test_once_a_second_the_log_sums_up_and_tells_who_was_turned_away(loop: Loop, script: Script) -> None:
    told = list[Any]()
    loop.logs.away = lambda *about: told.append(about)  # type: ignore[method-assign]
    loop.every_second.append(told.append)
    loop.logs.frames.left = 0
    loop.passed()
    assert told == [(script.away, "a key"), 1.0] and loop.logs.frames.left == 10
