"""The torture's proxy: real sockets on both sides, and every message that passes, or does not."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from multiprocessing.connection import Connection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproto.io.control.control import LOOPBACK, Control, Peer
from kvproto.lab.process_group import ParentPipe
from kvproto.lab.torture.plan import Strike, StrikeKind
from kvproto.lab.torture.proxy import Proxy
from kvproto.lab.torture.zmtp import GREETING, MessageCutter

CABLE = "D0", "P0"
LONGEST_S = 15.0


# -------------------------------------------------------------------------------------------------- messages
def frame(body: bytes, *, more: bool = False, command: bool = False) -> bytes:
    long = len(body) > 255
    flags = more | long << 1 | command << 2
    return bytes([flags]) + len(body).to_bytes(8 if long else 1, "big") + body


messages = st.lists(st.lists(st.binary(max_size=400), min_size=1, max_size=3), max_size=8)


@given(messages, st.data())
def test_in_whatever_pieces_bytes_come_the_messages_are_the_same(parts: list[list[bytes]], data: st.DataObject) -> None:
    units = [b"".join(frame(each, more=at < len(of) - 1) for at, each in enumerate(of)) for of in parts]
    units.insert(0, frame(b"\5READY", command=True))
    stream = bytes(GREETING) + b"".join(units)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))) | {0, len(stream)})
    cutter = MessageCutter()
    out = [unit for first, last in pairwise(cuts) for unit in cutter.feed(stream[first:last])]
    assert b"".join(unit for unit, _ in out) == stream
    rest = out[[sum(len(unit) for unit, _ in out[: at + 1]) for at in range(len(out))].index(GREETING) + 1 :]
    assert rest == [(unit, at > 0) for at, unit in enumerate(units)]


# ----------------------------------------------------------------------------------------------------- proxy
class ProxiedWire:
    """A prefill rank's control plane, a decode rank's, and the proxy between them on a thread."""

    def __init__(self) -> None:
        self.ours, theirs = multiprocessing.Pipe()
        self.thread = threading.Thread(target=self._serve, args=(theirs,), daemon=True)
        self.thread.start()
        self.prefill = Control(LOOPBACK)
        port = self.hear("ports")[CABLE]
        assert self.prefill.address is not None
        self.tell("lead", "P0", int(self.prefill.address.rpartition(":")[2]))
        self.decode = Control()
        self.came: dict[Control, list] = {self.prefill: [], self.decode: []}  # type: ignore[type-arg]
        self.peer = self.decode.connect(f"tcp://127.0.0.1:{port}")
        self.say("hello")
        self.back: Peer = self.prefill_heard(1)[0][0]

    def _serve(self, line: Connection) -> None:
        self.proxy = Proxy(ParentPipe(line), [CABLE])
        asyncio.run(self.proxy.serve())

    def tell(self, kind: str, *data: object) -> None:
        self.ours.send((kind, data))

    def hear(self, kind: str) -> dict[tuple[str, str], int]:
        while True:
            assert self.ours.poll(LONGEST_S)
            got, data = self.ours.recv()
            if got == kind:
                assert isinstance(data, dict)
                return data

    def suffer(self, kind: StrikeKind | None, **how: float) -> None:
        every, amount = int(how.get("every", 0)), how.get("amount", 0.0)
        ill = Strike(kind, "D0>P0", 0.0, 0.0, every=every, amount=amount) if kind else None
        self.tell("suffer", CABLE, ill)
        limit = time.monotonic() + LONGEST_S
        while self.proxy.cables[CABLE].ill != ill:
            assert time.monotonic() < limit
            time.sleep(0.002)

    def say(self, *texts: str) -> bool:
        return all(self.decode.send(self.peer, text.encode()) for text in texts)

    def answer(self, *texts: str) -> None:
        for text in texts:
            assert self.prefill.send(self.back, text.encode())

    def prefill_heard(self, count: int, seconds: float = LONGEST_S) -> list:  # type: ignore[type-arg]
        return self._heard(self.prefill, count, seconds)

    def decode_heard(self, count: int, seconds: float = LONGEST_S) -> list:  # type: ignore[type-arg]
        return self._heard(self.decode, count, seconds)

    def _heard(self, control: Control, count: int, seconds: float) -> list:  # type: ignore[type-arg]
        """So many frames, or what has come when the time is over."""
        limit = time.monotonic() + seconds
        while len(self.came[control]) < count and time.monotonic() < limit:
            for each in self.came:
                self.came[each].extend(each.receive(64))
            time.sleep(0.002)
        found, self.came[control] = self.came[control], []
        return found

    def close(self) -> None:
        self.tell("close")
        self.thread.join(LONGEST_S)
        assert not self.thread.is_alive()
        self.prefill.close()
        self.decode.close()


@pytest.fixture
def wire() -> Iterator[ProxiedWire]:
    wire = ProxiedWire()
    yield wire
    wire.close()


def texts(frames: list) -> list[str]:  # type: ignore[type-arg]
    return [frame.decode() for _, frame in frames]


NUMBERS = [str(number) for number in range(12)]


def test_without_an_ill_everything_passes_both_ways(wire: ProxiedWire) -> None:
    large = "x" * 200_000
    wire.say(*NUMBERS, large)
    assert texts(wire.prefill_heard(13)) == [*NUMBERS, large]
    wire.answer(*NUMBERS)
    assert texts(wire.decode_heard(12)) == NUMBERS


@pytest.mark.parametrize(
    ("kind", "count", "judge"),
    [
        ("double", 16, lambda got: len(got) == 16 and sorted(set(got), key=int) == NUMBERS),
        ("lose", 8, lambda got: len(got) == 8 and got == sorted(got, key=int)),
        ("mix", 12, lambda got: sorted(got, key=int) == NUMBERS and got != NUMBERS),
    ],
)
def test_every_third_one_is_hit(
    wire: ProxiedWire, kind: StrikeKind, count: int, judge: Callable[[list[str]], bool]
) -> None:
    wire.suffer(kind, every=3)
    wire.say(*NUMBERS)
    got = texts(wire.prefill_heard(count) + wire.prefill_heard(1, 0.3))
    assert judge(got), got
    wire.suffer(None)
    wire.say("and on")
    assert texts(wire.prefill_heard(1)) == ["and on"]


def test_a_late_message_comes_late_and_in_its_order(wire: ProxiedWire) -> None:
    wire.suffer("delay", amount=0.3)
    wire.say(*NUMBERS)
    assert wire.prefill_heard(1, 0.2) == []
    assert texts(wire.prefill_heard(12)) == NUMBERS


@pytest.mark.parametrize("kind", ["half-open", "half-open-back"])
def test_a_half_open_connection_carries_one_way_and_tells_nobody(wire: ProxiedWire, kind: StrikeKind) -> None:
    wire.suffer(kind)
    wire.say("there")
    wire.answer("back")
    heard = wire.decode_heard(1) if kind == "half-open" else wire.prefill_heard(1)
    assert texts(heard) == ["back" if kind == "half-open" else "there"]
    assert not (wire.prefill_heard(1, 0.5) if kind == "half-open" else wire.decode_heard(1, 0.5))
    wire.suffer(None)
    wire.say("again")
    assert texts(wire.prefill_heard(1)) == ["again"]


def test_a_cut_connection_ends_and_comes_back_when_it_may(wire: ProxiedWire) -> None:
    wire.suffer("cut")
    assert wire.prefill_heard(1, 0.3) == []
    wire.say("after the cut")
    assert wire.prefill_heard(1, 0.5) == []
    assert not wire.prefill.send(wire.back, b"to nobody") or wire.decode_heard(1, 0.2) == []
    wire.suffer(None)
    assert texts(wire.prefill_heard(1)) == ["after the cut"]


def test_a_rank_that_moved_is_found_at_its_new_port(wire: ProxiedWire) -> None:
    other = Control(LOOPBACK)
    assert other.address is not None
    wire.tell("lead", "P0", int(other.address.rpartition(":")[2]))
    wire.tell("move", "P0")
    port = wire.hear("ports")[CABLE]
    peer = wire.decode.connect(f"tcp://127.0.0.1:{port}")
    wire.decode.send(peer, b"moved")
    limit = time.monotonic() + LONGEST_S
    found: list = []  # type: ignore[type-arg]
    while not found and time.monotonic() < limit:
        wire.decode.receive(8)
        found += other.receive(8)
    other.close()
    assert texts(found) == ["moved"]
