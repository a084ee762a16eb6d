"""`kvproto prove`: prove the tables' claims for runs of any length and any number of ranks and rooms."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import msgspec

from kvproto.arguments import output_file, positive
from kvproto.cli.console import say
from kvproto.cli.ending import FOUND, WELL
from kvproto.command_line import CommandLine
from kvproto.verify.cli.tables_option import KV, add_place
from kvproto.verify.prove.page import page
from kvproto.verify.prove.proof import Failure
from kvproto.verify.prove.runs import INVARIANT, Proof, everything, prove

EPILOG = """\
A proof is by induction: on every value that fulfils a table's invariant (kvproto/verify/claims), each row that
can fire leads to one that fulfils it, and keeps what is promised.  What is not proved is shown as the step that breaks
it; a run that leads there may or may not exist. docs/prove.md says what is assumed. Needs the extra `prove`
(z3-solver).
"""


def main(argv: list[str]) -> int:
    """Exit code 0: all is proved; 1: something is not."""
    parser = CommandLine(
        prog="kvproto prove", description="Prove the properties of the tables, without bounds.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("name", nargs="*", metavar="TABLE", help=f"of {', '.join(everything())} (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON document, for tools")
    parser.add_argument("--jobs", type=positive, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--page", type=output_file, metavar="FILE", help="write the page of all proofs there")
    add_place(parser)
    args = parser.parse_args(argv)
    if args.page and args.name:
        parser.error("--page is of all that there is: name no table")
    place = "" if args.tables == KV else args.tables
    if args.page and place:
        parser.error("--page is of this project's own proofs; --json says the same of yours")
    proofs = prove(args.name, args.jobs, place)
    if args.json:
        say(json.dumps(msgspec.to_builtins(proofs), indent=1))
    else:
        _print(proofs)
    if args.page:
        args.page.write_text(page(proofs))
    return FOUND if any(proof.failures for proof in proofs) else WELL


def _print(proofs: Sequence[Proof]) -> None:
    for proof in proofs:
        for failure in proof.failures:
            say("\n".join(story(failure)))
    for proof in proofs:
        say(line(proof))


def line(proof: Proof) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in sorted(proof.proved.items()))
    lost = len(proof.failures)
    verdict = "proved" if not lost else f"{lost} NOT PROVED"
    size = f"{proof.pairs:>4} pairs {proof.ways:>5} ways {proof.seconds:>6.1f} s"
    return f"{proof.name:<14} {size}  {verdict}  ({counts})"


def story(failure: Failure) -> list[str]:
    what = "the invariant" if failure.claim == INVARIANT else failure.claim
    head = f"{failure.table}: {failure.pair}: {what} is not proved: {failure.text}"
    return [head, *(f"  {each}" for each in failure.story), ""]
