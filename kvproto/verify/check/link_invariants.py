"""Link invariants: properties that only both ends of a link together can show.

Each end is first reduced to what the other end can contradict (`PrefillEnd`, `DecodeEnd`).  Few ends differ, so a
search judges few pairs of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvproto.protocol.ring import Mark, usable
from kvproto.protocol.states import DGrant, DLink, PLink, PRoom, PSend
from kvproto.verify.check.decode_memory import DecodeMemory, DNode
from kvproto.verify.check.node import FAILURE, SUCCESS, Unrest
from kvproto.verify.check.prefill_local_steps import PNode

PREFILL_ALONE, DECODE_ALONE = 1, 2
#: a decode rank's room that failed is over, and may be forgotten, when no prefill rank has it in these any more: so who
#: notifies of a room that is not known had success
#: how a send waits that was told to, and how its chunk waits then
QUEUED = {PSend.AWAIT_WRITERS: DGrant.AWAIT_WRITERS, PSend.AWAIT_TURN: DGrant.AWAIT_SPACE}
#: what these wait for is answered at once
ASKING = (PSend.AWAIT_GRANT, PSend.AWAIT_PAGES, PSend.AWAIT_ACK, PSend.AWAIT_AUX_ACK)
ALIVE = (PRoom.AWAIT_PEERS, PRoom.AWAIT_FORWARD, PRoom.OPEN)


class WaitingSend(NamedTuple):
    """A send that waits for a word of the decode rank; `round` and `end`: of the region it waits to use."""

    room: int
    chunk: int
    state: PSend
    round: int = 0
    end: int = 0


class PrefillEnd(NamedTuple):
    """A link's prefill end; `up`: in which epoch, None: it is not.  Rooms are masks of places."""

    up: int | None = None
    #: the epoch that its link has, whatever its state
    epoch: int = 0
    mark: Mark = (0, 0)
    at_work: int = 0
    succeeded: int = 0
    waiting: tuple[WaitingSend, ...] = ()


class DecodeEnd(NamedTuple):
    """A link's decode end, likewise."""

    up: int | None = None
    epoch: int = 0
    mark: Mark = (0, 0)
    #: rooms that failed, and whose pages were given back
    given_back: int = 0
    #: rooms that have not failed, of which this prefill rank's parts are not all there
    lacking: int = 0
    #: (room, chunk, state) of chunks that are queued
    queued: tuple[tuple[int, int, DGrant], ...] = ()


def prefill_end(p: Any, at_d: int, node: DecodeMemory) -> PrefillEnd:
    """Reduce a prefill rank to what concerns this decode rank."""
    if not isinstance(p, PNode):
        return PrefillEnd()
    link, own = link_to(p, at_d), p.rank[2][at_d]
    epoch = own.epoch if own is not None else 0
    if link is None or link.state is not PLink.UP:
        return PrefillEnd(epoch=epoch)
    others = _anothers(p, node)
    at_work = _mask(
        k for k, room in p.rank[0] if k not in others and room.state in ALIVE and room.peers >> node.member & 1
    )
    succeeded = _mask(k for k, outcome in enumerate(p.outcome) if outcome == SUCCESS and k not in others)
    sends = ((k, at >> 16, send) for k, parts in p.rank[4] for at, send in parts
             if at & 0xFFFF == node.member and k in node.mine and k not in others)
    waiting = tuple(_waiting(k, chunk, send) for k, chunk, send in sends if _waits(send))
    return PrefillEnd(link.epoch, epoch, (link.mark_round, link.mark_tail), at_work, succeeded, waiting)


def _waits(send: Any) -> bool:
    return send.state in ASKING or send.state in QUEUED or send.state is PSend.AWAIT_WATERMARK


def _waiting(k: int, chunk: int, send: Any) -> WaitingSend:
    of_region = (send.round, send.end) if send.state is PSend.AWAIT_WATERMARK else ()
    return WaitingSend(k, chunk, send.state, *of_region)


def decode_end(d: Any, at_p: int, node: DecodeMemory) -> DecodeEnd:
    """Reduce a decode rank to what concerns this prefill rank."""
    link = d.rank[2][at_p] if isinstance(d, DNode) else None
    epoch = link.epoch if link is not None else 0
    if link is None or link.state is not DLink.UP:
        return DecodeEnd(epoch=epoch)
    member = node.others.member(at_p)
    given_back = _mask(k for k, outcome in enumerate(d.outcome) if outcome == FAILURE and d.released[k])
    lacking = _mask(
        k for k, outcome in enumerate(d.outcome)
        if d.script[k] == 1 and outcome != FAILURE and member in node.writers and not _all_there(d, k, member, node)
    )  # fmt: skip
    grants = ((k, chunk, grant.state) for k, group in d.rank[3] for chunk, grant in group)
    queued = tuple(grant for grant in grants if grant[2] in QUEUED.values())
    return DecodeEnd(epoch, epoch, _mark(d), given_back, lacking, queued)


def _mask(places: Any) -> int:
    return sum(1 << k for k in places)


def link_to(p: PNode, at_d: int) -> Any:
    """Return the prefill rank's link to this decode rank (None: there is none); namesakes share one."""
    own, place = p.rank[2][at_d], b"D%d" % at_d
    if own is not None and own.place == place:
        return own
    return next((each for each in p.rank[2] if each is not None and each.place == place), None)


def _anothers(p: Any, node: DecodeMemory) -> set[int]:
    """The rooms of the prefill rank that are another decode group's than this rank's, as far as it knows."""
    group = node.own.group(node.index)
    return {k for k, room in (*p.rank[0], *p.rank[1]) if room.facts.claim.group not in (0, group)}


def _mark(d: DNode) -> Mark:
    for _, _, round_, offset, *_ in d.rank[5]:
        return round_, offset
    round_, head, *_ = d.rank[4]
    return round_, head


def _all_there(d: DNode, k: int, p: int, node: DecodeMemory) -> bool:
    return all(node.has_part(d, k, chunk, p) for chunk, writers in enumerate(node.writers_of) if p in writers)


# ------------------------------------------------------------------------------------------------ both together
def agree(p: PrefillEnd, d: DecodeEnd) -> bool:
    """Whether both ends take the link for up, in the same epoch."""
    return p.up is not None and p.up == d.up


def disagree(p: PrefillEnd, d: DecodeEnd) -> int:
    """Return the ends that take the link for up although the other end does not (mask)."""
    if agree(p, d):
        return 0
    return (0 if p.up is None else PREFILL_ALONE) | (0 if d.up is None else DECODE_ALONE)


def judge_pair(p: PrefillEnd, d: DecodeEnd, at_p: int, at_d: int) -> tuple[str, str] | None:
    """The property that does not hold between these two, if any."""
    if not agree(p, d):
        return None
    if p.mark > d.mark:
        return "S7", f"prefill {at_p} has seen the watermark {p.mark}; it is {d.mark}"
    if given := p.at_work & d.given_back:
        k = _first(given)
        return "S4", f"decode {at_d} has given the pages of room {k} back, and prefill {at_p} is at work on it"
    if owed := p.succeeded & d.lacking:
        return "S6", f"prefill {at_p} has success for room {_first(owed)}, decode {at_d} has not all of it"
    return None


def _first(rooms: int) -> int:
    return (rooms & -rooms).bit_length() - 1


def unanswered(p: PrefillEnd, d: DecodeEnd, at_p: int, at_d: int) -> Unrest:
    """Find a send that waits for a message of this link although none is under way. Unless one was lost,
    it was never sent, and nothing but a timer helps (L3).
    """
    if not agree(p, d):
        return None
    for send in p.waiting:
        told = send.state in QUEUED and (send.room, send.chunk, QUEUED[send.state]) in d.queued
        if send.state is PSend.AWAIT_WATERMARK:
            told = not usable(send.round, send.end, d.mark)
        if not told:
            what = f"a send of room {send.room} from prefill {at_p} to decode {at_d} waits"
            return "L3", f"{what} in {send.state.name}, and nobody will tell it anything"
    return None
