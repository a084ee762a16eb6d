"""Chunk reader: the real decode rank, with its ring, as a value.

Where the ring is another chunk's, that one is real, too: a room that waits only for its scatter, so that it is freed
the way the rank frees regions.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from kvproto.fsm.timer_wheel import INFINITY
from kvproto.fsm.vocabulary import Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Terms
from kvproto.protocol.messages import Message
from kvproto.protocol.states import Cause, DGrant, DLink, DRoom
from kvproto.protocol.tables.decode_grant import DGrantValue
from kvproto.protocol.tables.decode_room import DecodeWork, DRoomValue
from kvproto.protocol.tables.links import DLinkValue
from kvproto.rank.base import LinkPeer
from kvproto.rank.decode import DecodeRank
from kvproto.rank.space_queue import SpaceQueue
from kvproto.verify.sim.interpreter import Interpreter, Surroundings
from witness.chunk import (
    BOTH,
    CAUSE,
    CHUNK_TOKENS,
    DECODE,
    GRANT,
    NOW,
    OTHER,
    OTHERS,
    OURS,
    PLAN,
    ROOM,
    TO_READER,
    WRITERS,
    RankOutput,
    Tables,
    name,
    settings,
    thaw_room,
)


class RValue(NamedTuple):
    """The decode rank; `other`: the other chunk still has its region; `held`: this one has one."""

    room: DRoomValue
    grant: DGrantValue | None
    other: bool
    held: bool


class Reader(Surroundings):
    """The decode rank, with a ring of this kind."""

    def __init__(self, ring: str, tables: Tables, *, trouble: bool) -> None:
        self.kind, self.trouble = ring, trouble
        kind = type("ReaderRank", (DecodeRank,), {"ROOM": tables.reader_room, "GRANT": tables.grant})
        self.rank = rank = kind(DECODE, 0, group=2, chunk_tokens=CHUNK_TOKENS, incarnation=1, settings=settings(ring))
        self.terms = Terms(1, BOTH, BOTH, 1, CHUNK_TOKENS)
        for writer in WRITERS:
            rank.peers[writer + 1] = LinkPeer(1, writer, PLAN, self.terms)
            rank.link_of[1, writer] = writer + 1
            rank.links[writer + 1] = DLinkValue(DLink.UP, INFINITY, epoch=1)
        self.interpreter = Interpreter(rank, self)
        for writer in WRITERS:
            self.interpreter.bind(writer + 1, _place(writer))

    def first(self) -> RValue:
        """The room is open on both sides, and its aux row has landed."""
        return RValue(self._open(0), None, self.kind in ("ahead", "full"), held=False)

    def _open(self, live: int) -> DRoomValue:
        return DRoomValue(DRoom.OPEN, INFINITY, self.terms, CHUNK_TOKENS, 0, BOTH, DecodeWork(live=live, aux=True))

    def inputs(self, v: RValue) -> list[str]:
        """The inputs that can come besides messages."""
        found = ["abort"] if self.trouble and v.room.state is DRoom.OPEN else []
        found += ["other freed"] if v.other else []
        scattering = v.grant is not None and v.grant.state is DGrant.SCATTERING
        found += ["scattered"] if scattering else []
        return found + (["scatter failed"] if scattering and self.trouble else [])

    def step(self, v: RValue, what: str, writer: int = 0) -> tuple[RValue, RankOutput]:
        """The next value and what leaves the rank; `writer`: whose message it is."""
        self.thaw(v)
        if what in TO_READER:
            bodies: dict[str, Message] = {
                "REQ": msg.StagingReq(0), "PAGES_REQ": msg.PagesReq(0), "MARK_REQ": msg.WatermarkReq(),
                "NOTE_STAGED": msg.StgNotify(0, OURS), "NOTE_PAGES": msg.StgNotify(0, 0), "DRAINED": msg.Drained(CAUSE),
            }  # fmt: skip
            self.interpreter.hear(_place(writer), 1, 0 if what == "MARK_REQ" else ROOM, bodies[what], NOW)
            return self._end()
        event = {
            "abort": ev.EngineAborted(ROOM, CAUSE), "other freed": ev.Scattered(OTHER, 0),
            "scattered": ev.Scattered(ROOM, 0), "scatter failed": ev.ScatterFailed(ROOM, 0),
        }[what]  # fmt: skip
        self.interpreter.handle(event, NOW)
        return self._end()

    def thaw(self, v: RValue) -> None:
        rank = self.rank
        self.sent: set[tuple[int, str]] = set()
        self.told: list[str] = []
        self.refused: list[str] = []
        self.scattered = 0
        thaw_room(rank, v.room)
        rank.grants = {ROOM: {0: v.grant}} if v.grant else {}
        self._thaw_ring(v)

    def _thaw_ring(self, v: RValue) -> None:
        rank = self.rank
        rank.ring = ring = type(rank.ring)(rank.ring.size, ahead=rank.ring.ahead)
        rank.chunk_of, rank.space_queue, ring.next_grant = {}, SpaceQueue(), OTHERS
        if self.kind in ("ahead", "full"):
            ring.reserve(GRANT)
            if v.other:
                rank.chunk_of[OTHERS] = OTHER, 0
                rank.rooms[OTHER] = self._open(1)
                grant = DGrantValue(DGrant.SCATTERING, writers=BOTH, arrived=BOTH, grant=OTHERS, end=GRANT)
                rank.grants[OTHER] = {0: grant}
            else:
                ring.free(OTHERS)
        ring.next_grant = OURS
        if v.held:
            ring.reserve(GRANT)
            rank.chunk_of[OURS] = ROOM, 0
        if v.grant is not None and v.grant.state is DGrant.AWAIT_SPACE:
            rank.space_queue.put((ROOM, 0), GRANT, CHUNK_TOKENS)

    # ----------------------------------------------------------------------------- what the rank asks for
    def deliver(self, place: bytes, epoch: int, room: int, body: Message) -> None:
        if name(body):
            self.sent.add((int(place[1:]), name(body)))

    def page_ids(self, asked: do.TransmitPages) -> bytes:
        """The one page."""
        return b"\0\0\0\0"

    def scatter(self, asked: do.LaunchScatter) -> None:
        """The staged parts of these writers are scattered."""
        self.scattered = asked.writers

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        """The engine hears how the room ended."""
        if news.room == ROOM:
            self.told.append("failure" if news.cause else "success")

    def hear_released(self, room: int) -> None:
        """The engine may use the pages again."""
        if room == ROOM:
            self.told.append("released")

    def hear_report(self, report: Report) -> None:
        self.refused.append(report.why)

    def _end(self) -> tuple[RValue, RankOutput]:
        said = tuple(sorted(self.sent))
        return self._freeze(), RankOutput(said, "", self.scattered, tuple(self.told), tuple(self.refused))

    def _freeze(self) -> RValue:
        rank = self.rank
        grant = rank.grants.get(ROOM, {}).get(0)
        value = None if grant is None else _grant(grant)
        return RValue(_d_room(rank.value_of(ROOM)), value, OTHERS in rank.chunk_of, OURS in rank.chunk_of)


def _place(writer: int) -> bytes:
    return f"P{writer}".encode()


def _d_room(room: DRoomValue) -> DRoomValue:
    work = room.work or DecodeWork()
    failed = room.state not in (DRoom.OPEN, DRoom.DONE)
    work = DecodeWork(done=0 if failed else work.done, live=work.live, aux=True, cause=CAUSE if failed else Cause.NONE)
    state = DRoom.ABORTED if room.state is DRoom.FAILED else room.state
    return replace(room, state=state, due=INFINITY, work=work)


def _grant(v: DGrantValue) -> DGrantValue:
    if v.state is DGrant.QUARANTINED:
        v = replace(v, arrived=0, by_pages=0)
    waits = v.state in (DGrant.AWAIT_WRITERS, DGrant.AWAIT_SPACE, DGrant.FILLING)
    v = replace(v, asked=v.asked if waits else 0)
    keeps = v.state in (DGrant.FILLING, DGrant.SCATTERING, DGrant.QUARANTINED)
    given = OURS if v.state is DGrant.FILLING_PAGES else 0  # a late notification names the region that was given up
    return v if keeps else replace(v, grant=given, offset=0, round=0, end=0)
