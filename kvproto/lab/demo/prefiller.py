"""Prefiller: a prefill rank that computes rooms, reports tokens, and takes back what is released.

What has to be told at length, the bytes of the KV, is told when the clock has stopped: a room's KV is copied where it
is before its pages may be reused, because pages that are released are noise at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.lab.demo.job import RoomSpec
from kvproto.lab.demo.pass_counts import prefill_counts
from kvproto.lab.demo.player import Player, make_endpoint, rank_of, started, written
from kvproto.lab.demo.run import Route, Run
from kvproto.lab.process_group import ParentPipe
from kvproto.room import Status
from kvproto.verify.testing import inside


def prefill(line: ParentPipe, run: Run, rank: int, directory: Path) -> None:
    me = rank_of(run, "prefill", rank, directory)
    for gen, route in enumerate(run.passes):
        endpoint: PrefillEndpoint = make_endpoint(PrefillEndpoint, me, run, route)
        with started(endpoint):
            line.tell("address", endpoint.address)
            _Prefill(line, run, me, endpoint, gen).play(endpoint, route)
            line.hear("close")


class _Prefill(Player):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.held: set[int] = set()  # rooms that the engine itself is through with, but not their transfer
        self.kept: dict[int, Any] = {}

    def play(self, endpoint: PrefillEndpoint, route: Route) -> None:
        self.route = route
        self.line.hear("go")
        if route.startswith("live"):
            self._live(endpoint)
        else:
            self._ready(endpoint)
        self.until(lambda: self.finished() and self.all_released(), "released", self._reap)
        self.held.update(set(self.me.tables))
        self._reap()
        for room, copies in self.kept.items():
            self.line.tell("kv", (room, self.me.told(copies)))
        self.report(prefill_counts(inside(endpoint).rank.trace) | inside(endpoint).data.stats, route)

    def _live(self, endpoint: PrefillEndpoint) -> None:
        def carry() -> None:
            self._arrive(endpoint, self.run.first)
            for room in self.run.first:
                self._compute(endpoint, room)
            self._through(self.run.first)

        self.warm_up(carry)
        self._arrive(endpoint, self.run.timed)
        for room in self.run.forwards:
            self._compute(endpoint, room)

    def _ready(self, endpoint: PrefillEndpoint) -> None:
        rows = {room.room: self.me.place(room) for room in self.run.job.rooms}

        def produce(rooms: Sequence[RoomSpec]) -> None:
            for room in rooms:
                endpoint.produced(self.name(room.room), room.tokens, written(self.me))
                endpoint.aux(self.name(room.room), rows[room.room])

        def carry() -> None:
            self._arrive(endpoint, self.run.first)
            produce(self.run.first)
            self._through(self.run.first)
            self._arrive(endpoint, self.run.timed)
            names = [self.name(room.room) for room in self.run.timed]
            self.until(lambda: all(endpoint.status(name) >= Status.TRANSFERRING for name in names), "open", self.take)

        self.line.tell("placed")
        self.line.hear("open")
        self.warm_up(carry)
        produce(self.run.timed)

    def _arrive(self, endpoint: PrefillEndpoint, rooms: Iterable[RoomSpec]) -> None:
        for room in rooms:
            if room.room not in self.me.tables:
                self.me.allocate(room)
            endpoint.open(self.name(room.room), room.tokens, **self.me.opened_with(room))
            endpoint.prefetch(self.name(room.room))

    def _through(self, rooms: Sequence[RoomSpec]) -> None:
        self.until(lambda: {room.room for room in rooms} <= self.outcomes.keys(), "through", self._reap)

    def _compute(self, endpoint: PrefillEndpoint, room: RoomSpec) -> None:
        """The forward of one room, chunk by chunk; what is to be aborted stops half-way."""
        name, start = self.name(room.room), time.monotonic()
        self.mark("begun", room.room)
        for upto, row in self.me.prefill(room.room):
            if self.route == "live" and room.room in self.run.aborted and 2 * upto >= room.tokens:
                self._give_up(endpoint, room)
                break
            if row is not None:
                self.mark("computed", room.room)
            endpoint.produced(name, upto, written(self.me))
            if row is not None:
                endpoint.aux(name, row)
            self.line.tell("computed", (room.room, upto))
        else:
            self.computed_s += time.monotonic() - start
            if self.route == "live":
                self.kept[room.room] = self.me.copied(room.room)
        self.held.add(room.room)
        self._reap()

    def _give_up(self, endpoint: PrefillEndpoint, room: RoomSpec) -> None:
        if self.run.abort == "prefill":
            endpoint.abort(self.name(room.room))
        else:
            self.line.tell("half", room.room)

    def _reap(self) -> None:
        """Pages that are released are given back at once: noise is what a late reader would meet there.

        A rank that owes nobody anything, a replica, has its rooms released before it has computed them.
        """
        self.take()
        for room in self.released & self.held & self.me.tables.keys():
            self.held.remove(room)
            self.me.give_back(room)
