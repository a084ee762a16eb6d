"""Rooms: invariants between the two rooms of a request, a prefill rank's and a decode rank's, and
their link.

Ranks, room, chunk and epochs are any ones.  Each end of the link is up in some epoch or down (0), and changes by itself:
a prefill rank gives a new epoch when it has lost the one before, and its rooms have heard of the loss (prefill_link: its
S4); a decode rank takes up an epoch that was given, later than any that it had (decode_link: its
S6).  What is said in an epoch is heard in that epoch alone (the ranks' edge), in any order, as often as it likes.  Rooms
that are over may be forgotten, and either rank may begin a new life, in which it knows of none, at any time.

So a decode rank that has failed a room, and given its pages back, knows of a prefill rank either that it has drained, or
that the epoch in which it opened the room there is over.  In neither case is anybody at work on it who would hear what it
says: who is confirmed by a decode rank that has forgotten the room works on one that had success (S4, S5).  And when a
decode rank has success, every part of every chunk is in place, whichever prefill rank was to write it (S6): what it counts
as landed its grants have told, and they tell what is in place (`lands_when_in_place`, between the ends).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import Claim
from kvproto.protocol.kinds import ChunkSet, RankMask
from kvproto.protocol.messages import AuxAck, ChunkAck, Drained, Open
from kvproto.protocol.states import DRoom, PRoom
from kvproto.protocol.tables.decode_room import DRoomValue
from kvproto.verify.claims.decode_room import chunks_of, writers_of
from kvproto.verify.claims.prefill_room import meant
from kvproto.verify.framework.claims import Step, among


class Link(msgspec.Struct, frozen=True, gc=False):
    """Both ends of the link, and what was ever said: epochs, of which 0 is none.

    `given`: the latest that the prefill rank has given, `theirs`: in which its end is up; `taken`: the latest that the
    decode rank has taken up, `ours`: in which its end is up; `opened`: in which it has said OPEN.  `drained`: it was told
    that the room has; `forgotten`, `failed`: it has forgotten the room, and that failed.  Of the chunk: `in_place`: every
    byte of this writer's part is; `landed`: the grant has told so.
    """

    given: int = 0
    theirs: int = 0
    taken: int = 0
    ours: int = 0
    opened: int = 0
    drained: bool = False
    forgotten: bool = False
    failed: bool = False
    in_place: bool = False
    landed: bool = False


class PEnd(msgspec.Struct, frozen=True, gc=False):
    """A prefill rank's room as the other end's steps see it; a claim is read as `facts.claim`."""

    state: PRoom
    peers: RankMask
    facts: PFacts


class PFacts(msgspec.Struct, frozen=True, gc=False):
    """As `RequestFacts`."""

    claim: Claim


class DEnd(msgspec.Struct, frozen=True, gc=False):
    """A decode rank's room as the other end's steps see it; its prefill ranks are `terms.everyone`."""

    state: DRoom
    peers: RankMask
    terms: DTerms


class DTerms(msgspec.Struct, frozen=True, gc=False):
    """As `Terms`."""

    everyone: RankMask


class Rooms(msgspec.Struct, frozen=True, gc=False):
    """The two rooms `p` and `d`, each a value or its end, and the chunks that landed.

    `peer`: the prefill rank, `reader`: the decode rank, `claim`: as whose the decode rank speaks; `chunk`: any chunk.
    """

    p: Any
    d: Any
    landed: ChunkSet
    link: Link
    peer: int
    reader: int
    claim: Claim
    chunk: int


class Chance(msgspec.Struct, frozen=True, gc=False):
    """A step of the link: the epoch that the decode rank takes up, and whether its end is lost."""

    epoch: int
    lost: bool


def _set(*states: IntEnum) -> int:
    return sum(1 << state for state in states)


#: sets of states
P_BEGUN = _set(PRoom.AWAIT_ENGINE, PRoom.AWAIT_PEERS, PRoom.AWAIT_FORWARD, PRoom.OPEN)
P_OVER = _set(PRoom.DONE, PRoom.FAILED, PRoom.ABORTED)
D_BEGUN = _set(DRoom.ANNOUNCED, DRoom.AWAIT_PEERS, DRoom.OPEN, DRoom.AWAIT_AUX)
D_FAILED = _set(DRoom.FAILED, DRoom.ABORTED)
D_OVER = _set(DRoom.DONE) | D_FAILED
D_SETTLED = _set(DRoom.SETTLING) | D_FAILED
D_LOST = _set(DRoom.DRAINING) | D_SETTLED
NOT_KNOWN = DEnd(DRoom.UNKNOWN, 0, DTerms(0))
Fact = Callable[[Rooms], bool]


def follow(r: Rooms, step: Step, chance: Chance) -> Link:
    """The link after a step of either room: what is said in it is said in the epoch of that time."""
    link, event = r.link, step.event
    at_d = isinstance(step.after, DRoomValue)
    if isinstance(event, ev.LinkCameUp) and event.peer == r.peer:
        link = replace(link, ours=chance.epoch, taken=chance.epoch)
    if isinstance(event, ev.LinkWentDown) and event.peer == (r.peer if at_d else r.reader):
        if not at_d:
            link = replace(link, theirs=0)
        elif chance.lost:
            link = replace(link, ours=0)
    for effect in step.effects:
        if isinstance(effect, do.Send) and isinstance(effect.body, Open) and among(r.peer, effect.peers) and link.ours:
            link = replace(link, opened=link.ours)
        if isinstance(effect, do.Send | do.Reply) and isinstance(effect.body, Drained):
            told = among(r.reader, effect.peers) if isinstance(effect, do.Send) else bool(event.peer == r.reader)
            link = replace(link, drained=True) if told else link
    return link


def at_work(r: Rooms) -> bool:
    """The prefill rank is at work on the room, with this decode rank."""
    return among(r.p.state, P_BEGUN) and among(r.reader, r.p.peers)


def deaf(link: Link) -> bool:
    """The decode rank hears nothing that is said in the epoch in which it has opened the room."""
    return link.ours != link.opened or link.opened == 0


# --------------------------------------------------------------------------------------- the invariant
def epochs_are_counted(r: Rooms) -> bool:
    """An end is up in the latest epoch that it knows, or down. The decode rank takes up only epochs that
    were given, and opens the room only in such.
    """
    link = r.link
    ends = link.ours in (0, link.taken) and link.theirs in (0, link.given)
    return ends and link.opened >= 0 and link.opened <= link.taken and link.taken <= link.given


def opens_in_one_epoch(r: Rooms) -> bool:
    """A begun room was opened in the epoch in which the link is up: it ends with the link. The exception
    is a room that a replaced rank has not confirmed, which is opened anew when the link is up.
    """
    waits = r.link.ours == 0 and r.d.state == DRoom.AWAIT_PEERS and not among(r.peer, r.d.peers)
    begun = among(r.d.state, D_BEGUN) and not waits
    fresh = r.d.state == DRoom.ANNOUNCED or (r.d.state == DRoom.UNKNOWN and not r.link.forgotten)
    return (not begun or r.link.opened in (0, r.link.ours)) and (not fresh or r.link.opened == 0)


def works_in_the_epoch_of_the_open(r: Rooms) -> bool:
    """A prefill rank at work was opened in the epoch in which its end is up: its work ends with it."""
    return not at_work(r) or (r.link.theirs == r.link.opened and r.link.opened > 0)


def works_for_whom_it_is_meant(r: Rooms) -> bool:
    """The room that is at work with a decode rank is claimed as that one claims it."""
    return not at_work(r) or bool(r.p.facts.claim == r.claim)


def drained_is_not_at_work(r: Rooms) -> bool:
    """A prefill rank that has reported drained is not at work."""
    return not r.link.drained or not at_work(r)


def is_one_of_its_ranks(r: Rooms) -> bool:
    """The prefill rank is one of those that the room has."""
    return not among(r.d.state, D_BEGUN | D_LOST) or among(r.peer, r.d.terms.everyone)


def who_is_not_waited_for_cannot_be_heard(r: Rooms) -> bool:
    """A prefill rank on which a failed room does not wait has drained, or is not heard."""
    return not among(r.d.state, D_LOST) or among(r.peer, r.d.peers) or bool(r.link.drained) or deaf(r.link)


def who_has_settled_waits_for_nobody(r: Rooms) -> bool:
    """A room that settles, or has failed, waits for no prefill rank."""
    return not among(r.d.state, D_SETTLED) or not among(r.peer, r.d.peers)


def what_failed_and_is_forgotten_cannot_be_heard(r: Rooms) -> bool:
    """The prefill rank of a failed and forgotten room has drained, or is not heard."""
    return not r.link.failed or bool(r.link.drained) or deaf(r.link)


def forgotten_is_unknown(r: Rooms) -> bool:
    """A room that is forgotten is not known, and only one that is forgotten has failed and is not known."""
    return (not r.link.forgotten or r.d.state == DRoom.UNKNOWN) and (not r.link.failed or bool(r.link.forgotten))


def landed_is_in_place(r: Rooms) -> bool:
    """A chunk that the room counts as landed was reported by its grant, and is in place."""
    known = not among(r.d.state, D_BEGUN | _set(DRoom.DONE)) or not among(r.chunk, r.landed) or bool(r.link.landed)
    return known and (not r.link.landed or bool(r.link.in_place))


INVARIANT: tuple[Fact, ...] = (
    epochs_are_counted, opens_in_one_epoch, works_in_the_epoch_of_the_open, works_for_whom_it_is_meant,
    drained_is_not_at_work, is_one_of_its_ranks, who_is_not_waited_for_cannot_be_heard, who_has_settled_waits_for_nobody,
    what_failed_and_is_forgotten_cannot_be_heard, forgotten_is_unknown, landed_is_in_place,
)  # fmt: skip


# -------------------------------------------------------------------------------------- the assumptions
def opens_with_its_ranks(r: Rooms, event: Any, chance: Chance) -> bool:
    """The prefill rank is one of the room's (the plan, by which both sides count)."""
    return not isinstance(event, ev.RoomOpened | ev.RoomAnnounced) or among(r.peer, event.terms.everyone)


def is_opened_once(r: Rooms, event: Any, chance: Chance) -> bool:
    """A decode engine does not open a room that was opened before (engine: a new attempt needs a new gen)."""
    return not isinstance(event, ev.RoomOpened | ev.RoomAnnounced) or not r.link.forgotten


def an_open_comes_in_its_epoch(r: Rooms, event: Any, chance: Chance) -> bool:
    """An OPEN comes in the epoch of its sending, with its sender's claim (the ranks' edge: its S9)."""
    if not isinstance(event, ev.PeerOpened) or event.peer != r.reader:
        return True
    return r.link.theirs == r.link.opened and r.link.opened > 0 and bool(event.claim == r.claim)


def who_opens_is_a_party(r: Rooms, event: Any, chance: Chance) -> bool:
    """A caller that speaks of a begun room has the room's claim (rank: `_sender_fact`; the ranks' edge:
    its S9).
    """
    speaks = isinstance(event, ev.PeerOpened | ev.PeerAnnounced | ev.AbortAsked)
    return not speaks or not among(r.p.state, P_BEGUN) or meant(r.p.facts.claim, event.claim)


def speaks_for_a_group(r: Rooms, event: Any, chance: Chance) -> bool:
    """A decode rank is of a decode group, whose number is not 0 (codec: a HELLO of group 0 is no message)."""
    return r.claim.group > 0


def no_open_comes_after_the_end(r: Rooms, event: Any, chance: Chance) -> bool:
    """No OPEN opens a room anew of which its decode rank knows that it drained (links: in order; settings:
    tombstones that outlive what is under way).
    """
    if not isinstance(event, ev.PeerOpened) or event.peer != r.reader or not r.link.drained:
        return True
    return not among(r.p.state, P_BEGUN | _set(PRoom.UNKNOWN))


def drained_comes_if_it_was_said(r: Rooms, event: Any, chance: Chance) -> bool:
    """A report that the prefill rank has drained comes only if it was sent."""
    return not isinstance(event, ev.PeerDrained) or event.peer != r.peer or bool(r.link.drained)


def is_quiet_while_the_link_is_down(r: Rooms, event: Any, chance: Chance) -> bool:
    """A prefill rank is reported quiet while the link is down (decode_link: its S4), or after it drained."""
    quiet = isinstance(event, ev.PeerQuiet) and event.peer == r.peer
    return not quiet or bool(r.link.drained) or r.link.ours == 0


def a_link_comes_up_anew(r: Rooms, event: Any, chance: Chance) -> bool:
    """A link comes up that was down, in an epoch that was given, later than any that it had."""
    if not isinstance(event, ev.LinkCameUp) or event.peer != r.peer:
        return True
    return r.link.ours == 0 and r.link.taken < chance.epoch and chance.epoch <= r.link.given


def confirms_by_a_link_that_is_up(r: Rooms, event: Any, chance: Chance) -> bool:
    """A prefill rank confirms a room by a link that is up (the ranks' edge: its S9)."""
    return not isinstance(event, ev.PeerReady) or event.peer != r.peer or r.link.ours != 0


def landed_comes_if_it_was_told(r: Rooms, event: Any, chance: Chance) -> bool:
    """A report that the chunk has landed comes only from its grant (decode_grant: its S6)."""
    return not isinstance(event, ev.ChunkLanded) or event.chunk != r.chunk or bool(r.link.landed)


ASSUMED: tuple[Callable[[Rooms, Any, Chance], bool], ...] = (
    opens_with_its_ranks, is_opened_once, an_open_comes_in_its_epoch, who_opens_is_a_party, speaks_for_a_group,
    no_open_comes_after_the_end, drained_comes_if_it_was_said, is_quiet_while_the_link_is_down,
    a_link_comes_up_anew, confirms_by_a_link_that_is_up, landed_comes_if_it_was_told,
)  # fmt: skip


# ------------------------------------------------------------------- what happens beside the rooms' own steps
def loses_its_end_p(r: Rooms, chance: Chance) -> Rooms | None:
    """The prefill rank's end is lost; a room at work for the decode rank is told (rank: `_raise_down`), a
    step of its own.
    """
    return None if at_work(r) else replace(r, link=replace(r.link, theirs=0))


def gives_an_epoch(r: Rooms, chance: Chance) -> Rooms | None:
    """The prefill rank's end comes up again, in an epoch that is new."""
    new = r.link.given + 1
    return replace(r, link=replace(r.link, given=new, theirs=new)) if r.link.theirs == 0 else None


def loses_its_end_d(r: Rooms, chance: Chance) -> Rooms | None:
    """The decode rank's end is lost; a begun room is told (rank: `_raise_down`), a step of its own."""
    return None if among(r.d.state, D_BEGUN) else replace(r, link=replace(r.link, ours=0))


def takes_an_epoch(r: Rooms, chance: Chance) -> Rooms | None:
    """The decode rank's end comes up; a room that is not over is told (rank: `_raise_up`), a step of its
    own.
    """
    idle, anew = (
        among(r.d.state, D_OVER | _set(DRoom.UNKNOWN)),
        r.link.taken < chance.epoch and chance.epoch <= r.link.given,
    )
    if not idle or r.link.ours != 0 or not anew:
        return None
    return replace(r, link=replace(r.link, taken=chance.epoch, ours=chance.epoch))


def forgets_d(r: Rooms, chance: Chance) -> Rooms | None:
    """The decode rank forgets a room that is over."""
    if not among(r.d.state, D_OVER):
        return None
    link = replace(r.link, forgotten=True, failed=r.d.state != DRoom.DONE)
    return replace(r, d=NOT_KNOWN, link=link)


def forgets_p(r: Rooms, chance: Chance) -> Rooms | None:
    """The prefill rank forgets a room that is over."""
    return replace(r, p=replace(r.p, state=PRoom.UNKNOWN)) if among(r.p.state, P_OVER) else None


def begins_anew_d(r: Rooms, chance: Chance) -> Rooms | None:
    """The decode rank begins a new life: what it had not finished has failed."""
    failed = bool(r.link.failed) or (not r.link.forgotten and r.d.state != DRoom.DONE)
    return replace(r, d=NOT_KNOWN, link=replace(r.link, ours=0, forgotten=True, failed=failed))


def begins_anew_p(r: Rooms, chance: Chance) -> Rooms | None:
    """The prefill rank begins a new life."""
    return replace(r, p=replace(r.p, state=PRoom.UNKNOWN), link=replace(r.link, theirs=0))


def tells_another(r: Rooms, chance: Chance) -> Rooms | None:
    """A rank that asks for a room with another claim is told that it has drained, at the ranks' edge
    (`taken`).
    """
    known = r.p.state != PRoom.UNKNOWN and not meant(r.p.facts.claim, r.claim)
    return replace(r, link=replace(r.link, drained=True)) if known else None


def comes_to_its_place(r: Rooms, chance: Chance) -> Rooms | None:
    """The last byte of the part comes to its place."""
    return replace(r, link=replace(r.link, in_place=True))


def tells_that_it_has_landed(r: Rooms, chance: Chance) -> Rooms | None:
    """The chunk's grant tells that it has landed (between the ends: `lands_when_in_place`)."""
    return replace(r, link=replace(r.link, landed=True)) if r.link.in_place else None


MOVES: tuple[Callable[[Rooms, Chance], Rooms | None], ...] = (
    loses_its_end_p, gives_an_epoch, loses_its_end_d, takes_an_epoch, forgets_d, forgets_p, begins_anew_d, begins_anew_p,
    tells_another, comes_to_its_place, tells_that_it_has_landed,
)  # fmt: skip


# ---------------------------------------------------------------------------------------- the promises
def is_not_at_work_on_what_was_given_back(before: Rooms, after: Rooms, step: Step | None) -> bool:
    """No prefill rank works, in the epoch that the decode rank hears, on a room that failed and was given
    back.
    """
    over = among(after.d.state, D_FAILED) or bool(after.link.failed)
    return not over or not at_work(after) or after.link.theirs != after.link.ours


def confirms_what_had_success(before: Rooms, after: Rooms, step: Step | None) -> bool:
    """A prefill rank that a decode rank confirms without knowing the room works on a forgotten success."""
    if step is None or before.d.state != DRoom.UNKNOWN or not isinstance(step.after, DRoomValue):
        return True
    acks = [each for each in step.all_of(do.Reply) if isinstance(each.body, ChunkAck | AuxAck)]
    heard = bool(acks) and at_work(after) and after.link.theirs == after.link.ours
    return not heard or (bool(after.link.forgotten) and not after.link.failed)


def success_is_in_place(before: Rooms, after: Rooms, step: Step | None) -> bool:
    """When decode's engine learns of success, every byte of every part of every chunk is in place."""
    if step is None or not isinstance(step.after, DRoomValue) or not step.all_of(do.AnnounceOutcome):
        return True
    room = step.after
    if room.state is not DRoom.DONE:
        return True
    owed = among(after.chunk, chunks_of(room)) and among(after.peer, writers_of(room, after.chunk))
    return not owed or bool(after.link.in_place)


PROMISES: tuple[tuple[str, Callable[[Rooms, Rooms, Step | None], bool]], ...] = (
    ("S4", is_not_at_work_on_what_was_given_back), ("S5", confirms_what_had_success), ("S6", success_is_in_place),
)  # fmt: skip
