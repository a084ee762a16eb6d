"""An engine's calls of an endpoint: from which thread, until when, and with which answers."""

from __future__ import annotations

import asyncio
import math
import os
import select
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, Never, TypeVar

import pytest
from msgspec.structs import replace
from support.stories import layout

from kvproto.endpoint.endpoint import Endpoint
from kvproto.errors import EndpointError
from kvproto.io.clock import ManualClock
from kvproto.loop.loop_thread import WITHIN
from kvproto.protocol.states import Cause
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import SMALL, Pair

LONG = 30.0  # seconds; nothing here takes as long unless it hangs
SHORT = 0.01  # seconds of a wait for one of several
T = TypeVar("T")


def elsewhere(action: Callable[[], T]) -> T:
    """The result or error of a call on another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(action).result(LONG)


def boom(*_: object) -> Never:
    raise RuntimeError("planted")


# --------------------------------------------------------------------------------------------------- threads
def test_endpoints_are_made_on_one_thread_and_polled_on_another() -> None:
    with Pair(layout(2), layout(1), chunk_tokens=8, ready=False) as pair:

        def work() -> None:
            pair.pump(pair.decodes[0].ready)
            room = pair.open(30)
            pair.finish(room)
            pair.check(room)

        elsewhere(work)


def test_a_second_thread_is_refused_until_it_adopts(pair: Pair) -> None:
    decode, done = pair.decodes[0], list[str]()
    inside(decode).loop.call(lambda: done.append("called"))
    for method in (decode.poll, decode.wait):
        with pytest.raises(RuntimeError, match="polls this loop: another one calls adopt"):
            elsewhere(method)
    assert not done, "a call waits for the thread that owns the loop"
    decode.poll()
    assert done == ["called"]

    def take_over() -> None:
        for endpoint in pair.endpoints:
            endpoint.adopt()
        pair.finish(room)

    room = pair.open(30)
    elsewhere(take_over)
    with pytest.raises(RuntimeError, match="adopt"):
        pair.turn()
    for endpoint in pair.endpoints:
        endpoint.adopt()
    pair.finish(pair.open(30))


def test_a_call_wakes_the_thread_that_polls(pair: Pair) -> None:
    decode, asleep = pair.make_decode(0), Event()
    assert math.isinf(decode.next_deadline), "no timer ends the wait"
    sleep = inside(decode).loop.control.wait

    def wait(seconds: float, more: Sequence[int]) -> bool:
        asleep.set()
        return sleep(seconds, more)

    inside(decode).loop.control.wait = wait  # type: ignore[method-assign, assignment]
    owner = Thread(target=decode.wait, args=(10 * LONG,), daemon=True)
    owner.start()
    assert asleep.wait(LONG)
    inside(decode).loop.call(lambda: None)
    owner.join(LONG)
    assert not owner.is_alive()
    decode.close()


# --------------------------------------------------------------------------------------------------- closing
@pytest.mark.parametrize("run", [False, True], ids=["polled", "threads"])
def test_a_closed_endpoint_takes_no_calls(pair: Pair, run: bool) -> None:
    room, late = pair.open(30), pair.name(30)
    if run:
        pair.start()
    for _ in range(2):
        elsewhere(pair.close)
    prefill, decode = pair.prefills[0], pair.decodes[0]
    calls: list[Callable[[], Any]] = [
        lambda: prefill.open(late, 30, range(8)), lambda: prefill.produced(room, 30), lambda: prefill.aux(room, b""),
        lambda: prefill.prefetch(room), lambda: prefill.abort(room), prefill.start, prefill.poll, prefill.wait,
        lambda: decode.open(late, 30, range(8)), lambda: pair.connect(0), lambda: decode.abort(room), decode.start,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match="closed"):
            call()
    for endpoint in pair.endpoints:
        with pytest.raises(KeyError):
            endpoint.status(late)
        assert {outcome.room for outcome in endpoint.finished()} <= {room}, "the close has given it up"


def come_to_an_end(pair: Pair, *, run: bool) -> None:
    """Carry a room of this pair, whose loops have threads of their own or are polled here."""
    room = pair.open(30)
    if not run:
        pair.finish(room)
        return
    pair.produce(room)
    while not pair.over(room):
        for endpoint in pair.endpoints:
            endpoint.wait_news(SHORT)
        pair.collect()
    assert pair.causes(room) == {Cause.NONE}


@pytest.mark.parametrize("side", ["prefill", "decode"])
@pytest.mark.parametrize("run", [False, True], ids=["polled", "threads"])
def test_a_callback_of_a_pass_neither_closes_nor_polls_its_endpoint(pair: Pair, run: bool, side: str) -> None:
    endpoint, told = pair.prefills[0] if side == "prefill" else pair.decodes[0], list[str]()

    def call() -> None:
        for method in (endpoint.close, endpoint.poll, endpoint.wait):
            with pytest.raises(EndpointError) as refused:
                method()
            told.append(str(refused.value))

    endpoint.spans = SimpleNamespace(ended=lambda *_: call())  # type: ignore[assignment]
    if run:
        pair.start()
    come_to_an_end(pair, run=run)
    assert told == [WITHIN] * 3 and not endpoint.closed and not endpoint.reports()
    pair.close()
    assert endpoint.closed


@pytest.mark.parametrize("run", [False, True], ids=["polled", "threads"])
def test_a_child_of_a_fork_closes_nothing_of_its_parent_s(pair: Pair, run: bool) -> None:
    if run:
        pair.start()
    for endpoint in pair.endpoints:
        endpoint._news.alarm.set()
    child = os.fork()
    if not child:
        done = 1
        try:
            with suppress(EndpointError):
                pair.decodes[0].poll()
                os._exit(2)
            for endpoint in pair.endpoints:
                assert not endpoint.wait_news(), "the parent's news are not taken"
                endpoint.close()
                with pytest.raises(EndpointError, match="make one here"):
                    endpoint.start()
            done = 0
        finally:
            os._exit(done)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(select.select(pair.endpoints, [], [], 0)[0]) == len(pair.endpoints)
    come_to_an_end(pair, run=run)


def wait_for_news(endpoint: Endpoint) -> tuple[Thread, list[bool]]:
    """A thread that sleeps until there is news, and what it has been told by then."""
    asleep, sleep, told = Event(), endpoint._news.alarm.sleep, list[bool]()

    def noted(timeout: float | None) -> None:
        asleep.set()
        sleep(timeout)

    endpoint._news.alarm.sleep = noted  # type: ignore[method-assign]
    engine = Thread(target=lambda: told.append(endpoint.wait_news()), daemon=True)
    engine.start()
    assert asleep.wait(LONG)
    endpoint._news.alarm.sleep = sleep  # type: ignore[method-assign]
    return engine, told


def test_who_waits_for_news_of_a_closed_endpoint_goes_on(pair: Pair) -> None:
    decode = pair.decodes[0]
    before, told = wait_for_news(decode)
    decode.close()
    before.join(LONG)
    assert told == [False]
    after = Thread(target=lambda: told.append(decode.wait_news()), daemon=True)
    after.start()
    after.join(LONG)
    assert told == [False, False], "nothing more will come"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_breaks_tells_its_engine_why(pair: Pair) -> None:
    decode, room = pair.decodes[0], pair.name(30)
    decode.start()
    engine, told = wait_for_news(decode)
    inside(decode).loop.control.receive = boom  # type: ignore[method-assign, assignment]
    engine.join(LONG)
    assert told == [True], "there is something to be asked for"
    calls: list[Callable[[], object]] = [decode.finished, lambda: pair.open_decode(room), decode.start]
    for call in calls:
        with pytest.raises(RuntimeError, match="planted"):
            call()
    assert room.key not in inside(decode).entries
    decode.close()


DROPPED = """
import gc
from kvproto.layout.sharding import Layout
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.verify.testing.pair import SMALL, Pair

one = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
pair = Pair(one, one, chunk_tokens=8)
pair.finish(pair.open(30))
pair.produce(pair.open(30))
pair.turn()
pool, transport = pair.prefills[0].pool, pair.transport()
del pair
print(gc.collect() > 0, flush=True)
try:
    PrefillEndpoint(one, 0, pool, transport, chunk_tokens=8, staging="nonsense")
except ValueError as error:
    print(error)
print(gc.collect() > 0)
"""


def test_endpoints_that_are_dropped_without_close_do_not_keep_the_collector() -> None:
    command, root = (sys.executable, "-c", DROPPED), Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=4 * LONG, check=True)
    assert done.stdout.splitlines() == ["True", "staging is 'device' or 'pinned', not 'nonsense'", "True"]


# --------------------------------------------------------------------------------------------- news and figures
def test_an_engine_that_takes_outcomes_gets_no_release_before_its_outcome(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair, "collect", lambda: None)
    decode = pair.decodes[0]
    assert decode.wait_news(0.01) is False and decode.finished() == []
    room = pair.open(30)
    pair.produce(room)
    pair.pump(lambda: bool(decode._news.releases))
    for _ in range(2):
        assert decode.wait_news(0) and decode.released() == []
    assert [outcome.room for outcome in decode.finished()] == [room]
    assert decode.wait_news(0) and decode.released() == [room]
    assert decode.wait_news(0.01) is False


def test_an_engine_that_asks_for_releases_alone_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pair, "collect", lambda _: None)
    with Pair(layout(2), layout(1), chunk_tokens=8, settings=replace(SMALL, tombstones=2)) as pair:
        decode, free = pair.decodes[0], list[Room]()
        rooms = [pair.open(30) for _ in range(4)]
        for room in rooms:
            pair.produce(room)
            pair.pump(lambda: bool(decode._news.releases))
            free += decode.released()
        assert free == rooms and not inside(decode).entries
        assert [outcome.room for outcome in decode.finished()] == rooms[2:], "as many as `Settings.tombstones`"


def test_news_that_come_as_somebody_begins_to_wait_are_not_slept_through(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, awake = pair.decodes[0], list[bool]()

    class Late(deque[Any]):
        """Another thread puts this in just after the queue was found empty."""

        def __bool__(self) -> bool:
            endpoint._news.wake()
            return False

    endpoint._news.outcomes = Late()
    monkeypatch.setattr(endpoint._news.alarm, "sleep", lambda _: awake.append(endpoint._news.alarm.is_set()))
    assert not endpoint.wait_news(LONG)
    assert awake == [True]


def test_asyncio_is_woken_by_the_descriptor_for_every_outcome_and_release(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair, "collect", lambda: None)
    decode = pair.decodes[0]
    rooms = {pair.open(30) for _ in range(3)}
    ended, free = set[Room](), set[Room]()

    async def serve() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def hear() -> None:
            if decode.wait_news(0):
                ended.update(outcome.room for outcome in decode.finished())
                free.update(decode.released())
            if free == rooms:
                over.set()

        def work() -> None:
            for endpoint in (*pair.prefills, *pair.decodes):
                endpoint.adopt()
            for room in rooms:
                pair.produce(room)
            pair.pump(lambda: free == rooms)

        loop.add_reader(decode.fileno(), hear)
        worker = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.wait({worker, asyncio.create_task(over.wait())}, timeout=LONG, return_when=asyncio.ALL_COMPLETED)
        loop.remove_reader(decode.fileno())

    asyncio.run(serve())
    assert ended == free == rooms
    assert select.select([decode], [], [], 0)[0] == []
    decode.close()
    assert select.select([decode], [], [], 0)[0] == [decode], "nothing more will come"


def test_news_that_come_while_a_waiter_clears_the_descriptor_do_not_silence_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, read = pair.decodes[0], os.eventfd_read
    decode.fileno()

    def late(descriptor: int) -> int:
        decode._news.wake()  # from the loop's thread, between the two steps
        return read(descriptor)

    decode._news.wake()
    monkeypatch.setattr(os, "eventfd_read", late)
    decode.wait_news(0)
    monkeypatch.undo()
    decode._news.wake()
    assert select.select([decode], [], [], 0)[0] == [decode]


def test_metrics_are_what_was_counted_and_what_is_held() -> None:
    clock = ManualClock(100.0)
    with Pair(layout(2), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        prefill, decode = pair.prefills[0], pair.decodes[0]
        room = pair.open(30)
        pair.turn()
        held = {"rooms": 1, "links": 2, "entries": 1, "scatters": 0, "pool attached": 1}
        assert elsewhere(decode.metrics).items() >= held.items(), "any thread may ask"
        pair.finish(room)
        pair.rest()
        inside(decode).loop.control.send(inside(decode).loop.connections.peer_of[1], b"no frame")
        pair.pump(lambda: prefill.metrics().get("malformed frames") == 1)
        inside(prefill).rank.counts["planted"] = 3
        found, nbytes = prefill.metrics(), 30 * 2 * 2 * 16 * 2  # tokens, heads, layers, K and V, an element
        assert found.items() >= {"rooms": 0, "links": 1, "entries": 0, "writes": 4, "planted": 3}.items()
        assert found["bytes"] == nbytes and decode.metrics()["scatters"] == 4


def test_the_next_deadline_is_when_a_timer_wants_a_poll() -> None:
    clock = ManualClock(100.0)
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        decode = pair.decodes[0]
        left = decode.next_deadline
        assert 0 < left <= 2 * pair.settings.timing.heartbeat.period
        clock.advance(left / 2)
        decode.poll()
        assert decode.next_deadline == pytest.approx(left / 2)
        inside(decode).loop.call(lambda: None)
        assert decode.next_deadline == 0.0, "a call waits"
        clock.advance(left)
        assert decode.poll() and 0.0 < decode.next_deadline <= left
