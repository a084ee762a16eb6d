"""Conduct of a run: the parent starts the processes, passes on what each has to know, and judges.

It holds no KV and no connection but the pipes, and takes no rank's word for success: a run is good when

* every rank reports the outcome that the run asked for, of every room;
* the KV bytes that P computed and that D holds are those of the unsharded model, and nothing outside the rooms changed;
* D's tokens, and the logits they were chosen from, are those of the unsharded model;
* every corruption planted in a D rank's pages was found by the same comparison;
* every step of every rank is what its tables say, and keeps what is claimed of them;
* no rank complained, and none holds anything of a room that was released.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvproto.io.kernels.differing import differing
from kvproto.lab.demo.pass_counts import PassCounts, total
from kvproto.lab.demo.run import Route, Run
from kvproto.lab.demo.times import Spans, sharded, unsharded
from kvproto.lab.demo.verify import ReferenceJudge, Sheet
from kvproto.lab.process_group import ProcessGroup, Program

START_S = 30.0  # for the processes to start, on a machine that has other things to do
Watch = Callable[[str, int], None]  # (what, how much more): rooms judged or placed, chunks computed, tokens said


@dataclass
class Pass:
    """One pass: all ranks' counters together, the seconds of its phases, and of the rooms' parts."""

    route: Route
    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    spans: Spans = field(default_factory=dict)


@dataclass
class DemoResult:
    """`wrong`: what contradicts a good run, as sentences; `controls`: by name, [found, planted].

    `parts`: by part of a cache, the rows that were compared on D, and their bytes;
    `unsharded`: how long the rooms took in the model that is not sharded; `machine`: what it is, if it has GPUs.
    """

    run: Run
    passes: list[Pass] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    controls: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    parts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    tokens: int = 0
    #: digests that several ranks have made
    digests: int = 0
    seconds: float = 0.0
    unsharded: Spans = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.wrong

    @property
    def controlled(self) -> tuple[int, int]:
        """Return how many corruptions were found, and how many were planted."""
        return sum(found for found, _ in self.controls.values()), sum(planted for _, planted in self.controls.values())


def conduct(
    run: Run, watch: Watch = lambda _what, _more: None, *, players: str = "kvproto.lab.demo.rank_program"
) -> DemoResult:  # fmt: skip
    """Carry out `run`. RankError, TimeoutError: a process fails or falls silent; wrong results are
    reported.

    `players` is the module whose `prefill` and `decode` the ranks run.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kvproto-demo-") as place:
        conductor = _Conductor(run, Path(place), watch, players)
        conductor.play()
    conductor.result.seconds = time.monotonic() - start
    return conductor.result


class _Conductor:
    def __init__(self, run: Run, directory: Path, watch: Watch, players: str) -> None:
        self.run, self.watch, self.result, self.judge = run, watch, DemoResult(run), ReferenceJudge()
        self.p = [f"P{rank}" for rank in range(run.job.prefill.ranks)]
        self.d = [f"D{rank}" for rank in range(run.job.decode.ranks)]
        self.programs = [
            Program("oracle", run.job.judge, (run.job, directory, run.device)),
            *(Program(name, f"{players}:prefill", (run, rank, directory)) for rank, name in enumerate(self.p)),
            *(Program(name, f"{players}:decode", (run, rank, directory)) for rank, name in enumerate(self.d)),
        ]
        self.rooms = {room.room: room for room in run.job.rooms}
        self.crew: ProcessGroup

    def play(self) -> None:
        with ProcessGroup(self.programs) as self.crew:
            for number, route in enumerate(self.run.passes):
                self._pass(number, route)
            self.result.unsharded = unsharded(self.run.timed, self.judge.verdicts)
            self.crew.finish(self.run.limit_s)

    # ------------------------------------------------------------------------------------------ one pass
    def _pass(self, number: int, route: Route) -> None:
        self.route, self.done = route, Pass(route)
        self.sheets: dict[tuple[str, int], dict[str, Sheet]] = defaultdict(dict)
        self.outcomes: dict[int, dict[str, str]] = defaultdict(dict)
        self.planted: list[tuple[str, str, int, Sheet]] = []
        self.said: list[tuple[str, int, list[tuple[int, bytes]]]] = []
        self.halves: set[int] = set()
        self.aborting = self.run.aborted if route == "live" else frozenset[int]()
        start = time.monotonic()
        addresses = self._collect("address", self.p)
        self.done.seconds["start"] = time.monotonic() - start
        self.crew.tell(self.d, "addresses", [addresses[name] for name in self.p])
        self._collect("linked", self.d)
        needed = {r.room for r in self.run.job.rooms if r.prefix or number or self.run.warm}
        self._learn(lambda: needed <= set(self.judge.verdicts))
        self.crew.tell([*self.p, *self.d], "go")
        if not route.startswith("live"):
            self._collect("placed", [*self.p, *self.d])
            self.crew.tell([*self.p, *self.d], "open")
        self._collect("warm", [*self.p, *self.d])
        self.crew.tell([*self.p, *self.d], "start")
        tallies = self._collect("tally", [*self.p, *self.d])
        self._learn(lambda: set(self.rooms) <= set(self.judge.verdicts))
        self._count(tallies)
        if route.startswith("live"):
            self._continue()
        self._judge(tallies)
        self.crew.tell([*self.p, *self.d], "close")
        self.result.passes.append(self.done)

    def _continue(self) -> None:
        rooms = [room for room in self.rooms if room not in self.aborting and self._all_ok(room)]
        start = time.monotonic()
        self.crew.tell(self.d, "resume", rooms)
        changed = self._collect("resumed", self.d)
        if self.route == "live":
            self.done.seconds["continuation"] = time.monotonic() - start
        self.result.wrong += [f"{name} after the continuation: {text}" for name in self.d for text in changed[name]]

    def _count(self, tallies: dict[str, PassCounts]) -> None:
        p, d = [tallies[name] for name in self.p], [tallies[name] for name in self.d]
        self.done.counts = {
            "rooms": len(self.rooms), "aborted": len(self.aborting),
            "chunks": self.run.chunks, **total([*p, *d]),
        }  # fmt: skip
        first = min(x.began for x in p)
        self.done.seconds["bootstrap"] = max(x.linked_s for x in d)
        self.done.seconds["warm-up"] = max(x.warmed_s for x in p) if self.run.warm else 0.0
        self.done.seconds["prefill"] = max(x.computed_s for x in p)
        self.done.seconds["transfer"] = max(x.ended for x in d) - first
        self.done.spans = sharded(self.run.timed, p, d)

    # ---------------------------------------------------------------------------------------- listening
    def _collect(self, kind: str, names: list[str]) -> dict[str, Any]:
        return self.crew.collect(kind, names, START_S + 2 * self.run.limit_s, self._receive)

    def _learn(self, enough: Callable[[], bool]) -> None:
        while not enough():
            self._receive("oracle", "verdict", self._collect("verdict", ["oracle"])["oracle"])

    def _receive(self, name: str, kind: str, data: Any) -> None:
        match kind:
            case "verdict":
                self.result.wrong += self.judge.learn(*data)
                self.watch("judged", 1)
            case "machine":
                self.result.machine = data
            case "computed" if name == self.p[0]:
                self.watch("computed", 1)
            case "outcome":
                self.outcomes[data[0]][name] = data[1]
                self.watch("placed", name in self.d)
                if name in self.d and self.route.startswith("live"):
                    self._next(data[0])
            case "kv":
                self.sheets[name[0], data[0]][name] = data[1]
            case "half" if data not in self.halves:
                self.halves.add(data)
                self.crew.tell(self.d, "abort", data)
            case "tampered":
                self.planted.append((name, *data))
            case "said":
                self.said.append((name, *data))
                self.watch("said", len(data[1]) if name == self.d[0] else 0)

    def _next(self, room: int) -> None:
        """When all decode ranks are through with a room, tell them to go on with it, or that they must not."""
        if self.outcomes[room].keys() >= set(self.d):
            good = room not in self.aborting and self._all_ok(room)
            self.crew.tell(self.d, "say" if good else "skip", room)

    # ----------------------------------------------------------------------------------------- judging
    def _all_ok(self, room: int) -> bool:
        return all(self.outcomes[room].get(name) == "NONE" for name in self.d)

    def _judge(self, tallies: dict[str, PassCounts]) -> None:
        wrong = self.result.wrong
        for name, tally in tallies.items():
            for what in ("intruded", "leaks", "reports"):
                wrong += [f"{self.route} pass, {name}, {what}: {text}" for text in getattr(tally, what)]
        for room in self.rooms:
            due = f"{self.run.abort.upper()}_ABORTED" if room in self.aborting else "NONE"
            for name in [*self.p, *self.d]:
                cause = self.outcomes[room].get(name, "no outcome")
                if cause != due:
                    wrong.append(f"{self.route} pass, room {room}: {name} reports {cause}, {due} was due")
            for group in "PD" if self.route == "live" else "D":
                if room not in self.aborting:
                    texts = self.judge.kv(group, room, self.sheets[group, room])
                    wrong += [f"{self.route} pass, {text}" for text in texts]
            self._count_parts(room)
        if self.run.digests:
            self._judge_digests(tallies)
        self._judge_tokens()
        self._judge_controls()

    def _count_parts(self, room: int) -> None:
        for sheet in self.sheets["D", room].values():
            for (_, kind, _), data in sheet.items():
                self.result.parts[kind][0] += self.judge.verdicts[room].rows[kind]
                self.result.parts[kind][1] += len(data)

    def _judge_digests(self, tallies: dict[str, PassCounts]) -> None:
        for room in self.rooms.keys() - self.aborting:
            sides = [[tallies[name].digests.get(room, {}) for name in group] for group in (self.p, self.d)]
            ours, theirs = (set().union(*side) for side in sides)
            self.result.digests += len(ours & theirs)
            differ = differing(*sides[0], *sides[1])
            if ours != theirs or differ:
                told = f"{len(differ)} digests differ, {len(ours ^ theirs)} are of one side"
                self.result.wrong.append(f"{self.route} pass, room {room}: {told}")

    def _judge_tokens(self) -> None:
        for name, room, rows in self.said:
            new = self.rooms[room].new
            self.result.wrong += self.judge.said(name, room, rows, new if self.route == "live" else min(2, new))
            self.result.tokens += len(rows) if name == self.d[0] else 0

    def _judge_controls(self) -> None:
        for name, control, room, sheet in self.planted:
            held = self.sheets["D", room]
            found = bool(self.judge.kv("D", room, held | {name: sheet}))
            self.result.controls[control][0] += found
            self.result.controls[control][1] += 1
            if not found:
                self.result.wrong.append(f"room {room}: the control {control} in {name} was not found")
