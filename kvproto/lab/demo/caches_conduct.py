"""Caches conduct: the parent of a run with several caches, which starts the processes and judges.

A run is good when the rows of every part, layer and unit on both sides are those of the model that nobody sharded, when
D's tokens and logits are its, when each planted corruption was found by the same comparison, and when no rank
complained, has anything left over, or found a row changed outside the rooms.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from kvproto.lab.demo.caches_job import CachesRun
from kvproto.lab.demo.caches_result import CachesResult
from kvproto.lab.demo.conduct import played
from kvproto.lab.demo.verify import ByteDifference, Sheet, Verdict, compare, said_differently
from kvproto.lab.process_group import ProcessGroup, Program

START_S = 60.0


def conduct_caches(run: CachesRun, *, players: str = "kvproto.lab.demo.caches_rank") -> CachesResult:
    """Carry out the run.  RankError, TimeoutError: a process fails or falls silent.

    `players` is the module whose `prefill` and `decode` the ranks run.
    """
    result: CachesResult = played(lambda place: _Conductor(run, place, players))
    return result


class _Conductor:
    def __init__(self, run: CachesRun, directory: Path, players: str) -> None:
        self.run, self.result, job = run, CachesResult(run), run.job
        self.p = [f"P{rank}" for rank in range(job.prefill.ranks)]
        self.d = [f"D{rank}" for rank in range(job.decode.ranks)]
        self.programs = [
            Program("judge", "kvproto.lab.demo.caches_model:judge", (job, directory)),
            *(Program(name, f"{players}:prefill", (run, rank, directory)) for rank, name in enumerate(self.p)),
            *(Program(name, f"{players}:decode", (run, rank, directory)) for rank, name in enumerate(self.d)),
        ]
        self.rooms = {room.room: room for room in job.rooms}
        self.verdicts: dict[int, Verdict] = {}
        #: by room and part, the rows of a unit
        self.counts: dict[int, dict[str, int]] = {}
        self.sheets: dict[tuple[str, int], dict[str, Sheet]] = defaultdict(dict)
        self.said: list[tuple[str, int, list[tuple[int, bytes]]]] = []
        self.planted: list[tuple[str, str, int, Sheet]] = []

    def play(self) -> None:
        everyone, limit = [*self.p, *self.d], START_S + self.run.limit_s
        with ProcessGroup(self.programs) as crew:
            at = crew.collect("address", self.p, limit, self._hear)
            crew.tell(self.d, "addresses", [at[name] for name in self.p])
            crew.collect("linked", self.d, limit, self._hear)
            while len(self.verdicts) < len(self.rooms):  # D's prefixes come from the judge's files
                self._hear("judge", "verdict", crew.collect("verdict", ["judge"], limit, self._hear)["judge"])
            crew.tell(everyone, "go")
            tallies = crew.collect("tally", everyone, limit, self._hear)
            crew.tell(everyone, "close")
            crew.finish(limit)
        self._judge(tallies)

    def _hear(self, name: str, kind: str, data: Any) -> None:
        match kind:
            case "verdict":
                room, said, sheet, self.counts[room] = data
                self.verdicts[room] = Verdict([token for token, _ in said], [digest for _, digest in said], sheet, None)
            case "kv":
                self.sheets[name[0], data[0]][name] = data[1]
            case "said":
                self.said.append((name, *data))
            case "tampered":
                self.planted.append((name, *data))

    def _judge(self, tallies: dict[str, Any]) -> None:
        wrong = self.result.wrong
        for name, (complaints, moved) in tallies.items():
            wrong += [f"{name}: {text}" for text in complaints]
            self.result.moved += moved if name in self.p else 0
        for room in self.rooms:
            for group in "PD":
                wrong += map(str, self._compared(room, group, self.sheets[group, room]))
            for sheet in self.sheets["D", room].values():
                for (_, kind, _), data in sheet.items():
                    self.result.parts[kind][0] += self.counts[room][kind]
                    self.result.parts[kind][1] += len(data)
        if len(self.said) < len(self.rooms) * len(self.d):
            wrong.append(f"{len(self.said)} of {len(self.rooms) * len(self.d)} continuations were told")
        for name, room, rows in self.said:
            wrong += said_differently(f"room {room}: {name}", self.verdicts[room], rows, self.rooms[room].new)
            self.result.tokens += len(rows) if name == self.d[0] else 0
        for name, control, room, sheet in self.planted:
            found = self._compared(room, "D", self.sheets["D", room] | {name: sheet})
            self.result.controls[control][0] += bool(found)
            self.result.controls[control][1] += 1
            if not found:
                wrong.append(f"{name}: {control!r} was planted in room {room}, and nothing was found")

    def _compared(self, room: int, group: str, sheets: dict[str, Sheet]) -> list[ByteDifference]:
        return compare(room, self.counts[room], self.verdicts[room].sheet, sheets, group)
