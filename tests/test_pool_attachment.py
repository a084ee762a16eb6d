"""Pool attachment: its steps, who is refused meanwhile, and a step that fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvproto.endpoint.pool_attachment import PoolAttachment
from kvproto.errors import ArgumentError


class FakeLoop:
    def __init__(self) -> None:
        self.sources: list[Any] = []
        self.broken = False

    def check(self) -> None:
        if self.broken:
            raise RuntimeError("broken")

    def call(self, action: Any) -> None:
        action()

    ask = call


def steps(*told: str | Exception) -> Any:
    def leave(end: bool) -> Iterator[str]:
        for each in told:
            if isinstance(each, Exception):
                raise each
            yield f"{each} {end}"

    return leave


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


def made(loop: Any) -> tuple[PoolAttachment, list[str]]:
    done: list[str] = []
    return PoolAttachment(loop, lambda: done.append("done")), done


def held(at: PoolAttachment) -> tuple[bool, bool, str]:
    """Whether it has a pool, whether the pool is the engine's, and the words."""
    return at.attached, at.detached, at.why


def test_each_step_is_looked_at_once_a_pass_and_the_source_goes_with_the_last(loop: FakeLoop) -> None:
    at, done = made(loop)
    at.begin("end", lambda: done.append("prepared"), steps("rooms", "links"))
    assert loop.sources == [at] and at.busy() and at.alarms() == []
    assert held(at) == (False, False, "this endpoint's pool is being detached")
    assert [at.poll(), at.poll()] == [False, False]
    assert held(at) == (False, False, "this endpoint's pool is being detached, which waits for links True")
    assert done == ["prepared"] and at.poll() is True
    assert held(at) == (False, True, "this endpoint's pool is detached")
    assert loop.sources == [] and done == ["prepared", "done"]
    with pytest.raises(ArgumentError, match="attach a pool first"):
        at.need()
    at.end(lambda: done.append(f"taken {at.attached}"), lambda: done.append(f"told {at.attached}"))
    at.need()
    assert held(at) == (True, False, "") and done[2:] == ["taken False", "told True"]


def test_a_step_that_fails_keeps_the_pool_and_says_so(loop: FakeLoop) -> None:
    at, done = made(loop)
    at.begin("finish", lambda: None, steps(OSError("no memory")))
    with pytest.raises(OSError, match="no memory"):
        at.poll()
    assert loop.sources == [] and not at.detached and not done
    assert "could not be detached" in at.why and "close the endpoint" in at.why
    with pytest.raises(ArgumentError, match="could not be detached"):
        at.end(lambda: None, lambda: None)


def test_nothing_begins_that_cannot(loop: FakeLoop) -> None:
    at, _ = made(loop)
    with pytest.raises(ArgumentError, match="'end' or 'finish'"):
        at.begin("stop", lambda: None, steps())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="detach it first"):
        at.end(lambda: None, lambda: None)
    loop.broken = True
    with pytest.raises(RuntimeError, match="broken"):
        at.begin("end", lambda: None, steps())
    loop.broken = False
    with pytest.raises(ZeroDivisionError):
        at.begin("end", lambda: 1 // 0, steps())  # type: ignore[arg-type]
    assert at.attached and loop.sources == []
    at.stays = "it stays"
    with pytest.raises(ArgumentError, match="it stays"):
        at.begin("end", lambda: None, steps())
    with pytest.raises(ArgumentError, match="it stays"):
        at.end(lambda: None, lambda: None)
    assert at.attached and loop.sources == []
    at.stays = ""
    at.begin("end", lambda: None, steps("rooms"))
    with pytest.raises(ArgumentError, match="can be detached again"):
        at.begin("end", lambda: None, steps())
