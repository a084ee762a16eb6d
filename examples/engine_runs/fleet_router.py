"""FleetRouter: a router's process in front of a fleet's instances, and its administration.

A fleet may have several, each of which knows all instances and none of which knows of another: an instance is left out
when each has left it out.  What an engine's own router adds (its command, its words for an instance) is in `fleet_vllm`
and `fleet_sglang`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

import aiohttp

from examples.engine_runs.fleet_build import FleetBuild
from examples.engine_runs.fleet_server import START_S, Server

#: from one router's ports to the next one's
STEP = 10


class FleetRouter:
    """The `at`-th router of a fleet."""

    #: the first router's ports, of administration and of metrics, too, and its counter of requests that were sent to
    #: another instance
    port: ClassVar[int]
    admin_port: ClassVar[int]
    metrics_port: ClassVar[int]
    retried: ClassVar[re.Pattern[str]]

    def __init__(self, at: int, servers: Sequence[Server], out: Path, say: Callable[..., None]) -> None:
        self.servers, self.say, self.log = servers, say, out / f"router.{at}.log"
        self.ports = tuple(port + STEP * at for port in (self.port, self.admin_port, self.metrics_port))
        self.url, self.admin, metrics = (f"http://127.0.0.1:{port}" for port in self.ports)
        self.metrics = f"{metrics}/metrics"
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return its command, with all instances."""
        raise NotImplementedError

    async def leave_out(self, session: aiohttp.ClientSession, server: Server) -> None:
        """Have it send nothing more to the instance; RuntimeError: it does not do so."""
        raise NotImplementedError

    async def take_in(self, session: aiohttp.ClientSession, server: Server) -> None:
        """Have it send to the instance again; RuntimeError: it does not do so."""
        raise NotImplementedError

    def start(self, build: FleetBuild) -> None:
        """Start it."""
        with self.log.open("w") as file:
            self.process = subprocess.Popen(  # noqa: S603  # our own command
                self.command(), env=build.environment(), stdout=file, stderr=file
            )

    async def serves(self, session: aiohttp.ClientSession) -> None:
        """Wait until it serves; RuntimeError: it does not."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            with contextlib.suppress(aiohttp.ClientError):
                if (await self.call(session, "GET", "/workers"))[0] == HTTPStatus.OK:
                    return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"the router does not serve: {self.log.read_text()[-1500:]}")

    async def call(self, session: aiohttp.ClientSession, method: str, path: str, **how: Any) -> tuple[int, Any]:
        """Ask its administration; status and answer."""
        async with session.request(method, self.admin + path, timeout=aiohttp.ClientTimeout(120.0), **how) as said:
            return said.status, await said.json()

    async def retries(self, session: aiohttp.ClientSession) -> int:
        """Requests that it has sent to another instance so far."""
        async with session.get(self.metrics) as said:
            text = await said.text()
        return sum(int(float(count)) for count in self.retried.findall(text))

    def close(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):  # SGLang's waits for its connections, for minutes
                self.process.wait(30.0)
            self.process.kill()
