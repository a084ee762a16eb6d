"""A doorbell wakes another process of the host, or fails at once; whose bell has which name."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.data import decode_data, prefill_data, prefill_wires
from kvproto.io import doorbell
from kvproto.io.control.control import Control
from kvproto.io.doorbell import LONGEST, Doorbell
from kvproto.io.transports import memory, nixl
from kvproto.layout.sharding import Layout
from kvproto.protocol.messages import StgNotify
from kvproto.protocol.notification import make_tag
from kvproto.verify.testing import Pair, inside

LAYOUT = Layout(layers=1, heads=1, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
NAMES = (f"of a test {number} in {id(count)}" for number in count())


@pytest.fixture
def name() -> str:
    return next(NAMES)


@pytest.fixture
def bell(name: str) -> Iterator[Doorbell]:
    made = Doorbell(name)
    yield made
    made.close()


def readable(bell: Doorbell) -> bool:
    return bool(select.select(bell.descriptors, [], [], 0)[0])


def test_rings_and_notes_are_seen_once_and_in_order(bell: Doorbell, name: str) -> None:
    other = Doorbell()
    assert not readable(bell) and bell.rung() == []
    assert other.ring(name) and other.tell(name, b"note") and other.ring(name)
    assert readable(bell) and bell.rung() == [b"", b"note", b""]
    assert not readable(bell) and bell.rung() == []
    other.close()


def test_a_bell_that_nobody_looks_after_takes_rings_but_no_more_notes(bell: Doorbell, name: str) -> None:
    other = Doorbell()
    # None where the system queues so many that they fill the other's buffer first.
    assert all(other.ring(name) is not False for _ in range(2000)), "it has been rung, whatever more of them"
    assert not other.tell(name, b"note"), "it would be lost"
    assert set(bell.rung()) == {b""}
    assert bell.rung() == [], "all are taken off at once"
    assert other.tell(name, b"note") and bell.rung() == [b"note"]
    other.close()


def test_whom_rings_do_not_reach_since_others_have_not_read_is_not_taken_for_rung(bell: Doorbell, name: str) -> None:
    other, stalled = Doorbell(), list[Doorbell]()
    while (rung := other.ring(name)) and len(stalled) < 1000:
        assert bell.rung() == [b""], "it has been told that the bell rings"
        stalled.append(Doorbell(into := next(NAMES)))
        while other.tell(into, b""):
            pass
    assert rung is None and not bell.rung()
    assert not other.tell(name, b"note")
    for each in stalled:
        each.rung()
    assert other.ring(name) is True and bell.rung() == [b""]
    for each in (other, *stalled):
        each.close()


@pytest.mark.parametrize("room", [True, False])
def test_a_full_queue_is_told_from_a_full_buffer_of_one_s_own(
    monkeypatch: pytest.MonkeyPatch, name: str, room: bool
) -> None:
    """The other's queue is full: that is a ring; this end's buffer is full: nothing was sent."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    while not room:
        try:
            ours.send(bytes(1 << 16))
        except BlockingIOError:
            break

    class Full:
        def sendto(self, *_: object) -> None:
            raise BlockingIOError

        def fileno(self) -> int:
            return ours.fileno()

    other = Doorbell()
    with monkeypatch.context() as patch:
        patch.setattr(other, "_line", Full())
        assert other.ring(name) is (True if room else None)
        assert other.tell(name, b"note") is False
    for each in (other, ours, theirs):
        each.close()


def test_no_more_rings_are_taken_off_at_once_than_a_pass_has_time_for(
    bell: Doorbell, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "MOST", 2)
    other = Doorbell()
    for _ in range(3):
        assert other.ring(name)
    assert [len(bell.rung()) for _ in range(3)] == [2, 1, 0]
    other.close()


def test_a_note_that_is_too_long_is_cut(bell: Doorbell, name: str) -> None:
    other = Doorbell()
    assert other.tell(name, b"x" * (LONGEST + 1))
    assert bell.rung() == [b"x" * LONGEST]
    assert LONGEST > nixl.MAX_TAG and LONGEST > memory.MAX_TAG
    other.close()


def test_another_process_rings(bell: Doorbell, name: str) -> None:
    program = f"from kvproto.io.doorbell import Doorbell; assert Doorbell().ring({name!r})"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[1])
    assert bell.rung()


def test_a_loop_s_sleep_ends_by_a_ring(bell: Doorbell, name: str) -> None:
    control = Control()
    assert not control.wait(0.001, bell.descriptors)
    other = Doorbell()
    other.ring(name)
    assert control.wait(60.0, bell.descriptors)
    control.close(0.1)
    other.close()


def test_where_nobody_has_the_name_ringing_fails_at_once(bell: Doorbell, name: str) -> None:
    assert not bell.ring(next(NAMES))
    assert not bell.tell(next(NAMES), b"note")
    assert not bell.ring("long " * 30), "no socket has such a name"
    line = bell._line
    bell.close()
    other = Doorbell()
    assert not other.ring(name), "a name ends with its socket"
    assert line is not None and line.fileno() == -1
    other.close()
    assert not other.ring(name) and not other.rung() and not other.descriptors
    other.close()


@pytest.mark.parametrize("name", ["", "long " * 30])
def test_one_without_a_name_rings_and_is_not_rung(bell: Doorbell, name: str) -> None:
    other = Doorbell(name)
    assert not other.descriptors and not other.rung()
    other.close()


def test_a_name_has_one_owner(bell: Doorbell, name: str) -> None:
    second = Doorbell(name)
    assert not second.descriptors and second.ring(name)
    assert bell.rung() == [b""] and not second.rung()
    second.close()


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_without_such_sockets_nobody_rings(
    monkeypatch: pytest.MonkeyPatch, bell: Doorbell, name: str, error: type[Exception]
) -> None:
    def fails(*_: object) -> None:
        raise error("planted")

    monkeypatch.setattr(socket, "socket", fails)
    other = Doorbell(next(NAMES))
    assert not other.ring(name) and not other.descriptors and not other.rung()
    other.close()


class Hung:
    """Stands in for a doorbell, which has a note at each look."""

    def __init__(self, name: str) -> None:
        self.name, self.closed, self.descriptors = name, False, [7] if name else []
        self.notes = list[bytes]()

    def rung(self) -> list[bytes]:
        taken, self.notes = self.notes, []
        return taken

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("polled", [False, True])
def test_a_decode_rank_s_hangs_under_the_name_by_which_writers_know_its_memory(
    monkeypatch: pytest.MonkeyPatch, polled: bool
) -> None:
    monkeypatch.setattr(decode_data, "Doorbell", Hung)
    with Pair(LAYOUT, LAYOUT, chunk_tokens=16) as pair:
        make = pair.transport

        def transport() -> Any:
            made: Any = make()
            made.caps = replace(made.caps, needs_target_progress=polled)
            return made

        pair.transport = transport  # type: ignore[method-assign]
        decode = pair.make_decode(0)
        data: Any = inside(decode).data
        first = data.bell
        assert first.name == (data.transport.instance if polled else "")
        assert data.loop.bells == ([7] if polled else []), "and it ends every sleep"
        data.next = pair.transport()
        data.succeed()
        assert first.closed and data.bell is not first
        assert data.bell.name == (data.transport.instance if polled else "")
        decode.close()
        assert data.bell.closed


def test_what_is_left_at_a_decode_rank_s_door_is_heard_as_a_transport_s_notes_are(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_data, "Doorbell", Hung)
    with Pair(LAYOUT, LAYOUT, chunk_tokens=16) as pair:
        decode = pair.make_decode(0)
        parts: Any = inside(decode)
        heard = list[Any]()

        def receive(*about: Any) -> list[Any]:
            heard.append(about)
            return []

        monkeypatch.setattr(parts.rank, "receive", receive)
        assert not decode.poll()
        parts.data.bell.notes = [b""]
        assert decode.poll() and not heard, "a ring says nothing, and the loop goes on to poll"
        parts.data.bell.notes = [b"no note", make_tag(0, 0, [(1, 2, StgNotify(3, 4))]), b""]
        assert decode.poll()
        assert [about[1:4] for about in heard] == [(1, 2, StgNotify(3, 4))]
        assert parts.loop.counts["malformed notes"] == 1 and not parts.loop.counts["faults"]
        decode.close()


@pytest.mark.parametrize("side", [decode_data, prefill_data])
def test_one_that_hangs_for_an_endpoint_that_cannot_be_made_is_taken_down(
    monkeypatch: pytest.MonkeyPatch, side: ModuleType
) -> None:
    hung = list[Hung]()

    def hang(name: str = "") -> Hung:
        hung.append(Hung(name))
        return hung[-1]

    def fails(*_: object) -> None:
        raise OSError("planted")

    with Pair(LAYOUT, LAYOUT, chunk_tokens=16) as pair:
        monkeypatch.setattr(decode_data if side is decode_data else prefill_wires, "Doorbell", hang)
        monkeypatch.setattr(side, "costs_profile", fails)
        with pytest.raises(OSError, match="planted"):
            (pair.make_decode if side is decode_data else pair.make_prefill)(0)
    assert [each.closed for each in hung] == [True]
