"""Library: compiles the search in C, once for each state of its source, and loads it.

The compiled file lies in the user's cache, under a name that its source decides, so a later process finds it.  Where
that folder cannot be written, each process compiles its own.  Without a compiler there is no search in C, and the one
in Python has the same results.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from kvproto.verify.check.native.answers import Ask, Rules
from kvproto.verify.framework.native.library import CompilerError, compiler

SOURCES = ("search.c", "memory.c", "answers.c", "steps.c", "hasty.c", "graph.c")
FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC")


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
        text = b"".join((folder / name).read_bytes() for name in SOURCES)
        told = (*FLAGS, platform.machine(), platform.libc_ver()[1])
        name = f"search-{hashlib.sha256(text + ' '.join(told).encode()).hexdigest()[:20]}.so"
        return declared(ctypes.CDLL(str(_compiled(folder / SOURCES[0], name))))


def _compiled(source: Path, name: str) -> Path:
    kept = _cache()
    if kept is not None and (kept / name).exists():
        return kept / name
    found = compiler()
    if found is None:
        raise CompilerError("there is no C compiler: install gcc, with the headers of the C library")
    made = Path(tempfile.mkdtemp(prefix="kvproto-", dir=kept)) / name
    command = [found, *FLAGS, "-o", str(made), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own source
    if done.returncode:
        raise CompilerError(f"{found} refuses {source}: {done.stderr[:2000]}")
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
    """The library, with the types of its functions."""
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
