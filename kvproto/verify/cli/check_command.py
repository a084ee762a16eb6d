"""Check command: `kvproto check` searches configurations and verifies that planted hazards are
noticed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kvproto.arguments import one_question, only_with, output_file, output_folder, positive
from kvproto.cli.console import note, say
from kvproto.cli.ending import FOUND, UNFINISHED, WELL
from kvproto.command_line import CommandLine
from kvproto.fsm.errors import ArgumentError
from kvproto.verify.check import report
from kvproto.verify.check.checker import CHECKER
from kvproto.verify.check.parallel_search import spread
from kvproto.verify.cli.tables_option import add_tables, is_own
from kvproto.verify.framework.checker import Checker
from kvproto.verify.framework.protocol import named
from kvproto.verify.framework.search import MEGABYTE, Result, to_stderr

EPILOG = """\
A configuration is a small world: so many ranks, rooms and chunks, a network, and a budget of faults.  The search goes
through everything that can happen in it, with the ranks that run in production, and stops at the first broken property,
which it tells as a story by the shortest way.  Ctrl-C ends it with what was found so far.

examples:
  kvproto check                              the smallest world, in no time
  kvproto check quick                        ten small ones: after every change of a row
  kvproto check small --counts spec/counts.toml    all small ones, before a commit that changes a row
  kvproto check standard --jobs 2            before a release; eight minutes on two cores
  kvproto check two-by-two --jobs 2          before a release; five minutes on two cores
  kvproto check deep --jobs 2                before a release: several faults at once, and long histories
  kvproto check abort drop --json            for tools: states, transitions, states_per_s, violations
  kvproto check --mutants                    the mutants: is each planted hazard noticed, and by which property?
  kvproto check quick --beside ../released   ranks of the build in that folder meet ours, and crash into ours
  kvproto check abort --save spec/counterexamples    keep what was found: kvproto replay and explore FILE

exit code: 0 all holds (all caught); 1 something was found; 2 it cannot be done; 3 not all was searched
docs/checker.md says what a world leaves out, docs/change.md how a change of the protocol goes.
"""
WHY = {
    "limit": "not all of it: there are more states than its limit; --limit raises it",
    "memory": "not all of it: the memory that it may take is full; --memory raises it",
    "interrupted": "not all of it: nothing is broken as far as it came",
}


def main(argv: list[str]) -> int:
    """`kvproto check`; the exit codes are at the end of its help."""
    parser = _parser()
    args = parser.parse_args(argv)
    question = one_question(parser, args, "--list", "--replay", "--mutants")
    if not args.mutants:
        only_with(parser, args, "--mutants", "--table")
    if question:
        only_with(parser, args, f"a search, and {question} is none of its own",
                  "--diagram", "--save", "--limit", "--counts", "--plant", "--beside", "--engine")  # fmt: skip
    if args.beside:
        only_with(parser, args, "a search of one build", "--counts", "--plant", "--save", "--engine")
    if args.names and (args.list or args.replay):
        parser.error(f"{question} takes no CONFIG, and {args.names[0]!r} is one")
    checker = args.tables.checked()
    if args.engine is not None:
        checker.check_engine(args.engine)
    if args.list:
        return _list(checker, as_json=args.json)
    if args.replay:
        return _replay(args.replay, checker, as_json=args.json)
    if args.mutants:
        return _mutants(args)
    return _search(args, checker)


def _parser() -> argparse.ArgumentParser:
    parser = CommandLine(
        prog="kvproto check", description="Search every interleaving of a small system for a broken property.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="CONFIG", help="configurations or suites, or names of mutants")
    parser.add_argument("--list", action="store_true", help="what there is to search")
    parser.add_argument("--mutants", action="store_true", help="plant each hazard in turn: is it noticed?")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="walk a recorded counterexample again")
    parser.add_argument("--json", action="store_true", help="one JSON document, for tools")
    parser.add_argument("--diagram", action="store_true", help="counterexamples as Mermaid sequence diagrams")
    parser.add_argument("--save", type=output_folder, metavar="DIR", help="write counterexamples there, as JSONL")
    parser.add_argument("--limit", type=positive, help="give up beyond so many states (default: the configuration's)")
    parser.add_argument(
        "--memory", type=positive, default=plenty(), metavar="MIB",
        help="give up when all processes take so much together (default: 3/4 of the machine's, %(default)s)",
    )  # fmt: skip
    parser.add_argument("--jobs", type=positive, default=1, help="processes (default: %(default)s)")
    parser.add_argument(
        "--engine", choices=("native", "python"),
        help="search in C or in Python, with the same results (default: native where there is a C compiler, unless "
             "KVPROTO_NATIVE=0; worlds with numbers for time are always searched in Python)",
    )  # fmt: skip
    parser.add_argument("--counts", type=output_file, metavar="FILE", help="bring the numbers of states up to date")
    parser.add_argument("--table", type=output_file, metavar="FILE", help="with --mutants: write the kill table there")
    parser.add_argument("--plant", metavar="BUG", help="plant this bug (--list has them), and look for it")
    parser.add_argument(
        "--beside", type=Path, metavar="FOLDER", help="with ranks of another build on one side, kvproto of this folder"
    )
    add_tables(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress line")
    return parser


def _list(checker: Checker, *, as_json: bool) -> int:
    if as_json:
        planted = {name: {"about": bug.about, "world": bug.world} for name, bug in checker.planted.items()}
        found = {"suites": dict(checker.suites), "worlds": dict(checker.worlds()), "planted": planted}
        say(msgspec.json.encode(found).decode())
        return WELL
    for suite, names in checker.suites.items():
        say(f"{suite:<10} a suite of {len(names)}")
    say()
    for name, about in checker.worlds().items():
        suites = ", ".join(suite for suite, names in checker.suites.items() if name in names)
        say(f"{name:<26} {about}" + (f"  ({suites})" if suites else ""))
    for name, bug in checker.planted.items():
        say(f"--plant {name:<18} {bug.about.splitlines()[0]}  (in {bug.world})")
    return WELL


def plenty() -> int:
    """Three quarters of this machine's memory, in MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEGABYTE * 3 // 4


# ------------------------------------------------------------------------------------------------- search
class _Asked(NamedTuple):
    """One search, as another process is told of it."""

    checker: str
    name: str
    plant: str | None
    limit: int | None
    memory: int
    shown: bool
    beside: Path | None
    engine: str | None


def _run(asked: _Asked) -> list[Result]:
    """Search one configuration; beside another build, once for each place that its ranks can have."""
    checker = named(asked.checker, Checker)
    progress = to_stderr if asked.shown else None
    if asked.beside is not None:
        return list(CHECKER.beside(asked.name, asked.beside, limit=asked.limit, memory=asked.memory, report=progress))
    with ExitStack() as stack:
        if asked.plant is not None:
            stack.enter_context(checker.planting(asked.plant))
        engine = {"engine": asked.engine} if asked.engine is not None else {}
        return [checker.search(asked.name, limit=asked.limit, memory=asked.memory, report=progress, **engine)]


def _search(args: Any, checker: Checker) -> int:
    wanted = args.names or ([checker.planted[args.plant].world] if args.plant in checker.planted else [checker.first])
    if args.beside is not None and args.tables.name != "kvproto":
        raise ArgumentError("--beside knows only this project's own tables")
    if args.plant is not None:
        with checker.planting(args.plant):  # a wrong name is told before anything is searched
            pass
    names = [*dict.fromkeys(name for asked in wanted for name in checker.named(asked))]
    known = report.known_counts(args.counts) if args.counts is not None and args.counts.exists() else {}
    shown = not args.quiet and args.jobs == 1 and (not args.json or sys.stderr.isatty())
    place, memory = args.tables.checker, args.memory // args.jobs
    asked = [_Asked(place, name, args.plant, args.limit, memory, shown, args.beside, args.engine) for name in names]
    done = _results(asked, args)
    results = [result for name in names for result in done.get(name, ())]
    whole = len(done) == len(names) and all(result.ended == "exhausted" for result in results)
    if args.json:
        say(msgspec.json.encode(report.totals(results)).decode())
    elif len(names) > 1:
        say(report.sum_up(results, len(results) + len(names) - len(done)))
    _write(results, args, known if whole else None)
    if any(result.violations for result in results):
        return FOUND
    return WELL if whole else UNFINISHED


def _results(asked: list[_Asked], args: Any) -> dict[str, list[Result]]:
    """Search and print; the results by configuration."""
    done: dict[str, list[Result]] = {}
    try:
        for found in spread(_run, asked, args.jobs):
            done[found[0].name.partition(":")[0]] = found
            for result in found:
                if not args.json:
                    _print_result(result, args)
                if args.save and result.violations:
                    (args.save / f"{result.name}.jsonl").write_text(result.violations[0].jsonl())
            if found[-1].ended == "interrupted" and args.jobs == 1:
                break
    except KeyboardInterrupt:
        note(f"interrupted: {len(done)} of {len(asked)} configurations are done")
    return done


def _write(results: Sequence[Result], args: Any, known: report.Known | None) -> None:
    """`known`: the counts that were in the file; None: not all was searched."""
    if args.counts and known is not None:
        args.counts.write_text(report.counts(results, known))
    elif args.counts:
        note(f"{args.counts} is left as it was: not all was searched to its end")


def _print_result(result: Result, args: Any) -> None:
    end = "" if args.quiet else "\r"
    say(
        f"{end}{result.name:<20} {result.states:>11,} states {result.transitions:>12,} transitions  "
        f"depth {result.depth:>3}  {result.seconds:>7.1f} s  {result.states_per_s:>7,}/s in "
        f"{result.engine:<6}  {result.ended}"
    )
    if result.ended in WHY:
        say("     " + WHY[result.ended])
    for tale in result.violations:
        say(tale.mermaid() if args.diagram else tale.story())


# --------------------------------------------------------------------------------------------- mutants, replay
def _mutants(args: Any) -> int:
    kills: list[report.Kill] = []
    asked = report.questions(args.names, args.tables.checked().planted)
    place, memory = args.tables.checker, args.memory // args.jobs
    if args.table and not is_own(args.tables):
        raise ArgumentError("--table is of this project's own hazards; --json says the same of yours")
    if not asked:
        raise ArgumentError(f"{args.tables.name} plants nothing: its checker has no bug in `planted`")
    try:
        for kill in spread(report.try_planted, [(place, name, memory) for name in asked], args.jobs):
            kills.append(kill)
            if not args.json:
                say(report.line(kill))
    except KeyboardInterrupt:
        note(f"interrupted: {len(kills)} of {len(asked)} questions are answered")
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


def _replay(path: Path, checker: Checker, *, as_json: bool) -> int:
    walked = checker.walk_file(path)
    if as_json:
        fate = {"file": str(path), "once": walked.once.property, "now": walked.broken, "gone": walked.gone}
        say(msgspec.json.encode(fate).decode())
    elif walked.gone:
        say(f"{path.name}: cannot happen any more: {walked.gone}")
    else:
        say(f"{path.name}: {walked.once.property}: {'still broken' if walked.broken else 'holds'}")
    return FOUND if walked.broken else WELL
