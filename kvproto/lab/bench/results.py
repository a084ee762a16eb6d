"""Results: files of figures with command, time and machine, written while a run goes on.

A run on a borrowed machine can be cut at any moment.  So each row is told on standard error as it comes, with the time
that is gone and roughly the time to come; the file of `--json` is written anew after each, marked as `cut` until the
last one is there; and with `--seconds` no case is begun that would likely end later.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kvproto.arguments import output_file, positive
from kvproto.command_line import CommandLine
from kvproto.errors import ArgumentError
from kvproto.lab.bench.flat import MeasuredRun, flat
from kvproto.lab.bench.pivot import tables

T = TypeVar("T")


def among(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Read some of these names, separated by commas."""

    def read(text: str) -> list[str]:
        if unknown := [name for name in text.split(",") if name not in names]:
            raise argparse.ArgumentTypeError(f"{unknown[0][:40]!r}: there are {', '.join(names)}")
        return text.split(",")

    return read


def command_line(name: str, about: str | None, *, budget: bool = True) -> argparse.ArgumentParser:
    """Return the parser of `kvproto bench NAME`: its description (a first paragraph), and `--json`.

    `budget`: it has `--seconds`, which `Course` keeps to.
    """
    parser = CommandLine(prog=f"kvproto bench {name}", description=(about or "").partition("\n\n")[0])
    parser.add_argument(
        "--json", type=lambda text: text if text == "-" else str(output_file(text)), nargs="?", const="-",
        metavar="FILE",
        help="write all figures here as well, anew after each; without FILE: print nothing else",
    )  # fmt: skip
    if budget:
        parser.add_argument("--seconds", type=positive, help="begin nothing that would likely end later than that")
    return parser


def need_gpus(count: int, *, cpu: bool = False) -> None:
    """ArgumentError: torch sees fewer GPUs than are needed; `cpu`: none are."""
    import torch  # which a reader of results does without

    if not cpu and (there := torch.cuda.device_count()) < count:
        raise ArgumentError(f"this needs {count} GPUs, and torch sees {there} (--help says what does without)")


def measuring(given: Sequence[str]) -> list[str]:
    """The arguments without those that only say where the figures go."""
    where = CommandLine(add_help=False, allow_abbrev=False)
    where.add_argument("--json", nargs="?")
    return where.parse_known_args(given)[1]


class Course:
    """The course of one run of `kvproto bench NAME`: the cases that fit its time, and their results."""

    def __init__(self, name: str, argv: Sequence[str] | None, options: argparse.Namespace) -> None:
        self.name, self._argv, self._to = name, argv, options.json
        self._seconds: float | None = getattr(options, "seconds", None)
        self._began, self._date = time.perf_counter(), time.strftime("%Y-%m-%d", time.gmtime())
        #: cases that there was no time for
        self.left_out = 0

    @property
    def gone(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    def cases(self, cases: Sequence[T], parts: int = 1) -> Iterator[T]:
        """As many as there is time for; so many `parts` of the run, with these, have that time to share."""
        begin, until = self.gone, None
        if self._seconds is not None:
            until = begin + (self._seconds - begin) / parts
        each = last = 0.0  # seconds of a case, on average, and of the last one
        for number, case in enumerate(cases):
            if until is not None and self.gone + min(each, last) > until:
                self.left_out += len(cases) - number
                self.say(f"{len(cases) - number} of {len(cases)} cases left out: there is no time for them")
                return
            if number:
                self.say(f"{number} of {len(cases)} cases; some {each * (len(cases) - number):.0f} s for the rest")
            before = self.gone
            yield case
            last, each = self.gone - before, (self.gone - begin) / (number + 1)

    def say(self, text: str) -> None:
        of = f" of {self._seconds:.0f}" if self._seconds is not None else ""
        print(f"[{self.gone:4.0f}{of} s] {text}", file=sys.stderr, flush=True)

    def keep(self, measured: Any, text: str = "") -> None:
        """Keep what has been measured so far, rows or a dict of them; `text` tells the last of it."""
        if text:
            self.say(text)
        if self._to not in (None, "-"):
            self._write(self._run(measured, cut=True))

    def end(self, measured: Any) -> MeasuredRun:
        """Tell all that was measured, as tables or as JSON, and return the run."""
        run = self._run(measured)
        if self._to != "-":
            print(tables(run.figures))
        if self._to is not None:
            self._write(run)
        return run

    def judged(self, rows: Sequence[dict[str, Any]]) -> int:
        """End the run with these rows; return the exit code: 1 if bytes of one were wrong."""
        self.end(rows)
        return 0 if all(row.get("right", True) for row in rows) else 1

    def _run(self, measured: Any, *, cut: bool = False) -> MeasuredRun:
        from kvproto.lab.bench.machine import machine  # it loads torch, and who only reads results does not

        given = measuring(sys.argv[1:] if self._argv is None else self._argv)
        command = " ".join(["kvproto bench", self.name, *given])
        return MeasuredRun(self.name, command, flat(measured), machine(), self._date, cut)

    def _write(self, run: MeasuredRun) -> None:
        text = msgspec.json.encode(run).decode()
        if self._to == "-":
            print(text)
        else:
            to = Path(self._to)
            beside = to.with_name(f"{to.name}.new")
            beside.write_text(text + "\n")
            beside.replace(to)
