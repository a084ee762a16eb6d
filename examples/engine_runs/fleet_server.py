"""Server: an instance's place in a fleet, which keeps its name, port and address from start to start.

So another build takes its place under the same group.  Each start has a log of its own (`P1.2.log`), which tells at
which wire versions its links came up, and what it has answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from examples.engine_runs.fleet_build import FleetBuild

#: seconds in which an instance must serve; beyond its own timeout, those after which it is killed: Kubernetes' default
START_S, GRACE_S = 600.0, 30.0
#: an answer in the log of either engine's server
ANSWERED = re.compile(r'"POST /v1/completions HTTP/[\d.]+" 200')


class Server:
    """An instance's place: its name, which begins with P or D, and its port."""

    def __init__(self, name: str, port: int, model: Path, out: Path, say: Callable[..., None]) -> None:
        self.name, self.model, self.out, self.say = name, model, out, say
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.side = "prefill" if name.startswith("P") else "decode"
        self.starts = self.shutdown_s = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def worker(self) -> dict[str, Any]:
        """As the router's `POST /workers` wants it."""
        return {"url": self.url, "worker_type": self.side}

    def command(self, shutdown_s: int) -> list[str]:
        """Return the engine's own command; `shutdown_s`: how long it lets requests in flight end."""
        raise NotImplementedError

    def environment(self, build: FleetBuild) -> dict[str, str]:
        """Return its environment, with this build of kvproto."""
        raise NotImplementedError

    def start(self, build: FleetBuild, shutdown_s: int) -> None:
        """Start it; `shutdown_s`: how long it lets requests in flight end when it is told to."""
        command = self.command(shutdown_s)
        self.starts, self.shutdown_s = self.starts + 1, shutdown_s
        with self.log.open("w") as file:
            self.process = subprocess.Popen(  # noqa: S603  # our own command
                command, env=self.environment(build), stdout=file, stderr=file, cwd=self.out, start_new_session=True
            )

    @property
    def log(self) -> Path:
        """The log of its last start."""
        return self.out / f"{self.name}.{self.starts}.log"

    async def serves(self, session: aiohttp.ClientSession) -> float:
        """Wait until it is well; seconds.  RuntimeError: it has ended, or is not well in time."""
        begun = told = time.monotonic()
        while not await self._well(session):
            now = time.monotonic()
            if self.process is None or self.process.poll() is not None or now - begun > START_S:
                raise RuntimeError(f"{self.name} does not serve: {self.log}: {self.log.read_text()[-1500:]}")
            if now - told > 30.0:  # noqa: PLR2004  # a line each half minute
                told = now
                self.say(f"{self.name} starts, for {now - begun:.0f} s")
            await asyncio.sleep(0.5)
        return time.monotonic() - begun

    async def answers(self, count: int, seconds: float) -> None:
        """Wait until it has answered so many more requests itself; TimeoutError: it has not.

        A router may keep its circuit to a killed instance open when its successor serves, for a minute and longer.
        """
        until = self.answered + count
        async with asyncio.timeout(seconds):
            while self.answered < until:  # noqa: ASYNC110  # another process writes its log
                await asyncio.sleep(0.5)

    @property
    def answered(self) -> int:
        """Requests that it has answered since its last start."""
        return len(ANSWERED.findall(self.log.read_text()))

    async def _well(self, session: aiohttp.ClientSession) -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(f"{self.url}/health", timeout=aiohttp.ClientTimeout(5.0)) as said:
                return said.status == HTTPStatus.OK
        return False

    async def stop(self) -> float:
        """Send its server SIGTERM, and kill it if it stays, as Kubernetes does; seconds until it has ended."""
        begun, process = time.monotonic(), self.process
        if process is None:  # it was killed
            return 0.0
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, self.shutdown_s + GRACE_S)
        self.kill()
        return time.monotonic() - begun

    def kill(self) -> None:
        """Kill whatever is left of it."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process = None
