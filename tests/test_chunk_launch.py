"""Chunk launches: several launches of a chunk as one, in their order, with one end and one fault."""

from __future__ import annotations

from typing import Any

import pytest

from kvproto.data.chunk_launch import ChunkLaunch


class Launched:
    """A launch, its ticket, and a stream that notes who waits for it."""

    def __init__(self, log: list[str], name: str, *, ends: int = 0, fault: str = "") -> None:
        self.log, self.name, self.left, self.fault = log, name, ends, fault
        self.asides: list[Launched] = []

    def __call__(self, stream: Any, after: Any) -> Launched:
        if self.fault == "launch":
            raise RuntimeError(self.name)
        self.log.append(f"{self.name} {after}")
        return self

    def done(self) -> bool:
        if self.left:
            self.left -= 1
            return False
        if self.fault == "end":
            raise RuntimeError(self.name)
        return True

    def synchronize(self) -> None:
        self.log.append("waited")


def test_they_are_queued_in_their_order_and_the_chunk_ends_with_the_last() -> None:
    log: list[str] = []
    ticket = ChunkLaunch([Launched(log, "a", ends=2), Launched(log, "b"), Launched(log, "c", ends=1)])(None, "forward")
    assert log == ["a forward", "b forward", "c forward"]
    assert [ticket.done() for _ in range(5)] == [False, False, False, True, True]


@pytest.mark.parametrize("stream", [True, False])
def test_after_a_launch_that_fails_nothing_is_under_way(stream: bool) -> None:  # whether there is one
    log: list[str] = []
    first = Launched(log, "a")
    launch = ChunkLaunch([first, Launched(log, "b", fault="launch")])
    with pytest.raises(RuntimeError, match="b"):
        launch(Launched(log, "stream") if stream else None, "forward")
    assert log == ["a forward", *(["waited"] if stream else [])]
    first.asides = [Launched(log, "aside")]
    with pytest.raises(RuntimeError, match="b"):
        launch(Launched(log, "stream"), "forward")
    assert log[-3:] == ["a forward", "waited", "waited"], "also on the streams that a launch uses besides"


def test_a_fault_is_told_when_all_have_ended() -> None:
    log: list[str] = []
    ticket = ChunkLaunch([Launched(log, "a", ends=1), Launched(log, "b", fault="end")])(None, None)
    assert ticket.done() is False
    with pytest.raises(RuntimeError, match="b"):
        ticket.done()
