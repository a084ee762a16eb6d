"""Peer processes: two peer endpoints in processes of their own, which send and take KV at once."""

from __future__ import annotations

from typing import Any, Literal

import torch

from kvproto.endpoint.peer_endpoint import PeerEndpoint
from kvproto.verify.testing.pools import noise, tokens_of
from support.fleet import CHUNK_TOKENS, LAYOUT, PAGE, PAGES, SETTINGS, Member, Process, make_transport, until
from support.ports import free_port

Role = Literal["prefill", "decode"]
GROUPS = {"B1": 21, "B2": 22}
#: pages of each pool: the first half is sent from, the second written to
ALL = 2 * PAGES


class PeerMember(Member):
    """The process's part: a peer endpoint, and answers about each role."""

    def __init__(self, name: str, bind: str, keys: str | None, backend: str) -> None:
        transport = make_transport(backend)
        self.transport, group = transport, GROUPS[name]
        self.peer = PeerEndpoint(
            LAYOUT, 0, noise(LAYOUT, 0, ALL, group), transport, chunk_tokens=CHUNK_TOKENS, group=group, bind=bind,
            settings=SETTINGS, keys=keys,
        )  # fmt: skip
        self.told_of: dict[Role, tuple[dict[int, Any], dict[int, Any]]] = {"prefill": ({}, {}), "decode": ({}, {})}
        self.turn_to("prefill")

    def turn_to(self, role: Role) -> None:
        """Have the answers be about this role."""
        self.endpoint, (self.outcomes, self.releases) = getattr(self.peer, role), self.told_of[role]

    def on(self, role: Role, name: str, *args: object) -> object:
        """Answer about this role."""
        self.turn_to(role)
        return getattr(self, name)(*args)

    def collect(self) -> None:
        """Take what the engine is told of both roles."""
        for role in self.told_of:
            self.turn_to(role)
            super().collect()

    def holds(self, seed: int, ours: list[int], theirs: list[int], tokens: int) -> bool:
        """Whether the KV of these pages is that of a sender's, whose noise has this seed."""
        source, found = tokens_of(noise(LAYOUT, 0, ALL, seed), ours), tokens_of(self.peer.decode.pool, theirs)
        return all(torch.equal(a[:tokens], b[:tokens]) for a, b in zip(source, found, strict=True))

    def regions(self) -> int:
        """Regions that are registered with the one transport."""
        return len(self.transport._table.regions())

    def close(self) -> None:
        self.peer.close()


class PeerProcesses:
    """B1 and B2, connected in both directions."""

    def __init__(self, backend: str) -> None:
        self.backend, self.binds = backend, {name: f"tcp://127.0.0.1:{free_port()}" for name in GROUPS}
        self.members = {name: self._start(name) for name in GROUPS}
        self.rooms: dict[int, tuple[str, list[int], list[int], int]] = {}
        for name in GROUPS:
            self.connect(name)
        self.healthy()

    def _start(self, name: str) -> Process:
        return Process(name, self.binds[name], None, self.backend, PeerMember)

    @staticmethod
    def other(name: str) -> str:
        return "B2" if name == "B1" else "B1"

    def connect(self, name: str) -> None:
        """Have this one take KV from the other."""
        other = self.other(name)
        self.members[name].ask("on", "decode", "connect", {GROUPS[other]: self.binds[other]})

    def healthy(self) -> None:
        """Wait until both directions are up at both ends."""
        ends = [(member, role) for member in self.members.values() for role in ("prefill", "decode")]
        until(lambda: all(member.ask("on", role, "up") == 1 for member, role in ends), "both directions to be up", 30)

    def restart(self, name: str) -> None:
        """A new life of a rank that was killed: same group, same address."""
        self.members[name] = self._start(name)
        self.connect(name)

    def room(self, sends: str, produced: int | None, tokens: int = 100) -> int:
        """A room of this sender that both engines have opened; so much of it is computed."""
        number, takes = len(self.rooms) + 1, self.other(sends)
        count = -(-tokens // PAGE)
        first = count * (number // 2 % (PAGES // count))  # open rooms of one direction share no page
        ours, theirs = [first + at for at in range(count)], [PAGES + first + at for at in range(count)][::-1]
        self.rooms[number] = sends, ours, theirs, tokens
        self.members[takes].ask("on", "decode", "open", number, tokens, theirs, GROUPS[sends])
        self.members[sends].ask("on", "prefill", "open", number, tokens, ours, GROUPS[takes])
        self.members[sends].ask("on", "prefill", "call", "prefetch", number)
        if produced is not None:
            self.produce(number, produced)
        return number

    def produce(self, number: int, upto: int | None = None) -> None:
        """The sender's engine has computed so much of the room (all of it)."""
        sends, _, _, tokens = self.rooms[number]
        self.members[sends].ask("on", "prefill", "call", "produced", number, tokens if upto is None else upto)
        if upto in (None, tokens):
            self.members[sends].ask("on", "prefill", "call", "aux", number, b"aux")

    def abort(self, number: int, role: Role) -> None:
        """The engine at this end gives the room up."""
        self.members[self.at(number, role)].ask("on", role, "call", "abort", number)

    def at(self, number: int, role: Role) -> str:
        sends = self.rooms[number][0]
        return sends if role == "prefill" else self.other(sends)

    def told(self, number: int, role: Role) -> str:
        """How the room ended at this end, once it is released there."""
        name = self.at(number, role)
        answer = until(lambda: self.members[name].ask("on", role, "told", number), f"room {number} on {name}")
        return str(answer[0])

    def succeeds(self, number: int) -> None:
        """The room ends well at both ends, and every byte is right."""
        sends, ours, theirs, tokens = self.rooms[number]
        assert {self.told(number, role) for role in ("prefill", "decode")} == {"NONE"}
        assert self.members[self.other(sends)].ask("holds", GROUPS[sends], ours, theirs, tokens)

    def close(self) -> None:
        for member in self.members.values():
            if member.process.is_alive():
                member.ask("close")
                member.process.join(10)
            if member.process.is_alive():
                member.kill()
