"""The command line: `kvproto COMMAND ...`.

A command is a module with `main(argv) -> exit code`.  It is imported only when it is called, so `kvproto lint` loads no
device library and starts at once.  `ending` has the exit codes and the handling of errors.
"""

from __future__ import annotations

import json
import sys
from difflib import get_close_matches

from kvproto.cli.console import note, say
from kvproto.cli.ending import MEANINGS, WELL, WRONG, ended, run
from kvproto.cli.wings import Commands, with_wings

#: name -> (module, what it is for): the commands of an installation without wings
OWN: Commands = {
    "top": ("kvproto.cli.top_command", "running ranks on one screen, from their metrics"),
    "doctor": ("kvproto.cli.doctor", "which transports, devices and tools work here, and why not"),
    "keys": ("kvproto.cli.keys_command", "make a pair of keys for the control plane"),
    "completion": ("kvproto.cli.completion_command", "a script for your shell: commands, options, choices"),
}
#: all commands, and the extras that a command needs, where they are not the demonstration's
COMMANDS, EXTRAS = with_wings(OWN, {"top": "metrics", "keys": "control", "completion": "completion"})


FIRST_MINUTE = """\
kvproto moves KV caches between prefill and decode engines, by a protocol that is a set of tables.

Your first minute, without a GPU:

  kvproto doctor                        what works on this machine, and what to install for the rest
  kvproto check                         every interleaving of the smallest world
  kvproto draw prefill_send --guards    the life of one send as a flowchart
  kvproto draw --scene deferral         two chunks, a ring for one, as a sequence chart
  kvproto demo                          a real model's KV cache between processes, compared bit for bit

kvproto --help has every command; source <(kvproto completion bash) completes them."""


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items()]
    codes = [f"  {code:>{width}}  {what}" for code, what in MEANINGS.items()]
    return "\n".join([
        "usage: kvproto COMMAND [ARGUMENT ...]", "",
        "kvproto moves KV caches between prefill and decode engines, by a protocol that is a set of tables.", "",
        *lines, "", "kvproto COMMAND --help explains a command, kvproto --version [--json] this build.", "",
        "Exit codes of all:", "", *codes,
    ])  # fmt: skip


def _version(*, as_json: bool) -> int:
    """This package, what it tells a peer of its build, and the digest of its tables."""
    from kvproto.protocol.versions import AGREEMENTS, Build
    from kvproto.version import __version__

    own = Build()
    if as_json:
        parts = dict(part.split(":") for part in own.digest.split())
        say(json.dumps({
            "version": __version__, "wire": own.newest, "oldest": own.oldest, "agreements": AGREEMENTS,
            "capabilities": own.capabilities.split(), "digest": parts,
        }))  # fmt: skip
    else:
        wire = f"wire version {own.newest}" + (f" (and {own.oldest} on)" if own.oldest < own.newest else "")
        words = f"agreements {own.agreements}\ncapabilities {own.capabilities}\ntables {own.digest}"
        say(f"kvproto {__version__}, {wire}\n{words}")
    return WELL


def _no_command(name: str) -> int:
    if not name:
        say(FIRST_MINUTE)
        return WRONG
    if name in {"-h", "--help", "help"}:
        say(usage())
        return WELL
    meant = get_close_matches(name, COMMANDS)
    remedy = f"is it {meant[0]}?" if meant else "kvproto --help lists them"
    note(f"kvproto: there is no command {name[:40]!r}: {remedy}")
    return WRONG


def main(argv: list[str] | None = None) -> int:
    """The entry point; returns the exit code."""
    asked = sys.argv[1:] if argv is None else argv
    name, *rest = asked or [""]
    if name in {"--version", "-V"}:
        return ended("kvproto", lambda: _version(as_json="--json" in rest))
    if name not in COMMANDS:
        return ended("kvproto", lambda: _no_command(name))
    module, what = COMMANDS[name]
    about = f"kvproto {name}: {what}"
    return ended(f"kvproto {name}", lambda: run(module, rest, extras=EXTRAS.get(name, "demo"), about=about))
