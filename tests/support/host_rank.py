"""Host rank: a fleet's member in a process on a host of its own, asked a line at a time."""

from __future__ import annotations

import ast
import select
import sys
from typing import Any

from support.fleet import Member


class HostRank:
    """The member's end of the pipe: a line a question, a line an answer."""

    def poll(self, _seconds: float) -> bool:
        return bool(select.select([sys.stdin], [], [], 0)[0])

    def recv(self) -> Any:
        if not (line := sys.stdin.readline()):
            raise SystemExit  # nobody asks any more
        return ast.literal_eval(line)

    def send(self, answer: object) -> None:
        print(f"> {answer!r}", flush=True)


if __name__ == "__main__":
    name, bind, keys, backend, host = sys.argv[1:]
    Member(name, bind, keys, backend, host).serve(HostRank())
