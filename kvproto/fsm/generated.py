"""Generated code: compiled under a name of its own, and shown by tracebacks like any other."""

from __future__ import annotations

import linecache
from functools import lru_cache
from types import CodeType


@lru_cache(maxsize=8192)
def compiled(source: str, name: str) -> CodeType:
    """The code of this source; tracebacks and debuggers find its lines under `<name>`."""
    file = f"<{name}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    return compile(source, file, "exec")
