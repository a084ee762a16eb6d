"""KeptRows: the rows of a run over HTTP, each in a file as soon as it is made."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from examples.engine_runs.build import build
from examples.engine_runs.clients import Row


class KeptRows:
    """The rows of one run, in a file if there is one: what a run that is cut off has made is there."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.rows = file, list[Row]()

    def keep(self, row: Row) -> None:
        """Print it, and write all that there are."""
        self.rows.append(row)
        print(row, flush=True)
        if self.file is not None:
            told = [json.dumps({**msgspec.to_builtins(each), "build": build()}) for each in self.rows]
            self.file.write_text("[\n " + ",\n ".join(told) + "\n]\n")

    @property
    def good(self) -> bool:
        """Whether there are some, and all are as they must be."""
        return bool(self.rows) and all(row.good for row in self.rows)
