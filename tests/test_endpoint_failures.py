"""One failure outside ends neither a rank nor a room that it did not concern, and none is silent."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from support.stories import layout

from kvproto.endpoint.endpoint_events import EventsMissed
from kvproto.endpoint.prefill_groups import GroupParty
from kvproto.errors import EndpointError, LinkError
from kvproto.io.control.control import Control
from kvproto.loop import held_signals as held_module
from kvproto.loop.held_signals import HeldSignals
from kvproto.protocol.states import Cause
from kvproto.room import Outcome
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import Pair

CHUNK_TOKENS, LONG = 8, 20.0


def boom(*_: object, **__: object) -> Any:
    raise RuntimeError("planted")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS) as made:
        yield made


class BadHandler(logging.Handler):
    """A handler of the log that raises."""

    raises: BaseException = OSError("disk full")

    def emit(self, record: logging.LogRecord) -> None:
        raise self.raises


@pytest.fixture
def bad_log() -> Iterator[BadHandler]:
    handler, log = BadHandler(), logging.getLogger("kvproto")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.setLevel(before)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# ------------------------------------------------------------------------------------------- page tables
def on_device(pair: Pair, place: Callable[[Any], Any]) -> Any:
    """Tables are put off and copied by this, as on a device."""
    streams: Any = inside(pair.prefills[0]).data.streams
    streams.put_off, streams.place = streams.unplaced.append, place
    inside(pair.prefills[0]).loop.background.append(streams)
    return streams


def test_one_failed_copy_of_page_tables_costs_no_room(pair: Pair) -> None:
    sizes = list[int]()

    def place(pages: Any) -> Any:
        sizes.append(len(pages))
        if len(sizes) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return torch.from_numpy(pages), None

    on_device(pair, place)
    rooms = [pair.open(20) for _ in range(3)]
    pair.finish(*rooms)
    assert sizes == [15, 5, 5, 5], "together, and then each alone"
    assert all(pair.causes(room) == {Cause.NONE} for room in rooms)
    pair.check(*rooms)


def test_a_page_table_that_cannot_be_copied_fails_its_room_with_the_reason_and_no_other(pair: Pair) -> None:
    bad = set[int]()

    def place(pages: Any) -> Any:
        if bad & set(pages.tolist()):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return torch.from_numpy(pages), None

    on_device(pair, place)
    rooms = [pair.name(20) for _ in range(3)]
    bad |= {pair.tables[rooms[1]][0][0]}
    for room in rooms:
        pair.open_decode(room)
        pair.open_prefill(room)
    pair.finish(*rooms)
    assert [Cause.NONE in pair.causes(room) for room in rooms] == [True, False, True]
    assert "page table: OutOfMemoryError: CUDA out of memory" in pair.outcomes["P", 0, rooms[1]].reason


# ------------------------------------------------------------------------------------------- the log
def test_a_log_that_cannot_be_written_ends_neither_loop_nor_rooms(pair: Pair, bad_log: BadHandler) -> None:
    del bad_log
    inside(pair.prefills[0]).rank.counts["stale messages"] += 1
    stranger = Control(None)
    peer = stranger.connect(pair.prefills[0].address)
    room = pair.open(20)
    stranger.send(peer, b"no frame of ours")
    pair.finish(room)
    pair.pump(lambda: bool(stranger.receive(8)) or inside(pair.prefills[0]).loop.counts["malformed frames"] > 0)
    stranger.close()
    assert pair.causes(room) == {Cause.NONE}
    assert pair.prefills[0].metrics()["log lines lost"] >= 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_on_its_own_thread_outlives_a_log_that_raises_and_what_fails_once_a_second(
    pair: Pair, bad_log: BadHandler
) -> None:
    del bad_log
    end = pair.prefills[0]
    inside(end).loop.every_second.insert(0, boom)
    later = list[float]()
    inside(end).loop.every_second.append(later.append)
    end.start()
    until(lambda: len(later) > 1)
    assert end.finished() == [] and inside(end).loop.broken is None


@pytest.mark.parametrize("place", ["a kernel", "a write", "a batch", "a room", "the log", "receiving", "a span"])
def test_what_asks_the_process_to_end_is_raised_when_the_pass_is_over_wherever_it_is_caught(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    room = pair.open(8)
    data, loop, error = inside(pair.prefills[0]).data, inside(pair.prefills[0]).loop, KeyboardInterrupt("planted")
    key = room.key, 1, 0
    outcome, entry = Outcome(room, Cause.NONE, b"", "", ""), inside(pair.prefills[0]).entries[room.key]
    places: dict[str, Callable[[], object]] = {
        "a kernel": lambda: data.gathers.together.fail(key, error),
        "a write": lambda: data.writes.unmade(key, error), "a batch": lambda: data.writes.refuse(key, error),
        "a room": lambda: loop.room_failed(room.key, "planted", error), "the log": lambda: loop._line_lost(error),
        "receiving": lambda: loop._fault("receiving", error),
        "a span": lambda: pair.prefills[0]._end_span(outcome, entry),
    }  # fmt: skip
    lost = loop.counts["log lines lost"]
    with monkeypatch.context() as patch:
        patch.setattr(pair.prefills[0], "spans", SimpleNamespace(ended=raising(error)))
        places[place]()
    assert loop.counts["log lines lost"] == lost + (place == "the log")
    with pytest.raises(KeyboardInterrupt):
        loop.raise_held()
    loop.raise_held()


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a call that raises it."""

    def call(*_: object) -> Any:
        raise error

    return call


# ------------------------------------------------------------------------------------------- the end of threads
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, RuntimeError])
def test_what_ends_the_loops_own_thread_is_said_by_every_call(
    pair: Pair, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    end, room = pair.prefills[0], pair.open(20)

    def stop() -> None:
        raise error("planted")

    monkeypatch.setattr(inside(end).loop, "turn", stop)
    end.start()
    assert end.wait_news(LONG)
    thread: Any = inside(end).loop._thread
    until(lambda: not thread.is_alive())
    for call in (end.finished, end.released, end.start, lambda: end.abort(room)):
        with pytest.raises(EndpointError, match=f"the loop has stopped, by {error.__name__}"):
            call()
    assert "the loop has stopped, by" in end.explain(room)
    assert any("own thread has ended" in text for text in end.reports())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_call_that_asks_the_process_to_end_breaks_the_own_thread_loudly(
    pair: Pair, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    end, done = pair.prefills[0], list[int]()

    def ends() -> None:
        raise error("planted")

    inside(end).loop.call(ends)
    inside(end).loop.call(lambda: done.append(1))
    end.start()
    assert end.wait_news(LONG) and done == [1]
    with pytest.raises(EndpointError, match="planted"):
        end.finished()
    inside(end).loop.stop()


def test_no_room_is_lost_by_an_interrupt_wherever_a_pass_calls_out(pair: Pair) -> None:
    """Each outward call of a pass is interrupted in turn; the engine catches it and polls on."""
    places: list[tuple[Any, str]] = []
    for end in pair.endpoints:
        data, loop = inside(end).data, inside(end).loop
        places += [(data.transport, "poll"), (loop.control, "receive"), (loop.control, "flush"), (loop, "passed")]
    interrupted, rooms = 0, []
    for target, name in places:
        real, left = getattr(target, name), [1]

        def once(*args: Any, real: Any = real, left: list[int] = left) -> Any:
            if left and left.pop():
                raise KeyboardInterrupt
            return real(*args)

        setattr(target, name, once)
        rooms.append(pair.open(6))
        pair.produce(rooms[-1])

        def turn() -> bool:
            nonlocal interrupted
            try:
                pair.turn()
            except KeyboardInterrupt:
                interrupted += 1
            return bool(pair.over(rooms[-1]))

        deadline = time.monotonic() + LONG
        while not turn() or left:
            assert time.monotonic() < deadline, pair.explain()
            time.sleep(1e-4)
        setattr(target, name, real)
    assert interrupted == len(places)
    assert all(pair.causes(room) == {Cause.NONE} for room in rooms)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Python's own handler of SIGINT: a shell's background process is started with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_in_the_middle_of_a_call_is_raised_when_the_pass_is_over(pair: Pair) -> None:
    end, order = pair.prefills[0], list[str]()

    def call() -> None:
        order.append("begins")
        signal.raise_signal(signal.SIGINT)
        order.append("ends")

    inside(end).loop.call(call)
    inside(end).loop.call(lambda: order.append("next"))
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        end.poll()
    assert order == ["begins", "ends", "next"] and signal.getsignal(signal.SIGINT) is handler
    end.poll()


@pytest.fixture
def closes(pair: Pair) -> Iterator[list[str]]:
    """A handler of SIGTERM that closes the pair's endpoints, as a service does, and notes it."""
    done = list[str]()

    def close(*_: object) -> None:
        for end in pair.endpoints:
            end.close()
        done.append("closed")

    before = signal.signal(signal.SIGTERM, close)
    yield done
    signal.signal(signal.SIGTERM, before)


@pytest.mark.timeout(60)
def test_a_signal_in_the_middle_of_a_connect_is_handled_when_the_lock_is_free(
    pair: Pair, closes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, held = GroupParty.handle, list[bool]()

    def handle(self: GroupParty, *args: Any) -> Any:
        if not held:
            held.append(True)
            signal.raise_signal(signal.SIGTERM)
            held.append(not closes)
        return real(self, *args)

    monkeypatch.setattr(GroupParty, "handle", handle)
    pair.connect(0)
    assert held == [True, True] and closes == ["closed"]
    assert all(end.closed for end in pair.endpoints)


@pytest.mark.timeout(60)
def test_a_signal_while_a_thread_begins_is_handled_when_it_runs(
    pair: Pair, closes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's settings are locked, and the thread that the handler ends would wait for them."""
    before, real, signals = sys.getswitchinterval(), sys.getswitchinterval, [signal.SIGTERM]
    pair.prefills[0].start(1e-4)

    def interval() -> float:
        if signals:
            signal.raise_signal(signals.pop())
        return real()

    monkeypatch.setattr(sys, "getswitchinterval", interval)
    pair.decodes[0].start(1e-4)
    assert closes == ["closed"] and real() == before


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_in_a_detach_leaves_one_that_comes_to_its_end(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = pair.prefills[0]
    loop, real = inside(end).loop, inside(end).loop.call

    def call(action: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        real(action)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "call", call)
        with pytest.raises(KeyboardInterrupt):
            end.detach()
    pair.pump(lambda: end.detached)


class Interrupted(deque[Any]):
    """News of which the last one is taken in the moment of a signal."""

    def popleft(self) -> Any:
        last = super().popleft()
        if not self:
            signal.raise_signal(signal.SIGINT)
        return last


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("queues", [("outcomes", "releases"), ("stream",)], ids=["lists", "stream"])
def test_no_news_are_lost_by_an_interrupt_while_they_are_taken(pair: Pair, queues: tuple[str, ...]) -> None:
    end = pair.decodes[0]
    takes = {"outcomes": end.finished, "releases": end.released, "stream": end.events}
    if "stream" in queues:
        end.events()
    rooms = [pair.open(6) for _ in range(2)]
    for room in rooms:
        pair.produce(room)
    end._news._missed = True
    until(lambda: bool([each.poll() for each in pair.endpoints]) and not end.rooms())
    for queue in queues:
        news = list(getattr(end._news, queue))
        setattr(end._news, queue, Interrupted(news))
        with pytest.raises(KeyboardInterrupt):
            takes[queue]()
        setattr(end._news, queue, deque(getattr(end._news, queue)))
        if queue == "outcomes":
            assert not end.released(), "the engine has not got the outcomes"
        assert takes[queue]() == [*news, *[EventsMissed()] * (queue == "stream")] and len(news) >= len(rooms)
        assert not takes[queue]() and not getattr(end._news, queue)
    assert not end._entries


@pytest.mark.usefixtures("interrupts")
def test_a_signal_ends_the_sleep_of_a_loop_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    end = pair.prefills[0]
    control = inside(end).loop.control
    sleep, slept = control.wait, list[bool]()

    def wait(seconds: float, _more: object) -> bool:
        signal.raise_signal(signal.SIGINT)
        slept.append(sleep(seconds))
        return slept[-1]

    monkeypatch.setattr(control, "wait", wait)
    while not slept:
        end.poll()
        with pytest.raises(KeyboardInterrupt) if inside(end).loop.due > 0 else nullcontext():
            end.wait(60.0)
    assert slept == [True], "it was woken, and did not sleep until its end"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_each_signal_that_ends_a_process_waits_for_the_end_of_a_pass(number: signal.Signals) -> None:
    told, woken = list[int](), list[bool]()
    before = signal.signal(number, lambda number, _: told.append(number))
    try:
        with HeldSignals.waking(lambda: woken.append(True)):
            signal.raise_signal(number)
            assert (told, woken) == ([], [True])
        assert told == [number]
    finally:
        signal.signal(number, before)


def test_a_held_handler_that_somebody_has_put_back_later_does_what_the_former_did() -> None:
    told = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: told.append(number))
    with HeldSignals():
        kept: Any = signal.getsignal(signal.SIGINT)
    kept(signal.SIGINT, None)
    signal.signal(signal.SIGINT, before)
    assert told == [signal.SIGINT]


def test_a_block_that_a_signal_keeps_from_beginning_leaves_all_handlers_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def handler(*_: object) -> None: ...

    ours, calls, right = (signal.SIGINT, signal.SIGTERM), list[int](), held_module._signals.signal
    before = [signal.signal(number, handler) for number in ours]  # a process in the background may ignore one of them

    def interrupted(number: int, new: Any) -> Any:
        calls.append(number)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return right(number, new)

    try:
        monkeypatch.setattr(held_module, "_signals", SimpleNamespace(getsignal=signal.getsignal, signal=interrupted))
        with pytest.raises(KeyboardInterrupt), HeldSignals():
            pytest.fail("it began")
        assert calls == [signal.SIGINT, signal.SIGTERM, signal.SIGINT], "the second is not ours, so it is not restored"
        assert [signal.getsignal(number) for number in ours] == [handler, handler]
    finally:
        for number, known in zip(ours, before, strict=True):
            signal.signal(number, known)


# ------------------------------------------------------------------------------------------- start and close
def test_after_a_thread_that_could_not_be_started_the_endpoint_polls_starts_and_closes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, before = pair.prefills[0], sys.getswitchinterval()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", boom)
        with pytest.raises(EndpointError, match="no thread of its own"):
            end.start()
    assert sys.getswitchinterval() == before
    room = pair.open(20)
    pair.finish(room)
    end.start()
    end.close()
    assert inside(end).loop.closed


@pytest.mark.parametrize("side", ["prefills", "decodes"])
def test_a_close_does_each_step_once_and_says_what_failed(
    pair: Pair, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = getattr(pair, side)[0]
    parts: Any = inside(end)
    loop, data = parts.loop, parts.data
    asked = list[str]()

    def refuse(*_: object) -> None:
        asked.append("transport")
        raise RuntimeError("NIXL")

    monkeypatch.setattr(data.transport, "close", refuse)
    loop.helpers.append(("a helper", boom))
    with pytest.raises(EndpointError, match=r"a helper: RuntimeError: planted; .*Data: .*RuntimeError: NIXL"):
        end.close()
    assert loop.closed and loop.control._closed
    end.close()
    assert asked == ["transport"]
    monkeypatch.undo()
    data.transport.close()


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("by_signal", [False, True])
def test_a_close_that_is_interrupted_runs_to_its_end_and_is_interrupted_then(pair: Pair, *, by_signal: bool) -> None:
    end, done = pair.decodes[0], list[str]()

    def interrupt() -> None:
        if not by_signal:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)
        done.append("the step that was under way")

    inside(end).loop.farewells.append(("good-bye", interrupt))
    with pytest.raises(KeyboardInterrupt):
        end.close()
    assert bool(done) == by_signal
    assert inside(end).loop.control._closed and cast("Any", inside(end).data.transport).closed


def test_no_thread_for_a_wire_up_fails_the_call_by_name_and_the_next_call_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, ready=False) as pair:
        decode = pair.decodes[0]
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", boom)
            with pytest.raises(LinkError, match="planted"):
                pair.pump(decode.ready)
        pair.connect(0)
        pair.pump(decode.ready)


def test_a_trace_that_cannot_be_written_costs_no_other_work(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = pair.prefills[0]
    end.follow_trace(tmp_path / "trace.jsonl", every=1.0)
    end.trace_dir = tmp_path
    room, failing = pair.open(20), pair.open(20)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", boom)
        inside(end).loop.second = 0.0
        end.poll()
        end.abort(failing)
        pair.pump(lambda: pair.over(failing))
    pair.finish(room)
    assert pair.causes(room) == {Cause.NONE} and pair.causes(failing) == {Cause.PREFILL_ABORTED}
    assert [text.partition(": ")[0] for text in end.reports()] == ["TraceSnapshots.look", "a trace of a failed room"]
    assert all("planted" in text for text in end.reports())


@pytest.mark.parametrize("what", ["_time_outcome", "ended", "save", "nothing"])
def test_what_fails_at_the_end_of_a_room_leaves_out_nothing_else_that_is_done_then(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    end, done, room = pair.prefills[0], list[str](), pair.open(20)

    def note(name: str) -> Callable[..., None]:
        def act(*_: object) -> None:
            done.append(name)
            if name == what:
                raise RuntimeError("planted")

        return act

    end.trace_dir, end.spans = tmp_path, cast("Any", SimpleNamespace(ended=note("ended")))
    for owner, name in ((end, "_time_outcome"), (end._traces, "save"), (inside(end).loop.logs, "room")):
        monkeypatch.setattr(owner, name, note(name))
    end.abort(room)
    pair.pump(lambda: pair.over(room))
    assert done == ["_time_outcome", "ended", "room", "save"]
    assert pair.causes(room) == {Cause.PREFILL_ABORTED}
    assert len(end.reports()) == (what != "nothing")
