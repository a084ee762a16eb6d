"""Calling: a world in which an engine calls `connect` and `disconnect` at any moment.

The party is that of a decode endpoint, with the table `decode_group`.  Around it are the engine's thread, the helper
thread, the loop with its inbox, and the rank with a link to each prefill rank.  A link comes up, is lost, and is
forgotten whenever it may be.  The loop calls the ranks one by one, and the engine may come in between.

    stale     ranks are called for the engine's last `connect` alone, and not if it has let go of the group
    ready     a group is ready only if all of its links are up, and each was called for the last `connect`
    told      each link that ends is logged once, as one that the engine wants or as one that it has let go of
    links     what the table takes for links are those that the rank has
    kept      when nothing is under way, a wanted group is kept with all of its links, or the reason why one is missing
    left      when nothing is under way, the links of a group that was let go are left, and nothing is kept without one
    moved     a rank whose name leads to another address is called there
    bound     no more groups without a link are kept than there may be
    closed    nothing is kept of any group, and nobody is called, when the endpoint has been closed
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.endpoint import group_table as gt
from kvproto.endpoint.group_table import PENDING, Destination, Group, GroupValue
from kvproto.endpoint.prefill_groups import GroupParty
from kvproto.fsm.party import Member
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.verify.framework.scenario import ApplicationCall, Chances, Scenario, View


class Silent(Event, frozen=True):
    """Something happens of which the table is told nothing."""


class Link(msgspec.Struct, frozen=True):
    """The rank's link to a prefill rank.

    `call`: the number of the `connect` for which it was called last; 0: there is no link.
    """

    call: int = 0
    number: str = ""
    up: bool = False
    lost: bool = False
    leaving: bool = False


class Called(msgspec.Struct, frozen=True):
    """A prefill group as the engine and the rank have it.

    `wanted`: the number of the engine's last `connect`; 0: it has let go of the group.
    """

    links: tuple[Link, ...]
    wanted: int = 0
    calls: int = 0
    #: look-ups that it may still come to
    looks: int = 1


class Around(msgspec.Struct, frozen=True):
    """All that surrounds the party; jobs are `(what, group, ...)`."""

    groups: tuple[Called, ...]
    #: jobs of the helper thread, calls in the loop's inbox, and the calls of ranks that the loop is at
    helper: tuple[Any, ...] = ()
    inbox: tuple[Any, ...] = ()
    doing: tuple[int, int, tuple[str, ...], tuple[int, ...]] | None = None
    #: a link (group, rank) that has ended and is not logged yet, or that is known to lead to a former address
    ended: tuple[int, int] | None = None
    moved: tuple[int, int] | None = None
    fault: tuple[str, str] | None = None
    #: groups that are still to be closed; None: the engine has not closed the endpoint
    closing: tuple[int, ...] | None = None


class Calling(Scenario):
    """A decode endpoint that calls prefill groups of so many ranks."""

    def __init__(
        self, chances: Chances, *, groups: int = 1, ranks: int = 1, connects: int = 3, bound: int = 9,
        by_name: bool = False, closes: bool = False,
    ) -> None:  # fmt: skip
        """`connects` of each group, prepared at once or slowly; with `by_name`, names are looked up again.

        `closes`: the engine may close the endpoint; what is under way then goes on for a while.
        """
        self.groups, self.ranks, self.connects, self.bound, self.by_name = groups, ranks, connects, bound, by_name
        self.closes = closes
        super().__init__(("decode",), chances)

    def around(self, number: int) -> Around:
        return Around((Called((Link(),) * self.ranks),) * self.groups)

    def start(self, number: int, around: Around, life: int, now: float) -> tuple[Member, list[Effect]]:
        party = GroupParty(self.bound)
        party.take(Silent, lambda _event, _now: None)
        return party, []

    # ------------------------------------------------------------------------------------- what may happen
    def calls(self, number: int, around: Around) -> Iterable[ApplicationCall]:
        """Yield the next steps of the engine, the helper, the loop and the links."""
        if around.closing:
            group, *left = around.closing
            yield ApplicationCall(f"closes {group}", replace(around, closing=tuple(left)), gt.CloseCalled(group))
            return  # under the lock
        for group, at in enumerate(around.groups if around.closing is None else ()):
            yield from self._engine(around, group, at)
        if self.closes and around.closing is None:
            yield self._closed(around)
        if around.helper:
            yield from self._helper(around)
        if around.doing is not None:
            yield from self._call_ranks(around, *around.doing)
            return
        if around.inbox:
            yield self._take(around)
        for group, at in enumerate(around.groups):
            for rank, link in enumerate(at.links):
                if link.call:
                    yield from self._link(around, group, rank, link)

    def _engine(self, around: Around, group: int, at: Called) -> Iterator[ApplicationCall]:
        if at.calls < self.connects:
            call = at.calls + 1
            after = _with(around, group, replace(at, wanted=call, calls=call))
            for slow in (False, True):
                event = gt.ConnectCalled(group, call, Destination((call, slow)))
                yield ApplicationCall(f"connects {group}, {'slowly' if slow else 'at once'}", after, event)
        if at.wanted:
            after = _with(around, group, replace(at, wanted=0))
            yield ApplicationCall(f"disconnects {group}", after, gt.DisconnectCalled(group))

    def _closed(self, around: Around) -> ApplicationCall:
        """Close every group; what is under way goes on for a while."""
        after = tuple(replace(at, wanted=0) for at in around.groups)
        around = replace(around, groups=after, closing=tuple(range(self.groups)), moved=None)
        return ApplicationCall("closes the endpoint", around, Silent())

    def _helper(self, around: Around) -> Iterator[ApplicationCall]:
        (what, *about), *left = around.helper
        for good in (True, False):
            after = replace(around, helper=tuple(left), inbox=(*around.inbox, (what, *about, good)))
            yield ApplicationCall(f"(helper) {what} {about}: {good}", after, Silent())

    def _take(self, around: Around) -> ApplicationCall:
        (what, group, *about), *left = around.inbox
        after = replace(around, inbox=tuple(left))
        event: Event
        if what == "leave":
            at = around.groups[group]
            links = tuple(replace(link, leaving=link.call > 0) for link in at.links)
            return ApplicationCall(f"(loop) leaves {group}", _with(after, group, replace(at, links=links)), Silent())
        if what == "look up":
            call, rank, moved = about
            at, link = around.groups[group], around.groups[group].links[rank]
            if moved and call == at.wanted == link.call:
                after = replace(after, moved=(group, rank))
            numbers = tuple(each.number for each in at.links)
            to = Destination((call, True), (), (*numbers[:rank], _number(call, moved=moved), *numbers[rank + 1 :]))
            return ApplicationCall(f"(loop) found {rank}: {moved}", after, gt.NameFound(group, call, to, rank, moved))
        call, good = about
        to = Destination((call, True), (), (_number(call),) * self.ranks if good else ())
        event = gt.GroupPrepared(group, call, to, (1 << self.ranks) - 1, "" if good else "no kernels")
        return ApplicationCall(f"(loop) prepared {group}, call {call}", after, event)

    def _call_ranks(
        self, around: Around, group: int, call: int, numbers: tuple[str, ...], ranks: tuple[int, ...]
    ) -> Iterator[ApplicationCall]:  # fmt: skip
        if not ranks:
            yield ApplicationCall("(loop) has called all", replace(around, doing=None), gt.RanksCalled(group))
            return
        rank, at = ranks[0], around.groups[group]
        after = replace(around, doing=(group, call, numbers, ranks[1:]))
        link = replace(at.links[rank], call=call, number=numbers[rank], lost=False, leaving=False)
        called = _link(after, group, rank, link)
        yield ApplicationCall(f"(loop) calls {rank}", called, Silent())
        if not at.links[rank].call:
            refused = replace(after, ended=(group, rank))
            yield ApplicationCall(f"(loop) cannot call {rank}", refused, gt.LinkEnded(group, rank, "too many"))

    def _link(self, around: Around, group: int, rank: int, link: Link) -> Iterator[ApplicationCall]:
        name = f"link {rank} of {group}"
        if not link.lost:
            after = _link(around, group, rank, replace(link, up=not link.up, lost=link.up))
            yield ApplicationCall(f"(rank) {name} is {'lost' if link.up else 'up'}", after, Silent())
        if link.leaving or not link.up:
            after = replace(_link(around, group, rank, Link()), ended=(group, rank))
            yield ApplicationCall(f"(rank) {name} is forgotten", after, gt.LinkEnded(group, rank, "forgotten"))
        at = around.groups[group]
        if self.by_name and not link.up and at.wanted and at.looks:
            after = _with(around, group, replace(at, looks=at.looks - 1))
            after = replace(after, helper=(*around.helper, ("look up", group, at.wanted, rank)))
            yield ApplicationCall(f"(loop) {name} is looked up", after, Silent())

    # ---------------------------------------------------------------------------------- what comes of it
    def act(self, number: int, around: Around, effect: Effect) -> tuple[Around, None]:
        """The endpoint's handlers."""
        match effect:
            case gt.Prepare(group=group, call=call, to=Destination(plan=(_, True))):
                return replace(around, helper=(*around.helper, ("prepare", group, call))), None
            case gt.Prepare(group=group, call=call):
                return replace(around, inbox=(*around.inbox, ("prepare", group, call, True))), None
            case gt.CallRanks(group=group, to=Destination(plan=(call, _), numbers=numbers), ranks=mask):
                if around.closing is not None:
                    return replace(around, fault=("closed", f"{effect} is asked for")), None
                at, ranks = around.groups[group], tuple(rank for rank in range(self.ranks) if mask >> rank & 1)
                if at.wanted != call or any(at.links[rank].number == numbers[rank] for rank in ranks):
                    return replace(around, fault=("stale", f"{effect} is asked for")), None
                return replace(around, doing=(group, call, numbers, ranks), moved=None), None
            case gt.LeaveRanks(group=group):
                return replace(around, inbox=(*around.inbox, ("leave", group))), None
        assert isinstance(effect, gt.TellUnlinked)
        if around.ended != (effect.group, effect.rank) or effect.left == bool(around.groups[effect.group].wanted):
            return replace(around, fault=("told", f"{effect} is logged")), None
        return replace(around, ended=None), None

    # ------------------------------------------------------------------------------------ what has to hold
    def broken(self, views: list[View]) -> tuple[str, str] | None:
        """A fault that was noted, or something about a group that is not as it should be."""
        around: Around = views[0].around
        values = (views[0].values or {})["groups"]
        if around.fault is not None:
            return around.fault
        if around.closing is not None:
            return ("closed", f"{values} is kept") if values and not around.closing else None
        if around.ended is not None:
            return "told", f"nothing is logged of {around.ended}"
        if around.moved is not None:
            return "moved", f"{around.moved} leads to a former address"
        if sum(not value.links and value.state not in PENDING for value in values.values()) > self.bound:
            return "bound", "too many groups without a link are kept"
        for group, at in enumerate(around.groups):
            found = self._broken(around, group, at, values.get(group))
            if found is not None:
                return found
        return None

    def _broken(self, around: Around, group: int, at: Called, value: GroupValue | None) -> tuple[str, str] | None:
        busy = any(job[1] == group for job in (*around.helper, *around.inbox)) or around.doing is not None
        links = sum(1 << rank for rank, link in enumerate(at.links) if link.call)
        if ready(value, at) and any(link.call != at.wanted or not link.up for link in at.links):
            return "ready", f"{group} is ready, with {at.links}"
        if around.doing is None and links != (value.links if value is not None else 0):
            return "links", f"{group} has {links:b}, and {value} is kept"
        if busy:
            return None
        if not at.wanted:
            good = all(link.leaving for link in at.links if link.call) and (value is not None) == bool(links)
            return None if good else ("left", f"{value} is kept of {group}, which was let go: {at.links}")
        if value is None:
            return None if self.groups > self.bound else ("kept", f"nothing is kept of {group}")
        numbers = _number(at.wanted), _number(at.wanted, moved=True)
        good = value.state not in PENDING and all(
            value.unlinked >> rank & 1
            or (not link.leaving and link.number == value.to.numbers[rank] and link.number in numbers)
            for rank, link in enumerate(at.links)
        )
        return None if good else ("kept", f"{value} is kept of {group}: {at.links}")

    def unrest(self, views: list[View]) -> tuple[str, str] | None:
        """Why the world is not at rest: the helper or the loop has something to do."""
        around: Around = views[0].around
        return ("rest", "something is always under way") if around.helper or around.inbox or around.doing else None

    def sights(self, views: list[View]) -> Iterable[str]:
        values = (views[0].values or {})["groups"]
        if views[0].around.closing == ():
            yield "closed"
        for group, at in enumerate(views[0].around.groups):
            value = values.get(group)
            yield f"{group} {value.state.name if value is not None else 'NEW'}"
            if ready(value, at):
                yield f"{group} ready"


def ready(value: GroupValue | None, at: Called) -> bool:
    """Whether `DecodeEndpoint.ready` is true: as `PrefillGroups.ready`, with the links of this world."""
    if value is None or value.state in (Group.LEFT, *PENDING) or value.unlinked:
        return False
    return all(link.up for link in at.links)


def _number(call: int, *, moved: bool = False) -> str:
    """Return the address for a call, or the one that its name leads to later."""
    return f"{call}, moved" if moved else str(call)


def _with(around: Around, group: int, at: Called) -> Around:
    return replace(around, groups=(*around.groups[:group], at, *around.groups[group + 1 :]))


def _link(around: Around, group: int, rank: int, link: Link) -> Around:
    at = around.groups[group]
    return _with(around, group, replace(at, links=(*at.links[:rank], link, *at.links[rank + 1 :])))
