"""Handler worlds, small and searched in full: every order in which what handlers wait for can end.

A move is a piece of work of one stream, a step of one write (a piece lands, its tag arrives, its writer is told), a
pass of all loops, or one of the world's faults, each at most once.  From each situation every move is made; a situation
that has been met is not gone into again (`handler_snapshot` says what one is).  Situations cannot be copied, so each
new branch is walked again from the beginning, on the same stage, which must come to rest after each walk: nothing
left, all healthy rooms bit for bit at their places.

    python -m kvproto.verify.cli.explore_command                the small worlds
    python -m kvproto.verify.cli.explore_command failures       one of them
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from kvproto.data.gathers import AHEAD
from kvproto.data.staged_writes import SMALL
from kvproto.room import Room
from kvproto.settings import Route
from kvproto.verify.testing.handler_snapshot import rank_of, snapshot
from kvproto.verify.testing.handler_stage import CHUNK_TOKENS, HandlerStage

Path = tuple[str, ...]
#: passes after which the loops rest, if nothing is moved from outside
MOST_PASSES = 500


class HandlerWorld(msgspec.Struct, frozen=True):
    """`rooms` of `chunks` each on so many `slots`; `faults`, each of which may happen once.

    `passes`: a pass of the loops is a move of its own; else they pass until they rest after each move.
    `ahead`: gathers that a device is given; `small`: bytes of a part up to which they are launched together.
    `maps`: kernels reach the peer's pages.
    `later`: that forwards are queued is a move of its own; else they are when the room is opened.
    """

    rooms: int = 1
    chunks: int = 1
    slots: int = 1
    ranks: int = 1
    route: Route = "staged"
    faults: tuple[str, ...] = ()
    at_once: bool = True
    paged: bool = True
    passes: bool = False
    ahead: int = AHEAD
    maps: bool = False
    later: bool = False
    small: int = 0


class Explored(msgspec.Struct):
    """The counts of a search; `breach`: the first one, with its moves."""

    world: str
    situations: int
    walks: int
    ends: int
    seconds: float
    breach: str = ""


class Move(NamedTuple):
    """One thing that can happen now; of which `fault` it is, if of any."""

    name: str
    make: Callable[[], object]
    fault: str = ""


#: small enough for every commit, and those that are gone through on demand
WORLDS: dict[str, HandlerWorld] = {
    "waits": HandlerWorld(chunks=2, slots=2, at_once=False, paged=False),
    "two-slots": HandlerWorld(chunks=2, slots=2),
    "failures": HandlerWorld(faults=("kernel", "fail", "doubt", "cut")),
    "given-up": HandlerWorld(rooms=2, faults=("abort", "quick")),
    "over-pages": HandlerWorld(route="pages", faults=("fail", "doubt")),
    "mapped": HandlerWorld(route="pages", maps=True, at_once=False, paged=False, later=True, faults=("kernel", "cut")),
    "mapped-two-chunks": HandlerWorld(chunks=2, route="pages", maps=True, faults=("kernel",)),
    "withdrawn": HandlerWorld(route="cost", paged=False, later=True, faults=("withdraw",)),
    "withdrawn-mapped": HandlerWorld(route="pages", maps=True, paged=False, later=True, faults=("withdraw",)),
    "one-ahead": HandlerWorld(chunks=2, slots=2, ahead=1),
    "together": HandlerWorld(chunks=2, slots=2, at_once=False, faults=("kernel",), small=SMALL),
    "pass-by-pass": HandlerWorld(passes=True, at_once=False, paged=False),
}
LARGE: dict[str, HandlerWorld] = {
    "passes": HandlerWorld(chunks=2, slots=2, at_once=False, paged=False, passes=True),
    "failures-passes": HandlerWorld(faults=("kernel", "fail", "doubt", "cut", "abort"), passes=True),
    "failures-two-chunks": HandlerWorld(chunks=2, faults=("kernel", "fail", "doubt", "cut", "abort")),
    "two-writers": HandlerWorld(ranks=2, faults=("fail", "doubt", "cut")),
    "two-rooms": HandlerWorld(rooms=2, slots=2, faults=("fail", "doubt", "abort", "quick")),
    "withdrawn-two-chunks": HandlerWorld(chunks=2, route="cost", paged=False, later=True, faults=("withdraw",)),
    "withdrawn-pages": HandlerWorld(chunks=2, at_once=False, route="pages", faults=("withdraw",)),
    "two-chunks-over-pages": HandlerWorld(chunks=2, route="pages", faults=("fail", "doubt", "cut")),
}


class Walk:
    """One execution: the rooms are begun, and moves made."""

    def __init__(self, world: HandlerWorld, stage: HandlerStage) -> None:
        self.world, self.stage, self.left = world, stage, list(world.faults)
        self.still = False
        stage.begin_anew()
        #: rooms whose forwards are not queued yet
        self.idle = [stage.opened(world.chunks, paged=world.paged) for _ in range(world.rooms)]
        if not world.later:
            while self.idle:
                self._compute()
        self._rest()

    def situation(self) -> tuple[object, ...]:
        return *snapshot(self.stage), tuple(self.left), self.still, len(self.idle)

    def moves(self) -> list[Move]:
        device, fabric = self.stage.device, self.stage.fabric
        passes = [] if self.still else [Move("pass", self._pass)]
        if self.idle and not self.stage.tasks[self.idle[0]].taken:
            passes.append(Move("forwards", self._compute))
        passes += [Move("give anew", partial(self._anew, room)) for room in self.stage.rooms if self._free(room)]
        work = [Move(name, partial(device.run, name)) for name in device.ready()]
        steps = [Move(f"{step.kind} {at}", partial(fabric.take, step)) for at, step in enumerate(fabric.options())]
        return [*passes, *work, *steps, *(move for fault in self.left for move in self._faults(fault))]

    def _faults(self, fault: str) -> list[Move]:
        stage = self.stage
        single: dict[str, Callable[[], object]] = {
            "cut": partial(stage.cut, 0), "quick": self._quick, "abort": lambda: stage.abort(stage.rooms[0], "D", 0),
        }  # fmt: skip
        if fault in single:
            return [Move(fault, single[fault], fault)]
        if fault == "withdraw":
            return [Move(f"withdraw {upto}", partial(self._withdraw, upto), fault) for upto in (0, CHUNK_TOKENS)]
        if fault == "kernel":
            copies = [name for name in stage.device.ready() if name.endswith(("data", "stores"))]
            return [Move(f"{name} fails", partial(self._kernel, name), fault) for name in copies]
        return [
            Move(f"{fault} {at}", partial(stage.hurt_write, *write, fault), fault)
            for at, write in enumerate(stage.flying())
        ]

    def make(self, move: Move) -> None:
        if move.fault:
            self.left.remove(move.fault)
        self.still = False
        move.make()
        self._rest()

    def repeat(self, path: Path) -> None:
        for name in path:
            self.make(next(move for move in self.moves() if move.name == name))

    # --------------------------------------------------------------------------------------------- how
    def _compute(self) -> None:
        self.stage.compute(self.idle.pop(0), at_once=self.world.at_once)

    def _pass(self) -> None:
        moved = [self._poll(index) for index in range(len(self.stage.endpoints))]
        self.still = not any(moved) and not self.stage.post.busy()

    def _poll(self, index: int) -> bool:
        stage, endpoint = self.stage, self.stage.endpoints[index]
        before = rank_of(stage, endpoint) if self.world.passes else None
        moved = stage.poll(index)
        said = moved or before is None or rank_of(stage, endpoint) == before
        assert said, f"rank {index} says that nothing moved in its pass, and something did"
        return moved

    def _rest(self) -> None:
        for _ in range(MOST_PASSES):
            if self.still or self.world.passes:
                return
            self._pass()
        raise AssertionError(f"something still moves after {MOST_PASSES} passes")

    def _withdraw(self, upto: int) -> None:
        for index in range(len(self.stage.prefills)):
            self.stage.withdraw(self.stage.rooms[0], index, upto)

    def _free(self, room: Room) -> bool:
        return room in self.stage.tasks and self.stage.withdrawn(room)

    def _anew(self, room: Room) -> None:
        """Others have had the pages; what lacks is computed once more, unless no forward is queued yet."""
        self.stage.give_anew(room)
        if room not in self.idle:
            self.stage.compute(room, at_once=self.world.at_once)

    def _kernel(self, stream: str) -> None:
        self.stage.hurt_all()
        self.stage.device.run(stream, fails=True)

    def _quick(self) -> None:
        self.stage.device.quick = True
        self.stage.device.roll()


class Exploration:
    """A world, and what has been seen of it."""

    def __init__(self, name: str, world: HandlerWorld) -> None:
        self.world, self.found = world, Explored(name, 0, 0, 0, 0.0)
        self.seen: set[tuple[object, ...]] = set()
        self.todo: list[Path] = [()]
        #: the moves of the walk at hand
        self.path: Path = ()

    def run(self, progress: Callable[[Explored], None] = lambda _: None) -> Explored:
        """Go through all of it; ends at the first breach."""
        started, stage = time.perf_counter(), self._stage()
        try:
            _warm(stage)
            while self.todo:
                self._walk(stage)
                if not stage.end():
                    stage.close()
                    stage = _warm(self._stage())
                progress(self.found)
        except AssertionError as error:
            self.found.breach = f"{error}\nafter: {', '.join(self.path) or 'nothing'}"
        finally:
            self.found.seconds = round(time.perf_counter() - started, 3)
            stage.close()
        return self.found

    def _stage(self) -> HandlerStage:
        world = self.world
        return HandlerStage(
            slots=world.slots, ranks=world.ranks, route=world.route, ahead=world.ahead, maps=world.maps,
            small=world.small,
        )  # fmt: skip

    def _walk(self, stage: HandlerStage) -> None:
        """Go where nobody has been, and on until somebody has."""
        walk, self.path = Walk(self.world, stage), self.todo.pop()
        self.found.walks += 1
        walk.repeat(self.path)
        while True:
            stage.judge()
            here = walk.situation()
            if here in self.seen:
                return
            self.seen.add(here)
            self.found.situations += 1
            moves = walk.moves()
            if not moves:
                self.found.ends += 1
                return
            self.todo += [(*self.path, move.name) for move in moves[1:]]
            self.path = *self.path, moves[0].name
            walk.make(moves[0])


def _warm(stage: HandlerStage) -> HandlerStage:
    """Have one room over it: the first round of a ring is like no other."""
    stage.begin(1, at_once=True, paged=True)
    stage.settled()
    stage.end()
    return stage
