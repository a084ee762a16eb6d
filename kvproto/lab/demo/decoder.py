"""Decoder: a decode rank that opens rooms, and computes the next token of those that have landed.

The parent is the scheduler of this side: a forward goes through all ranks of the group, so all must do it for the
same room at the same time. Each rank tells what has landed, the parent says which room is next.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.lab.demo.job import RoomSpec
from kvproto.lab.demo.model import read_aux
from kvproto.lab.demo.pass_counts import decode_counts
from kvproto.lab.demo.player import Player, make_endpoint, rank_of, started
from kvproto.lab.demo.run import Route, Run
from kvproto.lab.process_group import ParentPipe
from kvproto.verify.testing import inside


def decode(line: ParentPipe, run: Run, rank: int, directory: Path) -> None:
    me = rank_of(run, "decode", rank, directory)
    for gen, route in enumerate(run.passes):
        endpoint: DecodeEndpoint = make_endpoint(DecodeEndpoint, me, run, route)
        with started(endpoint):
            player = _Decode(line, run, me, endpoint, gen)
            player.link(endpoint)
            player.play(endpoint, route)
            line.hear("close")


class _Decode(Player):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: set[int] = set()  # rooms that the parent wants aborted
        self.judged: set[int] = set()  # rooms of which the parent has said whether they go on
        self.aborts: frozenset[int] = frozenset()  # those that it will want aborted
        self.rows: dict[int, list[tuple[int, bytes]]] = {}

    def link(self, endpoint: DecodeEndpoint) -> None:
        addresses, start = self.line.hear("addresses"), time.monotonic()
        endpoint.connect(self.me.layout_of("prefill"), addresses)
        self.until(endpoint.ready, "linked")
        self.linked_s = time.monotonic() - start
        self.line.tell("linked")

    def play(self, endpoint: DecodeEndpoint, route: Route) -> None:
        run, live = self.run, route.startswith("live")
        self.line.hear("go")
        if route == "live" and run.abort == "decode":
            self.aborts = run.aborted
        for room in run.job.rooms:
            self.me.allocate(room)
        if not live:
            self.line.tell("placed")
            self.line.hear("open")

        def enter(rooms: Iterable[RoomSpec]) -> None:
            for room in rooms:
                endpoint.open(self.name(room.room), room.tokens, prefix=room.prefix, **self.me.opened_with(room))

        def over(rooms: Sequence[RoomSpec]) -> bool:
            have = self.judged if live else self.outcomes.keys()
            return {room.room for room in rooms} <= have

        def carry() -> None:
            enter(run.first)
            self.until(lambda: over(run.first), "through", self._step)
            if not live:
                enter(run.timed)

        self.warm_up(carry)
        if live:
            enter(run.timed)
        self.until(lambda: over(run.job.rooms) and self.aborts <= self.asked, "finished", self._step)
        self._tell_all(endpoint, route)

    def _tell_all(self, endpoint: DecodeEndpoint, route: Route) -> None:
        """The clock has stopped: what is in the pages, what the controls make of it, and how the text goes on."""
        good = [room.room for room in self.run.job.rooms if self.outcomes[room.room].ok]
        for room_id in good:
            self.line.tell("kv", (room_id, self.me.sheet(room_id)))
        if route == "live":
            for tampered in self.me.corrupted(good):
                self.line.tell("tampered", tampered)
        self.until(self.all_released, "released", self._step)
        rank = inside(endpoint).rank
        counts = decode_counts(rank.trace, rank.settings.ring_bytes)
        self.report(counts | inside(endpoint).data.stats, route)
        if route.startswith("live"):
            self._resume(whole=route == "live")
        for room_id in list(self.me.tables):
            self.me.give_back(room_id)

    def _step(self) -> None:
        """Fill pages of a failed room with noise when they are released: no write may come after."""
        before = set(self.released)
        self.take()
        for room in self.released - before:
            if not self.outcomes[room].ok:
                self.me.give_back(room)
        while not self._all_heard() and self.line.waiting():
            self._obey(*self.line.listen())

    def _all_heard(self) -> bool:
        return len(self.judged) == len(self.run.job.rooms) and self.aborts <= self.asked

    def _obey(self, kind: str, room: int) -> None:
        match kind:
            case "abort":
                self.asked.add(room)
                self.endpoint.abort(self.name(room))
            case "say":
                self._first_token(room)
                self.judged.add(room)
            case "skip":
                self.judged.add(room)
            case _:
                raise RuntimeError(f"the parent sent {kind!r} while rooms were under way")

    def _first_token(self, room: int) -> None:
        row = self.outcomes[room].aux
        self.me.begin_resuming(room)
        self.mark("asked", room)
        rows = [row, *self.me.resume(room, read_aux(row)[0], min(1, self.me.rooms[room].new - 1))]
        self.rows[room] = [read_aux(each) for each in rows]
        if len(rows) > 1:
            self.mark("said", room)

    def _resume(self, *, whole: bool) -> None:
        """Continue the rooms that the parent names, from pages alone; then nothing else may have changed."""
        for room in self.line.hear("resume"):
            rows = self.rows[room]
            if whole:
                rows += [read_aux(more) for more in self.me.resume(room, rows[-1][0])]
            self.line.tell("said", (room, rows))
        self.line.tell("resumed", self.me.intruded())
