"""The README's figures, out of a file of results: `python -m kvproto.bench.figures examples/results/h200.json`.

The file holds runs, each with the command and the machine that made it; what is printed is Markdown, and nothing in
it is typed by hand.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOAL_BYTES = 512 << 20


def kernels(figures: dict[str, Any]) -> Iterator[str]:
    """Gather and scatter as fractions of a device copy, by pair, over all page sizes."""
    found: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for row in figures["kernels"]:
        if row["bytes"] == GOAL_BYTES and row["shape"].startswith("NHD 64 layers 128/128 bfloat16"):
            found[row["what"], row["pair"], row["parts"]].append(row["ratio"])
    yield "| 512 MiB, 64 layers, bf16, random pages | parts a launch | of a device copy |"
    yield "|---|---|---|"
    for (what, pair, parts), ratios in sorted(found.items()):
        yield f"| {what} {pair} heads | {parts} | {min(ratios):.3f} .. {max(ratios):.3f} |"


def main(argv: list[str]) -> int:
    """Print the figures of these files."""
    for name in argv:
        for run in json.loads(Path(name).read_text(encoding="utf-8"))["runs"]:
            print(f"`{run['command']}` on {run['machine'].get('gpu') or run['machine'].get('gpus')}:\n")
            if run["bench"] == "kernels":
                print(*kernels(run["figures"]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
