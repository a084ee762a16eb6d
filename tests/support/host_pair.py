"""Host pair: two hosts with addresses of their own, a cable between them, and a process on each.

A host is a network namespace, so what goes between two of them is TCP between two addresses, and a cable can be cut.
Needs root, as containers and build machines are; `possible` says whether it is granted.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parent.parent.parent
ADDRESSES = {"P1": "10.77.0.1", "D1": "10.77.0.2"}


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


def possible() -> bool:
    """Whether this process may make a network namespace."""
    name = f"kvp-{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


class HostPair:
    """Two hosts; on each a member of a fleet that answers one question after another (`host_rank`)."""

    def __init__(self, backend: str, keys: Path) -> None:
        self.backend, self.keys = backend, keys
        self.hosts = {side: f"kvp-{os.getpid()}-{side}" for side in ADDRESSES}
        self.ranks: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        for host in self.hosts.values():
            _ip("netns", "add", host)
        prefill, decode = self.hosts.values()
        _ip("link", "add", "cable", "netns", prefill, "type", "veth", "peer", "name", "cable", "netns", decode)
        for side, host in self.hosts.items():
            _ip("-n", host, "addr", "add", f"{ADDRESSES[side]}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", host, "link", "set", device, "up")
        for side in self.hosts:
            self._start(side)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        for rank in self.ranks.values():
            rank.kill()
            rank.wait()
        for host in self.hosts.values():
            _ip("netns", "del", host)

    def _start(self, side: str) -> None:
        environment = {
            **os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "UCX_NET_DEVICES": "cable",
            "OMP_NUM_THREADS": "1", "NIXL_LOG_LEVEL": "FATAL",
        }  # fmt: skip
        line = ["ip", "netns", "exec", self.hosts[side], sys.executable, "-m", "support.host_rank", side,
                f"tcp://{ADDRESSES[side]}:*", str(self.keys), self.backend, ADDRESSES[side]]  # fmt: skip
        self.ranks[side] = subprocess.Popen(line, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE)  # fmt: skip

    def ask(self, side: str, call: str, *args: Any) -> Any:
        """Have a side's process call this; what it answers."""
        rank = self.ranks[side]
        assert rank.stdin is not None and rank.stdout is not None
        rank.stdin.write(f"{(call, args)!r}\n")
        rank.stdin.flush()
        for line in rank.stdout:
            if line.startswith("> "):
                return ast.literal_eval(line[2:])
        raise RuntimeError(f"the process on {side}'s host ended: {rank.wait()}")

    def cut(self) -> None:
        _ip("-n", self.hosts["P1"], "link", "set", "cable", "down")

    def mend(self) -> None:
        _ip("-n", self.hosts["P1"], "link", "set", "cable", "up")
