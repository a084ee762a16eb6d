"""Each effect in a simulated world, one at a time: its receivers, and the rank's immediate input."""

from __future__ import annotations

from typing import Any

import pytest
from support.stories import CHUNK_TOKENS, layout

from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause, PRoom
from kvproto.protocol.tables.prefill_room import PRoomValue, RequestFacts
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP
from kvproto.verify.sim.interpreter import Interpreter, Surroundings, Untaken, Write

ROOM, LINK, EPOCH = 7, 3, 55
BODY = msg.Heartbeat()
TO, CUT = ev.Target(LINK, EPOCH), Cut(0, CHUNK_TOKENS)
WRITE = do.PostWrite(ROOM, 1, 0, TO, 0, 0, 4)
PAGES = do.PreparePages(ROOM, 2, 0, TO, b"")


class Scripted(PrefillRank):
    """A rank that notes what it hears, and answers what a test has for it."""

    def __init__(self) -> None:
        super().__init__(layout(1), 0, group=PREFILL_GROUP, chunk_tokens=CHUNK_TOKENS, incarnation=1)
        self.rooms[ROOM] = PRoomValue(PRoom.OPEN, facts=RequestFacts(traceparent=b"trace"))
        self.heard: list[tuple[Any, ...]] = []
        self.says: dict[object, list[Effect]] = {}

    def handle(self, event: Event, now: float, *then: Event) -> list[Effect]:
        self.heard.append((event, now, *then))
        return self.says.pop(event, [])

    def receive(self, *about: Any) -> list[Effect]:
        self.heard.append(about)
        return self.says.pop("message", [])

    def tick(self, now: float, limit: int = 256) -> list[Effect]:
        self.heard.append((now,))
        return self.says.pop("tick", [])


class Told(Surroundings):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.batches, self.ready, self.untaken = 1, True, list[type[Untaken] | None]()

    def deliver(self, place: bytes, epoch: int, room: int, body: msg.Message) -> None:
        self.told.append((place, epoch, room, body))

    def aux_row(self, room: int) -> bytes:
        return b"row of %d" % room

    def page_ids(self, asked: do.TransmitPages) -> bytes:
        return b"page" * asked.chunk

    def connect(self, asked: do.Connect) -> None:
        self.told.append(("connect", asked))

    def gather(self, asked: do.LaunchGather) -> None:
        self.told.append(("gather", asked))

    def scatter(self, asked: do.LaunchScatter) -> None:
        self.told.append(("scatter", asked))

    def prepare(self, write: do.PreparePages) -> int:
        self.told.append(("prepare", write))
        return self.batches

    def at_once(self, write: do.PreparePages) -> bool:
        return self.ready

    def post(self, write: Write) -> type[Untaken] | None:
        self.told.append(("post", write))
        return self.untaken.pop(0) if self.untaken else None

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        self.told.append(("outcome", news))

    def hear_released(self, room: int) -> None:
        self.told.append(("released", room))

    def hear_aux(self, room: int, data: bytes) -> None:
        self.told.append(("aux", room, data))

    def hear_link(self, link: int, why: str) -> None:
        self.told.append(("link", link, why))

    def hear_report(self, report: Report) -> None:
        self.told.append(("report", report))


class Play:
    """An interpreter of a scripted rank; what has been said of it is taken away with each look."""

    def __init__(self) -> None:
        self.rank, self.around = Scripted(), Told()
        self.interpreter = Interpreter(self.rank, self.around)

    def does(self, *effects: Effect) -> list[tuple[Any, ...]]:
        """The world's calls for these effects of the rank, at 5.0."""
        self.interpreter.carry_out(list(effects), 5.0)
        told, self.around.told = self.around.told, []
        return told

    def heard(self) -> list[tuple[Any, ...]]:
        heard, self.rank.heard = self.rank.heard, []
        return heard


def bound(place: bytes = b"there") -> Play:
    play = Play()
    assert play.does(do.BindLink(LINK, place), do.AdoptWire(LINK, "wire")) == []
    return play


# ------------------------------------------------------------------------------------------------ messages and places
def test_messages_go_to_the_place_of_their_link() -> None:
    play = bound()
    for effect, epoch, room, body in (
        (do.Transmit(LINK, EPOCH, ROOM, BODY), EPOCH, ROOM, BODY),
        (do.TransmitAux(LINK, EPOCH, ROOM), EPOCH, ROOM, msg.Aux(b"row of 7", b"trace")),
        (do.TransmitPages(LINK, EPOCH, ROOM, 2, CUT, 1.5), EPOCH, ROOM, msg.PagesRsp(2, b"pagepage", 1.5)),
        (do.SayRefusal(LINK, 9, "no"), 0, 0, msg.Refusal(9, "no")),
    ):
        assert play.does(effect) == [(b"there", epoch, room, body)]
        assert Play().does(effect) == [], "a link without a place says nothing to anybody"
    assert play.does(do.RefuseCall(b"elsewhere", 9, "full")) == [(b"elsewhere", 0, 0, msg.Refusal(9, "full"))]
    assert play.does(do.SayReset(b"elsewhere", 12)) == [(b"elsewhere", 12, 0, msg.Reset())]


def test_a_call_and_its_welcome_are_the_rank_s_own() -> None:
    prefill = PrefillRank(layout(1), 0, group=PREFILL_GROUP, chunk_tokens=CHUNK_TOKENS, incarnation=1)
    decode = DecodeRank(layout(1), 0, group=DECODE_GROUP, chunk_tokens=CHUNK_TOKENS, incarnation=2)
    around, other = Told(), Told()
    calls, answers = Interpreter(decode, around), Interpreter(prefill, other)
    link, _ = decode.call(PREFILL_GROUP, 0, Plan(layout(1), layout(1), CHUNK_TOKENS), 0.0, "P0")
    calls.bind(link, b"P0")
    calls.carry_out([do.SayHello(link, 9)], 0.0)
    assert around.told == [(b"P0", 0, 0, decode.hello(9, link))]
    heard, _ = prefill.hello(decode.hello(1, link), 0.0, b"D0")
    answers.bind(heard, b"D0")
    epoch = prefill.links[heard].epoch
    answers.carry_out([do.SayWelcome(heard, 1, epoch)], 0.0)
    assert other.told == [(b"D0", epoch, 0, prefill.welcome(1, epoch))]


def test_what_comes_from_a_link_s_place_is_the_link_s_and_all_else_a_stranger_s() -> None:
    play = bound()
    for place, link in ((b"there", LINK), (b"elsewhere", 0)):
        play.interpreter.hear(place, EPOCH, ROOM, BODY, 2.0, 8)
        assert play.heard() == [(link, EPOCH, ROOM, BODY, 2.0, place, 8)]
    assert play.does(do.Dial(LINK, "new")) == []
    assert play.does(do.Transmit(LINK, 1, 2, BODY)) == [(b"new", 1, 2, BODY)]
    for place, link in ((b"there", 0), (b"new", LINK)):
        play.interpreter.hear(place, EPOCH, ROOM, BODY, 2.0)
        assert play.heard() == [(link, EPOCH, ROOM, BODY, 2.0, place, None)]
    play.does(do.BindLink(LINK, b"new"), do.BindLink(4, b"next"))
    assert play.interpreter.link_at == {b"new": LINK, b"next": 4}
    play.does(do.ForgetLink(LINK), do.ForgetLink(99))
    assert play.does(do.Transmit(LINK, 1, 2, BODY)) == []
    assert (play.interpreter.link_at, play.interpreter.place_of) == ({b"next": 4}, {4: b"next"})


# ------------------------------------------------------------------------------------------------- what is asked for
def test_what_the_outside_has_to_do_it_is_asked_for() -> None:
    play = bound()
    connect = do.Connect(LINK, 1)
    gather = do.LaunchGather(ROOM, 1, 0, TO, 0, 0, 4)
    scatter = do.LaunchScatter(ROOM, 1, 1, 0, 256, CUT)
    outcome, report = do.AnnounceOutcome(ROOM, Cause.STALLED), Report("what", "why")
    assert play.does(connect, gather, scatter) == [("connect", connect), ("gather", gather), ("scatter", scatter)]
    assert play.does(outcome, do.AnnounceReleased(ROOM)) == [("outcome", outcome), ("released", ROOM)]
    assert play.does(do.AnnounceLink(LINK, "lost"), do.DeliverAux(ROOM, b"r"), report) == [
        ("link", LINK, "lost"), ("aux", ROOM, b"r"), ("report", report)
    ]  # fmt: skip
    assert play.does(do.DropWire("wire")) == [] and play.heard() == []


def test_news_need_nobody_who_hears_them() -> None:
    around = Surroundings()
    interpreter = Interpreter(Scripted(), around)
    news = [do.AnnounceOutcome(ROOM, Cause.NONE), do.AnnounceReleased(ROOM), do.AnnounceLink(LINK, ""),
            do.DeliverAux(ROOM, b""), Report("what", "why")]  # fmt: skip
    interpreter.carry_out(news, 0.0)
    assert (around.prepare(PAGES), around.at_once(PAGES)) == (1, True)
    for call in (lambda: around.aux_row(ROOM), lambda: around.post(WRITE), lambda: around.deliver(b"", 0, 0, BODY)):
        with pytest.raises(NotImplementedError):
            call()


# --------------------------------------------------------------------------------------------------------------- writes
def test_a_write_is_made_ready_and_posted_batch_by_batch() -> None:
    play = bound()
    play.around.batches = 3
    assert play.does(PAGES) == [("prepare", PAGES)]
    for left in (3, 2, 1):
        assert play.heard() == [(ev.BatchReady(ROOM, 2, 0, last=left == 1), 5.0)]
        assert play.interpreter.unposted == {(ROOM, 2, 0): (PAGES, left)}
        assert play.does(do.PostBatch(ROOM, 2, 0)) == [("post", PAGES)]
    assert play.heard() == [] and play.interpreter.unposted == {}


def test_a_batch_that_is_not_ready_at_once_is_offered_by_the_world() -> None:
    play = bound()
    play.around.ready = False
    play.does(PAGES)
    assert play.heard() == [] and play.interpreter.offer((ROOM, 2, 0)) == ev.BatchReady(ROOM, 2, 0, last=True)


def test_a_write_over_pages_that_cannot_be_made_ready_is_unmade() -> None:
    play = bound()
    play.around.batches = 0
    assert play.does(PAGES) == [("prepare", PAGES)]
    assert play.heard() == [(ev.BatchUnmade(ROOM, 2, 0), 5.0)] and play.interpreter.unposted == {}
    play = bound()
    play.does(do.Disconnect(LINK), do.Disconnect(99))
    assert play.does(PAGES, WRITE) == [], "a link that has no connection writes nothing"
    assert play.heard() == [(ev.BatchUnmade(ROOM, 2, 0), 5.0), (ev.BatchRefused(ROOM, 1, 0), 5.0)]


def test_a_staged_write_is_posted_as_it_opens() -> None:
    play = bound()
    assert play.does(WRITE) == [("post", WRITE)]
    assert play.heard() == [] and play.interpreter.unposted == {}


def test_what_the_transport_does_not_take_stays_and_is_said_at_once() -> None:
    play = bound()
    play.around.untaken = [ev.BatchDeferred, ev.BatchDeferred, ev.BatchRefused]
    for effect in (WRITE, do.PostBatch(ROOM, 1, 0), do.PostBatch(ROOM, 1, 0)):
        answer = play.around.untaken[0]
        assert answer is not None and play.does(effect) == [("post", WRITE)]
        assert play.heard() == [(answer(ROOM, 1, 0), 5.0)]
    play.does(do.Disconnect(LINK))
    assert play.does(do.PostBatch(ROOM, 1, 0)) == []
    assert play.heard() == [(ev.BatchRefused(ROOM, 1, 0), 5.0)]
    assert play.interpreter.unposted == {(ROOM, 1, 0): (WRITE, 1)}
    play.does(do.DropBatches(ROOM, 1, 0), do.DropBatches(ROOM, 9, 9))
    assert play.interpreter.unposted == {}


# ------------------------------------------------------------------------------------------------------ in which order
def test_what_follows_at_once_is_heard_when_the_effects_before_it_have_been_carried_out() -> None:
    play, asked, then = bound(), ev.Gathered(ROOM, 1, 0), ev.Gathered(ROOM, 2, 0)
    ready = ev.BatchReady(ROOM, 2, 0, last=True)
    play.rank.says = {asked: [PAGES, do.Transmit(LINK, 1, 1, BODY)], then: [do.Transmit(LINK, 3, 3, BODY)],
                      ready: [do.PostBatch(ROOM, 2, 0)]}  # fmt: skip
    play.interpreter.handle(asked, 4.0, then)
    assert play.heard() == [(asked, 4.0), (then, 4.0), (ready, 4.0)]
    assert play.around.told == [
        ("prepare", PAGES), (b"there", 1, 1, BODY), (b"there", 3, 3, BODY), ("post", PAGES)
    ]  # fmt: skip


def test_messages_and_time_are_followed_by_what_they_cause() -> None:
    for source in ("message", "tick"):
        play, ready = bound(), ev.BatchReady(ROOM, 2, 0, last=True)
        play.rank.says = {source: [PAGES]}
        if source == "tick":
            play.interpreter.tick(6.0)
        else:
            play.interpreter.hear(b"there", EPOCH, ROOM, BODY, 6.0, 1)
        assert play.heard()[1:] == [(ready, 6.0)]


def test_whoever_watches_is_asked_for_every_step() -> None:
    seen: list[tuple[Any, ...]] = []

    class Watched(Interpreter):
        def ask(self, what: Any, *about: Any) -> list[Effect]:
            seen.append((what.__name__, *about[:1]))
            return super().ask(what, *about)

    watched = Watched(Scripted(), Told())
    asked, then = ev.Gathered(ROOM, 1, 0), ev.Gathered(ROOM, 2, 0)
    watched.handle(asked, 1.0, then)
    watched.hear(b"", 0, 0, BODY, 1.0)
    watched.tick(2.0)
    assert seen == [("handle", asked), ("handle", then), ("receive", 0), ("tick", 2.0)]
