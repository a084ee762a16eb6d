"""Upgrade: the instances of a fleet are replaced by another build of kvproto under load.

    python -m examples.engine_runs.upgrade vllm          # in the engine's environment: make engines-upgrade
    python -m examples.engine_runs.upgrade sglang

Two prefill and two decode instances serve behind the router while clients ask.  A row is a way to replace all four, one
after the other, each by the other build under the same name:

    drained       the router leaves the instance out, it gets SIGTERM, its successor is added
    cut off       SIGTERM at once, without a word to the router; vLLM cuts requests in flight off, and kills its engine
                  (--shutdown-timeout 0, its default)
    shut down     SIGTERM at once; requests in flight may end (vLLM: --shutdown-timeout 30; SGLang: always)
    killed        SIGKILL, of the prefill instances alone; the fleet goes on without it until so many more answers have
                  come, then its successor starts
    scaled        the router gets a third prefill and a third decode instance, of the other build; then the first of
                  either side drain and end, and nothing takes their place

The next instance is replaced when the successor has answered so many requests itself, so the router sends to it again.
The first row of a run upgrades (with --back: goes back, as does SGLang's killed), the next one the other way, and so
on; those of ways that are not run stay in the table.
With --routers 2 half of the clients ask one router and half the other.  Whatever has not ended 30 s later, beyond its
timeout, is killed.  Answers are compared with the whole model's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from operator import itemgetter
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from examples.engine_runs import fleet_build
from examples.engine_runs.build import build
from examples.engine_runs.fleet import Fleet
from examples.engine_runs.fleet_build import FleetBuild
from examples.engine_runs.fleet_server import Server
from examples.engine_runs.load import Load, ask
from examples.engine_runs.upgrade_engines import ENGINES, KILLED, SCALED, Asked, Engine
from examples.engine_runs.upgrade_row import UpgradeRow, judged, read

CLIENTS = 4
#: answers of a successor itself before the next instance is replaced, and seconds in which they must come
BETWEEN, BETWEEN_S = 12, 300.0


class Upgrade:
    """A fleet, its load, and the ways to replace its instances."""

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession, asked: Asked, engine: Engine) -> None:
        self.fleet, self.session, self.asked, self.say, self.engine = fleet, session, asked, fleet.say, engine
        self.build = build()  # the sources may change while this runs

    async def begin(self, server: Server, made: FleetBuild, way: str) -> None:
        """Start an instance of this build, and have it compute: the first forward of a process takes long."""
        server.start(made, 0 if way == "cut off" else self.engine.shutdown_s)
        took = await server.serves(self.session)
        if self.asked.spelling is None:  # SGLang has computed something to be well, and answers nothing alone
            answer = await ask(self.session, server.url, self.asked.prompts[0], self.asked.tokens)
            if answer.fault or self.asked.want[0].fits(answer.tokens) != "equal":
                raise RuntimeError(f"{server.name} alone has other tokens than the whole model: {answer}")
        self.say(f"{server.name} serves with {made.name}, after {took:.0f} s")

    async def replace(self, server: Server, made: FleetBuild, way: str, next_way: str, load: Load) -> float:
        """Replace this instance; seconds that its end took."""
        if way == "drained":
            await self.fleet.leave_out(self.session, server)
        if way == KILLED:
            server.kill()
        took = await server.stop()
        self.say(f"{server.name} has ended, after {took:.1f} s")
        if way == KILLED:
            await load.more(BETWEEN, BETWEEN_S)
        await self.begin(server, made, next_way)
        if way == "drained":
            await self.fleet.take_in(self.session, server)
        return took

    async def replace_all(self, made: FleetBuild, way: str, next_way: str, load: Load) -> list[float]:
        """Replace one instance after the other; seconds that each end took."""
        stops = list[float]()
        for server in (each for each in self.fleet.servers if way != KILLED or each.side == "prefill"):
            stops.append(round(await self.replace(server, made, way, next_way, load), 1))
            await server.answers(BETWEEN, BETWEEN_S)
            self.say(load.tally)
        return stops

    async def scale(self, made: FleetBuild, way: str, next_way: str, load: Load) -> list[float]:
        """Add an instance of either side, then take the first of either side away; seconds that each end took."""
        del way
        fleet, stops = self.fleet, list[float]()
        for server in fleet.spares:
            await self.begin(server, made, next_way)
            await fleet.take_in(self.session, server)
            await server.answers(BETWEEN, BETWEEN_S)
            self.say(load.tally)
        first, rest = fleet.servers[:2], fleet.servers[2:]
        for server in first:
            await fleet.leave_out(self.session, server)
            stops.append(round(await server.stop(), 1))
            self.say(f"{server.name} has ended, after {stops[-1]:.1f} s")
            await load.more(BETWEEN, BETWEEN_S)
            self.say(load.tally)
        fleet.servers[:], fleet.spares = [*rest, *fleet.spares], first
        return stops

    async def row(self, way: str, next_way: str, old: FleetBuild, new: FleetBuild) -> UpgradeRow:
        """Replace all instances in this way, under load; their successors are to end by `next_way`."""
        begun, links = time.monotonic(), self.fleet.links()
        retried, (closed, lost) = await self.fleet.retries(self.session), self.fleet.farewells()
        urls = [router.url for router in self.fleet.routers]
        load = Load(urls, self.session, *self.asked)
        clients = asyncio.create_task(load.run(CLIENTS))
        try:
            await load.more(BETWEEN, BETWEEN_S)
            stops = await (self.scale if way == SCALED else self.replace_all)(new, way, next_way, load)
        finally:
            load.stop()
            await clients
        tally, (now_closed, now_lost) = load.tally, self.fleet.farewells()
        row = UpgradeRow(
            way, f"{old.name}: {old.oldest} to {old.newest}", f"{new.name}: {new.oldest} to {new.newest}",
            tally.requests, tally.answered, tally.equal, tally.computed,
            await self.fleet.retries(self.session) - retried, tally.failed, round(tally.longest, 1),
            round(tally.pause, 1), dict(self.fleet.links() - links), now_closed - closed, now_lost - lost, stops,
            dict(tally.faults), round(time.monotonic() - begun, 1), self.build, self.engine.goodbye,
            routers=len(urls),
        )  # fmt: skip
        return msgspec.structs.replace(row, wrong=judged(row))


async def play(
    fleet: Fleet, asked: Asked, old: FleetBuild, new: FleetBuild, ways: list[str], keep: Any, engine: Engine
) -> None:  # fmt: skip
    """Start the fleet with the older build, then all ways."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        upgrade = Upgrade(fleet, session, asked, engine)
        await asyncio.gather(*(upgrade.begin(server, old, ways[0]) for server in fleet.servers))
        await fleet.route(new, session)
        for way, after in zip(ways, [*ways[1:], ways[0]], strict=True):
            row = await upgrade.row(way, after, old, new)
            fleet.say(row)
            keep(row)
            old, new = new, old


def main() -> int:
    """The exit code: 0 if every row is as it must be."""
    parser = argparse.ArgumentParser(description="replace the instances of a fleet under load")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--out", type=Path, help="where builds, logs and model go (default: below .engines)")
    parser.add_argument("--older", default=fleet_build.OLDER, help="the commit that the older build is made of")
    parser.add_argument("--back", action="store_true", help="begin with the newer build")
    parser.add_argument("--routers", type=int, default=1, help="in front of all instances; clients take turns")
    parser.add_argument("--ways", help="of those above, with commas (default: all that the engine has)")
    parser.add_argument("--table", type=Path, help="where the rows go, as JSON")
    args = parser.parse_args()
    engine = ENGINES[args.engine]()
    out = (args.out or Path(".engines", "upgrade", args.engine)).resolve()
    ways, begun, rows = args.ways.split(",") if args.ways else list(engine.ways), time.monotonic(), list[UpgradeRow]()
    kept = read(args.table.read_bytes()) if args.table and args.table.exists() else []
    out.mkdir(parents=True, exist_ok=True)
    for log in out.glob("*.log"):
        log.unlink()

    def say(*words: object) -> None:
        print(f"{time.monotonic() - begun:7.1f}", *words, flush=True)

    def keep(row: UpgradeRow) -> None:
        rows.append(row)
        if args.table:
            last = {(engine.ways.index(each.way), each.routers): each for each in [*kept, *rows]}
            told = [json.dumps(msgspec.to_builtins(row)) for _, row in sorted(last.items(), key=itemgetter(0))]
            args.table.write_text("[\n " + ",\n ".join(told) + "\n]\n")

    asked = engine.asked(out / "model")
    old, new = fleet_build.older(out / "older", args.older), fleet_build.newer(out / "newer")
    say(f"older: {old}")
    say(f"newer: {new}")
    old, new = (new, old) if args.back or engine.back(ways[0]) else (old, new)
    fleet = engine.fleet(out / "model", out, say, args.routers)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with this process
    try:
        asyncio.run(play(fleet, asked, old, new, ways, keep, engine))
    finally:
        fleet.close()
    return 0 if rows and not any(row.wrong for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
