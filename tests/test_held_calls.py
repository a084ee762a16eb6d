"""Held calls: the driver is asked for torch's own; all else, and each fault, is told by itself."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kvproto.io import held_calls
from kvproto.io.control import poller
from kvproto.io.control.poller import serve_a_loop
from kvproto.io.control.watched import WatchedDescriptors
from kvproto.io.held_calls import drained, passed

#: Linux's number of the call that tells a thread's timer slack; the driver's word for an illegal address
PR_GET_TIMERSLACK, ILLEGAL_ADDRESS = 30, 700


class Queried:
    """An event or a stream that counts how often its own `query` is called."""

    cuda_event = cuda_stream = 4096

    def __init__(self, answer: bool) -> None:
        self.answer, self.asked = answer, 0

    def query(self) -> bool:
        self.asked += 1
        return self.answer


class ToldDriver:
    """A driver that answers every query alike."""

    def __init__(self, code: int) -> None:
        self.code, self.asked = code, list[int]()

    def cuEventQuery(self, handle: int) -> int:  # noqa: N802  # the driver's name
        self.asked.append(handle)
        return self.code

    cuStreamQuery = cuEventQuery  # noqa: N815


def on_a_thread(call: Callable[[], Any], *, own: bool) -> Any:
    """Call it on a new thread, a loop's own or not, and return what it returns."""
    found = list[Any]()

    def run() -> None:
        if own:
            serve_a_loop()
        found.append(call())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("call", [passed, drained])
@pytest.mark.parametrize(("code", "answer", "asked"), [(0, True, 0), (600, False, 0), (ILLEGAL_ADDRESS, True, 1)])
def test_torch_s_own_are_asked_of_the_driver_and_a_fault_of_torch(
    call: Callable[[Any], bool], code: int, answer: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, own = ToldDriver(code), Queried(answer=True)
    monkeypatch.setattr(held_calls, "_driver", lambda: driver)
    for name in ("Event", "Stream"):
        monkeypatch.setattr(torch.cuda, name, Queried)
    assert on_a_thread(lambda: call(own), own=True) is answer and driver.asked == [4096] and own.asked == asked
    assert on_a_thread(lambda: call(own), own=False) and len(driver.asked) == 1, "a thread that polls asks torch"


@pytest.mark.parametrize("call", [passed, drained])
@pytest.mark.parametrize("answer", [True, False])
def test_what_is_not_torch_s_own_says_it_itself_and_so_does_all_without_a_driver(
    call: Callable[[Any], bool], answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, other = ToldDriver(600), Queried(answer)
    monkeypatch.setattr(held_calls, "_driver", lambda: driver)
    assert on_a_thread(lambda: call(other), own=True) is answer and not driver.asked
    monkeypatch.setattr(held_calls, "_driver", lambda: None)
    for name in ("Event", "Stream"):
        monkeypatch.setattr(torch.cuda, name, Queried)
    assert on_a_thread(lambda: call(other), own=True) is answer and other.asked == 2


def test_a_loop_s_own_thread_has_no_timer_slack_and_others_keep_theirs() -> None:
    libc = ctypes.CDLL(None)
    assert on_a_thread(lambda: libc.prctl(PR_GET_TIMERSLACK), own=True) == poller.SLACK_NS
    assert on_a_thread(lambda: libc.prctl(PR_GET_TIMERSLACK), own=False) > poller.SLACK_NS


def test_sockets_are_looked_at_with_the_lock_kept_on_a_loop_s_own_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told, (reader, writer) = list[str](), os.pipe()

    class ToldLibrary:
        def __init__(self, name: str) -> None:
            self.name = name

        def poll(self, *_: object) -> int:
            told.append(self.name)
            return 0

        prctl = poll

    watched = WatchedDescriptors()
    watched.add(reader)
    os.write(writer, b"news")
    for name in ("_HELD", "_LIBC"):
        monkeypatch.setattr(poller, name, ToldLibrary(name))
    assert on_a_thread(watched.ready, own=True) == [] and told == ["_LIBC", "_HELD"], "its slack, and a look: nothing"
    assert on_a_thread(watched.ready, own=False) == [reader] and len(told) == 2, "the set itself is asked"
    monkeypatch.undo()
    assert on_a_thread(watched.ready, own=True) == [reader]
    watched.close()
    os.close(reader)
    os.close(writer)
