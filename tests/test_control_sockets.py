"""Sockets of the control plane, called by hand: options, messages, and what a failed attempt leaves."""

from __future__ import annotations

import errno
import re
import sys
from collections import Counter
from collections.abc import Iterator
from socket import create_connection, create_server
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from kvproto.io.control import sockets
from kvproto.io.control.bundle import READS, packed
from kvproto.io.control.gate import MONITORED
from kvproto.io.control.sockets import LISTENER, LOOPBACK, MAX_INT, ControlError, ControlSocket, Peer, dial, listen
from kvproto.io.control.standing import Standing
from kvproto.io.control.unanswered import Unanswered
from kvproto.io.control.unread import Unread

MAX_FRAME = 1 << 16


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as made:
        yield made


class Socket:
    """A socket without input that notes what it sends."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def get(self, _option: int) -> int:
        return 0

    def send(self, part: bytes, _flags: int) -> None:
        self.sent.append(part)

    def recv(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing has come")


def test_only_peers_that_read_them_get_frames_packed() -> None:
    for peer, name, frames, sent in (
        (None, READS + b"new", [b"a", b"b"], [READS + b"new", packed([b"a", b"b"])]),
        (None, READS + b"new", [b"a"], [READS + b"new", b"a"]),
        (None, b"earlier", [b"a", b"b"], [b"earlier", b"a", b"b"]),
        (Peer(1, b"dialled"), READS + b"new", [b"a", b"b"], [b"a", b"b"]),
    ):
        socket: Any = Socket()
        assert ControlSocket(LISTENER, socket, peer).post(name, frames)
        assert socket.sent == sent


def test_a_socket_that_has_dialled_learns_of_a_lost_connection_before_it_reads() -> None:
    socket: Any = Socket()
    frames = list[tuple[Peer, bytes]]()
    assert ControlSocket(1, socket, Peer(1, b"dialled")).take(8, frames) is False and not frames


@pytest.mark.parametrize(("answer_s", "milliseconds"), [(2.0, 2000), (0.0001, 1), (1e9, MAX_INT)])
def test_a_dialled_connection_is_given_as_long_as_a_host_has_to_answer(
    context: zmq.Context[zmq.Socket[bytes]], answer_s: float, milliseconds: int
) -> None:
    socket, _, standing = dial(context, 1, "tcp://127.0.0.1:9", MAX_FRAME, None, Unanswered(answer_s))
    assert socket._socket.get(zmq.CONNECT_TIMEOUT) == milliseconds
    standing.close()
    socket.close()


#: options of every socket, and of one that dials: the least and the most
OPTIONS = {
    zmq.LINGER: (0, 0), zmq.SNDHWM: (16, 256), zmq.RCVHWM: (16, 256), zmq.TCP_KEEPALIVE: (1, 1),
    zmq.TCP_KEEPALIVE_IDLE: (30, 300), zmq.TCP_KEEPALIVE_INTVL: (5, 60), zmq.TCP_KEEPALIVE_CNT: (3, 9),
    zmq.HANDSHAKE_IVL: (2_000, 10_000),
}  # fmt: skip
DIALS = {zmq.IMMEDIATE: (1, 1), zmq.RECONNECT_IVL: (5, 50), zmq.RECONNECT_IVL_MAX: (200, 5_000)}


def test_no_socket_has_what_libzmq_does_by_default(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    away, gone = Counter[str](), Unanswered(1.0)
    listens, gate, _ = listen(context, LOOPBACK, MAX_FRAME, None, away, Unread(MAX_FRAME, away), gone)
    dials, _, standing = dial(context, 1, "tcp://127.0.0.1:9", MAX_FRAME, None, gone)
    plain = context.socket(zmq.DEALER)
    for socket, options in ((listens._socket, OPTIONS), (dials._socket, OPTIONS | DIALS)):
        for option, (least, most) in options.items():
            assert least <= int(socket.get(option)) <= most, option
            assert not least <= int(plain.get(option)) <= most, option
    plain.close()
    for each in (standing, dials, gate, listens):
        each.close()


@pytest.mark.parametrize("address", ["nowhere", "tcp://127.0.0.1:\ud800"], ids=["no transport", "no text"])
def test_what_cannot_be_dialled_leaves_nothing_open(context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
    closed, close = list[int](), Standing.close
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Standing, "close", lambda it: closed.append(it.number) or close(it))  # type: ignore[func-returns-value]
        with pytest.raises(ControlError, match=re.escape(f"cannot connect to {address!r}")):
            dial(context, 4, address, MAX_FRAME, None, Unanswered(1.0))
    assert closed == [-6], "each has a number of its own, below those of the gate"


def test_where_the_second_socket_of_a_dial_is_not_to_be_had_the_first_is_closed(
    context: zmq.Context[zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = list[zmq.Socket[bytes]]()

    def none(_context: object, socket: zmq.Socket[bytes], *_: object) -> None:
        dialled.append(socket)
        raise zmq.ZMQError(errno.EMFILE)

    monkeypatch.setattr("kvproto.io.control.sockets.Standing", none)
    with pytest.raises(ControlError, match="no socket to be had"):
        dial(context, 1, "tcp://127.0.0.1:9", MAX_FRAME, None, Unanswered(1.0))
    assert [socket.closed for socket in dialled] == [True]


def test_a_connection_that_is_lost_is_not_asked_after_any_more(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    asked = list[tuple[str, int, int]]()
    told: Any = SimpleNamespace(
        add=lambda by, fd: asked.append(("add", by, fd)), remove=lambda by, fd: asked.append(("remove", by, fd))
    )  # fmt: skip
    with context.socket(zmq.DEALER) as dialled:
        standing = Standing(context, dialled, 3, told)
        stands = list[bool]()
        for event, told_of in (
            (zmq.EVENT_CONNECTED, 17), (zmq.EVENT_HANDSHAKE_SUCCEEDED, 18), (zmq.EVENT_DISCONNECTED, 19)
        ):  # fmt: skip
            standing._serve([MONITORED.pack(event, told_of)])
            stands.append(standing.stands)
        standing.close()
    assert (asked, stands) == ([("add", -5, 17), ("remove", -5, 19)], [False, True, False])


@pytest.mark.skipif(sys.platform != "linux", reason="connections are watched on Linux alone")
def test_two_links_that_exchange_descriptors_are_both_watched(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    watched = Unanswered(1.0)
    with (
        create_server(("127.0.0.1", 0)) as server, create_connection(server.getsockname()) as one,
        create_connection(server.getsockname()) as other, context.socket(zmq.DEALER) as first,
        context.socket(zmq.DEALER) as second,
    ):  # fmt: skip
        links = [Standing(context, dialled, number, watched) for number, dialled in enumerate((first, second), 1)]
        had = one.fileno(), other.fileno()
        for link, fd in zip(links, had, strict=True):
            link._serve([MONITORED.pack(zmq.EVENT_CONNECTED, fd)])
        # Each monitor has a socket of its own, and the first one is read to its end before the second one.
        for link, lost, found in zip(links, had, reversed(had), strict=True):
            link._serve([MONITORED.pack(zmq.EVENT_DISCONNECTED, lost)])
            link._serve([MONITORED.pack(zmq.EVENT_CONNECTED, found)])
        assert len(watched) == 2
        for link in links:
            link.close()


def test_the_gate_is_told_of_those_that_watch_connections(
    context: zmq.Context[zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[Any]()

    def handshakes(*about: Any) -> Any:
        given.extend(about)
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(sockets, "Handshakes", handshakes)
    away = Counter[str]()
    unread, unanswered = Unread(MAX_FRAME, away), Unanswered(1.0)
    socket, _, _ = listen(context, LOOPBACK, MAX_FRAME, None, away, unread, unanswered)
    assert given == [context, socket._socket, away, unread, unanswered]
    socket.close()
