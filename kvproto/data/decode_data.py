"""The decode rank's data: the ring's memory and scatters.

The ring is region 0 of the memory that the transport opens to prefill ranks; the pool's tensors are the regions after
it (K of each layer, then V of each), as byte runs assume.  A part's notification comes with its write, if the transport
can carry it (`protocol.notification`), or through the control plane.  A scatter is polled by its ticket; a copy on the
CPU is over when it returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from operator import attrgetter

import torch

from kvproto.data.chunk_launch import Staged, bind_chunk
from kvproto.data.device_streams import DeviceStreams, table_failed
from kvproto.data.end_pages import packed
from kvproto.data.joint_launches import JointLaunches, LaunchKind
from kvproto.data.launches import Launches
from kvproto.data.pool_memory import all_of, away, costs_profile, open_memory, steps_back, taken_memory
from kvproto.data.prepared_launches import PreparedLaunches, ReadyLaunch
from kvproto.data.room_entry import NO_TABLE, RoomEntry
from kvproto.data.staged_writes import SMALL
from kvproto.data.staging_buffers import Kind, Staging
from kvproto.errors import Step
from kvproto.fsm.codec import WireError
from kvproto.io.doorbell import Doorbell
from kvproto.io.kernels.base import Kernels, Pool, Ticket
from kvproto.io.transports.base import Arrived, Transport
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.loop.rank_loop import Loop
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.notification import read_tag
from kvproto.rank.decode import DecodeRank

#: seconds of a poll of the transport in which it moves bytes
STIRS_S = 5e-5
SCATTER = LaunchKind("scatter", attrgetter("room", "chunk"), ev.Scattered, ev.ScatterFailed)


class DecodeData:
    """The ring and the scatters of one rank."""

    def __init__(
        self, loop: Loop, rank: DecodeRank, pool: Pool, kernels: Kernels, transport: Transport,
        entries: dict[int, RoomEntry], staging: Kind, undo: list[Step],
    ) -> None:  # fmt: skip
        """The ring's size is in the rank's settings; `undo`: steps to run if the endpoint cannot be made."""
        self.loop, self.rank, self.pool, self.kernels, self.transport, self.entries = (
            loop, rank, pool, kernels, transport, entries,
        )  # fmt: skip
        self.streams = DeviceStreams(pool.device)
        self.streams.failed = partial(table_failed, loop)
        if self.streams.stream is not None:
            loop.background.append(self.streams)
        self.ring = Staging(rank.settings.ring_bytes, self.streams, staging)
        self.memory = open_memory(
            transport, self.ring.wire, pool, rank.layout, rank.index, closed=rank.settings.route == "staged"
        )
        undo += steps_back(transport, self.memory.regions)
        #: by which writers wake this loop
        self.bell = self._hang()
        undo.append(("the doorbell", self.bell.close))
        rank.endpoint, rank.placement = transport.endpoint(), self.memory.told
        #: the instance of a detached pool, until no peer can write there; and the instance that comes after this one
        self.former: Transport | None = None
        self.next: Transport | None = None
        self.costs = rank.settings.costs_of(costs_profile(transport.caps, pool))
        self.scatters: dict[tuple[int, int], Ticket] = {}
        stream = self.streams.stream
        self.together = JointLaunches[do.LaunchScatter](loop, kernels, stream, SCATTER, self._went)
        self.launches = Launches(loop, entries, (lambda _: True) if stream is not None else None, self.together.go)
        self.prepared = PreparedLaunches[do.LaunchScatter, Plan](self._bind)
        self.small = SMALL
        #: regions given when it was last looked what will be scattered, and what of it is not made ready yet
        self._granted, self._expected = self.rank.ring.next_grant, deque[do.LaunchScatter]()
        #: the transport's last poll took time: bytes are coming
        self.stirs = False
        #: links whose call has left, and is not answered; and whether kernels for a new group take their time
        self.calling: set[int] = set()
        self.compiles = torch.device(pool.device).type != "cpu"
        self.stats = {"scatters": 0}
        #: bytes of KV in the pages, by the route on which they came
        self.moved = {"staged": 0, "pages": 0}
        loop.sources.append(self)

    # ---------------------------------------------------------------------------------------- as a source
    def adopt(self) -> None:
        """The calling thread is the loop's."""
        for each in (self.former, self.transport):
            if each is not None:
                each.adopt()

    def busy(self) -> bool:
        """A scatter is in flight or may be made ready, or a peer may be writing or wiring up: it needs polls."""
        caps = self.transport.caps
        expecting = (bool(self.rank.grants) and (caps.needs_target_progress or caps.native_notify)) or (
            caps.needs_target_progress and bool(self.calling)
        )
        return bool(self.scatters) or expecting or self._soon or self.transport.busy()

    def alarms(self) -> list[int] | None:
        """Leave it to the writers to say when they write (`PrefillWires.nudge`), if nothing else moves."""
        quiet = self.transport.caps.needs_target_progress and not (self.stirs or self.scatters or self.calling)
        return [] if quiet and not self.transport.busy() else None

    def poll(self) -> bool:
        """Take notifications and finished scatters; drive the transport's progress."""
        real = self.loop.clock.real
        began = real()
        news = self.transport.poll()
        if self.former is not None:  # peers take leave of it, and may need its progress; what it says is of no room
            self.former.poll()
        # A transport that takes in bytes in its poll, as one over TCP does, tells of them when all are here.
        self.stirs = real() - began > STIRS_S
        for event in news:  # each by itself: one that raises costs no other part its notification
            if isinstance(event, Arrived):
                self.loop.attempt("a notification", partial(self._arrived, event.tag))
        rung = self.bell.rung()
        for note in filter(None, rung):
            self.loop.attempt("a note at the door", partial(self._arrived, note))
        moved = bool(news or rung)
        if not self.scatters:
            return moved or (self.streams.stream is not None and self._prepare_next())
        done = [key for key, ticket in self.scatters.items() if self.together.over(key, ticket)]
        for key in done:
            del self.scatters[key]
        return moved or bool(done)

    def close(self) -> None:
        """End the transport, and those before and after it."""
        steps = [(name, each.close) for name, each in self._transports() if each is not None]
        all_of([*steps, ("the doorbell", self.bell.close)])

    def _transports(self) -> Iterator[tuple[str, Transport | None]]:
        if self.next is not None:
            self.next.adopt()  # it was made on the engine's thread
        yield from (("the transport", self.transport), ("the former transport", self.former), ("the next", self.next))

    # ------------------------------------------------------------------------------ memory that comes and goes
    @property
    def at_work(self) -> bool:
        """Whether a scatter may still write pages."""
        return bool(self.scatters or self.launches or self.rank.grants)

    def succeed(self) -> None:
        """Have calls describe the next instance, which has no memory yet; this one keeps its own."""
        assert self.next is not None
        self.former, self.transport, self.next = self.transport, self.next, None
        self.transport.adopt()
        self.bell.close()
        self.bell = self._hang()
        self.rank.endpoint = self.transport.endpoint()

    def _hang(self) -> Doorbell:
        """Return the doorbell of this instance of the transport, which ends the loop's sleeps.

        Of one that needs no polls nobody rings it.
        """
        bell = Doorbell(self.transport.instance if self.transport.caps.needs_target_progress else "")
        self.loop.bells = bell.descriptors
        return bell

    def leave_memory(self) -> None:
        """Close ring and pool to the former instance, which ends, and free the ring.

        No peer may be connected to that instance any more, but those that are gone.
        """
        former = self.former
        assert former is not None
        all_of([*reversed(steps_back(former, self.memory.regions)), ("the former transport", former.close)])
        self.former, self.pool, self.memory = None, self.pool.husk(), away(self.memory.told)
        self.ring.give_back()

    def take_memory(self, pool: Pool) -> None:
        """Open this pool, and a ring, to the transport.

        Raises what the constructor does, and then holds nothing.
        """
        with taken_memory(self.transport, self.ring, pool, self.rank) as memory:
            self.rank.endpoint = self.transport.endpoint()
        self.pool, self.memory, self.rank.placement = pool, memory, memory.told

    def _arrived(self, tag: bytes) -> None:
        try:
            writer, notes = read_tag(tag)
        except WireError as error:
            self.loop.counts["malformed notes"] += 1
            self.loop.logs.frame("note", str(error))
            return
        link = self.rank.link_of.get(writer, 0)
        for epoch, room, body in notes:
            self.loop.submit(self.rank.receive(link, epoch, room, body, self.loop.now, b"", 0))

    # ------------------------------------------------------------------------------------------- effects
    def ask_scatter(self, effect: do.LaunchScatter) -> None:
        self.launches.ask(effect.room, partial(self._scatter, effect), large=effect in self.prepared.kept)

    @property
    def _soon(self) -> bool:
        """Whether regions were granted whose scatters were not looked at."""
        return self.streams.stream is not None and bool(self._expected or self._granted != self.rank.ring.next_grant)

    def _prepare_next(self) -> bool:
        """On an idle device, prepare the scatter of a large granted region; one in each pass."""
        if self._granted != self.rank.ring.next_grant:
            self._expected += self.rank.expected_scatters(self._granted)
            self._granted = self.rank.ring.next_grant
        if not self._expected:
            return False
        soon = self._expected.popleft()
        entry = self.entries.get(soon.room)
        if soon.end - soon.offset > self.small and entry is not None and entry.carried is not None:
            self.prepared.ready(soon, entry, entry.carried[0])
        return True

    def _bind(self, effect: do.LaunchScatter, entry: RoomEntry, plan: Plan) -> ReadyLaunch:
        if entry.table is NO_TABLE:
            self.streams.place_all()
        index, cut, parts, nbytes = self.rank.index, effect.cut, list[Staged](), 0
        for writer in plan.fan_in(index, cut):
            if effect.writers >> writer & 1:
                part = plan.part(writer, index, cut)
                parts.append((part, effect.offset + part.offset))
                nbytes += part.nbytes if not cut.state else sum(
                    plan.kv_bytes(block.share, cut.only(at_end=block.at_end)) for block in part.blocks(cut)
                )  # fmt: skip
        launch = bind_chunk(self.kernels, "scatter", self.pool, entry, cut, parts, self.ring.parts)
        return ReadyLaunch(entry, plan, launch, effect.offset, effect.end, nbytes)

    def _scatter(self, effect: do.LaunchScatter) -> None:
        try:
            entry = self.entries[effect.room]
            assert entry.carried is not None
            plan, prepared = entry.carried[0], self.prepared
            made = prepared.take(effect, entry, plan) if prepared.kept else self._bind(effect, entry, plan)
            if entry.placed is not None:
                self.streams.await_table(entry)
            if self.ring.twins:
                self.ring.bring(made.first, made.end)
        except BaseException as error:  # noqa: BLE001  # a kernel's fault ends the room, not the loop
            self.together.fail(SCATTER.key(effect), error)
            return
        self.together.ask(effect, made, None, small=made.end - made.first <= self.small)

    def _went(self, effect: do.LaunchScatter, made: ReadyLaunch, ticket: Ticket, _alone: bool) -> None:  # noqa: FBT001
        key = effect.room, effect.chunk
        self.stats["scatters"] += 1
        made.entry.staged += made.nbytes
        self.moved["staged"] += made.nbytes
        if not self.together.over(key, ticket):
            self.scatters[key] = ticket

    def arrived(self, entry: RoomEntry) -> None:
        """Count the bytes of a successful room that were written page to page."""
        assert entry.carried is not None
        plan, prefix = entry.carried
        cuts = Cut(0, entry.tokens - prefix), *((Cut(entry.tokens, 0, state=True),) if plan.state else ())
        self.moved["pages"] += sum(plan.owed_bytes(self.rank.index, cut) for cut in cuts) - entry.staged

    def send_pages(self, effect: do.TransmitPages) -> None:
        """Send the page ids of a chunk to the prefill rank that asked for them."""
        entry, layout, cut = self.entries[effect.room], self.rank.layout, effect.cut
        size = layout.page_size
        pages = entry.pages[cut.first // size : -(-cut.end // size)].astype("<u4").tobytes() if cut.tokens else b""
        pages += packed(layout, self.pool, entry) if cut.state else b""
        body = msg.PagesRsp(effect.chunk, pages, effect.asked)
        self.loop.connections.send(effect.link, effect.epoch, effect.room, body)
