"""Reasons of failed rooms, in words: the cause, and what this rank knows about it.

The rank where a write, a gather or a scatter failed has the library's sentence.  The sentence travels beside the cause
with the name of that rank (`blames`), so all other ranks quote it, whichever rank notified them.
"""

from __future__ import annotations

from kvproto.endpoint.explain import link_of, owing, unlinked
from kvproto.observe.logs import short
from kvproto.protocol import effects as do
from kvproto.protocol.messages import Blame
from kvproto.protocol.states import Cause
from kvproto.rank.base import Rank

#: what was known of a room before its end: the cause that it would be, and the sentence
Fault = tuple[Cause, str]

WORDS = {
    Cause.PREFILL_ABORTED: "the prefill engine gave the room up",
    Cause.DECODE_ABORTED: "the decode engine gave the room up",
    Cause.NEVER_OPENED: "the prefill engine did not open the room in time",
    Cause.PEERS_MISSING: "the decode ranks did not all open the room in time",
    Cause.STALLED: "nothing moved for too long",
    Cause.NO_ANSWER: "the other side did not answer",
    Cause.LINK_LOST: "a link was lost",
    Cause.REFUSED: "the two sides cannot work together",
    Cause.PLAN_MISMATCH: "the two engines named different lengths or prefixes for the room",
    Cause.WRITE_FAILED: "a write failed or did not end in time",
    Cause.KERNEL_FAILED: "a gather or a scatter failed or did not end in time",
    Cause.FORGOTTEN: "the other side no longer knew the room",
    Cause.NOT_ENTITLED: (
        "the prefill engine opened the room for another group or with another secret, or another group asked first"
    ),
    Cause.DISCONNECTED: "the decode engine let go of the prefill group",
    Cause.DECLINED: "the prefill engine said no to the room",
    Cause.AUX_MISSING: "every chunk is in place, and the aux row did not come in time",
    Cause.CLOSED: "a rank of the other side was closed",
}
#: where the rank that it was about is known; {why}: of its link; {tokens}: that this engine named
ABOUT = {
    Cause.NO_ANSWER: "{peer} did not answer",
    Cause.LINK_LOST: "the link to {peer} was lost",
    Cause.REFUSED: "there is no link to {peer}: {why}",
    Cause.PLAN_MISMATCH: "{peer} named another length or prefix for the room than this engine with {tokens} tokens",
    Cause.WRITE_FAILED: "the write to {peer} failed or did not end in time",
    Cause.KERNEL_FAILED: "the gather for {peer} failed or did not end in time",
    Cause.FORGOTTEN: "{peer} no longer knew the room",
    Cause.CLOSED: "{peer} was closed",
}
#: what comes of an aux row that a rank owes
OWED = frozenset({Cause.AUX_MISSING})
#: what may come of a link that there is not
UNLINKED = frozenset({Cause.NO_ANSWER, Cause.PEERS_MISSING, Cause.STALLED})


def reason(
    rank: Rank, effect: do.AnnounceOutcome, fault: Fault | None, blame: Blame | None = None, tokens: int = 0
) -> str:  # fmt: skip
    """One sentence of at most `LONGEST` characters; empty for a room that succeeded.

    Args:
        rank: the rank that is told the outcome
        effect: the outcome
        fault: what went wrong first on this rank
        blame: the rank that the failure began on, if it began elsewhere
        tokens: the length of the prompt, as this engine named it

    """
    cause = effect.cause
    if not cause:
        return ""
    peer = f"{rank.other_side} rank {effect.peer}"
    if not effect.told and fault is not None and fault[0] is cause:
        return short(fault[1])
    if blame is not None:
        return short(f"{blame.side} rank {blame.rank} said: {blame.why or WORDS[cause]}")
    if effect.told:
        return f"{peer} said: {WORDS[cause]}"
    if effect.peer >= 0 and cause in ABOUT:
        why = link_of(rank, effect.room, effect.peer).why
        return short(ABOUT[cause].format(peer=peer, why=why, tokens=tokens))
    if cause in OWED:
        return short(f"{WORDS[cause]}: {owing(rank, effect.room)}; Timing.aux bounds the wait")
    missing = unlinked(rank, effect.room) if cause in UNLINKED else ""
    return short(f"{WORDS[cause]}: there is no link to {missing}") if missing else WORDS[cause]
