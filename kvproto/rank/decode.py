"""The decode rank: rooms, grants and the ring.

Beside its machines it owns the ring and the queue for it.  A region is asked for by a grant (`ReserveSpace`), and
answered in the same pass if the ring may promise it and the room holds less than its share (`share`); else the grant
queues (`space_queue`), first come first served but for larger rooms' turns, and a free serves the queue.  When a free
lets regions become usable, their grants are told (`SpaceUsable`), and they tell the writers that wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any

from msgspec import UNSET

from kvproto.errors import ArgumentError
from kvproto.fsm.machine import Machine
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.layout.cut import NO_CUT, Cut
from kvproto.layout.plan import Plan, plan_between
from kvproto.layout.sharding import Layout, LayoutError
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Terms, room_name
from kvproto.protocol.ring import Ring, RingRegion
from kvproto.protocol.routes import ChunkIs, HeardMessage, decode_routes
from kvproto.protocol.states import DLink
from kvproto.protocol.tables.decode_grant import HOLDS, DGrantValue, decode_grant, in_doubt
from kvproto.protocol.tables.decode_room import decode_room
from kvproto.protocol.tables.links import CALLED, DLinkValue, decode_link
from kvproto.rank.base import LinkPeer, Rank, bits, by_room, cut_of, mask
from kvproto.rank.room_turns import RoomTurns
from kvproto.rank.space_queue import ChunkKey, SpaceQueue
from kvproto.rank.value import DecodeValue
from kvproto.settings import Settings

#: looked up once
CHUNKS = len(ChunkIs)


def by_chunk(event: Any) -> Any:
    return event.chunk


class DecodeRank(Rank):
    """One decode rank."""

    ROOM, GRANT, LINK, UP, ROUTES = decode_room, decode_grant, decode_link, DLink.UP, decode_routes

    grants: dict[int, dict[int, DGrantValue]]

    def __init__(
        self, layout: Layout, index: int, *, group: int, chunk_tokens: int, incarnation: int,
        settings: Settings | None = None
    ) -> None:  # fmt: skip
        settings = settings or Settings()
        layout = layout.fitted(settings.ring_bytes // 2, chunk_tokens)
        super().__init__(
            layout, index, group=group, chunk_tokens=chunk_tokens, incarnation=incarnation, settings=settings
        )
        self.grant_machine: Machine[DGrantValue] = self.add("grants", self.GRANT, by_chunk, within=by_room)
        self.ring = Ring(self.settings.ring_bytes, ahead=self.settings.ring_rounds_ahead)
        self.chunk_of: dict[int, tuple[int, int]] = {}
        self.space_queue = SpaceQueue()
        self.space_turns = RoomTurns()
        self.endpoint = b""
        self.inner |= {
            do.StopGrants: self._stop_grants, do.DrainGrants: self._drain_grants, do.ReserveSpace: self._reserve,
            do.CancelSpace: self._cancel, do.FreeSpace: self._free,
            do.SendGrant: self._send_grant, do.SendQueued: self._send_queued, do.SendWatermark: self._send_watermark,
            do.ReplyWatermark: self._reply_watermark, do.TransmitPages: self._leave, do.AskLinks: self._ask_links,
            do.RaiseLinkUp: self._raise_up, do.RaisePeerQuiet: self._raise_quiet,
        }  # fmt: skip

    def value(self) -> DecodeValue:
        """Return all that later steps depend on; the rank and its value share what they hold."""
        return DecodeValue.of(self)

    # ------------------------------------------------------------------------------------------- links
    def call(self, group: int, rank: int, plan: Plan, now: float, address: str = "") -> tuple[int, list[Effect]]:
        """Call the prefill rank that listens at this address; returns the link's number and the effects."""
        link = self.link_of.get((group, rank))
        if link is None:
            if len(self.links) >= self.settings.links:
                raise ArgumentError(f"more than {self.settings.links} links: raise Settings.links")
            link, self.next_link = self.next_link, self.next_link + 1
            self.link_of[group, rank] = link
            self.peers[link] = LinkPeer(group, rank)
        peer, terms = self.peers[link], self.terms(group, plan)
        # Other terms at the same address are a new call: rooms in flight were cut by the old ones.
        anew = peer.terms != terms
        peer.plan, peer.terms = plan, terms
        old = self.links.get(link)
        # The upper bits name the incarnation, so a restarted rank repeats no session of its former life.
        session = old.session + 1 if old is not None else self.incarnation << 16
        return link, self.handle(ev.CallAsked(link, session, address, anew), now)

    def call_anew(self, link: int, now: float) -> list[Effect]:
        """Call at once on a link that is down, instead of when its timer ends."""
        at = self.links[link]
        return self.handle(ev.CallAsked(link, at.session, at.address, anew=True), now)

    def to_call_anew(self) -> list[int]:
        """Return the links that are down and wanted."""
        return [link for link, at in self.links.items() if at.state in CALLED and not at.leaving]

    def awaits_return(self) -> int:
        """Return a link through which something may still land that was posted before it went down; 0: none."""
        return next((link for link, at in self.links.items() if at.state is DLink.AWAIT_RETURN), 0)

    def leave(self, group: int, now: float) -> list[Effect]:
        """Let go of this prefill group: of each link to it."""
        effects: list[Effect] = []
        for link in [link for (other, _), link in self.link_of.items() if other == group]:
            effects += self.handle(ev.DisconnectAsked(link), now)
        return effects

    def _needed(self, link: int, tries: int) -> bool:
        """Whether a room of its group is left: looked for only where the link might be forgotten."""
        at, group = self.links[link], self.peers[link].group
        return (at.leaving or at.silent >= tries) and any(self._group_of(room) == group for room in self.rooms)

    def is_later(self, link: int, epoch: int) -> bool:
        """Whether this epoch is of a later incarnation than the link's own."""
        at: DLinkValue = self.links[link]
        return epoch >> 16 > at.epoch >> 16

    def lives(self, link: int) -> bool:
        """Whether something of its epoch came by the link since its last beat, or its connection stands."""
        return link in self.heard_by or self.stands(link)

    def reached(self, group: int, rank: int) -> tuple[bool, str]:
        """Whether the link to this prefill rank is up, and why it was refused, if it was.  Any thread."""
        value = self._value(group, rank)
        return value.state is DLink.UP, f"refused: {value.why}" if value.why else ""

    def leads_to(self, group: int, rank: int) -> str:
        """The address that the link to this prefill rank leads to; empty: there is none.  Any thread."""
        return self._value(group, rank).address

    def lacking(self, group: int, capability: str) -> str:
        """Name a prefill rank of this group, by a link that is up, without this capability.  Any thread."""
        for link, value in list(self.links.items()):
            peer = self.peers.get(link)
            if peer is None or peer.group != group or value.state is not DLink.UP:
                continue
            if capability not in value.build.capabilities.split():
                at = f"works at wire version {value.build.version} and cannot {capability}"
                return f"prefill rank {peer.rank} of group {group} {at}: upgrade it"
        return ""

    def tries(self, group: int, rank: int) -> str:
        """The address that is tried beside the link to this prefill rank; empty: none.  Any thread."""
        return self._value(group, rank).beside

    def _value(self, group: int, rank: int) -> DLinkValue:
        value: DLinkValue = self.links.get(self.link_of.get((group, rank), 0), self.link_machine.initial)
        return value

    def terms(self, group: int, plan: Plan, groups: int = 1) -> Terms:
        """Return the terms with that group for rooms of so many layer groups; all such rooms share one object."""
        linked = plan.linked_to(self.index)
        known = self.peers.get(self.link_of.get((group, linked[0]), 0))
        # Equal plans are one object (`plan_between` is cached), so a look at the identity is enough on this hot path.
        if known is not None and known.plan is plan:
            assert known.terms is not None
            return self.cut(known.terms, groups)
        writers = mask(tuple(share.writer for share in plan.writers(self.index)))
        state = mask(plan.state_writers(self.index))
        terms = Terms(
            group, mask(linked), writers, 1 << plan.lead(self.index), plan.chunk_tokens,
            state_groups=plan.state_groups if state else 0, state_writes=state,
            joint_tokens=plan.joint_tokens,
        )  # fmt: skip
        return self.cut(self.same_terms(terms), groups)

    def plan_of(self, room: int) -> Plan:
        """The plan between this rank's group and the room's prefill group."""
        for index in bits(self.value_of(room).terms.everyone):
            peer = self.peers.get(self.link_to(room, index))
            if peer is not None:
                assert peer.plan is not None
                return peer.plan
        raise LookupError(f"no link leads to the group of {room_name(room)}")

    def hello(self, session: int, link: int = 0) -> msg.Hello:
        """Build the HELLO for this link, with the chunk size of the group at its other end."""
        chunk_tokens, lease = self._chunk_tokens_of(link), self.settings.timing.lease.period
        own, to, build = (self.endpoint, self.placement), self.peers.get(link), self.build
        meant = (to.group, to.rank) if to is not None else (0, 0)
        return msg.Hello(
            build.newest, build.digest, session, self.group, self.index, self.layout, chunk_tokens, lease, *own, *meant,
            build.oldest, build.agreements, build.capabilities,
        )  # fmt: skip

    def _chunk_tokens_of(self, link: int) -> int:
        peer = self.peers.get(link)
        return peer.plan.chunk_tokens if peer is not None and peer.plan is not None else self.chunk_tokens

    def _plan(self, other: Layout, chunk_tokens: int) -> Plan:
        return plan_between(other, self.layout, chunk_tokens)

    # ---------------------------------------------------------------------------------------- messages
    def facts(self, heard: HeardMessage) -> int:
        granted = getattr(heard.body, "chunk", -1) in self.grants.get(heard.room, ())
        return super().facts(heard) * CHUNKS + granted

    def misfit_of(self, link: int, said: msg.Welcome) -> str:
        """Why the rank that answers is not the one that was called, or does not fit; empty: it is, and does."""
        peer = self.peers[link]
        fault, plan = self.misfit(said, self._chunk_tokens_of(link))
        if fault:
            return fault
        if (said.group, said.rank) != (peer.group, peer.rank):
            return f"group {said.group} rank {said.rank} answers for {peer.group} rank {peer.rank}"
        assert plan is not None
        if self.terms(peer.group, plan) != peer.terms:
            assert peer.plan is not None
            unlike = _unlike(plan.prefill, peer.plan.prefill)
            return f"the prefill group's layout is not the one that was called: {unlike}"
        return ""

    # ------------------------------------------------------------------------------------------ grants
    def _stop_grants(self, effect: do.StopGrants) -> None:
        grants = self.grants.get(effect.room, {})
        writing = reduce(or_, map(in_doubt, grants.values()), 0)
        self._queue += [ev.RoomStopped(effect.room, chunk) for chunk in grants]
        # Behind the grants' own events: the room goes on when no grant of it can begin a scatter any more.
        self._queue.append(ev.GrantsStopped(effect.room, writing))

    def _drain_grants(self, effect: do.DrainGrants) -> None:
        self._queue += [ev.RoomDrained(effect.room, chunk) for chunk in self.grants.get(effect.room, {})]

    def expected_scatters(self, since: int) -> list[do.LaunchScatter]:
        """Predict the scatters from the regions granted since that one, if all writers stage their parts."""
        found = []
        for room, chunk in filter(None, map(self.chunk_of.get, range(since, self.ring.next_grant))):
            value = self.grants.get(room, {}).get(chunk)
            if value is not None:
                found.append(do.LaunchScatter(room, chunk, value.writers, value.offset, value.end, value.cut))
        return found

    def cut_of(self, room: int, chunk: int) -> Cut:
        """The chunk of this room; `NO_CUT`: the room has no pages, or no such chunk."""
        value = self.rooms.get(room)
        if value is None or value.terms is None:
            return NO_CUT
        try:
            return cut_of(value, chunk)
        except LayoutError:
            return NO_CUT

    def writers_of(self, room: int, chunk: int) -> int:
        """The writers (mask) of a chunk that has a grant; state may have others than tokens."""
        return self.grants[room][chunk].writers

    # -------------------------------------------------------------------------------------------- ring
    def _reserve(self, effect: do.ReserveSpace) -> None:
        key = effect.room, effect.chunk
        cut, value = effect.cut, self.value_of(effect.room)
        size = self.plan_of(effect.room).grant_bytes(self.index, cut)
        # It would queue for ever: its writers go over pages at once.
        if size > self.ring.size:
            self.give(ev.SpaceDenied(*key))
        # The usual case, an empty queue, skips the walk that the queue's fairness costs.
        elif not self.space_queue.order and (told := self._promised(key, size)) is not None:
            self.give(told)
        else:
            self.space_queue.put(key, size, value.tokens)
            self._serve()
            # Serving may have given it a region in this step; only a chunk that still waits is told that it queues.
            if key in self.space_queue.order:
                self.give(ev.SpaceQueued(*key))

    def _promised(self, key: ChunkKey, size: int) -> ev.SpaceReserved | None:
        """A region for a chunk before which nobody waits, if it need not wait either."""
        region = self.ring.reserve(size) if self._may(key[0], size, more=size) else None
        if region is None:
            return None
        self.space_turns.taken(before_larger=False)
        return self._given(key, region)

    def _given(self, key: ChunkKey, region: RingRegion) -> ev.SpaceReserved:
        self.chunk_of[region.grant] = key
        return ev.SpaceReserved(*key, region.grant, region.offset, region.round, region.end)

    def _serve(self) -> None:
        """Give regions to those that queue for one, as long as the ring may promise."""
        if not self.space_queue.order:
            return
        given = defaultdict[int, int](int)  # the grants hear of it when this is over, in the order of their regions
        told: list[Event] = []
        while (turn := self._turn(given)) is not None:
            key, before_larger = turn
            region = self.ring.reserve(size := self.space_queue[key])
            if region is None:
                break  # not passed over: smaller chunks behind it would let a large one starve
            self.space_turns.taken(before_larger=before_larger)
            given[key[0]] += size
            self.space_queue.leave(key)
            told.append(self._given(key, region))
        self.give(*told)

    def _turn(self, given: Mapping[int, int]) -> tuple[tuple[int, int], bool] | None:
        """Return the chunk whose turn it is, and whether it passes a larger room's.

        A candidate is its room's first waiting chunk, and the room holds less than its share.  The oldest of them has
        the turn, or one of a larger room.

        `given`: what rooms hold and their grants have not heard of.  Few rooms hold their share, so few are passed
        over.
        """

        def may(key: ChunkKey, size: int) -> bool:
            return self.space_queue.is_first(key) and self._may(key[0], size, more=given[key[0]] + size)

        first = self.space_queue.oldest(may)
        if first is None:
            return None
        larger = self.space_queue.oldest(may, than=first)
        key = self.space_turns.whose(first, larger)
        return key, larger is not None and key is first

    def _may(self, room: int, size: int, *, more: int) -> bool:
        """Tell whether the room may hold so much more than its grants know of, the last a region of `size`."""
        return self.held(room) + more <= self.share(room, size)

    def share(self, room: int, size: int) -> int:
        """Bytes of the ring that the room may hold with one more region of `size`: two regions at least.

        Half of the ring, so that what is before a small room in the ring is half of it at most, however much another
        room has to send; while nobody else holds or wants any of it, all but one such region, which is for who comes.
        """
        others = any(other != room for other, _ in chain(self.chunk_of.values(), self.space_queue.order))
        return max(self.ring.size // 2 if others else self.ring.size - size, 2 * size)

    def held(self, room: int) -> int:
        """Bytes of the ring that are promised to the room."""
        return sum(value.end - value.offset for value in self.grants.get(room, {}).values() if value.state in HOLDS)

    def _cancel(self, effect: do.CancelSpace) -> None:
        self.space_queue.leave((effect.room, effect.chunk))

    def _free(self, effect: do.FreeSpace) -> None:
        del self.chunk_of[effect.grant]
        # Freeing moves the watermark, which makes older promises usable before new ones are given.
        for grant in self.ring.free(effect.grant):
            self._queue.append(ev.SpaceUsable(*self.chunk_of[grant]))
        self._serve()

    def _send_grant(self, effect: do.SendGrant) -> None:
        round_, tail = self.ring.mark
        body = msg.StagingRsp(
            effect.chunk, effect.grant, effect.offset, effect.round, effect.end, round_, tail,
            effect.asked, effect.queued,
        )  # fmt: skip
        self._send(do.Send(effect.room, effect.peers, body))

    def _send_queued(self, effect: do.SendQueued) -> None:
        self._send(do.Send(effect.room, effect.peers, msg.StagingQueued(effect.chunk, *self.ring.mark, effect.early)))

    def _send_watermark(self, effect: do.SendWatermark) -> None:
        for rank in bits(effect.peers):
            self._transmit_to(self.link_to(effect.room, rank), 0, msg.Watermark(*self.ring.mark))

    def _reply_watermark(self, effect: do.ReplyWatermark) -> None:
        self._transmit_to(self._heard.link, 0, msg.Watermark(*self.ring.mark, effect.nonce))

    # ------------------------------------------------------------------------------------------- peers
    def _ask_links(self, effect: do.AskLinks) -> None:
        for rank in bits(effect.peers):
            link = self.link_to(effect.room, rank)
            asked = ev.QuietAsked(link, effect.room, rank, bool(effect.in_doubt >> rank & 1))
            self._queue.append(asked if effect.quiet else ev.OpenAsked(link, effect.room, rank))

    def _raise_up(self, effect: do.RaiseLinkUp) -> None:
        link, peer = effect.link, self.peers[effect.link].rank
        # of thousands of rooms that are over few have left a prefill rank untold: the others get no event
        unheard = {room: value for room, value in self.tombs.items() if value.work and value.work.untold >> peer & 1}
        rooms = self._rooms_of(link, self.rooms) + self._rooms_of(link, unheard)
        self._queue += [ev.LinkCameUp(room, peer) for room in rooms]

    def _raise_quiet(self, effect: do.RaisePeerQuiet) -> None:
        rank = self.peers[effect.link].rank
        self._queue += [ev.PeerQuiet(room, rank) for room in self._rooms_of(effect.link, self.rooms)]


def _unlike(said: Layout, called: Layout) -> str:
    """Name the fields in which two layouts differ, and their values where these are short."""
    found = list[str]()
    for name in Layout.__struct_fields__:
        ours, theirs = getattr(called, name), getattr(said, name)
        if ours != theirs:
            short = name not in ("caches", "stages")
            values = ["left out" if each is UNSET else repr(each) for each in (theirs, ours)] if short else []
            found.append(f"{name} ({' against '.join(values)})" if values else name)
    return ", ".join(found)
