"""Prefill groups: the groups that a decode endpoint calls, as machines of `decode_group`.

The engine's thread steps a group by `connect` and `disconnect`, the loop's by everything else.  A lock is held for the
step alone, and by the engine's thread until the effects are queued, so that the loop takes them in the order of the
steps.  A value is frozen, so `ready` and its like read one without a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kvproto.endpoint import group_table as gt
from kvproto.endpoint.farewells import Farewells
from kvproto.endpoint.group_table import PENDING, Destination, Group, GroupValue, decode_group
from kvproto.endpoint.last_rows import prepare_ends
from kvproto.endpoint.link_calls import LinkCall, LinkCalls
from kvproto.errors import ArgumentError, EndpointError, LinkError, NotFoundError, one_line
from kvproto.fsm.party import Member
from kvproto.fsm.routing import Routes
from kvproto.fsm.timing import Timers
from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.io.kernels.base import Pool
from kvproto.io.kernels.current_device import keep_device
from kvproto.layout.cut import Cut
from kvproto.layout.placement import closed_between
from kvproto.layout.plan import Plan
from kvproto.loop.call_preparation import CallPreparation, is_name, numbered
from kvproto.loop.held_signals import HeldSignals
from kvproto.loop.rank_loop import Loop
from kvproto.observe.logs import named
from kvproto.protocol import effects as do
from kvproto.rank.base import bits, mask
from kvproto.rank.decode import DecodeRank

if TYPE_CHECKING:
    from kvproto.data.decode_data import DecodeData

#: steps in the trace of all groups: each holds a plan, also of a group that is gone
STEPS = 16
FORGOTTEN = "forgotten: it was refused, or did not answer, for long: call connect again"


def by_group(event: gt.DisconnectCalled) -> int:
    """Return the group that an event is about."""
    return event.group


class GroupParty(Member):
    """The machines of all groups; groups without a link are bounded."""

    groups: dict[int, GroupValue]

    def __init__(self, bound: int) -> None:
        super().__init__(0, {0: "decode"}, Timers(), Routes("groups", (), ()), STEPS)
        self.bound = bound
        self.add("groups", decode_group, by_group)
        self.inner[gt.KeepUnlinked] = self._keep

    def _keep(self, effect: gt.KeepUnlinked) -> None:
        del effect
        unlinked = [(value.call, group) for group, value in self.groups.items() if value.state is Group.UNLINKED]
        if len(unlinked) > self.bound:
            self._queue.append(gt.DisconnectCalled(min(unlinked)[1]))


class PrefillGroups:
    """The prefill groups of one decode endpoint."""

    def __init__(self, loop: Loop, rank: DecodeRank, data: DecodeData, name: Callable[[int], str]) -> None:
        """`name` words a link for the log."""
        self._loop, self._rank, self._data = loop, rank, data
        self._lock, self._calls, self._closed = threading.Lock(), 0, False
        self._party = GroupParty(rank.settings.links)
        self.farewells = Farewells()
        #: by (group, rank): why the last link to a rank has ended, as long as the group is kept
        self._reasons: dict[tuple[int, int], str] = {}
        self._preparation = CallPreparation(loop.call, partial(keep_device, data.pool.gpu))
        loop.helpers.append(("preparing calls", self._close))
        self.links = LinkCalls(loop, rank, data.calling, name, self._look_again)
        self._acts: dict[type[Effect], Callable[[Any], None]] = {
            gt.Prepare: self._prepare, gt.CallRanks: self._call, gt.LeaveRanks: self._leave,
            gt.TellUnlinked: self._tell, Report: lambda effect: loop.call(partial(loop.report, effect)),
        }  # fmt: skip

    # ------------------------------------------------------------------------------------ the engine's thread
    def connect(self, group: int, plan: Plan, addresses: tuple[str, ...]) -> None:
        """Call the group; its kernels are made here if that takes no time.

        ArgumentError: the same addresses were called with another layout or chunk size.
        """
        known = self._wanted(group)
        if known is not None and _contradict(known, plan, addresses):
            raise ArgumentError(f"prefill group {group} is connected with another layout or chunk size: disconnect it, "
                             "or give the addresses of the instance that has this one")  # fmt: skip
        self._loop.check()
        if not self._slow(plan, addresses):
            self._make_kernels(plan)  # here, because the lock is held when they are made for the loop
        with HeldSignals(), self._lock:  # a handler that closes the endpoint would wait for the lock that it has
            self._check_open()
            self._calls += 1
            self._step(gt.ConnectCalled(group, self._calls, Destination(plan, addresses)))

    def disconnect(self, group: int) -> None:
        """Let go of the group.  NotFoundError: it is not connected."""
        self.get(group)
        with HeldSignals(), self._lock:  # as above
            self._step(gt.DisconnectCalled(group))

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            for group in list(self._party.groups):
                self._step(gt.CloseCalled(group))
        self._preparation.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EndpointError("this endpoint is closed: make a new one")

    def find(self, group: int) -> GroupValue | None:
        """Return the group's value, also of one that the engine has let go of.  Any thread."""
        return self._party.groups.get(group)

    def get(self, group: int) -> GroupValue:
        """Return the group's value.  NotFoundError: it is not connected.  Any thread."""
        value = self._wanted(group)
        if value is None:
            self._check_open()
            raise NotFoundError(f"prefill group {group} is not connected: call connect first")
        return value

    def _wanted(self, group: int) -> GroupValue | None:
        value = self.find(group)
        return None if value is None or value.state is Group.LEFT else value

    def ready(self, group: int, addresses: Sequence[str] | None) -> bool:
        """Return whether all links are up, and none of the addresses is tried beside one.

        LinkError: some ranks have no link, and why, each by name.
        """
        value, missing = self.get(group), dict[str, list[int]]()
        numbers, up = _numbers(value, addresses), value.state not in PENDING
        for rank in value.to.plan.linked_to(self._rank.index) if up else ():
            reached, why = self._rank.reached(group, rank)
            if value.unlinked >> rank & 1:
                why = self._reasons.get((group, rank), value.why)
            if why:
                missing.setdefault(why, []).append(rank)
            up &= reached and self._rank.tries(group, rank) not in numbers[rank : rank + 1]
        if missing:
            raise LinkError("; ".join(
                f"prefill rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}: {one_line(why)}"
                for why, ranks in missing.items()
            ))  # fmt: skip
        return up

    def any_up(self, group: int) -> bool:
        """Return whether some link to the group is up."""
        value = self.find(group)
        linked = () if value is None else value.to.plan.linked_to(self._rank.index)
        return any(self._rank.reached(group, rank)[0] for rank in linked)

    def agreed(self, group: int) -> bool:
        """Return whether some link was up by the group's plan, and is neither refused nor forgotten."""
        value = self.find(group)
        return value is not None and any(
            at.agreed is not None
            and not _differ(at.agreed, value.to.plan)
            and not self._rank.reached(group, at.rank)[1]
            for at in list(self.links.links.values())
            if at.group == group
        )

    def leads_to(self, group: int, addresses: Sequence[str]) -> bool:
        """Return whether the links lead to these addresses, or try them, or are about to."""
        value = self.get(group)
        if len(addresses) != value.to.plan.prefill.ranks:
            return False
        if value.state in PENDING and value.to.named == tuple(addresses):
            return True
        numbers = _numbers(value, addresses)
        return all(
            numbers[rank] in (self._rank.tries(group, rank), self._rank.leads_to(group, rank))
            for rank in value.to.plan.linked_to(self._rank.index)
        )

    # --------------------------------------------------------------------------------------- the loop's thread
    def call_anew(self) -> None:
        """Close every link in good order and call again, since the memory that HELLO describes has changed.

        A prefill rank that answers has let go of the transport's former instance: it is connected to the new one.
        """
        loop, rank, links = self._loop, self._rank, self.links
        loop.attempt("sending", loop.control.flush)  # a goodbye overtakes what is held back of rooms
        loop.submit(rank.take_leave(loop.now))
        loop.attempt("sending", loop.control.flush)  # a call overtakes what is held back, and replaces it
        for link in rank.to_call_anew():
            links.settle(link)
            loop.submit(rank.call_anew(link, loop.now))

    def prepare_kernels(self, pool: Pool) -> None:
        """Make the kernels of every connected group for this pool."""
        for value in list(self._party.groups.values()):
            self._make_kernels(value.to.plan, pool)

    def forget_link(self, effect: do.ForgetLink) -> None:
        """Close the connections of a link that the rank has forgotten."""
        at = self.links.forget(effect.link)
        self.farewells.forget(at.group)
        self._hear(gt.LinkEnded(at.group, at.rank, FORGOTTEN))

    def _hear(self, event: Event) -> None:
        with self._lock:
            effects = self._party.handle(event, self._loop.now)
        # Outside the lock: actions raise events of the party, which would take it once more.
        for effect in effects:
            self._loop.attempt(type(effect).__name__, partial(self._acts[type(effect)], effect))

    def _step(self, event: Event) -> None:
        for effect in self._party.handle(event, self._loop.now):
            self._acts[type(effect)](effect)

    def _call(self, effect: gt.CallRanks) -> None:
        group, plan = effect.group, effect.to.plan
        self._loop.attempt("a look at the ring's size", partial(self._warn_of_small_ring, group, plan))
        for rank in bits(effect.ranks):
            if why := self._call_rank(group, rank, effect.to):
                self._hear(gt.LinkEnded(group, rank, why))
        self._hear(gt.RanksCalled(group))

    def _call_rank(self, group: int, rank: int, to: Destination) -> str:
        """Call this prefill rank; return why it has no link (empty: it has one)."""
        try:
            link, effects = self._rank.call(group, rank, to.plan, self._loop.now, to.numbers[rank])
        except ArgumentError as error:
            return f"refused: {error}"
        except BaseException as error:  # noqa: BLE001  # whatever it is, the other ranks are called, and `ready` raises it
            self._loop.hold(error)
            return f"it could not be called: {named(error)}"
        self.links.add(link, group, rank)
        self._loop.attempt("the call of a prefill rank", partial(self._loop.submit, effects))
        return ""

    def _warn_of_small_ring(self, group: int, plan: Plan) -> None:
        settings = self._rank.settings
        chunk, ring = plan.grant_bytes(self._rank.index, Cut(0, plan.chunk_tokens)), settings.ring_bytes
        if chunk > ring and settings.route != "pages":
            closed = closed_between(None, self._data.memory.placement)
            self._loop.logs.small_ring(f"prefill group {group}", chunk, ring, closed)

    def _leave(self, effect: gt.LeaveRanks) -> None:
        # By way of the loop: the engine's thread may be here, with the lock held, and links are the loop's.
        self._loop.call(lambda: self._loop.submit(self._rank.leave(effect.group, self._loop.now)))

    def _tell(self, effect: gt.TellUnlinked) -> None:
        name = f"the link to rank {effect.rank} of group {effect.group}"
        if effect.left:
            self._loop.logs.left(name)
        else:
            kept = self._party.groups
            self._reasons = {key: why for key, why in self._reasons.items() if key[0] in kept}
            self._reasons[effect.group, effect.rank] = effect.why
            self._loop.logs.link(name, effect.why)

    # ------------------------------------------------------------------------------------------- preparation
    def _slow(self, plan: Plan, addresses: Sequence[str]) -> bool:
        return self._data.compiles or any(is_name(addresses[rank]) for rank in plan.linked_to(self._rank.index))

    def _make_kernels(self, plan: Plan, pool: Pool | None = None) -> None:
        index, kernels, pool = self._rank.index, self._data.kernels, pool or self._data.pool
        if pool.is_husk:  # they are made when there is another one
            return
        for shares in plan.cuts(plan.writers(index), self._rank.settings.layer_groups):
            kernels.prepare(pool, "scatter", shares)
        if plan.state is not None:
            tokens = plan.writers(index) if plan.joint_tokens else ()
            prepare_ends(kernels, "scatter", pool, plan.state_cuts(plan.state.writers(index)), tokens)

    def _prepare(self, effect: gt.Prepare) -> None:
        if self._slow(effect.to.plan, effect.to.named):
            self._preparation.submit(lambda: self._prepared(effect)[0])
            return
        hear, ended = self._prepared(effect)
        self._loop.call(hear)
        if ended is not None:
            raise ended

    def _prepared(self, effect: gt.Prepare) -> tuple[Callable[[], None], BaseException | None]:
        """Look up names and compile kernels; return the loop's part, and what asked the process to end.

        Thread: the helper's, if that is slow.
        """
        to, why, linked = effect.to, "", effect.to.plan.linked_to(self._rank.index)
        ended: BaseException | None = None
        numbers = tuple(numbered(each) if rank in linked else each for rank, each in enumerate(to.named))
        try:
            self._make_kernels(to.plan)
        except BaseException as error:  # noqa: BLE001  # whatever it is, `ready` raises it
            why = f"its kernels cannot be made: {named(error)}"
            ended = None if isinstance(error, Exception) else error
        event = gt.GroupPrepared(effect.group, effect.call, replace(to, numbers=numbers), mask(linked), why)

        def hear() -> None:
            value = self.find(event.group)
            if value is not None and value.call == event.call:  # earlier reasons count no more
                self._reasons = {key: why for key, why in self._reasons.items() if key[0] != event.group}
            self._hear(event)

        return hear, ended

    def _look_again(self, at: LinkCall) -> None:
        """Look up the name of an unanswered call again: its owner may have moved."""
        value = self.find(at.group)
        if value is None or at.looking or not is_name(name := value.to.named[at.rank]):
            return
        call, group, rank = value.call, at.group, at.rank

        def look() -> Callable[[], None]:
            number = numbered(name)

            def found() -> None:
                at.looking = False
                if (value := self.find(group)) is not None:
                    numbers = (*value.to.numbers[:rank], number, *value.to.numbers[rank + 1 :])
                    moved = number not in (at.dialled or name, at.tried)
                    self._hear(gt.NameFound(group, call, replace(value.to, numbers=numbers), rank, moved))

            return found

        self._preparation.submit(look)
        at.looking = True  # it is on its way; the call that ends that comes by this loop


def _numbers(value: GroupValue, addresses: Sequence[str] | None) -> Sequence[str]:
    """Return these addresses (None: those that were named last), with numbers for names."""
    return value.to.numbers if addresses is None or value.to.named == tuple(addresses) else addresses


def _contradict(known: GroupValue, plan: Plan, addresses: tuple[str, ...]) -> bool:
    """Return whether both calls name an address, with different layouts or chunk sizes."""
    return _differ(known.to.plan, plan) and not {*known.to.named}.isdisjoint(addresses)


def _differ(one: Plan, other: Plan) -> bool:
    return (one.prefill, one.chunk_tokens) != (other.prefill, other.chunk_tokens)
