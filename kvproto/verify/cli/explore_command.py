"""Every order in which what the handlers wait for can end, in small worlds (see `handler_worlds`).

    python -m kvproto.verify.cli.explore_command                        the small worlds
    python -m kvproto.verify.cli.explore_command large                  the others: minutes
    python -m kvproto.verify.cli.explore_command failures given-up      these

Exit code 1: something was read, told or held wrongly; the moves that led there are told.  The other codes are those of
every command (`ending`).
"""

from __future__ import annotations

import sys

import msgspec
import torch

from kvproto.cli.console import note, say
from kvproto.cli.ending import FOUND, WELL, ended
from kvproto.command_line import CommandLine
from kvproto.verify.testing.handler_worlds import LARGE, WORLDS, Exploration, Explored

TOLD_EVERY = 100


def _progress(found: Explored) -> None:
    if not found.walks % TOLD_EVERY:
        note(f"{found.world}: {found.situations} situations, {found.walks} walks")


def main(argv: list[str] | None = None) -> int:
    """The command; exit code 1 if a world has a breach."""
    program = "python -m kvproto.verify.cli.explore_command"
    parser = CommandLine(program, description=__doc__.splitlines()[0])
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"large, or some of {', '.join(WORLDS | LARGE)}")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(argv)
    names = [*LARGE] if asked.worlds == ["large"] else asked.worlds or [*WORLDS]
    if unknown := [name for name in names if name not in WORLDS | LARGE]:
        parser.error(f"no world {unknown[0]!r}: one of {', '.join(WORLDS | LARGE)}")
    torch.set_num_threads(1)  # the copies are a few bytes long
    code = WELL
    for name in names:
        found = Exploration(name, (WORLDS | LARGE)[name]).run(_progress if sys.stderr.isatty() else lambda _: None)
        code = FOUND if found.breach else code
        if asked.json:
            say(msgspec.json.encode(found).decode())
        else:
            seen = f"{found.situations} situations, {found.walks} walks, {found.ends} ends"
            say(f"{name:<22} {seen} in {found.seconds:.1f} s" + (f"\n{found.breach}" if found.breach else ""))
    return code


if __name__ == "__main__":
    raise SystemExit(ended("explore", main))
