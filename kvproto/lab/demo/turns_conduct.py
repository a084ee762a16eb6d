"""Turns conduct: the parent of conversations, which says what is next in each of them, and judges.

It is the scheduler of both sides: a turn is prefilled when its KV is back on every rank of P, and answered when its
prompt is on every rank of D.  So conversations overtake each other, and both directions are under way at a time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvproto.lab.demo.conduct import played
from kvproto.lab.demo.turns import TurnsRun, TurnsTally
from kvproto.lab.demo.verify import Sheet, Verdict, compare, said_differently
from kvproto.lab.process_group import ProcessGroup, Program

START_S = 60.0


@dataclass
class TurnTimes:
    """Seconds of one turn: its prefill; its answer's way back, and what computing that anew took."""

    prefill: float = 0.0
    back: float = 0.0
    recomputed: float = 0.0


@dataclass
class TurnsResult:
    """`wrong`: what contradicts a good run; `times` by room and turn; `back`: bytes that went back."""

    talks: TurnsRun
    wrong: list[str] = field(default_factory=list)
    times: dict[tuple[int, int], TurnTimes] = field(default_factory=lambda: defaultdict(TurnTimes))
    tokens: int = 0
    back: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.wrong


def conduct_turns(talks: TurnsRun, *, players: str = "kvproto.lab.demo.turns_rank") -> TurnsResult:
    """Carry out the conversations.  RankError, TimeoutError: a process fails or falls silent.

    `players` is the module whose `rank` the ranks run.
    """
    result: TurnsResult = played(lambda place: _Conductor(talks, place, players))
    return result


class _Conductor:
    def __init__(self, talks: TurnsRun, directory: Path, players: str) -> None:
        self.talks, self.result, job = talks, TurnsResult(talks), talks.run.job
        self.p = [f"P{rank}" for rank in range(job.prefill.ranks)]
        self.d = [f"D{rank}" for rank in range(job.decode.ranks)]
        self.programs = [Program("oracle", "kvproto.lab.demo.oracle:conversations", (talks,))]
        for side, names in (("prefill", self.p), ("decode", self.d)):
            self.programs += [
                Program(name, f"{players}:rank", (talks, side, index, directory)) for index, name in enumerate(names)
            ]
        #: by what is waited for, (kind, room, turn): what each rank told; and how many answers are still to come
        self.told: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        self.verdicts: dict[int, Verdict] = {}
        self.said: dict[tuple[str, int], list[tuple[int, bytes]]] = defaultdict(list)
        self.left = sum(map(len, talks.turns.values()))
        self.crew: ProcessGroup

    def play(self) -> None:
        everyone, limit = [*self.p, *self.d], START_S + self.talks.run.limit_s
        with ProcessGroup(self.programs) as self.crew:
            at = self.crew.collect("address", everyone, limit, self._hear)
            self.crew.tell(self.p, "addresses", [at[name] for name in self.d])
            self.crew.tell(self.d, "addresses", [at[name] for name in self.p])
            self.crew.collect("linked", everyone, limit, self._hear)
            for room in self.talks.turns:
                self._begin(room, 0)
            while self.left or len(self.verdicts) < len(self.talks.turns):
                self._listen(limit)
            self.crew.tell(everyone, "account", ())
            self._judge(self.crew.collect("tally", everyone, limit, self._hear))
            self._recompute(limit)
            self.crew.tell(everyone, "end", ())
            self.crew.finish(limit)

    def _listen(self, limit: float) -> None:
        news = self.crew.listen(limit)
        if not news:
            raise TimeoutError(f"nothing happened for {limit:g} s, with {self.left} answers to come")
        for name, kind, data in news:
            self._hear(name, kind, data)

    # ------------------------------------------------------------------------------------------ what is next
    def _begin(self, room: int, turn: int) -> None:
        this, held = self.talks.turns[room][turn], self.talks.at_decode(room, turn)
        self.crew.tell(self.d, "take", (room, turn, this.tokens, held))
        self.crew.tell(self.p, "prefill", (room, turn))

    def _hear(self, name: str, kind: str, data: Any) -> None:
        match kind:
            case "verdict":
                room, verdict = data
                self.verdicts[room] = verdict
            case "said":
                room, turn, rows = data
                self.said[name, room] += rows
                if self._all("said", self.d, room, turn, 0.0):
                    self._answered(room, turn)
            case "landed":
                side, room, turn, when = data
                if side == "decode" and self._all("landed", self.d, room, turn, when):
                    self.crew.tell(self.d, "say", (room, turn))
                elif side == "prefill" and (ends := self._all("back", self.p, room, turn, when)):
                    self.result.times[room, turn].back = max(ends) - min(self.told["begun", room, turn])
                    self._begin(room, turn + 1)
            case "begun" | "computed" | "recomputed":
                room, turn, when = data
                self.told[kind, room, turn].append(when)

    def _all(self, kind: str, names: list[str], room: int, turn: int, value: float) -> list[float]:
        """Note one rank's word; return all of them when the last one has come."""
        told = self.told[kind, room, turn]
        told.append(value)
        return told if len(told) == len(names) else []

    def _answered(self, room: int, turn: int) -> None:
        self.left -= 1
        if turn + 1 < len(self.talks.turns[room]):
            have = self.talks.at_prefill(room, turn)
            self.crew.tell(self.p, "take", (room, turn, self.talks.turns[room][turn].after, have))

    # -------------------------------------------------------------------------------------------- judging
    def _judge(self, tallies: dict[str, TurnsTally]) -> None:
        wrong = self.result.wrong
        for name, tally in tallies.items():
            wrong += [f"{name}: {text}" for text in tally.wrong]
        for room, turns in self.talks.turns.items():
            truth, last = self.verdicts[room], turns[-1]
            for group, names, tokens in (("P", self.p, last.tokens), ("D", self.d, last.after)):
                sheets = {name: tallies[name].sheets[room] for name in names}
                right = _first(truth.sheet, tokens, last.after)
                found = compare(room, {"k": tokens, "v": tokens}, right, sheets, group)
                wrong += [str(difference) for difference in found]
            for name in self.d:
                wrong += said_differently(f"room {room}: {name}", truth, self.said[name, room], len(truth.tokens))
            self.result.tokens += len(truth.tokens)
        self.result.back = sum(tallies[name].sent for name in self.d)
        for (kind, room, turn), seconds in self.told.items():
            if kind == "computed":
                self.result.times[room, turn].prefill = max(seconds)

    def _recompute(self, limit: float) -> None:
        """Have P compute the answers that have come back, one at a time, to see what that would have taken."""
        for room, turns in self.talks.turns.items():
            for turn, this in enumerate(turns[:-1]):
                first = turn * this.new
                said = self.verdicts[room].tokens[first : first + this.new - 1]
                self.crew.tell(self.p, "recompute", (room, turn, said))
                times = self.crew.collect("recomputed", self.p, limit, self._hear)
                self.result.times[room, turn].recomputed = max(seconds for _, _, seconds in times.values())


def _first(sheet: Sheet, tokens: int, of: int) -> Sheet:
    """The KV of the first `tokens` of so many."""
    return {key: rows[: len(rows) // of * tokens] for key, rows in sheet.items()}
