"""Prefill links: the prefill rank's side of its links, their callers and messages.

A decode rank calls with a HELLO, and the first one of a rank makes its link; from its layout come the plan (who writes
what to whom) and the terms of every room of its group.

Links are bounded (`Settings.links`).  A caller beyond the bound takes the room of a link that is lost or refused and
has no write in flight, the newest of them: that one is forgotten at once, as it would be later.  So peers that left,
and calls that came to nothing, hold nobody up, and of those the latest strangers go first.  Where all links are at work
the caller is told so, and its engine hears it from `ready`.

A call names whom it is for.  Where an address has passed from one instance to another, the old link's calls arrive at
the new one, in the name of a decode rank that has a link there: they are refused before any link hears of them.

A room that a decode rank opens before this rank's engine does is kept as unclaimed.  Beyond
`Settings.unclaimed_rooms` of them an OPEN is dropped and counted, and the decode rank repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kvproto.fsm.vocabulary import Effect
from kvproto.layout.costs import NO_ROUTE, Costs, Estimate, PageForm, at_the_port, estimate, page_form, runs_between
from kvproto.layout.cut import Cut, chunks, layers_of
from kvproto.layout.end_share import end_shares, why_end_staged
from kvproto.layout.placement import closed_between, fault
from kvproto.layout.plan import Plan, Share, plan_between
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Claim, Terms
from kvproto.protocol.room_chunks import joint
from kvproto.protocol.routes import HeardMessage, SenderIs, prefill_routes
from kvproto.protocol.states import Cause, PLink, PRoom
from kvproto.protocol.tables.links import prefill_link
from kvproto.protocol.tables.prefill_room import prefill_room, refused
from kvproto.rank.base import LinkPeer, Rank, mask
from kvproto.settings import Settings

EARLY = PRoom.AWAIT_ENGINE
#: how many lengths and claims are kept for sharing
KEPT = 16384
#: how many estimates are kept, a link
ESTIMATES = 256
#: in place of runs and layer groups: of what travels at the end
AT_END = -1
#: of what travels at the end where it has no way over pages; and of a rank that no link leads to any more
STAGED_ONLY = Estimate(0.0, NO_ROUTE)
Shared = TypeVar("Shared")


class PrefillLinks(Rank):
    """A prefill rank without its sends."""

    ROOM, LINK, UP, ROUTES = prefill_room, prefill_link, PLink.UP, prefill_routes
    SHOW_SECRET = frozenset({msg.Open, msg.Announce, msg.Abort})

    def __init__(
        self, layout: Layout, index: int, *, group: int, chunk_tokens: int, incarnation: int,
        settings: Settings | None = None
    ) -> None:  # fmt: skip
        super().__init__(
            layout, index, group=group, chunk_tokens=chunk_tokens, incarnation=incarnation, settings=settings
        )
        self.unclaimed: set[int] = set()
        #: many rooms, few lengths and claims: equal ones are shared; a number is a sixth of a room that waits
        self._equals: dict[Any, Any] = {}
        #: the call that is being heard, and the plan if the two fit
        self._call: tuple[Any, Plan | None] = (None, None)
        self.next_epoch = self.incarnation << 16
        #: why no kernels are ready for rooms of so many layer groups (empty: they are), which the endpoint knows
        self.unprepared: Callable[[int], str] = lambda _groups: ""
        #: what links cost: as the engine or the transport says, before the first link
        self.costs = self.settings.costs_of("free")
        self.take(ev.PeerOpened, self._peer_opened)
        self.take(ev.PeerAnnounced, self._peer_opened)
        self.inner |= {do.Connect: self._connect, do.RefuseRival: self._refuse_rival}

    def hello(self, said: msg.Hello, now: float, place: bytes = b"") -> tuple[int, list[Effect]]:
        """A decode rank calls; returns the link's number (0: there are too many links) and the effects."""
        effects = self.receive(0, 0, 0, said, now, place)
        return self.link_of.get((said.group, said.rank), 0), effects

    def called(self, said: msg.Hello, place: bytes) -> ev.HelloReceived | None:
        """Turn a call into an event of the caller's link, which is made if there is none.

        None: the call means another rank, or there are too many links; the caller is told.
        """
        # Group 0 names nobody: that caller knows an address and takes whoever listens there.
        if said.to_group and (said.to_group, said.to_rank) != (self.group, self.index):
            self.counts["calls for another rank"] += 1
            self._out.append(do.RefuseCall(place, said.session, self._not_meant(said)))
            return None
        link = self.link_of.get((said.group, said.rank))
        if link is None:
            if len(self.links) >= self.settings.links and not self._make_room():
                self.counts["calls beyond the bound"] += 1
                self._out.append(do.RefuseCall(place, said.session, self._full()))
                return None
            link, self.next_link = self.next_link, self.next_link + 1
            self.link_of[said.group, said.rank] = link
            self.peers[link] = LinkPeer(said.group, said.rank)
        why, plan = self.misfit(said, self.chunk_tokens)
        if plan is not None:
            why = self._no_way(plan, said)
        # An epoch is used once, also by a call that is refused: no message of an earlier call can pass for one of this.
        self.next_epoch += 1
        self._call, self._heard.link = (said, plan), link
        # The caller may reuse memory of lost rooms at once if no write of the link's former life can land.
        quiet = not self._writes_to(link)
        life, build = said.session >> 16, self.spoken_with(said)
        return ev.HelloReceived(link, said.session, self.next_epoch, why, quiet, place, life, build)

    def _not_meant(self, said: msg.Hello) -> str:
        """Explain that the caller means another rank: this address has passed on."""
        return f"rank {self.index} of group {self.group} listens here, not rank {said.to_rank} of group {said.to_group}"

    def _refuse_rival(self, effect: do.RefuseRival) -> None:
        peer, life = self.peers[effect.link], self.links[effect.link].life
        self.counts["calls under a name that is taken"] += 1
        name = f"decode rank {peer.rank} of group {peer.group}"
        why = f"{name} is connected already, as incarnation {life}, and answers; this is incarnation"
        remedy = "give each instance a group of its own"
        self._out.append(do.RefuseCall(effect.place, effect.session, f"{why} {effect.session >> 16}: {remedy}"))

    def _full(self) -> str:
        """Why there is no link for one more caller."""
        bound = f"{len(self.links)} links, as many as Settings.links allows, and none of them is lost"
        return f"prefill rank {self.index} of group {self.group} has {bound}"

    def _needed(self, link: int, _tries: int) -> bool:
        return self._writes_to(link)

    def _make_room(self) -> bool:
        """Have a link that can be forgotten end its timer now; whether there is one."""
        # The newest first: a flood of strangers pushes out strangers, not peers of long standing.
        apart = (link for link in reversed(self.links) if self.links[link].state in self.LINK.failure_states)
        link = next((link for link in apart if not self._writes_to(link)), 0)
        if link:
            self.counts["links that gave way"] += 1
            self._queue.append(self._link_timer(link, 0))
        return link > 0

    def _no_way(self, plan: Plan, said: msg.Hello) -> str:
        """Why no route leads to the caller's pool; empty: one does, or nothing is owed to it."""
        wrong = fault(said.placement, said.layout, said.rank) if said.placement is not None else ""
        wrong = wrong or self._no_way_of_state(plan, said)
        closed = closed_between(self.placement, said.placement)
        # An open pool can always be written page by page, so only a closed one needs a staged route.
        owed = [share for share in plan.duties(self.index) if share.reader == said.rank] if closed else []
        if wrong or not owed:
            return wrong
        size, slot = plan.part_bytes(owed[0], Cut(0, self.chunk_tokens)), self.settings.slot_bytes
        if self.settings.route == "pages":
            return f"nothing is staged here (Settings.route), and over pages there is no way: {closed}"
        if 0 < slot < size:
            return f"a part of {size} bytes fits no slot of {slot} (Settings.slot_bytes), and over pages: {closed}"
        return ""

    def _no_way_of_state(self, plan: Plan, said: msg.Hello) -> str:
        """Why what travels at the end has no way to this decode rank; empty: it has one, or none is owed."""
        if plan.state is None or said.rank not in plan.state_readers(self.index):
            return ""
        staged = self.settings.route != "pages"
        no_slot = self._no_slot(plan, said.rank) if staged else "nothing is staged here (Settings.route)"
        if not no_slot:
            return ""
        share = plan.state.share(self.index, said.rank)
        closed = why_end_staged(plan, share, self.placement, said.placement)
        return f"{no_slot}, and over pages there is no way: {closed}" if closed else ""

    def _no_slot(self, plan: Plan, reader: int) -> str:
        """Why no slot takes a part of what travels at the end; empty: one does."""
        size, slot = max(plan.part(self.index, reader, cut).nbytes for cut in plan.whole_state), self.slot_bytes
        smaller = "; without joint chunks (Layout.of_caches, joint=False) it is less" if plan.joint_tokens else ""
        told = f"a part of {size} bytes of state or window fits no slot of {slot} (Settings.slot_bytes{smaller})"
        return told if size > slot else ""

    @property
    def slot_bytes(self) -> int:
        return self.settings.slot_bytes or self.layout.slot_bytes(self.index, self.chunk_tokens)

    def estimate(self, room: int, peer: int) -> Estimate:
        """Estimate the seconds of the room's KV for this decode rank by each route (`kvproto.layout.costs`)."""
        value, to = self.value_of(room), self.peers.get(self.link_to(room, peer))
        if to is None or to.plan is None:
            return STAGED_ONLY
        tokens = value.tokens - value.prefix - (joint(value) if value.terms.joint_tokens else 0)
        about = tokens, runs_between(value.facts.runs, value.facts.their_runs), value.terms.layer_groups
        known = to.estimates.get(about)
        if known is None:
            known = _keep(to, about, self._estimate(to, to.plan, *about))
        return known

    def costs_of(self, room: int, peer: int) -> Costs:
        """Return what the link to this decode rank costs."""
        return self.link_costs(self.peers[self.link_to(room, peer)])

    def link_costs(self, to: LinkPeer) -> Costs:
        """Return what a link costs: as was told of it, or else as links of this rank do."""
        return to.costs or self.costs

    def end_estimate(self, room: int, peer: int) -> Estimate:
        """Estimate likewise the seconds of all that the room has at its end, or of its joint chunk."""
        value, to = self.value_of(room), self.peers.get(self.link_to(room, peer))
        if to is None or to.plan is None or to.plan.state is None:
            return STAGED_ONLY
        last = joint(value)
        runs = runs_between(value.facts.runs, value.facts.their_runs) * last
        # Rooms longer than every window are alike.
        about = min(value.tokens, to.plan.state.prefill.window), -(runs // (value.prefix - value.tokens)) if last else 0
        known = to.estimates.get((*about, AT_END - last))
        if known is None:
            cut = Cut(about[0] - last, last, state=True)
            known = _keep(to, (*about, AT_END - last), self._end_estimate(to, to.plan, cut, about[1]))
        return known

    def _end_estimate(self, to: LinkPeer, plan: Plan, cut: Cut, runs: int) -> Estimate:
        part, pieces, closed = plan.part(self.index, to.rank, cut), 0, self.settings.route == "staged"
        for block in part.blocks(cut):
            if block.at_end:
                closed = closed or bool(why_end_staged(plan, block.share, self.placement, to.placement))
                for each in () if closed else end_shares(plan, block.share, self.placement, to.placement):
                    form = page_form(each.plan, each.share, each.ours, each.theirs)
                    pieces += form.pieces(each.plan.prefill.last_rows(cut.end), 0)
            else:
                of_tokens = self._owed(to, plan, 1)[2]
                pieces += of_tokens.pieces(cut.tokens, runs) if of_tokens is not None else 0
        at_port = (at_the_port(plan.of(cut.only(at_end=each.at_end)), each.share) for each in part.blocks(cut))
        return estimate(
            self.link_costs(to), part.nbytes, pieces, 1 if cut.tokens else plan.state_groups,
            ring=self.settings.route != "pages" and part.nbytes <= self.slot_bytes, open_=not closed,
            mapped=to.mapped, port=max(at_port) if to.mapped else 1.0,
        )  # fmt: skip

    def _estimate(self, to: LinkPeer, plan: Plan, tokens: int, runs: int, groups: int) -> Estimate:
        route, slot = self.settings.route, self.settings.slot_bytes
        owed = to.owed.get(groups)
        if owed is None:
            owed = to.owed[groups] = self._owed(to, plan, groups)
        share, part, form = owed
        fits = not slot or plan.part_bytes(part, Cut(0, min(tokens, self.chunk_tokens))) <= slot
        nbytes, parts = plan.part_bytes(share, Cut(0, tokens)), chunks(tokens, 0, self.chunk_tokens, groups)
        pieces = form.pieces(tokens, runs, parts // groups) if form is not None else 0
        return estimate(
            self.link_costs(to), nbytes, pieces, parts, ring=fits and route != "pages", open_=form is not None,
            mapped=to.mapped, port=at_the_port(plan, share) if to.mapped else 1.0,
        )  # fmt: skip

    def reach(self, link: int, costs: Costs, *, mapped: bool) -> None:
        """Record what this link costs, and whether kernels store pages' KV on it."""
        to = self.peers[link]
        # Estimates are made of these costs; an unchanged link keeps the ones that it has.
        if (to.mapped, to.costs) != (mapped, costs):
            to.mapped, to.costs, to.estimates = mapped, costs, {}

    def _owed(self, to: LinkPeer, plan: Plan, groups: int) -> tuple[Share, Share, PageForm | None]:
        """Return the parts of an estimate that do not change from room to room."""
        share = plan.share(self.index, to.rank)
        open_ = not closed_between(self.placement, to.placement) and self.settings.route != "staged"
        form = page_form(plan, share, self.placement, to.placement) if open_ else None
        return share, layers_of(share, 0, groups), form

    def _plan(self, other: Layout, chunk_tokens: int) -> Plan:
        return plan_between(self.layout, other, chunk_tokens)

    def welcome(self, session: int, epoch: int) -> msg.Welcome:
        lease, build = self.settings.timing.lease.period, self.build
        return msg.Welcome(
            build.newest, build.digest, session, epoch, self.group, self.index, self.layout, self.chunk_tokens, lease,
            build.oldest, build.agreements, build.capabilities,
        )  # fmt: skip

    def shared(self, value: Shared) -> Shared:
        """The same number, or claim, one object for all rooms that have it."""
        # Sharing saves memory and is never needed, so a full table is dropped instead of ordered by use.
        if len(self._equals) >= KEPT:
            self._equals.clear()
        kept: Shared = self._equals.setdefault(value, value)
        return kept

    def claim(self, group: int, secret: bytes) -> Claim:
        """Return the claim of a room; rooms without a secret share one object."""
        return Claim(group, secret) if secret else self.shared(Claim(group))

    def _shown_fact(self, heard: HeardMessage, fact: int) -> int:
        body, value = heard.body, self.value_of(heard.room)
        if value is None or (refused(value) and fact == SenderIs.UNCLAIMED):
            return fact
        if fact != SenderIs.OUTSIDER and body.secret == value.facts.claim.secret:
            return fact
        owned = value.state is not EARLY and (value.work is None or value.work.owned)
        return SenderIs.OUTSIDER if owned or refused(value) else SenderIs.RIVAL

    def cut_for(self, link: int, groups: int) -> Terms | None:
        """The link's terms of rooms of so many layer groups; None: such rooms are refused."""
        terms = self.peers[link].terms
        assert terms is not None
        return None if self._why_not_cut(link, groups) else self.cut(terms, groups)

    def _why_not_cut(self, link: int, groups: int) -> str:
        plan = self.peers[link].plan
        assert plan is not None
        if groups > plan.fewest_layers:
            return f"{groups} layer groups: the smallest share has {plan.fewest_layers} layers"
        return self.unprepared(groups) if groups > 1 else ""

    def refuse_cut(self, heard: HeardMessage) -> None:
        """Refuse a room that is cut too finely, and say why, unless this decode rank has opened it."""
        self.counts["rooms cut too finely"] += 1
        value = self.value_of(heard.room)
        if value is None or not value.peers >> heard.peer & 1:  # nothing of it is in flight to that rank, nor will be
            blame = msg.Blame(self.side, self.index, self._why_not_cut(heard.link, heard.body.layer_groups))
            self.answer(heard, msg.Drained(Cause.REFUSED, blame))

    def _group_of(self, room: int) -> int | None:
        value = self.rooms.get(room) or self.tombs.get(room)
        return value.facts.claim.group or None if value is not None else None

    def full(self, room: int) -> bool:
        """Whether this room would be one too many of those that only decode ranks have opened."""
        if len(self.unclaimed) >= self.settings.unclaimed_rooms:
            initial = self.room_machine.initial
            # Rooms that the engine has opened since leave the set here alone: the bound is reached seldom, opens are
            # frequent.
            self.unclaimed = {key for key in self.unclaimed if self.rooms.get(key, initial).state is EARLY}
        if len(self.unclaimed) < self.settings.unclaimed_rooms or room in self.rooms or room in self.tombs:
            return False
        self.counts["rooms beyond the bound"] += 1
        return True

    def _peer_opened(self, event: ev.PeerOpened | ev.PeerAnnounced, now: float) -> None:
        self.stores["rooms"].take[type(event)](event, now)
        if self.rooms.get(event.room, self.room_machine.initial).state is EARLY:
            self.unclaimed.add(event.room)

    def _connect(self, effect: do.Connect) -> None:
        link = effect.link
        said, plan = self._call
        assert plan is not None
        duties = mask(tuple(share.reader for share in plan.duties(self.index)))
        leads = mask(tuple(r for r in plan.linked(self.index) if plan.lead(r) == self.index))
        state = mask(plan.state_readers(self.index))
        terms = Terms(
            said.group, mask(plan.linked(self.index)), duties, leads, self.chunk_tokens, self.settings.window,
            state_groups=plan.state_groups if state else 0, state_writes=state,
            joint_tokens=plan.joint_tokens if duties | state else 0,
        )  # fmt: skip
        peer = self.peers[link]
        peer.plan, peer.terms = plan, self.same_terms(terms)
        peer.endpoint, peer.placement = said.endpoint, said.placement
        # A new call may bring another layout or pool: nothing computed from the old one is kept.
        peer.estimates, peer.owed = {}, {}
        self._out.append(effect)


def _keep(to: LinkPeer, about: tuple[int, int, int], found: Estimate) -> Estimate:
    # Cleared as a whole: an order of use would cost more on each hit than a few new estimates.
    if len(to.estimates) >= ESTIMATES:
        to.estimates.clear()
    to.estimates[about] = found
    return found
