"""Scenarios in the real engine, and the table of what came of them.

    python -m examples.vllm.run                                     # all pairs: make engines-vllm
    python -m examples.vllm.run 1-2 2-1 --out FOLDER                # prefill ranks - decode ranks
    python -m examples.vllm.run 1-2 --only sequential,killed
    python -m examples.vllm.run --table-only FILE --out FOLDER      # of what was run before

Each pair is a process of its own: kvproto's connector through all scenarios, then vLLM's own NixlConnector with the
same prompts through some of them.  Needs `make engines`.  Exit code 0: every answer was the whole model's, every digest
the same at both ends, every block given back, and the control was noticed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from examples.vllm import model

PAIRS = ("1-2", "2-1", "2-2", "1-1")
INTRO = """\
# vLLM carried by kvproto: what came of it

Written by `python -m examples.vllm.run` (`make engines-vllm`): real instances of vLLM on a CPU, prefill ranks - decode
ranks, one after the other on one machine; a random Llama of 4 layers and 4 KV heads in float32, 24 greedy tokens a
prompt, blocks of 32, prefill in chunks of 64 tokens. The answers are compared with the model's in one process, the
digests of every (chunk, layer, head) that was gathered with those of what was scattered. What each scenario does stands
in [examples/vllm/scenarios.py](../vllm/scenarios.py). Outcomes are counted a rank. Times are those of a machine that
does other things, too: they tell orders of magnitude.

"""
TTL = 20.0
#: seconds that a scenario may take, beyond which it has failed; those for the restart of an instance are its own
LIMIT = 300.0
HEAD = (
    "| pair | carried by | scenario | tokens of the whole model | rooms: outcomes | digests: compared, differ "
    "| ms from the prefill answer to the first token | posts: staged + over pages | blocks back | as it must be | |"
)


class Row(msgspec.Struct):
    """A scenario's outcome; `lag`: median milliseconds; `posts`: of prefill ranks, by their way."""

    pair: str
    carrier: str
    scenario: str
    equal: int
    asked: int
    back: bool
    good: bool
    outcomes: dict[str, int]
    digests: int
    differing: int
    posts: dict[str, int]
    lag: float | None
    seconds: float
    note: str

    def line(self) -> str:
        """As a line of the table."""
        tokens = f"{self.equal} of {self.asked}" if self.asked else "-"
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items())) or "-"
        lag = "-" if self.lag is None else f"{self.lag:.0f}"
        digests = f"{self.digests}, {self.differing}" if self.carrier == "kvproto" else "-"
        posts = f"{self.posts.get('staged', 0)} + {self.posts.get('pages', 0)}" if self.posts else "-"
        back, good = ("yes" if each else "**no**" for each in (self.back, self.good))
        return (
            f"| {self.pair} | {self.carrier} | {self.scenario} | {tokens} | {outcomes} | {digests} | {lag} | {posts} "
            f"| {back} | {good} | {self.note} |"
        )


class Records:
    """What the ranks of both sides have written since the last look."""

    def __init__(self, out: Path) -> None:
        self.out, self.read = out, dict[Path, int]()
        self.posts: dict[str, dict[str, int]] = {}

    def new(self) -> list[tuple[str, dict[str, Any]]]:
        """(rank, line) of each."""
        found = []
        for path in sorted(self.out.glob("[PD]?.jsonl")):
            lines = path.read_text().splitlines()
            found += [(path.stem, msgspec.json.decode(line)) for line in lines[self.read.get(path, 0) :]]
            self.read[path] = len(lines)
        return found

    def judge(self) -> tuple[dict[str, int], int, int, Counter[str]]:
        """Outcomes by side and cause; digests that both sides have; how many are wrong; posts by their way.

        What goes over pages passes no kernel, and has no digest at the decode side; but if nothing went over pages, a
        digest that one side lacks is wrong.
        """
        outcomes, places, posts = Counter[str](), dict[int, dict[str, dict[str, int]]](), Counter[str]()
        for rank, line in self.new():
            if line["event"] != "outcome":
                continue
            outcomes[f"{rank[0]} {line['cause']}"] += 1
            if rank[0] == "P":
                posts.update(self._new_posts(rank, line["posts"]))
            places.setdefault(line["room"], {"P": {}, "D": {}})[rank[0]].update(line["digests"])
        both = [(sides["P"], sides["D"]) for sides in places.values() if sides["P"] and sides["D"]]
        compared = sum(len(ours.keys() & theirs.keys()) for ours, theirs in both)
        wrong = sum(ours[at] != theirs[at] for ours, theirs in both for at in ours.keys() & theirs.keys())
        if not posts["pages"]:
            wrong += sum(len(ours.keys() ^ theirs.keys()) for ours, theirs in both)
        return dict(outcomes), compared, wrong, posts

    def _new_posts(self, rank: str, now: dict[str, int]) -> dict[str, int]:
        """Since the last line; a rank that has started anew counts from zero."""
        before = self.posts.get(rank, {})
        anew = any(now[way] < before.get(way, 0) for way in now)
        self.posts[rank] = now
        return now if anew else {way: count - before.get(way, 0) for way, count in now.items()}


async def play(setting: Any, pair: str, carrier: str, names: list[str], done: Callable[[list[Row]], None]) -> list[Row]:
    """One scenario after the other; `done` is called with all rows after each."""
    from examples.vllm.scenarios import SCENARIOS, Found

    records, rows = Records(setting.out), []
    for instance in (setting.prefill, setting.decode):  # the first forward of a process takes long
        await instance.ask(setting.prompts[0], 2)
        await instance.free()
    for name in names:
        begun = time.perf_counter()
        try:
            found = await asyncio.wait_for(SCENARIOS[name](setting), LIMIT)
            back = True
            for instance in (setting.prefill, setting.decode):
                await instance.free(90.0)
        except Exception as error:  # noqa: BLE001  # a scenario that fails is a row that says so
            traceback.print_exc()
            found, back = Found([], [], note=f"{type(error).__name__}: {str(error)[:120]}"), False
        outcomes, compared, wrong, posts = records.judge()
        equal = sum(got == want for got, want in zip(found.got, found.want, strict=True))
        good = back and (equal == 0 if found.control else equal == len(found.want)) and not wrong
        lag = statistics.median(found.lags) if found.lags else None
        seconds = round(time.perf_counter() - begun, 1)
        note, asked = found.note + (" (they must differ)" if found.control else ""), len(found.want)
        row = Row(
            pair, carrier, name, equal, asked, back, good, outcomes, compared, wrong, dict(posts), lag, seconds, note
        )  # fmt: skip
        rows.append(row)
        done(rows)
    return rows


def one(pair: str, carrier: str, names: list[str], out: Path) -> int:
    """Two instances of this pair, all scenarios; writes `PAIR-CARRIER.json`."""
    from examples.vllm.instances import Carrier, Instance
    from examples.vllm.scenarios import Setting

    carrier_: Carrier = "kvproto" if carrier == "kvproto" else "nixl"
    folder, place = out / "model", out / f"{pair}-{carrier}"
    place.mkdir(parents=True, exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    begun = time.perf_counter()

    def say(*words: object) -> None:
        print(f"{time.perf_counter() - begun:7.1f}", *words, flush=True)

    model.make(folder)
    prompts = model.prompts()
    answers = model.answers(folder, prompts)
    say("the whole model has answered")
    ranks = [int(count) for count in pair.split("-")]

    def prefill() -> Instance:
        return Instance("P", ranks[0], folder, place, carrier_, ttl=TTL)

    ours, theirs = prefill(), Instance("D", ranks[1], folder, place, carrier_, ttl=TTL)
    say("both instances are there")
    setting = Setting(ours, theirs, prompts, answers, place, TTL, prefill)

    def done(rows: list[Row]) -> None:
        say(rows[-1].line())
        (out / f"{pair}-{carrier}.json").write_bytes(msgspec.json.encode(rows))

    try:
        rows = asyncio.run(play(setting, pair, carrier, names, done))
        say("vLLM's own counters:", counters())
    finally:
        for instance in (setting.prefill, theirs):
            instance.close()
    return 0 if all(row.good for row in rows) else 1


def counters() -> dict[str, float]:
    """What vLLM's Prometheus endpoint would say of the transfer, of the instance that was made last."""
    from prometheus_client import REGISTRY

    found = [each for metric in REGISTRY.collect() for each in metric.samples if each.name.startswith("vllm:kvproto_")]
    return {each.name: each.value for each in found if each.name.endswith("_total")}


def table(out: Path) -> str:
    """Of all runs in the folder."""
    rows = [
        row for path in sorted(out.glob("*-*.json")) for row in msgspec.json.decode(path.read_bytes(), type=list[Row])
    ]
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|", *(row.line() for row in rows)]
    return INTRO + "\n".join(lines) + "\n"


def main() -> int:
    """The exit code."""
    from examples.vllm.scenarios import COMPARED, SCENARIOS

    parser = argparse.ArgumentParser(description="scenarios in real instances of vLLM")
    parser.add_argument("pairs", nargs="*", metavar="P-D", help="ranks of the prefill and of the decode instance: 1-2")
    parser.add_argument("--only", default="", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--carriers", default="kvproto,nixl", help="kvproto, nixl (vLLM's own connector)")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "vllm-runs")
    parser.add_argument("--table", type=Path, help="write the table of all runs in --out into this file")
    parser.add_argument("--table-only", type=Path, metavar="FILE", help="the same, and run nothing")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    asked = args.only.split(",") if args.only else list(SCENARIOS)
    if unknown := [name for name in asked if name not in SCENARIOS]:
        parser.error(f"there is no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.one:
        code = one(args.pairs[0], args.carriers, asked, args.out)
        sys.stdout.flush()
        os._exit(code)  # whatever threads the engine has left behind
    worst = 0
    for pair in [] if args.table_only else args.pairs or PAIRS:
        for carrier in args.carriers.split(","):
            names = [name for name in asked if carrier == "kvproto" or name in COMPARED]
            command = [sys.executable, "-m", "examples.vllm.run", pair, "--one", "--out", str(args.out)]
            if names:
                command += ["--carriers", carrier, "--only", ",".join(names)]
                worst = max(worst, subprocess.run(command, check=False).returncode)  # noqa: S603  # our own program
    if args.table or args.table_only:
        (args.table or args.table_only).write_text(table(args.out))
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
