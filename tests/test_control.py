"""The control plane between sockets, threads and processes.

Peers here really are killed, stopped, restarted and made to talk nonsense. No assertion measures speed: a
wait of PATIENCE seconds only ends a test that hangs.
"""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import resource
import secrets
import signal
import socket
import threading
import time
import weakref
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import zmq
from support.stories import layout

from kvproto.io.control import watched
from kvproto.io.control.bundle import BUNDLE
from kvproto.io.control.control import LOOPBACK, Control, ControlError, Peer, Sent
from kvproto.io.control.gate import Gate
from kvproto.io.control.keys import Keys, make_pair
from kvproto.io.control.poller import Waiter
from kvproto.io.control.sockets import LISTENER, SEAL, ControlSocket, dial
from kvproto.io.control.unanswered import Unanswered
from kvproto.io.control.unread import LOOK_S, SOON_S, Unread
from kvproto.settings import Settings
from kvproto.verify.testing.pair import Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

PATIENCE = 20.0
PATIENCE_MS = 20_000
SPAWN = multiprocessing.get_context("spawn")


def collect(control: Control, count: int) -> list[tuple[Peer, bytes]]:
    """Receive `count` frames, sleeping in between as a loop does."""
    frames: list[tuple[Peer, bytes]] = []
    deadline = time.monotonic() + PATIENCE
    while len(frames) < count and time.monotonic() < deadline:
        frames += control.receive(count - len(frames))
        if len(frames) < count:
            control.wait(0.2)
    assert len(frames) == count
    return frames


def open_descriptors() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread or process does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)


def introduced(make: Callable[..., Control], **options: Any) -> tuple[Control, Peer, Control, Peer]:
    """A listener and a connected side that know each other: (listener, its peer, connected, its peer)."""
    listener, connected = make(LOOPBACK, **options), make(**options)
    assert listener.address is not None
    there = connected.connect(listener.address)
    assert connected.send(there, b"hello") is Sent.TAKEN
    return listener, greeted(listener, connected), connected, there


def greeted(listener: Control, connected: Control) -> Peer:
    """Poll both, for the listener lets the connection in, until it has heard the first word: who said it."""
    met: list[tuple[Peer, bytes]] = []

    def heard() -> bool:
        met.extend(listener.receive(1))
        return connected.receive(1) == [] and bool(met)

    until(heard)
    [(here, data)] = met
    assert data == b"hello"
    return here


def echo(pipe: Connection, bind: str | None, address: str | None) -> None:
    """Another process: answers every frame with its own pid and the frame, until told b'end'."""
    control = Control(bind)
    if address is not None:
        assert control.send(control.connect(address), b"hello")
    pipe.send(control.address)
    while True:
        control.wait(1.0)
        for peer, data in control.receive(100):
            if data == b"end":
                control.close(drain_s=1.0)
                return
            assert control.send(peer, b"%d:%s" % (os.getpid(), data))


class EchoProcess:
    """The process that echoes."""

    def __init__(self, bind: str | None = LOOPBACK, address: str | None = None) -> None:
        pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=echo, args=(theirs, bind, address), daemon=True)
        self.process.start()
        assert pipe.poll(PATIENCE)
        self.address: str = pipe.recv()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def kill(self) -> None:
        """Leave no time to say goodbye."""
        self.process.kill()
        self.process.join(PATIENCE)


@pytest.fixture
def others() -> Iterator[Callable[..., EchoProcess]]:
    """Start processes that are gone at the end."""
    started: list[EchoProcess] = []

    def start(*args: Any, **options: Any) -> EchoProcess:
        started.append(EchoProcess(*args, **options))
        return started[-1]

    yield start
    for other in started:
        other.kill()


# --- what arrives -------------------------------------------------------------------------------------------


def test_frames_cross_processes_whole_and_in_order(
    opened: Callable[..., Control], others: Callable[..., EchoProcess]
) -> None:
    control, other = opened(), others()
    peer = control.connect(other.address)
    sent = [b"%d" % i + secrets.token_bytes(i % 300) for i in range(500)]
    answers: list[tuple[Peer, bytes]] = []
    for frame in sent:
        assert control.send(peer, frame) is Sent.TAKEN
        answers += control.receive(100)
    answers += collect(control, len(sent) - len(answers))
    assert answers == [(peer, b"%d:%s" % (other.pid, frame)) for frame in sent]


@pytest.mark.parametrize(
    "parts",
    [[b""], [b"\x00"], [b"\xff" * 1000], [b"a", b"b"], [b"", b"", b""], [b"|", b":"], [b"\x80\x04."]],
    ids=repr,
)
@pytest.mark.parametrize("name", [None, b"with|delimiter:", b"\xff\xfe", b"x" * 255], ids=repr)
def test_any_frame_under_any_name_comes_up_as_bytes(
    opened: Callable[..., Control], parts: list[bytes], name: bytes | None
) -> None:
    control = opened(LOOPBACK)
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        if name is not None:
            stranger.routing_id = name
        stranger.connect(str(control.address))
        stranger.send_multipart(parts)
        heard = collect(control, len(parts))
        assert [data for _, data in heard] == parts, "each part is a frame by itself"
        peer = heard[0][0]
        assert peer.link == 0
        assert name in {None, peer.name}
        assert control.send(peer, b"answer") is Sent.TAKEN
        assert stranger.poll(PATIENCE_MS)
        assert stranger.recv() == b"answer"


def test_as_many_links_can_be_dialled_as_the_settings_allow() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    control = Control()
    try:
        for _ in range(Settings().links):
            control.connect("tcp://127.0.0.1:9")
    finally:
        control.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_leaves_later_leaves_together_in_order_and_within_bounds(opened: Callable[..., Control]) -> None:
    listener, here, connected, there = introduced(opened, max_frame=4096)
    posted, socket = list[int](), connected._sockets[there.link]
    assert isinstance(socket, ControlSocket)
    taken = [b"%d" % i for i in range(BUNDLE)] + [bytes(3000), bytes(3000)]
    for frame in taken:
        assert connected.send(there, frame, later=True) is Sent.TAKEN
    assert connected.send(there, b"beat", urgent=True, later=True) is Sent.TAKEN
    assert connected.counts.sent == 1 and connected.outboxes.due_in == 0.0
    post = connected.outboxes._post

    def noted(peer: Peer, frames: Sequence[bytes]) -> Sent:
        posted.append(len(frames))
        return post(peer, frames)

    connected.outboxes._post = noted
    connected.flush()
    assert posted == [BUNDLE, 2, 1], "one message holds BUNDLE frames, and max_frame bytes"
    assert collect(listener, len(taken) + 1) == [(here, frame) for frame in (b"beat", *taken)]
    assert connected.send(there, b"first", later=True) and connected.send(there, b"second")
    assert [data for _, data in collect(listener, 2)] == [b"first", b"second"], "what leaves at once overtakes nothing"
    assert listener.send(Peer(0, b"nobody"), b"word", later=True) is Sent.TAKEN
    listener.flush()
    assert listener.counts.lost == 1 and not listener.outboxes


def test_what_leaves_later_leaves_before_its_peer_is_forgotten(opened: Callable[..., Control]) -> None:
    listener, here, connected, there = introduced(opened)
    assert connected.send(there, b"the last word", later=True)
    connected.disconnect(there)
    assert collect(listener, 1) == [(here, b"the last word")]
    assert connected.receive(1) == [] and not connected.wait(0.0), "its socket is not looked at any more"


def test_a_look_takes_as_many_messages_as_it_may(opened: Callable[..., Control]) -> None:
    listener, here, connected, there = introduced(opened)
    for number in range(3):
        assert connected.send(there, bytes([number]))
    assert listener.wait(PATIENCE)
    until(lambda: listener.receive(1) == [(here, b"\0")])
    assert [collect(listener, 1) for _ in range(2)] == [[(here, b"\1")], [(here, b"\2")]]


def test_a_look_is_bounded_by_those_who_bring_no_frames_too(
    opened: Callable[..., Control], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """As where questions come to the gate faster than they are answered."""
    control, served = opened(LOOPBACK), list[int]()
    until(lambda: control.receive(9) == [] and not control._hot)
    gate = control._gate
    assert gate is not None

    def take(_gate: Gate, limit: int, _frames: list[Any]) -> bool:
        served.append(limit)
        return True

    monkeypatch.setattr(Gate, "take", take)
    control._heat(gate)
    assert control.receive(5) == [] and served == [5] * 5
    control.receive(2)
    assert served[5:] == [2, 2]


@pytest.mark.parametrize(("waits", "news", "again"), [(False, 1, False), (True, 0, False), (True, 1, True)])
def test_a_socket_without_frames_is_looked_at_again_if_there_is_news_for_what_waits(
    opened: Callable[..., Control], monkeypatch: pytest.MonkeyPatch, waits: bool, news: int, again: bool
) -> None:
    control, moved = opened(), list[Peer]()
    peer = control.connect("tcp://127.0.0.1:9")
    assert not waits or control.send(peer, b"nobody listens there")
    monkeypatch.setattr(control.outboxes, "move", moved.append)
    monkeypatch.setattr(control, "_news", lambda _: news)
    assert control._stirs(control._sockets[peer.link]) is again
    assert moved == [peer] * waits


def test_parts_without_number_come_up_as_few_frames(opened: Callable[..., Control]) -> None:
    control = opened(LOOPBACK)
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.connect(str(control.address))
        stranger.send_multipart([b"part"] * 1000)
        frames = [data for _, data in collect(control, BUNDLE)]
        assert frames == [*[b"part"] * (BUNDLE - 1), b"part" * (1000 - BUNDLE + 1)]


def test_what_is_too_large_never_reaches_us_and_harms_nobody(opened: Callable[..., Control]) -> None:
    listener, here, connected, there = introduced(opened, max_frame=4096, max_bytes=4096)
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.connect(str(listener.address))
        monitor = stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        stranger.send(b"x" * 4097)
        assert monitor.poll(PATIENCE_MS), "the connection was not closed"
        stranger.disable_monitor()
        monitor.close()
    assert connected.send(there, b"y" * 4096)
    assert collect(listener, 1) == [(here, b"y" * 4096)]
    with pytest.raises(ControlError, match="4097 bytes"):
        connected.send(there, b"x" * 4097)


def test_bytes_that_are_no_zeromq_harm_nobody(opened: Callable[..., Control]) -> None:
    listener, here, connected, there = introduced(opened)
    port = int(str(listener.address).rsplit(":", 1)[1])
    noise = [secrets.token_bytes(200) for _ in range(20)]
    noise += [b"\x01\x00\x03\x00hi", b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n"]  # the first is an old dialect
    for each in noise:
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(each)
    assert connected.send(there, b"still here")
    heard: list[tuple[Peer, bytes]] = []
    while (here, b"still here") not in heard:
        heard += collect(listener, 1)
    assert all(peer != here for peer, _ in heard[:-1])


def test_a_chatty_peer_does_not_keep_the_others_out(opened: Callable[..., Control]) -> None:
    chatty, quiet, both = opened(LOOPBACK), opened(LOOPBACK), opened()
    ends = {both.connect(str(side.address)): side for side in (chatty, quiet)}
    for peer in ends:
        both.send(peer, b"hello")
    to_chatty, to_quiet = greeted(chatty, both), greeted(quiet, both)
    for _ in range(60):
        assert chatty.send(to_chatty, b"noise")
    assert quiet.send(to_quiet, b"word")
    names = {side: peer for peer, side in ends.items()}
    until(lambda: both.wait(0.0))
    time.sleep(0.1)  # both have arrived by now, or the test is only weaker
    heard = [both.receive(10) for _ in range(3)]
    assert (names[quiet], b"word") in [frame for part in heard for frame in part]


def test_who_connects_is_known_by_the_name_that_he_has_and_by_bytes_alone(opened: Callable[..., Control]) -> None:
    _, here, _, there = introduced(opened)
    assert (here.link, there.link, here.name) == (0, 1, there.name)
    assert Peer(258, b"name").place == b"\0" * 6 + b"\1\2name"
    for peer in (here, there, Peer(258, b"name")):
        assert Peer.at(peer.place) == peer


class Told:
    """A socket of libzmq's that does as it is told."""

    def __init__(self, error: int = 0) -> None:
        self.error, self.lingers, self.asked = error, list[int](), list[int]()

    def get(self, option: int) -> int:
        self.asked.append(option)
        return 0

    def send(self, *_: object) -> None:
        raise zmq.ZMQError(self.error)

    def close(self, linger: int) -> None:
        self.lingers.append(linger)

    def socket(self, _kind: int) -> None:
        raise zmq.ZMQError(errno.EMFILE)


def test_what_libzmq_says_of_a_frame_is_a_value_or_raised() -> None:
    for error, sent in ((zmq.EAGAIN, Sent.FULL), (zmq.EHOSTUNREACH, Sent.GONE)):
        raised: Any = zmq.Again() if error == zmq.EAGAIN else zmq.ZMQError(error)
        told: Any = Told()
        told.send = _raising(raised)
        assert ControlSocket(1, told, Peer(1, b"x")).post(b"", [b"frame"]) is sent
    broken: Any = Told(zmq.ENOTSOCK)
    with pytest.raises(zmq.ZMQError):
        ControlSocket(1, broken, Peer(1, b"x")).post(b"", [b"frame"])


def _raising(error: Exception) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise error

    return call


def test_a_socket_lingers_as_long_as_it_is_asked_to() -> None:
    told: Any = Told()
    socket_ = ControlSocket(1, told, Peer(1, b"x"))
    for drain_s in (0.0, 0.25, 2.0):
        socket_.close(drain_s)
    socket_.close()
    assert told.lingers == [0, 250, 2000, 0]


def test_where_no_socket_is_to_be_had_the_remedy_is_said() -> None:
    context: Any = Told()
    with pytest.raises(ControlError, match="no socket to be had"):
        dial(context, 1, "tcp://127.0.0.1:9", 1024, None, Unanswered(5.0))


def test_a_part_is_as_long_as_a_frame_at_most_with_its_seal(opened: Callable[..., Control], tmp_path: Path) -> None:
    keys = Keys.load(make_pair(tmp_path, "both")[0])
    for known, most in ((None, 4096), (keys, 4096 + SEAL)):
        listener, caller = opened(LOOPBACK, max_frame=4096, keys=known), opened(max_frame=4096, keys=known)
        peer = caller.connect(str(listener.address))
        for socket_ in (listener._sockets[0], caller._sockets[peer.link]):
            assert socket_._socket.get(zmq.MAXMSGSIZE) == most
        with pytest.raises(ControlError, match="4097 bytes"):
            caller.send(peer, bytes(4097))


def test_room_for_what_waits_ends_no_sleep(opened: Callable[..., Control], monkeypatch: pytest.MonkeyPatch) -> None:
    control, moved, news = opened(), list[Peer](), iter((zmq.POLLOUT, 0, zmq.POLLIN))
    peer = control.connect("tcp://127.0.0.1:9")
    monkeypatch.setattr(control, "_news", lambda socket: next(news) if socket.number > 0 else 0)
    monkeypatch.setattr(control.outboxes, "move", moved.append)
    assert control._has_input() is False and moved == [peer]
    assert control._has_input() is True


# --- what cannot be sent ------------------------------------------------------------------------------------


def fill(control: Control, peer: Peer, size: int = 8) -> list[bytes]:
    """Send until FULL; what was taken."""
    taken: list[bytes] = []
    while True:
        frame = len(taken).to_bytes(8, "big") + bytes(size - 8)
        sent = control.send(peer, frame)
        if not sent:
            assert sent is Sent.FULL
            return taken
        taken.append(frame)
        assert len(taken) < 1_000_000, "the queue has no end"


@pytest.mark.parametrize(
    ("size", "limits"),
    [(8, {"max_queue": 100}), (60_000, {"max_bytes": 600_000, "max_frame": 60_000})],
    ids=["frames", "bytes"],
)
@pytest.mark.parametrize("from_listener", [True, False])
def test_a_full_queue_says_so_and_loses_nothing(
    opened: Callable[..., Control], size: int, limits: dict[str, int], *, from_listener: bool
) -> None:
    listener, here, connected, there = introduced(opened, **limits)
    sender, to, receiver = (listener, here, connected) if from_listener else (connected, there, listener)
    taken = fill(sender, to, size)
    frames, nbytes = sender.outboxes.depth(to)
    assert frames == limits.get("max_queue", 600_000 // size)
    assert nbytes == frames * size
    assert sender.counts.refused == 1
    got: list[bytes] = []
    while len(got) < len(taken):
        sender.wait(0.01)
        sender.receive(10)
        got += [data for _, data in receiver.receive(100)]
    assert got == taken
    assert sender.outboxes.depth(to) == (0, 0)
    assert sender.send(to, b"again") is Sent.TAKEN
    assert collect(receiver, 1)[0][1] == b"again"
    assert sender.counts.lost == 0


@pytest.mark.parametrize("from_listener", [True, False])
def test_who_receives_moves_on_what_waits_without_a_sleep(
    opened: Callable[..., Control], *, from_listener: bool
) -> None:
    listener, here, connected, there = introduced(opened, max_queue=20)
    sender, to, receiver = (listener, here, connected) if from_listener else (connected, there, listener)
    taken, got = fill(sender, to, 1000), list[bytes]()

    def all_here() -> bool:
        assert sender.receive(1) == []
        got.extend(data for _, data in receiver.receive(100))
        return len(got) >= len(taken)

    until(all_here)
    assert got == taken and sender.outboxes.depth(to) == (0, 0)


def test_a_peer_that_is_not_up_yet_gets_everything_in_order(opened: Callable[..., Control]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    early = opened(max_queue=50)
    peer = early.connect(address)
    taken = fill(early, peer)
    assert len(taken) == 50, "frames are queued where nobody counts them"
    assert early.outboxes.depth(peer) == (50, 400)
    late = opened(address)
    got: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while len(got) < len(taken) and time.monotonic() < deadline:
        early.wait(0.05)
        early.receive(1)
        got += [data for _, data in late.receive(100)]
    assert got == taken


@pytest.mark.parametrize("peer", [Peer(0, b"nobody"), Peer(0, b"\x00" * 5), Peer(9, b"k"), Peer(-1, b"k")])
def test_an_unknown_peer_is_a_value(opened: Callable[..., Control], peer: Peer) -> None:
    control = opened(LOOPBACK)
    sent = control.send(peer, b"frame")
    assert sent is Sent.GONE
    assert sent, "GONE must not read as 'try again'"
    assert control.counts.gone == 1
    assert control.receive(1) == []


def test_a_disconnected_peer_is_gone_with_its_queue_and_its_socket(opened: Callable[..., Control]) -> None:
    listener, here, connected, there = introduced(opened, max_queue=10)
    before = open_descriptors()
    for _ in range(10):  # the listener's pipe, too, is full
        fill(connected, there)
        connected.receive(1)
        time.sleep(0.01)
    fill(connected, there)
    socket_ = weakref.ref(connected._sockets[there.link]._socket)
    connected.disconnect(there)
    until(lambda: open_descriptors() < before)
    gc.collect()
    assert socket_() is None
    assert connected.counts.lost == 10
    assert connected.outboxes.depth(there) == (0, 0)
    assert connected.send(there, b"frame") is Sent.GONE
    connected.disconnect(there)

    def gone() -> bool:
        listener.receive(100)  # libzmq looks at a connection again once what it has brought is taken
        return listener.send(here, b"frame") is Sent.GONE

    until(gone)


def test_where_there_is_no_epoll_who_is_disconnected_is_not_asked_any_more(
    opened: Callable[..., Control], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the descriptors are handed over at every look, and one that is closed among them is an error."""
    monkeypatch.setattr(watched, "select", SimpleNamespace())
    control = opened()
    peer = control.connect("tcp://127.0.0.1:9")
    fd = control._sockets[peer.link].fd
    assert control.receive(1) == []
    control.disconnect(peer)
    until(lambda: not Path(f"/proc/self/fd/{fd}").exists())
    assert control.receive(1) == [] and control.wait(0.0) is False


# --- peers that die, stop and return ------------------------------------------------------------------------


def ask(control: Control, peer: Peer, question: bytes) -> bytes:
    """Ask until there is an answer, as a protocol that re-sends does."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert control.send(peer, question) is not Sent.GONE
        control.wait(0.2)
        for _, data in control.receive(100):
            if data.endswith(question):
                return data
    pytest.fail("no answer")


def test_a_listener_killed_and_restarted_at_its_address_is_reached_again(
    opened: Callable[..., Control], others: Callable[..., EchoProcess]
) -> None:
    control, former = opened(), others()
    peer = control.connect(former.address)
    assert ask(control, peer, b"who") == b"%d:who" % former.pid
    former.kill()
    latter = others(former.address)
    assert latter.pid != former.pid
    assert ask(control, peer, b"and now") == b"%d:and now" % latter.pid


def test_a_connected_peer_killed_and_restarted_is_another_peer(
    opened: Callable[..., Control], others: Callable[..., EchoProcess]
) -> None:
    control = opened(LOOPBACK)
    former = others(None, control.address)
    [(ghost, _)] = collect(control, 1)
    former.kill()
    latter = others(None, control.address)
    [(peer, _)] = collect(control, 1)
    assert peer != ghost
    until(lambda: control.send(ghost, b"for your former self") is Sent.GONE)
    assert control.send(peer, b"for you")
    assert collect(control, 1) == [(peer, b"%d:for you" % latter.pid)]


def test_a_stopped_peer_fills_its_own_queue_only_and_loses_nothing(
    opened: Callable[..., Control], others: Callable[..., EchoProcess]
) -> None:
    control = opened(LOOPBACK, max_queue=50)
    stopped = others(None, control.address)
    [(sleeper, _)] = collect(control, 1)
    awake = others(None, control.address)
    [(peer, _)] = collect(control, 1)
    os.kill(stopped.pid, signal.SIGSTOP)
    taken = fill(control, sleeper, 100_000)
    assert control.send(peer, b"you")
    assert collect(control, 1) == [(peer, b"%d:you" % awake.pid)]
    os.kill(stopped.pid, signal.SIGCONT)
    assert [data.split(b":", 1)[1] for _, data in collect(control, len(taken))] == taken


def test_frames_for_a_peer_that_died_are_counted_as_lost(
    opened: Callable[..., Control], others: Callable[..., EchoProcess]
) -> None:
    control = opened(LOOPBACK, max_queue=50)
    other = others(None, control.address)
    [(peer, _)] = collect(control, 1)
    os.kill(other.pid, signal.SIGSTOP)
    fill(control, peer, 100_000)
    other.kill()
    until(lambda: control.receive(1) == [] and control.counts.lost == 50)
    assert control.send(peer, b"frame") is Sent.GONE


def test_of_two_connections_under_one_name_the_newer_counts(opened: Callable[..., Control]) -> None:
    control = opened(LOOPBACK)
    with zmq.Context() as context, context.socket(zmq.DEALER) as old, context.socket(zmq.DEALER) as new:
        for side in (old, new):
            side.linger = 0
            side.routing_id = b"same"
            side.connect(str(control.address))
            side.send(b"hello")
            assert collect(control, 1) == [(Peer(0, b"same"), b"hello")]
        assert control.send(Peer(0, b"same"), b"for the newer")
        assert new.poll(PATIENCE_MS)
        assert new.recv() == b"for the newer"


# --- sleeping -----------------------------------------------------------------------------------------------


def test_no_frame_is_slept_through(opened: Callable[..., Control]) -> None:
    listener, _, connected, there = introduced(opened)

    def answer() -> None:
        for _ in range(2000):
            for peer, data in collect(listener, 1):
                assert listener.send(peer, data)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    for i in range(2000):
        assert connected.send(there, b"%d" % i)
        if i % 3 == 0:
            connected.receive(0)
        assert connected.wait(PATIENCE), "slept with a frame in the socket"
        assert connected.receive(10) == [(there, b"%d" % i)]
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_wait_ends_for_a_call_before_or_during_it(opened: Callable[..., Control]) -> None:
    control = opened(LOOPBACK)
    control.wake()
    control.wake()
    control.receive(1)  # must not swallow the call
    assert control.wait(PATIENCE) is True
    assert control.wait(0.0) is False
    threading.Timer(0.05, control.wake).start()
    assert control.wait(PATIENCE) is True


def test_wait_ends_for_other_descriptors_and_at_its_time(opened: Callable[..., Control]) -> None:
    control = opened()
    reader, writer = os.pipe()
    for timeout in (0.0, 20e-6, 0.002, 0.03):
        begun = time.monotonic()
        assert control.wait(timeout, (reader,)) is False
        assert time.monotonic() - begun >= timeout
    os.write(writer, b"x")
    assert control.wait(PATIENCE, (reader,)) is True
    os.close(reader)
    with pytest.raises(ValueError, match="not open"):
        control.wait(0.1, (reader,))
    os.close(writer)


def test_a_listener_that_sleeps_looks_at_its_connections_now_and_then_and_soon_at_suspects(
    opened: Callable[..., Control], monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, sleeps, ready = opened(LOOPBACK), list[float](), Waiter.ready
    until(lambda: listener.receive(9) == [] and not listener._hot)
    listener._unread = unread = Unread(1, Counter())
    monkeypatch.setattr(Unread, "__len__", lambda _: 1)

    def noted(waiter: Waiter, fds: tuple[int, ...], timeout_s: float) -> list[int]:
        sleeps.append(timeout_s)
        return ready(waiter, fds, timeout_s)

    monkeypatch.setattr(Waiter, "ready", noted)
    for unread.spoken, least, most in ((None, SOON_S, LOOK_S), (set[int](), 0.0, SOON_S)):
        sleeps.clear()
        assert listener.wait(PATIENCE) is False
        assert least < sleeps[0] <= most


@pytest.mark.parametrize("emptied", [True, False])
def test_suspects_are_judged_with_whether_all_that_there_was_has_been_taken(
    opened: Callable[..., Control], monkeypatch: pytest.MonkeyPatch, *, emptied: bool
) -> None:
    listener, judged = opened(LOOPBACK), list[bool]()
    until(lambda: listener.receive(9) == [] and not listener._hot)
    listener._unread = unread = Unread(1, Counter())
    monkeypatch.setattr(unread, "judge", lambda *, emptied: judged.append(emptied))
    listener.receive(0)
    assert not judged, "nobody is suspected"
    unread.spoken = set()
    if not emptied:
        listener._heat(listener._sockets[LISTENER])
    listener.receive(0)
    assert judged == [emptied]


@pytest.mark.parametrize("ready", [True, False])
def test_a_sleep_ends_with_a_look(
    opened: Callable[..., Control], monkeypatch: pytest.MonkeyPatch, *, ready: bool
) -> None:  # fmt: skip
    """A frame that came with its end is here; and nothing that woke it too soon (a signal) ends it."""
    control, looks = opened(), iter((False, True))
    monkeypatch.setattr(control, "_has_input", lambda: next(looks))
    monkeypatch.setattr(Waiter, "ready", lambda *_: list(control._watched.sleepers()) * ready)
    assert control.wait(0.0 if ready else PATIENCE) is True


def test_what_was_to_leave_later_leaves_with_the_end(opened: Callable[..., Control]) -> None:
    listener, here, connected, there = introduced(opened)
    assert connected.send(there, b"goodbye", later=True)
    connected.close(drain_s=PATIENCE)
    assert collect(listener, 1) == [(here, b"goodbye")]


@pytest.mark.parametrize("stalled", [False, True])
def test_waiting_is_not_spinning(
    opened: Callable[..., Control], monkeypatch: pytest.MonkeyPatch, *, stalled: bool
) -> None:
    listener, here, *_ = introduced(opened, max_queue=10)
    if stalled:
        fill(listener, here)
    sleeps = []
    ready = Waiter.ready

    def counted(waiter: Waiter, fds: tuple[int, ...], timeout_s: float) -> list[int]:
        sleeps.append(timeout_s)
        return ready(waiter, fds, timeout_s)

    monkeypatch.setattr(Waiter, "ready", counted)
    listener.wait(0.5)
    assert len(sleeps) <= (60 if stalled else 5)


def test_a_socket_that_had_nothing_is_not_asked_again(opened: Callable[..., Control]) -> None:
    control, told = opened(), Told()
    quiet: Any = told
    control._heat(ControlSocket(7, quiet, Peer(7, b"x")))
    told.asked.clear()
    for _ in range(3):
        assert not control._has_input()
    assert told.asked == [zmq.EVENTS]


# --- one thread, and the end --------------------------------------------------------------------------------


def test_the_sockets_of_a_loop_are_called_by_its_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine opens, aborts and asks from another thread; what it wants is handed to the loop."""
    callers: dict[ControlSocket, set[str]] = defaultdict(set)

    def noted(name: str) -> None:
        method = getattr(ControlSocket, name)

        def call(called: ControlSocket, *args: Any) -> Any:
            callers[called].add(threading.current_thread().name)
            return method(called, *args)

        monkeypatch.setattr(ControlSocket, name, call)

    for name in ("post", "take", "events"):
        noted(name)
    with Pair(layout(2), layout(1), chunk_tokens=8, ready=False) as pair:
        pair.start()
        until(pair.decodes[0].ready)
        whole, given_up = pair.open(30), pair.open(30)
        pair.produce(whole)
        for endpoint in pair.endpoints:
            endpoint.abort(given_up)
            endpoint.explain(whole)
            endpoint.metrics()

        def over() -> bool:
            pair.collect()
            return pair.over(whole, given_up)

        until(over)
        pair.check(whole)
        assert len(callers) == 4, "two listeners, two connections"
        assert all(len(threads) == 1 and "kvproto" in next(iter(threads)) for threads in callers.values()), callers


@pytest.mark.parametrize("address", ["", "nonsense", "tcp://", "tcp://127.0.0.1:port", "carrier://pigeon"])
def test_a_bad_address_is_refused_with_the_remedy(opened: Callable[..., Control], address: str) -> None:
    with pytest.raises(ControlError, match=r"127\.0\.0\.1"):
        Control(address)
    control = opened()
    with pytest.raises(ControlError, match=r"127\.0\.0\.1"):
        control.connect(address)
    assert control.wait(0.0) is False


def test_a_taken_port_and_an_outbox_for_nothing_are_refused(opened: Callable[..., Control]) -> None:
    control = opened(LOOPBACK)
    assert str(control.address).startswith("tcp://127.0.0.1:")
    with pytest.raises(ControlError, match="in use"):
        Control(control.address)
    for queue, nbytes, frame in ((0, 9, 9), (9, 10, 11), (9, 9, 0)):
        with pytest.raises(ControlError, match="must hold one"):
            Control(max_queue=queue, max_bytes=nbytes, max_frame=frame)
    opened(max_queue=1, max_bytes=1, max_frame=1)


def test_who_is_closed_does_nothing_more_and_says_so() -> None:
    control = Control()
    peer = control.connect("tcp://127.0.0.1:9")
    for _ in range(2):
        control.close()
    calls: tuple[Callable[[], object], ...] = (
        lambda: control.send(peer, b""), lambda: control.connect("tcp://127.0.0.1:9"), lambda: control.receive(1),
        lambda: control.disconnect(peer), lambda: control.wait(0.0), control.descriptors,
    )  # fmt: skip
    for call in calls:
        with pytest.raises(ControlError, match="closed"):
            call()
    control.wake()


def test_a_call_leaves_nothing_to_sleep_on_once_and_then_the_descriptors_are_told(
    opened: Callable[..., Control],
) -> None:
    control = opened()
    quiet = control.descriptors()
    assert quiet and quiet == control.descriptors()
    control.wake()
    assert control.descriptors() == ()
    assert control.descriptors() == quiet and not control.wait(0.0), "one call ends one sleep"


def test_who_is_gone_is_forgotten_with_its_name(opened: Callable[..., Control]) -> None:
    listener, gone, other = opened(LOOPBACK), Peer(0, b"gone"), Peer(0, b"gone, too")
    for peer in (gone, other):
        assert listener.send(peer, b"x") is Sent.GONE and not listener.stands(peer)
    listener.disconnect(gone)
    assert listener.stands(gone) and not listener.stands(other)


def test_a_look_at_connections_is_taken_when_it_is_due(
    opened: Callable[..., Control], monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, looks = opened(LOOPBACK), list[float]()
    unread = listener._unread
    assert unread is not None
    monkeypatch.setattr(Unread, "look", lambda _, now: looks.append(now))
    unread.due = time.monotonic() + PATIENCE
    listener.receive(1)
    assert not looks
    unread.due = 0.0
    listener.receive(1)
    assert len(looks) == 1


def test_what_is_held_for_later_leaves_with_the_next_look(opened: Callable[..., Control]) -> None:
    _, _, connected, peer = introduced(opened)
    connected.send(peer, b"later", later=True)
    assert connected.outboxes.held
    connected.receive(1)
    assert not connected.outboxes.held


def test_one_that_is_dropped_closes_itself() -> None:
    gc.collect()
    before = open_descriptors()
    Control(LOOPBACK)
    gc.collect()
    assert open_descriptors() == before


def test_nothing_is_left_open() -> None:
    def round_trip() -> None:
        listener, connected = Control(LOOPBACK), Control()
        peer = connected.connect(str(listener.address))
        assert connected.send(peer, b"hello")
        greeted(listener, connected)
        listener.close()
        connected.close()

    round_trip()
    before = open_descriptors(), threading.active_count()
    for _ in range(5):
        round_trip()
    Control(LOOPBACK)  # dropped: nobody closes it
    gc.collect()
    assert (open_descriptors(), threading.active_count()) == before


def test_a_connection_that_falls_after_it_was_let_go_of_stops_no_other(opened: Callable[..., Control]) -> None:
    """libzmq tells of it in its own thread, which has all other connections of this side, too."""
    connected = opened()
    for _ in range(20):
        listener, other = opened(LOOPBACK), opened(LOOPBACK)
        assert listener.address is not None and other.address is not None
        there = connected.connect(listener.address)
        connected.send(there, b"hello")
        greeted(listener, connected)
        while connected.send(there, bytes(200_000)):
            pass  # what is left to send keeps the socket alive after it is let go of
        connected.disconnect(there)
        listener.close()
        connected.send(connected.connect(other.address), b"hello")
        greeted(other, connected)
