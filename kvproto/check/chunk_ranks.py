"""One chunk's ranks as values: the real prefill and decode ranks, cut down to what one chunk of one room can tell apart.

`Writer` is one prefill rank, `Reader` the decode rank.  Links are up, the room is open on both sides, its aux row has
landed, its one chunk has been scheduled; from there on everything is the ranks' own doing.  A value and an *input* (a
short text: a message's name, an engine's call, the end of a kernel, a write or a timer) give the next value and an
`Out`: what leaves the rank, as names.  Both are pure, so results can be remembered, and tabulated.

What a value leaves out, because no row looks at it: deadlines and counts of tries (a timer may end at any time, and
`timer` says that no try is left), causes (all failures are one), times (`late` says that the lease is over when the
input comes), fields of a phase that has passed (a region that was given up, pages that were written).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from kvproto import effects as do
from kvproto import events as ev
from kvproto import messages as msg
from kvproto.events import Terms
from kvproto.layout import Layout, Plan
from kvproto.machine import Machine
from kvproto.rank import Peer, Settings
from kvproto.rank_decode import DecodeRank
from kvproto.rank_prefill import PrefillRank
from kvproto.rows import Table
from kvproto.states import Cause, DGrant, DLink, DRoom, PLink, PRoom, PSend
from kvproto.tables.decode_grant import DGrantValue, decode_grant
from kvproto.tables.decode_room import DRoomValue
from kvproto.tables.decode_room import Work as DWork
from kvproto.tables.links import DLinkValue, PLinkValue
from kvproto.tables.prefill_room import PRoomValue
from kvproto.tables.prefill_room import Work as PWork
from kvproto.tables.prefill_send import PSendValue, prefill_send
from kvproto.wheel import INFINITY

ROOM, OTHER, GRID = 100, 101, 2
NOW, LATE = 0.0, 50.0
WRITERS = (0, 1)
BOTH = 0b11
CAUSE = Cause.DECODE_ABORTED
PREFILL = Layout(layers=1, heads=2, k_dim=64, v_dim=0, itemsize=2, dtype="bfloat16", page_size=1, tp=2)
DECODE = Layout(layers=1, heads=2, k_dim=64, v_dim=0, itemsize=2, dtype="bfloat16", page_size=GRID, tp=1)
PLAN = Plan(PREFILL, DECODE, GRID)
GRANT = PLAN.grant_bytes(0, GRID)

#: how the ring is when the chunk comes: empty; all of it is another chunk's, and it promises one round ahead; the
#: same, but it promises nothing ahead; too small
RINGS = ("empty", "ahead", "full", "small")
TO_READER = ("REQ", "PAGES_REQ", "MARK_REQ", "NOTE_STAGED", "NOTE_PAGES", "DRAINED")
TO_WRITER = ("RSP_WAIT", "RSP_OPEN", "DENIED", "PAGES", "MARK", "ACK", "ABORT", "NOTED")
#: states whose timer ends no room: it leads from the ring to the pages
PATIENT = (PSend.AWAIT_GRANT, PSend.AWAIT_WATERMARK, PSend.AWAIT_KV)
#: inputs of a writer that find the lease holding, or over
TIMED = ("RSP_WAIT", "RSP_OPEN", "MARK", "PAGES", "produce", "gathered")


class Tables(NamedTuple):
    """The tables that the ranks are built from."""

    send: Table[PSendValue] = prefill_send
    grant: Table[DGrantValue] = decode_grant


class Out(NamedTuple):
    """What leaves a rank: messages to the other side (by writer), and what is done."""

    sent: tuple[tuple[int, str], ...] = ()
    #: writer: "staged" or "pages" was posted; reader: writers (mask) whose staged parts a scatter reads
    posted: str = ""
    scatter: int = 0
    #: the engine hears: "success", "failure", "released"
    told: tuple[str, ...] = ()
    #: reports of events that were refused, by name
    refused: tuple[str, ...] = ()


class WValue(NamedTuple):
    """A prefill rank; `ready`: the chunk's KV is computed; `seen`: the other chunk's region is known to be free."""

    room: PRoomValue
    send: PSendValue | None
    ready: bool
    gather: bool
    seen: bool


class RValue(NamedTuple):
    """The decode rank; `other`: the other chunk still has its region; `held`: this one has one."""

    room: DRoomValue
    grant: DGrantValue | None
    other: bool
    held: bool


def _settings(ring: str) -> Settings:
    size = GRANT - 1 if ring == "small" else GRANT
    return Settings(ring_bytes=size, ahead=0 if ring == "full" else 2, slots=1, trace=64)


class Writer:
    """Prefill rank `index`, against a ring of this kind."""

    def __init__(self, index: int, ring: str, tables: Tables, *, trouble: bool) -> None:
        self.index, self.waits, self.trouble = index, ring in ("ahead", "full"), trouble
        self.rank = rank = PrefillRank(PREFILL, index, group=1, grid=GRID, incarnation=1, settings=_settings(ring))
        rank.send_machine = Machine(tables.send, rank.settings.timing)
        self.terms = Terms(2, 1, 1, 0, GRID, 1)
        rank.peers[1] = Peer(2, 0, PLAN, self.terms)
        rank.link_of[2, 0] = 1

    def first(self) -> tuple[WValue, Out]:
        """The room is open, and the forward is scheduled."""
        self.thaw(WValue(PRoomValue(PRoom.AWAIT_FORWARD, INFINITY, self.terms, GRID, 0, 1), None, False, False, False))
        return self._end(self.rank.handle(ev.ForwardScheduled(ROOM), NOW), gather=False)

    def inputs(self, v: WValue) -> list[str]:
        """What can happen here besides messages and the ends of writes."""
        found = ["produce", "produce late"] if v.room.state is PRoom.OPEN and not v.ready else []
        if v.send is not None and v.send.state in (self.rank.send_machine.timers if self.trouble else PATIENT):
            found += ["timer", "beat"]
        found += ["gathered", "gathered late"] if v.gather else []
        if self.trouble:
            found += ["abort"] if v.room.state is PRoom.OPEN else []
            found += ["give up"] if v.room.state is PRoom.AWAIT_NOTED else []
            found += ["gather failed"] if v.gather else []
        return found

    def step(self, v: WValue, what: str) -> tuple[WValue, Out]:
        """The next value and what leaves the rank."""
        self.thaw(v)
        word, _, late = what.partition(" late")
        now = LATE if late or what.endswith(" late") else NOW
        gather = v.gather and word not in ("gathered", "gather failed")
        if word in TO_WRITER:
            effects = self.rank.receive(1, 1, 0 if word == "MARK" else ROOM, self._body(word), now)
        else:
            effects = self.rank.handle(self._event(word), now)
        return self._end(effects, gather=gather)

    def _body(self, word: str) -> msg.Message:
        round_, end = int(self.waits), GRANT
        return {
            "RSP_WAIT": msg.StagingRsp(0, 2, 0, round_, end, 0, 0), "RSP_OPEN": msg.StagingRsp(0, 2, 0, round_, end, round_, 0),
            "DENIED": msg.StagingRefused(0), "PAGES": msg.PagesRsp(0, b"\0\0\0\0"), "MARK": msg.Watermark(1, 0),
            "ACK": msg.ChunkAck(0), "ABORT": msg.Abort(CAUSE), "NOTED": msg.Noted(),
        }[word]  # fmt: skip

    @staticmethod
    def _event(word: str) -> ev.Event:
        return {
            "produce": ev.TokensProduced(ROOM, GRID), "abort": ev.EngineAborted(ROOM, CAUSE),
            "give up": ev.TimerFired(ROOM, -2, 0, -1), "timer": ev.TimerFired(ROOM, 0, 0, -1),
            "beat": ev.TimerFired(ROOM, 0, 0, 1 << 30), "gathered": ev.Gathered(ROOM, 0, 0),
            "gather failed": ev.GatherFailed(ROOM, 0, 0), "completed": ev.WriteCompleted(ROOM, 0, 0),
            "failed": ev.WriteFailed(ROOM, 0, 0, settled=True), "doubted": ev.WriteFailed(ROOM, 0, 0, settled=False),
        }[word]  # fmt: skip

    def thaw(self, v: WValue) -> None:
        """Make the rank what the value says."""
        rank = self.rank
        rank.wheel.slots.clear()
        rank.wheel.order.clear()
        over = rank.room_machine.ends[v.room.state]
        rank.rooms, rank.tombs = ({}, {ROOM: v.room}) if over else ({ROOM: v.room}, {})
        rank.links[1] = PLinkValue(PLink.UP, INFINITY, epoch=1, mark_round=int(v.seen and self.waits))
        rank.sends = {ROOM: {0: v.send}} if v.send else {}
        slot = v.send is not None and v.send.slot >= 0
        rank.slot_of, rank.free_slots, rank.slot_queue = ({(ROOM, 0, 0): 0}, [], {}) if slot else ({}, [0], {})
        watches = v.send is not None and v.send.state is PSend.AWAIT_WATERMARK
        rank.watch[1] = [(1, GRANT, ROOM, 0, 0)] if watches else []

    def _end(self, effects: list[do.Effect], *, gather: bool) -> tuple[WValue, Out]:
        sent, told, refused, posted = [], [], [], ""
        for effect in effects:
            match effect:
                case do.Transmit():
                    sent.append((self.index, _name(effect.body)))
                case do.LaunchGather():
                    gather = True
                case do.PostWrite():
                    posted = "staged" if effect.offset == 0 else "astray"
                case do.PostPages():
                    posted = "pages"
                case do.AnnounceOutcome():
                    told.append("failure" if effect.cause else "success")
                case do.AnnounceReleased():
                    told.append("released")
                case do.Report():
                    refused.append(effect.why)
        return self._freeze(gather), Out(tuple(sorted(set(sent))), posted, 0, tuple(told), tuple(refused))

    def _freeze(self, gather: bool) -> WValue:
        rank = self.rank
        room: PRoomValue = rank.value_of(ROOM)
        ready = room.state is PRoom.OPEN and room.work is not None and room.work.produced > 0
        send = rank.sends.get(ROOM, {}).get(0)
        seen = not self.waits or rank.links[1].mark_round > 0
        return WValue(_p_room(room), None if send is None else _send(send, rank.slot_of), ready, gather, seen)


def _p_room(room: PRoomValue) -> PRoomValue:
    work = room.work or PWork()
    if room.state is PRoom.OPEN:
        work = PWork(next=1, live=work.live, produced=work.produced)
    elif room.state in (PRoom.DRAINING, PRoom.AWAIT_NOTED):
        work = PWork(next=1, live=work.live, cause=CAUSE)
    else:
        work = PWork(cause=CAUSE if room.state is not PRoom.DONE else Cause.NONE)
    state = PRoom.ABORTED if room.state is PRoom.FAILED else room.state
    peers = room.peers if state in (PRoom.OPEN, PRoom.DRAINING, PRoom.AWAIT_NOTED) else 0
    return replace(room, state=state, due=INFINITY, peers=peers, work=work)


#: states in which a send still looks at its region
_REGION = (PSend.AWAIT_WATERMARK, PSend.AWAIT_KV, PSend.AWAIT_SLOT, PSend.GATHERING, PSend.WRITING)


def _send(v: PSendValue, slots: dict[Any, int]) -> PSendValue:
    v = replace(v, due=INFINITY, tries=0, asked=0.0, slot=slots.get((ROOM, 0, 0), -1))
    if v.state not in _REGION:
        told = v.grant if v.state is PSend.AWAIT_ACK else 0
        v = replace(v, grant=told, offset=0, round=0, end=0)
    if v.state not in (PSend.AWAIT_PAGES_KV, PSend.SLICING):
        v = replace(v, pages=b"")
    given = v.state in (*_REGION, PSend.AWAIT_PAGES_KV)
    return replace(v, kv=v.kv and v.state is not PSend.DRAINING, lease=30.0 if given else 0.0)


def _name(body: msg.Message) -> str:
    match body:
        case msg.StgNotify():
            return "NOTE_STAGED" if body.grant else "NOTE_PAGES"
        case msg.StagingRsp():
            return "RSP_OPEN" if (body.mark_round, body.mark_tail) >= (body.round, 0) else "RSP_WAIT"
        case msg.Watermark():
            return "MARK" if body.round else ""
    return {
        msg.StagingReq: "REQ", msg.PagesReq: "PAGES_REQ", msg.WatermarkReq: "MARK_REQ", msg.Drained: "DRAINED",
        msg.StagingRefused: "DENIED", msg.ChunkAck: "ACK", msg.Abort: "ABORT", msg.Noted: "NOTED",
    }[type(body)]  # fmt: skip


class Reader:
    """The decode rank, with a ring of this kind."""

    def __init__(self, ring: str, tables: Tables, *, trouble: bool) -> None:
        self.kind, self.trouble = ring, trouble
        self.rank = rank = DecodeRank(DECODE, 0, group=2, grid=GRID, incarnation=1, settings=_settings(ring))
        rank.grant_machine = Machine(tables.grant, rank.settings.timing)
        self.terms = Terms(1, BOTH, BOTH, 1, GRID)
        for writer in WRITERS:
            rank.peers[writer + 1] = Peer(1, writer, PLAN, self.terms)
            rank.link_of[1, writer] = writer + 1
            rank.links[writer + 1] = DLinkValue(DLink.UP, INFINITY, epoch=1)

    def first(self) -> RValue:
        """The room is open on both sides, and its aux row has landed."""
        room = DRoomValue(DRoom.OPEN, INFINITY, self.terms, GRID, 0, BOTH, DWork(aux=True))
        return RValue(room, None, self.kind in ("ahead", "full"), held=False)

    def inputs(self, v: RValue) -> list[str]:
        """What can happen here besides messages."""
        found = ["abort"] if self.trouble and v.room.state is DRoom.OPEN else []
        found += ["other freed"] if v.other else []
        scattering = v.grant is not None and v.grant.state is DGrant.SCATTERING
        found += ["scattered"] if scattering else []
        return found + (["scatter failed"] if scattering and self.trouble else [])

    def step(self, v: RValue, what: str, writer: int = 0) -> tuple[RValue, Out]:
        """The next value and what leaves the rank; `writer`: whose message it is."""
        self.thaw(v)
        if what in TO_READER:
            body = {
                "REQ": msg.StagingReq(0), "PAGES_REQ": msg.PagesReq(0), "MARK_REQ": msg.WatermarkReq(),
                "NOTE_STAGED": msg.StgNotify(0, 2), "NOTE_PAGES": msg.StgNotify(0, 0), "DRAINED": msg.Drained(CAUSE),
            }[what]  # fmt: skip
            return self._end(self.rank.receive(writer + 1, 1, 0 if what == "MARK_REQ" else ROOM, body, NOW))
        event = {
            "abort": ev.EngineAborted(ROOM, CAUSE), "other freed": ev.Scattered(OTHER, 0),
            "scattered": ev.Scattered(ROOM, 0), "scatter failed": ev.ScatterFailed(ROOM, 0),
        }[what]  # fmt: skip
        return self._end(self.rank.handle(event, NOW))

    def thaw(self, v: RValue) -> None:
        """Make the rank what the value says."""
        rank = self.rank
        rank.wheel.slots.clear()
        rank.wheel.order.clear()
        over = rank.room_machine.ends[v.room.state]
        rank.rooms, rank.tombs = ({}, {ROOM: v.room}) if over else ({ROOM: v.room}, {})
        rank.grants = {ROOM: {0: v.grant}} if v.grant else {}
        self._thaw_ring(v)

    def _thaw_ring(self, v: RValue) -> None:
        rank = self.rank
        rank.ring = ring = type(rank.ring)(rank.ring.size, ahead=rank.ring.ahead)
        rank.chunk_of, rank.space_queue, ring.next_grant = {}, {}, 1
        if self.kind in ("ahead", "full"):
            ring.reserve(GRANT)
            if v.other:
                rank.chunk_of[1] = OTHER, 0
                rank.rooms[OTHER] = DRoomValue(DRoom.OPEN, INFINITY, self.terms, GRID, 0, BOTH, DWork(live=1, aux=True))
                rank.grants[OTHER] = {0: DGrantValue(DGrant.SCATTERING, INFINITY, BOTH, BOTH, BOTH, 0, 1, 0, 0, GRANT)}
            else:
                ring.free(1)
        ring.next_grant = 2
        if v.held:
            ring.reserve(GRANT)
            rank.chunk_of[2] = ROOM, 0
        if v.grant is not None and v.grant.state is DGrant.AWAIT_SPACE:
            rank.space_queue[ROOM, 0] = GRANT

    def _end(self, effects: list[do.Effect]) -> tuple[RValue, Out]:
        sent, told, refused, scatter = [], [], [], 0
        for effect in effects:
            match effect:
                case do.Transmit():
                    sent.append((effect.link - 1, _name(effect.body)))
                case do.TransmitPages():
                    sent.append((effect.link - 1, "PAGES"))
                case do.LaunchScatter():
                    scatter = effect.writers
                case do.AnnounceOutcome(room=room) if room == ROOM:
                    told.append("failure" if effect.cause else "success")
                case do.AnnounceReleased(room=room) if room == ROOM:
                    told.append("released")
                case do.Report():
                    refused.append(effect.why)
        said = tuple(sorted({pair for pair in sent if pair[1]}))
        return self._freeze(), Out(said, "", scatter, tuple(told), tuple(refused))

    def _freeze(self) -> RValue:
        rank = self.rank
        grant = rank.grants.get(ROOM, {}).get(0)
        return RValue(_d_room(rank.value_of(ROOM)), None if grant is None else _grant(grant), 1 in rank.chunk_of, 2 in rank.chunk_of)


def _d_room(room: DRoomValue) -> DRoomValue:
    work = room.work or DWork()
    failed = room.state not in (DRoom.OPEN, DRoom.DONE)
    work = DWork(done=0 if failed else work.done, live=work.live, aux=True, cause=CAUSE if failed else Cause.NONE)
    state = DRoom.ABORTED if room.state is DRoom.FAILED else room.state
    return replace(room, state=state, due=INFINITY, work=work)


def _grant(v: DGrantValue) -> DGrantValue:
    if v.state in (DGrant.SCATTERING, DGrant.QUARANTINED):
        v = replace(v, arrived=0, by_pages=0)
    waits = v.state in (DGrant.AWAIT_SPACE, DGrant.FILLING)
    v = replace(v, asked=v.asked & ~v.arrived & ~v.by_pages if waits else 0)
    keeps = v.state in (DGrant.FILLING, DGrant.SCATTERING, DGrant.QUARANTINED)
    return v if keeps else replace(v, grant=0, offset=0, round=0, end=0)
