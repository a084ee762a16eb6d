"""A shadow: a copy of a running endpoint's rank in a simulated world, with the same inputs.

What comes into the loop from outside (engine calls, frames, notifications of writes, finished kernels, ends of writes,
time) is noted as it comes, and given to the simulated interpreter after the pass.  What the transport says at once (how
many batches a write has, whether a batch is taken) is the environment's, and the same for both.  Everything else, which
link a frame is of, what each effect comes to, what is said and to whom, both find out by themselves, and after each
pass all that has left them must be equal.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from kvproto.endpoint.endpoint import Endpoint
from kvproto.fsm.codec import WireError
from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.io.control.control import Peer, Sent
from kvproto.protocol import effects as do
from kvproto.protocol.codec import decode
from kvproto.protocol.messages import Abort, Drained, Message
from kvproto.protocol.notification import read_tag
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.sim.interpreter import Interpreter, Surroundings, Untaken, Write, WriteKey
from kvproto.verify.testing.access import inside

#: what has left, in order: a word, and what it is about
Left = list[tuple[Any, ...]]
#: effects that are compared as they are
AS_THEY_ARE = (
    do.LaunchGather, do.LaunchScatter, do.AnnounceOutcome, do.AnnounceReleased, do.DeliverAux, do.AnnounceLink, Report,
)  # fmt: skip


class Difference(AssertionError):  # noqa: N818
    """The two are not alike."""


def without_blame(frame: bytes) -> tuple[int, int, Message]:
    """A frame's epoch, room and message; the loop alone adds a blame, and takes it off, for people."""
    epoch, room, body = decode(frame)
    return epoch, room, replace(body, blame=None) if isinstance(body, Abort | Drained) else body


class Shadow(Surroundings):
    """The rank of one endpoint, once more."""

    def __init__(self, endpoint: Endpoint, kind: type[Interpreter] = Interpreter) -> None:
        """Made before the endpoint's first pass; `kind`: the interpreter that is compared with the loop."""
        self.real, self.loop, self.entries, self.data = inside(endpoint)
        real = self.real
        rank: Any = type(real)(
            real.layout, real.index, group=real.group, chunk_tokens=real.chunk_tokens, incarnation=real.incarnation,
            settings=real.settings,
        )  # fmt: skip
        if isinstance(real, PrefillRank):
            rank.native_notify, rank.next_epoch = real.native_notify, real.next_epoch
        elif isinstance(real, DecodeRank):
            rank.endpoint = real.endpoint
        self.loop.farewells.clear()  # the simulated world has no end at which rooms are given up
        self.rank, self.interpreter = rank, kind(rank, self)
        #: what has come into the loop and not yet into the shadow
        self.came: deque[tuple[Callable[..., None], list[Any]]] = deque()
        self.theirs: Left = []
        self.ours: Left = []
        self.batches: dict[WriteKey, deque[int]] = defaultdict(deque)
        self.untaken: dict[WriteKey, deque[type[Untaken] | None]] = defaultdict(deque)
        self.prepared: dict[WriteKey, Write] = {}
        #: addresses that were dialled, by the control plane's name of the connection
        self.dialled: dict[Peer, bytes] = {}
        self.within, self.compared, self.fresh = 0, 0, False
        self._watch_what_comes()
        self._watch_what_leaves()

    def place(self, peer: Peer) -> bytes:
        """Return the simulated name of this peer: a dialled address, or its own place."""
        return self.dialled.get(peer, peer.place)

    # ------------------------------------------------------------------------------ what comes into the loop
    def _watch_what_comes(self) -> None:
        loop, real = self.loop, self.real
        poll, submit, take, connect = loop.poll, loop.submit, loop.hear, loop.control.connect
        handle, tick = real.handle, real.tick

        def polled() -> bool:
            moved = poll()
            self.compare()
            return moved

        def submitted(effects: list[Effect]) -> None:
            self._join(list(loop._events))
            self.within += 1
            submit(effects)
            self.within -= 1

        def taken(peer: Peer, frame: bytes) -> None:
            with suppress(WireError):
                epoch, room, body = without_blame(frame)
                self._note(self.interpreter.hear, self.place(peer), epoch, room, body, loop.clock.now())
            self.within += 1
            take(peer, frame)
            self.within -= 1

        def handled(event: Event, now: float, *then: Event) -> list[Effect]:
            if not self.within:
                self._note(self.interpreter.handle, event, now, *then)
            return handle(event, now, *then)

        def ticked(now: float, limit: int = 256) -> list[Effect]:
            self._note(self.interpreter.tick, now)
            return tick(now, limit)

        def connected(address: str) -> Peer:
            peer = connect(address)
            self.dialled[peer] = address.encode()
            return peer

        loop.poll, loop.submit, loop.hear = polled, submitted, taken  # type: ignore[method-assign]
        real.handle, real.tick = handled, ticked  # type: ignore[method-assign]
        loop.control.connect = connected  # type: ignore[method-assign]
        if isinstance(real, DecodeRank):
            self._watch_decode(real)

    def _watch_decode(self, real: DecodeRank) -> None:
        call, arrived = real.call, self.data._arrived

        def called(group: int, rank: int, plan: Any, now: float, address: str = "") -> tuple[int, list[Effect]]:
            self._note(self._call, group, rank, plan, now, address)
            self.within += 1
            made = call(group, rank, plan, now, address)
            self.within -= 1
            return made

        def told(tag: bytes) -> None:
            writer, notes = read_tag(tag)
            for epoch, room, body in notes:
                self._note(self._hear_tag, writer, epoch, room, body, self.loop.now)
            self.within += 1
            arrived(tag)
            self.within -= 1

        real.call, self.data._arrived = called, told  # type: ignore[method-assign]

    def _note(self, what: Callable[..., None], *about: Any) -> None:
        self.came.append((what, list(about)))
        self.fresh = True

    def _join(self, events: list[Event]) -> None:
        """These were raised before this pass over the queue: they are heard after what has just come."""
        fresh, self.fresh = self.fresh, False
        if not events or self.within:
            return
        if fresh:
            what, about = self.came[-1]
            assert what == self.interpreter.handle, f"{events} were raised before a frame was taken"
            about += events
        else:
            self.came.append((self.interpreter.handle, [events[0], self.loop.now, *events[1:]]))

    def _call(self, group: int, rank: int, plan: Any, now: float, address: str) -> None:
        _, effects = self.rank.call(group, rank, plan, now, address)
        self.interpreter.carry_out(effects, now)

    def _hear_tag(self, writer: tuple[int, int], epoch: int, room: int, body: Message, now: float) -> None:
        """A notification comes from where its writer is."""
        place = self.interpreter.place_of.get(self.rank.link_of.get(writer, 0), b"nobody")
        self.interpreter.hear(place, epoch, room, body, now)

    # ----------------------------------------------------------------------------- what leaves the loop
    def _watch_what_leaves(self) -> None:
        handlers, send = self.loop.handlers, self.loop.control.send

        def sent(peer: Peer, data: bytes, *, urgent: bool = False, later: bool = False) -> Sent:
            self.theirs.append(("message", self.place(peer), *without_blame(data)))
            return send(peer, data, urgent=urgent, later=later)

        self.loop.control.send = sent  # type: ignore[method-assign]
        for kind in AS_THEY_ARE:
            if kind in handlers:
                handlers[kind] = self._noted(handlers[kind])
        if isinstance(self.real, PrefillRank):
            handlers[do.Connect] = self._connected(handlers[do.Connect])
            handlers[do.PostWrite] = self._opened(handlers[do.PostWrite])
            handlers[do.PreparePages] = self._readied(handlers[do.PreparePages])
            handlers[do.PostBatch] = self._posted(handlers[do.PostBatch])
            writes = self.data.writes
            offer, post_staged = writes.offer, writes.post_staged

            def at_once(key: WriteKey, peer: Any, batches: Any, after: Any, note: Any = None) -> None:
                if after is not None:
                    after.wait()  # the simulated world computes at once
                offer(key, peer, batches, None, note)

            writes.offer = at_once
            writes.post_staged = lambda key, write, hold: post_staged(key, write, hold=False)

    def _noted(self, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        def handle(effect: Any) -> None:
            self.theirs.append(("effect", effect))
            handler(effect)

        return handle

    def _connected(self, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        def handle(effect: do.Connect) -> None:
            self.theirs.append(("connect", effect))
            handler(effect)

        return handle

    def _readied(self, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        def handle(write: Write) -> None:
            key = write.room, write.chunk, write.peer
            handler(write)
            self.prepared[key] = write
            left = self.data.writes.unposted.get(key)
            self.batches[key].append(len(left.batches) if left is not None else 0)

        return handle

    def _opened(self, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        def handle(write: do.PostWrite) -> None:
            key = write.room, write.chunk, write.peer
            self.prepared[key] = write
            to = self.data.link_peer.get(write.to.link)
            if to is None:
                handler(write)  # refused, without a post
            else:
                self._post(handler, write, key, to)

        return handle

    def _posted(self, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        def handle(effect: do.PostBatch) -> None:
            key = effect.room, effect.chunk, effect.peer
            self._post(handler, effect, key, self.data.writes.unposted[key].peer)

        return handle

    def _post(self, handler: Callable[[Any], None], effect: Any, key: WriteKey, to: Any) -> None:
        writes = self.data.writes
        flying = len(writes.flying)
        handler(effect)
        writes._post_together()  # each by itself: together they are as they are alone, but not at once
        said: Any = self.loop._events[-1] if len(writes.flying) == flying else None
        self.untaken[key].append(type(said) if said is not None else None)
        self.theirs.append(("post", self.prepared[key], str(to), type(said)))

    # -------------------------------------------------------------------- what leaves the simulated rank
    def deliver(self, place: bytes, epoch: int, room: int, body: Message) -> None:
        self.ours.append(("message", place, epoch, room, body))

    def aux_row(self, room: int) -> bytes:
        return self.entries[room].aux or b""

    def page_ids(self, asked: do.TransmitPages) -> bytes:
        size, first, end = self.rank.layout.page_size, asked.cut.first, asked.cut.end
        pages = self.entries[asked.room].pages[first // size : -(-end // size)]
        return pages.astype("<u4").tobytes()

    def connect(self, asked: do.Connect) -> None:
        self.ours.append(("connect", asked))

    def gather(self, asked: do.LaunchGather) -> None:
        self.ours.append(("effect", asked))

    def scatter(self, asked: do.LaunchScatter) -> None:
        self.ours.append(("effect", asked))

    def prepare(self, write: Write) -> int:
        return self.batches[write.room, write.chunk, write.peer].popleft()

    def post(self, write: Write) -> type[Untaken] | None:
        taken = self.untaken[write.room, write.chunk, write.peer]
        if not taken:
            raise Difference(f"the loop has not posted {write}")
        untaken = taken.popleft()
        self.ours.append(("post", write, self.interpreter.wires[write.to.link], untaken or type(None)))
        return untaken

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        self.ours.append(("effect", news))

    def hear_released(self, room: int) -> None:
        self.ours.append(("effect", do.AnnounceReleased(room)))

    def hear_aux(self, room: int, data: bytes) -> None:
        self.ours.append(("effect", do.DeliverAux(room, data)))

    def hear_link(self, link: int, why: str) -> None:
        self.ours.append(("effect", do.AnnounceLink(link, why)))

    def hear_report(self, report: Report) -> None:
        self.ours.append(("effect", report))

    # ------------------------------------------------------------------------------------------- compared
    def compare(self) -> None:
        """Give the shadow what has come, and compare all that has left (Difference)."""
        while self.came:
            what, about = self.came.popleft()
            what(*about)
        name = f"{self.real.side} rank {self.real.index}"
        for number, (theirs, ours) in enumerate(zip(self.theirs, self.ours, strict=False)):
            if theirs != ours:
                raise Difference(f"{name}: the loop: {theirs}; the simulated world: {ours}; after {number} alike")
        more = self.theirs[len(self.ours) :] or self.ours[len(self.theirs) :]
        whose = "the loop" if len(self.theirs) > len(self.ours) else "the simulated world"
        if more:
            raise Difference(f"{name}: of {whose} alone: {more[0]}")
        self.compared += len(self.theirs)
        self.theirs.clear()
        self.ours.clear()

    def alike(self) -> None:
        """Check that both ranks have the same state, link by link and room by room."""
        for what in ("rooms", "tombs", "links", "link_of", "sends", "grants", "writes", "slot_of", "space_queue"):
            if getattr(self.real, what, None) != getattr(self.rank, what, None):
                raise Difference(what)
        if {self.place(peer): link for peer, link in self.loop.connections.link_at.items()} != self.interpreter.link_at:
            raise Difference("places")
