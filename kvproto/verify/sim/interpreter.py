"""Interpreter: carries out a rank's effects in a simulated world, in one way for all such worlds.

What a simulated world has instead of sockets, transports and devices it says in `Surroundings`, one method for each
thing that a rank can ask of the outside. All between the rank and those methods is here, once, and is what the loop
does:

* a link has a *place* in the control plane, where its messages go and where they come from; `BindLink`, `Dial` and
  `ForgetLink` say which.  What comes from any other place is a stranger's, and the rank hears it as such;
* what HELLO, WELCOME, REFUSAL, AUX, PAGES_RSP and RESET say is put together from the rank and its engine;
* a link's writes go through the connection (*wire*) that the link has adopted last; one that has none writes nothing;
* a write is made ready, and then posted batch by batch if its machine says so; until then it is kept here.

An answer that a world has at once is an event that is handled when the effects before it have been carried out, as in
the loop. One interpreter belongs to one life of one rank; a world that keeps ranks as values takes `place_of`, `wires`
and `unposted` for a part of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.messages import Message
from kvproto.rank.base import Rank
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank

#: what is posted: one block into the ring, or pieces into the pages
Write = do.PostWrite | do.PreparePages
#: what the transport says at once of a batch that it does not take, now or at all
Untaken = ev.BatchDeferred | ev.BatchRefused
#: (room, chunk, peer)
WriteKey = tuple[int, int, int]


class Surroundings:
    """A world's services for one rank; a world overrides what it uses, and drops all news by default."""

    def deliver(self, place: bytes, epoch: int, room: int, body: Message) -> None:
        raise NotImplementedError

    def aux_row(self, room: int) -> bytes:
        """The room's aux row, as the prefill engine gave it."""
        raise NotImplementedError

    def page_ids(self, asked: do.TransmitPages) -> bytes:
        """The pages of the chunk, as the decode engine allocated them: u32 little-endian each."""
        raise NotImplementedError

    def connect(self, asked: do.Connect) -> None:
        """Begin a connection of the transport; its end is `WiredUp` or `WireFailed`."""
        raise NotImplementedError

    def gather(self, asked: do.LaunchGather) -> None:
        """Begin a gather; its end is `Gathered` or `GatherFailed`."""
        raise NotImplementedError

    def prepare(self, write: do.PreparePages) -> int:
        """Make a write over pages ready: how many batches it has (0: it cannot be made ready)."""
        return 1

    def at_once(self, write: do.PreparePages) -> bool:
        """Tell whether the next batch is ready as soon as it may be; else `Interpreter.offer` reports it."""
        return True

    def post(self, write: Write) -> type[Untaken] | None:
        """Post the next batch of a write.  None: it is in flight, and its end comes."""
        raise NotImplementedError

    def scatter(self, asked: do.LaunchScatter) -> None:
        """Begin a scatter; its end is `Scattered` or `ScatterFailed`."""
        raise NotImplementedError

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        """The engine is told how the room ended."""

    def hear_released(self, room: int) -> None:
        """The engine is told that the room's pages are its own again."""

    def hear_aux(self, room: int, data: bytes) -> None:
        """The engine is given the aux row."""

    def hear_link(self, link: int, why: str) -> None:
        """The engine is told that a link is up (`why` empty), lost or refused."""

    def hear_report(self, report: Report) -> None:
        """Take a report that something is odd."""


class Interpreter:
    """One rank, and what surrounds it."""

    def __init__(self, rank: Rank, around: Surroundings) -> None:
        """`rank`: a prefill or a decode rank; `around`: what its effects come to."""
        self.rank, self.around = rank, around
        #: where each link's messages go, and whose the messages of a place are
        self.place_of: dict[int, bytes] = {}
        self.link_at: dict[bytes, int] = {}
        #: by link: the transport's connection that it has adopted
        self.wires: dict[int, str] = {}
        #: writes of which something is not posted, and how many batches that is
        self.unposted: dict[WriteKey, tuple[Write, int]] = {}
        self._answers: deque[Event] = deque()
        self._acts: dict[type[Effect], Callable[[Any], None]] = {
            do.Transmit: self._transmit_body, do.TransmitAux: self._transmit_aux,
            do.TransmitPages: self._transmit_pages,
            do.SayHello: self._say_hello, do.SayWelcome: self._say_welcome, do.SayRefusal: self._say_refusal,
            do.SayReset: self._say_reset, do.RefuseCall: self._refuse_call,
            do.BindLink: self._bind_link, do.Dial: self._dial, do.ForgetLink: self._forget_link,
            do.TryAddress: self._try_address, do.TakeAddress: self._take_address, do.LeaveAddress: self._leave_address,
            do.AdoptWire: self._adopt_wire, do.DropWire: self._drop_wire, do.Disconnect: self._disconnect,
            do.PostWrite: self._post_write, do.PreparePages: self._prepare, do.PostBatch: self._post,
            do.DropBatches: self._drop_batches,
            do.Connect: around.connect, do.LaunchGather: around.gather, do.LaunchScatter: around.scatter,
            do.AnnounceOutcome: around.hear_outcome,
            do.AnnounceReleased: lambda effect: around.hear_released(effect.room),
            do.AnnounceLink: lambda effect: around.hear_link(effect.link, effect.why),
            do.DeliverAux: lambda effect: around.hear_aux(effect.room, effect.data),
            Report: around.hear_report,
        }  # fmt: skip

    # -------------------------------------------------------------------------------------- what comes in
    def handle(self, event: Event, now: float, *then: Event) -> None:
        """Give the rank an event (and those of the same pass), and carry out everything that follows at once."""
        self._answers.extend(then)
        self.carry_out(self.ask(self.rank.handle, event, now), now)

    def hear(self, place: bytes, epoch: int, room: int, body: Message, now: float, number: int | None = None) -> None:
        """The rank takes a message that came from this place; `number`: as for `Rank.receive`."""
        link = self.link_at.get(place, 0)
        self.carry_out(self.ask(self.rank.receive, link, epoch, room, body, now, place, number), now)

    def tick(self, now: float) -> None:
        self.carry_out(self.ask(self.rank.tick, now), now)

    def ask(self, what: Callable[..., list[Effect]], *about: Any) -> list[Effect]:
        """Whatever the rank does, it does here: who wants to watch it, overrides this."""
        return what(*about)

    def carry_out(self, effects: list[Effect], now: float) -> None:
        self._perform(effects)
        while self._answers:
            self._perform(self.ask(self.rank.handle, self._answers.popleft(), now))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._acts[type(effect)](effect)

    # ------------------------------------------------------------------------------------------- messages
    def _transmit(self, link: int, epoch: int, room: int, body: Message) -> None:
        place = self.place_of.get(link)
        if place is not None:
            self.around.deliver(place, epoch, room, body)

    def _transmit_body(self, effect: do.Transmit) -> None:
        self._transmit(effect.link, effect.epoch, effect.room, effect.body)

    def _transmit_aux(self, effect: do.TransmitAux) -> None:
        body = msg.Aux(self.around.aux_row(effect.room), self.rank.value_of(effect.room).traceparent)
        self._transmit(effect.link, effect.epoch, effect.room, body)

    def _transmit_pages(self, effect: do.TransmitPages) -> None:
        body = msg.PagesRsp(effect.chunk, self.around.page_ids(effect), effect.asked)
        self._transmit(effect.link, effect.epoch, effect.room, body)

    def _say_hello(self, effect: do.SayHello) -> None:
        assert isinstance(self.rank, DecodeRank)
        self._transmit(effect.link, 0, 0, self.rank.hello(effect.session, effect.link))

    def _say_welcome(self, effect: do.SayWelcome) -> None:
        assert isinstance(self.rank, PrefillRank)
        self._transmit(effect.link, effect.epoch, 0, self.rank.welcome(effect.session, effect.epoch))

    def _say_refusal(self, effect: do.SayRefusal) -> None:
        self._transmit(effect.link, 0, 0, msg.Refusal(effect.session, effect.why))

    def _refuse_call(self, effect: do.RefuseCall) -> None:
        self.around.deliver(effect.place, 0, 0, msg.Refusal(effect.session, effect.why))

    def _say_reset(self, effect: do.SayReset) -> None:
        self.around.deliver(effect.place, effect.epoch, 0, msg.Reset())

    # ---------------------------------------------------------------------------------- places and wires
    def bind(self, link: int, place: bytes) -> None:
        """The link's messages go to this place from now on, and what comes from there is the link's."""
        self._unbind(link)
        self.place_of[link] = place
        self.link_at[place] = link

    def _unbind(self, link: int) -> None:
        place = self.place_of.pop(link, None)
        if place is not None:
            self.link_at.pop(place, None)

    def _bind_link(self, effect: do.BindLink) -> None:
        self.bind(effect.link, effect.place)

    def _dial(self, effect: do.Dial) -> None:
        self.bind(effect.link, effect.address.encode())

    def _forget_link(self, effect: do.ForgetLink) -> None:
        self._unbind(effect.link)
        self._unbind(-effect.link)

    def _try_address(self, effect: do.TryAddress) -> None:
        assert isinstance(self.rank, DecodeRank)
        self.bind(-effect.link, effect.address.encode())
        self._transmit(-effect.link, 0, 0, self.rank.hello(effect.session, effect.link))

    def _take_address(self, effect: do.TakeAddress) -> None:
        self._unbind(-effect.link)
        self.bind(effect.link, effect.address.encode())

    def _leave_address(self, effect: do.LeaveAddress) -> None:
        self._unbind(-effect.link)

    def _adopt_wire(self, effect: do.AdoptWire) -> None:
        self.wires[effect.link] = effect.wire

    def _drop_wire(self, effect: do.DropWire) -> None:
        """A connection that no link has is of no use, and costs nothing here."""

    def _disconnect(self, effect: do.Disconnect) -> None:
        self.wires.pop(effect.link, None)

    # --------------------------------------------------------------------------------------------- writes
    def offer(self, key: WriteKey) -> Event:
        return ev.BatchReady(*key, last=self.unposted[key][1] == 1)

    def _post_write(self, write: do.PostWrite) -> None:
        key = write.room, write.chunk, write.peer
        self.unposted[key] = write, 1
        self._post_next(key)

    def _prepare(self, write: do.PreparePages) -> None:
        key = write.room, write.chunk, write.peer
        batches = self.around.prepare(write) if write.to.link in self.wires else 0
        if not batches:
            self._answers.append(ev.BatchUnmade(*key))
            return
        self._keep_unposted(key, write, batches)

    def _keep_unposted(self, key: WriteKey, write: do.PreparePages, left: int) -> None:
        self.unposted[key] = write, left
        if self.around.at_once(write):
            self._answers.append(self.offer(key))

    def _post(self, effect: do.PostBatch) -> None:
        self._post_next((effect.room, effect.chunk, effect.peer))

    def _post_next(self, key: WriteKey) -> None:
        write, left = self.unposted[key]
        untaken = self.around.post(write) if write.to.link in self.wires else ev.BatchRefused
        if untaken is not None:
            self._answers.append(untaken(*key))
            return
        del self.unposted[key]
        if left > 1:
            assert isinstance(write, do.PreparePages), "a staged write is one batch"
            self._keep_unposted(key, write, left - 1)

    def _drop_batches(self, effect: do.DropBatches) -> None:
        self.unposted.pop((effect.room, effect.chunk, effect.peer), None)
