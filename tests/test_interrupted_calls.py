"""An engine repeats a call that a signal has interrupted, at any of its lines: no page is given twice."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.stories import layout

import kvproto
from kvproto import MetricsExporter
from kvproto.errors import ArgumentError
from kvproto.protocol.states import Cause
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

TOKENS, HOME = 12, kvproto.__path__[0]
#: lines of a call that are interrupted one by one; behind them each so many
FIRST, STRIDE = 40, 17
CALLS = ["announce", "open announced", "open", "share", "open prefill", "first pages", "last pages", "withdraw"]


@pytest.fixture
def pair() -> Iterator[Pair]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with Pair(layout(1), layout(1), chunk_tokens=8, pages=2048) as made:
        yield made
    signal.signal(signal.SIGINT, before)


def interrupted(line: int, call: Callable[[], object], *, deep: bool = False) -> bool:
    """Make the call, with an interrupt at this line of it, and repeat it then; false: it has fewer lines.

    `deep`: lines, and ends of functions, of Python's own library count as well.
    """
    left, places, events = line, [HOME], {"line"}
    if deep:
        places, events = [HOME, threading.__file__, str(Path(futures.__file__).parent)], {"line", "return"}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith((*places,)):
            return None
        if event in events:
            left -= 1
            if not left:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        with contextlib.suppress(ArgumentError):  # the room is open
            call()
    finally:
        sys.settrace(before)
    return left <= 0


def calls_of(pair: Pair, room: Room, *, announced: bool) -> list[tuple[str, Callable[[], object]]]:
    prefill, decode = pair.prefills[0], pair.decodes[0]
    ours, theirs, tokens, _ = pair.tables[room]
    name = Room(room.id + (1 << 32))
    opened = "open announced" if announced else "open"
    found: list[tuple[str, Callable[[], object]]] = [
        ("announce", lambda: decode.announce(room, tokens)),
        (opened, lambda: decode.open(room, tokens, theirs)), ("share", lambda: decode.share(room, name)),
        ("open prefill", lambda: prefill.open(room, tokens)),
        ("first pages", lambda: prefill.produced(room, 4, pages=ours[:1])),
        ("withdraw", lambda: prefill.withdraw(room, 4)),
        ("last pages", lambda: prefill.produced(room, tokens, pages=ours[1:])),
        ("aux", lambda: prefill.aux(room, b"aux")),
    ]  # fmt: skip
    return found if announced else found[1:]


@pytest.mark.parametrize("which", CALLS)
def test_the_room_ends_well_whichever_line_is_interrupted(pair: Pair, which: str) -> None:
    rooms, line, struck = list[Room](), 0, True
    while struck:
        line, struck = line + 1, False
        rooms.append(room := pair.name(TOKENS))
        for name, call in calls_of(pair, room, announced=which in CALLS[:2]):
            if name == which:
                struck = interrupted(line, call)
            else:
                call()
            if name == "withdraw":
                pair.pump(lambda room=room: pair.prefills[0].withdrawn(room))  # type: ignore[misc]
        names = room, Room(room.id + (1 << 32))
        pair.pump(lambda names=names: all(pair.releases["D", 0, each] for each in names))  # type: ignore[misc]
        pair.pump(lambda room=room: pair.over(room))  # type: ignore[misc]
    assert line > 10
    assert {outcome.cause for outcome in pair.outcomes.values()} == {Cause.NONE}
    pair.check(*rooms)
    pair.rest()


def test_an_endpoint_is_closed_whichever_line_of_its_close_is_interrupted(pair: Pair) -> None:
    line, struck = 0, True
    while struck:
        line += 1 if line < FIRST else STRIDE
        endpoint = pair.make_decode(0)
        struck = interrupted(line, endpoint.close)
        assert endpoint.closed, f"line {line}"
    assert line > 30


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_pool_whose_attach_was_interrupted_is_never_taken(pair: Pair, side: str) -> None:
    endpoint = pair.prefills[0] if side == "prefill" else pair.decodes[0]
    plan, at = pair.plan, side == "decode"
    first, second = (pair.pool((plan.prefill, plan.decode)[at], 0, pair.seeds[at]) for _ in range(2))
    pair.start()
    endpoint.detach()
    while not endpoint.detached:
        pair.collect()
    loop, go_on, main = inside(endpoint).loop, threading.Event(), threading.get_ident()

    def busy() -> None:
        while not loop._inbox:
            pass
        signal.pthread_kill(main, signal.SIGINT)
        go_on.wait(10.0)

    loop.call(busy)
    with pytest.raises(KeyboardInterrupt):
        endpoint.attach(first)
    go_on.set()
    endpoint.attach(second)
    assert endpoint.pool is second and endpoint.metrics()["pools attached"] == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a generator that is let go of
@pytest.mark.parametrize("which", ["ask", "wait_news", "wait_news a moment", "scrape"])
def test_a_loop_goes_on_whichever_line_of_a_wait_for_it_is_interrupted(pair: Pair, which: str) -> None:
    """A lock that the interrupted thread holds for ever would stop the loop, or the next call."""
    pair.start()
    endpoint, exporter = pair.decodes[0], MetricsExporter(pair.decodes[0])
    loop, line, struck = inside(endpoint).loop, 0, True
    calls: dict[str, Callable[[], object]] = {
        "ask": lambda: loop.ask(endpoint._news.wake), "wait_news": lambda: endpoint.wait_news(0),
        "wait_news a moment": lambda: endpoint.wait_news(1e-3), "scrape": lambda: list(exporter.collect()),
    }  # fmt: skip
    while struck:
        line += 1 if line < 2 * FIRST else STRIDE
        struck = interrupted(line, calls[which], deep=True)
        told = list[object]()
        after = threading.Thread(target=lambda told=told: told.append(loop.ask(endpoint._news.wake)), daemon=True)
        after.start()
        after.join(10.0)
        assert told, f"{which}, line {line}: the loop answers nobody any more"
    assert line > 5
