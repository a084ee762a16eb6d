"""A peer that misses beats while its process lives keeps its link: its engine compiles, for example.

The kernel acknowledges for it meanwhile, so the connection stands.  A process that is killed loses it, and its link, as
soon as ever (`test_faults_processes`); a loop that never runs again is given up after `Timing.silence`.
"""

from __future__ import annotations

import ctypes
import errno
import multiprocessing
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

import pytest
from msgspec.structs import replace
from support.stories import layout

from kvproto.endpoint.endpoint import SILENCES, Endpoint
from kvproto.fsm.timing import Timer
from kvproto.io.control import unanswered
from kvproto.io.control.control import LOOPBACK, Control, Peer, Sent
from kvproto.io.control.unanswered import TIMES, Unanswered
from kvproto.io.control.unread import held
from kvproto.protocol.states import DLink, PLink
from kvproto.protocol.timing import Timing
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import SMALL, Pair

CHUNK_TOKENS, TOKENS = 8, 20
BEATS = Timer(0.05, 4)
#: seconds after which beats that are missed would end a link
MISSED = BEATS.period * (BEATS.tries + 1)
UP = (PLink.UP, DLink.UP)
LIMIT = 60.0
#: more bytes than kernels of both ends hold, and libzmq's pipes
FRAMES, FRAME = 1000, 1 << 16
#: Linux's: a filter that drops all, and the option that gives a socket a filter
RETURN, ATTACH_FILTER = 0x06, 26


def pair_of(silence: float) -> Pair:
    """Two ranks that beat fast, and bear so many seconds without beats of one that lives."""
    timing = Timing(heartbeat=BEATS, silence=Timer(silence))
    return Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, settings=replace(SMALL, timing=timing))


def drive(ends: Sequence[Endpoint], done: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not done():
        for each in ends:
            each.poll()
        time.sleep(1e-3)
        assert time.monotonic() < end


@pytest.mark.parametrize("prefill_is_silent", [True, False])
def test_a_room_goes_on_after_a_loop_did_not_run_for_longer_than_beats_may_be_missed(prefill_is_silent: bool) -> None:
    with pair_of(60.0) as pair:
        room = pair.open(TOKENS)
        pair.pump(lambda: pair.prefills[0].opened_by_all(room))
        pair.settle()  # a beat that came later would end the silence, and another one would be counted
        awake = [pair.decodes[0] if prefill_is_silent else pair.prefills[0]]
        until = time.monotonic() + 3 * MISSED
        drive(awake, lambda: time.monotonic() > until)
        assert inside(awake[0]).rank.links[1].state in UP and awake[0].metrics()[SILENCES] == 1
        pair.finish(room)
        pair.check(room)
        assert not awake[0].reports()


@pytest.mark.parametrize("prefill_is_silent", [True, False])
def test_a_loop_that_does_not_run_again_is_given_up_after_a_bounded_silence(prefill_is_silent: bool) -> None:
    with pair_of(2 * MISSED) as pair:
        pair.settle()
        awake = pair.decodes[0] if prefill_is_silent else pair.prefills[0]
        drive([awake], lambda: inside(awake).rank.links[1].state not in UP)
        assert awake.metrics()[SILENCES] == 1 and any("is lost" in each for each in awake.reports())


# ------------------------------------------------------------------------------------- what a connection tells
def holding(pipe: Connection, seconds: float) -> None:
    """Runs in a process of its own: connect, say a word, and hold Python's lock."""
    control = Control()
    peer = control.connect(pipe.recv())
    control.send(peer, b"here")
    while not control.receive(1):
        control.wait(0.01)
    pipe.send("held")
    ctypes.PyDLL(None).usleep(round(seconds * 1e6))
    pipe.recv()


def stands_for(control: Control, peer: Peer, seconds: float) -> bool:
    """Whether the peer stands throughout that time, as frames are sent to it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        control.send(peer, b"beat")
        control.receive(8)
        if not control.stands(peer):
            return False
        time.sleep(0.01)
    return True


def test_a_process_that_holds_the_lock_stands_and_one_that_is_killed_does_not() -> None:
    control = Control(LOOPBACK, answer_s=0.5)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=holding, args=(theirs, LIMIT), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process shows
    try:
        ours.send(control.address)
        end, got = time.monotonic() + LIMIT, list[tuple[Peer, bytes]]()
        while not got:
            got = control.receive(1)
            assert time.monotonic() < end
        peer = got[0][0]
        control.send(peer, b"answer")
        while not ours.poll(0.01):
            control.receive(1)
            assert time.monotonic() < end
        assert ours.recv() == "held"
        assert stands_for(control, peer, 1.5), "its kernel acknowledges"
        process.kill()
        assert not stands_for(control, peer, LIMIT)
    finally:
        process.kill()
        control.close()


def test_a_connection_that_we_have_dialled_stands_until_its_other_end_goes() -> None:
    listener, dialler = Control(LOOPBACK), Control()
    try:
        assert listener.address is not None
        peer = dialler.connect(listener.address)
        assert not dialler.stands(peer)
        end = time.monotonic() + LIMIT
        while not dialler.stands(peer):
            listener.receive(1), dialler.receive(1)
            assert time.monotonic() < end
        listener.close()
        while dialler.stands(peer):
            dialler.receive(1)
            assert time.monotonic() < end
        dialler.disconnect(peer)
        assert not dialler.stands(peer)
    finally:
        listener.close()
        dialler.close()


# --------------------------------------------------------------------- a kernel that has no room, and one that is gone
def linked(answer_s: float) -> tuple[Control, Control, Peer, Peer]:
    """Two ends: who listens, who has dialled, and how each knows the other."""
    listener, dialler = Control(LOOPBACK, answer_s=answer_s), Control(answer_s=answer_s)
    assert listener.address is not None
    there = dialler.connect(listener.address)
    dialler.send(there, b"here")
    end, got = time.monotonic() + LIMIT, list[tuple[Peer, bytes]]()
    while not (got := got or listener.receive(1)) or not dialler.stands(there):
        dialler.receive(1)
        assert time.monotonic() < end
    return listener, dialler, there, got[0][0]


@pytest.mark.parametrize("dialler_is_busy", [True, False])
def test_a_peer_that_reads_nothing_and_is_sent_more_than_its_kernel_holds_keeps_its_connection(
    dialler_is_busy: bool,
) -> None:
    listener, dialler, there, here = linked(0.3)
    try:
        awake, busy, peer = (listener, dialler, here) if dialler_is_busy else (dialler, listener, there)
        for number in range(FRAMES):
            assert awake.send(peer, number.to_bytes(4, "big") + bytes(FRAME)) is Sent.TAKEN
        assert stands_for(awake, peer, 1.5), "its kernel acknowledges, and says that it has no room"
        end, got = time.monotonic() + LIMIT, list[int]()
        while len(got) < FRAMES:
            got += [int.from_bytes(frame[:4], "big") for _, frame in busy.receive(64) if len(frame) > FRAME]
            awake.receive(64)
            assert time.monotonic() < end
        assert got == list(range(FRAMES))
    finally:
        listener.close()
        dialler.close()


def deafen(end: Control) -> None:
    """Have this end's kernel drop what comes over its connection, as a host that is gone does."""
    ((_, fd),) = end._unanswered._cookies
    with held(fd) as connection:
        drop = ctypes.create_string_buffer(struct.pack("=HBBI", RETURN, 0, 0, 0))
        program = struct.pack("@HP", 1, ctypes.addressof(drop))
        connection.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, program)


@pytest.mark.skipif(sys.platform != "linux", reason="connections are watched on Linux alone")
@pytest.mark.parametrize("frames", [0, FRAMES])
@pytest.mark.parametrize("dialler_is_gone", [True, False])
def test_a_connection_falls_whose_host_acknowledges_nothing_whether_or_not_it_had_room(
    dialler_is_gone: bool, frames: int
) -> None:
    listener, dialler, there, here = linked(0.3)
    try:
        awake, gone, peer = (listener, dialler, here) if dialler_is_gone else (dialler, listener, there)
        for _ in range(frames):
            awake.send(peer, bytes(FRAME))
        assert stands_for(awake, peer, 0.1)
        deafen(gone)
        assert not stands_for(awake, peer, LIMIT)
    finally:
        listener.close()
        dialler.close()


@pytest.mark.skipif(sys.platform != "linux", reason="connections are watched on Linux alone")
def test_a_descriptor_that_is_another_connection_by_now_is_left_alone() -> None:
    watched, now = Unanswered(0.3), time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        watched.add(-2, one.fileno())
        watched.look(now)
        assert len(watched) == 1 and watched.due == pytest.approx(now + 0.3 / TIMES)
        with socket.create_connection(server.getsockname()) as other:
            os.dup2(other.fileno(), one.fileno())
            watched.look(now)
            assert not len(watched)
            other.send(b"it stands")


@pytest.mark.skipif(sys.platform != "linux", reason="connections are watched on Linux alone")
def test_a_monitor_that_reports_late_takes_no_other_monitor_s_connection_away() -> None:
    watched = Unanswered(0.3)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        fd = one.fileno()
        watched.add(-3, fd)  # the former owner of the descriptor, whose connection is over
        watched.add(-4, fd)
        watched.remove(-3, fd)
        assert len(watched) == 1
        watched.look(time.monotonic())
        assert len(watched) == 1
        watched.remove(-4, fd)
        assert not len(watched)


class Asking:
    """A connection on which this kernel has asked so often, and was answered so long ago."""

    def __init__(self, repeated: int = 0, probes: int = 0, ago_ms: int = 0) -> None:
        self.told, self.looks, self.shut = struct.pack("<2xBB52xI", repeated, probes, ago_ms), 0, False

    def getsockopt(self, _level: int, option: int, size: int) -> bytes:
        self.looks += option == socket.TCP_INFO
        return self.told if option == socket.TCP_INFO and size == len(self.told) else b"one"

    def shutdown(self, how: int) -> None:
        assert how == socket.SHUT_RDWR
        self.shut = True


def watching(connections: Sequence[Asking], monkeypatch: pytest.MonkeyPatch) -> Unanswered:
    """These, watched for 0.3 s; their descriptors are their numbers."""

    @contextmanager
    def hold(fd: int) -> Iterator[Asking]:
        yield connections[fd]

    monkeypatch.setattr(unanswered, "held", hold)
    watched = Unanswered(0.3)
    for fd in range(len(connections)):
        watched._cookies[-2, fd] = b"one"
    return watched


@pytest.mark.parametrize(
    ("repeated", "probes", "ago_ms", "over"),
    [
        (3, 0, 300, True), (0, 3, 300, True), (3, 2, 5000, True), (3, 0, 299, False), (0, 3, 299, False),
        (2, 2, 5000, False), (0, 0, 5000, False),
    ],
)  # fmt: skip
def test_a_connection_is_shut_after_three_questions_and_a_time_without_an_answer(
    repeated: int, probes: int, ago_ms: int, over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Asking(repeated, probes, ago_ms)
    watched = watching([one], monkeypatch)
    assert watched.due == 0.0
    watched.look(7.0)
    assert one.shut is over and len(watched) == (not over)
    assert watched.due == pytest.approx(7.075)


def test_many_connections_are_looked_at_in_turn_and_the_sooner_the_more_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = [Asking() for _ in range(16)]
    watched = watching(connections, monkeypatch)
    for looks in ([1] * 8 + [0] * 8, [1] * 16, [2] * 8 + [1] * 8):
        watched.look(7.0)
        assert [each.looks for each in connections] == looks
    assert watched.due == pytest.approx(7.0375)
    watched.remove(-2, 0)
    watched.remove(-2, 0)
    assert len(watched) == 15


def test_what_is_closed_is_not_kept_and_what_cannot_be_held_for_a_moment_is(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watching([Asking()], monkeypatch)
    for number, kept in ((errno.EMFILE, 1), (errno.EBADF, 0)):
        monkeypatch.setattr(unanswered, "held", _raising(OSError(number, "")))
        watched.look(0.0)
        assert len(watched) == kept
    watched.add(-2, 0)
    assert not len(watched)


def _raising(error: Exception) -> Callable[[int], None]:
    def hold(_fd: int) -> None:
        raise error

    return hold
