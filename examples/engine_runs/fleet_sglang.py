"""FleetSglang: SGLang's instances behind SGLang's own router.

Instances have the options of the page's own commands on a CPU (`guide`), one rank each, and the ring as their only
route.  SGLang lets requests in flight end whenever it gets SIGTERM, and goes on to take new ones meanwhile.  Its router
forgets an instance, and answers at once; requests that it has sent there go on.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import time
from http import HTTPStatus
from typing import Any

import aiohttp

from examples.engine_runs.fleet import Fleet
from examples.engine_runs.fleet_build import FleetBuild
from examples.engine_runs.fleet_router import FleetRouter
from examples.engine_runs.fleet_server import Server
from examples.engine_runs.guide import GUIDES, OURS

#: from an instance's port to that of its bootstrap server
BOOTSTRAP = 50
#: seconds in which the router has taken an instance in, or left it out
ROUTED_S = 120.0

#: seconds in which decode waits for a room of which prefill says nothing, since the router's request to it failed when
#: its bootstrap server was up already (300 by default)
AWAITED_S = 30
#: seconds after which the router tries an instance again that failed (60 by default)
CLOSED_S = 15


class SglangServer(Server):
    """An instance of SGLang; a prefill instance has a bootstrap server."""

    @property
    def bootstrap(self) -> int:
        """Return the port of its bootstrap server."""
        return self.port + BOOTSTRAP

    @property
    def worker(self) -> dict[str, Any]:
        """As the router's `POST /workers` wants it."""
        return {**super().worker, **({"bootstrap_port": self.bootstrap} if self.side == "prefill" else {})}

    def command(self, shutdown_s: int) -> list[str]:
        """Return SGLang's command, which waits for requests in flight however long they take."""
        del shutdown_s
        return [
            sys.executable, "-m", "sglang.launch_server", "--model-path", str(self.model), "--tp", "1",
            "--served-model-name", "m",
            "--host", "127.0.0.1", "--port", str(self.port), "--disaggregation-mode", self.side,
            "--disaggregation-transfer-backend", "kvproto", "--disaggregation-bootstrap-port", str(self.bootstrap),
            *shlex.split(GUIDES["sglang"].cpu),
        ]  # fmt: skip

    def environment(self, build: FleetBuild) -> dict[str, str]:
        """Return SGLang's environment, with this build; nothing of a forward is compiled, which takes minutes."""
        guide = GUIDES["sglang"].environment
        told = {"name": self.name, "ring_bytes": 8 << 20, "route": "staged"}
        both = f"{guide['PYTHONPATH']}:{build.folder}"
        own = {
            "PYTHONPATH": both, "KVPROTO_SGLANG": json.dumps(told),
            "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": str(AWAITED_S),
        }  # fmt: skip
        return {**build.environment(), **OURS, **guide, **own}


class SglangRouter(FleetRouter):
    """SGLang's own router."""

    port, admin_port, metrics_port = 8060, 8060, 8062
    retried = re.compile(r"^smg_worker_retries_total\{.*prefill.*\} (\S+)$", re.MULTILINE)

    def command(self) -> list[str]:
        """Return its command; instances that went round would always be paired alike."""
        port, _, metrics = map(str, self.ports)
        command = [
            sys.executable, "-m", "sglang_router.launch_router", "--pd-disaggregation", "--policy", "random",
            "--host", "127.0.0.1", "--port", port, "--prometheus-port", metrics,
            "--cb-timeout-duration-secs", str(CLOSED_S),
        ]  # fmt: skip
        for each in self.servers:
            bootstrap = each.worker.get("bootstrap_port")
            command += [f"--{each.side}", each.url, *([str(bootstrap)] if bootstrap else [])]
        return command

    async def leave_out(self, session: aiohttp.ClientSession, server: Server) -> None:
        """Have it forget the instance."""
        known = await self._known(session, server)
        status, told = await self.call(session, "DELETE", f"/workers/{known['id']}")
        if status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            raise RuntimeError(f"{server.name} is not removed: {status} {told}")
        await self._until(session, server, there=False)
        self.say(f"the router has forgotten {server.name}")

    async def take_in(self, session: aiohttp.ClientSession, server: Server) -> None:
        """Add the instance to its own, and wait until it is one that answers."""
        status, told = await self.call(session, "POST", "/workers", json=server.worker)
        if status not in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED):
            raise RuntimeError(f"{server.name} is not added: {status} {told}")
        await self._until(session, server, there=True)

    async def serves(self, session: aiohttp.ClientSession) -> None:
        """Wait until it knows all instances."""
        await super().serves(session)
        for each in self.servers:
            await self._until(session, each, there=True)

    async def _known(self, session: aiohttp.ClientSession, server: Server) -> dict[str, Any]:
        _, told = await self.call(session, "GET", "/workers")
        found: list[dict[str, Any]] = [each for each in told["workers"] if each["url"] == server.url]
        return found[0] if found else {}

    async def _until(self, session: aiohttp.ClientSession, server: Server, *, there: bool) -> None:
        end = time.monotonic() + ROUTED_S
        while bool((await self._known(session, server)).get("is_healthy")) is not there:
            if time.monotonic() > end:
                raise RuntimeError(f"{server.name} is {'not ' * there}among the router's instances")
            await asyncio.sleep(0.2)


class FleetSglang(Fleet):
    """Instances of SGLang."""

    first, server, router = 8400, SglangServer, SglangRouter
