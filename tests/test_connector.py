"""Wire-up by itself: what it does for a call, in which order, what it answers, and how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import pytest

from kvproto.io.transports.base import PeerGone
from kvproto.loop.connector import WARM_S, WireUp
from kvproto.protocol.events import WiredUp, WireFailed

PATIENCE_S = 10.0


class Transport:
    """Says what it is asked for; `faults` by what is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.faults: dict[str, Exception] = {}

    def ask(self, what: str, *how: Any) -> str:
        self.asked.append((what, *how))
        if what in self.faults:
            raise self.faults[what]
        return "peer"

    def connect(self, endpoint: bytes) -> str:
        return self.ask("connect", endpoint)

    def warm(self, peer: str, seconds: float) -> None:
        self.ask("warm", peer, seconds)


class World:
    """A wire-up, and what it answers."""

    def __init__(self) -> None:
        self.transport, self.answers, self.peers = Transport(), list[Any](), list[str]()
        self.answered = threading.Event()
        self.wire = WireUp(cast("Any", self.transport), self.answer)

    def answer(self, event: WiredUp | WireFailed, peer: str) -> None:
        self.answers.append(event)
        self.peers.append(peer)
        self.answered.set()

    def call(self, link: int, prepare: Callable[[], None] | None = None) -> None:
        ask: Any = self.transport.ask
        self.wire.connect(
            link, 5, b"there", prepare or (lambda: ask("prepare")), lambda peer: ask("reach", peer)
        )  # fmt: skip

    def call_on(self) -> None:
        """Until it raises."""
        link, end = count(2), time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            self.call(next(link))


STEPS = ("prepare", "connect", "warm", "reach")
EVERY = [("prepare",), ("connect", b"there"), ("warm", "peer", WARM_S), ("reach", "peer")]


def test_a_link_is_up_when_all_that_it_needs_is_done_in_this_order() -> None:
    world = World()
    world.call(3)
    assert world.answered.wait(PATIENCE_S)
    world.wire.close()
    assert world.transport.asked == EVERY and world.answers == [WiredUp(3, 5, cast("Any", "peer"))]
    assert world.wire.under_way == 1, "until the loop has heard of it"
    world.wire.heard()
    assert world.wire.under_way == 0


@pytest.mark.parametrize("at", range(len(EVERY)))
@pytest.mark.parametrize(
    ("error", "said"), [(PeerGone("planted"), "peer_lost: planted"), (ValueError("its own"), "ValueError: its own")]
)
def test_what_fails_is_said_and_nothing_more_is_done(at: int, error: Exception, said: str) -> None:
    world = World()
    world.transport.faults[STEPS[at]] = error
    world.call(3)
    assert world.answered.wait(PATIENCE_S)
    world.wire.close()
    assert world.transport.asked == EVERY[: at + 1] and world.answers == [WireFailed(3, 5, said)]
    assert world.peers == ["peer" if at > STEPS.index("connect") else ""], "who is connected has to be let go"


def test_without_a_thread_a_call_fails_by_name_and_the_next_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise RuntimeError("no thread is to be had")

    world = World()
    with monkeypatch.context() as moment:
        moment.setattr(world.wire._pool, "submit", none)
        world.call(3)
    assert world.answers == [WireFailed(3, 5, "RuntimeError: no thread is to be had")] and world.peers == [""]
    assert world.wire.under_way == 1
    world.answered.clear()
    world.call(3)
    assert world.answered.wait(PATIENCE_S)
    world.wire.close()
    assert world.answers[1:] == [WiredUp(3, 5, cast("Any", "peer"))]


def test_it_ends_when_what_is_under_way_has_and_with_nothing_else() -> None:
    world, begun, let, closed = World(), threading.Event(), threading.Event(), threading.Event()

    def prepare() -> None:
        begun.set()
        let.wait(PATIENCE_S)
        assert not closed.wait(0.02)

    def close() -> None:
        world.wire.close()
        closed.set()

    world.call(0, prepare)
    assert begun.wait(PATIENCE_S)
    world.call(1)
    closing = threading.Thread(target=close)
    closing.start()
    with pytest.raises(RuntimeError, match="after shutdown"):
        world.call_on()
    let.set()
    closing.join(PATIENCE_S)
    assert world.answers == [WiredUp(0, 5, cast("Any", "peer"))]
