"""SGLang carried by kvproto, in the real engine: a prefill and a decode instance on the CPU, and what they do.

    python -m examples.sglang.run --table examples/results/sglang.json          # all: make engines-sglang
    python -m examples.sglang.run --pairs 2:1 --backends plain staging          # these rows anew, the others stay
    python -m examples.sglang.run --pairs 1:2 --scenarios seq killed

Every scenario (`examples.sglang.scenarios`) compares tokens with those of the whole model, and what both sides moved by
digests; after the last one each instance's cache has to be empty.  `kvproto` keeps digests and goes through all;
`plain` is the same without digests, and `staging` is SGLang's own staging over Mooncake: the two are compared, with the
same prompts, one right after the other.

Rows go into the table as soon as they are made, in the place of those of the same pair, backend and scenario.  Exit
code 0: every row of kvproto's was as it must be.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from examples.sglang import model
from examples.sglang.scenarios import BACKENDS, SCENARIOS, TIMED, Run

Row = dict[str, Any]


class Table:
    """The rows of all runs, in a file if there is one."""

    def __init__(self, file: Path | None) -> None:
        made: list[Row] = json.loads(file.read_text()) if file is not None and file.exists() else []
        self.file, self.rows = file, {self._key(row): row for row in made}

    @staticmethod
    def _key(row: Row) -> tuple[str, str, str]:
        return row["pair"], row["backend"], row["scenario"]

    def keep(self, row: Row) -> None:
        """In the place of an older one."""
        self.rows[self._key(row)] = row
        if self.file is not None:
            ordered = sorted(self.rows.values(), key=lambda row: (row["pair"], list(BACKENDS).index(row["backend"])))
            self.file.write_text("[\n " + ",\n ".join(json.dumps(row) for row in ordered) + "\n]\n")


def main() -> int:
    """The runs that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", default=["1:2", "2:1"], help="prefill TP:decode TP")
    parser.add_argument("--backends", nargs="+", default=["kvproto", "plain", "staging"], choices=list(BACKENDS))
    parser.add_argument("--pages", nargs=2, type=int, default=[16, 16], help="tokens a page at prefill, at decode")
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS), choices=SCENARIOS)
    parser.add_argument("--table", type=Path, help="where the rows go, as JSON")
    parser.add_argument("--keep", type=Path, help="a folder for the model and the logs (default: a temporary one)")
    asked = parser.parse_args()
    table, good = Table(asked.table), True
    with tempfile.TemporaryDirectory() as temporary:
        top = asked.keep or Path(temporary)
        model.make(top / "model")
        for pair in asked.pairs:
            for backend in asked.backends:
                folder = top / f"{pair.replace(':', '-')}-{backend}-{time.time_ns()}"
                folder.mkdir(parents=True)
                run = Run(pair, backend, folder, tuple(asked.pages), table.keep)
                run.play([name for name in asked.scenarios if backend == "kvproto" or name in TIMED])
                good &= all(row["good"] for row in run.rows) or BACKENDS[backend][0] != "kvproto"
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
