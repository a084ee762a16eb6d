"""Link invariants: properties that only both ends of a link together can show."""

from __future__ import annotations

from typing import Any

from kvproto.protocol.ring import usable
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


def agree(p: Any, d: Any, at_p: int, at_d: int) -> bool:
    """Whether both ends take the link for up, in the same epoch."""
    ours, theirs = _ends(p, d, at_p, at_d)
    up = ours is not None and theirs is not None and ours.state is PLink.UP and theirs.state is DLink.UP
    return bool(up and ours.epoch == theirs.epoch)


def _ends(p: Any, d: Any, at_p: int, at_d: int) -> tuple[Any, Any]:
    """The link's two values; None: there is none there, or nobody."""
    ours = link_to(p, at_d) if isinstance(p, PNode) else None
    return ours, d.rank[2][at_p] if isinstance(d, DNode) else None


def link_to(p: PNode, at_d: int) -> Any:
    """Return the prefill rank's link to this decode rank (None: there is none); namesakes share one."""
    own, place = p.rank[2][at_d], b"D%d" % at_d
    if own is not None and own.place == place:
        return own
    return next((each for each in p.rank[2] if each is not None and each.place == place), None)


def disagree(p: Any, d: Any, at_p: int, at_d: int) -> int:
    """Return the ends that take the link for up although the other end does not (mask)."""
    if agree(p, d, at_p, at_d):
        return 0
    ours, theirs = _ends(p, d, at_p, at_d)
    up_p = ours is not None and ours.state is PLink.UP
    up_d = theirs is not None and theirs.state is DLink.UP
    return (PREFILL_ALONE if up_p else 0) | (DECODE_ALONE if up_d else 0)


def judge_pair(p: Any, d: Any, at_p: int, at_d: int, node: DecodeMemory) -> tuple[str, str] | None:
    """The property that does not hold between these two, if any."""
    if not isinstance(p, PNode) or not isinstance(d, DNode):
        return None
    ours, theirs = _ends(p, d, at_p, at_d)
    if ours is None or theirs is None or ours.epoch != theirs.epoch:
        return None
    if ours.state is not PLink.UP or theirs.state is not DLink.UP:
        return None
    true, member = _mark(d), node.others.member(at_p)
    if (ours.mark_round, ours.mark_tail) > true:
        return "S7", f"prefill {at_p} has seen the watermark {ours.mark_round, ours.mark_tail}; it is {true}"
    others = _anothers(p, node)
    for k, room in p.rank[0]:
        at_work = k not in others and room.state in ALIVE and room.peers >> node.member & 1
        if at_work and d.outcome[k] == FAILURE and d.released[k]:
            return "S4", f"decode {at_d} has given the pages of room {k} back, and prefill {at_p} is at work on it"
    if member not in node.writers:
        return None
    for k, outcome in enumerate(p.outcome):
        owed = outcome == SUCCESS and d.script[k] == 1 and d.outcome[k] != FAILURE and k not in others
        if owed and not _all_there(d, k, member, node):
            return "S6", f"prefill {at_p} has success for room {k}, decode {at_d} has not all of it"
    return None


def _anothers(p: Any, node: DecodeMemory) -> set[int]:
    """The rooms of the prefill rank that are another decode group's than this rank's, as far as it knows."""
    group = node.own.group(node.index)
    return {k for k, room in (*p.rank[0], *p.rank[1]) if room.facts.claim.group not in (0, group)}


def unanswered(p: Any, d: Any, at_p: int, at_d: int, node: DecodeMemory) -> Unrest:
    """Find a send that waits for a message of this link although none is under way. Unless one was lost,
    it was never sent, and nothing but a timer helps (L3).
    """
    if not agree(p, d, at_p, at_d):
        return None
    grants, mark = {k: dict(group) for k, group in d.rank[3]}, _mark(d)
    theirs = set(node.mine) - _anothers(p, node)
    sends = ((k, at, send) for k, parts in p.rank[4] if k in theirs for at, send in parts)
    for k, at, send in sends:
        if at & 0xFFFF == node.member:
            grant = grants.get(k, {}).get(at >> 16)
            at_decode = grant.state if grant is not None else DGrant.NEW
            told = send.state not in QUEUED or at_decode is QUEUED[send.state]
            if send.state is PSend.AWAIT_WATERMARK:
                told = not usable(send.round, send.end, mark)
            if send.state in ASKING or not told:
                what = f"a send of room {k} from prefill {at_p} to decode {at_d} waits"
                return "L3", f"{what} in {send.state.name}, and nobody will tell it anything"
    return None


def _mark(d: DNode) -> tuple[int, int]:
    for _, _, round_, offset, *_ in d.rank[5]:
        return round_, offset
    round_, head, *_ = d.rank[4]
    return round_, head


def _all_there(d: DNode, k: int, p: int, node: DecodeMemory) -> bool:
    return all(node.has_part(d, k, chunk, p) for chunk in range(node.config.sends))
