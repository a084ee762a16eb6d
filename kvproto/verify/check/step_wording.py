"""Step wording: who does what, for stories and diagrams."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from kvproto.protocol.messages import Hello, Refusal, Welcome
from kvproto.verify.check.config import Config
from kvproto.verify.check.network import TO_DECODE
from kvproto.verify.check.node import LAST, LONG
from kvproto.verify.check.state_encoding import WorldEvent

#: messages that say all that a rank is: their session tells them apart
HANDSHAKE = (Hello, Welcome, Refusal)

#: fields of messages that say nothing to a reader
UNSAID = ("data", "secret", "traceparent", "asked", "queued")
COSTS = {
    "drop": "the network loses it", "duplicate": "and it will arrive again", "early": "although its link is busy",
    "late": "too late for its lease", "timeout": "a fault: too slow", "link": "a fault", "crash": "a fault",
    "abort": "of its own", "leave": "of its own", "close": "of its own", "refuse": "of its own", "write": "a fault",
    "kernel": "a fault", "doubt": "a fault", "slow": "everything else goes first", "address": "a forged card",
}  # fmt: skip


#: what becomes of a write that is on its way
ENDS = {
    "land": "lands", "fail": "fails", "fail told": "lands and tells of it, and is reported as failed",
    "doubt": "is in doubt", "settle": "can no longer land",
}  # fmt: skip
#: what becomes of a write that is made ready
PREPARED = {
    "made": "its write of {} is ready", "made late": "its write of {} is ready",
    "unmade": "its write of {} cannot be made ready", "deferred": "the transport has no room for its write of {}",
    "refused": "the transport does not take its write of {}",
}  # fmt: skip
#: what becomes of a staged write that opens when its gather has ended
OPENED = {
    "gathered deferred": "the transport has no room for its write",
    "gathered refused": "the transport does not take its write",
}  # fmt: skip


def actors(config: Config) -> list[str]:
    prefill, decode = config.sides
    return [f"P{p}" for p in range(prefill.everyone)] + [f"D{d}" for d in range(decode.everyone)]


def reader(config: Config, k: int, member: int) -> str:
    """The name of this rank of the room's decode group."""
    return f"D{config.parties[k][1] * config.decodes + member}"


def _other(config: Config, at: int, peer: Any) -> str:
    """The name of this rank of the other side than the one of component `at`."""
    return f"{'D' if at < config.sides[0].everyone else 'P'}{peer}"


def room(config: Config, k: int) -> str:
    """A room's name: a letter, with the gen if ids are used again."""
    letter = chr(ord("A") + k % config.rooms)
    return f"room {letter}" if config.lives == 1 else f"room {letter}.{k // config.rooms}"


def body(message: Any) -> str:
    """A message's name and fields."""
    tag = type(message).__struct_config__.tag
    if isinstance(message, HANDSHAKE):
        return f"{tag} (session {message.session})"
    said = ((name, getattr(message, name)) for name in message.__struct_fields__ if name not in UNSAID)
    fields = ", ".join(f"{name} {value!r}" for name, value in said if value is not False)
    return f"{tag} ({fields})" if fields else str(tag)


def _place(offset: int) -> str:
    return "its pages" if offset < 0 else f"its ring at {offset}"


def named(config: Config, text: str) -> str:
    """A sentence about what is broken, with the names that the story uses."""
    text = re.sub(r"\broom (\d+)", lambda found: room(config, int(found[1])), text)
    text = re.sub(r"\b(?:writer|prefill) (\d+)", r"P\1", text)
    return re.sub(r"\bdecode (\d+)", r"D\1", text)


def _memory(config: Config, what: tuple[Any, ...]) -> str:
    p, k, chunk, offset, *_ = what[1]
    whose = f"P{p}'s write of chunk {chunk} of {room(config, k)} into {_place(offset)}"
    return f"{whose} {ENDS[what[0]]}" + (f" (piece {what[2]})" if len(what) > 2 else "")  # noqa: PLR2004  # it lands


def _timer(config: Config, what: tuple[Any, ...], other: str) -> str:
    ends = {LAST: " for the last time", LONG: " for the last time, after a wait as dear as pages"}
    last = ends.get(what[-1], "")
    if what[0] == "send timer":
        chunk = "the aux row" if what[2] < 0 else f"chunk {what[2]}"
        to = reader(config, what[1], what[3])
        return f"the timer of its send of {chunk} of {room(config, what[1])} to {to} ends{last}"
    if what[0] == "room timer":
        return f"the timer of {room(config, what[1])} ends{last}"
    return f"the timer of its link to {other} ends{last}"


def _kernel(config: Config, what: tuple[Any, ...]) -> str:
    """Word the end of a gather or a scatter, and of the write that opens with the gather's end."""
    kind, job = what[0], f"chunk {what[1][1]} of {room(config, what[1][0])}"
    if kind in OPENED:
        return f"{job} is gathered, and {OPENED[kind]}"
    return f"the {kind} on {job}" if "failed" in kind else f"{job} is {kind}"


def deed(config: Config, event: WorldEvent) -> str:
    """Word what happens, without the component."""
    what = event.what
    kind = what[0]
    other = _other(config, event.at, what[1] if len(what) > 1 else "")
    if kind in ("send timer", "room timer", "link timer"):
        return _timer(config, what, other)
    if kind in ENDS:
        return _memory(config, what)
    if kind.startswith("gather") or kind in ("scattered", "scatter failed"):
        return _kernel(config, what)
    if kind in ("engine", "engine late"):
        return f"its engine, of {room(config, what[1])}: {what[2]}"
    if kind == "post":
        return f"P{what[1]} posts its write of chunk {what[3]} of {room(config, what[2])} into {_place(what[4])}"
    if kind in PREPARED:
        k, chunk, member = what[1]
        return PREPARED[kind].format(f"chunk {chunk} of {room(config, k)} to {reader(config, k, member)}")
    if kind in ("message", "message late", "notified"):
        epoch, k, said = what[2]
        about = f" about {room(config, k)}" if k >= 0 else ""
        told = f"is told by {other}'s write: " if kind == "notified" else "hears "
        return f"{told}{body(said)}{about}" + (f" of epoch {epoch}" if epoch else "")
    if kind == "hello":
        return f"is called by {other} (session {what[2][2].session})"
    words = {
        "open": "its engine opens {0}", "announce": "its engine announces {0}", "renew": "its engine renews {0}",
        "leave": "its engine lets go of {0}",
        "address": f"its engine names an address for {other} where nobody is",
        "name": f"its engine names the address at which {other} is now",
        "tried": f"has tried the address for {other} long enough",
        "close": "it says goodbye",
        "refuse": "its engine says no to {0}", "dismiss": "its engine says no to {0}, and never opens it",
        "abort": "its engine gives {0} up", "failed": "{0} fails", "crash": "crashes", "restart": "starts anew",
        "age": "has no lease left", "peer crashed": "loses a peer's writes",
    }  # fmt: skip
    if kind in words:
        named = _group if kind == "leave" else _room
        both = ", in both roles" if config.both_ways and kind in ("close", "crash", "restart") else ""
        return words[kind].format(named(config, what)) + both
    plain = {
        "wired": "is wired to D{1}", "wire failed": "cannot be wired to D{1}", "lost": f"loses its link to {other}",
        "overflowed": f"has more to say to {other} than may wait",
        "beat": f"sends its beat to {other}", "silence": f"has heard nothing from {other} for too long",
        "wrote": "learns of its write to D{5}: {1}",
        "wrote late": "learns of its write to D{5}, when leases are over: {1}",
    }  # fmt: skip
    return plain[kind].format(*what)


def _room(config: Config, what: tuple[Any, ...]) -> str:
    return room(config, what[1]) if len(what) > 1 and isinstance(what[1], int) else ""


def _group(config: Config, what: tuple[Any, ...]) -> str:
    return f"the group of P{what[1]}" if config.prefill_groups > 1 else "the prefill group"


def calls(config: Config, events: list[WorldEvent]) -> list[WorldEvent]:
    """The events, with what a prefill engine says in each of its calls."""
    said: Counter[tuple[int, int]] = Counter()
    told = []
    for event in events:
        if event.what[0] in ("engine", "engine late"):
            word = config.engine[said[event.at, event.what[1]]]
            said[event.at, event.what[1]] += 1
            told.append(event._replace(what=(*event.what, word.replace("+", ", "))))
        else:
            told.append(event)
    return told


def phrase(config: Config, event: WorldEvent) -> str:
    """Word who acts, and why the step may happen."""
    names = actors(config)
    note = f"  [{COSTS[event.cost]}]" if event.cost else ""
    if event.what[0] == "pass":
        return f"{event.what[1]:g} s pass"
    if event.what[0] == "slow":
        return f"{_slow(config, names, event)}{note}"
    if event.at >= len(names):
        p, d = config.links[event.at - len(names)]
        way = f"P{p} to D{d}" if event.what[1] == TO_DECODE else f"D{d} to P{p}"
        return f"a message from {way} is lost{note}"
    return f"{names[event.at]}: {deed(config, event)}{note}"


def _slow(config: Config, names: list[str], event: WorldEvent) -> str:
    _, word, who = event.what
    if event.at >= len(names):
        p, d = config.links[event.at - len(names)]
        messages = f"messages from D{d} to P{p} are slow" if who else f"messages from P{p} to D{d} are slow"
        others = {
            "wrote": f"reports to P{p} on its writes to D{d} are slow",
            "notified": f"what P{p}'s writes tell D{d} is slow",
        }  # fmt: skip
        return others.get(word, messages)
    slow = {
        "land": f"P{who}'s writes", "settle": f"P{who}'s writes in doubt", "scattered": "its scatters",
        "gathered": "its gathers", "made": "the making of its writes", "wired": "its wiring", "restart": "its restart",
    }.get(word, f"its engine with {room(config, who)}")  # fmt: skip
    return f"{names[event.at]}: {slow}: slow"


def arrow(config: Config, event: WorldEvent) -> str:
    names = actors(config)
    text = phrase(config, event).replace(";", ",").replace("#", "")
    if event.at < len(names) and event.what[0] in ("message", "message late", "hello"):
        other = _other(config, event.at, event.what[1])
        said = body(event.what[2][2])
        return f"{other}->>{names[event.at]}: {said}"
    if event.at < len(names) and event.what[0] == "land":
        return f"P{event.what[1][0]}-){names[event.at]}: {deed(config, event)}"
    at = names[event.at] if event.at < len(names) else f"{names[0]},{names[-1]}"
    return f"Note over {at}: {text}"
