"""Explain a room or a link in one sentence: what it waits for, from whom, since when, its last event.

The sentence is made on demand from the room's value, its sends or grants, its links, and the trace; it costs nothing
until then.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kvproto.fsm.digest import differing
from kvproto.fsm.driver import steps
from kvproto.observe.logs import short
from kvproto.protocol.events import TimerFired, room_name
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.rank.base import Rank, bits

NO_SEND = "no send is open"
#: rooms of a link that are named
NAMED = 3
#: by the state of a send: what ends its wait
SENDS = {
    "AWAIT_CREDIT": "waits to ask: as many requests as may be are unanswered",
    "AWAIT_GRANT": "waits for the decode rank to answer with a region, or a place in its queue",
    "AWAIT_WRITERS": "waits for other prefill ranks: no region is reserved before all writers of the chunk have its KV",
    "AWAIT_TURN": "waits its turn: the ring is full, and serves its queue in turn",
    "AWAIT_WATERMARK": "waits for older regions of the decode rank's ring to be freed",
    "AWAIT_KV": "waits for this rank's engine to compute the KV",
    "AWAIT_SLOT": "waits for a staging slot of this rank: rooms take turns",
    "GATHERING": "waits for this rank's kernel",
    "WRITING": "waits for the transport to end the write",
    "AWAIT_PAGES": "waits for the decode rank to name its pages",
    "AWAIT_PAGES_KV": "waits for this rank's engine to compute the KV",
    "AWAIT_PERMIT": "waits to write page to page: as many sends as may do",
    "WRITING_PAGES": "waits for the transport to end the writes into pages",
    "AWAIT_ACK": "waits for the decode rank to confirm the part",
    "AWAIT_AUX": "waits for this rank's engine to give the aux row",
    "AWAIT_AUX_ACK": "waits for the decode rank to confirm the aux row",
    "DRAINING": "waits for a gather or a write in flight to end",
}


def unlinked(rank: Rank, room: int) -> str:
    """The ranks of the room's other group to which no link is up, by name; empty: there is none."""
    value = rank.value_of(room)
    everyone = value.terms.everyone if value is not None and value.terms is not None else 0
    down = sum(1 << peer for peer in bits(everyone) if link_of(rank, room, peer).state is not rank.UP)
    return _names(down, rank.other_side) if down else ""


def owing(rank: Rank, room: int) -> str:
    """Name the prefill rank that owes the aux row of this room."""
    value = rank.value_of(room)
    terms = value.terms if value is not None else None
    return f"{_names(terms.aux if terms is not None else 0, rank.other_side)} owes it"


def link_of(rank: Rank, room: int, peer: int) -> Any:
    """The value of the link to this rank of the room's other group."""
    return rank.links.get(rank.link_to(room, peer), rank.link_machine.initial)


def explain_link(rank: Rank, link: int) -> str:
    """One sentence about this link: whose it is, where it stands, what it waits for; empty: it is gone."""
    peer, value = rank.peers.get(link), rank.links.get(link)
    if peer is None or value is None:
        return ""
    why = value.why if value.state is not rank.UP else f"; {value.why}" if _claimed_twice(value) else _tried(value)
    why += spoken(rank, value) if value.state is rank.UP else ""
    text = LINKS[value.state.name].format(silent=value.silent, why=why)
    whose = f"link {link} to {rank.other_side} rank {peer.rank} of group {peer.group}"
    beside = _tried(value) if value.state is not rank.UP else ""
    return f"{whose} {text}{beside}{_leaving(rank, peer.group, value)}."


def spoken(rank: Rank, value: Any) -> str:
    """The wire version at which a link works, and the parts in which the peer's tables differ."""
    said = value.build
    other = differing(said.digest, rank.build.digest) if said.digest else "the peer tells no digest"
    return f"; it works at wire version {said.version}{f', and {short(other)}' if other else ''}"


def _tried(value: Any) -> str:
    """The address that a decode rank tries beside a link; empty: none."""
    beside = getattr(value, "beside", "")
    return f"; {beside} is tried beside it" if beside else ""


#: by the state of a link of either side
LINKS = {
    "NEW": "is not called yet",
    "AWAIT_WIRE_UP": "was called, and the transport is connecting",
    "AWAIT_WELCOME": "was called {silent} times and has not answered",
    "UP": "is up, {silent} of our beats after it was last heard{why}",
    "AWAIT_RETURN": "was lost and called again {silent} times: what was posted through it may still land",
    "LOST": "was lost: it is the other end's to call again",
    "REFUSED": "was refused: {why}",
    "FORGOTTEN": "is forgotten",
}


def _leaving(rank: Rank, group: int, value: Any) -> str:
    """Say what a disconnected link still waits for; empty: it is not disconnected."""
    if not getattr(value, "leaving", False):
        return ""
    rooms = list(rank.rooms.items())
    left = [room for room, at in rooms if at.terms.group == group]
    some = ", ".join(room_name(room) for room in left[:NAMED]) + (", ..." if len(left) > NAMED else "")
    waits = f"{len(left)} of its rooms have yet to end ({some})" if left else "it is forgotten when its timer ends"
    return f"; the engine has let go of it, and {waits}"


def _down(rank: Rank, room: int, value: Any) -> str:
    """Links of a room that are not up, or that are being left: where they stand."""
    everyone = value.terms.everyone if value.terms is not None else 0
    links = [rank.link_to(room, peer) for peer in bits(everyone)]
    odd = [explain_link(rank, link).removesuffix(".") for link in links if not _plain(rank, rank.links.get(link))]
    return "".join(f"; {text}" for text in odd[:4] if text)


def _plain(rank: Rank, value: Any) -> bool:
    if value is None:
        return True
    return value.state is rank.UP and not (_claimed_twice(value) or getattr(value, "leaving", False))


def _claimed_twice(value: Any) -> bool:
    """Whether a second live instance has called under the peer's name (only prefill ranks know of such)."""
    return bool(getattr(value, "rival", 0) and value.why)


def _names(mask: int, side: str) -> str:
    ranks = [str(i) for i in bits(mask)]
    return f"{side} rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}" if ranks else f"no {side} rank"


def explain(rank: Rank, room: int, now: float) -> str:
    """One sentence about the room of this key; `now` by the rank's clock (seconds)."""
    name, value = room_name(room), rank.value_of(room)
    if value is None:
        return f"{name} is not known here: it was never opened, or is long over."
    text = _prefill(rank, room, value) if rank.side == "prefill" else _decode(rank, room, value)
    since, last = _armed(rank, value), _last(rank, room)
    when = f", since {max(0.0, now - since):.1f} s" if since is not None else ""
    odd = _down(rank, room, value) if room in rank.rooms else ""
    return f"{name} {text}{when}; last event: {last}{odd}."


def _prefill(rank: Any, room: int, value: Any) -> str:
    match value.state.name:
        case "AWAIT_ENGINE":
            whom = f"was opened by {_names(value.peers, 'decode')}" if value.peers else "was announced"
            return f"{whom} and waits for this rank's engine to open it"
        case "AWAIT_PEERS":
            missing = _names(value.terms.everyone & ~value.peers, "decode") if value.terms else "a decode group"
            return f"waits for {missing} to open it"
        case "AWAIT_FORWARD":
            return "is known to every decode rank and waits for the engine to schedule the forward"
        case "OPEN":
            return "is under way: " + _sends(rank, room) + _costs(rank, room)
        case "DRAINING":
            return f"has failed ({value.work.cause.name}) and drains: " + _sends(rank, room)
        case "AWAIT_NOTED":
            return f"has failed ({value.work.cause.name}) and waits for {_names(value.peers, 'decode')} to confirm"
    return _over(value)


def _decode(rank: Any, room: int, value: Any) -> str:
    match value.state.name:
        case "ANNOUNCED":
            return "was announced, and waits for this rank's engine to have pages"
        case "AWAIT_PEERS":
            missing = _names(value.terms.everyone & ~value.peers, "prefill")
            return f"waits for {missing} to confirm it{_silent(rank, room, value)}"
        case "OPEN":
            return f"is under way: {_grants(rank, room)}; {_aux(rank, room, value)}{_silent(rank, room, value)}"
        case "AWAIT_AUX":
            return f"has every chunk in place; {_aux(rank, room, value)}"
        case "DRAINING":
            return f"has failed ({value.work.cause.name}); {_names(value.peers, 'prefill')} may still write"
        case "SETTLING":
            return f"has failed ({value.work.cause.name}) and frees its grants: {_grants(rank, room)}"
    return _over(value)


def _aux(rank: Any, room: int, value: Any) -> str:
    if value.work is not None and value.work.aux:
        return "the aux row has landed"
    return f"the aux row has not landed: {owing(rank, room)}"


def _silent(rank: Any, room: int, value: Any) -> str:
    """Name the prefill ranks that confirmed the room and owe a part, but have neither asked nor sent."""
    work, terms, grants = value.work, value.terms, list(rank.grants.get(room, {}).values())
    writers = (terms.writes if value.tokens > value.prefix else 0) | terms.state_writes
    heard = writers if work is not None and work.done else 0
    for grant in grants:
        heard |= grant.asked | grant.by_pages | grant.arrived
    if work is not None and work.aux:
        heard |= terms.aux
    silent = (writers | terms.aux) & value.peers & ~heard
    if not silent:
        return ""
    whose = "their engines have" if silent & (silent - 1) else "its engine has"
    asked = f"{_names(silent, 'prefill')} asked for nothing yet"
    return f"; {asked}: {whose} not opened the room, or not computed its KV"


def _over(value: Any) -> str:
    cause = value.work.cause.name if value.work else "NONE"
    return "is done" if value.state.name == "DONE" else f"is over: {value.state.name} ({cause})"


def _sends(rank: Any, room: int) -> str:
    waits: dict[str, list[str]] = defaultdict(list)
    for key, send in list(rank.sends.get(room, {}).items()):
        chunk, peer = key >> 16, key & 0xFFFF
        what = "aux" if chunk == AUX_CHUNK else str(chunk)
        waits[send.state.name].append(f"{what} to decode rank {peer}")
    return "; ".join(f"{_waiting(state)}: chunk {', '.join(sends)}" for state, sends in waits.items()) or NO_SEND


def _costs(rank: Any, room: int) -> str:
    """Say the estimated cost of each route, for the decode ranks with sends in flight."""
    # A rank may owe a decode rank tokens alone, or alone what travels at the end.
    found = {(key & 0xFFFF, send.to.cut.state) for key, send in list(rank.sends.get(room, {}).items()) if key >= 0}
    known = [(peer, at_end) for peer, at_end in sorted(found) if rank.link_to(room, peer) in rank.peers]
    return "".join(
        f"; at the end to decode rank {peer}: {rank.end_estimate(room, peer)}" if at_end
        else f"; to decode rank {peer}: {rank.estimate(room, peer)} ({rank.costs_of(room, peer)})"
        for peer, at_end in known
    )  # fmt: skip


def _waiting(state: str) -> str:
    return f"{state} ({SENDS[state]})" if state in SENDS else state


def _grants(rank: Any, room: int) -> str:
    texts = []
    for chunk, grant in list(rank.grants.get(room, {}).items()):
        state, told = grant.state.name, grant.asked if grant.state.name == "AWAIT_WRITERS" else grant.arrived
        missing = grant.writers & ~told
        texts.append(f"chunk {chunk} {state} of {_names(missing, 'prefill')}{_queued(rank, room, chunk)}")
    return "; ".join(texts) or "no chunk is being filled"


def _queued(rank: Any, room: int, chunk: int) -> str:
    """Say what a chunk in the ring's queue waits for: the room's own share, or others."""
    size = rank.space_queue.get((room, chunk))
    if size is None:
        return ""
    held, share = rank.held(room), rank.share(room, size)
    what = "the room holds its share" if held + size > share else "the ring is promised to others"
    return f" (in the ring's queue: {what}, {held} of {share} bytes)"


def _armed(rank: Rank, value: Any) -> float | None:
    """Return when the timer of the room's state was first started, before its repetitions.

    This is when the room last made progress.  None: the state has no timer.  The trace is not used, since its reach
    depends on its length.
    """
    table, state = rank.ROOM, value.state
    timer, own = rank.room_machine.timers.get(state), table.periods.get(state)
    if timer is None:
        return None
    assert table.tries is not None
    times = table.tries(value) if value.work is not None else 0
    first = (own(value) if own is not None else 0.0) or timer.period
    return float(value.due - first - sum(timer.after(each) for each in range(1, times + 1)))


def _last(rank: Rank, room: int) -> str:
    for _, _, event, old, new in steps(reversed(list(rank.trace))):
        if getattr(event, "room", None) == room and new is not old and not isinstance(event, TimerFired):
            return type(event).__name__
    return "older than the trace"
