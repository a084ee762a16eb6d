"""An action that one thread asks another for: begun once or never, and awaited by any thread."""

from __future__ import annotations

import threading
import time

import pytest
from support.waiters import wake_all

from kvproto.loop.answer import Answer

LONG = 30.0


def raise_exit() -> None:
    raise SystemExit("planted")


def test_an_action_is_carried_out_once_and_has_a_result() -> None:
    told = list[int]()

    def act() -> int:
        told.append(1)
        return len(told)

    answer = Answer(act)
    assert not answer.wait(0.0)
    for _ in range(2):
        answer.act()
    assert answer.wait(0.0) and answer.result() == 1 and told == [1]
    assert not answer.give_up(), "it has begun"


def test_what_an_action_raises_is_raised_where_it_was_asked_for() -> None:
    answer = Answer(raise_exit)
    answer.act()
    assert answer.over
    for _ in range(2):
        with pytest.raises(SystemExit, match="planted"):
            answer.result()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), 0.0])
def test_who_has_no_time_does_not_wait(seconds: float) -> None:
    assert not Answer(raise_exit).wait(seconds)


def test_who_has_all_time_waits_until_it_is_over() -> None:
    answer = Answer(int)
    threading.Timer(0.02, answer.act).start()
    assert answer.wait(float("inf")) and answer.result() == 0


def test_an_action_that_was_given_up_never_begins() -> None:
    answer = Answer(raise_exit)
    assert answer.give_up() and not answer.give_up()
    answer.act()
    assert not answer.over and not answer.wait(0.0)


def test_an_action_that_has_begun_is_not_given_up() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def act() -> bool:
        begun.set()
        return go_on.wait(LONG)

    answer = Answer(act)
    other = threading.Thread(target=answer.act)
    other.start()
    assert begun.wait(LONG)
    assert not answer.give_up() and not answer.wait(0.01)
    go_on.set()
    other.join(LONG)
    assert answer.wait(0.0) and answer.result() is True


def test_all_who_wait_are_woken_and_who_comes_later_does_not_wait() -> None:
    answer, told = Answer(lambda: 7), list[bool]()
    seconds = wake_all(4, lambda: told.append(answer.wait(LONG)), answer.act)
    begun = time.monotonic()
    assert told == [True] * 4 and answer.wait(LONG) and time.monotonic() - begun + seconds < LONG / 2
