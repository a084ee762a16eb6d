"""A rank's part in a run: the shard of `rank` with an endpoint of the library, pass after pass.

What it does is what an engine would: open, produced, aux, finished, released. Nothing that the transfer says of itself
decides whether it was right: `line.tell("kv", ...)` hands the bytes of the pages to the parent, which knows what they
must be.

Collectives (prefill, resume) go through all ranks of a group, in the same order of rooms in each of them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from kvproto.decode import DecodeEndpoint
from kvproto.demo.controls import CONTROLS
from kvproto.demo.group import Line
from kvproto.demo.job import RoomSpec
from kvproto.demo.model import AUX, read_aux
from kvproto.demo.oracle import load_truth
from kvproto.demo.player import Player, device_of, make_transport, pool_of, started, written
from kvproto.demo.rank import Rank
from kvproto.demo.run import Route, Run
from kvproto.demo.tally import decode_counts, prefill_counts
from kvproto.prefill import PrefillEndpoint

# ---- prefill ------------------------------------------------------------------------------------------------------


def prefill(line: Line, run: Run, rank: int, directory: Path) -> None:
    me = Rank(run.job, "prefill", rank, directory, device_of(run, rank))
    for gen, route in enumerate(run.passes):
        endpoint = PrefillEndpoint(
            me.layout, rank, pool_of(me), make_transport(run), grid=me.grid, settings=run.settings(route)
        )
        with started(endpoint):
            line.tell("address", endpoint.address)
            _Prefill(line, run, me, endpoint, gen).play(endpoint, route)
            line.hear("close")


class _Prefill(Player):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.held: set[int] = set()  # rooms that the engine itself is through with, but not their transfer

    def play(self, endpoint: PrefillEndpoint, route: Route) -> None:
        self.line.hear("go")
        if route == "live":
            self._arrive(endpoint)
            for room in self.run.forwards:
                self._compute(endpoint, room)
        else:
            rows = [self._place(room) for room in self.run.job.rooms]
            self.line.tell("placed")
            self.line.hear("start")
            self._arrive(endpoint)
            for room, row in zip(self.run.job.rooms, rows, strict=True):
                endpoint.produced(self.name(room.room), room.tokens, written(self.me))
                endpoint.aux(self.name(room.room), row)
                self.held.add(room.room)
        self.until(lambda: self.finished() and self.all_released(), "released", self._reap)
        self.report(prefill_counts(endpoint.rank.trace) | endpoint.data.stats, route)

    def _arrive(self, endpoint: PrefillEndpoint) -> None:
        self.began = time.monotonic()
        for room in self.run.job.rooms:
            if room.room not in self.me.tables:
                self.me.allocate(room)
            endpoint.open(self.name(room.room), room.tokens, self.pages(room))
            endpoint.prefetch(self.name(room.room))

    def _place(self, room: RoomSpec) -> bytes:
        """KV computed before, in fresh pages; the aux row."""
        truth, table = load_truth(self.me.directory, room.room), self.me.allocate(room)
        self.me.shard.place(truth, table, room.tokens)
        return AUX.pack(truth.tokens[0], truth.logits[0])

    def _compute(self, endpoint: PrefillEndpoint, room: RoomSpec) -> None:
        """The forward of one room, chunk by chunk; what is to be aborted stops half-way."""
        name, start = self.name(room.room), time.monotonic()
        for upto, row in self.me.prefill(room.room):
            if room.room in self.run.aborted and 2 * upto >= room.tokens:
                self._give_up(endpoint, room)
                break
            endpoint.produced(name, upto, written(self.me))
            if row is not None:
                endpoint.aux(name, row)
            self.line.tell("computed", (room.room, upto))
        else:
            self.computed_s += time.monotonic() - start
            self.line.tell("kv", (room.room, self.me.sheet(room.room)))
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
        for room in self.released & self.held:
            self.held.remove(room)
            self.me.give_back(room)


# ---- decode -------------------------------------------------------------------------------------------------------


def decode(line: Line, run: Run, rank: int, directory: Path) -> None:
    me = Rank(run.job, "decode", rank, directory, device_of(run, run.job.prefill.ranks + rank))
    for gen, route in enumerate(run.passes):
        endpoint = DecodeEndpoint(
            me.layout, rank, pool_of(me), make_transport(run), grid=me.grid, settings=run.settings(route)
        )
        with started(endpoint):
            player = _Decode(line, run, me, endpoint, gen)
            player.link(endpoint)
            player.play(endpoint, route)
            line.hear("close")


class _Decode(Player):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: set[int] = set()

    def link(self, endpoint: DecodeEndpoint) -> None:
        addresses, start = self.line.hear("addresses"), time.monotonic()
        endpoint.connect(self.run.job.layout("prefill"), addresses)
        self.until(endpoint.ready, "linked")
        self.linked_s = time.monotonic() - start
        self.line.tell("linked")

    def play(self, endpoint: DecodeEndpoint, route: Route) -> None:
        self.line.hear("go")
        for room in self.run.job.rooms:
            self.me.allocate(room)
        if route != "live":
            self.line.tell("placed")
            self.line.hear("start")
        self.began = time.monotonic()
        for room in self.run.job.rooms:
            endpoint.open(self.name(room.room), room.tokens, self.pages(room), prefix=room.prefix)
        self.until(self.finished, "finished", self._step)
        self._hear_aborts(self.run.aborted if route == "live" else frozenset())
        good = [room.room for room in self.run.job.rooms if self.outcomes[room.room].ok]
        for room_id in good:
            self.line.tell("kv", (room_id, self.me.sheet(room_id)))
        if route == "live":
            self._try_controls(good)
        self.until(self.all_released, "released", self._step)
        self.report(decode_counts(endpoint.rank.trace, self.run.ring) | endpoint.data.stats, route)
        if route == "live":
            self._resume()
        for room_id in list(self.me.tables):
            self.me.give_back(room_id)

    def _step(self) -> None:
        """Pages of a room that failed are given back, as noise, when they are released: no write may come after."""
        before = set(self.released)
        self.take()
        for room in self.released - before:
            if not self.outcomes[room].ok:
                self.me.give_back(room)
        if self.run.abort == "decode" and not self.finished() and self.line.waiting():
            self._abort()

    def _abort(self) -> None:
        room = self.line.hear("abort")
        self.asked.add(room)
        self.endpoint.abort(self.name(room))

    def _hear_aborts(self, rooms: frozenset[int]) -> None:
        """Those that a faster rank of the group has asked for already are heard too, and mean nothing any more."""
        while self.run.abort == "decode" and self.asked < rooms:
            self._abort()

    def _try_controls(self, rooms: list[int]) -> None:
        """Each control once, on the first room that it can be applied to; the parent must find it."""
        for control in CONTROLS:
            for room in rooms:
                if self.me.controls(room, [control]):
                    with self.me.tampered(control, room):
                        self.line.tell("tampered", (room, control, self.me.sheet(room)))
                    break

    def _resume(self) -> None:
        """Continue the rooms that the parent names, from pages alone; then nothing else may have changed."""
        for room in self.line.hear("resume"):
            row = self.outcomes[room].aux
            start = time.monotonic()
            rows = [read_aux(row), *(read_aux(more) for more in self.me.resume(room, read_aux(row)[0]))]
            self.line.tell("said", (room, rows, time.monotonic() - start))
        self.line.tell("resumed", self.me.intruded())

