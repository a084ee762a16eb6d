"""Scenarios: what a prefill and a decode instance of SGLang do, and what has to come of it.

    seq      one prompt after another, of 5 to 333 tokens: the longest in six chunks
    many     16 at once
    alone    asked of decode only, and aborted there; prefill, asked later, hears so at once
    refused  asked of prefill only, and aborted there; decode, asked later, hears so at once
    middle   of 8 at once, 4 aborted at decode while they are under way: the others are not touched
    stages   aborted at decode, then at prefill, at 8 moments each of a prompt's computation and transfer: both answer
    control  two heads of a layer (hybrid: of its state; windows: of one with a window) are swapped, or its latents
             turned round, at decode: the comparison has to notice
    astray   with data-parallel attention at prefill: decode awaits a request at another rank; both are told soon
    killed   prefill is killed while decode waits for it, and another one takes its place; decode goes on
    idle     both caches can be emptied: no page is held

All backends get the same prompts: those of a scenario are drawn by its name.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from examples.sglang.messages import Answer
from examples.sglang.pair import TOKENS, Pair, first, spread

LENGTHS = (37, 64, 100, 200, 260, 5, 333, 96)
MANY = tuple(20 + 13 * at for at in range(16))
CONTROLLED = 64, 100, 200
#: seconds within which the other side hears of an abort, by kvproto and by SGLang's own; in which a request that
#: was given up is answered
SOON, SOON_BY_OWN, ENDED = 20.0, 10.0, 60.0
#: what an instance that has ended, or does not start, raises
ENDED_EARLY = RuntimeError, EOFError, ConnectionError
MOMENTS = tuple(0.05 * n for n in range(8))
SCENARIOS = ("seq", "many", "alone", "refused", "middle", "stages", "control", "astray", "killed", "idle")
#: what kvproto does without digests, and what SGLang's own backends do beside it
TIMED = ("seq", "many", "alone", "refused", "idle")
COMPARED = (*TIMED, "middle", "killed")
#: and of most pairs
BRIEF = ("seq", "middle", "killed")
#: those in which prompts are asked and nothing else happens
ASKED = ("seq", "many")


class Run(Pair):
    """What one pair does."""

    @property
    def soon(self) -> float:
        """Return the seconds in which the other side hears of an abort, and in which caches can be emptied."""
        return SOON_BY_OWN if self.own else SOON

    def seq(self) -> None:
        requests = [self.request(prompt) for prompt in self.prompts(LENGTHS * self.place.rounds)]
        answers = [self.both(request)[0] for request in requests]
        self.judge("seq", requests, answers, rooms=[request.room for request in requests], ttft_ms=first(answers))

    def many(self) -> None:
        requests = [self.request(prompt) for prompt in self.prompts(MANY)]
        begin = time.monotonic()
        answers = self.both(*requests)
        rooms = [request.room for request in requests]
        seconds = round(time.monotonic() - begin, 2)
        self.judge("many", requests, answers, rooms=rooms, ttft_ms=first(answers), seconds=seconds)

    def alone(self) -> None:
        request = self.request(self.prompts([100])[0])
        self.d.ask(request)
        time.sleep(1.5)
        self.d.abort(request.rid)
        begin = time.monotonic()
        (at_decode,) = self.d.wait(request.rid, seconds=self.soon)
        gave_up = time.monotonic() - begin
        self.p.ask(request)
        begin = time.monotonic()
        (at_prefill,) = self.p.wait(request.rid, seconds=self.soon)
        self._told("alone", at_decode, gave_up, at_prefill, time.monotonic() - begin)

    def refused(self) -> None:
        request = self.request(self.prompts([100])[0])
        self.p.ask(request)
        time.sleep(1.5)
        self.p.abort(request.rid)
        begin = time.monotonic()
        (at_prefill,) = self.p.wait(request.rid, seconds=self.soon)
        gave_up = time.monotonic() - begin
        self.d.ask(request)
        begin = time.monotonic()
        (at_decode,) = self.d.wait(request.rid, seconds=self.soon)
        self._told("refused", at_prefill, gave_up, at_decode, time.monotonic() - begin)

    def _told(self, scenario: str, first: Answer, gave_up: float, other: Answer, heard: float) -> None:
        good = bool(first.error and other.error) and heard < self.soon
        said = other.error[:200]
        self.row(scenario, good=good, gave_up_s=round(gave_up, 2), other_heard_s=round(heard, 2), other_said=said)

    def middle(self) -> None:
        requests = [self.request(prompt) for prompt in self.prompts([250 + i for i in range(8)])]
        for request in requests:
            self.p.ask(request)
            self.d.ask(request)
        time.sleep(0.4)
        for request in requests[::2]:
            self.given_up.add(request.room)
            self.d.abort(request.rid)
        self.p.wait(*(request.rid for request in requests))
        kept = requests[1::2]
        answers = self.d.wait(*(request.rid for request in kept))
        gone = self.d.wait(*(request.rid for request in requests[::2]))
        self.judge("middle", kept, answers, aborted=sum(len(answer.tokens) < TOKENS for answer in gone))

    def stages(self) -> None:
        prompts, ended, right = self.prompts([333] * (2 * len(MOMENTS))), 0, 0
        for prompt, (left, moment) in zip(prompts, ((who, at) for who in "DP" for at in MOMENTS), strict=True):
            request = self.request(prompt)
            self.given_up.add(request.room)
            self.p.ask(request)
            self.d.ask(request)
            time.sleep(moment)
            (self.d if left == "D" else self.p).abort(request.rid)
            (at_prefill,) = self.p.wait(request.rid, seconds=ENDED)
            (at_decode,) = self.d.wait(request.rid, seconds=ENDED)
            silent = "no answer" in at_prefill.error + at_decode.error
            wrong = not at_decode.error and self.differs(request, at_decode)
            ended, right = ended + (not silent), right + (not wrong)
        good = ended == right == len(prompts)
        self.row("stages", good=good, aborted=len(prompts), both_answered=ended, none_wrong=right)

    def astray(self) -> None:
        ranks = self.starts[0].data_parallel
        if ranks == 1:
            return
        request = self.request(self.prompts([100])[0])
        self.p.ask(request)
        self.d.ask(msgspec.structs.replace(request, told=(request.room + 1) % ranks))
        begin = time.monotonic()
        (at_decode,), (at_prefill,) = (side.wait(request.rid, seconds=self.soon) for side in (self.d, self.p))
        self._told("astray", at_prefill, time.monotonic() - begin, at_decode, time.monotonic() - begin)

    def killed(self) -> None:
        waits, *after = (self.request(prompt) for prompt in self.prompts((100, 37, 333)))
        self.d.ask(waits)
        time.sleep(1.5)
        self.p.kill()
        begin = time.monotonic()
        (answer,) = self.d.wait(waits.rid, seconds=ENDED)
        heard = round(time.monotonic() - begin, 2)
        self.p = self.make(self.p.start)
        self.ready()
        self.allow()
        answers = self.both(*after)
        self.judge("killed", after, answers, decode_heard_s=heard, decode_said=answer.error[:200])

    def control(self) -> None:
        requests = [self.request(prompt, control=True) for prompt in self.prompts(CONTROLLED)]
        answers = self.both(*requests)
        wrong = sum(map(self.differs, requests, answers))
        self.row("control", good=wrong == len(requests), noticed=f"{wrong}/{len(requests)}")

    def idle(self) -> None:
        why = [each.flush(round(self.soon)) for each in (self.p, self.d)]
        self.row("idle", good=not any(why), held=[each for each in why if each])

    def foresee(self, scenarios: list[str]) -> None:
        """Ask the whole model before these scenarios are played."""
        known = {"seq": LENGTHS * self.place.rounds, "many": MANY, "control": CONTROLLED}
        for name in (each for each in scenarios if each in known):
            self.noise.seed(name)
            self.prompts(known[name])

    def foresee_alone(self, scenarios: list[str]) -> None:
        """Ask another engine while both stand still: idle schedulers take its cores."""
        self.ready()
        try:
            for instance in (self.p, self.d):
                instance.pause()
            self.foresee(scenarios)
        finally:  # a judge that fails leaves no instance stopped
            for instance in (self.p, self.d):
                instance.go_on()

    def begin(self) -> None:
        """Wait until both serve, and ask them something.

        A process's first forward of several requests takes it a second or more, whoever carries their KV; on a GPU the
        first of many compiles, too.
        """
        self.ready()
        self.noise.seed("warm")
        lengths = [length * self.place.scale for length in (MANY if self.place.gpus else (20, 40, 60, 80))]
        self.warming = [self.request(self.draw(length)) for length in lengths]
        self.ask(*self.warming)

    def stand_still(self) -> None:
        """Wait until both are warm, and pause them until they play."""
        self.answers(*self.warming or ())
        for instance in (self.p, self.d):
            instance.pause()

    def play(self, scenarios: list[str]) -> None:
        """All of them, and what the probes have seen; an instance that ends by itself ends them."""
        at, left = "start", [*scenarios]
        try:
            for instance in (self.p, self.d):
                instance.go_on()
            if self.warming is None:
                if self.whole is not None:
                    self.foresee_alone(scenarios)
                self.begin()
                at = "the first requests"
                self.allow()
                self.answers(*self.warming or ())
            while left and not self.silent:
                at = left[0]
                self.noise.seed(at)
                self.allow()
                getattr(self, at)()
                del left[0]
            time.sleep(0.5)
        except ENDED_EARLY as error:
            why = f"an instance ended, or did not start: {self.raised() or repr(error)}"
            if not self.own:
                self.row(at, good=False, errors=[why])
                return
        else:
            why = f"no answer in {at}: {self.raised()}".removesuffix(": ")
        finally:
            self.close()
        for name in left:  # each has its row, whatever SGLang's own does
            self.row(name, good=False, errors=[why])
        self.seen()

    def seen(self) -> None:
        """Times from the last chunk's KV to decode's taking it over and to its first step, posts, and digests."""
        at: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        counts: dict[int, dict[str, int]] = {}
        for file in self.folder.glob("[0-9]*.jsonl"):
            for line in map(json.loads, file.read_text().splitlines()):
                if line["what"] == "posts":
                    counts[line["pid"]] = line["counts"]
                else:
                    at[line["room"]][line["what"]].append(line["at"])
        whole = {room: {what: max(t) for what, t in times.items()} for room, times in at.items()}
        lags = [room for room, t in whole.items() if "committed" in t and "sent" in t]
        for row in self.rows:
            rooms = [whole[room] for room in row.pop("rooms", ()) if room in whole]
            for name, what in (("lag_ms", "committed"), ("step_ms", "step")):
                if mine := [1e3 * (t[what] - t["sent"]) for t in rooms if what in t and "sent" in t]:
                    row[name] = spread(mine)
            self.keep(row)  # once more: what was kept had no times
        total: dict[str, int] = defaultdict(int)
        for each in counts.values():
            for name, number in each.items():
                total[name] += number
        self.row("counts", good=True, counts={name: n for name, n in sorted(total.items()) if n}, rooms_seen=len(lags))
        if self.backend == "kvproto":
            self.row("digests", **digests(self.folder, self.given_up))


def digests(folder: Path, given_up: set[int]) -> dict[str, Any]:
    """Compare what both sides have moved: every place of every room at decode with the same place at prefill.

    `given_up`: rooms that prefill aborted, perhaps when a decode rank had all of its part: of what a prefill rank says
    nothing there, nothing is compared.
    """
    sides: dict[str, dict[int, dict[tuple[int, ...], int]]] = {"P": defaultdict(dict), "D": defaultdict(dict)}
    for side, rooms in sides.items():
        for file in folder.glob(f"{side}[0-9]*.jsonl"):
            for line in map(json.loads, file.read_text().splitlines()):
                rooms[line["room"]].update({tuple(place): number for *place, number in line["digests"]})
    late, both, pairs = set[int](), set[int](), list[tuple[int, int | None]]()
    for room, places in sides["D"].items():
        for place, number in places.items():
            said = sides["P"][room].get(place)
            if said is None and room in given_up:
                late.add(room)
            else:
                both.add(room)
                pairs.append((number, said))
    differ = sum(ours != theirs for ours, theirs in pairs)
    silent = sum(theirs is None for _, theirs in pairs)
    found = {"rooms": len(both), "given_up_late": len(late), "compared": len(pairs), "differ": differ}
    return {"good": differ == 0, **found, **({"not_said": silent} if silent else {})}
