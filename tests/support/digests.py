"""Digests of builds: each is computed by a fork of one process that has parsed the sources already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.builds import SOURCE, environment


class Digests:
    """A process that tells the digests of builds: each in a fork, which imports it anew.

    A source that many builds have alike is parsed once; to do so is half of what a process of its own takes.
    """

    SERVE = """
import ast, functools, os, sys
ast.parse = functools.lru_cache(maxsize=None)(ast.parse)
from kvproto.verify.claims.protocol_digest import computed_digest
computed_digest()
for folder in map(str.strip, sys.stdin):
    if child := os.fork():
        os.waitpid(child, 0)
        print(flush=True)
        continue
    for name in [each for each in sys.modules if each.partition(".")[0] == "kvproto"]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    from kvproto.verify.claims.protocol_digest import computed_digest
    print(computed_digest(), end="", flush=True)
    os._exit(0)
"""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.SERVE], env=environment(SOURCE.parent), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def of(self, folder: Path) -> str:
        """The digest of the build in this folder; "" if it fails, and its error is on this process's stderr."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(folder, file=self._process.stdin, flush=True)
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()
