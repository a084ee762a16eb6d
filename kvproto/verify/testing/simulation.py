"""Simulation: thousands of rooms through a pair of groups, every move drawn from one seed.

Control frames do without sockets, so nothing is left to the operating system: a seed is a run, and `digest` (over every
move, every frame that a loop took and every outcome) says so. A breach ends the simulation with its seed and the number
of the move. Drawn are who polls, which piece lands, which copy is over, how much time passes, what engines do, and,
rarely, faults. In the end everything is drained: what no trouble has touched must have succeeded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.fsm.driver import steps
from kvproto.fsm.table import Row
from kvproto.fsm.vocabulary import State
from kvproto.io.control.control import Peer
from kvproto.layout.caches import Cache
from kvproto.layout.sharding import Layout
from kvproto.protocol.codec import decode
from kvproto.protocol.messages import Hello
from kvproto.protocol.states import DGrant, PLink, PSend
from kvproto.protocol.tables import TABLES
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.stage import TIMING, EngineStage
from kvproto.verify.testing.task import Side

RELIEF = 0.02
CHUNK_TOKENS, LEAST, MOST_TOKENS = 16, 24, 64
#: what happens next, by weight
MOVES = {"poll": 45, "write": 20, "copy": 10, "engine": 20, "time": 5}
#: fault -> how often, for each move of the schedule
FAULTS: dict[str, float] = {
    "abort": 0.0005, "partial": 0.0, "reuse": 0.0, "lose": 0.004, "repeat": 0.004, "reorder": 0.01, "hold": 0.002,
    "fail": 0.001, "doubt": 0.001, "mute": 0.004, "kernel": 0.0005, "stall": 0.0005, "silence": 0.0002, "crash": 0.0001,
    "announce": 0.004, "withdraw": 0.002,
}  # fmt: skip
#: witness -> the state in which it shows
REACHED: dict[str, State] = {
    "waited for the watermark": PSend.AWAIT_WATERMARK, "waited for a slot": PSend.AWAIT_SLOT,
    "over pages": PSend.WRITING_PAGES, "quarantined": DGrant.QUARANTINED, "links lost": PLink.LOST,
}  # fmt: skip


def model(tp: int, page: int, caches: tuple[Cache, ...] = ()) -> Layout:
    """Two layers of four heads, or of these caches, on so many ranks."""
    if caches:
        return Layout.of_caches(caches, layers=2, page_size=page, tp=tp)
    return Layout(layers=2, heads=4, k_dim=4, v_dim=2, itemsize=2, dtype="bfloat16", page_size=page, tp=tp)


class SimulationResult(msgspec.Struct):
    """The report of a simulation."""

    seed: int
    rooms: int
    moves: int
    seconds: float
    rooms_per_s: float
    #: of rooms and ranks: the cause, or NONE
    outcomes: dict[str, int]
    witnesses: dict[str, int]
    faults: dict[str, int]
    rows: str
    digest: str
    breach: str = ""


class Simulation:
    """One run; `move` is one choice, `run` all of them."""

    def __init__(
        self, seed: int, rooms: int, faults: tuple[str, ...] = (), *, tp: tuple[int, int] = (2, 1), ring: int = 6144,
        live: int = 6, settings: Settings | None = None, caches: tuple[Cache, ...] = (),
    ) -> None:  # fmt: skip
        """`ring` in bytes; `live`: rooms at a time; `caches`: of the model, instead of K and V.

        ValueError: there is no such fault.
        """
        if unknown := set(faults) - set(FAULTS):
            raise ValueError(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
        self.random, self.seed, self.rooms, self.faults, self.live = Random(seed), seed, rooms, faults, live
        settings = settings or Settings(timing=TIMING, ring_bytes=ring, slots=2, window=2, tombstones=256)
        pages = live * MOST_TOKENS // 4
        sides = model(tp[0], 4, caches), model(tp[1], 8, caches)
        self.stage = EngineStage(*sides, chunk_tokens=CHUNK_TOKENS, pages=pages,
                                 settings=settings, piece=256,
                           sockets=False, tags=self._chance(0.5))  # fmt: skip
        self.hash = blake2b(digest_size=12)
        self.stage.post.witness = self._heard
        self.counts: Counter[str] = Counter()
        self.rows: Counter[Row] = Counter()
        self.reached: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.moves = self.begun = self.rounds = 0
        self.last: Room | None = None

    def note(self, *what: object) -> None:
        """One more line of the run's digest."""
        self.hash.update(repr(what).encode())

    def _heard(self, number: int, peer: Peer, frame: bytes) -> None:
        """A loop has taken a frame; addresses of memory, which a call tells, are not part of the run."""
        epoch, room, body = decode(frame)
        known = replace(body, endpoint=b"") if isinstance(body, Hello) else frame
        self.note(number, peer.link, peer.name, epoch, room, known)

    # ------------------------------------------------------------------------------------------- moves
    def move(self) -> None:
        self.moves += 1
        stage, random = self.stage, self.random
        match random.choices(tuple(MOVES), tuple(MOVES.values()))[0]:
            case "poll":
                index = random.randrange(len(stage.endpoints))
                self.note("poll", index, stage.poll(index))
                self._count(inside(stage.endpoints[index]).rank)
            case "write":
                for _ in range(random.randint(1, 12)):
                    self.note(stage.fabric.step(random))
            case "copy" if stage.late.pending:
                stage.late.finish(random.randrange(len(stage.late.pending)))
            case "engine":
                self._engines()
            case "time":
                busy = stage.post.busy() or stage.late.pending or stage.fabric.options()
                stage.wait(random.choice((0.001, 0.005, 0.03) if busy else (0.03, 0.2, 0.7)))
        for fault in self.faults:
            if self._chance(FAULTS[fault]):
                self._trouble(fault)
        if self._chance(RELIEF):
            self._relieve()

    def _chance(self, one_in: float) -> bool:
        return self.random.random() < one_in

    def _engines(self) -> None:
        """An engine's call: a new room, or the next of one that is under way."""
        stage, random = self.stage, self.random
        going = [task for task in stage.tasks.values() if task.waits or not task.opened]
        if self.begun < self.rooms and len(going) < self.live and self._chance(0.5):
            self._begin()
            return
        if not going:
            return
        task = random.choice(going)
        self.note("engine", task.room)
        if not (task.late and self._chance(0.9)):
            stage.open_prefill(task.room)
            stage.open_decode(task.room)
        if self._chance(0.5):
            stage.prefetch(task.room)
        done = min(task.produced.values(), default=0)
        if any(side == "P" for side, _ in task.waits):
            stage.produce(task.room, random.choice((done, task.tokens // 2, task.tokens, task.tokens))
                          if done < task.tokens else task.tokens, layers=random.choice((1, None, None)))  # fmt: skip

    def _begin(self) -> None:
        stage, random = self.stage, self.random
        tokens, again = random.randint(1, MOST_TOKENS), {}
        if not stage.fits(tokens):
            return
        if "reuse" in self.faults and self.last is not None and self._chance(0.2):
            again = {"room_id": self.last.id, "gen": self.last.gen + 1}
            self.counts["reuse"] += 1
        prefix = random.choice((0, 0, 0, 8, LEAST)) if tokens > LEAST else 0
        self.counts["prefix hits"] += prefix > 0
        self.last = room = stage.name(tokens, prefix=prefix, **again)
        self.begun += 1
        self.note("open", room, tokens, prefix)
        task = stage.tasks[room]
        task.late = "partial" in self.faults and self._chance(0.1)
        self.counts["partial"] += task.late
        if self._chance(0.8) or task.late:
            (stage.open_decode if self._chance(0.7) else stage.open_prefill)(room)

    # ----------------------------------------------------------------------------------------- troubles
    def _trouble(self, fault: str) -> None:
        act: dict[str, Callable[[], bool]] = {
            "abort": self._abort, "fail": lambda: self._write(fault), "doubt": lambda: self._write(fault),
            "mute": lambda: self._write(fault), "kernel": self._kernel, "stall": self._stall,
            "silence": self._silence, "crash": self._crash, "announce": self._announce, "withdraw": self._withdraw,
        }  # fmt: skip
        frame = {"reorder": "hurry"}.get(fault, fault)
        done = act[fault]() if fault in act else self._frame(frame)
        self.counts[fault] += done
        self.note(fault, done)

    def _abort(self) -> bool:
        going = [task for task in self.stage.tasks.values() if task.waits]
        if not going:
            return False
        task = self.random.choice(going)
        side, index = self.random.choice(sorted(task.waits))
        self.stage.abort(task.room, side, index)
        return True

    def _announce(self) -> bool:
        index = self.random.randrange(len(self.stage.decodes))
        waits = [task for task in self.stage.tasks.values() if ("D", index) not in task.opened]
        if waits:
            self.stage.announce(self.random.choice(waits).room, index)
        return bool(waits)

    def _withdraw(self) -> bool:
        index = self.random.randrange(len(self.stage.prefills))
        going = [task for task in self.stage.tasks.values() if ("P", index) in task.waits]
        if going:
            task = self.random.choice(going)
            self.stage.withdraw(task.room, index, self.random.randrange(task.tokens))
        return bool(going)

    def _write(self, kind: str) -> bool:
        flying = self.stage.flying()
        if flying:
            self.stage.hurt_write(*self.random.choice(flying), kind)
        return bool(flying)

    def _kernel(self) -> bool:
        pending = len(self.stage.late.pending)
        if pending:
            self.stage.hurt_copy(self.random.randrange(pending))
        return bool(pending)

    def _stall(self) -> bool:
        self.stage.stall(self.random.randrange(len(self.stage.endpoints)))
        return True

    def _relieve(self) -> None:
        for index, endpoint in enumerate(self.stage.endpoints):
            if inside(endpoint).data.transport.instance in self.stage.stalled:
                self.stage.stall(index)
        self.stage.post.held.clear()

    def _silence(self) -> bool:
        self.stage.wait(self.random.choice((3.0, 12.0, 30.0)))
        return True

    def _crash(self) -> bool:
        side: Side = self.random.choice(("P", "D"))
        self.stage.crash(side, self.random.randrange(len(self.stage.prefills if side == "P" else self.stage.decodes)))
        return True

    def _frame(self, kind: str) -> bool:
        ways = self.stage.post.busy()
        if ways:
            self.stage.hurt_frame(self.random.choice(ways), self.random.randrange(8), kind)
        return bool(ways)

    # ---------------------------------------------------------------------------------------- witnesses
    def _count(self, rank: Any) -> None:
        """Count the fired rows of this rank's pass; its trace is read and emptied."""
        for _, row, _, old, new in steps(rank.trace):
            if row is not None:
                self.rows[row] += 1
                if old is not new and old.state is not new.state:
                    self.reached[repr(new.state)] += 1
        rank.trace.clear()
        ring = getattr(rank, "ring", None)
        self.counts["deferrals"] += bool(getattr(rank, "space_queue", None))
        if ring is not None:
            self.rounds = max(self.rounds, ring.round)

    def _prune(self) -> None:
        """Rooms that are over everywhere are judged no more."""
        stage = self.stage
        for task in [task for task in stage.tasks.values() if task.opened and not task.waits]:
            if not stage.retire(task):
                continue
            for name in sorted(task.opened):
                outcome = stage.outcomes.pop((*name, task.room), None)
                stage.releases.pop((*name, task.room), None)
                self.outcomes[outcome.cause.name if outcome else "CRASHED"] += 1
                self.note(task.room, name, outcome)
            del stage.tables[task.room]

    # --------------------------------------------------------------------------------------------- all
    def run(self, progress: Callable[[Simulation], None] | None = None, every: int = 50) -> SimulationResult:
        """Run all rooms to their end; call `progress` now and then; look at invariants each `every` moves."""
        started, breach = time.perf_counter(), ""
        try:
            while self.begun < self.rooms:
                self.move()
                if self.moves % every == 0:
                    self.stage.judge()
                    self._prune()
                    if progress is not None:
                        progress(self)
            self.stage.complete()
            self.stage.drain()
            self._prune()
        except AssertionError as error:
            breach = f"move {self.moves}: {error}"
        finally:
            self.stage.close()
        return self.result(time.perf_counter() - started, breach)

    def result(self, seconds: float, breach: str = "") -> SimulationResult:
        for endpoint in self.stage.endpoints:
            self._count(inside(endpoint).rank)
        every = sum(len(table.rows) for table in TABLES)
        witnesses = {name: self.reached[repr(state)] for name, state in REACHED.items()}
        witnesses |= {name: self.counts.pop(name, 0) for name in ("deferrals", "prefix hits")}
        witnesses["rounds of the ring"] = self.rounds
        assert self.stage.judges is not None
        witnesses["pieces"] = self.stage.judges.pieces
        return SimulationResult(
            self.seed, self.begun, self.moves, round(seconds, 3), round(self.begun / seconds, 1),
            dict(sorted(self.outcomes.items())), witnesses, dict(sorted(self.counts.items())),
            f"{len(self.rows)} of {every}", self.hash.hexdigest(), breach,
        )  # fmt: skip
