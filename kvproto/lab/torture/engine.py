"""The engine of one rank: it does what the plan says of a room, and judges what it is given.

Each room's acts are done in their order, each when its time has come; nothing waits for another room. Whatever the
endpoint tells is judged here, where the pages are: one outcome a room and engine, a release after it and not before,
success only with every byte and the aux row as they must be, and nothing changed outside the rooms (`memory`).
"""

from __future__ import annotations

import heapq
import time
from typing import Any

from kvproto.endpoint.endpoint import Endpoint
from kvproto.lab.torture.fleet import DECODE
from kvproto.lab.torture.memory import RankMemory
from kvproto.lab.torture.plan import Act, TorturePlan, TortureRoom
from kvproto.room import Outcome, Room, Status

#: seconds between two looks at everything that must not have changed
LOOK_S = 0.1
Told = tuple[int, str, str]  #: number of a room, cause, reason


def aux_row(room: TortureRoom) -> bytes:
    """Return the prefill engine's row of the room's first token."""
    return b"aux " + room.seed.to_bytes(8, "big")


class TortureEngine:
    """The engine of the rank (group, index)."""

    def __init__(self, plan: TorturePlan, member: tuple[int, int], endpoint: Endpoint, memory: RankMemory) -> None:
        self.plan, self.member, self.endpoint, self.memory = plan, member, endpoint, memory
        self.decodes = member[0] in DECODE
        self.rooms: dict[Room, TortureRoom] = {}
        self.over: set[Room] = set()
        self._due: list[tuple[float, int, int]] = []  # (when, number, act)
        self._claimed: list[TortureRoom] = []
        self._looked = 0.0
        #: for the parent, and emptied by it: outcomes, releases, rooms that are this group's by now, what is wrong
        self.told: list[Told] = []
        self.released: list[int] = []
        self.owned: list[int] = []
        self.wrong: list[tuple[int, str]] = []

    def enter(self, number: int) -> None:
        self._later(self.plan.room(number), 0)

    def step(self) -> None:
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            _, number, at = heapq.heappop(self._due)
            room = self.plan.room(number)
            acts = room.acts[self.member]
            if at and (room.room not in self.rooms or room.room in self.over):
                continue
            self._do(room, acts[at])
            if at + 1 < len(acts):
                self._later(room, at + 1)
        self._claimed = [room for room in self._claimed if not self._owns(room)]

    def _later(self, room: TortureRoom, at: int) -> None:
        when = time.monotonic() + room.acts[self.member][at].after
        heapq.heappush(self._due, (when, room.number, at))

    def _do(self, room: TortureRoom, act: Act) -> None:
        endpoint: Any = self.endpoint
        match act.what:
            case "open":
                self._open(room, act.upto or room.tokens)
            case "prefetch":
                endpoint.prefetch(room.room)
            case "produced":
                self.memory.fill(room, 0, act.upto)
                endpoint.produced(room.room, act.upto)
            case "aux":
                endpoint.aux(room.room, aux_row(room))
            case "abort":
                endpoint.abort(room.room)

    def _open(self, room: TortureRoom, tokens: int) -> None:
        endpoint: Any = self.endpoint
        self.rooms[room.room] = room
        table = self.memory.take(room, tokens)
        if self.decodes:
            self.memory.fill(room, 0, room.prefix)
            endpoint.open(room.room, tokens, table, prefix=room.prefix, group=room.way[0])
        else:
            endpoint.open(room.room, tokens, table, group=room.way[1])
            if room.trouble == "intruded":
                self._claimed.append(room)

    def _owns(self, room: TortureRoom) -> bool:
        """Tell whether every decode rank of the room's group is known here; then others may try to invade it."""
        if room.room not in self.rooms or room.room in self.over:
            return True
        if self.endpoint.status(room.room) < Status.WAITING:
            return False
        self.owned.append(room.number)
        return True

    # ----------------------------------------------------------------------------------------- being told
    def collect(self) -> None:
        for outcome in self.endpoint.finished():
            self._finished(outcome)
        for name in self.endpoint.released():
            self._released(name)
        if time.monotonic() - self._looked > LOOK_S:
            self.look()

    def look(self) -> None:
        """Whether anything has changed that nobody may change."""
        self._looked = time.monotonic()
        self.wrong += [(-1, text) for text in self.memory.intruded()]

    def _finished(self, outcome: Outcome) -> None:
        room = self.rooms.get(outcome.room)
        if room is None or outcome.room in self.over:
            self.wrong.append((-1, f"an outcome of {outcome.room}, which is not open here: {outcome.cause.name}"))
            return
        self.over.add(outcome.room)
        self.told.append((room.number, outcome.cause.name, outcome.reason))
        if (self.endpoint.status(outcome.room) is Status.SUCCESS) != outcome.ok:
            self.wrong.append((room.number, f"its outcome is {outcome.cause.name}, its status is not"))
        if outcome.ok and self.decodes:
            self.wrong += [(room.number, text) for text in self.memory.wrong(room)]
            if outcome.aux != aux_row(room):
                self.wrong.append((room.number, f"its aux row is {outcome.aux!r}"))

    def _released(self, name: Room) -> None:
        room = self.rooms.get(name)
        if room is None or name not in self.over:
            self.wrong.append((-1, f"{name} was released, but is not over here"))
            return
        self.look()
        del self.rooms[name]
        self.over.remove(name)
        self.memory.give_back(room.number)
        self.released.append(room.number)
