"""A fleet: ranks in processes of their own, over NIXL, that can be stopped, killed and restarted.

Two prefill groups and two decode groups of one rank each, all connected with one another: whatever happens to a rank,
there are rooms that it does not concern.  Each process polls its endpoint and answers questions over a pipe.

The bytes go over TCP, as between hosts: a write then needs its target's help to end, so a target that is stopped holds
it in flight.  (Through shared memory it would be over when the call returns.)
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.errors import LinkError
from kvproto.fsm.timing import Timer
from kvproto.lab.process_group import fork_server
from kvproto.lab.torture.rank import ucx_over_tcp
from kvproto.layout.sharding import Layout
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.holdings import holdings, resident
from kvproto.verify.testing.pools import left_over, noise, tokens_of
from support.ports import free_port

CHUNK_TOKENS, PAGE, PAGES = 32, 16, 48
LAYOUT = Layout(layers=2, heads=2, k_dim=32, v_dim=16, itemsize=2, dtype="bfloat16", page_size=PAGE, tp=1)
#: a page of 32 tokens: no way page to page, so that everything is staged
THEIRS = Layout(layers=2, heads=2, k_dim=32, v_dim=16, itemsize=2, dtype="bfloat16", page_size=2 * PAGE, tp=1)
QUICK = Timing(
    resend=Timer(0.1, 20), grant_retry=Timer(0.1, 5), call=Timer(0.1, 40), engine=Timer(4.0), bootstrap=Timer(4.0),
    stall=Timer(12.0), lease=Timer(1.0), write=Timer(1.0), kernel=Timer(2.0), connect_timeout=Timer(4.0),
    heartbeat=Timer(0.2, 5), silence=Timer(4.0), forget=Timer(30.0),
)  # fmt: skip
# By the ring, however small: the phases that a test waits for are those of staging.
SETTINGS = Settings(timing=QUICK, ring_bytes=1 << 20, slots=2, window=2, costs="free")
GROUPS = {"P1": 1, "P2": 2, "D1": 11, "D2": 12}


def make_transport(backend: str, host: str = "127.0.0.1") -> Any:
    """The transport of this process at this address, whose bytes go over TCP."""
    os.environ["UCX_MODULES"], os.environ["UCX_TLS"] = "^ib", ucx_over_tcp()
    os.environ.setdefault("UCX_NET_DEVICES", "lo")
    os.environ["NIXL_LOG_LEVEL"] = "FATAL"
    from kvproto.io.transports.mooncake import MooncakeTransport
    from kvproto.io.transports.nixl import NixlTransport

    torch.set_num_threads(1)
    return NixlTransport() if backend == "nixl" else MooncakeTransport(host)


class Member:
    """The process's part: an endpoint, and answers about it."""

    def __init__(
        self, name: str, bind: str, keys: str | None, backend: str = "nixl", host: str = "127.0.0.1"
    ) -> None:  # fmt: skip
        self.transport = make_transport(backend, host)
        self.endpoint: Any
        group = GROUPS[name]
        if name.startswith("P"):
            self.endpoint = PrefillEndpoint(
                LAYOUT, 0, noise(LAYOUT, 0, 2 * PAGES, 1), self.transport, chunk_tokens=CHUNK_TOKENS, group=group,
                bind=bind,
                settings=SETTINGS, keys=keys,
            )  # fmt: skip
        else:
            self.endpoint = DecodeEndpoint(
                THEIRS, 0, noise(THEIRS, 0, PAGES, 2), self.transport, chunk_tokens=CHUNK_TOKENS, group=group,
                settings=SETTINGS,
                keys=keys,
            )  # fmt: skip
        self.outcomes: dict[int, tuple[str, float]] = {}
        self.releases: dict[int, float] = {}

    def collect(self) -> None:
        """Take what the engine is told: an outcome and a release come once each."""
        for outcome in self.endpoint.finished():
            assert outcome.room.id not in self.outcomes, "a second outcome"
            self.outcomes[outcome.room.id] = outcome.cause.name, time.monotonic()
        for room in self.endpoint.released():
            assert room.id not in self.releases, "a second release"
            self.releases[room.id] = time.monotonic()

    def serve(self, pipe: Any) -> None:
        while True:
            if not self.endpoint.poll():
                self.endpoint.wait(0.002)
            self.collect()
            if pipe.poll(0):
                name, args = pipe.recv()
                pipe.send(getattr(self, name)(*args))
                if name == "close":
                    return

    def connect(self, groups: dict[int, str]) -> None:
        for group, address in groups.items():
            self.endpoint.connect(LAYOUT, [address], group=group)

    def ready(self, groups: list[int]) -> bool:
        return all(self.endpoint.ready(group) for group in groups)

    def address(self) -> str:
        return str(self.endpoint.address)

    def description(self) -> bytes:
        """The transport's, as peers are told it."""
        return bytes(self.transport.endpoint())

    def metrics(self) -> dict[str, int]:
        return dict(self.endpoint.metrics())

    def refusals(self, group: int) -> list[str]:
        """Why the group cannot be reached, if it was refused."""
        try:
            self.endpoint.ready(group)
        except LinkError as error:
            return [str(error)]
        return []

    def up(self) -> int:
        """Links that are up."""
        return sum(value.state.name == "UP" for value in inside(self.endpoint).rank.links.values())

    def open(self, room: int, tokens: int, pages: list[int], group: int) -> None:
        self.endpoint.open(Room(room), tokens, pages, group=group)

    def call(self, name: str, room: int, *args: object) -> object:
        """One of the engine's calls."""
        return getattr(self.endpoint, name)(Room(room), *args)

    def told(self, room: int) -> tuple[str, float, float] | None:
        """(cause, when, released when) once the engine has been told everything of the room."""
        if room not in self.outcomes or room not in self.releases:
            return None
        return (*self.outcomes[room], self.releases[room])

    def states(self, room: int) -> set[str]:
        rank, key = inside(self.endpoint).rank, room
        value = rank.value_of(key)
        parts = [*getattr(rank, "sends", {}).get(key, {}).values(), *getattr(rank, "grants", {}).get(key, {}).values()]
        return {value.state.name} | {part.state.name for part in parts} if value is not None else set()

    def equal(self, ours: list[int], theirs: list[int], tokens: int) -> bool:
        """Decode: the KV of these pages is that of the prefill rank's pages."""
        source = tokens_of(noise(LAYOUT, 0, 2 * PAGES, 1), ours)
        found = tokens_of(self.endpoint.pool, theirs)
        return all(torch.equal(a[:tokens], b[:tokens]) for a, b in zip(source, found, strict=True))

    def held(self) -> dict[str, object]:
        """Everything that could leak."""
        return holdings(self.endpoint)

    def left(self) -> list[str]:
        """Whatever is held of rooms."""
        return left_over(self.endpoint)

    def reports(self) -> list[str]:
        return list(self.endpoint.reports())

    def explain(self, room: int) -> str:
        return str(self.endpoint.explain(Room(room)))

    def detach(self, rooms: str) -> None:
        self.endpoint.detach(rooms)

    def detached(self) -> int | None:
        """Regions that are registered, once the pool is detached."""
        transport = inside(self.endpoint).data.transport
        return len(transport._table.regions()) if self.endpoint.detached else None

    def attach(self) -> None:
        """Attach a new pool, of the noise that the first one had."""
        prefill = hasattr(self.endpoint, "address")
        self.endpoint.attach(noise(LAYOUT, 0, 2 * PAGES, 1) if prefill else noise(THEIRS, 0, PAGES, 2))

    def resident(self) -> int:
        """Bytes of memory of this process."""
        return resident()

    def close(self) -> None:
        self.endpoint.close()


def _main(pipe: Connection, kind: type[Any], *args: object) -> None:
    member = kind(*args)
    pipe.send("ready")
    member.serve(pipe)
    sys.stdout.flush()
    os._exit(0)


class Process:
    """The parent's handle of a member."""

    def __init__(
        self, name: str, bind: str, keys: str | None = None, backend: str = "nixl", kind: type[Any] = Member
    ) -> None:  # fmt: skip
        self.name, self.bind = name, bind
        context = fork_server("kvproto.lab.torture.rank")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_main, args=(theirs, kind, name, bind, keys, backend), daemon=True)
        self.process.start()
        theirs.close()
        self.started = False

    def ask(self, name: str, *args: object) -> Any:
        if not self.started:
            assert self.pipe.poll(60) and self.pipe.recv() == "ready", f"{self.name} did not start"
            self.started = True
        self.pipe.send((name, args))
        assert self.pipe.poll(15), f"{self.name} did not answer {name}"
        return self.pipe.recv()

    def stop(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGSTOP)
        until(lambda: self._state() == "T", f"{self.name} to stop")

    def resume(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGKILL)
        self.process.join(10)

    def _state(self) -> str:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def until(done: Callable[[], Any], what: str, seconds: float = 15.0) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while not (answer := done()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.005)
    return answer


class BenchProcesses:
    """P1, P2, D1, D2."""

    def __init__(
        self, names: Sequence[str] = tuple(GROUPS), backend: str = "nixl", kind: type[Any] = Member
    ) -> None:  # fmt: skip
        self.kind = kind
        self.binds = {name: f"tcp://127.0.0.1:{free_port()}" for name in names if name.startswith("P")}
        self.members = {name: Process(name, self.binds.get(name, ""), None, backend, kind) for name in names}
        self.rooms: dict[int, tuple[str, str, list[int], list[int], int]] = {}
        self.next, self.page = 1, 0
        for name in names:
            if name.startswith("D"):
                self.connect(name)

    def __getitem__(self, name: str) -> Process:
        return self.members[name]

    def connect(self, name: str) -> None:
        self[name].ask("connect", {GROUPS[p]: address for p, address in self.binds.items()})

    def restart(self, name: str) -> None:
        """A new life of a rank that was killed: same group, same address."""
        self.members[name] = Process(name, self.binds.get(name, ""), kind=self.kind)
        if name.startswith("D"):
            self.connect(name)

    def healthy(self) -> None:
        """Wait until every link is up on both sides."""
        links = {"P": sum(name.startswith("D") for name in self.members), "D": len(self.binds)}
        until(lambda: all(self[name].ask("up") == links[name[0]] for name in self.members), "every link to be up", 30)

    def room(self, p: str, d: str, tokens: int = 100, *, produced: int | None = None) -> int:
        """A room that both engines have opened; so much of it is computed."""
        number, self.next = self.next, self.next + 1
        pages = -(-tokens // (2 * PAGE))
        first, self.page = self.page, (self.page + pages) % (PAGES - 8)
        theirs = list(range(first, first + pages))[::-1]
        ours = [2 * page + half for page in theirs for half in (1, 0)]
        self.rooms[number] = p, d, ours, theirs, tokens
        self[p].ask("open", number, tokens, ours, GROUPS[d])
        self[d].ask("open", number, tokens, theirs, GROUPS[p])
        self[p].ask("call", "prefetch", number)
        if produced is not None:
            self.produce(number, produced)
        return number

    def reaches(self, number: int, side: str, state: str) -> None:
        """Wait until one of the room's machines on this side is in this state."""
        name = self.rooms[number][0] if side == "P" else self.rooms[number][1]
        until(lambda: state in self[name].ask("states", number), f"{state} of room {number} on {name}")

    def held(self) -> dict[str, Any]:
        """Everything that could leak, of every rank that lives."""
        return {name: member.ask("held") for name, member in self.members.items() if member.process.is_alive()}

    def rests(self, before: dict[str, Any]) -> None:
        """Wait until every rank holds what it held before."""
        end = time.monotonic() + 10
        for name in self.members:
            while changed := self._changed(name, before[name]):
                assert time.monotonic() < end, f"{name} holds (before, now): {changed}"
                time.sleep(0.02)

    def _changed(self, name: str, before: dict[str, Any]) -> dict[str, Any]:
        now = self[name].ask("held")
        return {key: (before[key], now[key]) for key in now if now[key] != before[key]}

    def produce(self, number: int, tokens: int | None = None) -> None:
        p, _, _, _, all_of_it = self.rooms[number]
        self[p].ask("call", "produced", number, all_of_it if tokens is None else tokens)
        if tokens is None or tokens == all_of_it:
            self[p].ask("call", "aux", number, b"aux")

    def told(self, number: int, side: str, seconds: float = 15.0) -> tuple[str, float, float]:
        """(cause, when, released when) on this side of the room."""
        name = self.rooms[number][0] if side == "P" else self.rooms[number][1]
        answer = until(lambda: self[name].ask("told", number), f"room {number} on {name}", seconds)
        assert isinstance(answer, tuple)
        return answer

    def succeeds(self, number: int) -> None:
        """The room ends well on both sides, and every byte is right."""
        _, d, ours, theirs, tokens = self.rooms[number]
        assert self.told(number, "P")[0] == self.told(number, "D")[0] == "NONE"
        assert self[d].ask("equal", ours, theirs, tokens)

    def close(self) -> None:
        for member in self.members.values():
            if member.process.is_alive():
                member.resume()
                member.ask("close")
        for member in self.members.values():
            member.process.join(10)
            if member.process.is_alive():
                member.kill()
