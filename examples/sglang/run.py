"""SGLang carried by kvproto, in the real engine: a prefill and a decode instance on the CPU, and what they do.

    python -m examples.sglang.run --pairs 1:2 2:1 --table examples/results/sglang.json

Every scenario compares tokens with those of the whole model, and what both sides moved by digests; after the last one
each instance's cache has to be empty.  `--backend staging` has SGLang's own staging over Mooncake do what it can of it.

    seq      one prompt after another, of 5 to 333 tokens: the longest in six chunks
    many     16 at once
    alone    asked of decode only, and aborted there; prefill, asked later, hears so at once
    refused  asked of prefill only, and aborted there; decode, asked later, hears so at once
    middle   of 8 at once, 4 aborted at decode while they are under way: the others are not touched
    control  two heads of one layer are swapped at decode: the comparison has to notice
    idle     both caches can be emptied: no page is held
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from examples.sglang import model
from examples.sglang.instance import Answer, Instance, Request, Start

CONTROL = 900_000
LENGTHS = (37, 64, 100, 200, 260, 5, 333, 96)
TOKENS = 16
SOON = 20.0
BACKENDS = {
    "kvproto": ("kvproto", {}),
    "mooncake": ("mooncake", {}),
    "staging": (
        "mooncake",
        {"SGLANG_DISAGG_STAGING_BUFFER": "1", "SGLANG_STAGING_USE_TORCH": "1",
         "SGLANG_DISAGG_STAGING_POOL_SIZE_MB": "64", "SGLANG_DISAGG_STAGING_BUFFER_SIZE_MB": "16"},
    ),
}  # fmt: skip


class Run:
    """One pair of instances."""

    def __init__(self, pair: str, backend: str, folder: Path, pages: tuple[int, int]) -> None:
        self.pair, self.backend, self.folder = pair, backend, folder
        self.rows: list[dict[str, Any]] = []
        self.room, self.noise = random.Random(f"{pair} {backend}").randrange(1, 800_000), random.Random(7)
        self.truth: dict[tuple[int, ...], list[int]] = {}
        name, environment = BACKENDS[backend]
        port = 20_000 + self.room % 9_000
        tps = [int(each) for each in pair.split(":")]
        sides = zip(("prefill", "decode"), tps, pages, (port, port + 100), strict=True)
        self.bootstrap = port + 50
        self.p, self.d = (
            Instance(
                Start(side, tp, at, name, self.bootstrap, str(folder.parent / "model"), str(folder), page, environment)
            )
            for side, tp, page, at in sides
        )

    def prompts(self, lengths: Any) -> list[list[int]]:
        """New ones, and what the whole model says to them."""
        made = [[self.noise.randrange(3, model.VOCABULARY) for _ in range(length)] for length in lengths]
        for prompt, said in zip(made, model.continued(self.folder.parent / "model", made, TOKENS), strict=True):
            self.truth[tuple(prompt)] = said
        return made

    def request(self, prompt: list[int], *, control: bool = False) -> Request:
        """A prompt with a room of its own."""
        self.room += 1
        return Request(f"r{self.room}", prompt, TOKENS, self.room + CONTROL * control, self.bootstrap)

    def both(self, *requests: Request) -> list[Answer]:
        """Ask both instances; decode's answers."""
        for request in requests:
            self.p.ask(request)
            self.d.ask(request)
        rids = [request.rid for request in requests]
        self.p.wait(*rids)
        return self.d.wait(*rids)

    def judge(self, scenario: str, requests: list[Request], answers: list[Answer], **more: Any) -> None:
        """A row of the table."""
        right = sum(a.tokens == self.truth[tuple(r.prompt)] for r, a in zip(requests, answers, strict=True))
        errors = sorted({answer.error[:160] for answer in answers if answer.error})
        self.row(scenario, tokens=f"{right}/{len(requests)}", good=right == len(requests), errors=errors, **more)

    def row(self, scenario: str, **more: Any) -> None:
        """Note it, and say so."""
        self.rows.append({"pair": self.pair, "backend": self.backend, "scenario": scenario, **more})
        print(json.dumps(self.rows[-1]), flush=True)

    # ------------------------------------------------------------------------------------------ scenarios
    def seq(self) -> None:
        requests = [self.request(prompt) for prompt in self.prompts(LENGTHS)]
        answers = [self.both(request)[0] for request in requests]
        self.judge("seq", requests, answers, rooms=[request.room for request in requests])

    def many(self) -> None:
        requests = [self.request(prompt) for prompt in self.prompts([20 + 13 * i for i in range(16)])]
        begin = time.monotonic()
        answers = self.both(*requests)
        rooms = [request.room for request in requests]
        self.judge("many", requests, answers, rooms=rooms, seconds=round(time.monotonic() - begin, 2))

    def alone(self) -> None:
        request = self.request(self.prompts([100])[0])
        self.d.ask(request)
        time.sleep(1.5)
        self.d.abort(request.rid)
        begin = time.monotonic()
        (at_decode,) = self.d.wait(request.rid, seconds=SOON)
        gave_up = time.monotonic() - begin
        self.p.ask(request)
        begin = time.monotonic()
        (at_prefill,) = self.p.wait(request.rid, seconds=SOON)
        self._told("alone", at_decode, gave_up, at_prefill, time.monotonic() - begin)

    def refused(self) -> None:
        request = self.request(self.prompts([100])[0])
        self.p.ask(request)
        time.sleep(1.5)
        self.p.abort(request.rid)
        begin = time.monotonic()
        (at_prefill,) = self.p.wait(request.rid, seconds=SOON)
        gave_up = time.monotonic() - begin
        self.d.ask(request)
        begin = time.monotonic()
        (at_decode,) = self.d.wait(request.rid, seconds=SOON)
        self._told("refused", at_prefill, gave_up, at_decode, time.monotonic() - begin)

    def _told(self, scenario: str, first: Answer, gave_up: float, other: Answer, heard: float) -> None:
        good = bool(first.error and other.error) and heard < SOON
        said = other.error[:200]
        self.row(scenario, good=good, gave_up_s=round(gave_up, 2), other_heard_s=round(heard, 2), other_said=said)

    def middle(self) -> None:
        requests = [self.request(prompt) for prompt in self.prompts([250 + i for i in range(8)])]
        for request in requests:
            self.p.ask(request)
            self.d.ask(request)
        time.sleep(0.4)
        for request in requests[::2]:
            self.d.abort(request.rid)
        self.p.wait(*(request.rid for request in requests))
        kept = requests[1::2]
        answers = self.d.wait(*(request.rid for request in kept))
        gone = self.d.wait(*(request.rid for request in requests[::2]))
        self.judge("middle", kept, answers, aborted=sum(len(answer.tokens) < TOKENS for answer in gone))

    def control(self) -> None:
        requests = [self.request(prompt, control=True) for prompt in self.prompts((64, 100, 200))]
        answers = self.both(*requests)
        wrong = sum(a.tokens != self.truth[tuple(r.prompt)] for r, a in zip(requests, answers, strict=True))
        self.row("control", good=wrong == len(requests), noticed=f"{wrong}/{len(requests)}")

    def idle(self) -> None:
        why = [self.p.flush(), self.d.flush()]
        self.row("idle", good=not any(why), held=[each for each in why if each])

    def play(self, scenarios: list[str]) -> None:
        """All of them, and what the probes have seen."""
        try:
            for instance in (self.p, self.d):
                instance.ready()
            for scenario in scenarios:
                getattr(self, scenario)()
            time.sleep(0.5)
            self.seen()
        finally:
            self.p.close()
            self.d.close()

    def seen(self) -> None:
        """Times from the last chunk's KV to decode's taking it over, posts, and digests."""
        at: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        counts: dict[int, dict[str, int]] = {}
        for file in self.folder.glob("[0-9]*.jsonl"):
            for line in map(json.loads, file.read_text().splitlines()):
                if line["what"] == "posts":
                    counts[line["pid"]] = line["counts"]
                else:
                    at[line["room"]][line["what"]].append(line["at"])
        lags = {room: max(t["committed"]) - max(t["sent"]) for room, t in at.items() if t["committed"] and t["sent"]}
        for row in self.rows:
            if mine := [lags[room] for room in row.pop("rooms", ()) if room in lags]:
                row["lag_ms"] = [round(1e3 * q, 1) for q in (statistics.median(mine), max(mine))]
        total: dict[str, int] = defaultdict(int)
        for each in counts.values():
            for name, number in each.items():
                total[name] += number
        self.row("counts", good=True, counts={name: n for name, n in sorted(total.items()) if n}, rooms_seen=len(lags))
        if self.backend == "kvproto":
            self.row("digests", **digests(self.folder))


def digests(folder: Path) -> dict[str, Any]:
    """Compare what both sides have moved: every place of every room at decode with the same place at prefill."""
    sides: dict[str, dict[int, dict[tuple[int, ...], int]]] = {"P": defaultdict(dict), "D": defaultdict(dict)}
    for side, rooms in sides.items():
        for file in folder.glob(f"{side}[0-9]*.jsonl"):
            for line in map(json.loads, file.read_text().splitlines()):
                rooms[line["room"]].update({tuple(place): number for *place, number in line["digests"]})
    compared = differ = 0
    for room, places in sides["D"].items():
        for place, number in places.items():
            compared += 1
            differ += sides["P"][room].get(place) != number
    return {"good": differ == 0, "rooms": len(sides["D"]), "compared": compared, "differ": differ}


def main() -> int:
    """The runs that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", default=["1:2", "2:1"], help="prefill TP:decode TP")
    parser.add_argument("--backends", nargs="+", default=["kvproto"], choices=list(BACKENDS))
    parser.add_argument("--pages", nargs=2, type=int, default=[16, 16], help="tokens a page at prefill, at decode")
    scenarios = ["seq", "many", "alone", "refused", "middle", "control", "idle"]
    parser.add_argument("--scenarios", nargs="+", default=scenarios, choices=scenarios)
    parser.add_argument("--table", type=Path, help="where the rows go, as JSON")
    parser.add_argument("--keep", type=Path, help="a folder for the model and the logs (default: a temporary one)")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        top = asked.keep or Path(temporary)
        model.make(top / "model")
        for pair in asked.pairs:
            for backend in asked.backends:
                folder = top / f"{pair.replace(':', '-')}-{backend}-{time.time_ns()}"
                folder.mkdir(parents=True)
                run = Run(pair, backend, folder, tuple(asked.pages))
                run.play(asked.scenarios)
                rows += run.rows
    if asked.table:
        asked.table.write_text("[\n " + ",\n ".join(json.dumps(row) for row in rows) + "\n]\n")
    return 0 if all(row["good"] for row in rows if row["backend"] == "kvproto") else 1


if __name__ == "__main__":
    sys.exit(main())
