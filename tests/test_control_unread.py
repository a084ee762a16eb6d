"""A sender of endless messages loses its connection, which is counted; a finite one keeps it.

Peers are libzmq's own: its parts are one buffer that is sent again and again, which fills the receiver and not the
sender.  No assertion measures speed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from kvproto.io.control import unread
from kvproto.io.control.control import LOOPBACK, Control, Sent
from kvproto.io.control.keys import Keys, make_pair, split_key
from kvproto.io.control.unread import ADDED, ENDLESS, LOOK_S, LOOKS, SOON_S, WAITING, Unread

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system does not count a connection's bytes")
PATIENCE = 20.0
MAX_FRAME = 1 << 16
#: bytes of one message that is ended long before it is over
ENDLESS_BYTES = 2 << 30


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Keys, Keys]:
    """The keys of two peers that know each other."""
    files = [make_pair(tmp_path / name, name) for name in ("one", "two")]
    for (secret, _), (_, public) in zip(files, reversed(files), strict=True):
        (secret.parent / public.name).write_bytes(public.read_bytes())
    return Keys.load(files[0][0]), Keys.load(files[1][0])


@contextmanager
def stranger(control: Control, keys: Keys | None) -> Iterator[zmq.Socket[bytes]]:
    """A socket that speaks to it, as libzmq would."""
    place, key = split_key(str(control.address))
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        if keys is not None:
            dealer.curve_publickey, dealer.curve_secretkey, dealer.curve_serverkey = (
                keys.public,
                keys.secret,
                key or b"",
            )
        dealer.connect(place)
        yield dealer


def polled(control: Control, friend: Control, done: Callable[[], bool]) -> list[bytes]:
    """The frames that it receives until `done`; both are polled as loops do."""
    frames, deadline = list[bytes](), time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "it never happened"
        friend.receive(1)
        frames += [data for _, data in control.receive(16)]
        control.wait(0.05)
    return frames


@pytest.mark.parametrize("secure", [False, True])
def test_a_message_without_end_ends_its_connection(keys: tuple[Keys, Keys], *, secure: bool) -> None:
    listener = Control(LOOPBACK, max_frame=MAX_FRAME, keys=keys[0] if secure else None)
    friend = Control(max_frame=MAX_FRAME, keys=keys[1] if secure else None)
    there = friend.connect(str(listener.address))
    try:
        with stranger(listener, keys[1] if secure else None) as endless:
            endless.send(b"a word")
            assert friend.send(there, b"hello") is Sent.TAKEN
            heard = polled(listener, friend, lambda: listener.counts.received >= 2)
            assert sorted(heard) == [b"a word", b"hello"]
            endless.reconnect_ivl = -1
            monitor = endless.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            part = zmq.Frame(bytes(MAX_FRAME))
            endless.send_multipart([part] * (ENDLESS_BYTES // MAX_FRAME), copy=False)
            assert not polled(listener, friend, lambda: listener.counts.away[ENDLESS] > 0), (
                "none of it is handed to anybody"
            )
            assert monitor.poll(20_000), "it was not hung up on"
            endless.disable_monitor()
            monitor.close()
        assert friend.send(there, b"still here") is Sent.TAKEN
        assert polled(listener, friend, lambda: listener.counts.received >= 3) == [b"still here"]
        assert listener.counts.away == {ENDLESS: 1}
    finally:
        friend.close()
        listener.close()


def test_who_sends_much_and_ends_keeps_his_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that has slept, and then takes a message at a time, with rests in which looks are due."""
    listener, friend = Control(LOOPBACK, max_frame=MAX_FRAME), Control(max_frame=MAX_FRAME)
    there, count, judged = friend.connect(str(listener.address)), 8 * WAITING, list[bool]()

    def judge(watch: Unread, *, emptied: bool, judge: Callable[..., None] = Unread.judge) -> None:
        judged.append(emptied)
        judge(watch, emptied=emptied)

    monkeypatch.setattr(Unread, "judge", judge)
    try:
        for at in range(count):
            assert friend.send(there, at.to_bytes(2, "big") * (MAX_FRAME // 2))
        deadline, numbers = time.monotonic() + PATIENCE, list[int]()
        while len(numbers) < count:
            assert time.monotonic() < deadline
            friend.receive(1)
            numbers += [int.from_bytes(data[:2], "big") for _, data in listener.receive(1)]
            time.sleep(LOOK_S if len(numbers) % WAITING == 1 else 0.0)
        assert judged, "somebody was suspected"
        assert numbers == list(range(count)) and not listener.counts.away
    finally:
        friend.close()
        listener.close()


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            yield near, far


def fed(near: socket.socket, far: socket.socket, nbytes: int) -> None:
    while nbytes:
        near.sendall(bytes(piece := min(nbytes, 1 << 14)))
        nbytes -= len(far.recv(piece, socket.MSG_WAITALL))


def suspicion(watch: Unread) -> Any:
    return watch.spoken


def looked(watch: Unread, now: float, *, emptied: bool = True) -> None:
    watch.look(now)
    if watch.spoken is not None:
        watch.judge(emptied=emptied)


def test_who_has_spoken_is_acquitted_and_who_has_not_may_have_much_waiting() -> None:
    away = Counter[str]()
    watch, most = Unread(MAX_FRAME, away), MAX_FRAME + ADDED
    with connection() as (near, far):
        watch.add(far.fileno())
        fed(near, far, most + 1)
        looked(watch, 1.0)
        assert suspicion(watch) == set()
        suspicion(watch).add(far.fileno())
        looked(watch, 2.0)
        assert suspicion(watch) is None, "acquitted"
        fed(near, far, 2 * most + 2)
        looked(watch, 3.0)
        fed(near, far, most + 1)
        looked(watch, 4.0, emptied=False)
        assert suspicion(watch) == set() and not away, "his messages may be waiting"
        fed(near, far, WAITING * most)
        looked(watch, 5.0, emptied=False)
        assert away == {ENDLESS: 1} and near.recv(1) == b"" and not len(watch), "so many cannot be"


def test_a_message_of_the_longest_is_not_suspicious_and_one_byte_more_is() -> None:
    away = Counter[str]()
    watch, most = Unread(MAX_FRAME, away), MAX_FRAME + ADDED
    with connection() as (near, far):
        watch.add(far.fileno())
        fed(near, far, most)
        looked(watch, 1.0)
        assert watch.spoken is None and watch.due == 1.0 + LOOK_S / LOOKS
        fed(near, far, 1)
        looked(watch, 2.0)
        assert suspicion(watch) == set() and watch.due == 2.0 + SOON_S
        fed(near, far, most)
        looked(watch, 2.0 + SOON_S)
        assert not away and len(watch)
        fed(near, far, 1)
        looked(watch, 2.0 + 2 * SOON_S)
        assert away == {ENDLESS: 1} and near.recv(1) == b"" and watch.spoken is None


def test_who_has_spoken_begins_anew_with_what_he_had_sent_by_then() -> None:
    watch, most = Unread(MAX_FRAME, Counter()), MAX_FRAME + ADDED
    with connection() as (near, far):
        watch.add(far.fileno())
        fed(near, far, most + 1)
        looked(watch, 1.0)
        suspicion(watch).add(far.fileno())
        fed(near, far, most)
        watch.look(2.0)
        assert suspicion(watch) == {far.fileno()}, "what was noted stays until it is judged"
        watch.judge(emptied=True)
        fed(near, far, 1)
        looked(watch, 3.0)
        assert suspicion(watch) is None


def test_every_connection_has_its_turn_and_none_is_looked_at_again_at_once() -> None:
    watch, most = Unread(MAX_FRAME, Counter()), MAX_FRAME + ADDED
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(connection()) for _ in range(LOOKS + 2)]
        for _, far in pairs:
            watch.add(far.fileno())
        fed(*pairs[-1], most + 1)
        looked(watch, 1.0)
        assert suspicion(watch) is None, "so many a look"
        looked(watch, 1.0)
        assert suspicion(watch) == set()
        looked(watch, 1.0 + LOOK_S / 2)
        fed(*pairs[0], most + 1)
        suspicion(watch).add(pairs[-1][1].fileno())
        looked(watch, 1.0 + LOOK_S / 2)
        assert suspicion(watch) is None, "its time has not come"
        looked(watch, 1.0 + LOOK_S)
        assert suspicion(watch) == set()


def test_what_waits_in_the_system_is_not_in_memory() -> None:
    watch = Unread(1, Counter())
    with connection() as (near, far):
        watch.add(far.fileno())
        near.sendall(bytes(2 * ADDED))
        watch.look(1.0)
        assert watch.spoken is None


def test_a_descriptor_that_is_another_connection_s_by_now_is_left_alone() -> None:
    away = Counter[str]()
    watch = Unread(MAX_FRAME, away)
    with connection() as (_, far), connection() as (other, others):
        fd = far.fileno()
        watch.add(fd)
        os.dup2(others.fileno(), fd)
        fed(other, others, 4 * (MAX_FRAME + ADDED))
        looked(watch, 1.0)
        assert (len(watch), watch.spoken, away) == (0, None, {})


def test_where_the_system_tells_less_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "_RECEIVED", struct.Struct("<1000xQ"))  # of more than 1024 bytes nobody is asked
    watch = Unread(MAX_FRAME, Counter())
    with connection() as (_, far):
        watch.add(far.fileno())
    assert not len(watch)


def test_a_number_that_is_a_file_s_by_now_costs_no_descriptor() -> None:
    watch = Unread(MAX_FRAME, Counter())
    here, there = os.pipe()
    try:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(8):
            watch.add(here)
        assert len(list(Path("/proc/self/fd").iterdir())) == before and not len(watch)
    finally:
        os.close(here)
        os.close(there)


def test_what_is_no_connection_is_not_watched() -> None:
    watch = Unread(MAX_FRAME, Counter())
    with connection() as (_, far):
        fd = far.fileno()
        watch.add(fd)
    watch.look(1.0)
    watch.add(fd)
    assert not len(watch)


@pytest.fixture
def accepted() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        one, _ = listener.accept()
        with one:
            yield one


@contextmanager
def no_descriptors(monkeypatch: pytest.MonkeyPatch, number: int = errno.EMFILE) -> Iterator[None]:
    """Nothing can be opened for a moment."""

    def refuse(_fd: int) -> int:
        raise OSError(number, "too many open files")

    with monkeypatch.context() as moment:
        moment.setattr(os, "dup", refuse)
        yield


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE], ids=["of the process", "of the machine"])
def test_a_connection_is_watched_on_after_a_moment_without_descriptors(
    accepted: socket.socket, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:  # fmt: skip
    watched = Unread(MAX_FRAME, Counter())
    watched.add(accepted.fileno())
    with no_descriptors(monkeypatch, number):
        watched.look(100.0)
        assert len(watched) == 1 and watched._connections[accepted.fileno()].looked == 100.0
    watched.look(200.0)
    assert len(watched) == 1 and watched._connections[accepted.fileno()].looked == 200.0


def test_a_connection_that_comes_in_a_moment_without_descriptors_is_watched_later(
    accepted: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    watched = Unread(MAX_FRAME, Counter())
    with no_descriptors(monkeypatch):
        watched.add(accepted.fileno())
    assert len(watched) == 1 and not watched._connections
    watched.look(100.0)
    assert len(watched) == 1 and list(watched._connections) == [accepted.fileno()]
    watched.remove(accepted.fileno())
    assert not watched
    with no_descriptors(monkeypatch):
        watched.add(accepted.fileno())
    watched.remove(accepted.fileno())
    assert not watched, "its number may be another connection's soon"


def test_a_suspect_is_hung_up_on_after_a_moment_without_descriptors(
    accepted: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    away = Counter[str]()
    watched, fd = Unread(MAX_FRAME, away), accepted.fileno()
    watched.add(fd)
    watched._suspects[fd] = watched._connections[fd]
    watched._connections[fd].sent += 2 * (MAX_FRAME + ADDED)
    with no_descriptors(monkeypatch):
        watched.judge(emptied=True)
    assert not away and len(watched) == 1
    watched.judge(emptied=True)
    assert away == {ENDLESS: 1} and not watched and accepted.recv(1) == b""
