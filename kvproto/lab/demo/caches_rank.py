"""Caches rank: a rank of either side, with its share of a model's caches in pages, and an endpoint.

Each rank computes the whole model with the library's own cache, and remembers its share of that in pages alone: its
heads, its segments of a convolution, its layers.  What P has computed leaves from there.  D has seen none of a prompt:
its ranks put together what is in their pages, make the library's cache of it, and go on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.fsm.timing import Timer
from kvproto.lab.demo.cache_field import Rows, rebuilt, rows_of
from kvproto.lab.demo.caches_job import CachesRun
from kvproto.lab.demo.caches_model import CachesModel
from kvproto.lab.demo.caches_pages import CachesPages, HeldRoom, whole_rows
from kvproto.lab.demo.comm import Comm
from kvproto.lab.demo.job import RoomSpec, Side
from kvproto.lab.demo.model import read_aux
from kvproto.lab.demo.player import complaints, make_transport, settle, started, wait_until
from kvproto.lab.demo.run import EVERY_STEP, GRANT_TRIES
from kvproto.lab.demo.tampered_room import CONTROLS, TamperedRoom
from kvproto.lab.demo.verify import Sheet
from kvproto.lab.process_group import ParentPipe
from kvproto.protocol.timing import Timing
from kvproto.room import Outcome, Room
from kvproto.settings import Settings

#: pages and slots that no room uses: they must come out unchanged
SPARE = 5
#: bytes by which the parts of a region may be rounded up
ROUNDED = 4096


class CachesRank:
    """The common part of both sides."""

    def __init__(self, line: ParentPipe, run: CachesRun, side: Side, index: int, directory: Path) -> None:
        self.line, self.run, self.job, self.index, self.directory = line, run, run.job, index, directory
        self.me, size = CachesModel(run.job), run.job.shape(side).page_size
        self.layout = self.me.layout(side)
        pages = sum(-(-room.tokens // size) for room in self.job.rooms) + SPARE
        self.pages = CachesPages(self.layout, index, pages=pages, windows=pages, slots=len(self.job.rooms) + SPARE,
                                 seed=hash((run.job.seed, side == "decode", index)) & 0x7FFF_FFFF)  # fmt: skip
        self.held = dict[int, HeldRoom]()
        self.outcomes, self.released, self.computed = dict[int, Outcome](), set[int](), set[int]()

    def made(self, kind: type[PrefillEndpoint | DecodeEndpoint]) -> Any:
        run, tokens = self.run, self.job.chunk_tokens
        part = self.layout.slot_bytes(self.index, tokens) + ROUNDED
        settings = Settings(
            timing=Timing(grant_retry=Timer(run.grant_wait / GRANT_TRIES, GRANT_TRIES)), window=run.window,
            slots=run.slots, ring_bytes=int(run.ring if run.in_bytes else run.ring * part), costs="free",
            trace=EVERY_STEP,
        )  # fmt: skip
        return kind(
            self.layout, self.index, self.pages.pool, make_transport(run), chunk_tokens=tokens,
            settings=settings, keys=run.keys, staging=run.staging,
        )  # fmt: skip

    def places(self, room: RoomSpec) -> dict[str, Any]:
        """Slot and window of a room, for a call of `open`."""
        held, ends = self.held[room.room], {each.of[0].name for each in self.pages.pool.ends if each.of is not None}
        return {"slot": held.slot if "state" in ends else None, "window": held.window if "window" in ends else None}

    def look(self, endpoint: Endpoint) -> None:
        # Releases first: the loop goes on meanwhile, and none may be seen before its outcome.
        released = endpoint.released()
        self.outcomes.update((outcome.room.id, outcome) for outcome in endpoint.finished())
        self.released.update(room.id for room in released)

    def until(self, done: Callable[[], bool], what: str, endpoint: Endpoint) -> None:
        """Look until `done()`; TimeoutError says what each room waits for."""
        names = [Room(each.room) for each in self.job.rooms]
        wait_until(done, what, self.run.limit_s, lambda: map(endpoint.explain, names), lambda: self.look(endpoint))

    def over(self) -> bool:
        return len(self.outcomes) == len(self.released) == len(self.job.rooms)

    def account(self, endpoint: Endpoint) -> None:
        """Tell what went wrong, what is left over, and what was moved."""
        held = settle(endpoint)
        wrong = [f"room {number} ended as {outcome.cause.name}: {outcome.reason}"
                 for number, outcome in self.outcomes.items() if not outcome.ok]  # fmt: skip
        wrong += [*held, *complaints(endpoint)]
        wrong += self.pages.intruded(self.held.values())
        self.line.tell("tally", (wrong, endpoint.metrics().get("bytes", 0)))


def prefill(line: ParentPipe, run: CachesRun, index: int, directory: Path) -> None:
    _Prefill(line, run, "prefill", index, directory).play()


def decode(line: ParentPipe, run: CachesRun, index: int, directory: Path) -> None:
    _Decode(line, run, "decode", index, directory).play()


class _Prefill(CachesRank):
    def look(self, endpoint: Endpoint) -> None:
        """Give the pages of released rooms back, too: whoever reads them late meets noise."""
        super().look(endpoint)
        for room in [room for room in self.held if room in self.released and room in self.computed]:
            self.pages.give(self.held.pop(room))

    def play(self) -> None:
        endpoint: PrefillEndpoint = self.made(PrefillEndpoint)
        with started(endpoint):
            self.line.tell("address", endpoint.address)
            self.line.hear("go")
            for room in self.job.rooms:
                held = self.held[room.room] = self.pages.take(room.tokens)
                endpoint.open(Room(room.room), room.tokens, held.pages, **self.places(room))
                endpoint.prefetch(Room(room.room))
            for room in self.job.rooms:
                self._compute(endpoint, room)
                self.look(endpoint)
            self.until(self.over, "released", endpoint)
            self.account(endpoint)
            self.line.hear("close")

    def _compute(self, endpoint: PrefillEndpoint, room: RoomSpec) -> None:
        held, name, first = self.held[room.room], Room(room.room), 0
        for upto, cache, row in self.me.prefill(room):
            self.pages.store(rows_of(self.me.fields, cache), held, first, upto)
            self.pages.renew(held)
            endpoint.produced(name, upto)
            if row is not None:
                endpoint.aux(name, row)
            first = upto
        self.line.tell("kv", (room.room, self.pages.sheet(self.pages.load(held))))
        self.computed.add(room.room)


class _Decode(CachesRank):
    def play(self) -> None:
        shape = self.job.decode
        comm = Comm(self.directory / "decode.store", self.index, shape.tp, shape.pp)
        endpoint: DecodeEndpoint = self.made(DecodeEndpoint)
        with started(endpoint):
            endpoint.connect(self.me.layout("prefill"), self.line.hear("addresses"))
            self.until(endpoint.ready, "linked", endpoint)
            self.line.tell("linked")
            self.line.hear("go")
            for room in self.job.rooms:
                held = self.held[room.room] = self._given(room)
                endpoint.open(Room(room.room), room.tokens, held.pages, prefix=room.prefix, **self.places(room))
            self.until(self.over, "released", endpoint)
            shares = {number: self.pages.load(held) for number, held in self.held.items() if self.outcomes[number].ok}
            for number, share in shares.items():
                self.line.tell("kv", (number, self.pages.sheet(share)))
            self._try_controls(shares)
            for room in self.job.rooms if len(shares) == len(self.job.rooms) else ():
                self._continue(room, self.pages.sheet(shares[room.room]), comm)
            self.account(endpoint)
            self.line.hear("close")

    def _given(self, room: RoomSpec) -> HeldRoom:
        """Memory for a room, with what D has of it already."""
        held = self.pages.take(room.tokens)
        if room.prefix:
            rows: Rows = torch.load(self.directory / f"room-{room.room}.rows")
            self.pages.store(rows, held, 0, room.prefix)
        self.pages.renew(held)
        return held

    def _try_controls(self, shares: dict[int, Rows]) -> None:
        """Each control once, on the first room that it can be applied to; the parent must find it."""
        for name, control in CONTROLS.items():
            for room in self.job.rooms:
                others = [share for number, share in shares.items() if number != room.room]
                if len(others) == len(shares):
                    continue
                changed = control(TamperedRoom(self.job, room, self.pages, shares[room.room], others))
                if changed is not None:
                    self.line.tell("tampered", (name, room.room, self.pages.sheet(changed)))
                    break

    def _continue(self, room: RoomSpec, mine: Sheet, comm: Comm) -> None:
        """Say what follows, from what all ranks of the group have in their pages."""
        first = read_aux(self.outcomes[room.room].aux)
        rows = whole_rows(comm.gather_objects(mine), self.me.units)
        cache = rebuilt(self.me.model.config, self.me.fields, rows, room.tokens)
        self.line.tell("said", (room.room, [first, *self.me.more(cache, first[0], room.new - 1)]))
