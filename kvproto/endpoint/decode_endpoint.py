"""The decode engine's endpoint.

`connect` names a prefill group once, with its layout and its ranks' addresses; `disconnect` ends that.  For a room,
call `open` when its pages are allocated; `finished` and `released` then report its end, and `aux` returns the aux row
of a successful one. """

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kvproto.call_arguments import checked, explained
from kvproto.data.decode_data import DecodeData
from kvproto.data.room_entry import NO_TABLE, RoomEntry, page_runs_of
from kvproto.data.staging_buffers import Kind
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.tried_addresses import TriedAddresses
from kvproto.endpoint.validation import (
    as_traceparent,
    check_pool,
    closed_if_it_fails,
    make_control,
    need_group,
    need_incarnation,
    need_layer_groups,
    need_room,
    need_secret,
)
from kvproto.errors import ArgumentError, LinkError, NotFoundError
from kvproto.fsm.vocabulary import Report
from kvproto.io.clock import Clock, SteadyClock
from kvproto.io.control.control import ControlError
from kvproto.io.control.keys import Keys
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.kernels.current_device import keep_device, use_device
from kvproto.io.kernels.digesting import Cell, Place
from kvproto.io.transports.base import Transport
from kvproto.layout.costs import layer_groups as groups_that_pay
from kvproto.layout.cut import chunks, cut_at
from kvproto.layout.placement import closed_between
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.loop.call_preparation import CallPreparation, is_name, numbered
from kvproto.loop.event_loop import Handlers
from kvproto.observe.grant_ages import GrantAges
from kvproto.observe.logs import named
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import Cause, DLink
from kvproto.rank.decode import DecodeRank
from kvproto.room import Room, Status
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings

STALL_S = 1.0


class DecodeEndpoint(Endpoint):
    """One decode rank of an engine."""

    _rank: DecodeRank
    _data: DecodeData
    _abort_cause, _gives_up, _answered = Cause.DECODE_ABORTED, ev.EngineAborted, False

    @checked
    def __init__(
        self, layout: Layout, index: int, pool: Pool, transport: Transport, *, chunk_tokens: int | None = None,
        group: int = DECODE_GROUP, settings: Settings | None = None, kernels: Kernels | None = None,
        clock: Clock | None = None, incarnation: int | None = None, staging: Kind = "device", digests: bool = False,
        keys: Keys | str | Path | None = None, insecure: bool = False,
    ) -> None:  # fmt: skip
        """Allocate the ring, register it and the pool with the transport, and open the control plane.

        Args:
            layout: the decode group's layout
            index: this rank in its group
            pool: this rank's share of the KV cache
            transport: a transport of its own, which closes with the endpoint
            chunk_tokens: tokens of a chunk, whole pages of both sides, unless `connect` names another
            group: the engine instance's number (u64)
            settings: sizes in bytes, timers in seconds; `ring_bytes` is the ring's size
            kernels: default: the pool's own
            clock: default: monotonic, and steady while the process is stopped
            incarnation: the number of this start (u48), above those of its earlier ones (default: by the clock)
            staging: "device", or "pinned" for a transport that cannot reach a GPU's memory
            digests: keep digests of the moved KV, see `digests`
            keys: the secret file of this process (`kvproto keys`), needed beyond loopback
            insecure: allow addresses beyond loopback without keys

        Raises:
            ArgumentError: the pool is not this rank's share of the layout, or a file is no key

        """
        check_pool(layout, index, pool, chunk_tokens)
        rank = DecodeRank(
            layout,
            index,
            group=need_group(group),
            chunk_tokens=chunk_tokens or 0,
            incarnation=need_incarnation(incarnation),
            settings=settings,
        )
        control = make_control(None, keys, rank.settings.timing, insecure=insecure)
        with closed_if_it_fails(control) as undo, use_device(pool.gpu):
            super().__init__(rank, pool, control, clock or SteadyClock(STALL_S))
            kernels = self._kernels(kernels, digests=digests)
            self._data = DecodeData(self._loop, rank, pool, kernels, transport, self._entries, staging, undo)
        self._ages = GrantAges(rank.ring)
        self._loop.every_second.append(self._ages.look)
        #: calls (group, rank) that the loop has yet to take, and those that it could not
        self._calling: Counter[tuple[int, int]] = Counter()
        self._uncalled: dict[tuple[int, int], str] = {}
        #: by link: the address that its connection leads to, and the rank there
        self._dialled: dict[int, str] = {}
        self._called: dict[int, tuple[int, int]] = {}
        #: by group: plan and addresses of the engine's last `connect`
        self._named: dict[int, tuple[Plan, tuple[str, ...]]] = {}
        #: by group: the addresses of that, with numbers for names
        self._numbers: dict[int, Sequence[str]] = {}
        #: groups that the engine has let go of, until their last link is forgotten; and others that were forgotten
        self._left: set[int] = set()
        self._forgotten: dict[int, None] = {}
        #: by link: the session of its last call; links whose name is being looked up
        self._said: dict[int, int] = {}
        self._looking: set[int] = set()
        self._preparation = CallPreparation(self._loop.call, partial(keep_device, pool.gpu))
        self._loop.helpers.append(("preparing calls", self._preparation.close))
        connections = self._loop.connections
        self._loop.control.outboxes.emptied = lambda peer: self._call_left(connections.link_at.get(peer, 0))
        self._tried = TriedAddresses(self._loop, rank, self._peer_name, self._dialled.__setitem__)
        self._loop.install(self._handlers(), do.DECODE)

    def _handlers(self) -> Handlers:
        """Return the handler of each effect of a decode rank."""
        loop, data, tried = self._loop, self._data, self._tried
        return {
            # messages, and links
            do.Transmit: loop.connections.transmit, do.TransmitPages: data.send_pages, do.SayHello: self._say_hello,
            do.SayReset: loop.send_reset, do.Dial: self._dial, do.ForgetLink: self._forget_link,
            do.TryAddress: tried.call, do.TakeAddress: tried.take, do.LeaveAddress: tried.leave,
            # kernels
            do.LaunchScatter: data.ask_scatter,
            # the engine, logs and metrics
            do.DeliverAux: self._deliver_aux, do.AnnounceOutcome: self._outcome, do.AnnounceReleased: self._release,
            do.AnnounceLink: self._link, Report: loop.report,
        }  # fmt: skip

    # ------------------------------------------------------------------------------------ the engine's calls
    @checked
    def connect(
        self, layout: Layout, addresses: Sequence[str], *, group: int = PREFILL_GROUP, chunk_tokens: int | None = None
    ) -> None:  # fmt: skip
        """Call the ranks of a prefill group at these `addresses`, in rank order; never blocks.

        `layout` is the group's; `chunk_tokens`: its tokens of a chunk (default: this endpoint's); groups may differ.

        Kernels are compiled and names looked up first, on a thread of their own.  LayoutError: the two layouts cannot
        work together.  `ready` tells whether the ranks have answered.  A second call reconnects the missing ranks, at
        their new addresses if they have others.  A link that is up is kept meanwhile: the new address is tried beside
        it, and replaces it when a later incarnation answers there while the link is silent.  A link that was refused,
        or that no peer has answered for `Timing.forget` and no room needs, is forgotten: `ready` says so, of the newest
        `Settings.links` groups.
        """
        group = need_group(group)
        if len(addresses) != layout.ranks:
            raise ArgumentError(f"{len(addresses)} addresses for {layout.ranks} prefill ranks")
        if chunk_tokens is None and not self._rank.chunk_tokens:
            raise ArgumentError(
                "no chunk size is known: give `connect` the prefill group's chunk_tokens, or the endpoint one for all"
            )
        plan = Plan(
            layout, self._rank.layout, self._rank.chunk_tokens if chunk_tokens is None else operator.index(chunk_tokens)
        )
        known, where = self._named.get(group, (plan, ()))
        changed = (known.prefill, known.chunk_tokens) != (layout, plan.chunk_tokens)
        if group not in self._left and changed and {*where} & {*addresses}:
            raise ArgumentError(f"prefill group {group} is connected with another layout or chunk size: disconnect it, "
                             "or give the addresses of the instance that has this one")  # fmt: skip
        self._loop.check()
        waits = self._data.compiles or any(is_name(addresses[index]) for index in plan.linked_to(self._rank.index))
        if not waits:
            self._make_kernels(plan)
        for index in plan.linked_to(self._rank.index):
            self._calling[group, index] += 1
            self._uncalled.pop((group, index), None)
        self._left.discard(group)
        self._forgotten.pop(group, None)
        said = self._named[group] = plan, tuple(addresses)
        self._data.plans[group] = plan
        if waits:
            self._preparation.submit(lambda: self._prepare(group, said))
        else:
            self._loop.call(lambda: self._call(group, *said))

    def _make_kernels(self, plan: Plan) -> None:
        for shares in plan.cuts(plan.writers(self._rank.index), self._rank.settings.layer_groups):
            self._data.kernels.prepare(self.pool, "scatter", shares)

    def _prepare(self, group: int, said: tuple[Plan, tuple[str, ...]]) -> Callable[[], None]:
        """On the helper thread: what the call needs; the call, unless the engine has another wish by then."""
        plan, addresses = said
        linked, why = plan.linked_to(self._rank.index), ""
        found = [numbered(each) if index in linked else each for index, each in enumerate(addresses)]
        try:
            self._make_kernels(plan)
        except Exception as error:  # noqa: BLE001  # whatever it is, `ready` raises it
            why = f"its kernels cannot be made: {named(error)}"

        def call() -> None:
            if not why and self._named.get(group) is said:
                self._call(group, plan, found)
                return
            for index in linked:
                self._take_call(group, index)
                if why:
                    self._uncalled[group, index] = why

        return call

    def _take_call(self, group: int, index: int) -> None:
        self._calling[group, index] -= 1
        if not self._calling[group, index]:
            del self._calling[group, index]

    def _call(self, group: int, plan: Plan, addresses: Sequence[str]) -> None:
        self._data.plans[group], self._numbers[group] = plan, addresses
        chunk, ring = plan.grant_bytes(self._rank.index, plan.chunk_tokens), self._rank.settings.ring_bytes
        if chunk > ring and self._rank.settings.route != "pages":
            closed = closed_between(None, self._data.memory.placement)
            self._loop.logs.small_ring(f"prefill group {group}", chunk, ring, closed)
        for index in plan.linked_to(self._rank.index):
            self._take_call(group, index)
            self._said.pop(self._rank.link_of.get((group, index), 0), None)
            try:
                link, effects = self._rank.call(group, index, plan, self._loop.now, addresses[index])
            except ArgumentError as error:
                self._uncalled[group, index] = f"refused: {error}"
            else:
                self._called[link] = group, index
                self._uncalled.pop((group, index), None)
                self._loop.submit(effects)

    @checked
    def disconnect(self, group: int = PREFILL_GROUP) -> None:
        """Let go of a prefill group; NotFoundError: it is not connected.

        Its rooms that are not over end as `Cause.DISCONNECTED`, and are released as ever: when nothing of them can land
        any more.  Then its links are forgotten, and their room is free for others.
        """
        self._plan(group)
        self._left.add(group)

        def leave() -> None:
            self._loop.submit(self._rank.leave(group, self._loop.now))
            self._tidy(group)

        self._loop.call(leave)

    @checked
    def ready(self, group: int = PREFILL_GROUP, addresses: Sequence[str] | None = None) -> bool:
        """Whether every link to the group is up, and no address is still being tried beside one.

        `addresses`: those to look at (default: the last ones of `connect`).  LinkError: a link was refused, and why.
        """
        self._loop.check()
        waits, numbers = False, self._numbered(group, addresses)
        for index in self._plan(group).linked_to(self._rank.index):
            up, why = self._rank.reached(group, index)
            why = self._uncalled.get((group, index), why)
            if (group, index) in self._calling:
                waits = True
            elif why:
                raise LinkError(why)
            else:
                waits |= not up or self._rank.tries(group, index) in numbers[index : index + 1]
        return not waits

    @checked
    def any_up(self, group: int = PREFILL_GROUP) -> bool:
        """Whether some link to the group is up, also of one that the engine has let go of."""
        plan = self._data.plans.get(group)
        return plan is not None and any(self._rank.reached(group, at)[0] for at in plan.linked_to(self._rank.index))

    @checked
    def leads_to(self, addresses: Sequence[str], group: int = PREFILL_GROUP) -> bool:
        """Whether the links to the group lead to these addresses of its ranks, or try them.

        Then `connect` would change nothing.  NotFoundError: the group is not connected.
        """
        plan = self._plan(group)
        if len(addresses) != plan.prefill.ranks:
            return False
        numbers, named = self._numbered(group, addresses), self._named[group][1] == tuple(addresses)
        return all(
            (named and (group, index) in self._calling)
            or numbers[index] in (self._rank.tries(group, index), self._rank.leads_to(group, index))
            for index in plan.linked_to(self._rank.index)
        )

    def _numbered(self, group: int, addresses: Sequence[str] | None) -> Sequence[str]:
        """These addresses of a group's ranks (None: those that were named last), with numbers for names."""
        if addresses is None or self._named.get(group, (None, ()))[1] == tuple(addresses):
            return self._numbers.get(group, ())
        return addresses

    def _plan(self, group: int) -> Plan:
        if group not in self._data.plans or group in self._left:
            raise NotFoundError(f"prefill group {group} is not connected: call connect first")
        return self._data.plans[group]

    @explained
    def open(
        self, room: Room, tokens: int, pages: Any, *, prefix: int = 0, group: int = PREFILL_GROUP, secret: bytes = b"",
        traceparent: str = "", layer_groups: int | None = None,
    ) -> None:  # fmt: skip
        """Open a room and give it pages for `tokens` tokens; never blocks.

        With `layer_groups` a group of layers leaves while the prefill engine's forward computes the next one, if that
        engine calls `produced(..., layers=...)`.

        Args:
            room: its name; a new attempt of a request needs a higher `gen`
            tokens: length of the prompt
            pages: page ids in token order, a sequence, array or tensor of ints
            prefix: the KV of so many first tokens is in the pages already; whole pages, or the whole prompt
            group: the prefill group
            secret: the one with which the prefill engine opens the room, 64 bytes at most
            traceparent: the request's trace (W3C Trace Context; a malformed one is ignored), see `Outcome.traceparent`
            layer_groups: groups of layers that each chunk is cut into, alike on all decode ranks (None: as many as pay)

        Raises:
            LayoutError: the prefix ends inside a page
            NotFoundError: the group was never connected
            ArgumentError: it was announced with another length or group, or is open; or pages are missing
            ArgumentError: a share has fewer layers than `layer_groups`

        """
        plan, prefix = self._plan(group), operator.index(prefix)
        entry = need_room(self._rank.layout, tokens, pages, self.pool, self._data.streams)
        plan.admit(entry.tokens, prefix)
        entry.carried = plan, prefix
        said, terms = (need_secret(secret), as_traceparent(traceparent)), self._rank.terms
        groups = self._layer_groups(plan, entry.tokens - prefix, layer_groups)
        runs = page_runs_of(entry.pages[prefix // self._rank.layout.page_size :])

        key = room.key

        def begin() -> None:
            self._happen(ev.RoomOpened(key, terms(group, plan, groups), entry.tokens, prefix, *said, runs))

        known = self._entries.get(key)
        if known is None or not known.announced:
            self._enter(room, entry, begin)
            return
        if (known.tokens, known.announced) != (entry.tokens, group):
            told = f"{known.tokens} tokens at group {known.announced}"
            raise ArgumentError(f"{room} was announced with {told}, and is opened with {entry.tokens} at {group}")
        known.announced, known.carried = 0, entry.carried
        known.table, known.pages, known.given, known.placed = entry.table, entry.pages, entry.given, entry.placed
        if known.table is NO_TABLE:
            self._data.streams.put_off(known)
        self._loop.call(begin)

    def _by_pages(self, entry: RoomEntry, known: Container[Place]) -> Iterator[Cell]:
        if entry.cause is not Cause.NONE or entry.carried is None or self._digesting is None:
            return
        plan, prefix = entry.carried
        for number in range(chunks(entry.tokens, prefix, plan.chunk_tokens)):
            cut = cut_at(number, entry.tokens, prefix, plan.chunk_tokens)
            for share in plan.writers(self._rank.index):
                mine = replace(share, src_head=share.dst_head, src_layer=share.dst_layer)
                if any(place not in known for place in self._digesting.places("gather", cut.first, (mine,))):
                    yield cut.first, cut.tokens, mine

    def _layer_groups(self, plan: Plan, tokens: int, asked: int | None) -> int:
        if asked is not None:
            return need_layer_groups(plan, asked)
        most, own = min(self._rank.settings.layer_groups, plan.fewest_layers), plan.decode
        if most == 1:
            return 1
        # of an average rank: all of them come to the same number
        layer = own.local_heads * own.cell_bytes * min(tokens, plan.chunk_tokens)
        return groups_that_pay(self._data.costs, layer * own.layers // own.pp, most)

    @explained
    def announce(
        self, room: Room, tokens: int, *, group: int = PREFILL_GROUP, secret: bytes = b"", traceparent: str = ""
    ) -> None:  # fmt: skip
        """Announce a room that has no pages yet, so that the prefill engine does not give it up.

        Call `open` when there are pages.  A refusal or failure of the prefill engine arrives at once, as for any room.
        The room ends by `Timing.stall` if this engine neither opens nor renews it.  The arguments are those of `open`.
        """
        plan, terms = self._plan(group), self._rank.terms
        entry = need_room(self._rank.layout, tokens, (), self.pool, self._data.streams, whole=False)
        entry.announced = group
        said = need_secret(secret), as_traceparent(traceparent)
        key = room.key

        def begin() -> None:
            self._happen(ev.RoomAnnounced(key, terms(group, plan), entry.tokens, *said))

        self._enter(room, entry, begin)

    @explained
    def renew(self, room: Room) -> None:
        """Announce the room again, which restarts its timers on both sides; no effect on an open room."""
        if self._entry(room) is not None:
            self._loop.call(ev.RoomRenewed(room.key))

    @explained
    def aux(self, room: Room) -> bytes:
        """The aux row; NotFoundError until it has landed, and after the room was handed out by `released`."""
        entry = self._entry(room)
        if entry is None or entry.aux is None:
            raise NotFoundError(f"the aux row of {room} has not landed")
        return entry.aux

    # ------------------------------------------------------------------------------------------ the loop's
    def _knows_room(self, key: int) -> bool:
        del key
        return True

    def _stage(self, value: Any) -> int:
        stage, work = super()._stage(value), value.work
        waits = value.state.name == "OPEN" and (work is None or not (work.done or work.live or work.aux))
        return Status.WAITING if waits else stage

    def _dial(self, effect: do.Dial) -> None:
        if self._dialled.get(effect.link) == effect.address and effect.link in self._loop.connections.peer_of:
            return
        if is_name(effect.address):
            why = f"nobody knows the name in {effect.address!r}: it is looked up again at every call"
            self._loop.raise_event(ev.DialFailed(effect.link, why))
            return
        try:
            peer = self._loop.control.connect(effect.address)
        except ControlError as error:
            self._loop.raise_event(ev.DialFailed(effect.link, str(error)))
            return
        self._dialled[effect.link] = effect.address
        self._loop.connections.bind(effect.link, peer)

    def _look_again(self, link: int) -> None:
        """Look up the name of an unanswered call again: its owner may have moved."""
        group, index = self._called.get(link, (0, 0))
        said = self._named.get(group)
        if said is None or link in self._looking or not is_name(said[1][index]):
            return
        plan, addresses = said

        def look() -> Callable[[], None]:
            found = numbered(addresses[index])

            def call() -> None:
                self._looking.discard(link)
                if self._named.get(group) is not said or self._called.get(link) != (group, index):
                    return  # the engine has called `connect` or `disconnect` meanwhile
                if found != self._dialled.get(link, addresses[index]):
                    self._loop.submit(self._rank.call(group, index, plan, self._loop.now, found)[1])

            return call

        self._preparation.submit(look)
        self._looking.add(link)  # it is on its way; the call that ends that comes by this loop

    def _forget_link(self, effect: do.ForgetLink) -> None:
        """Its connection goes; so does what is known of its group, with the last link of one that was let go."""
        group, index = self._called.pop(effect.link)
        self._dialled.pop(effect.link, None)
        self._said.pop(effect.link, None)
        self._data.calling.discard(effect.link)
        self._tried.end(effect.link)
        self._loop.connections.forget(effect.link)
        name = f"link {effect.link} to rank {index} of group {group}"
        if group not in self._left:
            self._uncalled[group, index] = "forgotten: it was refused, or did not answer, for long: call connect again"
            self._loop.logs.link(name, "forgotten")
            self._forgotten[group] = None
            if len(self._forgotten) > self._rank.settings.links:
                self._drop(next(iter(self._forgotten)))
            return
        self._loop.logs.left(name)
        self._tidy(group)

    def _tidy(self, group: int) -> None:
        """Drop all data of a disconnected group that has no link any more."""
        if group in self._left and group not in {other for other, _ in self._called.values()}:
            self._drop(group)

    def _drop(self, group: int) -> None:
        plan, _ = self._named.pop(group, (None, ()))
        for index in plan.linked_to(self._rank.index) if plan is not None else ():
            self._uncalled.pop((group, index), None)
        self._left.discard(group)
        self._forgotten.pop(group, None)
        self._data.plans.pop(group, None)
        self._numbers.pop(group, None)

    def _say_hello(self, effect: do.SayHello) -> None:
        """Queue a HELLO on this link; for an absent peer only the newest is kept, and it is encoded once."""
        connections, link = self._loop.connections, effect.link
        if not connections.waits(link) or self._said.get(link) != effect.session:
            connections.clear(link)
            connections.send(link, 0, 0, self._rank.hello(effect.session, link))
            self._said[link] = effect.session
        if not connections.waits(link):
            self._call_left(link)
        self._look_again(link)

    def _call_left(self, link: int) -> None:
        """Poll the transport while a sent call is unanswered: the peer's wire-up needs it."""
        value = self._rank.links.get(link)
        if value is not None and value.state is DLink.AWAIT_WELCOME:
            self._data.calling.add(link)

    def _link(self, effect: do.AnnounceLink) -> None:
        self._data.calling.discard(effect.link)
        self._tried.end(effect.link)
        super()._link(effect)

    def _time_outcome(self, entry: RoomEntry, cause: Cause) -> None:
        super()._time_outcome(entry, cause)
        if not cause:
            self._data.arrived(entry)

    def _deliver_aux(self, effect: do.DeliverAux) -> None:
        entry = self._entries.get(effect.room)
        if entry is not None:
            entry.aux = effect.data
