"""Takeover: instances are killed while rooms are under way, and others take the rooms over.

The parent is what outlives the ranks: a scheduler with page tables and resume points, and the judge of every byte.
Each life of the side that is killed goes so:

1. Its ranks start, and link up with those that survive.
2. Rooms of the life before go on: the parent checks that what their points say is in the decode pages, has digests
   compared where prefill was killed, and opens the next gen of each with that prefix.  In half of them it overwrites
   what has arrived first: a byte of it that is written again is seen at the end.
3. New rooms begin.  When some of their KV has arrived, every rank of the side is killed (SIGKILL).
4. The ranks that survive release every room of that life; then nothing of it can land, and the next life begins.

A room is over when its last gen has succeeded on every decode rank, and each byte is as it must be.  Free pages, and
what lies behind a room's last token, are compared after each life.

Before the kill of its life no room may fail.  Whatever is found first has all ranks that live write their traces.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kvproto.endpoint.resume_point import PageDigests, ResumePoint, resume_prefix
from kvproto.lab.demo.pages import Allocator
from kvproto.lab.process_group import ProcessGroup, Program, RankError
from kvproto.lab.torture.fleet import Carrier
from kvproto.lab.torture.found_traces import FoundTraces
from kvproto.lab.torture.result import ENOUGH, TakeoverResult
from kvproto.lab.torture.takeover_pages import PagesJudge, TakeoverPages, kv_of, noise
from kvproto.lab.torture.takeover_plan import NEW, PAGES, SIDES, TOKEN_BYTES, TakeoverPlan, TakeoverRoom, TakeoverSide
from kvproto.lab.torture.takeover_rank import OpenedRoom
from kvproto.room import Room

#: seconds for processes to start, or rooms to end, on a machine that has other things to do
LONG_S, TICK_S = 240.0, 0.01
#: within which ranks notice that a peer is gone
NOTICED_S = 2.5


class MovedRoom:
    """A room that is not over: all that a successor needs, and what its pages must hold."""

    def __init__(self, room: TakeoverRoom, tables: dict[TakeoverSide, list[int]]) -> None:
        self.room, self.tables = room, tables
        self.gen = self.prefix = self.kills = 0
        self.seed = room.seed
        self.want = kv_of(room.seed, room.tokens)
        #: by decode rank: up to which token all is in place; by rank: how this gen has ended, and that it was released
        self.points: dict[str, int] = {}
        self.told: dict[str, str] = {}
        self.released: set[str] = set()
        self.over = False

    @property
    def name(self) -> Room:
        return Room(self.room.id, self.gen)


def arrived(each: MovedRoom) -> int:
    """Return the tokens that every decode rank that has told of any has in place."""
    return min(each.points.values(), default=0)


class Takeover:
    """One run."""

    def __init__(
        self, plan: TakeoverPlan, carrier: Carrier, traces: Path, watch: Callable[[TakeoverResult], None]
    ) -> None:
        self.plan, self.carrier, self.watch, self._directory = plan, carrier, watch, traces
        self._killed = False
        self.result = TakeoverResult(plan.seed, carrier, plan.victim)
        self.rooms: dict[int, MovedRoom] = {}
        self._addresses: dict[str, str] = {}
        self._spread = {side: Allocator(PAGES, (plan.seed, side)) for side in SIDES}
        self._next = 0
        self._written: Counter[int] = Counter()
        #: tokens that had to travel, over all gens: those of every room behind its prefix
        self._due = 0

    def play(self) -> TakeoverResult:
        """Run until every room is over, or something is found."""
        began = time.monotonic()
        torch.set_num_threads(1)  # ranks need the cores
        memory = Path("/dev/shm")  # noqa: S108 - a file system in memory, where there is one
        with tempfile.NamedTemporaryFile(prefix="kvproto-", dir=memory if memory.is_dir() else None) as file:
            self._path = Path(file.name)
            self.pages = TakeoverPages(self.plan.layout("D", 1).page_size, self._path, create=True)
            self.judge = PagesJudge(self.pages, self.plan.seed)
            with ProcessGroup(warm="kvproto.lab.torture.rank") as self.crew:
                self._traces = FoundTraces(self.crew, self._directory)
                try:
                    self._start(self.plan.survivors, 0)
                    while (self._next < self.plan.rooms or self.rooms) and not self.result.found:
                        self._life()
                        self.result.seconds = round(time.monotonic() - began, 1)
                        self.watch(self.result)
                    self._end()
                except (RankError, TimeoutError) as error:
                    if (name := getattr(error, "name", "")) in self.crew.pids:
                        self.crew.end(name)
                    self._find(str(error))
                    self._traces.wait(self._hear)
        self.result.seconds = round(time.monotonic() - began, 1)
        return self.result

    # ------------------------------------------------------------------------------------------------ a life
    def _life(self) -> None:
        life = self.result.lives = self.result.lives + 1
        side = self.plan.victims
        self._start(side, life)
        self._link_up(life)
        carried = list(self.rooms.values())
        self._take_over(carried, life)
        new = [self._begin(number) for number in range(self._next, min(self.plan.rooms, self._next + NEW))]
        self._next += len(new)
        self._killed = False
        self._open([*carried, *new], life)
        share, patient = self.plan.moment(life)
        due = share * sum(each.room.tokens for each in new)
        if not new or patient:
            self._until(lambda: all(each.over for each in carried), "rooms that were taken over to be over", life)
        self._until(lambda: sum(map(arrived, new)) >= due, "new rooms to arrive", life)
        self._kill(side, life)
        others = self._names(self.plan.survivors, life)

        def quiet() -> bool:
            return all(others <= each.released for each in self.rooms.values())

        self._until(quiet, "", life, NOTICED_S)
        # As engines do with requests whose instance is gone: a rank may never have heard of it in the room.
        self.crew.tell(others, "abort", ([each.name for each in self.rooms.values()],))
        self._until(quiet, "releases", life)
        for each in [each for each in self.rooms.values() if each.over]:
            self._give_back(each)
        self._count_written()
        kept = [(each.tables["D"], each.room.tokens) for each in self.rooms.values()]
        self.result.found += self.judge.changed(kept)
        if side == "P":
            self.crew.tell(others, "disconnect", (self.plan.group("P", life),))

    def _start(self, side: TakeoverSide, life: int) -> None:
        names = self._names(side, life)
        for index, name in enumerate(sorted(names)):
            args = self.plan, side, index, life, self.carrier, self._path
            self.crew.start(Program(name, "kvproto.lab.torture.takeover_rank:program", args))
        self._addresses |= self.crew.collect("here", names, LONG_S, self._hear)

    def _names(self, side: TakeoverSide, life: int) -> set[str]:
        return {f"{side}{index}" for index in range(self.plan.layout(side, life).ranks)}

    def _link_up(self, life: int) -> None:
        group, layout = self.plan.group("P", life), self.plan.layout("P", life)
        decodes = self._names("D", life)
        addresses = [self._addresses[name] for name in sorted(self._names("P", life))]
        self.crew.tell(decodes, "connect", (group, layout, addresses))
        deadline = time.monotonic() + LONG_S
        while True:
            self.crew.tell(decodes, "up", (group,))
            if all(self.crew.collect("up", decodes, LONG_S, self._hear).values()):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"life {life}: links did not come up")
            time.sleep(TICK_S)

    def _kill(self, side: TakeoverSide, life: int) -> None:
        self._traces.wait(self._hear)
        self._killed = True
        for name in self._names(side, life):
            self.crew.end(name)
        self.result.kills += sum(1 for each in self.rooms.values() if not each.over)
        for each in self.rooms.values():
            each.kills += not each.over

    # ----------------------------------------------------------------------------------------------- rooms
    def _begin(self, number: int) -> MovedRoom:
        room = self.plan.room(number)
        sizes = {side: self.plan.layout(side, 1).page_size for side in SIDES}
        tables = {side: self._spread[side].take(-(-room.tokens // sizes[side])) for side in SIDES}
        self.rooms[number] = made = MovedRoom(room, tables)
        return made

    def _take_over(self, rooms: list[MovedRoom], life: int) -> None:
        """Check what has arrived of these rooms, agree on it, and make it the prefix of their next gen."""
        decodes = len(self._names("D", life - 1))
        points = {}
        for each in rooms:
            upto = min(each.points.values()) if len(each.points) == decodes else each.prefix
            self._compare(each, upto, "at the takeover")
            each.want = kv_of(each.seed, each.room.tokens)
            self.pages.write(each.tables["D"], 0, each.want[:, :, :upto])  # without the judge's marks
            points[each.room.number] = ResumePoint(each.name, each.room.tokens, 0, upto)
        kept = {number: point.upto for number, point in points.items()}
        if self.plan.victims == "P":
            kept = self._agreed(rooms, points, life)
        for each in rooms:
            each.gen, each.prefix = each.gen + 1, kept[each.room.number]
            self.result.kept_bytes += each.prefix * TOKEN_BYTES
            each.want = kv_of(each.seed, each.room.tokens)
            if each.room.marked:
                each.want[:, :, : each.prefix] = noise(tuple(each.want[:, :, : each.prefix].shape), life)
                self.pages.write(each.tables["D"], 0, each.want[:, :, : each.prefix])

    def _agreed(self, rooms: list[MovedRoom], points: dict[int, ResumePoint], life: int) -> dict[int, int]:
        """Have the replacement compute the prompts, and return the prefixes on which digests agree."""
        for each in rooms:
            if each.room.other_kv and each.gen == 0:
                each.seed += 1
        prompts = [(each.tables["P"], each.room.tokens, each.seed) for each in rooms]
        self.crew.tell(self._names("P", life), "fill", (prompts,))
        made = dict[str, list[dict[int, str]]]()
        for side in SIDES:
            asked = [(n, point.encode(), self.rooms[n].tables[side]) for n, point in points.items()]
            self.crew.tell(names := self._names(side, life), "digest", (asked,))
            made[side] = list(self.crew.collect("digests", names, LONG_S, self._hear).values())
        found = dict[int, int]()
        for each in rooms:
            number = each.room.number
            told = {side: [PageDigests.decode(rank[number]) for rank in made[side]] for side in SIDES}
            found[number] = resume_prefix(told["D"], told["P"]).prefix
            other = each.seed != each.room.seed and each.gen == 0 and points[number].upto > 0
            self.result.other_kv += other
            if found[number] != (0 if other else points[number].upto):
                self._find(f"room {number}: digests keep {found[number]} tokens of {points[number].upto}")
        return found

    def _open(self, rooms: list[MovedRoom], life: int) -> None:
        for each in rooms:
            each.points, each.told, each.released = {}, {}, set()
            self._due += each.room.tokens - each.prefix
        for side, other in zip(SIDES, SIDES[::-1], strict=True):
            group = self.plan.group(other, life)
            opened = [
                OpenedRoom(
                    each.room.number, each.name, each.room.tokens, each.tables[side], group, each.seed, each.prefix,
                    Room(each.room.id, each.gen - 1) if each.gen else None,
                    ((0.0, each.room.tokens),) if each.gen else each.room.steps, each.room.aux or each.gen > 0,
                )
                for each in rooms
            ]  # fmt: skip
            self.crew.tell(self._names(side, life), "open", (opened,))

    def _give_back(self, each: MovedRoom) -> None:
        del self.rooms[each.room.number]
        self._spread["P"].give(each.tables["P"])
        self._spread["D"].give(each.tables["D"])
        self.judge.give_back(each.tables["D"])
        self.result.rooms += 1
        self.result.prompt_bytes += each.room.tokens * TOKEN_BYTES
        self.result.killed_again += each.kills > 1

    # ------------------------------------------------------------------------------------------ listening
    def _until(self, done: Callable[[], bool], what: str, life: int, seconds: float = math.inf) -> None:
        """Listen until that is so, or for so many seconds; TimeoutError: it takes too long."""
        began = time.monotonic()
        while not done() and time.monotonic() - began < seconds:
            for name, kind, data in self.crew.listen(min(TICK_S, seconds)):
                self._hear(name, kind, data)
            for each in self.rooms.values():
                self._look(each, life)
            if time.monotonic() - began > LONG_S:
                raise TimeoutError(f"life {life}: waited {LONG_S:g} s for {what}: {self._explained(life)}")

    def _hear(self, name: str, kind: str, data: Any) -> None:
        if kind == "saved":
            self._traces.saved(name)
        elif kind == "broken":
            self._find(f"{name}: {data}")
        elif kind in ("told", "released", "points") and (each := self.rooms.get(data[0])) is not None:
            if data[1] != each.gen:
                return
            if kind == "told":
                each.told[name], why = data[2:]
                if data[2] != "NONE" and not (self._killed or self.result.found):
                    told = f"{name}: room {data[0]}, {each.room.id}.{each.gen} on the wire, ended before the kill"
                    raise TimeoutError(f"{told}: {data[2]} ({why})")
            elif kind == "released":
                each.released.add(name)
            else:
                each.points[name] = data[2]

    def _look(self, each: MovedRoom, life: int) -> None:
        """Judge a room whose last gen has ended: a first gen goes on in another life however it has ended."""
        names = self._names("D", life)
        if each.gen and not each.over and each.told.keys() >= names and {each.told[n] for n in names} == {"NONE"}:
            each.over = True
            self._compare(each, each.room.tokens, "at the end")

    def _compare(self, each: MovedRoom, upto: int, when: str) -> None:
        there = self.pages.read(each.tables["D"], 0, upto)
        wrong = int((there != each.want[:, :, :upto]).sum())
        if wrong:
            self.result.wrong_bytes += wrong
            told = f"prefix {each.prefix}, kills {each.kills}, {'marked' if each.room.marked else 'not marked'}"
            self._find(f"room {each.room.number} {when}: {wrong} bytes of its first {upto} tokens are wrong ({told})")

    def _explained(self, life: int) -> str:
        """Return what the first room that is not over waits for."""
        for each in self.rooms.values():
            if not each.over or not each.released:
                names = self._living(life)
                self.crew.tell(names, "explain", ([each.name],))
                said = self.crew.collect("explain", names, LONG_S, self._hear)
                return "; ".join(f"{name}: {said[name][0]}" for name in sorted(names))
        return "no room is left"

    def _living(self, life: int) -> set[str]:
        return {name for side in SIDES for name in self._names(side, life)} & self.crew.pids.keys()

    def _count_written(self) -> None:
        """Add what prefill ranks have written; a rank that is killed leaves its count behind."""
        counts = self.pages.counters
        if self.plan.victims == "P":
            self._written.update(dict(enumerate(counts.tolist())))
            counts[:] = 0
        else:
            self._written = Counter(dict(enumerate(counts.tolist())))
        self.result.written_bytes = self._written.total()
        self.result.again_bytes = max(0, self.result.written_bytes - self.result.prompt_bytes)

    def _end(self) -> None:
        names = self.crew.pids.keys()
        self.crew.tell(names, "figures", ())
        for name, (steps, faults, texts) in self.crew.collect("figures", names, LONG_S, self._hear).items():
            self.result.judged += steps
            if faults:
                self._find(f"{name}: {faults} handlers raised: {texts[-3:]}")
        if self.result.written_bytes > self._due * TOKEN_BYTES:
            told = f"{self.result.written_bytes} bytes were written, and {self._due * TOKEN_BYTES} were to travel"
            self._find(f"{told}: some were sent again that had arrived")
        self.crew.tell(names, "close", ())
        self.crew.finish(LONG_S)

    def _find(self, text: str) -> None:
        if len(self.result.found) < ENOUGH:
            self.result.found.append(text)
        self._traces.save(self.crew.pids, text)
        self.result.traces = self._traces.where


def takeover(
    plan: TakeoverPlan, carrier: Carrier, traces: Path, watch: Callable[[TakeoverResult], None] = lambda _result: None
) -> TakeoverResult:
    """Carry the plan out. `traces`: a directory, made if something is found."""
    return Takeover(plan, carrier, traces, watch).play()
