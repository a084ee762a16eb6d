"""The prefill engine's endpoint.

The calls for a room are `open`, `prefetch` when the forward is scheduled, `produced` as tokens are computed, and `aux`
with the aux row, in any order that suits the engine; `finished` and `released` then report its end.

The engine gives pages when it has them: all with `open`, or none, and then with `produced`, chunk by chunk.  So a room
can be opened before its first forward.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kvproto.call_arguments import checked, explained
from kvproto.data.pool_memory import PoolMemory
from kvproto.data.prefill_data import PrefillData
from kvproto.data.room_entry import RoomEntry, page_runs_of
from kvproto.data.staging_buffers import Kind
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.endpoint_events import RoomMet, RoomProduced
from kvproto.endpoint.last_rows import Slots, need_last_rows_by_end, prepare_ends
from kvproto.endpoint.validation import (
    as_traceparent,
    check_pool,
    make_control,
    need_group,
    need_incarnation,
    need_layers,
    need_more_pages,
    need_room,
    need_seconds,
    need_secret,
    undone_if_it_fails,
    why_unprepared,
)  # fmt: skip
from kvproto.errors import ArgumentError
from kvproto.fsm.vocabulary import Report
from kvproto.io.clock import Clock, WakingClock
from kvproto.io.control.control import LOOPBACK, Control, Peer
from kvproto.io.control.keys import Keys
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.kernels.current_device import keep_device, use_device
from kvproto.io.kernels.digesting import Cell, Place
from kvproto.io.transports.base import PeerId, Transport
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout
from kvproto.loop.connector import WireUp
from kvproto.loop.event_loop import Handlers
from kvproto.observe.logs import short
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import encode
from kvproto.protocol.messages import MAX_AUX
from kvproto.protocol.states import Cause
from kvproto.protocol.tables.prefill_room import opened_by_all
from kvproto.protocol.tables.prefill_send import reads_withdrawn
from kvproto.rank.base import LinkPeer
from kvproto.rank.prefill import PrefillRank
from kvproto.room import Caller, Room
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings

#: longer than the loop sleeps, and than any step of an engine that polls
STOOD_S = 3.0


class PrefillEndpoint(Endpoint):
    """One prefill rank of an engine."""

    _rank: PrefillRank
    _data: PrefillData
    _abort_cause, _gives_up, _answered = Cause.PREFILL_ABORTED, ev.EngineRefused, True
    #: the memory of the rank's decode role, if it has one (`PeerEndpoint`)
    _opened: PoolMemory | None = None
    #: the control plane that listens already, likewise
    _listens: Control | None = None

    @checked
    def __init__(
        self, layout: Layout, index: int, pool: Pool, transport: Transport, *, chunk_tokens: int,
        group: int = PREFILL_GROUP,
        bind: str = LOOPBACK, settings: Settings | None = None, kernels: Kernels | None = None,
        clock: Clock | None = None, incarnation: int | None = None, staging: Kind = "device", digests: bool = False,
        keys: Keys | str | Path | None = None, insecure: bool = False,
    ) -> None:  # fmt: skip
        """Allocate staging slots, register them and the pool with the transport, and listen for decode ranks.

        Args:
            layout: the prefill group's layout
            index: this rank in its group
            pool: this rank's share of the KV cache
            transport: a transport of its own, which closes with the endpoint
            chunk_tokens: tokens of a chunk, whole pages of both sides
            group: the engine instance's number (u64)
            bind: the control plane's address
            settings: sizes in bytes, timers in seconds
            kernels: default: the pool's own
            clock: default: monotonic
            incarnation: the number of this start (u48), above those of its earlier ones (default: by the clock)
            staging: "device", or "pinned" for a transport that cannot reach a GPU's memory
            digests: keep digests of the moved KV, see `digests`
            keys: the secret file of this process (`kvproto keys`), needed beyond loopback
            insecure: allow addresses beyond loopback without keys

        Raises:
            ArgumentError: the pool is not this rank's share of the layout, or a file is no key
            ControlError: the address is not available, or is beyond loopback and there are no keys

        """
        check_pool(layout, index, pool, chunk_tokens)
        rank = PrefillRank(
            layout,
            index,
            group=need_group(group),
            chunk_tokens=chunk_tokens,
            incarnation=need_incarnation(incarnation),
            settings=settings,
        )
        control = self._listens or make_control(bind, keys, rank.settings.timing, insecure=insecure)
        with undone_if_it_fails(("the control plane", control.close)) as undo, use_device(pool.gpu):
            super().__init__(rank, pool, control, clock or WakingClock(STOOD_S))
            kernels = self._kernels(kernels, digests=digests)
            self._data = PrefillData(
                self._loop, rank, pool, kernels, transport, self._entries, staging, undo, self._opened
            )
        rank.met, self._data.writes.arrived = self._met, self._arrived
        if pool.gpu >= 0:  # only there kernels are compiled, and not by the loop
            rank.unprepared = partial(why_unprepared, most=rank.settings.layer_groups)
        self._wire_up = WireUp(transport, self._wired, partial(keep_device, pool.gpu))
        self._data.wiring = lambda: self._wire_up.under_way > 0
        self._loop.helpers.append(("wiring up", self._wire_up.close))
        self._loop.install(self._handlers(), do.PREFILL)

    def _handlers(self) -> Handlers:
        loop, data, writes = self._loop, self._data, self._data.writes
        return {
            # messages, and links
            do.Transmit: data.transmit, do.TransmitAux: data.send_aux, do.SayWelcome: self._say_welcome,
            do.SayRefusal: self._say_refusal, do.RefuseCall: self._refuse_call, do.SayReset: loop.send_reset,
            do.BindLink: loop.bind_link, do.ForgetLink: data.forget_link, do.Connect: self._connect,
            do.AdoptWire: data.adopt_wire, do.DropWire: data.drop_wire, do.Disconnect: data.disconnect,
            # kernels and writes
            do.LaunchGather: data.gathers.ask, do.PostWrite: data.post_write,
            do.PreparePages: data.prepare_pages, do.PostBatch: writes.post_batch, do.DropBatches: writes.drop_batches,
            # the engine, logs and metrics
            do.AnnounceOutcome: self._outcome, do.AnnounceReleased: self._release, do.AnnounceLink: self._link,
            Report: loop.report,
        }  # fmt: skip

    def _release(self, effect: do.AnnounceReleased) -> None:
        if self._data.prepared_pages.kept:
            self._data.prepared_pages.forget(effect.room)
        super()._release(effect)

    @property
    def address(self) -> str:
        """The address that decode ranks connect to."""
        assert self._loop.control.address is not None
        return self._loop.control.address

    def routes(self) -> dict[tuple[int, int], str]:
        """Return by decode rank, as (group, rank), why its parts are staged; empty: they go page to page.

        Only links whose peer has called, and to which this rank owes a part, are included.  Any thread.
        """
        found, index = {}, self._rank.index
        for peer in list(self._rank.peers.values()):
            owed = [share for share in peer.plan.duties(index) if share.reader == peer.rank] if peer.plan else []
            for share in owed:
                assert peer.plan is not None
                found[peer.group, peer.rank] = peer.plan.why_staged(share, self._data.memory.placement, peer.placement)
        return found

    # ------------------------------------------------------------------------------------ the engine's calls
    @explained
    def open(
        self, room: Room, tokens: int, pages: Any = (), *, group: int | None = DECODE_GROUP, secret: bytes = b"",
        within: float | None = None, traceparent: str = "", slot: Slots | None = None, window: Any = None,
        resumes: Room | None = None,
    ) -> None:  # fmt: skip
        """Open a room for a prompt of `tokens` tokens; never blocks.

        A decode group that may not have the room fails with `Cause.NOT_ENTITLED`.

        Args:
            room: its name; a new attempt of a request needs a higher `gen`
            tokens: length of the prompt
            pages: page ids in token order: all, the first ones, or none; `produced` gives the missing ones
            group: the decode group that may have the room (None: the first one that shows the secret)
            secret: the decode engine has to open the room with the same one, 64 bytes at most
            within: seconds for the decode ranks to open it, and without progress (default: `bootstrap`, `stall`)
            traceparent: the request's trace (W3C Trace Context; a malformed one is ignored), see `Outcome.traceparent`
            slot: of the pool's state, or several (`CachePool`), lent until `released` (None: `produced` gives it)
            window: pages in the table of a cache that travels as a window, of tokens `max(0, tokens - window)` and on;
                of several states or windows, each of the two is a dict by the name of the cache
            resumes: the room of the same prompt whose decode instance has died, if its pages are taken over there

        Raises:
            ArgumentError: the room is open, or was a short while ago; a page, the slot or the window is not of the pool
            ArgumentError: the room that it resumes is not released here

        """
        if resumes is not None:
            self._need_released(resumes)
        streams = self._data.streams
        entry = need_room(self._rank.layout, tokens, pages, self.pool, streams, whole=False, slot=slot, window=window)
        claim = self._rank.claim(0 if group is None else need_group(group), need_secret(secret))
        trace, seconds = as_traceparent(traceparent), need_seconds(within)
        # Runs of pages that are not known yet cannot be counted; 0 leaves them out of the estimate of costs.
        runs = page_runs_of(entry.pages) if entry.given == len(entry.pages) else 0
        key = room.key
        self._enter(room, entry, ev.EngineOpened(key, entry.tokens, claim, trace, seconds, runs))

    @explained
    def prefix(self, room: Room) -> int | None:
        """Return the tokens that every decode rank has already; None: not all opened the room, or it failed.

        Any thread, also before this engine opens the room.
        """
        value = self._rank.value_of(room.key)
        return value.prefix if value is not None and opened_by_all(value) else None

    def opened_by_all(self, room: Room) -> bool:
        """Whether every decode rank of the room has opened it (and it has not failed); any thread."""
        return self.prefix(room) is not None

    @explained
    def caller(self, room: Room) -> Caller | None:
        """Return the decode instance that waits for an unopened room; None: none, or not all of its ranks.

        An engine that does not know the decode instance of a prompt opens the room for this one.
        """
        value = self._rank.value_of(room.key)
        if value is None or value.terms is None:
            return None
        everyone, gone = value.terms.everyone, value.work.cause if value.work is not None else Cause.NONE
        peer = self._rank.peers.get(self._rank.link_to(room.key, (everyone & -everyone).bit_length() - 1))
        if peer is None or peer.plan is None or (value.peers != everyone and not gone):
            return None
        return Caller(value.facts.claim.group, value.tokens, value.prefix, peer.plan.decode.page_size, gone)

    def _by_pages(self, entry: RoomEntry, known: Container[Place]) -> list[Cell]:  # noqa: ARG002  # it knows itself
        return entry.by_pages

    @explained
    def prefetch(self, room: Room) -> None:
        """The forward is scheduled: open the room's sends, so that the KV leaves as soon as it is computed."""
        if self._entry(room) is not None:
            self._loop.call(ev.ForwardScheduled(room.key))

    @explained
    def produced(
        self, room: Room, tokens: int, after: Any = None, *, pages: Any = (), layers: int | None = None,
        slot: Slots | None = None, window: Any = None,
    ) -> None:  # fmt: skip
        """Report that the KV of the first `tokens` tokens is in the pages; never blocks.

        A room with layer groups sends the computed `layers` while the forward computes the others.

        Args:
            room: its name
            tokens: computed tokens, counted from the beginning of the prompt
            after: a CUDA event after which the KV is there (None: now)
            pages: the room's next page ids, after those that it has
            layers: only this rank's first so many layers are computed (None: all)
            slot: of the pool's state, if `open` had none, with the last token at the latest; another after a withdrawal
            window: pages of the window, likewise

        Raises:
            ArgumentError: there are no pages for so many tokens, or no slot or window after the last one, or the
                layers of an earlier forward are incomplete

        """
        entry = self._entry(room)
        if entry is None:
            return
        more = need_more_pages(self._rank.layout, entry, tokens, pages, self.pool)
        last = need_last_rows_by_end(room, entry, tokens, slot, window, self.pool)
        moved = last != entry.ends
        others = moved or len(more) > 0
        if others and entry.taken and not self.withdrawn(room):
            raise ArgumentError(f"{room} still reads pages that were withdrawn: give others when `withdrawn` says so")
        held, tokens = self.pool.layers, operator.index(tokens)
        depth = need_layers(room, entry, tokens, layers, held)
        placed, taken = None, entry.taken

        def begin() -> None:
            entry.placed = placed if placed is not None else entry.placed
            if moved:  # launches may have been prepared for the slot of before
                self._data.gathers.prepared.forget(room.key)
                self._data.streams.put_ends(self.pool, entry, last)
            if after is not None:
                entry.mark(tokens, depth, after)
                self._data.streams.forward = after
            self._news.add(RoomProduced(room, tokens, depth))
            if depth == held:
                self._announce(room.key, entry, tokens, 1, taken)
            # Withdrawn or released between the engine's call and this pass: those layers are not there any more.
            elif self._entries.get(room.key) is entry and entry.taken == taken:
                self._happen(ev.TokensProduced(room.key, 0, tokens, depth))

        before = entry.reported
        try:
            # On the caller's thread: the copy of the page table runs before the loop learns of the tokens.
            placed = self._data.streams.extend(entry, more)
            # After all that may raise: a call that is refused leaves rows and their tables as they were.
            entry.ends = last
            entry.report(tokens, depth, held, self._loop.clock.real)
            self._loop.call(begin)
        except BaseException:  # a signal's, too: an engine that repeats the call gives its pages once
            entry.reported = before
            raise

    @explained
    def withdraw(self, room: Room, upto: int) -> None:
        """Take back the pages behind those of the first `upto` tokens, as a preemption does; the room goes on.

        What has been sent stays sent, and what is being read is read to its end: the pages are the engine's when
        `withdrawn` says so.  What lacks is computed once more, and comes with `produced(..., pages=...)`.
        """
        entry, upto = self._entry(room), operator.index(upto)
        if entry is None:
            return
        if not 0 <= upto <= entry.tokens:
            raise ArgumentError(f"{upto} tokens stay of {entry.tokens}")
        entry.given = min(entry.given, -(-upto // self._rank.layout.page_size))
        taken = entry.taken = entry.taken + 1
        # Only what is there in all layers is kept: KV that comes later is not there after the events of before.
        kept = entry.full = min(entry.full, upto)
        entry.ahead = entry.layers = 0
        if kept < entry.tokens:
            entry.computed = 0.0

        def take() -> None:
            entry.forget_marks(kept, self.pool.layers)
            self._happen(ev.TokensWithdrawn(room.key, kept))
            entry.heard = taken
            if kept:  # the announcements of before stopped here: what is kept is announced to its end
                self._announce(room.key, entry, kept, 1, taken)

        self._loop.call(take)

    @explained
    def withdrawn(self, room: Room) -> bool:
        """Whether nothing of what was withdrawn is being read any more; any thread."""
        entry = self._entries.get(room.key)
        if entry is None:
            return True
        if entry.heard != entry.taken:  # first: until the sends know of it, their answer below is about older pages
            return False
        return not any(map(reads_withdrawn, list(self._rank.sends.get(room.key, {}).values())))

    def _announce(self, key: int, entry: RoomEntry, tokens: int, cells: int, taken: int) -> None:
        """Tell the rank of a chunk, then of two, then of four, each time when a gather has ended.

        Telling it of everything takes the host longer than a gather takes the device: the first write would wait.
        """
        value = self._rank.value_of(key)
        if value is None or self._entries.get(key) is not entry or entry.taken != taken:
            return
        told = value.work.produced if value.work is not None else 0
        whole = max(0, told - value.prefix) // self._rank.chunk_tokens
        upto = min(tokens, value.prefix + (whole + cells) * self._rank.chunk_tokens)
        self._happen(ev.TokensProduced(key, upto))
        if upto < tokens:
            self._data.gathers.later(lambda: self._announce(key, entry, tokens, 2 * cells, taken))

    @explained
    def aux(self, room: Room, row: bytes | bytearray | memoryview) -> None:
        """Give the aux row, such as the first token; every rank may give it, and the lead sends it."""
        row = bytes(memoryview(row))
        if len(row) > MAX_AUX:
            raise ArgumentError(f"an aux row of {len(row)} bytes, more than {MAX_AUX}")
        entry = self._entry(room)
        if entry is None:
            return

        if entry.aux is None:
            entry.aux = row
        self._loop.call(ev.AuxProvided(room.key))

    @explained
    def refuse(self, room: Room, cause: Cause = Cause.DECLINED, why: str = "") -> None:
        """Refuse a room, opened here or not: a decode rank that asks for it, now or later, fails at once.

        `why`: the reason in the decode engine's outcome (default: the words of the cause).  The refusal is kept like a
        room that is over (`Settings.tombstones` of them).  On an open room it acts as `abort`; it has no effect on a
        room that is over.  If the engine opens the room later, it is over at once.
        ArgumentError: the cause is neither `DECLINED` nor `PREFILL_ABORTED`.
        """
        if not cause.refusal:
            raise ArgumentError(f"{room} refused as {cause.name}: it is DECLINED, or PREFILL_ABORTED")

        def begin() -> None:
            if why:
                self._loop.blames.fail(room.key, cause, short(why))
            self._happen(ev.EngineRefused(room.key, cause))

        self._loop.call(begin)

    # ------------------------------------------------------------------------------------------ the loop's
    def _knows_room(self, key: int) -> bool:
        value = self._rank.value_of(key)
        return value.state.name != "AWAIT_ENGINE" and (value.work is None or value.work.owned)

    def _met(self, room: int) -> None:
        if (entry := self._entries.get(room)) is not None:
            entry.met = self._loop.clock.real()
            if entry.room is not None:
                self._news.add(RoomMet(entry.room, self._rank.rooms[room].prefix))

    def _arrived(self, room: int) -> None:
        if (entry := self._entries.get(room)) is not None:
            entry.written = self._loop.clock.real()

    def _connect(self, effect: do.Connect) -> None:
        caller = self._rank.peers[effect.link]
        plan = caller.plan
        assert plan is not None
        self._data.learn(effect.link)
        owed = self._owed(caller, plan)
        why = plan.why_staged(owed[0], self._data.memory.placement, caller.placement) if owed else ""
        if why:
            self._loop.logs.staged(self._peer_name(effect.link), why)

        # Both functions run on the connecting thread: kernels compile and names are looked up without holding the loop.
        prepare, reach = lambda: self._prepare_kernels(caller, self.pool), partial(self._map_pages, caller)
        self._wire_up.connect(effect.link, effect.session, caller.endpoint, prepare, reach)

    def _owed(self, caller: LinkPeer, plan: Plan | None) -> list[Share]:
        duties = plan.duties(self._rank.index) if plan is not None else ()
        return [share for share in duties if share.reader == caller.rank]

    def _prepare_kernels(self, caller: LinkPeer, pool: Pool) -> None:
        """Compile what the parts of this decode rank need; without a pool that is done when there is one."""
        plan, groups = caller.plan, self._rank.settings.layer_groups
        assert plan is not None
        if pool.is_husk:
            return
        staged = self._rank.settings.route != "pages"
        if staged:
            for shares in plan.cuts(self._owed(caller, plan), groups):
                self._data.kernels.prepare(pool, "gather", shares)
        if plan.state is not None:
            mine, tokens = plan.state_cuts(self._owed(caller, plan.state)), self._owed(caller, plan)
            prepare_ends(self._data.kernels, "gather", pool, mine, tokens if staged and plan.joint_tokens else ())

    def _map_pages(self, caller: LinkPeer, peer: str) -> None:
        assert caller.plan is not None
        for shares in caller.plan.cuts(self._owed(caller, caller.plan), self._rank.settings.layer_groups):
            self._data.mapped.make(PeerId(peer), caller.plan, shares, caller.placement)
        for shares in caller.plan.state_cuts(self._owed(caller, caller.plan.state)):
            self._data.mapped.make_ends(PeerId(peer), caller.plan, shares, caller.placement)

    def _leave_memory(self) -> Iterator[str]:
        return self._data.leave_memory()

    def _prepare(self, pool: Pool) -> None:
        for caller in self._rank.peers.values():
            if caller.plan is not None:
                self._prepare_kernels(caller, pool)

    def _tell_peers(self) -> None:
        # Peers know nothing of this memory, so nothing is said: this rank works out anew what it does with theirs.
        for link, caller in self._rank.peers.items():
            if caller.plan is not None:
                if (peer := self._data.link_peer.get(link)) is not None:
                    self._loop.attempt("mapping a peer's pages", partial(self._map_pages, caller, peer))
                self._data.reach_anew(link)

    def _wired(self, event: ev.WiredUp | ev.WireFailed, peer: str) -> None:
        def tell() -> None:
            self._wire_up.heard()
            if why := getattr(event, "why", ""):
                self._loop.logs.wire(self._peer_name(event.peer), why)
                if peer:  # connected, and its kernels failed: no link has it, so nothing else would let it go
                    self._data.leave_unless_wanted(PeerId(peer))
            self._happen(event)

        self._loop.call(tell)
        # The connecting thread calls this while the loop may sleep in its poll.
        self._loop.control.wake()

    def _say_welcome(self, effect: do.SayWelcome) -> None:
        self._loop.connections.send(effect.link, effect.epoch, 0, self._rank.welcome(effect.session, effect.epoch))

    def _say_refusal(self, effect: do.SayRefusal) -> None:
        self._loop.connections.send(effect.link, 0, 0, msg.Refusal(effect.session, effect.why[:1024]))

    def _refuse_call(self, effect: do.RefuseCall) -> None:
        peer = Peer.at(effect.place)
        self._loop.logs.frame(f"call from {peer} refused", effect.why)
        self._loop.control.send(peer, encode(0, 0, msg.Refusal(effect.session, effect.why[:1024])))
