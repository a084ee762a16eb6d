"""Ending: the exit codes of every command, and the one place where an error becomes a line.

A command returns `WELL` or `FOUND` and raises everything else.  The exit code says who has to act, so a finding is
never confused with something that could not be checked:

| code | name | |
|---|---|---|
| 0 | `WELL` | all is well |
| 1 | `FOUND` | something was found: a broken property, a finding, a difference, a wrong byte |
| 2 | `WRONG` | it could not be done: the command line, a file, this machine; one line says why and what to do |
| 3 | `UNFINISHED` | `kvproto check` alone: nothing was found, and not everything was searched |
| 70 | `DEFECT` | a defect of kvproto, with its traceback |
| 130 | `INTERRUPTED` | Ctrl-C |
| 141 | `UNREAD` | the reader of the output has exited (`kvproto ... | head`), as any program ends in a pipe |

A user can cause a `KvprotoError`, an OSError or a lack of memory; all other exceptions are defects.  `CommandLine`
(kvproto/command_line.py) reports a wrong command line itself, and ends with 2.
"""

from __future__ import annotations

import importlib
import os
import select
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from kvproto.errors import KvprotoError, MissingExtraError

WELL, FOUND, WRONG, UNFINISHED, DEFECT, INTERRUPTED, UNREAD = 0, 1, 2, 3, 70, 130, 141
#: the exit codes as `kvproto --help` has them
MEANINGS = {
    WELL: "all is well", FOUND: "something was found",
    WRONG: "it could not be done: a line on standard error says why and what to do",
    UNFINISHED: "check: not everything was searched", DEFECT: "a defect of kvproto, with a traceback",
    INTERRUPTED: "interrupted", UNREAD: "nobody reads the output any more",
}  # fmt: skip


def ended(program: str, work: Callable[[], int]) -> int:
    """Do the work of this program; the exit code."""
    _open_what_is_closed()
    try:
        try:
            return work()
        finally:
            sys.stdout.flush()  # or the interpreter does it at its end, when nobody can catch what comes of it
    except KeyboardInterrupt:
        return _told(program, "interrupted", INTERRUPTED)
    except KvprotoError as error:
        return _told(program, str(error), WRONG)
    except OSError as error:
        unread = isinstance(error, BrokenPipeError) and _unread()
        _drop_output()
        return UNREAD if unread else _told(program, _cause(error), WRONG)
    except MemoryError:
        return _told(program, "there is not enough memory for this: ask for less, or on a larger machine", WRONG)
    except Exception:  # noqa: BLE001  # whatever it is, it is ours
        traceback.print_exc()
        return _told(program, "a defect, of kvproto or of the tables that it was given: please report it", DEFECT)


def _open_what_is_closed() -> None:
    """Open /dev/null for standard streams that the caller has closed (`>&-`)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # as long as the process lives


def run(module: str, argv: Sequence[str], extras: str, about: str = "") -> int:
    """Load a command's module and run it; with `--help` and a missing package, print `about`.

    MissingExtraError names the package of these extras that is missing.
    """
    try:
        code: int = importlib.import_module(module).main(argv)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"", "kvproto"}:
            raise
        missing = f"this needs {error.name}, which is not installed: pip install 'kvproto[{extras}]'"
        if about and {"-h", "--help"}.intersection(argv):
            sys.stdout.write(f"{about}\n\nTo tell what it takes, {missing}\n")
            return WELL
        raise MissingExtraError(missing) from error
    return code


def _told(program: str, text: str, code: int) -> int:
    sys.stderr.write(f"{program}: {' '.join(text.splitlines())}\n")
    return code


def _cause(error: OSError) -> str:
    """`No such file or directory: /a/b`."""
    said = error.strerror or str(error) or type(error).__name__
    return f"{said}: {error.filename}" if error.filename is not None else said


def _unread() -> bool:
    """Whether standard output is a pipe whose reader has closed it."""
    output = select.poll()
    try:
        output.register(sys.stdout.fileno(), 0)
    except OSError:  # it is no file at all
        return False
    return bool(output.poll(0))  # asked for no event, it tells of an error or a hangup alone


def _drop_output() -> None:
    """Discard unwritten output, which the interpreter would else try to write at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
