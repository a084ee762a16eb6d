"""A loop's requests to its process: cores that it may name, a frozen heap's owner, and forks."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from kvproto.errors import ArgumentError
from kvproto.loop import own_thread
from kvproto.loop.own_thread import OwnThread


class ToldCollector:
    """A collector that tells what it is asked to do."""

    def __init__(self) -> None:
        self.told, self.frozen = list[str](), 0

    def get_freeze_count(self) -> int:
        return self.frozen

    def collect(self) -> None:
        self.told.append("collect")

    def freeze(self) -> None:
        self.told.append("freeze")
        self.frozen = 9

    def unfreeze(self) -> None:
        self.told.append("unfreeze")
        self.frozen = 0


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> ToldCollector:
    told = ToldCollector()
    monkeypatch.setattr(own_thread, "gc", told)
    monkeypatch.setattr(own_thread, "_frozen", 0)
    return told


def asking() -> OwnThread:
    """A loop that asks for a frozen heap alone."""
    return OwnThread(math.inf, freeze=True)


def test_cores_are_some_or_all_of_those_that_this_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = {0: {2, 3}}
    monkeypatch.setattr(own_thread, "os", SimpleNamespace(sched_getaffinity=lambda process: allowed[process]))
    assert OwnThread(cores=[3, 2, 2]).cores == {2, 3} and OwnThread().cores is None
    for cores, said in (([], r"\[\]"), ([1], r"\[1\]"), ([2, 4], r"\[2, 4\]")):
        with pytest.raises(ArgumentError, match=rf"^cores {said}: this process may run on \[2, 3\]$"):
            OwnThread(cores=cores)


@pytest.mark.parametrize("interval", [0.0, -1.0, math.nan])
def test_an_interval_that_is_none_is_refused(interval: float) -> None:
    with pytest.raises(ArgumentError, match=f"^a switch interval of {interval}: it is in seconds, more than 0$"):
        OwnThread(interval)
    assert OwnThread(1e-9).switch_interval == 1e-9


def test_where_nobody_says_which_cores_there_are_none_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_thread, "os", SimpleNamespace())
    assert OwnThread().cores is None
    with pytest.raises(ArgumentError, match=r"may run on \[\]"):
        OwnThread(cores=[0])


def test_the_heap_is_cleared_and_frozen_by_the_first_and_given_back_by_the_last(collector: ToldCollector) -> None:
    first, second = asking(), asking()
    first.begin()
    assert collector.told == ["collect", "freeze"]
    second.begin()
    first.end()
    assert collector.told == ["collect", "freeze"]
    second.end()
    assert collector.told == ["collect", "freeze", "unfreeze"]


def test_what_somebody_has_given_back_meanwhile_is_not_frozen_again(collector: ToldCollector) -> None:
    first, second = asking(), asking()
    first.begin()
    collector.frozen = 0
    second.begin()
    first.end()
    assert collector.told == ["collect", "freeze"]
    second.end()
    assert collector.told == ["collect", "freeze", "unfreeze"]


def test_a_heap_that_somebody_else_has_frozen_is_theirs(collector: ToldCollector) -> None:
    collector.frozen = 7
    loop = asking()
    loop.begin()
    loop.end()
    assert not collector.told and collector.frozen == 7
    collector.frozen = 0
    loop = asking()
    loop.begin()
    loop.end()
    assert collector.told == ["collect", "freeze", "unfreeze"]


# ------------------------------------------------------------------------------------------- the child of a fork
@pytest.fixture
def interval() -> Iterator[float]:
    """The switch interval that the process has before; heap and interval are restored."""
    gc.unfreeze()  # what earlier tests have frozen
    before = sys.getswitchinterval()
    sys.setswitchinterval(4e-3)
    yield 4e-3
    sys.setswitchinterval(before)
    gc.unfreeze()


def succeeds_in_a_child(work: Callable[[], None]) -> bool:
    """Whether the work raises nothing in the child of a fork, and ends there within some seconds."""
    child = os.fork()
    if not child:
        failed = 1
        try:
            signal.alarm(20)
            work()
            failed = 0
        except BaseException:  # noqa: BLE001  # reported by the exit code
            traceback.print_exc()
        finally:
            os._exit(failed)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def settings() -> tuple[float, bool]:
    """The switch interval, to the microsecond, and whether the heap is frozen."""
    return round(sys.getswitchinterval(), 6), gc.get_freeze_count() > 0


def test_the_child_of_a_fork_has_the_settings_of_before_and_its_loops_change_and_restore_them(interval: float) -> None:
    ours = OwnThread(1e-4, freeze=True)
    ours.begin()

    def look() -> None:
        assert settings() == (interval, False)
        own = OwnThread(2e-4, freeze=True)
        own.begin()
        assert settings() == (2e-4, True)
        own.end()
        assert settings() == (interval, False)

    try:
        assert succeeds_in_a_child(look)
        assert settings() == (1e-4, True), "the parent's loop runs"
    finally:
        ours.end()
    assert settings() == (interval, False)


def test_the_child_of_a_fork_keeps_what_other_code_has_set(interval: float) -> None:
    gc.freeze()
    ours = OwnThread(1e-4, freeze=True)
    ours.begin()
    sys.setswitchinterval(interval / 2)

    def look() -> None:
        assert settings() == (interval / 2, True)

    try:
        assert succeeds_in_a_child(look)
    finally:
        ours.end()


def test_a_fork_while_another_thread_changes_the_settings_leaves_no_lock_held(interval: float) -> None:
    def begin() -> None:
        own = OwnThread(1e-4)
        own.begin()
        own.end()
        assert settings() == (interval, False)

    with own_thread._lock:
        assert succeeds_in_a_child(begin)


def test_a_loop_s_thread_that_forks_and_ends_in_the_child_restores_nothing_there(interval: float) -> None:
    ours = OwnThread(1e-4, freeze=True)
    ours.begin()

    def end() -> None:
        own = OwnThread(1e-4, freeze=True)
        own.begin()
        ours.end()
        assert settings() == (1e-4, True), "the child's own loop runs"
        own.end()
        ours.end()
        assert settings() == (interval, False)

    try:
        assert succeeds_in_a_child(end)
    finally:
        ours.end()
