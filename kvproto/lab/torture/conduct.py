"""Conduct of a torture: the parent opens rooms, has faults strike, waits for healing, and judges.

A run is good when

* every room has an outcome and a release on every rank that opened it and lives, in bounded time;
* the outcomes are what `verdicts` allows, and every success is one byte for byte (the ranks compare);
* nothing outside the rooms changed, on any rank;
* no process died that was not killed, and no handler raised;
* every step of every rank is what its tables say, and keeps what is claimed of them (they are judged as they run);
* all links come back after every episode;
* at the end every rank holds what it held at the beginning: rooms, sends, slots, grants, links, bound connections,
  regions, peers, threads and descriptors exactly (over Mooncake, up to `POOLED` descriptors), memory up to `GROWN_MIB`.

Whatever is found first has all ranks write their traces, then and there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvproto.lab.process_group import ProcessGroup, Program, RankError
from kvproto.lab.torture.faults import PROXY, Siege
from kvproto.lab.torture.fleet import NAMES, WAYS, Carrier
from kvproto.lab.torture.found_traces import FoundTraces
from kvproto.lab.torture.ledger import RoomLedger, ways_of
from kvproto.lab.torture.plan import ENDS_TIMERS, HARMLESS, Episode, TorturePlan
from kvproto.lab.torture.result import StarvedError, TortureResult, few, starvation, told

TICK_S = 0.02
START_S = 120.0  # for processes to start, on a machine that has other things to do
#: a room that is not over after so long, although nothing strikes any more, hangs; links that are not back, do not come
HANG_S = 25.0
REST_S = 15.0
GROWN_MIB = 32.0
#: Mooncake has a connection for each piece in flight, and keeps them
POOLED = 64
#: a wait that takes so many times what it may, though nothing hangs: the machine has other things to do
STARVED_TIMES = 4
Watch = Callable[["Torture"], None]


def torture(
    plan: TorturePlan, carrier: Carrier, traces: Path, watch: Watch = lambda _run: None,
    *, players: str = "kvproto.lab.torture.rank:program",
) -> TortureResult:  # fmt: skip
    """Carry out the plan. `traces`: a directory, made if something is found; `players`: the ranks'
    program.

    TimeoutError: the processes did not start.  StarvedError: the machine kept them from running.
    """
    run = Torture(plan, carrier, traces, watch, players)
    began = time.monotonic()
    run.play()
    return run.result(time.monotonic() - began)


class Torture:
    """One run."""

    def __init__(self, plan: TorturePlan, carrier: Carrier, traces: Path, watch: Watch, players: str) -> None:
        self.plan, self.carrier, self._directory, self.watch, self.players = plan, carrier, traces, watch, players
        self.ledger = RoomLedger(plan)
        self.opened = 0
        self.hits = 0
        self.episodes = deque(plan.episodes)
        self.storm: Episode | None = None
        self._began = self._settled = time.monotonic()
        self._queues: dict[tuple[int, int], deque[int]] = {way: deque() for way in WAYS}
        self._queued = 0
        self._answers: dict[str, Any] = {}
        self._first: dict[str, Any] = {}
        self._rss: dict[str, tuple[float, float]] = {}

    def _program(self, name: str, life: int) -> Program:
        return Program(name, self.players, (self.plan, name, life, self.carrier))

    def play(self) -> None:
        """Run from the first process to the last; the ledger has the findings."""
        proxy = Program(PROXY, "kvproto.lab.torture.proxy:program", (list(self.plan.fleet.cables()),))
        with ProcessGroup([proxy], warm="kvproto.lab.torture.rank") as self.crew:
            self.traces = FoundTraces(self.crew, self._directory)
            self.siege = Siege(self.crew, self.plan, self._program)
            for name in self.siege.lives:
                self.crew.start(self._program(name, 1))
            try:
                self._probe(0)
                self._first = self._hold()
                self._run()
                self._probe(1)
                self._compare()
                self.crew.tell([*self.siege.alive, PROXY], "close", ())
                self.hits = self.crew.collect("hit", [PROXY], REST_S, self._hear)[PROXY]
                self.crew.finish(REST_S)
            except RankError as error:
                self.siege.alive.discard(error.name)
                self._find("death", -1, str(error))
                self.crew.end(error.name)
                self.traces.wait(self._hear)

    # ------------------------------------------------------------------------------------------ the rooms
    def _run(self) -> None:
        while self.opened < self.plan.size.rooms or self.ledger.open or self.storm is not None:
            self._turn()
            self._storms()
            limit = self.plan.size.rooms if not self.episodes else self.episodes[0].at
            self._feed(limit if self.storm is None else self.storm.at + self.storm.storm)

    def _turn(self) -> None:
        """Handle arrivals, due actions, and hangs."""
        for name, kind, data in self.crew.listen(TICK_S):
            self._hear(name, kind, data)
        for strike in self.siege.step():
            if strike.kind not in HARMLESS:
                self.ledger.touch(ways_of(strike.target), timers=strike.kind in ENDS_TIMERS)
            if strike.kind.startswith("kill"):
                self.ledger.lost(strike.target)
                self._rss.pop(strike.target, None)
        self._look_for_hangs()
        self.ledger.settle()
        if self.ledger.found:
            self._save()
        self.watch(self)

    def _storms(self) -> None:
        """Begin the next episode when its rooms have come; end it when all is well."""
        if self.storm is None and self.episodes and self.opened >= self.episodes[0].at:
            self.storm = self.episodes.popleft()
            self._began = time.monotonic()
            self.siege.begin(self.storm)
        elif self.storm is not None and self.siege.well():
            self.storm, self._settled = None, time.monotonic()
            self.ledger.touched.clear()
            self.crew.tell(self.siege.alive, "weigh", ())
        elif self.storm is not None and self._patience(self._began) > START_S:
            self._find("links", -1, f"{', '.join(self.siege.down())} did not come back")
            self._began = time.monotonic()

    def _feed(self, limit: int) -> None:
        for number in range(self._queued, limit):
            self._queues[self.plan.room(number).way].append(number)
        self._queued = max(self._queued, limit)
        for way, queue in self._queues.items():
            while queue and self.ledger.live[way] < self.plan.size.at_once:
                number = queue.popleft()
                self.opened += 1
                if self.plan.room(number).trouble != "intruder":  # which comes when its victim is at work
                    self._open(number)

    def _open(self, number: int) -> None:
        for name in self.ledger.enter(number, set(self.siege.lives) - self.siege.alive):
            self.crew.tell(name, "open", ([number],))

    def _look_for_hangs(self) -> None:
        now = time.monotonic()
        calm = self._settled if self.storm is None else now
        for number, account in list(self.ledger.open.items()):
            if now > account.since + HANG_S and self._patience(max(account.since, calm)) > HANG_S:
                names = sorted(account.waits)
                self.ledger.give_up(number)
                for name in names:
                    self.crew.tell(name, "explain", ([account.room.room],))
                self._find("hang", number, self._explained(names))

    def _explained(self, names: list[str]) -> str:
        """Return these ranks' explanations of a waiting room."""
        try:
            said = self.crew.collect("explain", names, REST_S, self._hear)
        except TimeoutError as error:
            return str(error)
        return "; ".join(f"{name}: {said[name][0]}" for name in names)

    def _patience(self, since: float) -> float:
        """Seconds since then, less those in which the machine kept some process from running."""
        return time.monotonic() - since - self.ledger.kept_waiting(since)

    # ------------------------------------------------------------------------------------------- listening
    def _hear(self, name: str, kind: str, data: Any) -> None:
        match kind:
            case "here":
                self.siege.here(name, data)
            case "links":
                self.siege.links(name, data)
            case "ports":
                self.siege.ported(data)
            case "late" if not self.siege.stopped(name, *data):
                self.ledger.kept_from(name, *data)
            case "holdings":
                self._answers[name] = data
            case "saved":
                self.traces.saved(name)
            case "weighed":
                self._rss.setdefault(name, (data, data))
            case "broken":
                self._find("conformance", -1, f"{name}: {data}")
            case "told" | "wrong":
                self._hear_of_rooms(name, kind, data)

    def _hear_of_rooms(self, name: str, kind: str, data: Any) -> None:
        if kind == "wrong":
            for number, text in data:
                self._find("wrong", number, f"{name}: {text}")
            return
        told, released, owned = data
        self.ledger.told(name, told, released)
        for number in owned:
            self._owned(number)

    def _owned(self, number: int) -> None:
        """A room that is to be invaded is its group's by now, on one prefill rank."""
        account = self.ledger.open.get(number)
        if account is not None:
            account.owners += 1
            if account.owners == len(NAMES[account.room.way[0]]):
                self._open(number + 1)

    # --------------------------------------------------------------------------------------------- judging
    def _probe(self, turn: int) -> None:
        """All links are up, and a few rooms each way go well."""
        self._until(self.siege.well, "links to be up", START_S)
        for number in self.plan.probes(turn):
            self._open(number)
        self._until(lambda: not self.ledger.open, "the probes to be over", START_S)

    def _until(self, done: Callable[[], bool], what: str, seconds: float) -> None:
        began = time.monotonic()
        while not done():
            self._turn()
            if self._patience(began) > seconds:
                raise TimeoutError(f"waited {seconds:g} s for {what}; down: {', '.join(self.siege.down()) or 'none'}")
            if (waited := time.monotonic() - began) > STARVED_TIMES * seconds:
                kept = self.ledger.kept_waiting(began)
                raise StarvedError(f"this machine was starved: a process did not run for {kept:.0f} of {waited:.0f} s")

    def _hold(self) -> dict[str, Any]:
        self._answers = {}
        self.crew.tell(self.siege.alive, "holdings", ())
        self._until(lambda: self._answers.keys() >= self.siege.alive, "what ranks hold", START_S)
        for name, (_, rss, _, _) in self._answers.items():
            mib = rss / (1 << 20)
            self._rss[name] = self._rss.get(name, (mib, mib))[0], mib
        return self._answers

    def _compare(self) -> None:
        """Everything is as it was at the beginning, once it has come to rest."""
        began = time.monotonic()
        self._until(self.ledger.settle, "rooms that failed to be judged", START_S)
        while (changed := self._changed()) and self._patience(began) < REST_S:
            self._turn()
        for text in changed:
            self._find("leak", -1, text)
        for name, (_, _, counts, reports) in self._answers.items():
            if counts.get("faults", 0):
                self._find("fault", -1, f"{name}: {counts['faults']} handlers raised: {reports[-3:]}")

    def _changed(self) -> list[str]:
        last = self._hold()
        found = [
            f"{name}: {what}: {self._first[name][0][what]} at the beginning, {now} at the end"
            for name, (holds, *_) in last.items()
            for what, now in holds.items()
            if not self._same(what, self._first[name][0][what], now)
        ]
        grown = {name: last - first for name, (first, last) in self._rss.items()}
        return found + [f"{name}: {mib:.1f} MiB more memory" for name, mib in grown.items() if mib > GROWN_MIB]

    def _same(self, what: str, before: Any, now: Any) -> bool:
        if what == "descriptors" and self.carrier == "mooncake":
            return bool(now <= before + POOLED)
        return bool(now == before)

    def _find(self, kind: str, number: int, text: str) -> None:
        self.ledger.found.append((kind, number, text))
        self._save()

    def _save(self) -> None:
        self.traces.save(self.siege.alive, told(self.plan, self.ledger.found[0]))

    def result(self, seconds: float) -> TortureResult:
        ledger, size = self.ledger, self.plan.size
        return TortureResult(
            self.plan.seed, self.carrier, min(ledger.complete, size.rooms), ledger.undisturbed,
            sum(self.siege.struck.values()) + ledger.troubles.total(), round(seconds, 1), dict(ledger.causes),
            dict(ledger.troubles), dict(self.siege.struck), self.hits,
            {name: (round(a, 1), round(b, 1)) for name, (a, b) in sorted(self._rss.items())}, len(ledger.late),
            ledger.starved, [told(self.plan, each) for each in few(ledger.found)],
            self.traces.where, starvation(ledger.kept, seconds),
            sum(counts["judged"] for _, _, counts, _ in self._answers.values()),
        )  # fmt: skip
