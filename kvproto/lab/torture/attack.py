"""Attack: strangers at ranks with keys, for minutes, while rooms go through; only counters may change.

Two ranks in processes of their own have each other's keys and carry rooms as fast as they do, every byte compared.
Meanwhile each kind of stranger (`STRANGERS`) comes again and again, with everything that has ever done harm to a rank
without keys: the HELLO whose NIXL metadata ends a process, calls that name large layouts, rooms that are somebody's,
frames of noise, messages of a thousand parts, connections that say nothing, or no ZeroMQ at all.

At the end the strangers are gone, and everything is as it was: what the ranks hold, and every count but those of
connections that were turned away.  Memory may have grown by `GROWN_MIB`.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import zmq

from kvproto.io.control.gate import CROWDING, HANDSHAKE_S, HASTY, STRANGE, UNLISTED
from kvproto.io.control.keys import Keys, make_pair, split_key
from kvproto.io.transports import endpoint as endpoints
from kvproto.lab.bench.members import Members
from kvproto.lab.torture.fleet import Carrier
from kvproto.lab.torture.fuzz import bodies, damaged
from kvproto.lab.torture.result import ENOUGH
from kvproto.lab.torture.soak import LAYOUT, TOKENS, SoakRank
from kvproto.layout.sharding import Layout
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import encode
from kvproto.protocol.events import room_key
from kvproto.protocol.states import Cause

#: rooms between two looks
BATCH = 200
GROWN_MIB = 32.0
#: what may be more afterwards than before
TURNED_AWAY = {UNLISTED, STRANGE, HASTY, CROWDING}
#: counts of what was done for rooms, and what is held for a moment
WORK = {"writes", "pieces", "bytes", "pages", "direct", "mapped", "engine", "scatters", "rooms", "entries"}
WIDE = Layout(layers=512, heads=512, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=512)


class AttackResult(msgspec.Struct):
    """`attacks`: by kind of stranger, how often it came; `away`: at the prefill rank, by why; `rss`: MiB."""

    carrier: str
    seconds: float = 0.0
    rooms: int = 0
    attacks: dict[str, int] = {}
    away: dict[str, int] = {}
    rss: dict[str, tuple[float, float]] = {}
    found: list[str] = []

    @property
    def ok(self) -> bool:
        """Nothing has changed but counters."""
        return not self.found


def attack(
    minutes: float, carrier: Carrier, watch: Callable[[AttackResult], None] = lambda _result: None
) -> AttackResult:  # fmt: skip
    """Attack for so long. RuntimeError: a rank could not go on, and why."""
    result, members = AttackResult(carrier), Members()
    with TemporaryDirectory() as folder:
        files = keys_of(Path(folder))
        for side in "PD":
            members.start(side, 0, SoakRank, side, carrier, str(files[side]))
        (address,) = members.tell("P", "address").values()
        members.tell("D", "connect", address)
        stranger, friend = Keys.load(files["stranger"]), Keys.load(files["D"])
        first = _look(members, result, 0)
        siege = Siege(address, stranger, friend)
        began = time.monotonic()
        while result.seconds < 60.0 * minutes and not result.found:
            _carry(members, result)
            result.seconds, result.attacks = round(time.monotonic() - began, 1), dict(siege.came)
            watch(result)
        siege.end()
        last = _look(members, result, round(HANDSHAKE_S + 2.0))
        result.found += _changed(first, last)
        result.attacks = dict(siege.came)
        result.away = {why: count for why, count in last["P"]["metrics"].items() if why in TURNED_AWAY}
        result.found += [
            f"no stranger was turned away: {why}" for why in (UNLISTED, STRANGE) if not result.away.get(why)
        ]
        result.rss = {side: (first[side]["rss"], last[side]["rss"]) for side in "PD"}
        members.tell("PD", "end")
    return result


def keys_of(folder: Path) -> dict[str, Path]:
    """Secret files: of two who know each other, and of a stranger."""
    files = {name: make_pair(folder / name, name) for name in ("P", "D", "stranger")}
    for name, peer in (("P", "D"), ("D", "P")):
        public = files[peer][1]
        (folder / name / public.name).write_bytes(public.read_bytes())
    return {name: secret for name, (secret, _) in files.items()}


def _carry(members: Members, result: AttackResult) -> None:
    told = members.tell("PD", "flood", result.rooms, BATCH)
    result.rooms += BATCH
    for (side, _), (_, _, wrong) in told.items():
        result.found += [f"{side}: {text}" for text in wrong[:ENOUGH]]


def _look(members: Members, result: AttackResult, rest: int) -> dict[str, dict[str, Any]]:
    """Return each rank's holdings and counts, after some rooms and so many seconds of rest."""
    _carry(members, result)
    members.tell("PD", "rest", rest)
    return {side: seen for (side, _), seen in members.tell("PD", "look").items()}


def _changed(first: dict[str, dict[str, Any]], last: dict[str, dict[str, Any]]) -> list[str]:
    found = []
    for side, before in first.items():
        after = last[side]
        found += [
            f"{side}: {what}: {was} before, {after['holds'][what]} after"
            for what, was in before["holds"].items()
            if after["holds"][what] != was
        ]
        counts = before["metrics"].keys() | after["metrics"].keys()
        for name in sorted(counts - TURNED_AWAY - WORK):
            was, now = before["metrics"].get(name, 0), after["metrics"].get(name, 0)
            found += [f"{side}: {name}: {was} before, {now} after"] if was != now else []
        if after["rss"] - before["rss"] > GROWN_MIB:
            found.append(f"{side}: {after['rss'] - before['rss']:.1f} MiB more memory")
    return found


# ---------------------------------------------------------------------------------------------- the strangers
class Siege:
    """Threads that come as strangers until it ends; `came`: how often, by kind."""

    def __init__(self, address: str, stranger: Keys, friend: Keys) -> None:
        self.place, key = split_key(address)
        assert key is not None
        self.came: Counter[str] = Counter()
        self._over = threading.Event()
        unlisted = {"CURVE_PUBLICKEY": stranger.public, "CURVE_SECRETKEY": stranger.secret, "CURVE_SERVERKEY": key}
        mistaken = {
            "CURVE_PUBLICKEY": friend.public, "CURVE_SECRETKEY": friend.secret, "CURVE_SERVERKEY": stranger.public,
        }  # fmt: skip
        visits: dict[str, Callable[[random.Random], None]] = {
            "no key": lambda dice: self._speak({}, dice),
            "a key that is not listed": lambda dice: self._speak(unlisted, dice),
            "a listed key, another server's": lambda dice: self._speak(mistaken, dice),
            "no ZeroMQ": self._noise,
            "silence": self._silence,
        }
        self._context = zmq.Context[zmq.Socket[bytes]]()
        self._said = [frames(random.Random(seed)) for seed in range(8)]
        self._threads = [threading.Thread(target=self._come, args=each, daemon=True) for each in visits.items()]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._context.destroy(linger=0)

    def _come(self, kind: str, visit: Callable[[random.Random], None]) -> None:
        dice = random.Random(kind)
        while not self._over.is_set():
            with contextlib.suppress(OSError, zmq.ZMQError):  # it was refused in the meantime
                visit(dice)
            self.came[kind] += 1

    def _speak(self, options: dict[str, bytes], dice: random.Random) -> None:
        """One connection that says everything at once."""
        with self._context.socket(zmq.DEALER) as dealer:
            dealer.set(zmq.LINGER, 0)
            for option, value in options.items():
                dealer.set(getattr(zmq, option), value)
            dealer.connect(self.place)
            for frame in dice.choice(self._said):
                dealer.send(frame, zmq.NOBLOCK)
            dealer.send_multipart([b"part"] * 1000, zmq.NOBLOCK)
            self._over.wait(0.05)

    def _noise(self, dice: random.Random) -> None:
        with socket.create_connection(self._tcp(), 2.0) as wire:
            begin = dice.choice((b"", b"\xff" + bytes(8) + b"\x7f\x03", b"GET / HTTP/1.1\r\n\r\n"))
            wire.sendall(begin + dice.randbytes(dice.randrange(1, 65536)))
            self._over.wait(0.02)

    def _silence(self, dice: random.Random) -> None:
        """A few connections that never come to the point."""
        with contextlib.ExitStack() as held:
            for _ in range(dice.randrange(1, 8)):
                held.enter_context(socket.create_connection(self._tcp(), 2.0))
            self._over.wait(0.2)

    def _tcp(self) -> tuple[str, int]:
        host, _, port = self.place.removeprefix("tcp://").rpartition(":")
        return host, int(port)


def frames(dice: random.Random) -> list[bytes]:
    """Return frames that would matter if their sender were known: calls, rooms, and noise."""
    rooms = [room_key(dice.randrange(1 << 20), 0) for _ in range(4)]
    table = (endpoints.RegionEntry(0, 1 << 20, 1 << 16, "DRAM", 0),)
    made_up = endpoints.InstanceDescription(
        "nixl", endpoints.VERSION, "stranger", 1, table, b"nixlSerDes|" + dice.randbytes(256)
    )
    said = [encode(0, 0, _call(LAYOUT, 1, endpoints.encode(made_up)))]
    said += [encode(0, 0, _call(WIDE, group, b"")) for group in range(2, 10)]
    about = [each for each in bodies() if not isinstance(each, msg.LinkBody)]
    said += [encode(1, room, body) for room in rooms for body in about]
    said += [encode(1, room, msg.Abort(Cause.DECODE_ABORTED)) for room in rooms]
    return said + [damaged(tuple(said), dice) for _ in range(50)]


def _call(layout: Layout, group: int, endpoint: bytes) -> msg.Hello:
    return msg.Hello(msg.VERSION, "", 1 << 40, group, 0, layout, TOKENS, 30.0, endpoint)
