"""Files of results: what was measured, by which command, on which machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvproto.bench.machine import machine


def measuring(given: Sequence[str]) -> list[str]:
    """The arguments without those that only say where the figures go."""
    kept: list[str] = []
    skip = False
    for each in given:
        out = each.partition("=")[0] in {"--json", "--plot"}
        if not out and not skip:
            kept.append(each)
        skip = out and "=" not in each
    return kept


def write(to: str | None, name: str, argv: Sequence[str] | None, figures: Any) -> None:
    """Write the figures of `kvproto bench NAME` as JSON to a file, or to standard output ("-"), or nowhere (None)."""
    if to is None:
        return
    command = " ".join(["kvproto bench", name, *measuring(sys.argv[1:] if argv is None else argv)])
    text = json.dumps({"bench": name, "command": command, "machine": machine(), "figures": figures})
    if to == "-":
        print(text)
    else:
        Path(to).write_text(text + "\n")
