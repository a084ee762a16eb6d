"""The thread that polls, by itself: a loop of its own, what ends it, and whose it is then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvproto.errors import EndpointError
from kvproto.loop.loop_thread import LoopThread

#: seconds that a sleep lasts at most, if nobody ends it; and passes that none of these loops comes to
SLEEP_S, MANY = 5.0, 50


class ToldThread(LoopThread):
    """A loop that polls as a script says, sleeps until it is woken, and tells what it asks of others."""

    def __init__(self, *moves: object) -> None:
        self.told: list[object] = []
        #: what each pass comes to: whether anything happened, or what it raises; then nothing happens any more
        self.moves, self.woken, self.rests = list(moves), threading.Event(), threading.Event()
        self.in_flight = True
        control = SimpleNamespace(wake=self.wake, close=lambda linger: self.told.append(("close", linger)))
        super().__init__(cast("Any", control))
        self.ended = lambda: self.told.append(("ended", self.closed, self.broken))

    # the loop
    def poll(self) -> bool:
        self.told.append("poll")
        assert len(self.told) < MANY, "it does not sleep"
        move = self.moves.pop(0) if self.moves else False
        if isinstance(move, Exception):
            raise move
        return bool(move)

    def watches(self) -> bool:
        return self.in_flight

    def wait(self, timeout: float = 0.0) -> None:
        del timeout
        self.told.append("wait")
        if not self.moves:
            self.rests.set()
            self.woken.wait(SLEEP_S)
            self.woken.clear()

    def wake(self) -> None:
        self.told.append("wake")
        self.woken.set()

    # what its thread has of the process
    def begin(self) -> None:
        self.told.append(("begin", threading.current_thread().name))

    def enter(self) -> None:
        self.told.append(("enter", threading.current_thread().name, self.mine))

    def end(self) -> None:
        self.told.append(("end", threading.current_thread().name))
        self.rests.set()

    def start(self) -> threading.Thread:
        """Run, until there is nothing to do or it is over; the thread."""
        before = {*threading.enumerate()}
        self.rests.clear()
        self.run("its own", cast("Any", self))
        self.rests.wait(SLEEP_S)
        (thread,) = {*threading.enumerate()} - before or {threading.current_thread()}
        return thread


class Source:
    """Something that is polled; what is asked of it is told."""

    def __init__(self, told: list[object]) -> None:
        self.adopt, self.close = lambda: told.append("adopt"), lambda: told.append("source is closed")


HERE = threading.current_thread().name
BEGUN, OVER = [("begin", HERE), ("enter", "its own", True)], ("end", "its own")


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """The errors that have ended threads."""
    found = list[object]()
    monkeypatch.setattr(threading, "excepthook", lambda about: found.append(about.exc_value))
    yield found
    assert not any(isinstance(each, AssertionError) for each in found)


def test_it_polls_while_anything_happens_and_sleeps_when_nothing_does() -> None:
    loop = ToldThread(True, True, False, True)
    thread = loop.start()
    assert thread.name == "its own" and thread.daemon, "a process that is over does not wait for it"
    whose = [loop.mine]
    loop.stop()
    assert not thread.is_alive() and [*whose, loop.mine] == [False, True]
    assert loop.told == [
        *BEGUN, "poll", "poll", "poll", "wait", "poll", "poll", "wait", "wake", OVER,
    ]  # fmt: skip


def test_with_nothing_in_flight_it_sleeps_after_each_pass() -> None:
    loop = ToldThread(True, True)
    loop.in_flight = False
    loop.start()
    loop.stop()
    assert loop.told == [*BEGUN, "poll", "wait", "poll", "wait", "wake", OVER]


def test_it_runs_once_at_a_time_and_again_after_it_was_stopped() -> None:
    loop = ToldThread()
    loop.stop()
    assert not loop.told and not loop.mine, "what does not run is not stopped, and stays nobody's"
    loop.start()
    with pytest.raises(EndpointError, match="runs already"):
        loop.start()
    loop.stop()
    loop.start()
    loop.stop()
    assert loop.told == 2 * [*BEGUN, "poll", "wait", "wake", OVER]


def test_what_ends_it_is_kept_told_and_raised(faults: list[object]) -> None:
    planted = ValueError("planted")
    loop = ToldThread(True, planted)
    loop.start()
    loop.stop()
    assert loop.told == [*BEGUN, "poll", "poll", ("ended", False, planted), OVER, "wake"]
    assert loop.broken is planted and faults == [planted]
    for call in (loop.check, loop.start):
        with pytest.raises(EndpointError, match="the loop has stopped, by ValueError") as found:
            call()
        assert found.value.__cause__ is planted


def test_its_sources_are_adopted_by_whoever_has_it() -> None:
    loop = ToldThread()
    loop.sources += [cast("Any", Source(loop.told)), cast("Any", SimpleNamespace())]
    loop.start()
    loop.stop()
    assert loop.told == [BEGUN[0], "adopt", BEGUN[1], "poll", "wait", "wake", OVER, "adopt"]


def test_the_first_that_claims_it_has_it_and_another_one_adopts_it() -> None:
    loop = ToldThread()
    other = threading.Thread(target=lambda: (loop.claim(), loop.claim()))  # type: ignore[func-returns-value]
    other.start()
    other.join(SLEEP_S)
    with pytest.raises(EndpointError, match="another one calls adopt"):
        loop.claim()
    assert not loop.mine
    loop.adopt()
    loop.claim()
    assert loop.mine


def test_a_loop_that_is_closed_lets_go_of_all_once_and_does_nothing_more() -> None:
    loop = ToldThread()
    loop.sources.append(cast("Any", Source(loop.told)))
    loop.helpers.append(("a helper", lambda: loop.told.append("helper")))
    loop.farewells += [(name, partial(loop.told.append, name)) for name in ("rooms", "links")]
    thread = loop.start()
    del loop.told[:]
    for _ in range(2):
        loop.close()
    assert not thread.is_alive() and loop.told == [
        "helper", "wake", OVER, "adopt", "adopt", "rooms", "links", ("ended", True, None), "source is closed",
        ("close", 0.1),
    ]  # fmt: skip
    for call in (loop.check, loop.start):
        with pytest.raises(EndpointError, match="closed"):
            call()
    loop._owner = None
    with pytest.raises(EndpointError, match="closed"):
        loop.claim()
    assert len(loop.told) == 10


@pytest.mark.parametrize(
    ("error", "raised"), [(RuntimeError("planted"), EndpointError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_thread_that_does_not_start_leaves_the_loop_as_it_was(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, raised: type[BaseException]
) -> None:
    loop = ToldThread()

    def refuse(_: threading.Thread) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(raised):
            loop.run("its own", cast("Any", loop))
    assert [each[0] for each in cast("list[tuple[str, str]]", loop.told)] == ["begin", "end"]
    assert loop.start().is_alive(), "it may be started again"
    loop.stop()


def test_the_thread_of_a_loop_that_has_broken_may_not_poll_it_either() -> None:
    loop = ToldThread()
    loop.adopt()
    loop.claim()
    loop.broken = RuntimeError("planted")
    with pytest.raises(EndpointError, match="the loop has stopped"):
        loop.claim()


def test_a_thread_that_still_polls_a_closed_loop_is_told() -> None:
    loop = ToldThread()
    loop.claim()
    loop.close()
    with pytest.raises(EndpointError, match="closed"):
        loop.claim()
