"""`kvproto demo`: the command line.

Exit codes: 0 if everything was right, 1 if something was wrong or a process failed; the others are those of every
command (`ending`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from kvproto.arguments import output_folder, pages, positive, real, whole
from kvproto.cli.ending import FOUND, WELL, ended
from kvproto.command_line import CommandLine
from kvproto.errors import ArgumentError
from kvproto.io.control.keys import make_pair
from kvproto.lab.cli.demo_run import DEFAULTS, DTYPES, make_run, refuse
from kvproto.lab.demo.conduct import DemoResult, conduct
from kvproto.lab.demo.family import FAMILIES
from kvproto.lab.demo.matrix import CASES, pairs
from kvproto.lab.demo.report import ProgressBars, as_json, matrix_row, show
from kvproto.lab.demo.run import Abort, Carrier, Route, Run, Staging
from kvproto.lab.process_group import RankError
from kvproto.layout.sharding import MAX_RANKS

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
RANKS, PLACES, SECONDS, LENGTH = whole(1, MAX_RANKS), whole(0, 1 << 28), real(1e-3, 1e6), real(1e-9, 1e12)


def ring(text: str) -> tuple[float, int]:
    """A number of chunks (`1.5`), or bytes with a unit (`256KiB`): (number, unit), unit 0 for chunks."""
    for name, unit in sorted(UNITS.items(), key=lambda item: -len(item[0])):
        if text.endswith(name):
            return LENGTH(text.removesuffix(name)), unit
    return LENGTH(text), 0


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Names both defaults of what depends on the device."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.dest not in DEFAULTS:
            return super()._get_help_string(action)
        cpu, cuda = (str(each[0]) if isinstance(each, tuple) else str(each) for each in DEFAULTS[action.dest])
        return f"{action.help} (default: {cpu if cpu == cuda else f'{cpu}; cuda: {cuda}'})"


def parser() -> argparse.ArgumentParser:
    p = CommandLine(
        prog="kvproto demo",
        description="Carry the KV cache of a real transformer between two groups of processes of different tensor "
        "parallelism, and compare every bit.",
        epilog="Where two defaults are given, the second is that of --device cuda: a model of real proportions, its "
        "ranks on different GPUs, the first room of each pass not timed.",
        formatter_class=_Formatter,
    )
    shape = p.add_argument_group("the two engines")
    shape.add_argument("--prefill-tp", type=RANKS, help="ranks that share the heads on the prefill side")
    shape.add_argument("--decode-tp", type=RANKS, help="the same on the decode side")
    shape.add_argument("--prefill-pp", type=RANKS, default=1, help="pipeline stages of the prefill side")
    shape.add_argument("--decode-pp", type=RANKS, default=1, help="the same of the decode side")
    shape.add_argument("--page-size", type=pages, default="16", metavar="N|P:D", help="tokens a page")
    shape.add_argument("--order", default="NHD:NHD", metavar="O|P:D", help="order inside a page, NHD or HND")
    shape.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where model and KV are")
    model = p.add_argument_group("the model")
    model.add_argument("--model", choices=["llama", "qwen3", *FAMILIES], default="llama",
                       help="its family, with random weights; from qwen3-next on with more than K and V")  # fmt: skip
    model.add_argument("--dtype", choices=list(DTYPES), default="bf16", help="of the KV")
    model.add_argument("--kv-heads", type=positive, help="KV heads")
    model.add_argument("--head-dim", type=positive, help="elements a head")
    model.add_argument("--layers", type=positive, help="layers")
    model.add_argument("--hidden", type=PLACES, help="elements of a hidden state; 0: as few as the heads allow")
    model.add_argument("--seed", type=PLACES, default=0, help="of weights, prompts, lengths and pages")
    work = p.add_argument_group("the rooms")
    work.add_argument("--rooms", type=positive, help="requests at once")
    work.add_argument("--tokens", type=positive, help="of the longest prompt")
    work.add_argument("--least", type=real(0, 1), metavar="SHARE", help="of the shortest prompt, by the longest")
    work.add_argument("--new", type=positive, help="tokens to generate a room")
    work.add_argument("--prefix", type=PLACES, default=0, help="tokens that D has already, in every second room")
    work.add_argument("--full-prefix", action="store_true", help="D has all of the last room")
    work.add_argument("--chunk", type=positive, help="tokens a forward of the chunked prefill")
    work.add_argument("--abort", choices=get_args(Abort), default="none", help="who gives up every third room")
    carry = p.add_argument_group("the transfer")
    carry.add_argument("--transport", choices=get_args(Carrier), default="nixl", help="what moves the bytes")
    carry.add_argument("--ring", type=ring, metavar="SIZE", help="of a D rank, in chunks, or as 256KiB, 1GiB")
    carry.add_argument("--slots", type=positive, help="staging slots of a P rank")
    carry.add_argument("--window", type=positive, help="chunks of a room that are asked for at a time")
    carry.add_argument("--grant-wait", "--patience", type=SECONDS, help="seconds that ready KV waits for the ring")
    carry.add_argument("--passes", metavar="LIST", help=f"how the rooms are carried: of {', '.join(get_args(Route))}")
    carry.add_argument("--no-pages", "--no-slices", action="store_true", help="the live pass alone")
    carry.add_argument("--warm", action=argparse.BooleanOptionalAction, help="one more room, first and not timed")
    carry.add_argument("--staging", choices=get_args(Staging), default="device", help="where ring and slots are")
    carry.add_argument("--maps", action="store_true", help="no ring: P's kernels store into D's pages (GPUs of a host)")
    carry.add_argument("--digests", action="store_true", help="compare digests of what both sides have moved")
    carry.add_argument("--curve", action="store_true", help="encrypt the control plane, with keys made for this run")
    carry.add_argument("--limit", type=SECONDS, metavar="S", help="seconds that a phase may take")
    p.add_argument("--trace", type=output_folder, metavar="DIR", help="write each rank's trace into this directory")
    p.add_argument("--json", action="store_true", help="print one JSON object, and no table")
    p.add_argument("--matrix", action="store_true", help="run the matrix of shapes, dtypes, pages and prefixes instead")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """`kvproto demo`; the exit codes are above."""
    p = parser()
    args = p.parse_args(argv)
    if args.model in FAMILIES:
        refuse(p, args)
    if args.device == "cuda":
        need_gpu()
    if args.maps and (args.device, args.transport) != ("cuda", "nixl"):
        p.error("--maps: kernels store into a peer's pages on GPUs, over NIXL: with --device cuda --transport nixl")
    with TemporaryDirectory() as folder:
        keys = str(make_pair(Path(folder), "demo")[0]) if args.curve else None
        return _main(p, args, keys)


def need_gpu() -> None:
    """ArgumentError, at once: --device cuda, and torch sees no GPU here."""
    import torch

    if not torch.cuda.is_available():
        raise ArgumentError("--device cuda: there is no GPU that torch can use here: kvproto doctor says why")


def _main(p: argparse.ArgumentParser, args: argparse.Namespace, keys: str | None) -> int:
    try:
        run = replace(make_run(args), keys=keys)
    except ValueError as error:
        p.error(str(error))
    if args.matrix:
        plain = {name: replace(each, keys=keys) if keys else each for name, each in CASES.items()}
        cases = pairs(run) if args.model in FAMILIES else plain
        return _guarded(lambda: matrix(cases, as_text=not args.json))
    return _guarded(lambda: one(run, as_text=not args.json))


def one(run: Run, *, as_text: bool) -> int:
    """One run, shown while it goes on and told at the end."""
    with ProgressBars(run, shown=as_text) as bars:
        result = conduct(run, bars)
    if as_text:
        show(result)
    else:
        print(json.dumps(as_json(result)))
    return WELL if result.ok else FOUND


def matrix(runs: Mapping[str, Run], *, as_text: bool) -> int:
    """Every case of a matrix, a line each; one that fails ends no other, and its sentence is the result."""
    bad = 0
    for name, run in runs.items():
        try:
            result: DemoResult | str = conduct(run)
        except (RankError, TimeoutError) as error:
            result = str(error)
        bad += isinstance(result, str) or not result.ok
        if as_text:
            print(matrix_row(name, result), flush=True)
        else:
            told = {"ok": False, "wrong": [result]} if isinstance(result, str) else as_json(result)
            print(json.dumps({"case": name, **told}), flush=True)
    if as_text:
        print(f"{len(runs) - bad} of {len(runs)} cases right")
    return FOUND if bad else WELL


def _guarded(action: Callable[[], int]) -> int:
    try:
        return action()
    except (RankError, TimeoutError) as error:
        print(f"kvproto demo: {error}", file=sys.stderr)
        return FOUND


if __name__ == "__main__":
    sys.exit(ended("kvproto demo", main))
