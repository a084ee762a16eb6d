"""The prefill rank's data: staging slots and writes.

One buffer holds the slots; it and the pool's tensors are registered with the transport once, or again after a detach.
A gathered part is one
piece of one write, and the write carries its notification, if the transport can (`staged_writes`).  A part that is
written page to page has many pieces: it is cut into batches that the transport accepts.  `writes` has the posting of
both, and their ends; `prefill_wires` the connections of the links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from kvproto.data.device_streams import DeviceStreams, table_failed
from kvproto.data.end_pages import FarPages, far_pages
from kvproto.data.gathers import Gathers
from kvproto.data.mapped_pages import MappedPages
from kvproto.data.mapped_parts import Mapped, by_engines
from kvproto.data.page_writes import PageBatch, PageWrites, page_ids
from kvproto.data.pool_memory import PoolMemory, all_of, away, costs_profile, open_memory, steps_back, taken_memory
from kvproto.data.prefill_wires import PrefillWires
from kvproto.data.prepared_launches import PreparedLaunches, ReadyLaunch
from kvproto.data.prepared_pages import PreparedBatch, PreparedPages
from kvproto.data.room_entry import NO_TABLE, RoomEntry
from kvproto.data.staged_writes import NOT_CONNECTED, PreparedWrites
from kvproto.data.staging_buffers import Kind, Staging
from kvproto.data.write_times import LAUNCH, MESSAGE
from kvproto.data.writes import Batch, KernelBatch, RankWrites
from kvproto.errors import KvprotoError, Step
from kvproto.io.kernels.base import Kernels, Pool, Ticket
from kvproto.io.kernels.digesting import DigestingKernels
from kvproto.io.kernels.pool import KernelError
from kvproto.io.transports.base import Busy, Completed, Failed, PeerId, PeerLost, Transport, TransportError
from kvproto.layout.end_share import end_shares, why_end_staged
from kvproto.layout.placement import closed_between
from kvproto.loop.rank_loop import Loop
from kvproto.protocol import effects as do
from kvproto.protocol.messages import Aux, PagesRsp, StgNotify
from kvproto.protocol.room_chunks import end_chunk
from kvproto.protocol.versions import AUX_NOTES
from kvproto.rank.prefill import PrefillRank

#: percent of the multiprocessors
WHOLE = 100
#: writes into pages that are made ready beforehand: some for each room of a forward's batch
READY = 128


class NoRouteError(KvprotoError):
    """A part was to go over pages, and one of the two pools is not open to the transport."""


class PrefillData(PrefillWires):
    """Staging, gathers and writes of one rank."""

    def __init__(
        self, loop: Loop, rank: PrefillRank, pool: Pool, kernels: Kernels, transport: Transport,
        entries: dict[int, RoomEntry], staging: Kind, undo: list[Step], opened: PoolMemory | None = None,
    ) -> None:  # fmt: skip
        """The slots' size is in the rank's settings; the largest part is a whole chunk of this rank's KV.

        `undo`: what is to be done if its endpoint cannot be made; `opened`: the memory of the rank's decode role.
        """
        super().__init__(loop, rank, transport)
        undo.append(("the doorbell", self.bell.close))
        self.kernels, self.entries = kernels, entries
        self.streams = DeviceStreams(pool.device)
        self.streams.failed = partial(table_failed, loop)
        if self.streams.stream is not None:
            loop.background.append(self.streams)
        self.slot_bytes = rank.slot_bytes
        self.staging = Staging(rank.settings.slots * self.slot_bytes, self.streams, staging)
        self.memory = open_memory(
            transport, self.staging.wire, pool, rank.layout, rank.index, closed=rank.settings.route == "staged",
            opened=opened,
        )  # fmt: skip
        undo += steps_back(transport, self.memory.regions[: 1 if opened is not None else None])
        self.regions, rank.placement = [*self.memory.regions], self.memory.told
        self.staging.lifted = transport.lifts(self.regions[0])
        self.page_writes = PageWrites(transport, self.regions, self.memory.placement)
        self.prepared_pages = PreparedPages(transport, rank.layout.page_size)
        self.page_writes.left = self.prepared_pages.leave
        self.prepared_writes = PreparedWrites(
            (rank.group, rank.index), transport, self.regions[0], self.slot_bytes, self.link_peer
        )
        self.gathers = Gathers(loop, pool, kernels, entries, self.staging, self.slot_bytes, self.prepared_writes.ready)
        self.prepared = self.gathers.prepared
        self.writes = RankWrites(loop, transport, self.prepared_writes, self.times)
        self.writes.others = lambda: bool(self.gathers)
        self.gathers.took = self._gathered
        if transport.caps.needs_target_progress:
            self.writes.nudge, self.writes.tell = self.nudge, self.tell
        #: what wakes the loop when the forward of the oldest gather, or of the oldest write into pages, has ended
        self.gather_alarm, self.write_alarm = self.streams.alarm(), self.streams.alarm()
        self.mapped = MappedPages(transport, kernels, pool, self.regions, self.memory.placement, self._most)
        self.stores = PreparedLaunches[do.PreparePages, Mapped](self._bind, self.prepared.kept)
        rank.native_notify = transport.caps.native_notify
        rank.costs = rank.settings.costs_of(costs_profile(transport.caps, pool))
        #: windows opened and page lists received when the next launches were last collected; those not prepared yet
        self._known, self._expected = 0, deque[do.LaunchGather | do.PreparePages]()
        #: whether digests of page-to-page parts may be asked for
        self._digests = isinstance(kernels, DigestingKernels)
        self._counts = {"writes": 0, "pages": 0, "direct": 0, "mapped": 0, "engine": 0}
        loop.sources.append(self)

    # ---------------------------------------------------------------------------------------- as a source
    def adopt(self) -> None:
        """The calling thread is the loop's."""
        self.transport.adopt()

    def busy(self) -> bool:
        """A gather or a write is in flight, or one may be made ready."""
        heard = self.loop.heard
        soon = self._expected or self._known != self.rank.windows + heard[PagesRsp]
        return bool(self.gathers or self.writes or soon) or self.transport.busy()

    def alarms(self) -> list[int] | None:
        """Have forwards wake the loop, where gathers and writes wait for nothing else."""
        if self.transport.busy() or not (self.gathers or self.writes):  # what may be prepared is prepared at once
            return None
        found = list[int]()
        waits = ((self.gathers, self.gather_alarm), (self.writes, self.write_alarm))
        for source, alarm in waits:
            if source:
                event = source.awaits()
                descriptor = alarm.set(event) if alarm is not None and event is not None else None
                if descriptor is None:
                    return None
                found.append(descriptor)
        return found

    def poll(self) -> bool:
        """Finished gathers, ended writes, writes that found no room before."""
        if self.writes.told:
            self.writes.told.clear()
        moved = self.gathers.poll()
        news = self.transport.poll()
        for event in news:  # each by itself: one that raises costs no other write its end
            if isinstance(event, (Completed, Failed)):
                self.loop.attempt("the end of a write", partial(self.writes.hear, event))
            elif isinstance(event, PeerLost):
                self._lost(event.peer)
        moved |= self.writes.poll()
        if self.leaving:
            for peer in list(self.leaving):
                self._leave(peer)
        return moved or bool(news) or self._prepare_next()

    def close(self) -> None:
        """Close the alarms, the doorbell and the transport."""
        alarms = [("an alarm", each.close) for each in (self.gather_alarm, self.write_alarm) if each is not None]
        all_of([*alarms, ("the doorbell", self.bell.close), ("the transport", self.transport.close)])

    def _prepare_next(self) -> bool:
        """While idle, prepare the next gather, or the next write into known pages; one in each pass."""
        heard = self.loop.heard
        known = self.rank.windows + heard[PagesRsp]
        if not (self._expected or known != self._known) or self.gathers or self.writes:
            return False
        if known != self._known:
            self._known, self._expected = known, deque()
            if self.streams.stream is not None:
                self._expected.extend(self.rank.expected_gathers())
            if heard[PagesRsp]:
                made = {(each.room, each.chunk, each.peer) for each in self.stores.kept} | self.prepared_pages.keys
                self._expected.extend(self.rank.expected_stores(made, READY))
        if not self._expected:
            return False
        soon = self._expected.popleft()
        if isinstance(soon, do.PreparePages):
            entry, mapped = self.entries.get(soon.room), self._mapped(soon)
            if mapped is None and entry is not None and entry.cause is None:
                self._ready_pages(soon, entry)
            else:
                self.stores.ready(soon, entry, mapped)
        else:
            self.gathers.ready(soon)
        return True

    @property
    def stats(self) -> dict[str, int]:
        """Sends by their way (`engine`: mapped, by copy engines), and what they came to."""
        return {**self._counts, "pieces": self.writes.pieces, "bytes": self.writes.nbytes}

    # -------------------------------------------------------------------------------------------- writes
    def post_write(self, effect: do.PostWrite) -> None:
        self._counts["writes"] += 1
        key, ended = (effect.room, effect.chunk, effect.peer), self.gathers.ended
        if ended is not None and ended[0] == key:
            self._took(effect, MESSAGE, self.loop.clock.real() - ended[1])
        try:
            write = self.prepared_writes.take(effect)
        except BaseException as error:  # noqa: BLE001  # nothing was posted: the room ends, not the loop
            self.writes.refuse(key, error)
            return
        self.writes.post_staged(key, write, hold=write.piece[2] <= self.gathers.small and bool(self.gathers))

    def _gathered(self, effect: do.LaunchGather, seconds: float) -> None:
        self._took(effect, LAUNCH, seconds, effect.to.part.nbytes)

    def _took(self, effect: do.LaunchGather | do.PostWrite, what: str, seconds: float, nbytes: int = 0) -> None:
        peer = self.link_peer.get(effect.to.link)
        if peer is not None:
            self.times.called(peer, what, seconds, nbytes)

    def prepare_pages(self, effect: do.PreparePages) -> None:
        """Make the batches of a chunk that goes page to page, and offer them to the transport."""
        key, peer = (effect.room, effect.chunk, effect.peer), self.link_peer.get(effect.to.link)
        if peer is None:
            self.writes.unmade(key, TransportError(NOT_CONNECTED))
            return
        try:
            cut, part = effect.to.cut, effect.to.part
            depth = self.gathers.pool.layers if cut.state else part.share.src_layer + part.share.layers
            after = self.entries[effect.room].after(cut.end, depth)
            mapped = self.mapped.of(peer, part.blocks(cut))
            made: deque[Batch] = deque()
            made += self._batches(effect, peer) if mapped is None else (self._store(effect, peer, mapped),)
            if self._digests:
                # With digests nothing at the end goes over pages, so the share is of tokens.
                self.entries[effect.room].by_pages.append((cut.first, cut.tokens, part.share))
        except BaseException as error:  # noqa: BLE001  # as above
            self.writes.unmade(key, error)
            return
        self.writes.offer(key, peer, made, after, (effect.to.epoch, effect.room, StgNotify(effect.chunk, 0)))

    def _most(self) -> int:
        """Return the percent of the multiprocessors that a store may take: few while a forward runs."""
        slowdown = self.rank.settings.forward_slowdown
        # Two stores are in flight (`DeviceStreams.next_store`), and share them.
        return max(1, slowdown // 2) if slowdown < WHOLE and self.streams.forward_runs() else WHOLE

    def _mapped(self, effect: do.PreparePages) -> Mapped | None:
        """Return the kernel's copy of this part into the peer's pages; None: it is not mapped."""
        to = self.link_peer.get(effect.to.link)
        return None if to is None else self.mapped.of(to, effect.to.part.blocks(effect.to.cut))

    def _bind(self, effect: do.PreparePages, entry: RoomEntry, mapped: Mapped) -> ReadyLaunch:
        if entry.table is NO_TABLE:
            self.streams.place_all()
            if entry.table is NO_TABLE:  # no kernel looks whether there is one
                raise KernelError("the room's page table could not be put on the device")
        cut = effect.to.cut
        pages = self._far(effect)
        launch = mapped.bind(entry, pages, cut.first, cut.tokens, self.streams, self.gathers.pool)
        return ReadyLaunch(entry, mapped, launch, 0, 0, sum(block.nbytes for block in effect.to.part.blocks(cut)))

    def _store(self, effect: do.PreparePages, peer: PeerId, mapped: Mapped) -> KernelBatch:
        entry = self.entries[effect.room]
        made = self.stores.take(effect, entry, mapped)
        self._counts["mapped"] += 1

        def launch() -> Ticket:
            self.mapped.still(peer, mapped)  # it may have waited for its KV meanwhile
            stream = self.streams.next_store()
            self._counts["engine"] += by_engines(made.launch)
            return made.launch(stream, None)

        return KernelBatch(launch, mapped.sources, made.nbytes)

    def _far(self, effect: do.PreparePages) -> FarPages:
        """Return the peer's pages of the chunk's tokens, and of what travels at the end."""
        plan = self.rank.peers[effect.to.link].plan
        assert plan is not None
        return far_pages(effect.pages, effect.to.cut, plan.decode.page_size)

    def _ready_pages(self, effect: do.PreparePages, entry: RoomEntry) -> None:
        """Prepare writes that the transport will carry, if the room's own pages are known and go by number."""
        link, to = effect.to.link, self.rank.peers.get(effect.to.link)
        peer, cut, size = self.link_peer.get(link), effect.to.cut, self.rank.layout.page_size
        if peer is None or to is None or to.plan is None or entry.given * size < cut.end:
            return
        plan, shares = to.plan, [block.share for block in effect.to.part.blocks(cut) if not block.at_end]
        try:
            pieces = [self.page_writes.pieces(link, peer, plan, share, to.placement) for share in shares]
            if all(pieces) and sum(pieces) * (cut.tokens // size) <= self.prepared_pages.left:
                made, direct = self._made(effect, peer)
                self.prepared_pages.keep(effect, entry, peer, made, direct=direct)
        except Exception:  # noqa: BLE001  # whatever it is, the write raises it again and reports it
            return

    def _batches(self, effect: do.PreparePages, peer: PeerId) -> deque[PageBatch] | deque[PreparedBatch]:
        """Return the batches that the transport carries, prepared or made now."""
        entry = self.entries[effect.room]
        kept = self.prepared_pages.take(effect, entry) if self.prepared_pages.kept else None
        made: deque[PageBatch] | deque[PreparedBatch]
        made, direct = (kept.batches, kept.direct) if kept is not None else self._made(effect, peer)
        self._counts["direct" if direct else "pages"] += 1
        return made

    def _made(self, effect: do.PreparePages, peer: PeerId) -> tuple[deque[PageBatch], bool]:
        """Return the batches, and whether K and V of a page go as they lie (`Plan.direct`)."""
        link, to = effect.to.link, self.rank.peers[effect.to.link]
        plan, target, entry, ours = to.plan, to.placement, self.entries[effect.room], self.memory.placement
        assert plan is not None
        made, direct, cut, (theirs, last) = deque[PageBatch](), False, effect.to.cut, self._far(effect)
        for block in effect.to.part.blocks(cut):
            part = block.share
            closed = why_end_staged(plan, part, ours, target) if block.at_end else closed_between(ours, target)
            if closed:
                remedy = "give it a larger ring, more slots or a longer lease"
                raise NoRouteError(f"this part was not staged, and {closed}: {remedy}")
            if block.at_end:
                ends = end_shares(plan, part, ours, target)
                made += self.page_writes.end_batches(link, peer, ends, self.gathers.pool, entry, last)
            else:
                direct, pages, only = plan.direct(part, ours, target), page_ids(theirs), cut.only(at_end=False)
                made += self.page_writes.batches(link, peer, plan, part, target, entry.pages, pages, only)
        return made, direct

    def transmit(self, effect: do.Transmit) -> None:
        """Put a message on its link, unless the transport has just sent the same one."""
        told = self.writes.told
        if not told or (self.link_peer.get(effect.link), (effect.epoch, effect.room, effect.body)) not in told:
            self.loop.connections.transmit(effect)

    def send_aux(self, effect: do.TransmitAux) -> None:
        """Send a room's aux row: with the note of its last part while that is being written, or by itself."""
        room, value = effect.room, self.rank.value_of(effect.room)
        row = Aux(self.entries[room].aux or b"", value.traceparent)
        alone = partial(self.loop.connections.send, effect.link, effect.epoch, room, row)
        at = self._reader(effect.link, len(row.data))
        last = room, end_chunk(value) - 1, at
        if at < 0 or not self.writes.takes_along(last, (effect.epoch, room, row), alone):
            alone()

    def _reader(self, link: int, nbytes: int) -> int:
        """Return the decode rank at this link, if it reads aux rows of this size in tags; or -1."""
        to, value, caps = self.rank.peers.get(link), self.rank.links.get(link), self.transport.caps
        # Half a tag: the note, the names and the numbers need far less than the other half.
        if to is None or value is None or not caps.native_notify or nbytes > caps.max_tag // 2:
            return -1
        return to.rank if AUX_NOTES in value.build.capabilities.split() else -1

    # ------------------------------------------------------------------------------ memory that comes and goes
    @property
    def at_work(self) -> bool:
        """Whether a gather or a write may still read pages or slots."""
        return bool(self.gathers or self.writes or self.rank.writes)

    def leave_memory(self) -> Iterator[str]:
        """Close pool and slots to the transport, and free the slots; yield what that waits for.

        No peer knows these regions, since nobody writes here; so links stay as they are.
        """
        self.prepared_writes.move(self.regions[0])
        self._use(self.gathers.pool.husk(), away(self.memory.told))
        while self.regions:
            try:
                self.transport.deregister(self.regions[-1])
            except Busy as error:
                yield f"the transport ({error})"
                continue
            self.regions.pop()
        self.staging.give_back()

    def take_memory(self, pool: Pool) -> None:
        """Open this pool, and slots, to the transport.

        Raises what the constructor does, and then holds nothing.
        """
        with taken_memory(self.transport, self.staging, pool, self.rank) as memory:
            self.staging.lifted = self.transport.lifts(memory.regions[0])
        self.regions[:], self.rank.placement = memory.regions, memory.told
        self.prepared_writes.move(self.regions[0])
        self._use(pool, memory)

    def _use(self, pool: Pool, memory: PoolMemory) -> None:
        self.gathers.pool, self.memory = pool, memory
        self.page_writes.move(memory.placement)
        self.mapped.move(pool, memory.placement)
