"""A device's alarms: a pipe becomes readable when an event has passed, and few are set at a time."""

from __future__ import annotations

import errno
import os
import select
from collections import deque
from ctypes import CFUNCTYPE, c_int
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvproto.data import device_alarm
from kvproto.data.device_alarm import MOST, DeviceAlarm, close_behind


class Event:
    """An event of a device."""

    def __init__(self) -> None:
        self.passed = False

    def query(self) -> bool:
        return self.passed


class Stream:
    """A stream that gets where it is told to; behind it the driver closes what it was given."""

    def __init__(self) -> None:
        self.waits: deque[Event] = deque()
        self.closes: deque[int] = deque()
        self.willing = True

    def wait_event(self, event: Any) -> None:
        if not isinstance(event, Event):
            raise TypeError("no event of a device")
        self.waits.append(event)

    def go_off(self, stream: Any, descriptor: int) -> bool:
        assert stream is self
        if self.willing:
            self.closes.append(descriptor)
        return bool(self.willing)

    def run(self) -> None:
        """Get behind the next event."""
        self.waits.popleft().passed = True
        os.close(self.closes.popleft())


def readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def alarm(stream: Stream) -> DeviceAlarm:
    return DeviceAlarm(stream, -1, stream.go_off)


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_pipe_is_readable_when_its_event_has_passed_and_not_before(alarm: DeviceAlarm, stream: Stream) -> None:
    event = Event()
    found = alarm.set(event)
    assert found is not None and alarm.set(event) == found and len(stream.waits) == 1, "it is set once"
    assert not readable(found)
    stream.run()
    assert readable(found)
    assert alarm.set(event) is None, "an event that has passed has no alarm"
    alarm.close()


def test_descriptors_are_given_back(alarm: DeviceAlarm, stream: Stream) -> None:
    before = open_descriptors()
    for _ in range(3 * MOST):
        assert alarm.set(Event()) is not None
        stream.run()
    passed = Event()
    passed.passed = True
    assert alarm.set(passed) is None and open_descriptors() == before
    for _ in range(MOST):
        assert alarm.set(Event()) is not None
    assert alarm.set(Event()) is None, "so many are behind events that do not pass"
    alarm.close()
    while stream.waits:
        stream.run()
    assert open_descriptors() == before


@pytest.mark.parametrize("why", ["the driver", "the event"])
def test_what_cannot_be_set_leaves_nothing_behind(alarm: DeviceAlarm, stream: Stream, why: str) -> None:
    before, event = open_descriptors(), Event()
    stream.willing = why != "the driver"
    if why == "the event":
        event.__class__ = type("Other", (), {"query": lambda _: False})
    assert alarm.set(event) is None and open_descriptors() == before


def test_without_descriptors_the_event_is_polled(
    alarm: DeviceAlarm, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe", refuse)
    assert alarm.set(Event()) is None and not stream.waits


def test_where_there_is_no_driver_nothing_is_set(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproto.data.device_alarm.cuda_driver", lambda: None)
    stream.cuda_stream = 0  # type: ignore[attr-defined]
    assert not close_behind(stream, 5) and DeviceAlarm(stream, -1).set(Event()) is None


def test_a_driver_is_asked_to_close_a_descriptor_by_a_function_that_does(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = [os.uname().machine, "x86_64", "aarch64"]
    called, answer = list[tuple[int, ...]](), [0, 1]

    def call(where: Any, function: Any, argument: Any) -> int:
        called.append((where.value, argument.value))
        assert CFUNCTYPE(c_int, c_int)(function.value)(argument.value) == 0
        return answer.pop(0)

    driver: Any = SimpleNamespace(cuLaunchHostFunc=call)
    monkeypatch.setattr(device_alarm, "cuda_driver", lambda: driver)
    stream.cuda_stream = 9  # type: ignore[attr-defined]
    monkeypatch.setattr(device_alarm, "_close_function", device_alarm._close_function.__wrapped__)
    for done in (True, False):
        (reader, writer) = os.pipe()
        assert close_behind(stream, writer) is done and called[-1] == (9, writer) and readable(reader)
        os.close(reader)
    for machine in (*fits, "riscv64"):
        monkeypatch.setattr(os, "uname", lambda machine=machine: SimpleNamespace(machine=machine))
        assert (device_alarm._close_function() is not None) is (machine in fits)
    assert not close_behind(stream, 5) and len(called) == 2, "its C library may pass arguments in another way"
    assert DeviceAlarm(stream)._go_off is close_behind
