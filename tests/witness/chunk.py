"""Chunk of one room, from two writers to one reader: what both kinds of rank and their readers share.

The real prefill and decode ranks, as values.  Links are up, the room is open on both sides, its aux row has landed,
its one chunk has been scheduled; from there on everything is the ranks' own doing.  A value and an *input* (a short
text: a message's name, an engine's call, the end of a kernel, of a write, of a timer) give the next value and a
`RankOutput`: what leaves the rank, as names.  Both are pure, so results can be remembered, and tabulated.

What a value leaves out, because no row looks at it: deadlines and counts of tries (a timer may end at any time, and
`timer` says that no try is left), causes (all failures are one), times (`late` says that the lease is over when the
input comes), fields of a phase that has passed (a region that was given up, pages that were written).
"""

from __future__ import annotations

from typing import NamedTuple

from kvproto.fsm.table import Table, Value
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause
from kvproto.protocol.tables.decode_grant import DGrantValue, decode_grant
from kvproto.protocol.tables.decode_room import DRoomValue, decode_room
from kvproto.protocol.tables.prefill_room import PRoomValue, prefill_room
from kvproto.protocol.tables.prefill_send import PSendValue, prefill_send
from kvproto.rank.base import Rank
from kvproto.settings import Settings

ROOM, OTHER, CHUNK_TOKENS = 100, 101, 2
#: the ids of the other chunk's region and of this one's
OTHERS, OURS = 1, 2
NOW, LATE = 0.0, 50.0
WRITERS = (0, 1)
BOTH = 0b11
CAUSE = Cause.DECODE_ABORTED
PREFILL = Layout(layers=1, heads=2, k_dim=64, v_dim=0, itemsize=2, dtype="bfloat16", page_size=1, tp=2)
DECODE = Layout(layers=1, heads=2, k_dim=64, v_dim=0, itemsize=2, dtype="bfloat16", page_size=CHUNK_TOKENS, tp=1)
PLAN = Plan(PREFILL, DECODE, CHUNK_TOKENS)
GRANT = PLAN.grant_bytes(0, Cut(0, CHUNK_TOKENS))

#: how the ring is when the chunk comes: empty; all of it is another chunk's, and it promises nothing ahead; too small;
#: another chunk's, and it promises one round ahead
RINGS = ("empty", "full", "small", "ahead")
TO_READER = ("REQ", "PAGES_REQ", "MARK_REQ", "NOTE_STAGED", "NOTE_PAGES", "DRAINED")
TO_WRITER = (
    "RSP_WAIT", "RSP_OPEN", "EARLY", "EARLY_MARK", "IN_QUEUE", "DENIED", "PAGES", "MARK", "ACK", "ABORT", "NOTED",
)  # fmt: skip
#: inputs of a writer that find the lease holding, or over
TIMED = ("RSP_WAIT", "RSP_OPEN", "EARLY_MARK", "MARK", "PAGES", "gathered")


class Tables(NamedTuple):
    """The tables that the ranks are built from."""

    send: Table[PSendValue] = prefill_send
    grant: Table[DGrantValue] = decode_grant
    writer_room: Table[PRoomValue] = prefill_room
    reader_room: Table[DRoomValue] = decode_room


class RankOutput(NamedTuple):
    """The output of a rank: messages to the other side (by writer), and what is done."""

    sent: tuple[tuple[int, str], ...] = ()
    #: a writer posted this: "staged", "pages" or "astray" (to no region)
    posted: str = ""
    #: the reader scatters the staged parts of these writers (mask)
    scatter: int = 0
    #: the engine hears: "success", "failure", "released"
    told: tuple[str, ...] = ()
    #: why events were refused
    refused: tuple[str, ...] = ()


def settings(ring: str) -> Settings:
    """The settings of every rank, for this kind of ring."""
    size = GRANT - 1 if ring == "small" else GRANT
    return Settings(ring_bytes=size, ring_rounds_ahead=0 if ring == "full" else 2, slots=1, trace=64)


def thaw_room(rank: Rank, room: Value) -> None:
    """Have the rank know of this one room, and of no timer."""
    rank.clear_pending()
    over = room.state in rank.room_machine.table.final
    rank.rooms, rank.tombs = ({}, {ROOM: room}) if over else ({ROOM: room}, {})


def name(body: msg.Message) -> str:
    """The message's name; empty: it tells nothing."""
    match body:
        case msg.StgNotify():
            return "NOTE_STAGED" if body.grant else "NOTE_PAGES"
        case msg.StagingRsp():
            return "RSP_OPEN" if (body.mark_round, body.mark_tail) >= (body.round, 0) else "RSP_WAIT"
        case msg.StagingQueued() if body.early:
            return "EARLY_MARK" if body.mark_round else "EARLY"
        case msg.Watermark():
            return "MARK" if body.round else ""
    return {
        msg.StagingReq: "REQ", msg.PagesReq: "PAGES_REQ", msg.WatermarkReq: "MARK_REQ", msg.Drained: "DRAINED",
        msg.StagingQueued: "IN_QUEUE", msg.StagingRefused: "DENIED", msg.PagesRsp: "PAGES", msg.ChunkAck: "ACK",
        msg.Abort: "ABORT", msg.Noted: "NOTED",
    }[type(body)]  # fmt: skip
