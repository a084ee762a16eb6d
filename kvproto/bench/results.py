"""Files of results: what was measured, by which command, on which machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvproto.bench.machine import machine


def write(to: str | None, name: str, argv: Sequence[str] | None, figures: Any) -> None:
    """Write the figures of `kvproto bench NAME` as JSON to a file, or to standard output ("-"), or nowhere (None)."""
    if to is None:
        return
    given = list(sys.argv[1:] if argv is None else argv)
    if "--json" in given:
        del given[given.index("--json") : given.index("--json") + 2]
    command = " ".join(["kvproto bench", name, *given])
    text = json.dumps({"bench": name, "command": command, "machine": machine(), "figures": figures})
    if to == "-":
        print(text)
    else:
        Path(to).write_text(text + "\n")
