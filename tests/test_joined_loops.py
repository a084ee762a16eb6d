"""Joined loops by themselves: whose turn it is, how long they sleep, and in which order they end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from kvproto.errors import EndpointError, Step
from kvproto.loop.event_loop import EventLoop
from kvproto.loop.joined_loops import JoinedLoops


class ScriptedLoop:
    """A loop, its control plane and its clock, which note what is asked of them."""

    def __init__(self, name: str, told: list[Any]) -> None:
        self.name, self.told, self.control, self.clock = name, told, self, self
        self.whole: Any = self
        self.broken: BaseException | None = None
        self.error: BaseException | None = None
        self.held: BaseException | None = None
        self.resting: tuple[float, list[int] | None] = 1.0, None
        self.fds: tuple[int, ...] = (7,)
        self.bells = list[int]()
        self.woken, self.due, self.flying = True, 1.0, False
        self.helpers: list[Step] = [("helper", lambda: self.note("helper"))]
        self.farewells: list[Step] = [("farewell", lambda: self.note("farewell"))]

    def note(self, *what: object) -> None:
        self.told.append((self.name, *what))

    def turn(self) -> bool:
        self.note("turn")
        if self.error is not None:
            raise self.error
        return self.name == "b"

    def raise_held(self) -> None:
        if self.held is not None:
            raise self.held

    def rest(self, timeout: float) -> tuple[float, list[int] | None]:
        return min(self.resting[0], timeout), self.resting[1]

    def watches(self) -> bool:
        return self.flying

    def rouse(self) -> None:
        self.note("rouse")

    def attempt(self, _what: str, action: Callable[[], Any]) -> Any:
        return action()

    def descriptors(self) -> tuple[int, ...]:
        return self.fds

    def allow(self, seconds: float) -> None:
        self.note("allow", seconds)

    def wait(self, seconds: float, fds: list[int]) -> bool:
        self.note("wait", seconds, fds)
        return self.woken

    def wake(self) -> None:
        self.note("wake")

    def adopt(self) -> None:
        self.note("adopt", threading.current_thread().name)

    def ended(self) -> None:
        self.note("ended", self.broken)

    def broke(self, error: BaseException) -> None:
        self.note("broke", error)

    def last_steps(self) -> list[Step]:
        return [("shut", lambda: self.note("shut")), ("control", lambda: self.note("control"))]


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def pair(told: list[Any]) -> tuple[ScriptedLoop, ScriptedLoop]:
    """The second one listens."""
    return ScriptedLoop("a", told), ScriptedLoop("b", told)


@pytest.fixture
def joined(pair: tuple[ScriptedLoop, ScriptedLoop], told: list[Any]) -> JoinedLoops:
    a, b = pair
    loops = cast("dict[str, EventLoop]", {"its a": a, "its b": b})
    made = JoinedLoops(loops, ("the last", lambda: told.append("last")))
    made.adopt()
    told.clear()
    return made


def test_a_turn_is_one_pass_of_each_and_what_one_raises_costs_the_other_nothing(
    joined: JoinedLoops, pair: tuple[ScriptedLoop, ScriptedLoop], told: list[Any]
) -> None:
    a, b = pair
    assert a.whole is b.whole is joined and joined.control is b.control
    assert joined.poll() and told == [("a", "turn"), ("b", "turn")]
    a.error = OSError("planted")
    with pytest.raises(OSError, match="planted"):
        joined.poll()
    assert told[2:] == [("a", "turn"), ("b", "turn")]
    b.held = KeyboardInterrupt()
    with pytest.raises(OSError, match="planted"):
        joined.poll()
    a.error = None
    with pytest.raises(KeyboardInterrupt):
        joined.poll()


def test_the_shortest_sleep_is_slept_and_everything_that_wakes_one_wakes_it(
    joined: JoinedLoops, pair: tuple[ScriptedLoop, ScriptedLoop], told: list[Any]
) -> None:
    a, b = pair
    assert not joined.watches()
    b.flying = True
    assert joined.watches(), "of one of them something is in flight"
    a.resting, b.resting = (0.5, [3]), (0.25, None)
    joined.wait(1.0)
    assert told == [("a", "allow", 0.25), ("b", "allow", 0.25), ("b", "wait", 0.25, [3, 7]), ("a", "rouse")]
    told.clear()
    b.woken, b.bells = False, [9]
    joined.wait(0.125)
    assert told[2:] == [("b", "wait", 0.125, [9, 3, 7])], "nothing has come: nobody polls faster"
    told.clear()
    b.resting = 0.0, None
    joined.wait()
    a.fds, b.resting = (), (1.0, None)
    joined.wait()
    assert told == [], "one has something to do, or a frame is here"
    a.due = 0.5
    assert joined.due == 0.5


@pytest.mark.parametrize("number", [0, 1])
def test_what_a_sleep_of_either_loop_holds_is_raised(
    joined: JoinedLoops, pair: tuple[ScriptedLoop, ScriptedLoop], number: int
) -> None:
    pair[number].held = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        joined.wait(0.5)


def test_they_break_together(joined: JoinedLoops, pair: tuple[ScriptedLoop, ScriptedLoop], told: list[Any]) -> None:
    joined.broken = error = SystemExit()
    with pytest.raises(EndpointError, match="the loop has stopped"):
        joined.wait()
    assert [each.broken for each in pair] == [error, error] and joined.broken is error
    joined.broke(error)
    assert told == [(name, *what) for name in "ab" for what in (("ended", error), ("broke", error))]
    with pytest.raises(EndpointError, match="the loop has stopped"):
        joined.poll()


def test_all_say_their_last_words_before_anything_ends(
    joined: JoinedLoops, pair: tuple[ScriptedLoop, ScriptedLoop], told: list[Any]
) -> None:
    def refuse() -> None:
        raise OSError("planted")

    pair[0].farewells.append(("refusal", refuse))
    joined.ended = lambda: told.append("ended")
    with pytest.raises(EndpointError, match="its a: refusal: OSError: planted"):
        joined.close()
    steps = [each for each in told if each[1:2] != ("adopt",)]
    assert steps == [
        ("a", "helper"), ("b", "helper"), ("a", "farewell"), ("b", "farewell"), "ended", ("a", "shut"),
        ("a", "control"), ("b", "shut"), ("b", "control"), "last",
    ]  # fmt: skip
    told.clear()
    joined.close()
    assert told == []
    with pytest.raises(EndpointError, match="is closed"):
        joined.poll()
