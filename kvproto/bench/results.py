"""Files of results: what was measured, by which command, on which machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def output(text: str) -> str:
    """An argument that names a file to be written, or "-": refused before anything is measured, not after."""
    if text != "-" and not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {Path(text).parent}")
    return text


def command_line(name: str, about: str | None) -> argparse.ArgumentParser:
    """The command line of `kvproto bench NAME`, so far: what it is about (a module's first paragraph), and `--json`."""
    parser = argparse.ArgumentParser(prog=f"kvproto bench {name}", description=(about or "").partition("\n\n")[0])
    parser.add_argument("--json", type=output, metavar="FILE",
                        help="write all figures here as well ('-': standard output only)")  # fmt: skip
    return parser


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
    from kvproto.bench.machine import machine  # it needs torch, and who only reads results does not

    command = " ".join(["kvproto bench", name, *measuring(sys.argv[1:] if argv is None else argv)])
    text = json.dumps({"bench": name, "command": command, "machine": machine(), "figures": figures})
    if to == "-":
        print(text)
    else:
        Path(to).write_text(text + "\n")
