"""Library: loads the search in C that its wheel brought, or compiles it once for each source.

What is compiled here lies in the user's cache, under a name that its source decides, so a later process finds it.
Where that folder cannot be written, each process compiles its own.  A file of the wheel that this machine cannot load
is passed over.  Without a compiler there is then no search in C, and the one in Python has the same results.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from kvproto.fsm.errors import KvprotoError
from kvproto.verify.check.native.answers import Ask, Rules
from kvproto.verify.check.native.build import SOURCES, command, file_name


class CompilerError(KvprotoError, RuntimeError):
    """There is no compiler, or it refuses the source."""


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def missing() -> str | None:
    """Why there is no search in C; None: there is one."""
    if os.environ.get("KVPROTO_NATIVE") == "0":
        return "KVPROTO_NATIVE=0 asks for the search in Python"
    try:
        library()
    except (CompilerError, OSError) as error:
        return str(error)
    return None


@cache
def library() -> ctypes.CDLL:
    """The search in C.  CompilerError: there is no compiler, or it refuses the source."""
    with as_file(files(__package__)) as folder:
        return declared(_of_the_wheel(folder) or ctypes.CDLL(str(_compiled(folder))))


def origin() -> str:
    with as_file(files(__package__)) as folder:
        return "compiled on this machine" if _of_the_wheel(folder) is None else "compiled in its wheel"


def _of_the_wheel(folder: Path) -> ctypes.CDLL | None:
    came = folder / file_name(folder)
    try:
        return ctypes.CDLL(str(came)) if came.exists() else None
    except OSError:
        return None  # it is for another C library: this machine compiles its own


def _compiled(folder: Path) -> Path:
    name, kept = file_name(folder, platform.libc_ver()[1]), _cache()
    if kept is not None and (kept / name).exists():
        return kept / name
    found = compiler()
    if found is None:
        raise CompilerError("there is no C compiler: install gcc, with the headers of the C library")
    made = Path(tempfile.mkdtemp(prefix="kvproto-", dir=kept)) / name
    done = subprocess.run(  # noqa: S603  # our own source
        command(found, folder, made), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CompilerError(f"{found} refuses {folder / SOURCES[0]}: {done.stderr[:2000]}")
    if kept is None:
        return made
    made.replace(kept / name)  # in one step: another process may do the same
    made.parent.rmdir()
    return kept / name


def _cache() -> Path | None:
    """The folder of compiled files; None: there can be none."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "kvproto"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


def declared(c: ctypes.CDLL) -> ctypes.CDLL:
    number, search, numbers = ctypes.c_uint64, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32)
    for name, result, *arguments in (
        ("new", search, ctypes.POINTER(Rules), Ask, numbers), ("free", None, search),
        ("meet", ctypes.c_int, search, numbers), ("advance", ctypes.c_int, search, number),
        ("states", number, search), ("done", number, search), ("depth", number, search),
        ("bytes", number, search),
        ("transitions", number, search), ("path", number, search, number, numbers),
        ("state", None, search, number, numbers), ("rests", ctypes.c_int, search, ctypes.c_char_p),
        ("lost", ctypes.c_int, search, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64)),
        ("circle", ctypes.c_int, search, ctypes.POINTER(ctypes.c_int64)),
    ):  # fmt: skip
        function = getattr(c, f"search_{name}")
        function.restype, function.argtypes = result, arguments
    return c
