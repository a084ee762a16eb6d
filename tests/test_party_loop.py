"""A member of a protocol over sockets, alone: its dialling, messages, counts and reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kvproto.fsm.codec import pack
from kvproto.fsm.vocabulary import Effect, Report, Transmit
from kvproto.io.clock import MonotonicClock
from kvproto.io.control.control import Sent
from kvproto.io.control.keys import MARK
from kvproto.loop import party_loop
from kvproto.loop.party_loop import MAX_FRAME, PartyLoop


class Word(msgspec.Struct, tag="WORD", array_like=True, frozen=True):
    """A message of this number."""

    number: int


class Acted(Effect, frozen=True):
    """An effect that is no message."""


class Script:
    """Control plane, member and clock."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.full = False

    def connect(self, address: str) -> str:
        self.told.append(("connect", address))
        return f"peer at {address}"

    def send(self, peer: str, frame: bytes) -> Sent:
        self.told.append(("send", peer, frame))
        return Sent.FULL if self.full else Sent.TAKEN

    def receive(self, sender: int, body: Word, now: float) -> list[Effect]:
        self.told.append(("heard", sender, body, now))
        return [Acted()]

    def now(self) -> float:
        return 1.0

    def again(self) -> float:
        return 2.0


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def loop(script: Script, monkeypatch: pytest.MonkeyPatch) -> PartyLoop:
    def control(*about: Any, **more: Any) -> Any:
        script.told.append((about, more))
        return script

    monkeypatch.setattr(party_loop, "Control", control)
    member = SimpleNamespace(number=1, receive=script.receive)
    clock = SimpleNamespace(now=script.now, again=script.again)
    acts = {Acted: lambda _: script.told.append("acted")}
    addresses = {1: f"own{MARK}key", 2: "other"}
    made = PartyLoop(cast("Any", member), addresses, Word, cast("Any", acts), cast("Any", clock), insecure=True)
    assert cast("Any", (made.party, made.control, made.clock)) == (member, script, clock)
    assert script.told == [(("own",), {"max_frame": MAX_FRAME, "keys": None, "insecure": True})]
    script.told.clear()
    return made


def test_its_clock_is_the_system_s_unless_it_is_given_one(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party_loop, "Control", lambda *_, **__: script)
    member: Any = SimpleNamespace(number=1)
    assert isinstance(PartyLoop(member, {1: "own"}, Word, {}).clock, MonotonicClock)


def test_another_is_dialled_once_and_sent_to(loop: PartyLoop, script: Script) -> None:
    loop.submit([Transmit(2, Word(5)), Transmit(2, Word(6))])
    sent = [("send", "peer at other", pack(1, Word(number))) for number in (5, 6)]
    assert script.told == [("connect", "other"), *sent] and not loop.counts


def test_what_a_peer_has_no_room_for_is_counted(loop: PartyLoop, script: Script) -> None:
    script.full = True
    loop.submit([Transmit(2, Word(5))])
    assert loop.counts == {"queue full": 1}


def test_a_frame_is_heard_as_its_sender_s_and_what_follows_is_carried_out(loop: PartyLoop, script: Script) -> None:
    loop.hear(cast("Any", "peer"), pack(2, Word(5)))
    assert script.told == [("heard", 2, Word(5), 2.0), "acted"] and loop.now == 2.0
    assert not loop.counts and not loop.reports


@pytest.mark.parametrize("frame", [b"nonsense", pack(2, Word(5)) + bytes(MAX_FRAME)])
def test_what_is_no_message_is_counted_and_told(loop: PartyLoop, script: Script, frame: bytes) -> None:
    loop.hear(cast("Any", "peer"), frame)
    assert loop.counts == {"malformed frames": 1} and len(loop.reports) == 1 and not script.told


def test_faults_and_refused_events_are_told(loop: PartyLoop) -> None:
    loop.submit([Report("what", "why"), cast("Any", SimpleNamespace())])
    assert loop.counts == {"refused events": 1, "faults": 1}
    assert loop.reports[0] == "what: why" and "LookupError" in loop.reports[1]
