"""Takeover rank: the process of one rank in one life, and the part of its engine that dies with it.

What the parent says: `connect`, `disconnect`, `open` and `abort` rooms, `fill` pages, `digest`, `explain`,
`save` the trace, `close`.
What it hears: `here`, `up` (links), `told`, `released`, `points`: what a decode rank has of each room, whenever that
has risen.
Page tables, points and truths are the parent's: they outlive every rank.
"""

from __future__ import annotations

import heapq
import time
from pathlib import Path
from typing import Any

import msgspec

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.resume_point import ResumePoint
from kvproto.lab.process_group import ParentPipe
from kvproto.lab.torture.fleet import Carrier
from kvproto.lab.torture.rank import JudgedRank, log_nothing, make_transport
from kvproto.lab.torture.takeover_pages import TakeoverPages, kv_of
from kvproto.lab.torture.takeover_plan import TakeoverPlan, TakeoverSide
from kvproto.layout.sharding import Layout
from kvproto.room import Room


class OpenedRoom(msgspec.Struct, frozen=True):
    """A room for one rank's engine: its pages there, the KV's seed, and what the room before it was."""

    number: int
    room: Room
    tokens: int
    table: list[int]
    group: int
    seed: int
    prefix: int
    resumes: Room | None
    #: of a prefill engine: (seconds after the last step, tokens), and whether it gives the aux row
    steps: tuple[tuple[float, int], ...]
    aux: bool


class TakeoverRank(JudgedRank):
    """One rank."""

    def __init__(
        self, line: ParentPipe, plan: TakeoverPlan, side: TakeoverSide, index: int, life: int, carrier: Carrier,
        path: Path,
    ) -> None:  # fmt: skip
        super().__init__(line, f"{side}{index}")
        self.index, layout = index, plan.layout(side, life)
        self._shared = TakeoverPages(plan.layout("D", life).page_size, path)
        self.pages = self._shared if side == "D" else TakeoverPages(layout.page_size)
        self.rooms: dict[Room, OpenedRoom] = {}
        self._points: dict[int, int] = {}
        self._due: list[tuple[float, int, int, Room]] = []
        self.make(
            layout, index, self.pages.pool(layout, index), make_transport(carrier), decodes=side == "D",
            group=plan.group(side, life), settings=plan.settings(),
        )  # fmt: skip

    def work(self) -> None:
        """Compute what is due, and tell outcomes, releases, and what has arrived."""
        self._step()
        for outcome in self.endpoint.finished():
            told = self.rooms[outcome.room].number, outcome.room.gen, outcome.cause.name, outcome.reason
            self.line.tell("told", told)
        for room in self.endpoint.released():
            if self.pages is self._shared:  # the last word on what has arrived
                self._tell_point(room)
            self.line.tell("released", (self.rooms.pop(room).number, room.gen))
        if isinstance(self.endpoint, DecodeEndpoint):
            for room in self.rooms:
                self._tell_point(room)
        else:
            self._shared.counters[self.index] = self.endpoint.metrics()["bytes"]
        super().work()

    def _tell_point(self, room: Room) -> None:
        assert isinstance(self.endpoint, DecodeEndpoint)
        upto, number = self.endpoint.resume_point(room).upto, self.rooms[room].number
        if self._points.get(number, 0) != upto:
            self._points[number] = upto
            self.line.tell("points", (number, room.gen, upto))

    def _step(self) -> None:
        """Compute what is due of the rooms' forwards."""
        endpoint: Any = self.endpoint
        while self._due and self._due[0][0] <= time.monotonic():
            _, _, at, room = heapq.heappop(self._due)
            opened = self.rooms.get(room)
            if opened is None:
                continue
            upto = opened.steps[at][1]
            self.pages.write(opened.table, 0, kv_of(opened.seed, opened.tokens)[:, :, :upto])
            endpoint.produced(room, upto)
            self._later(opened, at + 1)

    def _later(self, opened: OpenedRoom, at: int) -> None:
        if at < len(opened.steps):
            when = time.monotonic() + opened.steps[at][0]
            heapq.heappush(self._due, (when, opened.number, at, opened.room))

    # ------------------------------------------------------------------------------- what the parent says
    def _connect(self, group: int, layout: Layout, addresses: list[str]) -> None:
        assert isinstance(self.endpoint, DecodeEndpoint)
        self.endpoint.connect(layout, addresses, group=group)

    def _disconnect(self, group: int) -> None:
        assert isinstance(self.endpoint, DecodeEndpoint)
        self.endpoint.disconnect(group)

    def _up(self, group: int) -> None:
        assert isinstance(self.endpoint, DecodeEndpoint)
        self.line.tell("up", self.endpoint.ready(group))

    def _fill(self, rooms: list[tuple[list[int], int, int]]) -> None:
        """Compute whole prompts (table, tokens, seed), for rooms that are not open yet."""
        for table, tokens, seed in rooms:
            self.pages.write(table, 0, kv_of(seed, tokens))

    def _open(self, rooms: list[OpenedRoom]) -> None:
        endpoint: Any = self.endpoint
        for each in rooms:
            self.rooms[each.room], self._points[each.number] = each, each.prefix
            more = {"prefix": each.prefix} if isinstance(endpoint, DecodeEndpoint) else {}
            endpoint.open(each.room, each.tokens, each.table, group=each.group, resumes=each.resumes, **more)
            if not more:
                if each.aux:
                    endpoint.aux(each.room, each.seed.to_bytes(8, "big"))
                self._later(each, 0)

    def _abort(self, rooms: list[Room]) -> None:
        for room in rooms:
            if room in self.rooms:
                self.endpoint.abort(room)

    def _digest(self, asked: list[tuple[int, str, list[int]]]) -> None:
        """Make digests of (number of a room, its point, its pages here)."""
        made = {n: self.endpoint.digest_pages(ResumePoint.decode(text), table).encode() for n, text, table in asked}
        self.line.tell("digests", made)

    def _figures(self) -> None:
        self.monitor.rest()
        faults = [text for text in self.endpoint.reports() if "raised" in text]
        counts = self.endpoint.metrics()
        self.line.tell("figures", (self.monitor.steps, counts.get("faults", 0), faults))


def program(
    line: ParentPipe, plan: TakeoverPlan, side: TakeoverSide, index: int, life: int, carrier: Carrier, path: Path
) -> None:
    log_nothing()
    TakeoverRank(line, plan, side, index, life, carrier, path).serve()
