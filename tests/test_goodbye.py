"""A rank that closes in good order says goodbye: peers' links and rooms end at once, without warnings.

Without that the peers take it for a crash: they wait until its heartbeats are missed, five seconds, and warn.  All
of this is the product's own: endpoints with threads, ZeroMQ sockets, bytes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support.stories import layout
from test_foreign_groups import MINE
from test_foreign_groups import prefill as linked_prefill

import kvproto.endpoint.endpoint as endpoint_module
from kvproto.endpoint.endpoint import Endpoint
from kvproto.io.clock import ManualClock
from kvproto.io.transports.base import PeerId
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol.messages import Goodbye
from kvproto.protocol.states import Cause, DLink, PLink
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import Pair

CHUNK_TOKENS, TOKENS = 8, 20
#: seconds: far below the five of `Timing.heartbeat`, and beyond what a busy machine takes
SOON = 2.0
LIMIT = 30.0


@pytest.fixture
def pair(caplog: pytest.LogCaptureFixture) -> Iterator[Pair]:
    """Two ranks whose links are up, with threads of their own."""
    caplog.set_level(logging.INFO)
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS) as found:
        found.start()
        yield found


def within_soon(done: Callable[[], object]) -> None:
    """Wait until that is so; AssertionError after `SOON`."""
    end = time.monotonic() + SOON
    while not done():
        assert time.monotonic() < end, "it takes as long as silence does"
        time.sleep(0.005)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The records above INFO."""
    return [each.getMessage() for each in caplog.records if each.levelno > logging.INFO]


def leaves(endpoint: Endpoint) -> None:
    """Have the rank say goodbye as `close` does, but leave its rooms as they are."""
    rank, loop = inside(endpoint)[:2]
    loop.call(lambda: loop.submit(rank.take_leave(loop.now)))


def test_a_prefill_rank_that_is_closed_ends_its_peers_links_at_once(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    prefill, decode = pair.prefills[0], pair.decodes[0]
    prefill.close()
    within_soon(lambda: inside(decode).rank.links[1].state is not DLink.UP)
    assert inside(decode).rank.links[1].state is DLink.AWAIT_WELCOME
    within_soon(lambda: "link 1 to rank 0 of group 1 is closed" in caplog.text)
    assert not warnings(caplog)


def test_a_decode_rank_that_is_closed_ends_its_peers_links_at_once(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    prefill, decode = pair.prefills[0], pair.decodes[0]
    decode.close()
    within_soon(lambda: inside(prefill).rank.links[1].state is PLink.LOST)
    within_soon(lambda: "link 1 to rank 0 of group 2 is closed" in caplog.text)
    assert not warnings(caplog) and not prefill.reports()


@pytest.mark.parametrize("prefill_leaves", [True, False])
def test_rooms_end_as_closed_with_their_pages(
    pair: Pair, caplog: pytest.LogCaptureFixture, prefill_leaves: bool
) -> None:
    room = pair.open(TOKENS)
    within_soon(lambda: pair.prefills[0].opened_by_all(room))
    leaves(pair.prefills[0] if prefill_leaves else pair.decodes[0])

    def over() -> bool:
        pair.collect()
        return pair.over(room)

    within_soon(over)
    assert pair.causes(room) == {Cause.CLOSED} and not warnings(caplog)
    reasons = [each.reason for each in pair.outcomes.values()]
    assert all("was closed" in each for each in reasons)


def test_pages_that_are_written_wait_for_the_write_although_its_rank_has_said_goodbye(pair: Pair) -> None:
    prefill, decode = pair.prefills[0], pair.decodes[0]
    pair.fabric.auto = False
    room = pair.open(TOKENS)
    pair.produce(room)
    within_soon(lambda: inside(prefill).rank.writes)
    leaves(prefill)
    within_soon(lambda: inside(decode).rank.links[1].state is DLink.AWAIT_RETURN)
    within_soon(decode.finished)
    assert not decode.released()


def test_a_decode_rank_that_is_closed_before_it_is_answered_takes_its_call_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prefill rank is still connecting: it drops the half-made link at once."""
    wired, connect = threading.Event(), MemoryTransport.connect

    def slowly(transport: MemoryTransport, endpoint: bytes) -> PeerId:
        assert wired.wait(LIMIT)
        return connect(transport, endpoint)

    monkeypatch.setattr(MemoryTransport, "connect", slowly)
    caplog.set_level(logging.INFO)
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, ready=False) as pair:
        prefill, decode = pair.prefills[0], pair.decodes[0]
        links = inside(prefill).rank.links
        try:
            within_soon(lambda: (decode.poll(), prefill.poll(), links)[-1])
            decode.close()
            within_soon(lambda: prefill.poll() is not None and links[1].state is PLink.LOST)
        finally:
            wired.set()
        assert inside(decode).rank.links[1].state is DLink.AWAIT_WELCOME
        assert "link 1 to rank 0 of group 2 is closed" in caplog.text
        assert not warnings(caplog) and not prefill.reports()


@pytest.mark.parametrize(("session", "then"), [(1, PLink.LOST), (2, PLink.UP)])
def test_a_call_that_is_taken_back_ends_the_link_that_has_answered_it_and_no_other(session: int, then: PLink) -> None:
    rank, links = linked_prefill()
    rank.receive(links[MINE], 0, 0, Goodbye(quiet=True, session=session), 0.0)
    assert rank.links[links[MINE]].state is then


def test_a_prefill_rank_that_is_closed_waits_until_its_goodbyes_are_answered_and_no_longer(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "LINGER_S", LIMIT)
    prefill, decode = pair.prefills[0], pair.decodes[0]
    heard, began = inside(prefill).loop.heard, time.monotonic()
    heard[Goodbye] = before = 3
    prefill.close()
    assert heard[Goodbye] == before + 1
    decode.close()
    assert time.monotonic() - began < LIMIT, "a decode rank's goodbye is not answered"


def test_a_rank_takes_leave_after_a_last_pass_and_at_the_time_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer's own goodbye may be there to read: it would answer none."""
    clock, left = ManualClock(100.0), list[float]()
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, clock=lambda: clock) as pair:
        rank, loop = inside(pair.prefills[0])[:2]
        monkeypatch.setattr(loop.whole, "poll", lambda: clock.advance(1.0))
        monkeypatch.setattr(rank, "take_leave", lambda now: [left.append(now)][:0])  # type: ignore[func-returns-value]
        before = clock.now()
        pair.prefills[0].close()
        assert left == [before + 1.0]


def test_a_peer_that_does_not_answer_a_goodbye_does_not_keep_a_rank_from_being_closed() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS) as pair:
        pair.prefills[0].close()
        assert inside(pair.prefills[0]).loop.closed and not inside(pair.prefills[0]).loop.heard[Goodbye]
