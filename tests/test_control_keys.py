"""Admission of peers: key files, addresses with keys, loopback and beyond, and the gate, over sockets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from kvproto.cli import main
from kvproto.errors import ArgumentError
from kvproto.io.control.control import LOOPBACK, Control, ControlError, Sent
from kvproto.io.control.gate import BURST, CROWDING, HASTY, PACE, SOURCES, STRANGE, TURN, UNLISTED, Gate, Handshakes
from kvproto.io.control.keys import Keys, beyond_loopback, make_pair, split_key, with_key

PATIENCE = 10.0


def folder(place: Path, name: str, *peers: Path) -> Path:
    """A process's folder: its own pair, and the public files of its peers; returns its secret file."""
    secret, _ = make_pair(place / name, name)
    for peer in peers:
        (place / name / peer.name).write_bytes(peer.read_bytes())
    return secret


@pytest.fixture
def three(tmp_path: Path) -> dict[str, Keys]:
    """The keys of a listener, of a peer on its list, and of one that is not; both know the listener."""
    listener = folder(tmp_path, "listener").with_suffix(".key")
    friend, stranger = folder(tmp_path, "friend", listener), folder(tmp_path, "stranger", listener)
    (listener.parent / "friend.key").write_bytes(friend.with_suffix(".key").read_bytes())
    secrets = {"listener": listener.with_suffix(".key_secret"), "friend": friend, "stranger": stranger}
    return {name: Keys.load(path) for name, path in secrets.items()}


def polled(done: Callable[[], bool], *controls: Control) -> list[bytes]:
    """Poll all of them, as loops do, until it is done; what they have received."""
    frames: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "it never happened"
        for control in controls:
            frames += [data for _, data in control.receive(16)]
        time.sleep(0.002)
    return frames


# ------------------------------------------------------------------------------------------------- key files
def test_a_pair_is_made_for_its_owner_alone_and_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    old = os.umask(0)
    try:
        assert main(["keys", str(tmp_path / "new"), "decode"]) == 0
    finally:
        os.umask(old)
    secret, public = tmp_path / "new" / "decode.key_secret", tmp_path / "new" / "decode.key"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600 and stat.S_IMODE(secret.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    said, kept = capsys.readouterr().out, secret.read_bytes()
    assert f"{secret} " in said and f"{public} " in said
    keys = Keys.load(secret)
    assert keys.public in keys.allowed and keys.secret.hex() not in repr(keys)
    assert b"secret" not in public.read_bytes()
    capsys.readouterr()
    assert main(["keys", str(tmp_path / "more"), "decode", "--json"]) == 0
    named = json.loads(capsys.readouterr().out)
    assert {Path(named["secret"]).name, Path(named["public"]).name} == {"decode.key_secret", "decode.key"}
    assert main(["keys", str(tmp_path / "new"), "decode"]) == 2 and "is there already" in capsys.readouterr().err
    assert main(["keys", str(tmp_path / "new"), "a/b"]) == 2
    assert secret.read_bytes() == kept


def test_a_folder_is_made_with_those_that_it_lies_in_and_may_be_there(tmp_path: Path) -> None:
    for name in ("one", "two"):
        secret, public = make_pair(tmp_path / "keys" / "decode", name)
        assert secret.is_file() and public.is_file()


@pytest.mark.parametrize("name", ["", "a/b", "/"])
def test_a_name_is_a_file_s(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match="names no key"):
        make_pair(tmp_path, name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    secret, _ = make_pair(tmp_path, "loose")
    secret.chmod(mode)
    with pytest.raises(ArgumentError, match="chmod 600"):
        Keys.load(secret)


def test_what_is_no_key_is_named(tmp_path: Path) -> None:
    secret, public = make_pair(tmp_path, "one")
    with pytest.raises(ArgumentError, match="no secret key"):
        Keys.load(public)
    with pytest.raises(ArgumentError, match="nowhere"):
        Keys.load(tmp_path / "nowhere")
    (tmp_path / "peer.key").write_text("a note that somebody left")
    with pytest.raises(ArgumentError, match=r"peer\.key"):
        Keys.load(secret)


@given(text=st.binary(max_size=200), named=st.booleans())
def test_no_file_is_more_than_no_key(tmp_path_factory: pytest.TempPathFactory, text: bytes, *, named: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.key_secret"
    path.write_bytes(b'public-key = "' + text + b'"\nsecret-key = "' + text + b'"' if named else text)
    path.chmod(0o600)
    with pytest.raises(ArgumentError, match="no key"):
        Keys.load(path)


@pytest.mark.parametrize("damaged", ["secret", "a peer's"])
def test_a_damaged_file_is_named_with_what_makes_another(tmp_path: Path, damaged: str) -> None:
    """Cut off anywhere, or with a byte that is another: it is the same keys, or our own error."""
    secret, public = make_pair(tmp_path, "one")
    path = secret if damaged == "secret" else public
    whole, keys, refused = path.read_bytes(), Keys.load(secret), 0
    taken = 0
    for at in range(len(whole)):
        for data in (whole[:at], whole[:at] + b"\n" + whole[at + 1 :], whole[:at] + b"=" + whole[at:]):
            path.write_bytes(data)
            try:
                assert Keys.load(secret).secret == keys.secret or damaged == "secret"
            except ArgumentError as error:
                refused += path.name in str(error)
            else:
                taken += 1
    assert refused + taken == 3 * len(whole) and refused > len(whole)


@pytest.mark.parametrize(
    "line", ["public-key", "public-key =", 'public-key = "abc"', 'public-key = "' + "~" * 40 + '"']
)
def test_a_line_without_a_key_is_no_key(tmp_path: Path, line: str) -> None:
    path = tmp_path / "one.key_secret"
    path.write_text(f"metadata\ncurve\n    {line}\n")
    path.chmod(0o600)
    with pytest.raises(ArgumentError, match=r"one\.key_secret is no key: .*kvproto keys makes them"):
        Keys.load(path)


# -------------------------------------------------------------------------------------------------- addresses
@pytest.mark.parametrize(
    ("address", "beyond"),
    [
        (LOOPBACK, False), ("tcp://127.9.9.9:1", False), ("tcp://localhost:1", False), ("tcp://[::1]:1", False),
        ("tcp://lo:*", False), ("ipc:///tmp/x", False), ("inproc://x", False), ("tcp://0.0.0.0:*", True),
        ("tcp://*:5555", True), ("tcp://eth0:1", True), ("tcp://10.1.2.3:1", True), ("tcp://[::]:1", True),
        ("tcp://127.evil.example.com:1", True), ("tcp://127.0.0.1.example.com:1", True), ("tcp://host:1", True),
        ("ipc:///tmp/a:b", False), ("inproc://a:b", False), ("tcp://127.1:1", True), ("tcp://127.x.0.1:1", True),
        ("tcp://127.0.0.0.1:1", True), ("tcp://:1", False),
    ],
)  # fmt: skip
def test_what_is_beyond_loopback_takes_keys_or_a_word(address: str, *, beyond: bool) -> None:
    assert beyond_loopback(address) is beyond
    if beyond:
        with pytest.raises(ControlError, match="insecure=True"):
            Control(address)
        with pytest.raises(ControlError, match="insecure=True"), _closed(Control()) as control:
            control.connect(address)


class _closed:  # noqa: N801  # reads as contextlib's do
    def __init__(self, control: Control) -> None:
        self.control = control

    def __enter__(self) -> Control:
        return self.control

    def __exit__(self, *_: object) -> None:
        self.control.close()


def test_a_refusal_leaves_nothing_open() -> None:
    def refuse() -> None:
        with pytest.raises(ControlError, match="insecure=True"):
            Control("tcp://0.0.0.0:*")

    refuse()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        refuse()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_who_says_that_it_is_meant_or_has_keys_may_listen_everywhere(
    opened: Callable[..., Control], three: dict[str, Keys]
) -> None:  # fmt: skip
    for options in ({"insecure": True}, {"keys": three["listener"]}):
        assert str(opened("tcp://0.0.0.0:*", **options).address).startswith("tcp://0.0.0.0:")


@given(st.text(max_size=100))
def test_an_address_is_split_or_refused(text: str) -> None:
    try:
        place, key = split_key(text)
    except ValueError:
        return
    assert key is None or len(key) == 32
    assert place == text or "#" in text


def test_an_address_carries_its_key(three: dict[str, Keys]) -> None:
    keys = three["listener"]
    assert split_key(with_key("tcp://127.0.0.1:4000", keys)) == ("tcp://127.0.0.1:4000", keys.public)
    assert with_key("tcp://127.0.0.1:4000", None) == "tcp://127.0.0.1:4000"


# --------------------------------------------------------------------------------------------------- the gate
def test_who_is_on_the_list_is_heard_and_answered(opened: Callable[..., Control], three: dict[str, Keys]) -> None:
    listener, friend = opened(LOOPBACK, keys=three["listener"]), opened(keys=three["friend"])
    peer = friend.connect(str(listener.address))
    friend.send(peer, b"hello")
    heard: list[Any] = []

    def met() -> bool:
        heard.extend(listener.receive(1))
        return bool(heard)

    polled(met, friend)
    [(here, data)] = heard
    assert data == b"hello" and listener.send(here, b"welcome") is Sent.TAKEN
    answers: list[Any] = []

    def answered() -> bool:
        answers.extend(friend.receive(1))
        return bool(answers)

    polled(answered, listener)
    assert answers == [(peer, b"welcome")] and not listener.counts.away


def test_a_key_that_is_not_listed_is_counted_and_not_heard(
    opened: Callable[..., Control], three: dict[str, Keys]
) -> None:  # fmt: skip
    listener, stranger = opened(LOOPBACK, keys=three["listener"]), opened(keys=three["stranger"])
    assert listener.last_away == "" and stranger.last_away == ""
    stranger.send(stranger.connect(str(listener.address)), b"hello")
    assert polled(lambda: listener.counts.away[UNLISTED] > 0, listener, stranger) == []
    assert three["stranger"].public.hex() in listener.last_away and "127.0.0.1" in listener.last_away
    time.sleep(0.1)
    assert listener.receive(16) == [] and set(listener.counts.away) == {UNLISTED}


@pytest.mark.parametrize("how", ["no key", "another listener's key", "nothing at all"])
def test_without_a_key_that_fits_nothing_is_heard(
    opened: Callable[..., Control], three: dict[str, Keys], how: str
) -> None:  # fmt: skip
    listener = opened(LOOPBACK, keys=three["listener"])
    address = str(listener.address).partition("#")[0]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.LINGER, 0)
    host, _, port = address.removeprefix("tcp://").partition(":")
    raw = socket.create_connection((host, int(port))) if how == "nothing at all" else None
    if raw is None:
        if how != "no key":
            friend = three["friend"]
            dealer.set(zmq.CURVE_PUBLICKEY, friend.public)
            dealer.set(zmq.CURVE_SECRETKEY, friend.secret)
            dealer.set(zmq.CURVE_SERVERKEY, three["stranger"].public)
        dealer.connect(address)
        dealer.send(b"hello")
    try:
        assert polled(lambda: listener.counts.away[STRANGE] > 0, listener) == []
        assert set(listener.counts.away) == {STRANGE}
    finally:
        if raw is not None:
            raw.close()
        dealer.close()
        context.term()


def test_what_is_no_zeromq_is_hung_up_on(opened: Callable[..., Control], three: dict[str, Keys]) -> None:
    listener = opened(LOOPBACK, keys=three["listener"])
    host, _, port = str(listener.address).partition("#")[0].removeprefix("tcp://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as raw:
        raw.send(b"GET / HTTP/1.1\r\n\r\n" * 10)
        with contextlib.suppress(ConnectionResetError):
            while raw.recv(4096):
                continue
    assert listener.receive(16) == []


def test_a_flood_of_connections_that_nobody_looks_at_holds_nothing_back(
    opened: Callable[..., Control], three: dict[str, Keys]
) -> None:  # fmt: skip
    """A report of each needs room: the rank that sends it is the one that carries all frames."""
    listener = opened(LOOPBACK, keys=three["listener"])
    host, _, port = str(listener.address).partition("#")[0].removeprefix("tcp://").partition(":")
    for _ in range(1100):
        with socket.create_connection((host, int(port)), PATIENCE) as raw, contextlib.suppress(ConnectionResetError):
            raw.send(b"GET / HTTP/1.1\r\n\r\n" * 10)
            while raw.recv(4096):
                continue


def test_a_caller_names_what_does_not_go_together(opened: Callable[..., Control], three: dict[str, Keys]) -> None:
    listener, bare = opened(LOOPBACK, keys=three["listener"]), opened(LOOPBACK)
    friend = opened(keys=three["friend"])
    with pytest.raises(ControlError, match="this process has none"):
        opened().connect(str(listener.address))
    with pytest.raises(ControlError, match="has no key"):
        friend.connect(str(bare.address))
    with pytest.raises(ControlError, match="not on this process's list"):
        friend.connect(with_key("tcp://127.0.0.1:4000", three["stranger"]))
    for no_key in ("#", "#1234", "#zz"):
        with pytest.raises(ControlError, match="cannot connect"):
            friend.connect("tcp://127.0.0.1:4000" + no_key)


def test_a_sleeping_listener_is_woken_by_a_question(opened: Callable[..., Control], three: dict[str, Keys]) -> None:
    listener, friend = opened(LOOPBACK, keys=three["listener"]), opened(keys=three["friend"])
    while listener.receive(1) or listener.wait(0.0):
        continue
    friend.send(friend.connect(str(listener.address)), b"hello")
    assert listener.wait(5.0), "a loop that sleeps lets nobody in"


def test_a_frame_that_is_sealed_may_be_as_long_as_any(opened: Callable[..., Control], three: dict[str, Keys]) -> None:
    listener, friend = opened(LOOPBACK, keys=three["listener"]), opened(keys=three["friend"])
    longest, heard = b"x" * listener.max_frame, list[Any]()
    friend.send(friend.connect(str(listener.address)), longest)

    def met() -> bool:
        heard.extend(listener.receive(1))
        return bool(heard)

    polled(met, friend)
    assert heard[0][1] == longest and listener.send(heard[0][0], longest) is Sent.TAKEN
    assert polled(lambda: friend.counts.received == 1, friend, listener) == [longest]


class Asked:
    """A gate, and libzmq's part in front of it."""

    def __init__(self, keys: Keys | None = None) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.away, self.now = Counter[str](), 0.0
        self.gate = Gate(self.context, keys, self.away, lambda: self.now)
        self.asker = self.context.socket(zmq.REQ)
        self.asker.connect("inproc://zeromq.zap.01")

    def ask(self, place: str, *shown: bytes) -> bytes:
        self.asker.send_multipart([b"1.0", b"1", b"kvproto", place.encode(), b"", *(shown or (b"NULL",))])
        assert self.gate.events() & zmq.POLLIN
        self.gate.take(1, [])
        return self.asker.recv_multipart(zmq.NOBLOCK)[2]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.asker.close(0)
        self.gate.close()
        self.context.term()


def test_only_a_listed_key_counts_however_it_is_shown(three: dict[str, Keys]) -> None:
    friend, stranger = three["friend"].public, three["stranger"].public
    with Asked(three["listener"]) as asked:
        assert asked.ask("10.0.0.1", b"CURVE", friend) == b"200"
        for last, shown in (
            (f"{stranger.hex()} from 10.0.0.1", (b"CURVE", stranger)), ("no key from 10.0.0.1", (b"NULL",)),
            (f"{friend.hex()} from 10.0.0.1", (b"PLAIN", friend, b"word")),
        ):  # fmt: skip
            assert asked.ask("10.0.0.1", *shown) == b"400" and asked.gate.last == last
        assert asked.away == {UNLISTED: 3}


def test_the_pace_is_a_key_s_and_not_the_place_s_where_it_comes_from(three: dict[str, Keys]) -> None:
    half = BURST // 2
    with Asked(three["listener"]) as asked:
        for key in (three["friend"].public, three["listener"].public):
            assert [asked.ask("10.0.0.1", b"CURVE", key) for _ in range(half)] == [b"200"] * half
        assert asked.ask("10.0.0.2", b"CURVE", three["friend"].public) == b"300"
        assert asked.away == {CROWDING: 1}


def test_of_what_the_listener_tells_comings_and_goings_are_passed_on_and_the_rest_is_counted() -> None:
    away, told = Counter[str](), list[tuple[Any, ...]]()
    unread: Any = SimpleNamespace(
        add=lambda fd: told.append(("add", fd)), remove=lambda fd: told.append(("remove", fd))
    )  # fmt: skip
    unanswered: Any = SimpleNamespace(
        add=lambda by, fd: told.append(("watch", by, fd)), remove=lambda by, fd: told.append(("leave", by, fd))
    )  # fmt: skip
    with zmq.Context() as context, context.socket(zmq.ROUTER) as listener:
        handshakes = Handshakes(context, listener, away, unread, unanswered)
        for event, value in (
            (zmq.EVENT_ACCEPTED, 11), (zmq.EVENT_ACCEPTED, 12), (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, 1),
            (zmq.EVENT_DISCONNECTED, 11), (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, -1),
        ):  # fmt: skip
            handshakes._serve([struct.pack("=Hi", event, value), b"tcp://127.0.0.1:1"])
        handshakes.close()
    assert away == {STRANGE: 2} and told == [
        ("add", 11), ("watch", -2, 11), ("add", 12), ("watch", -2, 12), ("remove", 11), ("leave", -2, 11)
    ]  # fmt: skip


def test_a_turn_answers_some_and_says_whether_there_may_be_more() -> None:
    with Asked() as asked, asked.context.socket(zmq.DEALER) as many:
        many.linger = 0
        many.connect("inproc://zeromq.zap.01")
        for at in range(TURN + 1):
            many.send_multipart([b"", b"1.0", b"%d" % at, b"kvproto", b"10.0.0.1", b"", b"NULL"])
        assert asked.gate.take(1, []) is True
        assert asked.gate.take(1, []) is False
        answers = [many.recv_multipart(zmq.NOBLOCK) for _ in range(TURN + 1)]
        assert answers == [[b"", b"1.0", b"%d" % at, b"200", b"", b"", b""] for at in range(TURN + 1)]


def test_connections_have_a_pace() -> None:
    with Asked() as asked:
        places = [f"10.0.0.{at % 4}" for at in range(BURST + 3)]
        assert [asked.ask(place) for place in places] == [b"200"] * BURST + [b"300"] * 3
        asked.now += 3.5 / PACE
        assert [asked.ask("10.0.0.9") for _ in range(5)] == [b"200"] * 3 + [b"300"] * 2
        assert asked.away == {HASTY: 5}


def test_who_is_in_too_much_of_a_hurry_puts_off_himself_alone() -> None:
    with Asked() as asked:
        half = BURST // 2
        assert [asked.ask("10.0.0.1") for _ in range(half + 500)] == [b"200"] * half + [b"300"] * 500
        assert [asked.ask("10.0.0.2") for _ in range(half)] == [b"200"] * half
        assert asked.away == {CROWDING: 500}
        asked.now += 3.5 * 2 / PACE
        assert [asked.ask("10.0.0.1") for _ in range(4)] == [b"200"] * 3 + [b"300"]
        asked.now += 10.0
        assert [asked.ask("10.0.0.1") for _ in range(half + 1)] == [b"200"] * half + [b"300"]


def test_what_is_known_of_addresses_is_bounded() -> None:
    with Asked() as asked:
        for at in range(SOURCES + 100):
            asked.now += 1.0
            assert asked.ask(f"10.{at >> 8}.{at & 255}.1") == b"200"
        assert len(asked.gate._sources) == SOURCES
        oldest = [b"10.0.99.1" in asked.gate._sources, b"10.0.100.1" in asked.gate._sources]
        assert oldest == [False, True], "the oldest are forgotten"
        assert asked.ask("10.0.100.1") == asked.ask("10.9.9.1") == b"200"
        known = [b"10.0.100.1" in asked.gate._sources, b"10.0.101.1" in asked.gate._sources]
        assert known == [True, False], "who has come again is not the one who was quiet for longest"


def test_who_is_put_off_because_of_all_others_has_as_much_room_as_before() -> None:
    with Asked() as asked:
        for at in range(BURST):
            assert asked.ask(f"10.0.{at}.1") == b"200"
        assert [asked.ask("10.1.0.1") for _ in range(BURST)] == [b"300"] * BURST
        assert asked.away == {HASTY: BURST} and asked.gate._sources[b"10.1.0.1"].room == BURST / 2
