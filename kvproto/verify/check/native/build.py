"""Build: how the search in C is compiled, and the file name that its source decides.

It needs the standard library alone, so `setup.py` builds a wheel with it where nothing is installed yet.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

SOURCES = ("search.c", "memory.c", "answers.c", "steps.c", "hasty.c", "graph.c")
FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC")


def file_name(folder: Path, *more: str) -> str:
    """Return the name of the file that is compiled from these sources, for a machine of this kind.

    `more`: what else decides it.
    """
    text = b"".join((folder / name).read_bytes() for name in SOURCES)
    told = " ".join((*FLAGS, platform.machine(), *more)).encode()
    return f"search-{hashlib.sha256(text + told).hexdigest()[:20]}.so"


def command(compiler: str, folder: Path, made: Path) -> list[str]:
    return [compiler, *FLAGS, "-o", str(made), str(folder / SOURCES[0])]
