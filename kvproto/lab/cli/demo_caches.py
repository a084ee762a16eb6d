"""Demo caches: `kvproto demo --model` of a family with several caches, one run or all pairs."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from itertools import product

from kvproto.arguments import only_without
from kvproto.lab.cli.demo_matrix import run_each, tell
from kvproto.lab.cli.demo_run import DTYPES, complete, rooms_of, shapes
from kvproto.lab.demo import caches_report
from kvproto.lab.demo.caches_conduct import conduct_caches
from kvproto.lab.demo.caches_job import CachesJob, CachesRun
from kvproto.lab.demo.caches_result import CachesResult
from kvproto.lab.demo.family import FAMILIES

#: options that mean nothing where the library's own cache says what there is
WITHOUT = (
    "--maps", "--digests", "--trace", "--passes", "--no-pages", "--warm", "--kv-heads",
    "--head-dim", "--layers", "--hidden",
)  # fmt: skip
#: ranks of either side in the matrix
RANKS = 1, 2, 4


def is_family(args: argparse.Namespace) -> bool:
    return args.model in FAMILIES


def carry(parser: argparse.ArgumentParser, args: argparse.Namespace, keys: str | None) -> int:
    """Carry out what is asked for; the parser's error for what means nothing here, or cannot run."""
    what = f"--model {args.model}"
    only_without(parser, args, what, *WITHOUT)
    if args.abort != "none":
        parser.error(f"--abort is not of {what}")
    if args.device != "cpu":
        parser.error(f"--device {args.device} is not of {what}: it computes on the CPU")
    complete(args)
    size, unit = args.ring
    try:
        job = CachesJob(args.model, *shapes(args), rooms_of(args), DTYPES[args.dtype], args.chunk, args.seed)
    except ValueError as error:
        parser.error(str(error))
    run = CachesRun(job, size * (unit or 1), bool(unit), args.transport, args.staging, args.grant_wait, args.slots,
                    args.window, keys=keys, limit_s=args.limit)  # fmt: skip
    if args.matrix:
        return matrix(run, as_text=not args.json)
    return tell(conduct_caches(run), caches_report.show, caches_report.as_json, as_text=not args.json)


def matrix(run: CachesRun, *, as_text: bool) -> int:
    """The run with 1, 2 and 4 ranks on either side; as JSON, one line a pair."""

    def of(p: int, d: int) -> CachesRun:
        job = run.job
        return replace(run, job=replace(job, prefill=replace(job.prefill, tp=p), decode=replace(job.decode, tp=d)))

    def row(name: str, result: CachesResult | str) -> str:
        return caches_report.matrix_row(f"{run.job.family} {name}", result)

    runs = {f"{p}->{d}": of(p, d) for p, d in product(RANKS, RANKS)}
    return run_each({name: partial(conduct_caches, each) for name, each in runs.items()}, row, caches_report.as_json,
                    "pairs", as_text=as_text)  # fmt: skip
