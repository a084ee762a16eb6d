"""Outward faults: each outward call of an endpoint goes wrong once in a whole run, which is judged.

A run is a pair of endpoints in one of several set-ups (`outward_pair`), over real sockets: two rooms, one that is given
up, then one more room, then `close`.  First it is run whole, and its calls are counted; then once for each call, for
its first, second, a middle and its last occurrence, and for each kind of fault.  After each:

called   ranks of a prefill group are called, or it is known why not
bytes    a room that succeeded has its KV bit for bit
reason   a room that fails names, on each rank, the call that has raised, and every room is over
loop     no pass ends by what was injected, but by a clock's and in the first; the room that is opened afterwards
         succeeds, or an engine's call has raised what was injected
close    `close` runs to its end, and says what was injected into it; no region, socket or room is left
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import time
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from kvproto.errors import EndpointError
from kvproto.lab.torture.outward_calls import (
    INTERFACES,
    KINDS,
    TRUSTED,
    UNMADE,
    Injector,
    LogHandler,
    Strike,
    calls_of,
    every_call,
)
from kvproto.lab.torture.outward_pair import SETUPS, InjectedPair
from kvproto.protocol.states import Cause
from kvproto.room import Outcome, Room
from kvproto.verify.testing.access import inside

#: calls that begin what never ends if they do nothing: memory that it may touch is never given back
UNENDING = {
    "transport.write", "transport.write_many", "transport.write_pages", "transport.post", "transport.run",
    "kernels.gather", "kernels.gather_parts", "kernels.scatter", "kernels.bind",
}  # fmt: skip


class Verdict(msgspec.Struct, frozen=True):
    """The result of a run: `found` is empty if all is well; `outcome` says how the fault showed."""

    setup: str
    strike: Strike
    outcome: str
    found: str = ""


def run(strike: Strike | None, setup: str) -> tuple[Injector, Verdict]:
    injector = Injector(strike)
    named = strike or Strike("", "", 0, "raises")
    with _log(injector), contextlib.ExitStack() as stack:
        stack.enter_context(patch("threading.excepthook"))  # a loop that breaks says so by its calls
        try:
            pair = InjectedPair(injector, SETUPS[setup])
        except (RuntimeError, KeyboardInterrupt) as error:
            return injector, Verdict(setup, named, "refused by a constructor", _refused(error))
        found = _play(pair)
        found += _end(pair)
    outcome = "raised to the engine" if pair.raised else "kept inside"
    return injector, Verdict(setup, named, outcome, "; ".join(found))


def _refused(error: BaseException) -> str:
    return "" if "injected" in str(error) else f"a constructor raised {error!r}"


def _play(pair: InjectedPair) -> list[str]:
    """Connect, and have rooms moved until one was opened after the fault; what is wrong with them."""
    found = [pair.refused()] if pair.setup.refused else []
    found += _connect(pair)
    rooms = [pair.name(20) for _ in range(3)]
    for room in rooms:
        _begin(pair, room)
    pair.ask(pair.prefills[0].abort, rooms[-1])
    pair.until(partial(_over, pair, *rooms))
    rooms += [begun(pair) for wanted, begun in ((pair.setup.cut, _cut), (pair.setup.late, _late)) if wanted]
    if pair.setup.silent:
        pair.silence()
        found += _connect(pair)
    if pair.setup.leaves:
        pair.ask(pair.decodes[0].disconnect)
        pair.until(lambda: not pair.decodes[0].links())
        pair.ask(pair.connect, 0)
        found += _connect(pair)
    if pair.setup.sleeps:
        pair.sleep()
        found += _connect(pair)
    found += _scraped(pair) + _back(pair)
    troubled = set(rooms[2:])
    while True:  # until one was opened after the fault
        struck, last = pair.injector.struck or pair.injector.strike is None, pair.name(8)
        rooms.append(last)
        _begin(pair, last)
        pair.until(partial(_over, pair, last))
        if struck or not pair.injector.struck:
            break
    found += [text for room in rooms for text in _judge(pair, room, troubled=room in troubled)]
    if pair.causes(last) != {Cause.NONE} and not (pair.raised or _hangs(pair)):
        found.append(f"the room opened afterwards failed: {pair.causes(last)}")
    if not _owned(pair):
        found += [f"a pass has ended by {error!r}" for error in pair.ended]
    return [text for text in found if text]


def _owned(pair: InjectedPair) -> bool:
    """Whether the polling engine sees the error: each pass needs a clock, and the first adopts the loop."""
    call = pair.injector.strike.call if pair.injector.strike else ""
    return call.startswith("clock.") or call == "transport.adopt"


def _connect(pair: InjectedPair) -> list[str]:
    """Wait for the links, and call once more if that fails; return what is wrong with the first call."""
    if pair.until(lambda: pair.ask(pair.decodes[0].ready) or pair.broken("D") or pair.broken("P")):
        return []
    found = pair.pending()
    pair.ask(pair.connect, 0)
    pair.until(lambda: pair.ask(pair.decodes[0].ready))
    return found


def _back(pair: InjectedPair) -> list[str]:
    """Have a room go the other way, where there is one; return what is wrong with it."""
    if not pair.peers or pair.raised:  # after that a loop may have ended, and no room goes any way
        return []
    (near, far), struck, ends = pair.peers, pair.injector.struck, dict[str, Outcome]()
    room, ours, theirs = Room(1 << 20), [pair.free.pop() for _ in range(2)], [pair.free.pop() for _ in range(2)]

    def ready() -> bool:
        return bool(pair.raised or pair.ask(near.decode.ready, pair.numbers[1]) or pair.broken("D") or pair.broken("P"))

    def over() -> bool:
        for role in (near.decode, far.prefill):
            ends.update({type(role).__name__: end for end in pair.ask(role.finished) or ()})
            pair.ask(role.released)
        return len(ends) > 1 or bool(pair.raised)

    if not pair.until(ready):
        pair.connect_back()
        pair.until(ready)
    pair.ask(near.decode.open, room, 8, ours, group=pair.numbers[1])
    pair.ask(far.prefill.open, room, 8, theirs, group=pair.numbers[0])
    pair.ask(far.prefill.produced, room, 8)
    pair.ask(far.prefill.aux, room, b"aux")
    whole = pair.until(over)
    if pair.raised or _hangs(pair):
        return []
    if not whole:
        return [f"the room that goes back is not over: {far.prefill.explain(room)}; {near.decode.explain(room)}"]
    failed = [end.reason for end in ends.values() if not end.ok and not _names(pair.injector, end)]
    if not failed and struck == pair.injector.struck and not all(end.ok for end in ends.values()):
        failed = [end.reason for end in ends.values()]
    return [f"the room that goes back failed: {failed}"] if failed else []


def _begin(pair: InjectedPair, room: Room) -> None:
    for call in (pair.open_decode, pair.open_prefill, pair.produce):
        pair.ask(call, room)


def _cut(pair: InjectedPair) -> Room:
    """A room in whose write the transport loses the peer; its links come up again."""
    room, fabric = pair.name(20), pair.fabric
    fabric.auto = False
    _begin(pair, room)
    pair.until(lambda: fabric.options() or _over(pair, room))
    fabric.cut(*(transport.instance for transport in pair.transports))
    pair.until(lambda: _over(pair, room) or not pair.decodes[0].ready())
    fabric.auto = True
    pair.until(partial(_over, pair, room))
    _connect(pair)
    return room


def _late(pair: InjectedPair) -> Room:
    """A room whose forward ends when its writes into pages have been prepared."""
    room, data = pair.name(20), inside(pair.prefills[0]).data
    for call in (pair.open_decode, pair.open_prefill):
        pair.ask(call, room)
    pair.until(lambda: data.prepared_pages.kept or _over(pair, room))
    pair.ask(pair.produce, room)
    pair.until(partial(_over, pair, room))
    return room


def _scraped(pair: InjectedPair) -> list[str]:
    """Ask for the metrics as a server does; what is wrong with the answer."""
    if importlib.util.find_spec("prometheus_client") is None:
        return []
    from kvproto.metrics.exporter import MetricsExporter  # an extra of its own

    def loops() -> dict[str, float]:
        return {"prefill": float(not pair.broken("P")), "decode": float(not pair.broken("D"))}

    before = loops()
    families = list(MetricsExporter(*pair.endpoints).collect())
    told = {sample.labels["side"]: sample.value for family in families for sample in family.samples
            if sample.name == "kvproto_up"}  # fmt: skip
    after = loops()  # a loop may break meanwhile
    return [f"the metrics say {told} of loops that are {after}"] if told not in (before, after) else []


def _judge(pair: InjectedPair, room: Room, *, troubled: bool) -> Iterator[str]:
    """`troubled`: its engine has given it up, or its peer was lost."""
    ends = {side: out for (side, _, name), out in pair.outcomes.items() if name == room}
    if "D" in ends and ends["D"].ok and not pair.right(room):
        yield f"{room} succeeded with wrong bytes"
    if not _over(pair, room) and not pair.raised:
        yield f"{room} is not over: {[each.explain(room) for each in pair.endpoints]}"
    for side, out in ends.items():
        if out.cause and not out.reason:
            yield f"{room} failed on {side} without a reason"
        elif out.cause and not (troubled or pair.raised or _names(pair.injector, out)):
            yield f"{room} failed on {side}, and the reason does not name the call: {out.cause.name}, {out.reason}"


def _names(injector: Injector, out: Outcome) -> bool:
    """Whether the reason names the call that has raised; a late or silent call has no sentence."""
    strike = injector.strike
    return strike is None or strike.kind in ("late", "nothing") or f"injected into {strike.call}" in out.reason


def _hangs(pair: InjectedPair) -> bool:
    """Tell whether the rest waits without end. It may wait for the copies of a stream that hangs, which
    end in their order, or for the slots of a write that never ends, where the pools are closed.
    """
    strike = pair.injector.strike
    if strike is None or strike.kind != "nothing":
        return False
    return strike.call.startswith("kernels.") or (strike.call in UNENDING and pair.setup.route == "staged")


def _over(pair: InjectedPair, *rooms: Any) -> bool:
    """Whether rooms on running loops have outcomes, and are released unless a copy or write never ends."""
    strike = pair.injector.strike
    unending = strike is not None and strike.kind == "nothing" and strike.call in UNENDING and pair.injector.struck
    ends = [(side, 0, room) for side in "PD" if not pair.broken(side) for room in rooms]
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
        last = inside(endpoint).data.transport  # after a detach another instance
        for each in (transport, vars(last).get("_real", last)):
            if not each.closed and struck != "transport.close":
                found.append("the transport was not closed")
            each.close()
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
    found = list[Strike]()
    for (side, call), count in sorted(counts.items()):
        for nth in sorted({1, min(2, count), (count + 1) // 2, count}):
            kinds = [kind for kind in KINDS if kind != "nothing" or call not in TRUSTED]
            found += [Strike(side, call, nth, kind) for kind in kinds]
    return found


def setups() -> list[str]:
    nixl = importlib.util.find_spec("nixl") is not None
    return [name for name, setup in SETUPS.items() if nixl or setup.backend != "nixl"]


def campaign(
    seed: int, most: int | None, seconds: float | None = None, names: Sequence[str] = ()
) -> tuple[list[Verdict], set[str]]:  # fmt: skip
    """Run `most` of all strikes (None: all), drawn by the seed, for so many seconds. The set-ups are
    these, or all that there are libraries for. Return the calls that were reached.
    """
    todo, reached = list[tuple[Strike, str]](), set[str]()
    for name in names or setups():
        whole, verdict = run(None, name)
        if verdict.found:
            return [verdict], reached
        reached |= {call for _, call in whole.counts}
        todo += [(strike, name) for strike in strikes(whole.counts)]
    Random(seed).shuffle(todo)
    end = time.monotonic() + seconds if seconds is not None else float("inf")
    verdicts = list[Verdict]()
    for strike, route in todo[:most]:
        if time.monotonic() > end:
            break
        verdicts.append(run(strike, route)[1])
    return verdicts, reached


def table(verdicts: list[Verdict], reached: set[str]) -> list[dict[str, object]]:
    """Return for each outward call whether a run makes it, its injected faults, and the shown defects."""
    rows = list[dict[str, object]]()
    for call in every_call():
        mine = [each for each in verdicts if each.strike.call == call]
        rows.append({
            "call": call, "reached": call in reached, "injected": len(mine),
            "found": sum(bool(each.found) for each in mine),
        })  # fmt: skip
    return rows


def coverage(reached: set[str]) -> str:
    """Return a Markdown table by part: calls that a whole run makes, and others with the reason."""
    rows = ["| part | calls that go wrong | calls that no run makes |", "|---|---|---|"]
    for part in INTERFACES:
        names = {call: f"`{call.partition('.')[2]}`" for call in calls_of(part)}
        hit = [name for call, name in names.items() if call in reached]
        missed = [f"{name}: {UNMADE.get(call, 'nobody has said why')}" for call, name in names.items()
                  if call not in reached]  # fmt: skip
        rows.append(f"| {part} | {', '.join(hit)} | {'; '.join(missed)} |")
    return "\n".join(rows)
