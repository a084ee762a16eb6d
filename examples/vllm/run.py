"""Scenarios in the real engine, and the table of what came of them.

    python -m examples.vllm.run                                     # all pairs: make engines-vllm
    python -m examples.vllm.run 1-2 2-1                             # prefill ranks - decode ranks
    python -m examples.vllm.run 1+2-2                               # two prefill instances, of 1 and of 2 ranks
    python -m examples.vllm.run "2 stages-1"                        # pipeline stages of one rank each
    python -m examples.vllm.run 2-1x2                               # decode: two data-parallel ranks of one rank each
    python -m examples.vllm.run "hybrid 1-2"                        # of a model with gated delta nets
    python -m examples.vllm.run "windows 1-2"                       # of a model with sliding windows
    python -m examples.vllm.run "hosts 1-2"                         # on two hosts with a cable between them: as root
    python -m examples.vllm.run 1-2 --only sequential,killed        # their rows are made anew, the others stay
    python -m examples.vllm.run --missing                           # what has no row yet, or one that is not good
    python -m examples.vllm.run --table-only FILE                   # of what was run before

Each pair is a process of its own for each carrier, forked of one that has imported vLLM: kvproto through all scenarios,
with digests; kvproto without them (of a model other than the dense one at its first pair alone) and vLLM's own
NixlConnector through some that can be compared, with the same prompts, right after.  Rows are kept in the folder
`--out` as soon as they are made, so a run that was interrupted goes on with `--missing`.

Exit code 0: every row of kvproto was as it must be: each answer the whole model's, each digest and each block the same
at both ends, each room ended as the scenario has it, each block given back, and the control was noticed.  What becomes
of vLLM's own connector, which may refuse a pair or answer wrong, is its row (`examples.vllm.own`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from examples.engine_runs.build import build
from examples.engine_runs.hosts import APART, LEAST
from examples.vllm import model, own
from examples.vllm.judging import Records, Row, table
from examples.vllm.pairs import CARRIERS, PAIRS, kind_of, wanted

OUT = Path(".engines/vllm-runs")
INTRO = """\
# vLLM carried by kvproto: what came of it

Written by `python -m examples.vllm.run` (`make engines-vllm`): real instances of vLLM on a CPU, prefill ranks - decode
ranks, on one machine; a random Llama of 4 layers and 4 KV heads in float32, 24 greedy tokens a prompt, blocks of 32,
prefill in chunks of 64 tokens; in rows of a hybrid a Qwen3-Next in bfloat16, three of whose layers are gated delta
nets, whose answer may leave the whole model's where another token is as likely (a tie: within .13 in log probability,
which two shards without any transfer move by up to .06), and in rows of alternating one of which only every other layer
is such a net; in rows of windows a Gemma 3 in float32, of whose six layers four look back over 48 tokens (their blocks
are not compared, their digests are); in rows of sinks a gpt-oss in float32, every other of whose four layers does; in
rows of latents a DeepSeek-V3 in float32 without experts (MLA); in rows of drafted the Llama with itself as its draft,
of eagle with a drawn EAGLE head of two KV heads. In rows of stages an instance has pipeline stages of one rank each;
1x2 are two data-parallel ranks of one rank each, which get requests in turn; in rows of hosts each side is in a network
namespace of its own, with one cable between the two (the Llama, TCP alone). Carried by `kvproto` (with digests and
checksums of all that is moved; by the ring, unless both sides are cut alike), by kvproto without them, by the route
that it chooses (`plain`, of each other model at one pair; the posts tell which), and by vLLM's own NixlConnector
(`nixl`), one right after the other. Where that one refuses a pair, ends or does not answer, its rows say so, with the
first error that its processes wrote. The answers are compared with the model's in one process; the digests of every
(chunk, layer, head) that was gathered with those of what was scattered; the blocks that lie in the decode instance's
cache with those in the prefill instance's, whatever way they came. What each scenario does stands in
[examples/vllm/scenarios.py](../vllm/scenarios.py), what a row has to fulfil in
[examples/vllm/judging.py](../vllm/judging.py). Outcomes are counted a rank. Times are those of two cores that do other
things, too: they tell orders of magnitude.

"""
#: seconds for a room to be fetched, and to be awaited: a forward of ranks that spin for one another took 5 s
TTL, WAIT = 10.0, 15.0
#: seconds that a scenario may take, beyond which it has failed; an instance that is replaced may start for minutes
LIMIT = 1200.0


#: of vLLM's Prometheus endpoint
POSTED = {"vllm:nixl_num_descriptors_count": "posts", "vllm:nixl_num_descriptors_sum": "descriptors"}


def judged(found: Any, records: Records, posts: Counter[str], *, back: bool, **names: Any) -> Row:
    """The row of a scenario; `posts`: those of vLLM's own connector; `back`: whether all blocks came back."""
    seen = records.judge(killed=found.killed)
    fits = Counter(want.fits(got) for got, want in zip(found.got, found.want, strict=True))
    equal, ties, asked = fits["equal"], fits["tie"], len(found.want)
    wrong = [*seen.wrong, *found.faults]
    if not back:
        wrong.append("blocks are held, or it did not end")
    if found.control and (equal or 2 * fits["other"] < asked):
        wrong.append("the control was not noticed")
    if not found.control and equal + ties < asked:
        wrong.append("other tokens than the whole model's")
    if (found.computed or 0) > 1:
        wrong.append(f"decode has computed {found.computed} tokens of a prompt")
    if other := sorted({name.split()[1] for name in seen.outcomes} - set(found.causes)):
        wrong.append(f"rooms ended as {', '.join(other)}")
    lags = [statistics.median(found.lags), max(found.lags)] if found.lags else []
    note = "; ".join(filter(None, (found.note, "the tokens must differ" * found.control)))
    return Row(
        **names, equal=equal, ties=ties, asked=asked, computed=found.computed, back=back, wrong=wrong, lags=lags,
        outcomes=dict(seen.outcomes), digests=seen.digests, sums=seen.sums, posts=dict(seen.posts or posts), note=note,
        build=build(),
    )  # fmt: skip


async def play(setting: Any, pair: str, carrier: str, names: list[str], rows: Rows, say: Any) -> None:
    """One scenario after the other; each row is kept at once."""
    from examples.vllm.killing import KILLING, OF_TWO
    from examples.vllm.scenarios import SCENARIOS
    from examples.vllm.setting import Found

    records = Records(setting.out)
    for instance in setting.instances:
        await setting.warm(instance)
    say(own.THERE)
    for name in names:
        say(f"{pair} {carrier} {name} ...")
        begun, before, crossed = time.perf_counter(), posted(), setting.crossed() if setting.crossed else 0
        limit, free_s = LIMIT, 90.0
        if carrier == own.OWN:
            limit, free_s = own.REPLACES_S if name in KILLING | OF_TWO else own.ENDS_S, own.FREE_S
        try:
            found, back = await asyncio.wait_for((SCENARIOS | OF_TWO)[name](setting), limit), True
            for instance in setting.instances:
                await instance.free(free_s)
        except Exception as error:  # noqa: BLE001  # a scenario that fails is a row that says so
            traceback.print_exc()
            found, back = Found([], [], note=f"{type(error).__name__}: {str(error)[:120]}"), False
        if setting.crossed and found.got:
            found = through(found, setting.crossed() - crossed)
        seconds = round(time.perf_counter() - begun, 1)
        names_of = {"pair": pair, "carrier": carrier, "scenario": name, "seconds": seconds}
        row = judged(found, records, posted() - before, back=back, **names_of)
        rows.keep(row)
        say(row.line(), f"({seconds:.0f} s)")
        if carrier == own.OWN and not back:
            break  # what comes next would be of instances that do not answer, and take its whole limit


def through(found: Any, count: int) -> Any:
    """Say how much went through the cable between two hosts; without KV something is wrong."""
    note = "; ".join(filter(None, (found.note, f"{count / 1e6:.1f} MB through the cable")))
    faults = found.faults + (("no KV went through the cable",) if count < LEAST else ())
    return msgspec.structs.replace(found, note=note, faults=faults)


class Rows:
    """The rows of one pair and carrier, in a file."""

    def __init__(self, out: Path, pair: str, carrier: str) -> None:
        self.file, self.carrier = out / f"{pair}-{carrier}.json", carrier
        made = msgspec.json.decode(self.file.read_bytes(), type=list[Row]) if self.file.exists() else []
        self.rows = {row.scenario: row for row in made}

    def keep(self, row: Row) -> None:
        """In the place of an older one."""
        self.rows[row.scenario] = row
        self._write()

    def drop(self, names: list[str]) -> None:
        """Forget what older runs have made of these."""
        self.rows = {name: row for name, row in self.rows.items() if name not in names}
        self._write()

    def _write(self) -> None:
        self.file.write_bytes(msgspec.json.encode(list(self.rows.values())))

    def lack(self, names: list[str]) -> list[str]:
        """Return those without a row, or without a good one; vLLM's own connector's rows may be bad."""
        if self.carrier == own.OWN:
            return [name for name in names if name not in self.rows]
        return [name for name in names if name not in self.rows or not self.rows[name].good]


def one(pair: str, carrier: str, names: list[str], out: Path) -> int:
    """A pair of instances of one carrier, in this process; the exit code."""
    with ExitStack() as stack:
        return _one(pair, carrier, names, out, stack)


def _one(pair: str, carrier: str, names: list[str], out: Path, stack: ExitStack) -> int:
    from examples.engine_runs.hosts import Hosts
    from examples.vllm.instances import Carrier, Cut, Instance
    from examples.vllm.setting import Setting

    carrier_: Carrier = msgspec.convert(carrier, Carrier)
    kind, ranks = kind_of(pair)
    folder, place = out / ("model" if kind == "dense" else kind), out / f"{pair}-{carrier}"
    place.mkdir(parents=True, exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    begun, (ours, theirs) = time.perf_counter(), ranks.split("-")
    route = "staged" if carrier == "kvproto" and {*ours.split("+")} != {theirs} else "cost"

    def say(*words: object) -> None:
        print(f"{time.perf_counter() - begun:7.1f}", *words, flush=True)

    keys = Path(stack.enter_context(TemporaryDirectory()))
    hosts = stack.enter_context(Hosts(keys)) if pair.startswith(APART) else None

    def make(name: str, cut: Cut) -> Instance:
        host = hosts.of[name[0]] if hosts else None
        return Instance(name, cut, folder, place, carrier_, ttl=TTL, wait=WAIT, route=route, kind=kind, host=host)

    model.make(folder, kind)
    prompts = model.prompts()
    answers = model.answers(folder, prompts, kind)
    say(own.ANSWERED)
    prefills = list[Instance]()
    with ExitStack() as unless_all_start:
        for n, said in enumerate(ours.split("+"), 1):
            prefills.append(make(f"P{n if n > 1 else ''}", Cut.of(said)))
            unless_all_start.callback(prefills[-1].close)
        say("prefill is there")
        decode = make("D", Cut.of(theirs))
        say("decode is there")
        unless_all_start.pop_all()
    setting = Setting(
        prefills, decode, prompts, answers, place, TTL, WAIT, lambda killed: make(killed.name, killed.cut),
        hosts.crossed if hosts else None,
    )  # fmt: skip
    rows = Rows(out, pair, carrier)
    try:
        asyncio.run(play(setting, pair, carrier, names, rows, say))
        told = {name: count for name, count in counters().items() if name.startswith("vllm:kvproto_")}
        say("vLLM's own counters:", {name: count for name, count in told.items() if name.endswith("_total")})
    finally:
        for instance in setting.instances:  # how vLLM's own ends is nobody's question
            instance.kill() if carrier == own.OWN else instance.close()
    return 1 if rows.lack(names) else 0


def in_a_process(pair: str, names: list[str], rows: Rows, out: Path) -> int:
    """Run scenarios by the carrier of these rows; return the exit code: 0 for vLLM's own."""
    play = partial(one, pair, rows.carrier, names, out)
    if rows.carrier == own.OWN:
        rows.drop(names)
        for row in own.run(play, pair, names, out):
            rows.keep(row)
        return 0
    process = own.FORKING.Process(target=own.ended, args=(play,))
    process.start()
    process.join()
    return process.exitcode or 0


def counters() -> dict[str, float]:
    """Sum vLLM's Prometheus counts over the data-parallel ranks of the instance that was made last."""
    from prometheus_client import REGISTRY

    found: dict[str, float] = {}
    for metric in REGISTRY.collect():
        for each in metric.samples:  # one a data-parallel rank
            found[each.name] = found.get(each.name, 0.0) + each.value
    return found


def posted() -> Counter[str]:
    """Return what NixlConnector has posted there so far, and of how many descriptors; empty: nothing."""
    return Counter({POSTED[name]: int(value) for name, value in counters().items() if name in POSTED})


def write_table(out: Path, file: Path) -> None:
    """Write all that was run beside what is there, and the rows as JSON, which `examples.engine_runs.table` reads."""
    kept = file.with_suffix(".json")
    files = [each for each in (kept, *out.glob("*-*-*.json")) if each.exists()]
    found = [row for each in files for row in msgspec.json.decode(each.read_bytes(), type=list[Row])]
    # of a pair that is run no more, or not through this, an older run's row tells nothing of this build
    found = [row for row in found if row.pair not in PAIRS or row.scenario in wanted(row.pair, row.carrier, [])]
    last = {(row.pair, row.carrier, row.scenario): row for row in found}
    order = [*PAIRS, *sorted({row.pair for row in found} - {*PAIRS})]
    rows = sorted(last.values(), key=lambda row: (order.index(row.pair), CARRIERS.index(row.carrier)))
    file.write_text(INTRO + table(rows))
    lines = [msgspec.json.encode(row).decode() for row in rows]
    kept.write_text("[\n " + ",\n ".join(lines) + "\n]\n")


def main() -> int:
    """The exit code."""
    from examples.vllm.instances import prepare
    from examples.vllm.killing import OF_TWO
    from examples.vllm.scenarios import SCENARIOS

    parser = argparse.ArgumentParser(description="scenarios in real instances of vLLM")
    parser.add_argument("pairs", nargs="*", metavar="P-D", help="ranks of the prefill and of the decode instance: 1-2")
    parser.add_argument("--only", default="", help=f"of {', '.join([*SCENARIOS, *OF_TWO])}")
    parser.add_argument("--missing", action="store_true", help="only what has no good row yet")
    parser.add_argument("--carriers", default=",".join(CARRIERS), help="kvproto, plain (no digests), nixl (vLLM's own)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where rows and records are kept ({OUT})")
    parser.add_argument("--table", type=Path, help="write the table of all runs in --out into this file")
    parser.add_argument("--table-only", type=Path, metavar="FILE", help="the same, and run nothing")
    args = parser.parse_args()
    asked = args.only.split(",") if args.only else []
    if unknown := [name for name in asked if name not in SCENARIOS | OF_TWO]:
        parser.error(f"there is no scenario {unknown[0]!r}; there are {', '.join([*SCENARIOS, *OF_TWO])}")
    args.out.mkdir(parents=True, exist_ok=True)
    worst = 0
    if not args.table_only:
        prepare()
        gc.freeze()  # no fork looks again for garbage in what was imported
    for pair in [] if args.table_only else args.pairs or PAIRS:
        for carrier in args.carriers.split(","):
            names, rows = wanted(pair, carrier, asked), Rows(args.out, pair, carrier)
            if names := rows.lack(names) if args.missing else names:
                worst = max(worst, in_a_process(pair, names, rows, args.out))
                if args.table:
                    write_table(args.out, args.table)
    if args.table or args.table_only:
        write_table(args.out, args.table or args.table_only)
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
