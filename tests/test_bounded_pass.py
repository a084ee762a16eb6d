"""A pass of the loop has bounded cost, whatever arrives: plans of large layouts, many expensive
frames.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import zmq
from support.stories import layout
from support.wiretap import Stranger

from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.clock import ManualClock
from kvproto.io.control.sockets import Peer
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.contacts import Contacts, Share
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import MAX_RANKS, Layout
from kvproto.loop.connector import WireUp
from kvproto.loop.event_loop import EVERY, PASS_S
from kvproto.loop.rank_loop import CALLS
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import encode
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.events import WiredUp, WireFailed
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise

MODEL: dict[str, Any] = {"layers": 64, "heads": 64, "k_dim": 2, "v_dim": 2, "itemsize": 2, "dtype": "bfloat16"}
CHUNK_TOKENS = 512
SHAPES = [(512, 1), (8, 64), (64, 8), (1, 64), (256, 2)]


class DearClock(ManualClock):
    """A clock on which each reading of what a pass has taken is `cost` seconds after the last one."""

    cost = 0.0

    def real(self) -> float:
        self._real = getattr(self, "_real", 0.0) + self.cost
        return self._real


@pytest.mark.parametrize("ours", SHAPES)
@pytest.mark.parametrize("theirs", SHAPES)
def test_a_rank_pays_for_the_ranks_that_it_meets(
    monkeypatch: pytest.MonkeyPatch, ours: tuple[int, int], theirs: tuple[int, int]
) -> None:
    """Not for all pairs: 512 ranks to 512 may be 262,144."""
    made = list[tuple[int, int]]()
    meet = Contacts.meet

    def counted(self: Contacts, writer: int, reader: int) -> Share:
        made.append((writer, reader))
        return meet(self, writer, reader)

    monkeypatch.setattr(Contacts, "meet", counted)
    prefill, decode = (Layout(**MODEL, page_size=16, tp=tp, pp=pp) for tp, pp in (ours, theirs))
    plan = Plan(prefill, decode, CHUNK_TOKENS)
    assert not made
    leads = [plan.lead(reader) for reader in plan.linked(0)]
    assert len(leads) <= decode.ranks <= MAX_RANKS
    assert len(plan.duties(0)) == len(made) <= decode.ranks
    plan.writers(0), plan.duties(0), plan.writers(0)
    assert len(made) <= decode.ranks + prefill.ranks


def layouts() -> Iterator[Layout]:
    """Different ones of many ranks, as a caller may name them."""
    for page_size in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        for tp, pp in SHAPES:
            yield Layout(**MODEL, page_size=page_size, tp=tp, pp=pp)


def test_callers_of_large_layouts_do_not_hold_up_a_pass() -> None:
    """Fifty strangers call at once, each with another layout; the loop answers them, and no pass is long.

    With plans of all pairs one such call took 20 to 300 ms, and all of them were one pass.
    """
    ours = Layout(**MODEL, page_size=16, tp=64, pp=8)
    transport = MemoryTransport(Fabric(auto=True))
    with PrefillEndpoint(
        ours, 0, noise(ours, 0, 40, 1), transport, chunk_tokens=CHUNK_TOKENS
    ) as prefill, zmq.Context() as context:
        rank = inside(prefill).rank
        calls = [msg.Hello(msg.VERSION, tables_digest(), 1, 100 + at, 0, held, CHUNK_TOKENS, rank.lease, b"")
                 for at, held in enumerate(layouts())]  # fmt: skip
        sockets = [context.socket(zmq.DEALER) for _ in calls]
        for socket, call in zip(sockets, calls, strict=True):
            socket.connect(prefill.address)
            socket.send(encode(0, 0, call))
        time.sleep(0.5)
        deadline, longest = time.monotonic() + 20.0, 0.0
        while len(rank.links) < len(calls) and time.monotonic() < deadline:
            began = time.thread_time()
            prefill.poll()
            longest = max(longest, time.thread_time() - began)
        for socket in sockets:
            socket.close(linger=0)
    assert len(rank.links) == len(calls)
    assert longest < 20 * PASS_S


def test_a_pass_of_dear_frames_ends_and_the_rest_comes_in_the_next() -> None:
    clock, ours, transport = DearClock(), layout(1), MemoryTransport(Fabric(auto=True))
    with PrefillEndpoint(ours, 0, noise(ours, 0, 8, 1), transport, chunk_tokens=8, clock=clock) as prefill:
        loop, heard = inside(prefill).loop, list[bytes]()
        stranger = Stranger(prefill.address)
        while not stranger.heard():
            prefill.poll()
            time.sleep(0.01)
        loop.hear = lambda peer, frame: heard.append(frame)  # type: ignore[method-assign]
        clock.cost = PASS_S
        frames = [b"%d" % at for at in range(10 * EVERY)]
        for frame in frames:
            stranger.say(frame)
        time.sleep(0.2)  # most of them are there before the first pass
        shares, ended = list[tuple[int, bool]](), time.monotonic() + 20.0
        while heard[-1:] != frames[-1:] and time.monotonic() < ended:
            before = len(heard)
            stranger.flush()
            prefill.poll()
            shares.append((len(heard) - before, prefill.next_deadline == 0.0))
            if len(heard) == before:
                stranger.control.receive(16)  # what its socket had no room for goes on
                time.sleep(0.01)  # they are under way
        stranger.close()
    # What the stranger said before, to be heard at all, may come first.
    assert heard[-len(frames) :] == frames
    assert max(share for share, _ in shares) <= 2 * EVERY
    assert any(again for _, again in shares), "a pass that leaves frames asks for another at once"


def test_a_pass_of_dear_calls_ends_and_the_rest_comes_in_the_next() -> None:
    clock = DearClock()
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        endpoint, done = pair.decodes[0], list[int]()
        clock.cost = PASS_S
        for at in range(10 * EVERY):
            inside(endpoint).loop.call(partial(done.append, at))
        endpoint.poll()
        assert 0 < len(done) <= 2 * EVERY
        assert endpoint.next_deadline == 0.0
        while endpoint.next_deadline == 0.0:
            endpoint.poll()
    assert done == list(range(10 * EVERY))


def test_of_a_links_calls_the_latest_alone_waits_for_the_thread() -> None:
    first, told, began = threading.Event(), list[WiredUp | WireFailed](), threading.Event()
    transport = MemoryTransport(Fabric(auto=True))
    wire_up = WireUp(transport, lambda event, _peer: told.append(event))

    def slow() -> None:
        began.set()
        first.wait(10.0)

    wire_up.connect(1, 1, b"", slow)
    assert began.wait(10.0)
    for session in range(2, 500):
        wire_up.connect(1, session, b"", lambda: None)
    first.set()
    wire_up._pool.shutdown(wait=True)
    assert [event.session for event in told] == [1, 499] and wire_up.under_way == len(told)
    transport.close()


def test_who_calls_again_and_again_is_heard_a_few_times_a_second() -> None:
    """By connection: somebody else's calls are heard meanwhile, and what was put off is said again anyway."""
    clock = ManualClock(100.0)
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        loop, rank = inside(pair.prefills[0]).loop, inside(pair.prefills[0]).rank

        def call(name: bytes, group: int, session: int) -> None:
            said = msg.Hello(msg.VERSION, tables_digest(), session, group, 0, layout(1), 8, rank.lease, b"")
            loop.hear(Peer(0, name), encode(0, 0, said))

        def session_of(group: int) -> int:
            return int(rank.links[rank.link_of[group, 0]].session)

        for session in range(1, 101):
            call(b"in a hurry", 77, session)
        assert session_of(77) == CALLS and loop.counts["calls put off, too many a second"] == 100 - CALLS
        call(b"another", 78, 1)
        assert session_of(78) == 1
        clock.advance(1.1)
        pair.prefills[0].poll()
        call(b"in a hurry", 77, 101)
        assert session_of(77) == 101
