"""Fleet: instances of an engine behind a router, each with a build of kvproto of its own.

An instance keeps its name, port and address from start to start, so another build takes its place under the same group.
Each start has a log of its own (`P1.2.log`), which tells at which wire versions its links came up.

What an engine adds is in `fleet_vllm` and `fleet_sglang`: its command, and how its router is asked to leave an instance
out and to take it in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

import aiohttp

from examples.engine_runs.fleet_build import FleetBuild

ROUTER, FIRST = 8000, 8100
#: seconds in which an instance must serve; beyond its own timeout, those after which it is killed: Kubernetes' default
START_S, GRACE_S = 600.0, 30.0
#: a link of a decode instance's log that is up: at which wire version, and whether the builds differ
UP = re.compile(r"link \d+ to rank \d+ of group \d+ is up; it works at wire version (\d+)(, and the builds differ)?")
#: an answer in the log of either engine's server
ANSWERED = re.compile(r'"POST /v1/completions HTTP/[\d.]+" 200')
#: the same of one whose other end has said goodbye, or has not
CLOSED, LOST = re.compile(r"link \d+ to rank \d+ of group \d+ is closed"), re.compile(r"of group \d+ is lost")


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


class Fleet:
    """Two prefill and two decode instances, and the router's process."""

    server: ClassVar[type[Server]]
    #: the port of the router's administration, and its counter of requests that were sent to another instance
    admin_port: ClassVar[int]
    retried: ClassVar[re.Pattern[str]]

    def __init__(self, model: Path, out: Path, say: Callable[..., None]) -> None:
        self.out, self.say, names = out, say, ("P1", "D1", "P2", "D2")
        self.servers = [self.server(name, FIRST + at, model, out, say) for at, name in enumerate(names)]
        self.url, self.admin = f"http://127.0.0.1:{ROUTER}", f"http://127.0.0.1:{self.admin_port}"
        self.metrics = f"{self.url}/metrics"
        self.router: subprocess.Popen[bytes] | None = None

    def router_command(self) -> list[str]:
        """Return the command of a router in front of all instances."""
        raise NotImplementedError

    async def leave_out(self, session: aiohttp.ClientSession, server: Server) -> None:
        """Have the router send nothing more to the instance; RuntimeError: it does not do so."""
        raise NotImplementedError

    async def take_in(self, session: aiohttp.ClientSession, server: Server) -> None:
        """Have the router send to it again; RuntimeError: it does not do so."""
        raise NotImplementedError

    def route(self, build: FleetBuild) -> None:
        """Start the router."""
        with (self.out / "router.log").open("w") as file:
            self.router = subprocess.Popen(  # noqa: S603  # our own command
                self.router_command(), env=build.environment(), stdout=file, stderr=file
            )

    async def routes(self, session: aiohttp.ClientSession) -> None:
        """Wait until the router serves; RuntimeError: it does not."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            with contextlib.suppress(aiohttp.ClientError):
                if (await self.call(session, "GET", "/workers"))[0] == HTTPStatus.OK:
                    return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"the router does not serve: {(self.out / 'router.log').read_text()[-1500:]}")

    async def call(self, session: aiohttp.ClientSession, method: str, path: str, **how: Any) -> tuple[int, Any]:
        """Ask the router's administration; status and answer."""
        async with session.request(method, self.admin + path, timeout=aiohttp.ClientTimeout(120.0), **how) as said:
            return said.status, await said.json()

    async def retries(self, session: aiohttp.ClientSession) -> int:
        """Requests that the router has sent to another instance so far."""
        async with session.get(self.metrics) as said:
            text = await said.text()
        return sum(int(float(count)) for count in self.retried.findall(text))

    def links(self) -> Counter[str]:
        """Links that came up at decode instances, by wire version and whether the two builds' tables differ."""
        found = Counter[str]()
        for log in self.out.glob("D*.log"):
            for version, differ in UP.findall(log.read_text()):
                found[f"version {version}, tables {'other' if differ else 'same'}"] += 1
        return found

    def farewells(self) -> tuple[int, int]:
        """Links that were closed by a goodbye, and links that were lost, in all logs."""
        texts = [log.read_text() for log in self.out.glob("[PD]*.log")]
        closed, lost = (sum(len(what.findall(text)) for text in texts) for what in (CLOSED, LOST))
        return closed, lost

    def close(self) -> None:
        """End everything that was started."""
        for each in self.servers:
            each.kill()
        if self.router is not None:
            self.router.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):  # SGLang's waits for its connections, for minutes
                self.router.wait(30.0)
            self.router.kill()
