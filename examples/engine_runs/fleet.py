"""Fleet: instances of an engine behind one or several routers, each with a build of kvproto of its own.

What an engine adds is in `fleet_vllm` and `fleet_sglang`: the command of an instance, and its router.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import aiohttp

from examples.engine_runs.fleet_build import FleetBuild
from examples.engine_runs.fleet_router import FleetRouter
from examples.engine_runs.fleet_server import Server

#: a link of a decode instance's log that is up: at which wire version, and whether the builds differ
UP = re.compile(r"link \d+ to rank \d+ of group \d+ is up; it works at wire version (\d+)(, and the builds differ)?")
#: the same of one whose other end has said goodbye, or has not
CLOSED, LOST = re.compile(r"link \d+ to rank \d+ of group \d+ is closed"), re.compile(r"of group \d+ is lost")


class Fleet:
    """Two prefill and two decode instances, one more of either side, and the routers."""

    #: the first instance's port: fleets of both engines, and a guide's instances, may run at the same time
    first: ClassVar[int]
    server: ClassVar[type[Server]]
    router: ClassVar[type[FleetRouter]]

    def __init__(self, model: Path, out: Path, say: Callable[..., None], routers: int = 1) -> None:
        self.out, self.say, names = out, say, ("P1", "D1", "P2", "D2", "P3", "D3")
        made = [self.server(name, self.first + at, model, out, say) for at, name in enumerate(names)]
        #: those that serve, and one of either side that does not
        self.servers, self.spares = made[:4], made[4:]
        self.routers = [self.router(at, self.servers, out, say) for at in range(routers)]

    async def leave_out(self, session: aiohttp.ClientSession, server: Server) -> None:
        """Have each router send nothing more to the instance; RuntimeError: one does not do so."""
        for router in self.routers:
            await router.leave_out(session, server)

    async def take_in(self, session: aiohttp.ClientSession, server: Server) -> None:
        """Have each router send to it again; RuntimeError: one does not do so."""
        for router in self.routers:
            await router.take_in(session, server)

    async def route(self, build: FleetBuild, session: aiohttp.ClientSession) -> None:
        """Start the routers, and wait until they serve; RuntimeError: one does not."""
        for router in self.routers:
            router.start(build)
        for router in self.routers:
            await router.serves(session)

    async def retries(self, session: aiohttp.ClientSession) -> int:
        """Requests that the routers have sent to another instance so far."""
        return sum([await router.retries(session) for router in self.routers])

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
        for server in [*self.servers, *self.spares]:
            server.kill()
        for router in self.routers:
            router.close()
