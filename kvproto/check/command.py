"""`kvproto check`: search configurations; sit the exam; ask of every row what it is good for."""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from kvproto.check import gate, report
from kvproto.check.configs import CONFIGS, SUITES, named
from kvproto.check.search import Progress, Result, check, to_stderr
from kvproto.check.story import replay
from kvproto.console import FOUND, WELL, WRONG, complain, say

EPILOG = """\
A configuration is a small world: so many ranks, rooms and chunks, a network, and a budget of faults.  The search goes
through everything that can happen in it, with the ranks that run in production, and stops at the first broken property,
which it tells as a story by the shortest way.  Ctrl-C ends it with what was found so far.
"""
X = TypeVar("X")
Y = TypeVar("Y")


def main(argv: list[str]) -> int:
    """Exit code 0: everything holds (or every mutant was caught); 1: something was found; 2: unknown names."""
    args = _parser().parse_args(argv)
    if args.list:
        return _list()
    if args.replay:
        return _replay(args.replay)
    try:
        if args.mutants:
            return _mutants(args)
        if args.gate:
            return _gate(args)
        return _search(args)
    except KeyError as error:
        complain(str(error.args[0]))
        return WRONG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvproto check", description="Search every interleaving of a small system for a broken property.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="CONFIG", help="configurations or suites, or names of mutants")
    parser.add_argument("--list", action="store_true", help="what there is to search")
    parser.add_argument("--mutants", action="store_true", help="plant each hazard in turn: is it noticed?")
    parser.add_argument("--gate", action="store_true", help="drop each row, effect and guard in turn: is it noticed?")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="walk a recorded counterexample again")
    parser.add_argument("--json", action="store_true", help="one JSON document, for tools")
    parser.add_argument("--diagram", action="store_true", help="counterexamples as Mermaid sequence diagrams")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write counterexamples there, as JSONL")
    parser.add_argument("--limit", type=int, help="give up beyond so many states (default: the configuration's)")
    parser.add_argument("--memory", type=int, default=12_000, metavar="MIB", help="give up there (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="write the numbers of states there, as TOML")
    parser.add_argument("--table", type=Path, metavar="FILE", help="with --mutants: write the kill table there")
    parser.add_argument("--quiet", action="store_true", help="no progress line")
    return parser


def _list() -> int:
    for name, names in SUITES.items():
        say(f"{name:<18} {len(names)} configurations: {', '.join(names)}")
    say()
    for name, config in CONFIGS.items():
        say(f"{name:<18} {config.prefills}Px{config.decodes}D  {config.about}")
    return WELL


def spread(work: Callable[[X], Y], items: Sequence[X], jobs: int) -> Iterable[Y]:
    """Do the work, in order; on several processes if `jobs` asks for them."""
    if jobs <= 1 or len(items) <= 1:
        yield from map(work, items)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, items)


# ------------------------------------------------------------------------------------------------- search
def _run(asked: tuple[str, int | None, int, bool]) -> Result:
    name, limit, memory, shown = asked
    config = CONFIGS[name] if limit is None else replace(CONFIGS[name], limit=limit)
    progress: Callable[[Progress], None] | None = to_stderr if shown else None
    return check(name, config, memory=memory, report=progress)


def _search(args: Any) -> int:
    names = [name for asked in args.names or ["smoke"] for name in named(asked)]
    shown = not args.json and not args.quiet and args.jobs == 1
    asked = [(name, args.limit, args.memory // args.jobs, shown) for name in names]
    results = []
    for result in spread(_run, asked, args.jobs):
        results.append(result)
        if not args.json:
            _tell(result, args)
        if args.save and result.violations:
            args.save.mkdir(parents=True, exist_ok=True)
            (args.save / f"{result.name}.jsonl").write_text(result.violations[0].jsonl())
        if result.ended == "interrupted":
            break
    if args.counts:
        args.counts.write_text(report.counts(results))
    if args.json:
        say(msgspec.json.encode(report.totals(results)).decode())
    elif len(results) > 1:
        done = sum(result.states for result in results)
        say(f"{len(results)} configurations, {done:,} states, {sum(r.transitions for r in results):,} transitions")
    return FOUND if any(result.violations for result in results) else WELL


def _tell(result: Result, args: Any) -> None:
    end = "" if args.quiet else "\r"
    say(
        f"{end}{result.name:<20} {result.states:>11,} states {result.transitions:>12,} transitions  "
        f"depth {result.depth:>3}  {result.seconds:>7.1f} s  {result.states_per_s:>7,}/s  {result.ended}"
    )
    for tale in result.violations:
        say(tale.mermaid() if args.diagram else tale.story())


# --------------------------------------------------------------------------------------- mutants, gate, replay
def _mutants(args: Any) -> int:
    kills = []
    for kill in spread(report.sit, report.questions(args.names), args.jobs):
        kills.append(kill)
        if not args.json:
            say(report.line(kill))
    if args.json:
        say(msgspec.json.encode(kills).decode())
    if args.table:
        args.table.write_text(report.kill_table(kills))
    return WELL if all(kill.caught for kill in kills) else FOUND


def _gate(args: Any) -> int:
    found = []
    for outcome in spread(gate.ask, gate.questions(args.names), args.jobs):
        found.append(outcome)
        if not args.json and not outcome.caught:
            say(gate.line(outcome))
    if args.json:
        say(msgspec.json.encode(found).decode())
    else:
        say(gate.summary(found))
    return FOUND if any(gate.unexplained(outcome) for outcome in found) else WELL


def _replay(path: Path) -> int:
    try:
        once, now = replay(path.read_text())
    except LookupError as gone:
        say(f"{path.name}: cannot happen any more: {gone.args[0]}")
        return WELL
    say(f"{path.name}: {once}: {'still broken' if now else 'holds'}")
    return FOUND if now else WELL
