"""Ends: invariants between the two ends of a chunk: a prefill rank's send, its grant, and the network.

Room, chunk and writer are any ones, so what holds of this send and this grant holds of all, side by side: messages name
room, generation and chunk, and reach no other machine (the ranks' edge, and keys; what is left of that is
`messages_by_key`).  The network loses, doubles, delays and mixes up: what was ever said may come at any time
(`Net`), and comes only if it was said.  `in_place` says that every byte of the part is where it was to go; where writes
carry their own notification, the decode rank may know it before the prefill rank does.

A write is taken for under way from the moment that the send begins it until it has said that it is over (`prefill_write`
proves that it says so only when no byte can move).  The decode rank's room lets the grant drain when this send has ended;
where its rank is gone instead, no byte is under way any more either (`lost-link`, of leases: docs/prove.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import PagesReq, StagingReq, StgNotify
from kvproto.protocol.states import DGrant, PSend
from kvproto.protocol.tables.decode_grant import DGrantValue
from kvproto.protocol.tables.prefill_send import PSendValue
from kvproto.verify.claims import decode_grant, prefill_send
from kvproto.verify.framework.claims import Step, among


class Net(msgspec.Struct, frozen=True, gc=False):
    """Everything that was ever sent.

    `asked`, `asked_pages`, `notified` by the writer, `paged` of a write into pages; `region` (0: none) and `pages` to
    it.
    """

    asked: bool = False
    asked_pages: bool = False
    notified: bool = False
    paged: bool = False
    region: int = 0
    pages: bool = False
    in_place: bool = False
    drained: bool = False


class Ends(msgspec.Struct, frozen=True, gc=False):
    """The send and the grant, each with its witness, the writer's number, and the network between them."""

    send: PSendValue
    sent: prefill_send.Seen
    grant: DGrantValue
    held: decode_grant.Seen
    peer: int
    net: Net


#: states in which a send may yet write into the ring
RING = (
    PSend.AWAIT_KV, PSend.AWAIT_CREDIT, PSend.AWAIT_GRANT, PSend.AWAIT_WRITERS, PSend.AWAIT_TURN, PSend.AWAIT_WATERMARK,
    PSend.AWAIT_SLOT, PSend.GATHERING, PSend.WRITING,
)  # fmt: skip
REGION = (PSend.AWAIT_WATERMARK, PSend.AWAIT_SLOT, PSend.GATHERING, PSend.WRITING)
OVER = (PSend.DONE, PSend.STOPPED)
#: it will write into pages, and has told nobody of the part
BEFORE_PAGES = (PSend.AWAIT_PAGES, PSend.AWAIT_PAGES_KV, PSend.AWAIT_PERMIT)
#: it knows its pages, and has told nobody of a part in them
KNOWS_PAGES = (PSend.AWAIT_PAGES_KV, PSend.AWAIT_PERMIT, PSend.WRITING_PAGES)
#: states of a grant that has no region yet
WAITS = (DGrant.AWAIT_WRITERS, DGrant.AWAIT_SPACE)
HELD = (DGrant.FILLING, DGrant.QUARANTINED)
Fact = Callable[[Ends], bool]


def follow(ends: Ends, step: Step) -> Net:
    """Record what this step of either end sends."""
    net = ends.net
    for effect in step.effects:
        body = getattr(effect, "body", None)
        if isinstance(body, StagingReq):
            net = replace(net, asked=True)
        elif isinstance(body, PagesReq):
            net = replace(net, asked_pages=True)
        elif isinstance(body, StgNotify):
            net = replace(net, notified=True, paged=bool(net.paged) or body.grant == 0)
        elif isinstance(effect, do.SendGrant) and among(ends.peer, effect.peers):
            net = replace(net, region=effect.grant)
        elif isinstance(effect, do.TransmitPages) and step.event.peer == ends.peer:
            net = replace(net, pages=True)
    if isinstance(step.event, ev.WriteCompleted):
        net = replace(net, in_place=True)
    return replace(net, drained=True) if isinstance(step.event, ev.RoomDrained) else net


def into_ring(e: Ends) -> bool:
    """A write of the part into the ring is under way, and its bytes are not all in place."""
    return bool(e.sent.writes) and e.sent.region > 0 and not e.net.in_place


# --------------------------------------------------------------------------------------- the invariant
def no_grant_has_nothing(e: Ends) -> bool:
    """A grant that is not there knows of nobody, and has told nothing."""
    g = e.grant
    return g.state != DGrant.NEW or (not g.asked and not g.arrived and not g.by_pages and not e.net.region)


def no_send_has_said_nothing(e: Ends) -> bool:
    """A send that is not there has said nothing, and nothing was written."""
    net, sent = e.net, e.sent
    said = net.asked or net.asked_pages or net.notified or net.paged or net.pages or net.in_place
    return e.send.state != PSend.NEW or (not said and not sent.writes and not sent.touched)


def is_one_of_the_writers(e: Ends) -> bool:
    """The send's rank is one of the chunk's writers."""
    return e.grant.state == DGrant.NEW or among(e.peer, e.held.agreed)


def asked_because_it_said_so(e: Ends) -> bool:
    """The grant counts the writer among those that asked only if it has."""
    return not among(e.peer, e.grant.asked) or bool(e.net.asked or e.net.asked_pages)


def told_its_own_region(e: Ends) -> bool:
    """The region that the writer was sent is the grant's, and was sent because the writer had asked."""
    net, g = e.net, e.grant
    own = g.state not in WAITS and g.grant == net.region
    return not net.region or (own and bool(net.asked or net.asked_pages))


def sends_to_the_region_it_was_told(e: Ends) -> bool:
    """The region that the send has is the one that was told."""
    return e.send.state not in REGION or (e.net.region > 0 and e.send.grant == e.net.region)


def writes_where_it_was_told(e: Ends) -> bool:
    """A write into the ring goes into the region that was told, and its rank has not asked for the pages."""
    staged = bool(e.sent.writes) and e.sent.region > 0
    return not staged or (e.sent.region == e.net.region and not e.net.asked_pages)


def pages_are_for_good(e: Ends) -> bool:
    """A writer that has asked for the pages does not go back to the ring."""
    return not e.net.asked_pages or (e.send.state not in RING and e.send.state != PSend.NEW)


def given_up_by_itself(e: Ends) -> bool:
    """A writer goes by pages because it has asked for them, or was never told a region."""
    return not among(e.peer, e.grant.by_pages) or bool(e.net.asked_pages) or not e.net.region


def arrived_is_in_place(e: Ends) -> bool:
    """A part that the grant counts as arrived is in place, every byte of it."""
    return not among(e.peer, e.grant.arrived) or bool(e.net.in_place)


def untold_has_not_arrived(e: Ends) -> bool:
    """A part of which nobody was told is not counted as arrived, whatever became of its staged write."""
    return not _untold(e) or not among(e.peer, e.grant.arrived)


def _untold(e: Ends) -> bool:
    """The send has told nobody of the part, and no write of it does, or did before it failed."""
    at = e.send.state
    told = bool(e.send.told) and not e.net.pages
    return (at in BEFORE_PAGES and not told) or (at in RING and not (at == PSend.WRITING and bool(e.send.native_notify)))


def pages_were_named(e: Ends) -> bool:
    """A send that knows its pages was told them, and has told nobody that a part is in them."""
    net, at = e.net, e.send.state
    return at not in KNOWS_PAGES or (bool(net.pages) and not net.paged)


def pages_are_named_once_given_up(e: Ends) -> bool:
    """Pages are named to a writer that has given the ring up, and whose part is in no region."""
    net, g = e.net, e.grant
    return not net.pages or (among(e.peer, g.by_pages) and (not among(e.peer, g.arrived) or bool(net.paged)))


def paged_was_named(e: Ends) -> bool:
    """A part that was told to be in pages is, and nothing more is asked for."""
    return not e.net.paged or (bool(e.net.notified) and e.send.state not in (*RING, *BEFORE_PAGES, PSend.WRITING_PAGES))


def acked_is_in_place(e: Ends) -> bool:
    """A part that was confirmed is in place."""
    return not e.sent.acked or bool(e.net.in_place) or bool(e.sent.row)


def notified_is_in_place(e: Ends) -> bool:
    """Every part that the writer has notified is in place."""
    return not e.net.notified or bool(e.net.in_place)


def in_place_was_written(e: Ends) -> bool:
    """Every part in place was written: its write is under way yet, or has ended."""
    return not e.net.in_place or bool(e.sent.writes) or bool(e.sent.touched)


def complete_is_in_place(e: Ends) -> bool:
    """Every part that the send knows to be complete is in place."""
    return not e.sent.complete or bool(e.net.in_place)


def drained_is_over(e: Ends) -> bool:
    """A room that has drained has no send."""
    return not e.net.drained or e.send.state in OVER or e.send.state == PSend.NEW


def the_region_is_held(e: Ends) -> bool:
    """The grant holds a region that its writer may write, or does write, until every byte is in place."""
    may = e.send.state in RING or (bool(e.sent.writes) and e.sent.region > 0)
    return not may or not e.net.region or bool(e.net.in_place) or e.grant.state in HELD


INVARIANT: tuple[Fact, ...] = (
    no_grant_has_nothing, no_send_has_said_nothing, is_one_of_the_writers, asked_because_it_said_so, told_its_own_region,
    sends_to_the_region_it_was_told, writes_where_it_was_told, pages_are_for_good, given_up_by_itself,
    arrived_is_in_place, untold_has_not_arrived, pages_were_named, pages_are_named_once_given_up, paged_was_named,
    acked_is_in_place, notified_is_in_place, in_place_was_written, complete_is_in_place, drained_is_over,
    the_region_is_held,
)  # fmt: skip


# -------------------------------------------------------------------------------------- the assumptions
def comes_if_it_was_said(e: Ends, event: Any) -> bool:
    """A message comes only if it was said; who else asks is another writer."""
    net = e.net
    match event:
        case ev.StagingGranted():
            return net.region > 0 and event.grant == net.region
        case ev.StagingRequested():
            return event.peer != e.peer or bool(net.asked)
        case ev.PagesRequested():
            return event.peer != e.peer or bool(net.asked_pages)
        case ev.PagesGranted():
            return bool(net.pages)
        case ev.PartArrived():
            return event.peer != e.peer or (bool(net.in_place) and (event.grant != 0 or bool(net.paged)))
        case ev.ChunkAcked():
            return bool(net.in_place) or bool(e.sent.row)
    return True


def untold_does_not_arrive(e: Ends, event: Any) -> bool:
    """A part arrives only if it was notified; the notification of a failed staged write may come late."""
    late = bool(e.send.told) and event.grant != 0 if isinstance(event, ev.PartArrived) else False
    return not isinstance(event, ev.PartArrived) or event.peer != e.peer or late or not _untold(e)


def writers_have_sends(e: Ends, event: Any) -> bool:
    """The send's rank is a writer of the plan, by which both sides count."""
    return not isinstance(event, ev.StagingRequested | ev.PagesRequested) or among(e.peer, event.writers)


def drained_when_over(e: Ends, event: Any) -> bool:
    """A grant is told that no rank writes when this send has ended; then no send is opened any more
    (prefill_room: its S4; after a loss: `lost-link`).
    """
    if isinstance(event, ev.RoomDrained):
        return e.send.state in OVER or e.send.state == PSend.NEW
    return not isinstance(event, ev.SendOpened) or not e.net.drained


def lapsed_is_not_in_place(e: Ends, event: Any) -> bool:
    """No byte of a lapsed write is in place (prefill_write: its S2)."""
    return not isinstance(event, ev.WriteLapsed) or not e.net.in_place


ASSUMED: tuple[Callable[[Ends, Any], bool], ...] = (
    comes_if_it_was_said, untold_does_not_arrive, writers_have_sends, drained_when_over, lapsed_is_not_in_place,
)  # fmt: skip


# ---------------------------------------------------------------------------------------- the promises
def lands_in_its_own_region(before: Ends, after: Ends, step: Step) -> bool:
    """Bytes of a staged write land only in a region that the grant holds for this room, chunk and writer."""
    return not into_ring(after) or (after.grant.state in HELD and after.grant.grant == after.sent.region)


def scatters_what_is_in_place(before: Ends, after: Ends, step: Step) -> bool:
    """When the scatter begins, every byte of this writer's part is in place, or the part goes by pages."""
    return not step.all_of(do.LaunchScatter) or bool(after.net.in_place) or among(after.peer, after.grant.by_pages)


def frees_what_is_not_written(before: Ends, after: Ends, step: Step) -> bool:
    """When the region is freed, no write of this writer into it is under way, and none will be."""
    done = after.send.state not in RING or bool(after.net.in_place) or not after.net.region
    return not step.all_of(do.FreeSpace) or (done and not into_ring(after))


def writes_once(before: Ends, after: Ends, step: Step) -> bool:
    """A write begins only for a part that the grant does not count, a staged one if nothing is in place.

    The bytes of a staged write that failed may all be in place: what is written into the pages then is the same part.
    """
    staged, begun = step.all_of(ev.WriteBegun), step.all_of(ev.WriteBegun) or step.all_of(ev.PagesBegun)
    return not (staged and before.net.in_place) and not (begun and among(before.peer, before.grant.arrived))


def lands_when_in_place(before: Ends, after: Ends, step: Step) -> bool:
    """When the chunk is told to have landed, every byte of this writer's part is in place."""
    return not step.all_of(ev.ChunkLanded) or bool(after.net.in_place)


PROMISES: tuple[tuple[str, Callable[[Ends, Ends, Step], bool]], ...] = (
    ("S1", lands_in_its_own_region), ("S2", writes_once), ("S3", scatters_what_is_in_place),
    ("S4", frees_what_is_not_written), ("S5", lands_when_in_place),
)  # fmt: skip
