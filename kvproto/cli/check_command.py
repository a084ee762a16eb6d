"""`kvproto check`: search configurations; sit the exam; ask of every row what it is good for."""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.check import deletion_mutants, report
from kvproto.check.configs import CONFIGS, SUITES, named
from kvproto.check.parallel_search import spread
from kvproto.check.search import MEGABYTE, Progress, Result, check, to_stderr
from kvproto.check.search_coverage import Covered
from kvproto.check.story import replay
from kvproto.cli.console import FOUND, WELL, WRONG, complain, say
from kvproto.trace.coverage import Collector, save, undump

EPILOG = """\
A configuration is a small world: so many ranks, rooms and chunks, a network, and a budget of faults.  The search goes
through everything that can happen in it, with the ranks that run in production, and stops at the first broken property,
which it tells as a story by the shortest way.  Ctrl-C ends it with what was found so far.

examples:
  kvproto check                              the smallest world, in no time
  kvproto check quick                        ten small ones: after every change of a row
  kvproto check small --counts spec/counts.toml    all small ones, and how much there is in each
  kvproto check standard --jobs 2            everything that a release has to pass; about half an hour
  kvproto check abort drop --json            for tools: states, transitions, states_per_s, violations
  kvproto check --mutants                    the exam: is each planted hazard noticed, and by which property?
  kvproto check --gate decode_grant --jobs 2 of one table's rows, effects and guards: which is missed by nobody?
  kvproto check abort --save spec/counterexamples    keep what was found; kvproto replay FILE steps through

exit code: 0 all holds (all caught); 1 something was found; 2 no such name; 3 not all was searched
docs/checker.md says what a world leaves out, docs/change.md how a change of the protocol goes.
"""
UNFINISHED = 3
WHY = {
    "limit": "not all of it: there are more states than its limit; --limit raises it",
    "memory": "not all of it: the memory that it may take is full; --memory raises it",
    "interrupted": "not all of it: nothing is broken as far as it came",
}


def main(argv: list[str]) -> int:
    """`kvproto check`; the exit codes are at the end of its help."""
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
    parser.add_argument(
        "--memory", type=int, default=plenty(), metavar="MIB",
        help="give up when all processes take so much together (default: 3/4 of the machine's, %(default)s)",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="bring the numbers of states in it up to date")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write what was covered, for `kvproto coverage`")
    parser.add_argument("--table", type=Path, metavar="FILE", help="with --mutants: write the kill table there")
    parser.add_argument("--quiet", action="store_true", help="no progress line")
    return parser


def _list() -> int:
    for suite, names in SUITES.items():
        say(f"{suite:<10} a suite of {len(names)}")
    say()
    for name, config in CONFIGS.items():
        suites = ", ".join(suite for suite, names in SUITES.items() if name in names)
        say(f"{name:<26} {config.prefills}Px{config.decodes}D  {config.about or 'see docs/checker.md'}  ({suites})")
    return WELL


def plenty() -> int:
    """Three quarters of this machine's memory, in MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEGABYTE * 3 // 4


# ------------------------------------------------------------------------------------------------- search
def _run(asked: tuple[str, int | None, int, bool, bool]) -> Result:
    name, limit, memory, shown, counted = asked
    config = CONFIGS[name] if limit is None else replace(CONFIGS[name], limit=limit)
    progress: Callable[[Progress], None] | None = to_stderr if shown else None
    with Covered().installed() if counted else nullcontext() as counts:
        result = check(name, config, memory=memory, report=progress)
    result.coverage = counts.dump() if counts is not None else None
    return result


def _search(args: Any) -> int:
    names = [name for asked in args.names or ["smoke"] for name in named(asked)]
    shown = not args.quiet and args.jobs == 1 and (not args.json or sys.stderr.isatty())
    asked = [(name, args.limit, args.memory // args.jobs, shown, args.rows is not None) for name in names]
    results: list[Result] = []
    try:
        for result in spread(_run, asked, args.jobs):
            results.append(result)
            if not args.json:
                _tell(result, args)
            if args.save and result.violations:
                args.save.mkdir(parents=True, exist_ok=True)
                (args.save / f"{result.name}.jsonl").write_text(result.violations[0].jsonl())
            if result.ended == "interrupted" and args.jobs == 1:
                break
    except KeyboardInterrupt:
        complain(f"interrupted: {len(results)} of {len(names)} configurations are done")
    results.sort(key=lambda result: names.index(result.name))
    whole = len(results) == len(names) and all(result.ended == "exhausted" for result in results)
    _write(results, args, whole=whole)
    if args.json:
        say(msgspec.json.encode(report.totals(results)).decode())
    elif len(names) > 1:
        say(report.sum_up(results, len(names)))
    if any(result.violations for result in results):
        return FOUND
    return WELL if whole else UNFINISHED


def _write(results: Sequence[Result], args: Any, *, whole: bool) -> None:
    if args.counts and whole:
        known = tomllib.loads(args.counts.read_text()) if args.counts.exists() else {}
        args.counts.write_text(report.counts(results, known))
    elif args.counts:
        complain(f"{args.counts} is left as it was: not all was searched to its end")
    if args.rows:
        covered = Collector()
        for result in results:
            covered.add(undump(result.coverage or covered.dump()))
        save({"": covered}, args.rows)


def _tell(result: Result, args: Any) -> None:
    end = "" if args.quiet else "\r"
    say(
        f"{end}{result.name:<20} {result.states:>11,} states {result.transitions:>12,} transitions  "
        f"depth {result.depth:>3}  {result.seconds:>7.1f} s  {result.states_per_s:>7,}/s  {result.ended}"
    )
    if result.ended in WHY:
        say("     " + WHY[result.ended])
    for tale in result.violations:
        say(tale.mermaid() if args.diagram else tale.story())


# --------------------------------------------------------------------------------------- mutants, gate, replay
def _mutants(args: Any) -> int:
    kills: list[report.Kill] = []
    asked = report.questions(args.names)
    try:
        for kill in spread(report.sit, asked, args.jobs):
            kills.append(kill)
            if not args.json:
                say(report.line(kill))
    except KeyboardInterrupt:
        complain(f"interrupted: {len(kills)} of {len(asked)} questions are answered")
    kills.sort(key=lambda kill: asked.index(kill.name))
    if args.json:
        say(msgspec.json.encode(kills).decode())
    else:
        say(f"{sum(kill.caught for kill in kills)} of {len(asked)} caught")
    if len(kills) < len(asked):
        return UNFINISHED
    if args.table:
        args.table.write_text(report.kill_table(kills))
    return WELL if all(kill.caught for kill in kills) else FOUND


def _gate(args: Any) -> int:
    found: list[deletion_mutants.Outcome] = []
    asked = deletion_mutants.questions(args.names)
    shown = not args.quiet and sys.stderr.isatty()
    try:
        for outcome in spread(deletion_mutants.ask, asked, args.jobs):
            found.append(outcome)
            if not args.json and not outcome.caught:
                say(deletion_mutants.line(outcome))
            if shown:
                sys.stderr.write(f"\r{len(found):>6} of {len(asked)} ")
    except KeyboardInterrupt:
        complain(f"interrupted: {len(found)} of {len(asked)} questions are answered")
    if args.json:
        say(msgspec.json.encode(found).decode())
    else:
        say(deletion_mutants.summary(found))
    if any(deletion_mutants.unexplained(outcome) for outcome in found):
        return FOUND
    return WELL if len(found) == len(asked) else UNFINISHED


def _replay(path: Path) -> int:
    try:
        once, now = replay(path.read_text())
    except LookupError as gone:
        say(f"{path.name}: cannot happen any more: {gone.args[0]}")
        return WELL
    say(f"{path.name}: {once}: {'still broken' if now else 'holds'}")
    return FOUND if now else WELL
