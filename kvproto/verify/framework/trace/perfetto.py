"""A story for Perfetto (ui.perfetto.dev) and chrome://tracing: a process a party, a track a machine.

Each stay in a state is a slice, each message an arrow from the step that sent it to the step that it led to.  Times are
those of the parties' own clocks: where they differ, arrows lean.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from kvproto.fsm.records import HeardEntry, SentEntry, StepEntry
from kvproto.fsm.telling import Moment, Telling

Json = dict[str, object]
MICRO = 1e6


def perfetto(story: Sequence[Moment], telling: Telling) -> str:
    """The story in the trace-event format (JSON)."""
    return json.dumps({"traceEvents": _Tracks(story, telling).events(), "displayTimeUnit": "ms"})


class _Tracks:
    def __init__(self, story: Sequence[Moment], telling: Telling) -> None:
        self.story, self.telling = story, telling
        self.pids = {party: i for i, party in enumerate(sorted({m.party for m in story}), 1)}
        self.tids: dict[tuple[str, str], int] = {}
        self.last: dict[tuple[str, str], tuple[float, StepEntry]] = {}
        self.out: list[Json] = [
            {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": party}} for party, pid in self.pids.items()
        ]

    def events(self) -> list[Json]:
        for moment in self.story:
            if isinstance(moment.entry, StepEntry):
                self._step(moment, moment.entry)
            elif isinstance(moment.entry, HeardEntry) and moment.cause is not None:
                self._arrow(self.story[moment.cause], moment)
        end = max((moment.time for moment in self.story), default=0.0)
        for (party, track), (since, step) in self.last.items():
            self._slice(party, track, step, since, end)
        return self.out

    def _tid(self, party: str, track: str) -> int:
        if (party, track) not in self.tids:
            tid = self.tids[party, track] = len(self.tids) + 1
            self.out.append({"ph": "M", "name": "thread_name", "pid": self.pids[party], "tid": tid,
                             "args": {"name": track}})  # fmt: skip
        return self.tids[party, track]

    def _step(self, moment: Moment, step: StepEntry) -> None:
        track = self.telling.track(step)
        before = self.last.get((moment.party, track))
        if before is None or step.source != step.target:
            if before is not None:
                self._slice(moment.party, track, before[1], before[0], moment.time)
            self.last[moment.party, track] = moment.time, step
        self.out.append({"ph": "i", "s": "t", "name": type(step.event).__name__, "ts": moment.time * MICRO,
                         **self._at(moment.party, track),
                         "args": {"event": self.telling.fact(step.event), "row": step.row,
                                  "effects": [self.telling.fact(effect) for effect in step.effects]}})  # fmt: skip

    def _slice(self, party: str, track: str, step: StepEntry, since: float, until: float) -> None:
        self.out.append({"ph": "X", "name": step.target, "ts": since * MICRO, "dur": max(until - since, 0.0) * MICRO,
                         **self._at(party, track), "args": {"entered by": self.telling.fact(step.event)}})  # fmt: skip

    def _at(self, party: str, track: str) -> Json:
        return {"pid": self.pids[party], "tid": self._tid(party, track)}

    def _arrow(self, sender: Moment, receiver: Moment) -> None:
        if receiver.message is None:
            return
        sent_by = sender.cause if isinstance(sender.entry, SentEntry) and sender.cause is not None else sender.index
        entry = self.story[sent_by].entry
        track = self.telling.track(entry) if isinstance(entry, StepEntry) else "messages"
        common = {"name": self.telling.said(receiver.message), "cat": "message", "id": receiver.index}
        self.out.append({"ph": "s", "ts": sender.time * MICRO, **common, **self._at(sender.party, track)})
        following = self.story[receiver.index + 1 : receiver.index + 40]
        step = next((m.entry for m in following if m.party == receiver.party and isinstance(m.entry, StepEntry)), None)
        landed = self.telling.track(step) if step is not None else "messages"
        self.out.append({"ph": "f", "bp": "e", "ts": receiver.time * MICRO, **common,
                         **self._at(receiver.party, landed)})  # fmt: skip
