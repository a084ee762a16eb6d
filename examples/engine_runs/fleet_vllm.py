"""FleetVllm: vLLM's instances behind kvproto's own router."""

from __future__ import annotations

import json
import re
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from examples.engine_runs.fleet import Fleet
from examples.engine_runs.fleet_build import FleetBuild
from examples.engine_runs.fleet_router import FleetRouter
from examples.engine_runs.fleet_server import Server
from examples.engine_runs.guide import GUIDES
from examples.vllm.instances import BLOCK, CHUNK, ENVIRONMENT
from examples.vllm.model import CACHE_BYTES

#: seconds that the router waits for an instance's requests
DRAIN_S = 60
SERVED = (
    "--served-model-name m --enforce-eager --dtype float32 --max-model-len 512 --max-num-seqs 8 --seed 0 "
    f"--block-size {BLOCK} --no-enable-prefix-caching --enable-prompt-tokens-details "
    f"--kv-cache-memory-bytes {CACHE_BYTES}"
).split()  # fmt: skip


class VllmServer(Server):
    """An instance of vLLM; a prefill instance leaves its card in a file."""

    @property
    def card(self) -> Path:
        """Return the file of its card."""
        return self.out / f"{self.name}.card"

    @property
    def worker(self) -> dict[str, Any]:
        """As the router's `POST /workers` wants it."""
        return {**super().worker, **({"card": str(self.card)} if self.side == "prefill" else {})}

    def command(self, shutdown_s: int) -> list[str]:
        """Return vLLM's command."""
        own = {"card": str(self.card), "chunk_tokens": 4 * BLOCK, "ring_bytes": 8 << 20, "route": "staged"}
        transfer = {
            "kv_connector": "KVProtoConnector", "kv_connector_module_path": "kvproto.adapters.vllm.connector",
            "kv_role": "kv_producer" if self.side == "prefill" else "kv_consumer", "engine_id": self.name,
            "kv_load_failure_policy": "recompute", "kv_buffer_device": "cpu", "kv_connector_extra_config": own,
        }  # fmt: skip
        return [
            str(Path(sys.executable).parent / "vllm"), "serve", str(self.model), *SERVED,
            "--host", "127.0.0.1", "--port", str(self.port), "--shutdown-timeout", str(shutdown_s),
            "--max-num-batched-tokens", str(CHUNK if self.side == "prefill" else 512),
            "--kv-transfer-config", json.dumps(transfer),
        ]  # fmt: skip

    def environment(self, build: FleetBuild) -> dict[str, str]:
        """Return vLLM's environment, with this build."""
        both = f"{GUIDES['vllm'].environment['PYTHONPATH']}:{build.folder}"
        return {**build.environment(), **ENVIRONMENT, "PYTHONPATH": both}


class VllmRouter(FleetRouter):
    """kvproto's own router."""

    port, admin_port, metrics_port = 8020, 8021, 8020
    retried = re.compile(r"^kvproto_router_retries_total\{.*\} (\S+)$", re.MULTILINE)

    def command(self) -> list[str]:
        """Return its command."""
        port, admin, _ = map(str, self.ports)
        command = [sys.executable, "-m", "kvproto.adapters.vllm.router", "--port", port, "--admin-port", admin]
        for each in self.servers:
            card = each.worker.get("card")
            command += [f"--{each.side}", each.url, *(("--card", card) if card else ())]
        return command

    async def leave_out(self, session: aiohttp.ClientSession, server: Server) -> None:
        """Have it drain the instance, and forget it."""
        place = f"url={server.url}"
        status, told = await self.call(session, "POST", f"/workers/drain?{place}&wait={DRAIN_S}")
        self.say(f"{server.name} is drained: {status} {told}")
        status, told = await self.call(session, "DELETE", f"/workers?{place}")
        if status != HTTPStatus.OK:
            raise RuntimeError(f"{server.name} is not removed: {status} {told}")

    async def take_in(self, session: aiohttp.ClientSession, server: Server) -> None:
        """Add the instance to its own."""
        status, told = await self.call(session, "POST", "/workers", json=server.worker)
        if status != HTTPStatus.CREATED:
            raise RuntimeError(f"{server.name} is not added: {status} {told}")


class FleetVllm(Fleet):
    """Instances of vLLM."""

    first, server, router = 8300, VllmServer, VllmRouter
