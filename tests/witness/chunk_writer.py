"""Chunk writer: the real prefill rank as a value.

Its write needs no place in the value: it is posted as soon as the send begins it, and from then on the send's state
says what it is; whether it is in doubt says the memory, and the input that ends the doubt.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from kvproto.fsm.timer_wheel import INFINITY
from kvproto.fsm.vocabulary import Event, Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import ROOM_CHUNK, Terms, TimerFired
from kvproto.protocol.messages import Message
from kvproto.protocol.states import Cause, PLink, PRoom, PSend, PWrite
from kvproto.protocol.tables.links import PLinkValue
from kvproto.protocol.tables.prefill_room import PrefillWork, PRoomValue
from kvproto.protocol.tables.prefill_send import PSendValue
from kvproto.protocol.tables.prefill_write import PWriteValue
from kvproto.rank.base import LinkPeer
from kvproto.rank.fair_queue import FairQueue
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.sim.interpreter import Interpreter, Surroundings, Untaken, Write
from witness.chunk import (
    CAUSE,
    CHUNK_TOKENS,
    GRANT,
    LATE,
    NOW,
    OURS,
    PLAN,
    PREFILL,
    ROOM,
    TO_WRITER,
    RankOutput,
    Tables,
    name,
    settings,
    thaw_room,
)

#: states whose timer ends no room: it leads from the ring to the pages
PATIENT = (PSend.AWAIT_GRANT, PSend.AWAIT_WRITERS, PSend.AWAIT_TURN, PSend.AWAIT_WATERMARK)
#: states in which a send still looks at its region
_REGION = (PSend.AWAIT_WATERMARK, PSend.AWAIT_SLOT, PSend.GATHERING, PSend.WRITING)


class WValue(NamedTuple):
    """A prefill rank; `ready`: its KV is computed; `seen`: the other chunk's region is known to be free."""

    room: PRoomValue
    send: PSendValue | None
    ready: bool
    gather: bool
    seen: bool


#: states in which its write is in flight
_WRITING = (PSend.WRITING, PSend.WRITING_PAGES)
PLACE = b"D0"


class Writer(Surroundings):
    """Prefill rank `index`, against a ring of this kind."""

    def __init__(self, index: int, ring: str, tables: Tables, *, trouble: bool, tells: bool) -> None:
        self.index, self.waits, self.trouble = index, ring in ("ahead", "full"), trouble
        kind = type("WriterRank", (PrefillRank,), {"ROOM": tables.writer_room, "SEND": tables.send})
        self.rank = rank = kind(
            PREFILL, index, group=1, chunk_tokens=CHUNK_TOKENS, incarnation=1, settings=settings(ring)
        )
        self.terms = Terms(2, 1, 1, 0, CHUNK_TOKENS, 1)
        rank.native_notify = tells
        rank.peers[1] = LinkPeer(2, 0, PLAN, self.terms)
        rank.link_of[2, 0] = 1
        self.interpreter = Interpreter(rank, self)
        self.interpreter.bind(1, PLACE)
        self.interpreter.wires[1] = "wire"

    def first(self) -> tuple[WValue, RankOutput]:
        """The room is open, and the forward is scheduled."""
        room = PRoomValue(PRoom.AWAIT_FORWARD, INFINITY, self.terms, CHUNK_TOKENS, 0, 1)
        self.thaw(WValue(room, None, False, False, False))
        self.interpreter.handle(ev.ForwardScheduled(ROOM), NOW)
        return self._end()

    def inputs(self, v: WValue) -> list[str]:
        """The inputs that can come besides messages and the ends of writes."""
        found = ["produce"] if v.room.state is PRoom.OPEN and not v.ready else []
        if v.send is not None and v.send.state in (self.rank.send_machine.timers if self.trouble else PATIENT):
            found += ["timer", "beat"]
        found += ["gathered", "gathered late"] if v.gather else []
        if self.trouble:
            found += ["abort"] if v.room.state is PRoom.OPEN else []
            found += ["give up"] if v.room.state is PRoom.AWAIT_NOTED else []
            found += ["gather failed"] if v.gather else []
        return found

    def step(self, v: WValue, what: str) -> tuple[WValue, RankOutput]:
        word = what.removesuffix(" late")
        now = NOW if word == what else LATE
        self.thaw(v, doubtful=word == "settled")
        self.gathers = v.gather and word not in ("gathered", "gather failed")
        if word in TO_WRITER:
            self.interpreter.hear(PLACE, 1, 0 if word == "MARK" else ROOM, self._body(word), now)
        else:
            self.interpreter.handle(self._event(word), now)
        return self._end()

    def _body(self, word: str) -> Message:
        mine = int(self.waits)
        bodies: dict[str, Message] = {
            "RSP_WAIT": msg.StagingRsp(0, OURS, 0, mine, GRANT, 0, 0),
            "RSP_OPEN": msg.StagingRsp(0, OURS, 0, mine, GRANT, mine, 0),
            "EARLY": msg.StagingQueued(0, 0, 0, early=True), "EARLY_MARK": msg.StagingQueued(0, 1, 0, early=True),
            "IN_QUEUE": msg.StagingQueued(0, 0, 0), "DENIED": msg.StagingRefused(0),
            "PAGES": msg.PagesRsp(0, b"\0\0\0\0"), "MARK": msg.Watermark(1, 0),
            "ACK": msg.ChunkAck(0), "ABORT": msg.Abort(CAUSE), "NOTED": msg.Noted(),
        }  # fmt: skip
        return bodies[word]

    @staticmethod
    def _event(word: str) -> Event:
        return {
            "produce": ev.TokensProduced(ROOM, CHUNK_TOKENS), "abort": ev.EngineAborted(ROOM, CAUSE),
            "give up": TimerFired(ROOM, ROOM_CHUNK, 0, -1), "timer": TimerFired(ROOM, 0, 0, -1),
            "beat": TimerFired(ROOM, 0, 0, 1 << 30), "gathered": ev.Gathered(ROOM, 0, 0),
            "gather failed": ev.GatherFailed(ROOM, 0, 0), "completed": ev.BatchCompleted(ROOM, 0, 0),
            "failed": ev.BatchFailed(ROOM, 0, 0, settled=True), "settled": ev.BatchSettled(ROOM, 0, 0),
            "doubted": ev.BatchFailed(ROOM, 0, 0, settled=False),
        }[word]  # fmt: skip

    def thaw(self, v: WValue, *, doubtful: bool = False) -> None:
        """Make the rank what the value says; `doubtful`: its write is in doubt."""
        rank = self.rank
        self.sent: list[tuple[int, str]] = []
        self.told: list[str] = []
        self.refused: list[str] = []
        self.posted, self.gathers = "", False
        thaw_room(rank, v.room)
        rank.links[1] = PLinkValue(PLink.UP, INFINITY, epoch=1, mark_round=int(v.seen and self.waits))
        rank.sends = {ROOM: {0: v.send}} if v.send else {}
        slot = v.send is not None and v.send.slot >= 0
        rank.slot_of, rank.free_slots, rank.slot_queue = (
            ({(ROOM, 0, 0): 0}, [], FairQueue()) if slot else ({}, [0], FairQueue())
        )
        state = v.send.state if v.send is not None else None
        pages = state is PSend.WRITING_PAGES or (state is PSend.DRAINING and not slot)
        rank.permits, rank.permit_queue = ({(ROOM, 0, 0)} if pages else set()), FairQueue()
        rank.credits = {1: {(ROOM, 0, 0)}} if state is PSend.AWAIT_GRANT else {}
        rank.credit_queues = {}
        watches = v.send is not None and v.send.state is PSend.AWAIT_WATERMARK
        rank.watch[1] = [(1, GRANT, ROOM, 0, 0)] if watches else []
        rank.writes = {}
        if v.send is not None and (v.send.state in _WRITING or (v.send.state is PSend.DRAINING and not v.gather)):
            over = PWrite.IN_DOUBT if doubtful else PWrite.ENDING
            rank.writes[ROOM, 0] = PWriteValue(PWrite.IN_FLIGHT if v.send.state in _WRITING else over, flying=1)

    # ----------------------------------------------------------------------------- what the rank asks for
    def deliver(self, place: bytes, epoch: int, room: int, body: Message) -> None:
        self.sent.append((self.index, name(body)))

    def gather(self, asked: do.LaunchGather) -> None:
        self.gathers = True

    def post(self, write: Write) -> type[Untaken] | None:
        """The write is in flight."""
        self.posted = ("staged" if write.offset == 0 else "astray") if isinstance(write, do.PostWrite) else "pages"
        return None

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        """The engine hears how the room ended."""
        self.told.append("failure" if news.cause else "success")

    def hear_released(self, room: int) -> None:
        """The engine may use the pages again."""
        self.told.append("released")

    def hear_report(self, report: Report) -> None:
        self.refused.append(report.why)

    def _end(self) -> tuple[WValue, RankOutput]:
        out = RankOutput(tuple(sorted(set(self.sent))), self.posted, 0, tuple(self.told), tuple(self.refused))
        return self._freeze(gather=self.gathers), out

    def _freeze(self, *, gather: bool) -> WValue:
        rank = self.rank
        room: PRoomValue = rank.value_of(ROOM)
        ready = room.state is PRoom.OPEN and room.work is not None and room.work.produced > 0
        send = rank.sends.get(ROOM, {}).get(0)
        seen = not self.waits or rank.links[1].mark_round > 0
        return WValue(_p_room(room), None if send is None else _send(send, rank.slot_of), ready, gather, seen)


def _p_room(room: PRoomValue) -> PRoomValue:
    work = room.work or PrefillWork()
    if room.state is PRoom.OPEN:
        work = PrefillWork(next=1, live=work.live, produced=work.produced)
    elif room.state in (PRoom.DRAINING, PRoom.AWAIT_NOTED):
        work = PrefillWork(next=1, live=work.live, cause=CAUSE)
    else:
        work = PrefillWork(cause=CAUSE if room.state is not PRoom.DONE else Cause.NONE)
    state = PRoom.ABORTED if room.state is PRoom.FAILED else room.state
    peers = room.peers if state in (PRoom.OPEN, PRoom.DRAINING, PRoom.AWAIT_NOTED) else 0
    return replace(room, state=state, due=INFINITY, peers=peers, work=work)


def _send(v: PSendValue, slots: dict[Any, int]) -> PSendValue:
    v = replace(v, due=INFINITY, tries=0, mark=0, asked=0.0, first=0.0, slot=slots.get((ROOM, 0, 0), -1))
    if v.state not in _REGION:
        told = v.grant if v.state is PSend.AWAIT_ACK else 0
        v = replace(v, grant=told, offset=0, round=0, end=0)
    if v.state is not PSend.AWAIT_PAGES_KV:
        v = replace(v, pages=b"")
    given = v.state in (*_REGION, PSend.AWAIT_PAGES_KV)
    v = replace(v, acked=v.acked and v.state is PSend.WRITING, told=v.told and v.state is PSend.AWAIT_PAGES)
    return replace(v, kv=v.kv and v.state is not PSend.DRAINING, lease=30.0 if given else 0.0)
