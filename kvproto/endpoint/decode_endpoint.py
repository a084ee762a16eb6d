"""The decode engine's endpoint.

`connect` names a prefill group once, with its layout and its ranks' addresses; `disconnect` ends that.  For a room,
call `open` when its pages are allocated; `finished` and `released` then report its end, and `aux` returns the aux row
of a successful one."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from kvproto.call_arguments import checked, explained
from kvproto.data.decode_data import DecodeData
from kvproto.data.room_entry import NO_TABLE, RoomEntry, page_runs_of
from kvproto.data.staging_buffers import Kind
from kvproto.endpoint import takers
from kvproto.endpoint.endpoint import LINGER_S, Endpoint
from kvproto.endpoint.explain import explain_link
from kvproto.endpoint.last_rows import Slots, need_ring_for_last_rows
from kvproto.endpoint.prefill_groups import PrefillGroups
from kvproto.endpoint.resume_point import ResumePoint, point_of
from kvproto.endpoint.validation import (
    as_traceparent,
    check_pool,
    make_control,
    need_group,
    need_incarnation,
    need_layer_groups,
    need_room,
    need_secret,
    undone_if_it_fails,
    why_unprepared,
)
from kvproto.errors import ArgumentError, NotFoundError
from kvproto.fsm.vocabulary import Report
from kvproto.io.clock import Clock, SteadyClock
from kvproto.io.control.keys import Keys
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.kernels.current_device import use_device
from kvproto.io.kernels.digesting import Cell, Place, read_back
from kvproto.io.transports.base import Transport
from kvproto.layout.costs import layer_groups as groups_that_pay
from kvproto.layout.cut import chunks, cut_at
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.loop.event_loop import Handlers
from kvproto.loop.held_signals import HeldSignals
from kvproto.observe.grant_ages import GrantAges
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import Cause
from kvproto.protocol.versions import ANNOUNCE
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
        with undone_if_it_fails(("the control plane", control.close)) as undo, use_device(pool.gpu):
            super().__init__(rank, pool, control, clock or SteadyClock(STALL_S))
            kernels = self._kernels(kernels, digests=digests)
            self._data = DecodeData(self._loop, rank, pool, kernels, transport, self._entries, staging, undo)
        self._ages = GrantAges(rank.ring)
        self._loop.every_second.append(self._ages.look)
        self._groups = PrefillGroups(self._loop, rank, self._data, self._peer_name)
        self._loop.install(self._handlers(), do.DECODE)

    def _handlers(self) -> Handlers:
        loop, data, links = self._loop, self._data, self._groups.links
        return {
            # messages, and links
            do.Transmit: loop.connections.transmit, do.TransmitPages: data.send_pages, do.SayReset: loop.send_reset,
            do.Dial: links.dial, do.SayHello: links.say_hello, do.ForgetLink: self._groups.forget_link,
            do.TryAddress: links.try_address, do.TakeAddress: links.take_address, do.LeaveAddress: links.leave_address,
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
        need_ring_for_last_rows(plan, self._rank.index, self._rank.settings, self._data.memory.placement)
        self._groups.connect(group, plan, tuple(addresses))

    @checked
    def disconnect(self, group: int = PREFILL_GROUP) -> None:
        """Let go of a prefill group; NotFoundError: it is not connected.

        Its rooms that are not over end as `Cause.DISCONNECTED`, and are released as ever: when nothing of them can land
        any more.  Then its links are forgotten, and their room is free for others.
        """
        self._groups.disconnect(group)

    @checked
    def ready(self, group: int = PREFILL_GROUP, addresses: Sequence[str] | None = None) -> bool:
        """Whether every link to the group is up, and no address is still being tried beside one.

        `addresses`: those to look at (default: the last ones of `connect`).  LinkError: a link was refused, and why.
        """
        self._loop.check()
        return self._groups.ready(group, addresses)

    @checked
    def any_up(self, group: int = PREFILL_GROUP) -> bool:
        """Whether some link to the group is up, also of one that the engine has let go of."""
        return self._groups.any_up(group)

    @checked
    def agreed(self, group: int = PREFILL_GROUP) -> bool:
        """Whether a rank of the group agreed to the last `connect`, and was not refused or forgotten since."""
        return self._groups.agreed(group)

    @checked
    def leads_to(self, addresses: Sequence[str], group: int = PREFILL_GROUP) -> bool:
        """Whether the links to the group lead to these addresses of its ranks, or try them.

        Then `connect` would change nothing.  NotFoundError: the group is not connected.
        """
        return self._groups.leads_to(group, addresses)

    @checked
    def has_left(self, group: int, incarnation: int) -> bool:
        """Whether this life of the group, the latest incarnation of its ranks, has said goodbye; any thread.

        It answers no room any more.  A successor has another incarnation.
        """
        return self._groups.farewells.has_left(group, incarnation)

    @explained
    def open(
        self, room: Room, tokens: int, pages: Any, *, prefix: int = 0, group: int = PREFILL_GROUP, secret: bytes = b"",
        traceparent: str = "", layer_groups: int | None = None,
        slot: Slots | None = None, window: Any = None, resumes: Room | None = None,
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
            slot: where the pool has state, the slot that gets the state after `tokens` tokens, or several if a room has
                so many (`CachePool`); lent until `released`
            window: where a cache travels as a window, page ids in its own table for the prompt's last tokens: from the
                page of token `max(0, tokens - window)` on, whatever the prefix; lent likewise
            resumes: the room whose pages this one takes over, with what has arrived of it as `prefix`

        Raises:
            LayoutError: the prefix ends inside a page
            NotFoundError: the group was never connected
            ArgumentError: the room that it resumes is not released here, or less of it has arrived
            ArgumentError: it was announced with another length or group, or is open; pages, slot or window are missing
            ArgumentError: a share has fewer layers than `layer_groups`, or no kernel is compiled for so many groups

        """
        plan, prefix = self._groups.get(group).to.plan, operator.index(prefix)
        if resumes is not None:
            self._need_arrived(resumes, prefix)
        entry = need_room(self._rank.layout, tokens, pages, self.pool, self._data.streams, slot=slot, window=window)
        plan.admit(entry.tokens, prefix)
        entry.carried = plan, prefix
        said, terms = (need_secret(secret), as_traceparent(traceparent)), self._rank.terms
        groups = self._layer_groups(plan, entry.tokens - prefix, layer_groups)
        runs = page_runs_of(entry.pages[prefix // self._rank.layout.page_size :])

        key = room.key

        def begin() -> None:
            self._happen(ev.RoomOpened(key, terms(group, plan, groups), entry.tokens, prefix, *said, runs))

        known = self._entries.get(key)
        # An announced room keeps its entry: an outcome that came since the announcement must not be lost.
        if known is None or not known.announced:
            self._enter(room, entry, begin)
            return
        if (known.tokens, known.announced) != (entry.tokens, group):
            told = f"{known.tokens} tokens at group {known.announced}"
            raise ArgumentError(f"{room} was announced with {told}, and is opened with {entry.tokens} at {group}")
        with HeldSignals():  # whole or not at all, as a room that was not announced
            known.announced, known.carried = 0, entry.carried
            known.ends, known.end_tables = entry.ends, entry.end_tables
            known.table, known.pages, known.given, known.placed = entry.table, entry.pages, entry.given, entry.placed
            if known.table is NO_TABLE:
                # Page tables of one pass go to the device in one copy.
                self._data.streams.put_off(known)
            self._loop.call(begin)

    @explained
    def resume_point(self, room: Room) -> ResumePoint:
        """Return how much of a room is in place here, as data that outlives this process; any thread.

        An engine that keeps the newest one outside the process can have a successor go on from there.  It may be asked
        for until the room has been over for long.  Of a group's ranks the lowest counts: a room has one prefix.

        Raises:
            NotFoundError: the room is unknown here

        """
        entry, value = self._entry(room), self._rank.value_of(self._key(room))
        if value is not None:
            return point_of(room, value)
        assert entry is not None  # its loop has not taken the call yet
        prefix = entry.main.carried[1] if entry.main.carried is not None else 0
        return ResumePoint(room, entry.tokens, prefix, prefix)

    def _need_arrived(self, dead: Room, prefix: int) -> None:
        """ArgumentError unless nothing of the room that is resumed can land, and so much of it has arrived."""
        self._need_released(dead)
        value = self._rank.value_of(self._key(dead))
        # A successor knows nothing of it.
        if value is not None and prefix > (upto := point_of(dead, value).upto):
            raise ArgumentError(f"prefix {prefix}: of {dead} only {upto} tokens have arrived here")

    def _by_pages(self, entry: RoomEntry, known: Container[Place]) -> Iterator[Cell]:
        if entry.end is None or not entry.end.ok or entry.carried is None or self._digesting is None:
            return
        plan, prefix = entry.carried
        for number in range(chunks(entry.tokens, prefix, plan.chunk_tokens)):
            cut = cut_at(number, entry.tokens, prefix, plan.chunk_tokens)
            for share in plan.writers(self._rank.index):
                mine = read_back(share)
                if any(place not in known for place in self._digesting.places("gather", cut.first, (mine,))):
                    yield cut.first, cut.tokens, mine

    def _layer_groups(self, plan: Plan, tokens: int, asked: int | None) -> int:
        if asked is not None:
            asked = need_layer_groups(plan, asked)
            if self._data.compiles and (why := why_unprepared(asked, self._rank.settings.layer_groups)):
                raise ArgumentError(why)  # else they would be compiled by the loop, and rooms wait for it
            return asked
        most, own = min(self._rank.settings.layer_groups, plan.fewest_layers), plan.decode
        if most == 1:
            return 1
        # of an average rank: all of them come to the same number
        token = sum(own.held_bytes(stage * own.tp) for stage in range(own.pp)) // own.pp
        return groups_that_pay(self._data.costs, token * min(tokens, plan.chunk_tokens), most)

    @explained
    def announce(
        self, room: Room, tokens: int, *, group: int = PREFILL_GROUP, secret: bytes = b"", traceparent: str = ""
    ) -> None:  # fmt: skip
        """Announce a room that has no pages yet, so that the prefill engine does not give it up.

        Call `open` when there are pages.  A refusal or failure of the prefill engine arrives at once, as for any room.
        The room ends by `Timing.stall` if this engine neither opens nor renews it.  The arguments are those of `open`.

        Raises:
        ArgumentError: a prefill rank of the group is of a build that keeps no announced rooms.

        """
        if lacking := self._rank.lacking(group, ANNOUNCE):
            raise ArgumentError(f"announce: {lacking}, or open the room when it has pages")
        plan, terms = self._groups.get(group).to.plan, self._rank.terms
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
            self._loop.call(ev.RoomRenewed(self._key(room)))

    @explained
    def share(self, room: Room, name: Room) -> None:
        """Give a room's pages one name more, as for one of several samples of a prompt; never blocks.

        The name has an outcome, a release and the aux row of its own; no peer hears of it.  `abort` ends a name at
        once, and the transfer with its last one.  All names are released with the room: when the engine has taken
        every release, nothing of the transfer touches the pages, and it frees them with the last of its own uses.

        Args:
            room: a room, or another name of it, that `open` or `announce` has named here
            name: a new one, of the same kind

        Raises:
            NotFoundError: the room is unknown here, or its release was handed out
            ArgumentError: there is a room of this name, or was a short while ago

        """
        entry = self._entry(room)
        if entry is None:
            raise NotFoundError(f"{room} is over, and was handed out: open a room of its own for {name}")
        main = entry.main
        made = RoomEntry(main.tokens, main.table, main.pages, main.given, of=main)
        self._enter(name, made, lambda: takers.join(made, self._news))

    @explained
    def abort(self, room: Room) -> None:
        """Give the room up; nothing happens if it is over.  Of a shared one, give up this name of it."""
        entry = self._entry(room)
        if entry is None:
            return

        def begin() -> None:
            if not takers.give_up(entry, self._abort_cause, self._news):
                self._happen(ev.EngineAborted(self._key(room), self._abort_cause))

        self._loop.call(begin)

    @explained
    def aux(self, room: Room) -> bytes:
        """The aux row; NotFoundError until it has landed, and after the room was handed out by `released`."""
        entry = self._entry(room)
        if entry is None or entry.main.aux is None:
            raise NotFoundError(f"the aux row of {room} has not landed")
        return entry.main.aux

    # ------------------------------------------------------------------------------------------ the loop's
    def _prepare_leave(self) -> None:
        self._data.next = self._data.transport.successor()

    def _leave_memory(self) -> Iterator[str]:
        # A prefill rank may not have seen yet that the last room's write is over: a goodbye would fail the room there.
        end = self._loop.now + LINGER_S
        while self._loop.now < end:
            yield "peers, which end their last rooms"
        self._data.succeed()
        self._groups.call_anew()
        while link := self._rank.awaits_return():
            yield f"a peer that may still write: {explain_link(self._rank, link)}"
        self._data.leave_memory()

    def _prepare(self, pool: Pool) -> None:
        self._groups.prepare_kernels(pool)

    def _tell_peers(self) -> None:
        self._groups.call_anew()

    def _knows_room(self, key: int) -> bool:
        del key
        return True

    def _stage(self, value: Any) -> int:
        stage, work = super()._stage(value), value.work
        waits = value.state.name == "OPEN" and (work is None or not (work.done or work.live or work.aux))
        return Status.WAITING if waits else stage

    def _link(self, effect: do.AnnounceLink) -> None:
        self._groups.links.settle(effect.link, up=not effect.why)
        peer, value = self._rank.peers.get(effect.link), self._rank.links.get(effect.link)
        if peer is not None and value is not None and not effect.why:
            self._groups.farewells.came_up(peer.group, value.epoch)
        elif peer is not None and effect.why == do.CLOSED:
            self._groups.farewells.left(peer.group)
        super()._link(effect)

    def _time_outcome(self, entry: RoomEntry, cause: Cause) -> None:
        super()._time_outcome(entry, cause)
        if not cause:
            self._data.arrived(entry)

    def _deliver_aux(self, effect: do.DeliverAux) -> None:
        entry = self._entries.get(effect.room)
        if entry is not None:
            entry.aux = effect.data
