"""Pool attachment: its steps, who is refused meanwhile, and a step that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvproto.endpoint.pool_attachment import ATTACHES, PoolAttachment
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


# ------------------------------------------------------------------------------- while another thread attaches
class BusyLoop(FakeLoop):
    """A loop that carries out what is asked when it is told to, on the asking thread."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = threading.Event(), threading.Event()

    def ask(self, action: Any) -> None:
        self.asked.set()
        assert self.go.wait(10.0)
        action()


def called(call: Callable[[], None]) -> tuple[threading.Thread, list[Exception]]:
    """A thread that makes this call, and what the call has raised."""
    raised = list[Exception]()

    def run() -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001  # the test's
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


def detach(at: PoolAttachment) -> None:
    at.begin("end", lambda: None, steps())
    assert at.poll() and at.detached


def attach(at: PoolAttachment) -> None:
    at.end(lambda: None, lambda: None)


def need_both_refused(at: PoolAttachment) -> None:
    """Both calls return at once: the attaching thread may be waiting for the thread that makes them."""
    for call in (lambda: detach(at), lambda: attach(at)):
        thread, raised = called(call)
        thread.join(5.0)
        assert not thread.is_alive(), "it waits for the attaching thread"
        assert [str(each) for each in raised] == [ATTACHES]


def test_what_is_called_while_another_thread_attaches_is_refused_at_once() -> None:
    loop = BusyLoop()
    at, _ = made(loop)
    detach(at)
    attaching, raised = called(lambda: attach(at))
    assert loop.asked.wait(5.0)
    need_both_refused(at)
    loop.go.set()
    attaching.join(5.0)
    assert not raised and at.attached
    detach(at)
    attach(at)
    assert at.attached


def test_an_attach_that_fails_or_is_interrupted_may_be_repeated(
    loop: FakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_action: Any) -> None:
        raise KeyboardInterrupt

    at, _ = made(loop)
    detach(at)
    with pytest.raises(ZeroDivisionError):
        at.end(lambda: 1 // 0, lambda: None)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            attach(at)
    attach(at)
    assert at.attached


def test_a_call_that_returns_late_does_not_end_the_next_attach() -> None:
    """Between the loop's work and the return of the call, another thread may detach, and attach again."""

    class LateLoop(BusyLoop):
        def ask(self, action: Any) -> None:
            action()
            self.asked.set()
            assert self.go.wait(10.0)

    loop = LateLoop()
    at, _ = made(loop)
    detach(at)
    first, _ = called(lambda: attach(at))
    assert loop.asked.wait(5.0)
    between, _ = called(lambda: detach(at))
    between.join(5.0)
    assert at.detached
    blocked = BusyLoop()
    loop.ask = blocked.ask  # type: ignore[method-assign]
    second, _ = called(lambda: attach(at))
    assert blocked.asked.wait(5.0)
    loop.go.set()
    first.join(5.0)
    assert not first.is_alive()
    need_both_refused(at)
    blocked.go.set()
    second.join(5.0)
    assert at.attached
