"""A decode node: the rank, its engine, its scatters and its memory.

The engine opens each room once and may give it up at any point; what the rank tells it is judged as it is told (S5,
S6).  What happens to bytes is `decode_memory`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kvproto.fsm.vocabulary import Event
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import ROOM_CHUNK, TimerFired
from kvproto.protocol.messages import OLDEST, VERSION, Goodbye, Hello, Message, StagingRsp, StgNotify
from kvproto.protocol.states import Cause, DLink, DRoom
from kvproto.rank.base import LinkPeer
from kvproto.rank.decode import DecodeRank
from kvproto.verify.check.config import CHUNK_TOKENS, Config
from kvproto.verify.check.decode_memory import REPORTS, DecodeMemory, DNode
from kvproto.verify.check.node import (
    FAILURE,
    GONE,
    LAST,
    MORE,
    NOW,
    SILENT,
    Input,
    Move,
    RankOutput,
    Unrest,
    Watched,
    judge,
    page_ids,
    put,
    remove,
)  # fmt: skip
from kvproto.verify.check.snapshot import Frozen, freeze_decode, thaw_decode

#: a place in a script: the engine has announced the room
ANNOUNCED = 2
#: lives of a rank, at most: instances of one name have incarnations of their own
LIVES = 16
#: an address where no rank is
NOWHERE = "nowhere"
#: by what does not fit: what a first life says otherwise in its call
OTHERS: dict[str, Callable[[Hello], dict[str, Any]]] = {
    "version": lambda _said: {"version": OLDEST - 1, "oldest": 0},
    "lease": lambda said: {"lease": said.lease + 1},
}
#: what a first life of a newer build says in its call
NEWER = {
    "version": VERSION + 1, "oldest": OLDEST, "digest": "layout:0 sooner:1", "agreements": "later:1",
    "capabilities": "announce later",
}  # fmt: skip


class DecodeNode(DecodeMemory):
    """All that one decode rank can do."""

    def __init__(self, config: Config, index: int) -> None:
        super().__init__(config, index)
        self.peers = config.peers(self.SIDE, index)
        self.lives: dict[int, tuple[DecodeRank, Watched]] = {}
        #: by life and link: who is at its other end
        self.called: dict[int, dict[int, LinkPeer]] = {}
        self._begin(0)

    def _begin(self, life: int) -> None:
        cfg, born = self.config, 1 + (LIVES * self.index if self.own.one_name else 0)
        self.rank = DecodeRank(
            cfg.decode_layout, self.member, group=self.own.group(self.index), chunk_tokens=CHUNK_TOKENS,
            incarnation=born + life,
            settings=cfg.settings,
        )  # fmt: skip
        self.rank.placement = cfg.placement(cfg.decode_layout, self.member)
        self.rank.endpoint = bytes([life])  # the transport's description: a write is for one life of this rank
        self.rank.stands = self.stands
        first = self.names.first
        #: by room
        self.terms = tuple(self.rank.terms(self.others.group(p), self.plan, cfg.layer_groups) for p in first)
        self.interpreter = Watched(self.rank, self)
        self.lives[life] = self.rank, self.interpreter

    def initial(self, life: int = 0, script: tuple[int, ...] = ()) -> tuple[DNode, list[RankOutput]]:
        """A rank that has just started and has called all prefill ranks that it shares anything with.

        `script`: rooms that the engine of a former life has lost.
        """
        n, script = len(self.names.keys), script or self.script()
        self._begin(life)
        none: tuple[Any, ...] = ()
        ring = (0,) * self.config.ring
        v = DNode(life, none, script, none, none, ring, (0,) * n, (SILENT,) * n, (False,) * n, (False,) * n)
        self.current, self.outs = v, []
        for p in self.peers:
            self.rank.next_link = p + 1
            who = self.others.group(p), self.others.member(p)
            _, effects = self.rank.call(*who, self.plan, NOW, self.place(p).decode())
            self.interpreter.carry_out(effects, NOW)
        self.called[life] = dict(self.rank.peers)
        return self._frozen(), self.outs

    # ------------------------------------------------------------------------------------------- moves
    def moves(self, v: DNode) -> list[Move]:
        found = []
        for k, at in enumerate(v.script):
            if at == 0 and self.may_begin(k, v.script, v.outcome):
                found.append(Move("plain", "", -1, k, ("open", k)))
                if self.config.announce:
                    found.append(Move("plain", "", -1, k, ("announce", k)))
            elif at > 0 and v.outcome[k] == SILENT:
                found.append(Move("plain", "abort", -1, k, ("abort", k)))
                if at == ANNOUNCED:
                    found.append(Move("plain", "", -1, k, ("open", k)))
                    found.append(Move("short", "early", -1, k, ("renew", k)))
        known = (p - self.others.member(p) for p, link in enumerate(v.rank[2]) if link is not None and not link.leaving)
        found += [Move("plain", "leave", first, -1, ("leave", first)) for first in sorted(set(known))]
        for job in v.scatters:
            found.append(Move("plain", "", -1, job[0], ("scattered", job)))
            found.append(Move("plain", "kernel", -1, job[0], ("scatter failed", job)))
        return [*found, *self._write_moves(v), *self._room_timers(v), *self._link_timers(v)]

    def _write_moves(self, v: DNode) -> list[Move]:
        found = []
        for write in v.writes:
            p, k, _, _, tag, _, left, doubt = write
            found += [Move("plain", "", p, k, ("land", write, i)) for i in range(left.bit_length()) if left >> i & 1]
            if doubt:
                found.append(Move("plain", "", p, k, ("settle", write)))
            else:
                found.append(Move("plain", "write", p, k, ("fail", write)))
                if tag and left.bit_count() == 1:
                    found.append(Move("plain", "write", p, k, ("fail told", write, left.bit_length() - 1)))
                found.append(Move("plain", "doubt", p, k, ("doubt", write)))
        return found

    @staticmethod
    def _room_timers(v: DNode) -> list[Move]:
        found = []
        for k, room in v.rank[0]:
            if room.state in (DRoom.AWAIT_PEERS, DRoom.DRAINING):
                found.append(Move("short", "early", -1, k, ("room timer", k, MORE)))
            if room.state in (DRoom.AWAIT_PEERS, DRoom.OPEN, DRoom.AWAIT_AUX):
                kind = "long" if room.state is DRoom.AWAIT_PEERS else "rare"
                found.append(Move(kind, "timeout", -1, k, ("room timer", k, LAST)))
            if room.state in (DRoom.OPEN, DRoom.AWAIT_AUX):
                found.append(Move("long", "timeout", -1, k, ("room timer", k, MORE)))
        return found

    def _link_timers(self, v: DNode) -> list[Move]:
        found = []
        for p in self.peers:
            link = v.rank[2][p]
            if link is None:
                continue
            if link.leaving:
                found.append(Move("short", "early", p, -1, ("link timer", p, MORE)))
            if not link.beside:
                found.append(Move("plain", "address", p, -1, ("address", p)))
            elif link.state is DLink.UP:
                found.append(Move("plain", "", p, -1, ("tried", p)))
            if link.state is DLink.UP:
                found += [Move("beat", "", p, -1, ("beat", p)), Move("beat", "", p, -1, ("silence", p))]
                found.append(Move("plain", "link", p, -1, ("overflowed", p)))
            elif link.state in (DLink.AWAIT_WELCOME, DLink.AWAIT_RETURN):
                found.append(Move("short", "early", p, -1, ("link timer", p, MORE)))
                if link.state is DLink.AWAIT_RETURN and not any(write[0] == p for write in v.writes):
                    found.append(Move("long", "timeout", p, -1, ("link timer", p, LAST)))
        return found

    # -------------------------------------------------------------------------------------------- step
    def step(self, v: DNode, what: Input) -> tuple[DNode, list[RankOutput]]:
        """The next value, and what leaves the node.  Raises `Violation`."""
        self.current, self.outs = v, []
        if what[0] in (*REPORTS, "post", "peer crashed"):
            return self.memory(v, what, self.outs), self.outs
        rank, _ = self.rank, self.interpreter = self.lives[v.life]
        self.thaw_rank(v.rank)
        self._thaw_links(v.life)
        before = rank.ring.mark
        self.drive(what)
        self.judge_ends(rank)
        judge("S7", rank.ring.mark >= before, f"the watermark falls from {before} to {rank.ring.mark}")
        new = self._frozen()
        self.judge_order(v, new)
        return self.tidy(new), self.outs

    def freeze_rank(self) -> Frozen:
        return freeze_decode(self.rank, self.names, self.others.everyone)

    def thaw_rank(self, frozen: Frozen) -> None:
        thaw_decode(self.rank, self.names, frozen)

    def _thaw_links(self, life: int) -> None:
        """Those that the rank has not forgotten lead where it calls, to the same ranks as when it began."""
        rank, it = self.rank, self.interpreter
        peers = self.called[life]
        rank.peers = {link: peers[link] for link in rank.links}
        rank.link_of = {(peer.group, peer.rank): link for link, peer in rank.peers.items()}
        it.place_of = {link: value.address.encode() for link, value in rank.links.items()}
        it.link_at = {place: link for link, place in it.place_of.items()}

    def _frozen(self) -> DNode:
        v: DNode = self.current
        return v._replace(rank=self.freeze_rank())

    def drive(self, what: Input) -> None:
        keys = self.names.keys
        match what[0]:
            case "message" | "notified":
                self._hear(what[1], *what[2])
            case "announce":
                self.current = self.current._replace(script=put(self.current.script, what[1], ANNOUNCED))
                self._handle(ev.RoomAnnounced(keys[what[1]], self.terms[what[1]], self.config.tokens))
            case "renew":
                self.seen.add("a room that is announced once more")
                self._handle(ev.RoomRenewed(keys[what[1]]))
            case "open":
                cfg, k = self.config, what[1]
                self.current = self.current._replace(script=put(self.current.script, k, 1))
                secret = b"a guess" if cfg.misfit == "secret" else b""
                self._handle(ev.RoomOpened(keys[k], self.terms[k], cfg.tokens, cfg.prefix, secret))
            case "leave":
                it = self.interpreter
                it.carry_out(it.ask(self.rank.leave, self.others.group(what[1]), NOW), NOW)
            case "close":
                self.take_leave()
            case "abort":
                self._handle(ev.EngineAborted(keys[what[1]], Cause.DECODE_ABORTED))
            case "scattered" | "scatter failed":
                self._scattered(what)
            case _:
                self._drive_time(what)

    def _scattered(self, what: Input) -> None:
        v, (k, chunk) = self.current, what[1]
        v = self.current = v._replace(scatters=remove(v.scatters, what[1]))
        if what[0] == "scatter failed":
            self._handle(ev.ScatterFailed(self.names.keys[k], chunk))
            return
        judge("S4", not v.released[k], f"chunk {chunk} is scattered into room {k} after its pages were given back")
        self.current = v._replace(pages=put(v.pages, k, v.pages[k] | self.staged(v, k, chunk)))
        self._handle(ev.Scattered(self.names.keys[k], chunk))

    def _drive_time(self, what: Input) -> None:
        match what[0]:
            case "address":
                who = self.others.group(what[1]), self.others.member(what[1])
                _, effects = self.rank.call(*who, self.plan, NOW, NOWHERE)
                self.interpreter.carry_out(effects, NOW)
            case "tried":
                self._handle(TimerFired(0, ROOM_CHUNK, what[1] + 1, 0, busy=bool(self.rank.rooms), heard=True))
            case "overflowed":
                self._handle(ev.QueueOverflowed(what[1] + 1))
            case "beat" | "silence":
                self._end_link_timer(what[1], MORE if what[0] == "beat" else LAST)
            case "link timer":
                _, p, tries = what
                if tries == LAST:
                    self.outs.append(("age", p, self.rank.links[p + 1].session))
                self._end_link_timer(p, tries)
            case "room timer":
                self._handle(TimerFired(self.names.keys[what[1]], ROOM_CHUNK, 0, what[2]))
            case _:
                raise ValueError(what)

    def _end_link_timer(self, p: int, tries: int) -> None:
        self._handle(TimerFired(0, ROOM_CHUNK, p + 1, tries, busy=bool(self.rank.rooms)))

    def _hear(self, p: int, epoch: int, k: int, body: Message) -> None:
        if isinstance(body, StgNotify) and body.grant:
            body = StgNotify(body.chunk, self.names.grant(k, body.chunk))
        self.interpreter.hear(self.origin(p, epoch), epoch, self.names.keys[k] if k >= 0 else 0, body, NOW)

    def origin(self, p: int, epoch: int) -> bytes:
        """Return where a message of this epoch comes from."""
        return self.place(p)

    def _handle(self, event: Event) -> None:
        self.interpreter.handle(event, NOW)

    # ----------------------------------------------------------------------------- what the rank asks for
    def deliver(self, place: bytes, epoch: int, room: int, body: Message) -> None:
        """As every node; all grants of a chunk have one name, and a first life may be of another build."""
        if place == NOWHERE.encode():
            return
        if isinstance(body, StagingRsp):
            body = replace(body, grant=1)
        elif isinstance(body, Goodbye) and body.session:
            self.seen.add("a call that is taken back")
        elif isinstance(body, Hello) and self.first_life:
            body = replace(body, **OTHERS[self.config.misfit](body) if self.odd else NEWER if self.config.newer else {})
        super().deliver(place, epoch, room, body)

    @property
    def first_life(self) -> bool:
        return self.index < self.own.ranks and not self.current.life

    @property
    def odd(self) -> bool:
        return self.first_life and self.config.misfit in OTHERS

    def unfit(self, k: int) -> bool:
        return super().unfit(k) or self.odd

    def page_ids(self, asked: do.TransmitPages) -> bytes:
        self.judge_cut(self.names.place[asked.room], asked.chunk, asked.cut)
        return page_ids(asked.cut.first)

    def scatter(self, asked: do.LaunchScatter) -> None:
        self.current = self.launch(self.current, asked)

    def hear_aux(self, room: int, data: bytes) -> None:
        v, k = self.current, self.names.place[room]
        judge("S6", not v.aux[k], f"the aux row of room {k} is given to the engine twice")
        self.current = v._replace(aux=put(v.aux, k, True))

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        """The engine hears how a room ended; success is all of it."""
        k = self.names.place[news.room]
        self.note_outcome(k, news.cause)
        v = self.current
        if v.outcome[k] != FAILURE:
            judge("S5", v.pages[k] == self.whole(), f"room {k} succeeds without all of its chunks in its pages")
            judge("S5", v.aux[k], f"room {k} succeeds without its aux row")

    def hear_released(self, room: int) -> None:
        """The engine may use the pages again."""
        v, k = self.current, self.names.place[room]
        judge("S6", v.outcome[k] != SILENT, f"room {k} is given back before it has an outcome")
        judge("S6", not v.released[k], f"room {k} is given back twice")
        judge("S4", all(job[0] != k for job in v.scatters), f"room {k} is given back while a scatter into it runs")
        states = {link.state for link in v.rank[2] if link is not None}
        if DLink.AWAIT_RETURN in states:
            self.seen.add("pages that are given back although a link is lost")
        if DLink.AWAIT_WELCOME in states:
            self.seen.add("a room that is over before its link is up")
        self.current = v._replace(released=put(v.released, k, True))

    # -------------------------------------------------------------------------------------------- ends
    def settled(self, v: DNode) -> Unrest:
        """Why the node is not at rest; None if it is: every room over and given back, nothing kept."""
        for k, at in enumerate(v.script):
            if at != GONE and not (at and v.outcome[k] != SILENT and v.released[k]):
                return "L1", f"room {k} is never over at decode {self.index}"
        rooms, _, _, grants, _, live, queue = v.rank
        if live or queue:
            return "L2", f"a region of decode {self.index}'s ring is never freed"
        if any(link is not None and link.leaving for link in v.rank[2]):
            return "S8", f"decode {self.index} keeps a link that its engine has let go of"
        if rooms or grants:
            return "S8", f"decode {self.index} keeps state of rooms that are over"
        return ("L1", "kernels or writes are under way") if v.scatters or v.writes else None
