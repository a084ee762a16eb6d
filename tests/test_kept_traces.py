"""Traces as files, of failed rooms and of one that is rewritten: their names, entries and number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from test_rank_links import open_rooms, prefill

from kvproto.observe import failure_traces
from kvproto.observe import trace_files as trace_snapshots
from kvproto.observe.failure_traces import MAX_TRACES, FailureTraces
from kvproto.observe.trace_files import TraceSnapshots
from kvproto.protocol.events import room_key
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.trace.stories import lines, log_of


def told_fault(what: str, error: Exception) -> None:
    raise AssertionError(what) from error


class ToldThread:
    """A thread that begins when it is told to: what it is to do is carried out by the test."""

    made: ClassVar[list[ToldThread]] = []

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), *, daemon: bool = False) -> None:
        self.target, self.args, self.daemon, self.runs = target, args, daemon, False

    def start(self) -> None:
        self.runs = True
        self.made.append(self)

    def is_alive(self) -> bool:
        return self.runs

    def finish(self) -> None:
        self.target(*self.args)
        self.runs = False


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[ToldThread]:
    made = list[ToldThread]()
    monkeypatch.setattr(ToldThread, "made", made)
    for module in (failure_traces, trace_snapshots):
        monkeypatch.setattr(module, "Thread", ToldThread)
    return made


@pytest.fixture
def rank() -> PrefillRank:
    return prefill()


def text_of(rank: PrefillRank) -> str:
    """The trace as it is now, as a file."""
    return "".join(line + "\n" for line in lines(log_of(rank, list(rank.trace))))


# ------------------------------------------------------------------------------------- of rooms that failed
def test_a_failed_room_s_file_has_what_the_trace_held_at_that_moment(
    rank: PrefillRank, tmp_path: Path, threads: list[ToldThread]
) -> None:
    then = text_of(rank)
    FailureTraces(rank, told_fault).save(tmp_path, room_key(11, 3))
    open_rooms(rank)
    (thread,) = threads
    assert thread.daemon, "a process that ends does not wait for a disk"
    thread.finish()
    (path,) = tmp_path.iterdir()
    assert path.name == "prefill-0-room-11-3.jsonl" and path.read_text() == then != text_of(rank)


def test_no_more_files_are_written_than_there_may_be(
    rank: PrefillRank, tmp_path: Path, threads: list[ToldThread]
) -> None:
    traces = FailureTraces(rank, told_fault)
    for room in range(2 * MAX_TRACES):
        traces.save(tmp_path, room)
    assert len(threads) == MAX_TRACES == 64


# ------------------------------------------------------------------------------------- written anew
def test_a_trace_is_written_at_once_and_then_when_it_is_time(
    rank: PrefillRank, tmp_path: Path, threads: list[ToldThread]
) -> None:
    path, then = tmp_path / "trace.jsonl", text_of(rank)
    snapshots = TraceSnapshots(rank, path, 2.0, told_fault)
    snapshots.look(0.5)
    open_rooms(rank)
    assert len(threads) == 1 and threads[0].daemon
    threads[0].finish()
    assert path.read_text() == then != text_of(rank)
    snapshots.look(2.25)
    assert len(threads) == 1, "it is not time yet"
    snapshots.look(2.5)
    threads[1].finish()
    assert path.read_text() == text_of(rank) and [each.name for each in tmp_path.iterdir()] == ["trace.jsonl"]
    snapshots.look(4.25)
    assert len(threads) == 2


def test_the_first_look_writes_and_none_while_a_slow_disk_still_writes(
    rank: PrefillRank, tmp_path: Path, threads: list[ToldThread]
) -> None:
    snapshots = TraceSnapshots(rank, tmp_path / "trace.jsonl", 2.0, told_fault)
    snapshots.look(0.0)
    snapshots.look(9.0)
    assert len(threads) == 1
    threads[0].finish()
    snapshots.look(9.0)
    assert len(threads) == 2


def test_a_disk_that_takes_nothing_is_told_until_it_does(
    rank: PrefillRank, tmp_path: Path, threads: list[ToldThread]
) -> None:
    path = tmp_path / "none" / "trace.jsonl"
    told = list[str]()
    snapshots = TraceSnapshots(rank, path, 2.0, lambda what, error: told.append(f"{what}: {error}"))
    for turn in range(3):
        snapshots.look(2.0 * turn)
        threads[turn].finish()
        assert "No such file" in snapshots.fault
    assert len(told) == 1 and told[0].startswith(f"the trace is not written to {path} (follow_trace): [Errno ")
    path.parent.mkdir()
    snapshots.look(6.0)
    threads[3].finish()
    assert snapshots.fault == "" and path.read_text() == text_of(rank)


def test_a_trace_that_cannot_be_written_is_reported_with_its_path(
    rank: PrefillRank, threads: list[ToldThread], tmp_path: Path
) -> None:
    told = list[tuple[str, Exception]]()
    FailureTraces(rank, lambda what, error: told.append((what, error))).save(tmp_path / "gone", room_key(7, 0))
    threads[0].finish()
    ((what, error),) = told
    assert what == "the trace of room 7 is not written (endpoint.trace_dir)"
    assert isinstance(error, FileNotFoundError) and str(tmp_path / "gone") in str(error)
