"""What a room waits for, in one sentence: from whom, since when, and what happened last.

Made on demand from the room's value, its sends or grants, and the trace; it costs nothing until it is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kvproto.fsm.driver import steps
from kvproto.protocol.events import TimerFired, room_name
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.rank.base import Rank, bits


def unlinked(rank: Rank, room: int) -> str:
    """The ranks of the room's other group to which no link is up, by name; empty: there is none."""
    value = rank.value_of(room)
    everyone = value.terms.everyone if value is not None and value.terms is not None else 0
    down = sum(1 << peer for peer in bits(everyone) if link_of(rank, room, peer).state is not rank.UP)
    return _names(down, rank.other_side) if down else ""


def link_of(rank: Rank, room: int, peer: int) -> Any:
    """The value of the link to this rank of the room's other group."""
    return rank.links.get(rank.link_to(room, peer) or 0, rank.link_machine.initial)


def _names(mask: int, side: str) -> str:
    ranks = [str(i) for i in bits(mask)]
    return f"{side} rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}" if ranks else f"no {side} rank"


def explain(rank: Rank, room: int, now: float) -> str:
    """One sentence about the room of this key; `now` by the rank's clock (seconds)."""
    name, value = room_name(room), rank.value_of(room)
    if value is None:
        return f"{name} is not known here: it was never opened, or is long over."
    text = _prefill(rank, room, value) if rank.side == "prefill" else _decode(rank, room, value)
    since, last = _last(rank, room)
    since = _armed(rank, value) if since is None else since
    when = f", since {now - since:.1f} s" if since is not None else ""
    return f"{name} {text}{when}; last event: {last}."


def _prefill(rank: Any, room: int, value: Any) -> str:
    missing = (value.terms.everyone if value.terms else 0) & ~value.peers
    match value.state.name:
        case "AWAIT_ENGINE":
            return f"was opened by {_names(value.peers, 'decode')} and waits for this rank's engine"
        case "AWAIT_PEERS":
            return f"waits for {_names(missing, 'decode') if value.terms else 'a decode group'} to open it"
        case "AWAIT_FORWARD":
            return "is known to every decode rank and waits for the engine to schedule the forward"
        case "OPEN":
            return "is under way: " + _sends(rank, room)
        case "DRAINING":
            return f"has failed ({value.work.cause.name}) and drains: " + _sends(rank, room)
        case "AWAIT_NOTED":
            return f"has failed ({value.work.cause.name}) and waits for {_names(value.peers, 'decode')} to confirm"
    return _over(value)


def _decode(rank: Any, room: int, value: Any) -> str:
    match value.state.name:
        case "AWAIT_PEERS":
            return f"waits for {_names(value.terms.everyone & ~value.peers, 'prefill')} to confirm it"
        case "OPEN":
            aux = "has" if value.work and value.work.aux else "has not"
            return f"is under way: {_grants(rank, room)}; the aux row {aux} landed"
        case "DRAINING":
            return f"has failed ({value.work.cause.name}); {_names(value.peers, 'prefill')} may still write"
        case "SETTLING":
            return f"has failed ({value.work.cause.name}) and frees its grants: {_grants(rank, room)}"
    return _over(value)


def _over(value: Any) -> str:
    cause = value.work.cause.name if value.work else "NONE"
    return "is done" if value.state.name == "DONE" else f"is over: {value.state.name} ({cause})"


def _sends(rank: Any, room: int) -> str:
    waits: dict[str, list[str]] = defaultdict(list)
    for key, send in list(rank.sends.get(room, {}).items()):
        chunk, peer = key >> 16, key & 0xFFFF
        what = "aux" if chunk == AUX_CHUNK else str(chunk)
        waits[send.state.name].append(f"{what} to decode rank {peer}")
    return "; ".join(f"{state}: chunk {', '.join(sends)}" for state, sends in waits.items()) or "no send is open"


def _grants(rank: Any, room: int) -> str:
    texts = []
    for chunk, grant in list(rank.grants.get(room, {}).items()):
        missing = grant.writers & ~grant.arrived
        texts.append(f"chunk {chunk} {grant.state.name} of {_names(missing, 'prefill')}")
    return "; ".join(texts) or "no chunk is being filled"


def _armed(rank: Rank, value: Any) -> float | None:
    """When the timer of the room's state was started."""
    timer = rank.room_machine.timers.get(value.state)
    return value.due - timer.period if timer is not None else None


def _last(rank: Rank, room: int) -> tuple[float | None, str]:
    for when, _, event, old, new in steps(reversed(list(rank.trace))):
        if getattr(event, "room", None) == room and new is not old and not isinstance(event, TimerFired):
            return when, type(event).__name__
    return None, "older than the trace"
