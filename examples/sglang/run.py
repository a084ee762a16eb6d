"""SGLang carried by kvproto, in the real engine: a prefill and a decode instance on the CPU, and what they do.

    python -m examples.sglang.run --table examples/results/sglang.json          # all: make engines-sglang
    python -m examples.sglang.run --pairs 2:1 --backends plain staging          # these rows anew, the others stay
    python -m examples.sglang.run --pairs 1:2 --scenarios seq killed
    python -m examples.sglang.run --pairs 2:1x2       # decode: two data-parallel ranks of one attention rank each
    python -m examples.sglang.run --pairs "2 stages:2" "2 stages of 2:1"    # pipeline stages, of two ranks each
    python -m examples.sglang.run --pairs "mla 1:2"   # DeepSeek-V3, whose latents every rank has
    python -m examples.sglang.run --pairs "hybrid 1:2" "mamba2 2:1"   # Qwen3.5 and Falcon-H1, with recurrent state
    python -m examples.sglang.run --pairs "eagle 2:1"                 # a Llama with an EAGLE head that drafts
    python -m examples.sglang.run --pairs "1:2 pages 16-32"           # tokens a page at prefill and at decode
    python -m examples.sglang.run --pairs "hosts 1:2"                 # on two hosts with a cable between them: as root
    python -m examples.sglang.run --pairs "mla 1:2" --backends mooncake   # SGLang's own alone, which does not stage it
    python -m examples.sglang.run --device cuda --gpus 2 --scale 8 ...   # on GPUs, as examples.sglang.on_gpus does

Every scenario (`examples.sglang.scenarios`) compares tokens with those of the whole model, and what both sides moved by
digests; after the last one each instance's cache has to be empty.  `kvproto` keeps digests and goes through all;
`plain` is the same without digests (of a model other than the dense one at its first pair alone), and `staging` is
SGLang's own staging over Mooncake: the two are compared, with the same prompts, one right after the other.  What SGLang
does not stage, its Mooncake carries page by page (`mooncake`). So every pair has SGLang's own beside it.  It may refuse
a pair, answer wrong or not at all: that is its row then, after a minute.

Rows go into the table as soon as they are made, in the place of those of the same pair, backend and scenario.  Exit
code 0: every row of kvproto's was as it must be.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

from examples.sglang import model
from examples.sglang.pair import BACKENDS, PAGES, Place, dtype_of, judge_of, kind_of
from examples.sglang.scenarios import ASKED, BRIEF, COMPARED, ENDED_EARLY, SCENARIOS, TIMED, Run
from examples.sglang.whole import Whole

Row = dict[str, Any]
Steps = tuple[Callable[[Run], None], ...]
INTRO = """\
# SGLang carried by kvproto: what came of it

Written by `python -m examples.sglang.run` (`make engines-sglang`) beside its JSON: real instances of SGLang 0.5.23 on a
CPU, prefill ranks : decode ranks (1x2: two data-parallel ranks of one attention rank each; 2 stages: two pipeline
stages of one rank each; 2 stages of 2: of two), on one machine (hosts: each side in a network namespace of its own,
with one cable between the two); a random Llama (data-parallel attention: Qwen3; mla: DeepSeek-V3, a latent a token;
hybrid: Qwen3.5, three of four layers gated delta nets; mamba2: Falcon-H1; windows: a Mellum without experts, of which
every other layer looks back 40 tokens; eagle: a Llama with a drawn EAGLE head that drafts a token at a time) of 4
layers and 4 KV heads in float32, 16 greedy tokens a prompt, pages of 16, prefill in chunks of 64 tokens. The judge is
the model in transformers; of eagle an engine that prefills and decodes, with the same head: it accepts as many drafts.
Carried by `kvproto` (with digests of all that is moved), by kvproto without them (`plain`, of each other model at one
pair), and by SGLang's own staging over Mooncake (`staging`) or its Mooncake page by page (`mooncake`), with the same
prompts. What each scenario does stands in [examples/sglang/scenarios.py](../sglang/scenarios.py). Times are those of
two cores that do other things, too: they tell orders of magnitude.

"""
#: the same, of rows made on GPUs
ON_GPUS = """\
# SGLang on GPUs, carried by kvproto: what came of it

Written by `python -m examples.sglang.on_gpus` (`make engines-gpu`) beside its JSON: real instances of SGLang 0.5.23
without its compiled kernels. With each pair stand its GPUs, prefill → decode, one for each rank, and of how many (two
where nothing is said): ranks on the second GPU are among them, and GPUs that ranks of both instances share. Ranks of
one instance that share a GPU have collectives over the host. A rank is a process, and its endpoint's loop has a
thread of its own. A random Llama (data-parallel attention: Qwen3) of 400 million weights in float32, or small: a
DeepSeek-V3 (mla), a Mellum without experts (windows), a Llama with an EAGLE head (eagle). A Qwen3.5 (hybrid) is in
bfloat16, and judged by one engine that prefills and decodes, as is eagle. Prompts are eight times as long as on a CPU,
forwards compute 512 tokens of them. While one pair plays, the processes of the others stand still; rows
without GPUs are of a run in which five played at once. Carried by `kvproto` (with digests), by kvproto without them
(`plain`), and by SGLang's own NIXL backend (`nixl`), with the same prompts.

"""
HEAD = (
    "| pair | carried by | scenario | tokens of the whole model "
    "| ms from the last chunk's KV to decode's taking it over: median, longest | as it must be | what else was seen |"
)
PAIRS = ["1:2", "2:1", "2:1x2", "1x2:2", "4:1x4", "mla 1:2", "mla 2:1", "mla 2:2", "mla 2 stages:1", "eagle 1:1",
         "eagle 2:1", "eagle 1:2", "eagle 2:2", "hybrid 1:2", "hybrid 2:1", "hybrid 2:2", "hybrid 2:1x2", "mamba2 1:2",
         "mamba2 2:1", "mamba2 2:2", "windows 1:2", "windows 2:1", "windows 2:2", "2 stages:1", "2 stages:2",
         "1:2 pages 1-1", "1:2 pages 16-32", "hosts 1:2"]  # fmt: skip
#: by model other than the dense one: the pair that is timed without digests
FIRST_PAIRS = {kind: pair for pair in reversed(PAIRS) if (kind := kind_of(pair)) != kind_of("1:2")}
#: those that SGLang stages, too: its own staging stands beside kvproto's
COMPARED_PAIRS = "1:2", "2:1", "hosts 1:2"
#: those on which its Mooncake, which carries pages and states one by one, goes through as much; on others `BRIEF`
PAGED_PAIRS = "2:1x2", "mla 1:2", "mla 2:1", "eagle 1:2", "hybrid 1:2", "mamba2 1:2", "windows 1:2"
#: by backend of kvproto's: scenarios, on those that are compared
PLAYED = {"kvproto": SCENARIOS, "plain": TIMED}
#: what has a column of its own, and how much is shown of a sentence
COLUMNS, SAID = ("pair", "gpus", "backend", "scenario", "tokens", "lag_ms", "good", "build"), 90


class Table:
    """The rows of all runs, in a file if there is one, into which several runs may write at a time."""

    def __init__(self, file: Path | None, intro: str = INTRO) -> None:
        self.file, self.intro = file, intro

    @staticmethod
    def _key(row: Row) -> tuple[str, str, str]:
        return row["pair"], row["backend"], row["scenario"]

    def keep(self, row: Row) -> None:
        """In the place of an older one; a row of what is run no more tells nothing of this build, and goes."""
        if self.file is None:
            return
        with self.file.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            kept = [each for each in json.loads(self.file.read_text() or "[]") if self.intro != INTRO or is_run(each)]
            rows = {self._key(each): each for each in [*kept, row]}
            ordered = sorted(rows.values(), key=lambda row: (row["pair"], list(BACKENDS).index(row["backend"])))
            self.file.write_text("[\n " + ",\n ".join(json.dumps(row) for row in ordered) + "\n]\n")
            body = [HEAD, "|---" * (HEAD.count("|") - 1) + "|", *map(line, ordered)]
            self.file.with_suffix(".md").write_text(self.intro + "\n".join(body) + "\n")


def part_of(pairs: Sequence[str], part: str) -> Sequence[str]:
    """Return the K-th of N parts of the pairs that follow one another, of `part` "K/N"."""
    at, count = map(int, part.split("/"))
    return pairs[len(pairs) * (at - 1) // count : len(pairs) * at // count]


def line(row: Row) -> str:
    """A row, for a reader."""
    lags = ", ".join(f"{lag:.0f}" for lag in row.get("lag_ms", ())) or "-"
    gpus = f" (GPU {row['gpus']})" if "gpus" in row else ""
    shown = {name: value for name, value in row.items() if name not in COLUMNS and value not in ("", [], {})}
    seen = "; ".join(f"{name.replace('_', ' ')}: {_short(value)}" for name, value in shown.items())
    names = f"{row['pair']}{gpus}", row["backend"], row["scenario"], row.get("tokens", "-").replace("/", " of "), lags
    return f"| {' | '.join(names)} | {'yes' if row['good'] else '**no**'} | {seen} |"


def _short(value: Any) -> str:
    text = json.dumps(value).strip('"{}[]').replace('"', "").replace("|", "/")
    return text if len(text) <= SAID else f"{text[:SAID]}..."


def backends_of(pair: str, asked: list[str]) -> list[str]:
    """Return the backends that carry this pair's KV; `asked`: empty means those of which there are rows."""
    plain = ["plain"] if FIRST_PAIRS.get(kind_of(pair), pair) == pair else []
    return asked or ["kvproto", *plain, "staging" if pair in COMPARED_PAIRS else "mooncake"]


def scenarios_of(pair: str, backend: str) -> tuple[str, ...]:
    """Return what this backend goes through with this pair."""
    if backend == "plain" and pair in {*PAIRS} - {*COMPARED_PAIRS}:
        return ASKED
    brief = backend == "mooncake" and pair not in PAGED_PAIRS
    return PLAYED.get(backend, BRIEF if brief else COMPARED)


def is_run(row: Row) -> bool:
    """Whether a run on a CPU makes this row, or its pair was named by hand."""
    pair, backend, scenario = row["pair"], row["backend"], row["scenario"]
    played = scenario in scenarios_of(pair, backend) or scenario not in SCENARIOS  # a pair's end has rows, too
    return pair not in PAIRS or (backend in backends_of(pair, []) and played)


def pages_of(pair: str) -> tuple[str, tuple[int, int]]:
    """Return the pair without its pages, and tokens a page at prefill, at decode."""
    name, _, sizes = pair.partition(" pages ")
    prefill, decode = map(int, sizes.split("-")) if sizes else PAGES
    return name, (prefill, decode)


def _made(asked: argparse.Namespace, top: Path, table: Table, stack: ExitStack) -> Iterator[Run]:
    """Make each pair that is asked for by each backend; its instances begin to start."""
    place = Place(asked.device, asked.gpus, asked.scale, asked.rounds, asked.coarse)
    judges: dict[str, Whole] = {}
    for pair in [*asked.pairs, *asked.ours]:
        kind, coarse = kind_of(pair), dtype_of(pair, place) != "float32"
        model.make(top / kind, kind, place.scale, place.device, coarse=coarse)
        if kind not in judges and (judge := judge_of(pair, top, place)) is not None:
            stack.callback(judge.close)
            judges[kind] = judge
        if pair in asked.ours:  # with no times to be compared
            place = place._replace(rounds=1)
        for backend in backends_of(pair, asked.backends) if pair in asked.pairs else ["kvproto"]:
            folder = top / f"{pair.replace(':', '-').replace(' ', '-')}-{backend}-{time.time_ns()}"
            folder.mkdir(parents=True)
            name, pages = pages_of(pair)
            run = Run(name, backend, folder, pages, table.keep, place, judges.get(kind))
            stack.callback(run.close)
            yield run


def main() -> int:
    """The runs that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="*", default=PAIRS, help="prefill:decode; each TP, TPxDP, or stages")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N parts of the pairs (default: all)")
    parser.add_argument("--ours", nargs="*", default=[], help="pairs of which kvproto alone carries the KV")
    parser.add_argument("--backends", nargs="+", default=[], choices=list(BACKENDS), help="default: by pair")
    parser.add_argument("--rounds", type=int, default=1, help="of the prompts that are asked one after another")
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS), choices=SCENARIOS)
    parser.add_argument("--table", type=Path, help="where the rows go, as JSON; beside it they are written as a page")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--gpus", type=int, default=0, help="how many GPUs instances share")
    parser.add_argument("--scale", type=int, default=1, help="how much longer prompts are; above 1 with a larger model")
    parser.add_argument("--ahead", type=int, default=0, help="pairs that start while an earlier one starts and runs")
    parser.add_argument("--coarse", action="store_true", help="hybrids in bfloat16, judged by one engine")
    parser.add_argument("--paused", action="store_true", help="none of those runs: one plays, the others stand still")
    parser.add_argument("--keep", type=Path, help="a folder for the model and the logs (default: a temporary one)")
    asked = parser.parse_args()
    asked.pairs = part_of(asked.pairs, asked.part)
    table, good = Table(asked.table, INTRO if asked.device == "cpu" else ON_GPUS), True
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        made, runs = deque[Run](), _made(asked, asked.keep or Path(temporary), table, stack)
        while True:
            # paused ones all begin before one plays: what starts beside it would take its cores
            made.extend(begun := list(islice(runs, 0 if asked.paused and made else asked.ahead + 1 - len(made))))
            if not made:
                break
            # judges compute when all stand still: idle schedulers take a core each
            steps: Steps = Run.begin, Run.stand_still, partial(Run.foresee, scenarios=asked.scenarios)
            for step, run in product(steps if asked.paused else (), begun):
                with suppress(*ENDED_EARLY):  # said when it plays
                    step(run)
            run = made.popleft()
            run.play([name for name in asked.scenarios if name in scenarios_of(run.label, run.backend)])
            good &= all(row["good"] for row in run.rows) or run.own
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
