"""The fault injector: each outward call of an endpoint goes wrong once, in a whole run, and the run is judged.

A run is a pair of endpoints over the in-memory transport and real sockets: two rooms by each route, one of them given
up, then one more room, then `close`.  First it is run whole, and its calls are counted; then once for each call, for
its first, second, a middle and its last occurrence, and for each kind of fault.  After each:

bytes    a room that succeeded has its KV bit for bit
reason   a room fails on a rank with a cause and a sentence, and every room is over
loop     the room that is opened afterwards succeeds, or an engine's call has raised what was injected
close    `close` runs to its end, and says what was injected into it; no region, socket or room is left
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import msgspec
import torch

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.errors import EndpointError, KvprotoError
from kvproto.fsm.timing import Timer
from kvproto.io.kernels.torch import TorchKernels
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.lab.torture.outward_calls import (
    INTERFACES,
    KINDS,
    TRUSTED,
    Injected,
    Injector,
    LogHandler,
    Spans,
    Strike,
    calls_of,
    every_call,
)
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.settings import Route, Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise, tokens_of, whole_model

MODEL = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
TIMING = Timing(
    resend=Timer(0.25, 8, 1.0), patience=Timer(0.25, 3), call=Timer(0.5, 8), engine=Timer(6.0), bootstrap=Timer(6.0),
    stall=Timer(12.0), lease=Timer(4.0), write=Timer(4.0), kernel=Timer(4.0), wire=Timer(4.0),
    heartbeat=Timer(1.0, 8), forget=Timer(100.0),
)  # fmt: skip
ROUTES: tuple[Route, ...] = ("staged", "pages")
#: turns in which nothing moves before time does, by how much, and how much time a run has
IDLE, STEP_S, LONGEST_S = 8, 0.25, 240.0
TICK_S = 2e-5
#: calls that begin what never ends if they do nothing: memory that it may touch is never given back
UNENDING = {
    "transport.write", "transport.write_many", "transport.post", "transport.run", "kernels.gather",
    "kernels.gather_parts", "kernels.scatter", "kernels.bind",
}  # fmt: skip


class Verdict(msgspec.Struct, frozen=True):
    """What became of a run: `found` is empty if all is well; `outcome` says how the fault showed."""

    route: str
    strike: Strike
    outcome: str
    found: str = ""


class InjectedPair(Pair):
    """One prefill and one decode rank whose outward calls go by an injector."""

    def __init__(self, injector: Injector, route: Route) -> None:
        self.injector, self.raised = injector, list[BaseException]()
        self.transports: list[MemoryTransport] = []
        self.made: list[Endpoint] = []
        settings = Settings(timing=TIMING, ring_bytes=1 << 14, slot_bytes=1 << 12, slots=2, route=route)
        super().__init__(MODEL, MODEL, grid=8, pages=48, settings=settings, fabric=Fabric(auto=True), ready=False)

    def _parts(self, side: str) -> dict[str, Any]:
        self.transports.append(MemoryTransport(self.fabric))
        real = {"transport": self.transports[-1], "kernels": TorchKernels(), "clock": self.injector.time}
        return {part: Injected(self.injector, side, part, each) for part, each in real.items()}

    def _dress(self, side: str, made: Any) -> Any:
        self.made.append(made)
        loop = inside(made).loop
        loop.control = Injected(self.injector, side, "control", loop.control)  # type: ignore[assignment]
        made.spans = Injected(self.injector, side, "spans", Spans())
        return made

    def make_prefill(self, index: int) -> PrefillEndpoint:
        """A prefill rank."""
        pool, named = noise(MODEL, index, self.pages, 1), self._parts("prefill")
        made = PrefillEndpoint(MODEL, index, pool, grid=8, settings=self.settings, **named)
        return self._dress("prefill", made)  # type: ignore[no-any-return]

    def make_decode(self, index: int) -> DecodeEndpoint:
        """A decode rank."""
        pool, named = noise(MODEL, index, self.pages, 2), self._parts("decode")
        made = DecodeEndpoint(MODEL, index, pool, grid=8, settings=self.settings, **named)
        return self._dress("decode", made)  # type: ignore[no-any-return]

    def ask(self, call: Any, *args: Any, **named: Any) -> Any:
        """An engine's call, whose engine notes what it raises and goes on."""
        try:
            return call(*args, **named)
        except (KvprotoError, RuntimeError, KeyboardInterrupt) as error:
            self.raised.append(error)
            return None

    def until(self, done: Any) -> bool:
        """Poll, with time going on while nothing moves; whether it was done within the time of a run."""
        idle, end = 0, self.injector.time.now() + LONGEST_S
        while not done():
            moved = [self.ask(each.poll) for each in self.endpoints]
            self.ask(self.collect)
            idle = 0 if any(moved) else idle + 1
            if idle >= IDLE:
                idle = 0
                self.injector.time.advance(STEP_S)
                if self.injector.time.now() > end:
                    return False
            elif idle:
                time.sleep(TICK_S)
        return True

    def right(self, room: Any) -> bool:
        """Whether the room's KV is in the decode pages."""
        ours, theirs, tokens, _ = self.tables[room]
        wanted, have = (tokens_of(pool, pages) for pool, pages in (
            (noise(whole_model(MODEL), 0, self.pages, 1), ours), (self.decodes[0].pool, theirs)
        ))  # fmt: skip
        return all(torch.equal(a[:tokens], b[:tokens]) for a, b in zip(wanted, have, strict=True))


def run(strike: Strike | None, route: Route) -> tuple[Injector, Verdict]:
    """One run."""
    injector = Injector(strike)
    named = strike or Strike("", "", 0, "raises")
    with _log(injector):
        try:
            pair = InjectedPair(injector, route)
        except (RuntimeError, KeyboardInterrupt) as error:
            return injector, Verdict(route, named, "refused by a constructor", _refused(error))
        found = _play(pair)
        found += _end(pair)
    outcome = "raised to the engine" if pair.raised else "kept inside"
    return injector, Verdict(route, named, outcome, "; ".join(found))


def _refused(error: BaseException) -> str:
    return "" if "injected" in str(error) else f"a constructor raised {error!r}"


def _play(pair: InjectedPair) -> list[str]:
    """Connect, and have rooms moved until one was opened after the fault; what is wrong with them."""
    if not pair.until(lambda: pair.ask(pair.decodes[0].ready)):
        pair.ask(pair.connect, 0)
    pair.until(lambda: pair.ask(pair.decodes[0].ready))
    rooms = [pair.name(20) for _ in range(3)]
    for room in rooms:
        for call in (pair.open_decode, pair.open_prefill, pair.produce):
            pair.ask(call, room)
    pair.ask(pair.prefills[0].abort, rooms[-1])
    pair.until(partial(_over, pair, *rooms))
    while True:  # until one was opened after the fault
        struck, last = pair.injector.struck or pair.injector.strike is None, pair.name(12)
        rooms.append(last)
        for call in (pair.open_decode, pair.open_prefill, pair.produce):
            pair.ask(call, last)
        pair.until(partial(_over, pair, last))
        if struck or not pair.injector.struck:
            break
    found = [text for room in rooms for text in _judge(pair, room)]
    if pair.causes(last) != {Cause.NONE} and not (pair.raised or _hangs(pair.injector)):
        found.append(f"the room opened afterwards failed: {pair.causes(last)}")
    return found


def _judge(pair: InjectedPair, room: Room) -> Iterator[str]:
    ends = {side: out for (side, _, name), out in pair.outcomes.items() if name == room}
    if "D" in ends and ends["D"].ok and not pair.right(room):
        yield f"{room} succeeded with wrong bytes"
    if not _over(pair, room) and not pair.raised:
        yield f"{room} is not over: {[each.explain(room) for each in pair.endpoints]}"
    for side, out in ends.items():
        if out.cause and not out.reason:
            yield f"{room} failed on {side} without a reason"


def _hangs(injector: Injector) -> bool:
    """Whether the device hangs: copies of one stream end in order, so what is behind one that never ends waits."""
    strike = injector.strike
    return strike is not None and strike.kind == "nothing" and strike.call.startswith("kernels.")


def _over(pair: InjectedPair, *rooms: Any) -> bool:
    """Whether the rooms have their outcomes, and are released unless a copy or a write never ends."""
    strike = pair.injector.strike
    unending = strike is not None and strike.kind == "nothing" and strike.call in UNENDING and pair.injector.struck
    ends = [(side, 0, room) for side in "PD" for room in rooms]
    return all(end in pair.outcomes and (unending or pair.releases[end]) for end in ends)


def _end(pair: InjectedPair) -> list[str]:
    found = list[str]()
    for endpoint, transport in zip(pair.made, pair.transports, strict=True):
        control = inside(endpoint).loop.control
        try:
            endpoint.close()
        except (EndpointError, KeyboardInterrupt, RuntimeError) as error:
            if "injected" not in str(error):
                found.append(f"close raised {error!r}")
        struck = pair.injector.strike.call if pair.injector.strike else ""
        if not inside(endpoint).loop.closed or not (control._closed or struck == "control.close"):  # noqa: SLF001
            found.append("close did not run to its end")
        if not transport.closed and struck != "transport.close":
            found.append("the transport was not closed")
        transport.close()
    return found


@contextlib.contextmanager
def _log(injector: Injector) -> Iterator[None]:
    """The log of the endpoints goes by the injector, and nowhere else."""
    log, handler = logging.getLogger("kvproto"), LogHandler()
    emit = handler.emit
    handler.emit = lambda record: injector.make("both", "log.emit", emit, record)  # type: ignore[method-assign]
    level, goes_on = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = goes_on


def strikes(counts: dict[tuple[str, str], int]) -> list[Strike]:
    """All that is to be tried where calls were counted so."""
    found = list[Strike]()
    for (side, call), count in sorted(counts.items()):
        for nth in sorted({1, min(2, count), (count + 1) // 2, count}):
            kinds = [kind for kind in KINDS if kind != "nothing" or call not in TRUSTED]
            found += [Strike(side, call, nth, kind) for kind in kinds]
    return found


def campaign(seed: int, most: int | None, seconds: float | None = None) -> tuple[list[Verdict], set[str]]:
    """Run `most` of all strikes (None: all), drawn by the seed, for so many seconds; the calls that were reached."""
    todo, reached = list[tuple[Strike, Route]](), set[str]()
    for route in ROUTES:
        whole, verdict = run(None, route)
        if verdict.found:
            return [verdict], reached
        reached |= {call for _, call in whole.counts}
        todo += [(strike, route) for strike in strikes(whole.counts)]
    Random(seed).shuffle(todo)
    end = time.monotonic() + seconds if seconds is not None else float("inf")
    verdicts = list[Verdict]()
    for strike, route in todo[:most]:
        if time.monotonic() > end:
            break
        verdicts.append(run(strike, route)[1])
    return verdicts, reached


def table(verdicts: list[Verdict], reached: set[str]) -> list[dict[str, object]]:
    """By outward call: whether a run makes it, how many faults were injected, and how many showed a defect."""
    rows = list[dict[str, object]]()
    for call in every_call():
        mine = [each for each in verdicts if each.strike.call == call]
        rows.append({
            "call": call, "reached": call in reached, "injected": len(mine),
            "found": sum(bool(each.found) for each in mine),
        })  # fmt: skip
    return rows


def coverage(reached: set[str]) -> str:
    """By part, as a table in Markdown: the calls that a whole run makes, and those that it does not."""
    rows = ["| part | calls that go wrong | calls that no run makes |", "|---|---|---|"]
    for part in INTERFACES:
        names = {call: f"`{call.partition('.')[2]}`" for call in calls_of(part)}
        hit = [name for call, name in names.items() if call in reached]
        missed = [name for call, name in names.items() if call not in reached]
        rows.append(f"| {part} | {', '.join(hit)} | {', '.join(missed)} |")
    return "\n".join(rows)
