"""`kvproto bench NAME`: what the parts reach on a machine, beside what the machine reaches.

Each benchmark is a module with `main(argv)`, imported only when it is asked for. All take `--json` and `--help`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproto.cli.console import note, say
from kvproto.cli.ending import WELL, WRONG, run
from kvproto.lab.cli import BENCHES

EXAMPLES = """
examples:
  kvproto bench step --quick                                          an event of a full rank: no GPU, half a minute
  kvproto bench pipeline --cpu --pairs tiny                           every part once, to see that it works
  kvproto bench pipeline --what goals --maps --seconds 120 --json a   rooms between two GPUs as endpoints carry them
  kvproto bench grid --maps --prompts 8,32 --batches 1,8 --json b     prompts beside descriptors beside one bulk write
  kvproto bench figures --results mine.json --add a b                 what was written, as tables

Tables go to standard output, progress to standard error. `--json FILE` is written anew after each case, so a run that
is cut has lost one at most, and `--seconds` ends most of them in time. Exit code 1: bytes were wrong, or rooms failed.
"""


def usage() -> str:
    width = max(map(len, BENCHES))
    lines = [f"  {name:<{width}}  {what}" for name, (_, what) in BENCHES.items()]
    head = ["usage: kvproto bench NAME [ARGUMENT ...]", "", "Measures on this machine. There are:", ""]
    return "\n".join([*head, *lines, "", "kvproto bench NAME --help explains one.", EXAMPLES.rstrip()])


def main(argv: Sequence[str]) -> int:
    """The entry point; returns the exit code."""
    if not argv or argv[0] in {"-h", "--help", "help"}:
        say(usage())
        return WELL if argv else WRONG
    name, *rest = argv
    if name not in BENCHES:
        note(f"kvproto bench: there is no benchmark {name[:40]!r}: kvproto bench lists them")
        return WRONG
    return run(BENCHES[name][0], rest, extras="bench")
