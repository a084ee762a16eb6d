"""A decode node: the rank, its engine, its scatters and its memory.

The engine opens each room once and may give it up at any point; what the rank tells it is judged as it is told (S5,
S6).  What happens to bytes is `decode_memory`.
"""

from __future__ import annotations

from typing import Any

from kvproto.check.config import GRID, Config
from kvproto.check.decode_memory import DecodeMemory, DNode
from kvproto.check.node import (
    FAILURE,
    GONE,
    LAST,
    MORE,
    NOW,
    SILENT,
    Input,
    Move,
    Out,
    Unrest,
    judge,
    put,
    remove,
)  # fmt: skip
from kvproto.check.prefill_local_steps import page_bytes
from kvproto.check.snapshot import freeze_decode, thaw_decode
from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import ROOM_CHUNK, TimerFired
from kvproto.protocol.states import Cause, DLink, DRoom
from kvproto.rank.decode import DecodeRank
from kvproto.rank.settings import DECODE_GROUP, PREFILL_GROUP


class DecodeNode(DecodeMemory):
    """All that one decode rank can do."""

    def __init__(self, config: Config, index: int) -> None:
        super().__init__(config, index)
        self.lives: dict[int, DecodeRank] = {}
        self.rank = self._start(0)
        self.peers = self.plan.linked_to(index)

    def _start(self, life: int) -> DecodeRank:
        cfg = self.config
        rank = DecodeRank(
            cfg.decode_layout, self.index, group=DECODE_GROUP, grid=GRID, incarnation=life + 1,
            settings=cfg.settings,
        )  # fmt: skip
        self.terms = rank.terms(PREFILL_GROUP, self.plan)
        return rank

    def initial(self, life: int = 0, script: tuple[int, ...] = ()) -> tuple[DNode, list[Out]]:
        """A rank that has just started and has called all prefill ranks that it shares anything with.

        `script`: rooms that the engine of a former life has lost.
        """
        n = len(self.names.keys)
        script = script or (0,) * n
        rank, effects = self._start(life), []
        for p in self.peers:
            rank.next_link = p + 1
            effects += rank.call(PREFILL_GROUP, p, self.plan, NOW)[1]
        self.rank = self.lives[life] = rank
        none: tuple[Any, ...] = ()
        ring = (0,) * self.config.ring
        v = DNode(life, none, script, none, none, ring, (0,) * n, (SILENT,) * n, (False,) * n, (False,) * n)
        v, outs = self._take(v, effects)
        return v._replace(rank=freeze_decode(rank, self.names, self.config.prefills)), outs

    # ------------------------------------------------------------------------------------------- moves
    def moves(self, v: DNode) -> list[Move]:
        """What can happen here without a message."""
        found = []
        for k, at in enumerate(v.script):
            if at == 0 and self.may_begin(k, v.script, v.outcome):
                found.append(Move("plain", "", -1, k, ("open", k)))
            elif at == 1 and v.outcome[k] == SILENT:
                found.append(Move("plain", "abort", -1, k, ("abort", k)))
        for job in v.scatters:
            found.append(Move("plain", "", -1, job[0], ("scattered", job)))
            found.append(Move("plain", "kernel", -1, job[0], ("scatter failed", job)))
        return [*found, *self._write_moves(v), *self._timers(v)]

    def _write_moves(self, v: DNode) -> list[Move]:
        found = []
        for write in v.writes:
            p, k, _, _, left, doubt = write
            found += [Move("plain", "", p, k, ("land", write, i)) for i in range(left.bit_length()) if left >> i & 1]
            if doubt:
                found.append(Move("plain", "", p, k, ("settle", write)))
            else:
                found.append(Move("plain", "write", p, k, ("fail", write)))
                found.append(Move("plain", "doubt", p, k, ("doubt", write)))
        return found

    def _timers(self, v: DNode) -> list[Move]:
        found = []
        for k, room in v.rank[0]:
            if room.state in (DRoom.AWAIT_PEERS, DRoom.DRAINING):
                found.append(Move("short", "early", -1, k, ("room timer", k, MORE)))
            if room.state in (DRoom.AWAIT_PEERS, DRoom.OPEN):
                kind = "long" if room.state is DRoom.AWAIT_PEERS else "rare"
                found.append(Move(kind, "timeout", -1, k, ("room timer", k, LAST)))
        for p in self.peers:
            link = v.rank[2][p]
            if link.state is DLink.UP:
                found += [Move("beat", "", p, -1, ("beat", p)), Move("beat", "", p, -1, ("silence", p))]
                found.append(Move("plain", "link", p, -1, ("lost", p)))
            elif link.state in (DLink.AWAIT_WELCOME, DLink.AWAIT_RETURN):
                found.append(Move("short", "early", p, -1, ("link timer", p, MORE)))
                if link.state is DLink.AWAIT_RETURN and not any(write[0] == p for write in v.writes):
                    found.append(Move("long", "timeout", p, -1, ("link timer", p, LAST)))
        return found

    # -------------------------------------------------------------------------------------------- step
    def step(self, v: DNode, what: Input) -> tuple[DNode, list[Out]]:
        """The next value, and what leaves the node.  Raises `Violation`."""
        self.rank = self.lives[v.life]
        outs: list[Out] = []
        if what[0] in ("land", "fail", "doubt", "settle", "post", "peer crashed"):
            return self.memory(v, what, outs), outs
        thaw_decode(self.rank, self.names, v.rank)
        before = self.rank.ring.mark
        v, effects = self._drive(v, what, outs)
        v, more = self._take(v, effects)
        self.judge_ends(self.rank)
        judge("S7", self.rank.ring.mark >= before, f"the watermark falls from {before} to {self.rank.ring.mark}")
        v = v._replace(rank=freeze_decode(self.rank, self.names, self.config.prefills))
        return self.tidy(v), [*outs, *more]

    def _drive(self, v: DNode, what: Input, outs: list[Out]) -> tuple[DNode, list[Effect]]:
        keys = self.names.keys
        match what[0]:
            case "message":
                return v, self._hear(what[1], *what[2])
            case "open":
                cfg, k = self.config, what[1]
                event = ev.RoomOpened(keys[k], self.terms, cfg.tokens, cfg.prefix)
                return v._replace(script=put(v.script, k, 1)), self._handle(event)
            case "abort":
                return v, self._handle(ev.EngineAborted(keys[what[1]], Cause.DECODE_ABORTED))
            case "scattered" | "scatter failed":
                return self._scattered(v, what)
            case _:
                return v, self._drive_time(what, outs)

    def _scattered(self, v: DNode, what: Input) -> tuple[DNode, list[Effect]]:
        k, chunk = what[1]
        v = v._replace(scatters=remove(v.scatters, what[1]))
        if what[0] == "scatter failed":
            return v, self._handle(ev.ScatterFailed(self.names.keys[k], chunk))
        judge("S4", not v.released[k], f"chunk {chunk} is scattered into room {k} after its pages were given back")
        v = v._replace(pages=put(v.pages, k, v.pages[k] | self.staged(v, k, chunk)))
        return v, self._handle(ev.Scattered(self.names.keys[k], chunk))

    def _drive_time(self, what: Input, outs: list[Out]) -> list[Effect]:
        match what[0]:
            case "lost":
                return self._handle(ev.TransportLost(what[1] + 1))
            case "beat" | "silence":
                return self._handle(TimerFired(0, ROOM_CHUNK, what[1] + 1, MORE if what[0] == "beat" else LAST))
            case "link timer":
                _, p, tries = what
                if tries == LAST:
                    outs.append(("age", p, self.rank.links[p + 1].session))
                return self._handle(TimerFired(0, ROOM_CHUNK, p + 1, tries))
            case "room timer":
                return self._handle(TimerFired(self.names.keys[what[1]], ROOM_CHUNK, 0, what[2]))
        raise ValueError(what)

    def _hear(self, p: int, epoch: int, k: int, body: Any) -> list[Effect]:
        if isinstance(body, tuple):
            body = self._greeting(p, *body)
        elif isinstance(body, msg.StgNotify) and body.grant:
            body = msg.StgNotify(body.chunk, self.names.grant(k, body.chunk))
        room = self.names.keys[k] if k >= 0 else 0
        return list(self.call(self.rank, lambda: self.rank.receive(p + 1, epoch, room, body, NOW)))

    def _greeting(self, p: int, word: str, session: int, rest: Any) -> msg.Message:
        if word == "REFUSAL":
            return msg.Refusal(session, rest)
        cfg, said = self.config, self.rank.hello(session)
        return msg.Welcome(
            msg.VERSION, said.digest, session, rest, PREFILL_GROUP, p, cfg.prefill_layout, GRID, said.lease
        )

    def _handle(self, event: Event) -> list[Effect]:
        return list(self.call(self.rank, lambda: self.rank.handle(event, NOW)))

    # ----------------------------------------------------------------------------------------- effects
    def _take(self, v: DNode, effects: list[Effect]) -> tuple[DNode, list[Out]]:
        outs: list[Out] = []
        for effect in effects:
            match effect:
                case do.Transmit():
                    k = self.names.place[effect.room] if effect.room else -1
                    body = effect.body
                    if isinstance(body, msg.StagingRsp):
                        body = msg.StagingRsp(
                            body.chunk, 1, body.offset, body.round, body.end, body.mark_round, body.mark_tail
                        )
                    outs.append(("send", effect.link - 1, (effect.epoch, k, body)))
                case do.TransmitPages():
                    k, body = self.names.place[effect.room], msg.PagesRsp(effect.chunk, page_bytes(effect.chunk))
                    outs.append(("send", effect.link - 1, (effect.epoch, k, body)))
                case do.SayHello():
                    outs.append(("send", effect.link - 1, (0, -1, ("HELLO", effect.session, v.life))))
                case do.LaunchScatter():
                    v = self.launch(v, effect)
                case do.DeliverAux():
                    k = self.names.place[effect.room]
                    judge("S6", not v.aux[k], f"the aux row of room {k} is given to the engine twice")
                    v = v._replace(aux=put(v.aux, k, True))
                case do.AnnounceOutcome() | do.AnnounceReleased():
                    v = self._take_word(v, effect, outs)
                case Report():
                    judge("S10", holds=False, text=f"{effect.what}: {effect.why}")
        return v, outs

    def _take_word(self, v: DNode, effect: do.AnnounceOutcome | do.AnnounceReleased, outs: list[Out]) -> DNode:
        k = self.names.place[effect.room]
        if isinstance(effect, do.AnnounceOutcome):
            outcome = list(v.outcome)
            self.hear_outcome(outcome, effect)
            if outcome[k] == FAILURE:
                outs.append(("failed", k))
            else:
                whole = (1 << self.config.chunks * len(self.writers)) - 1
                judge("S5", v.pages[k] == whole, f"room {k} succeeds without all of its chunks in its pages")
                judge("S5", v.aux[k], f"room {k} succeeds without its aux row")
            return v._replace(outcome=tuple(outcome))
        judge("S6", v.outcome[k] != SILENT, f"room {k} is given back before it has an outcome")
        judge("S6", not v.released[k], f"room {k} is given back twice")
        judge("S4", all(job[0] != k for job in v.scatters), f"room {k} is given back while a scatter into it runs")
        return v._replace(released=put(v.released, k, True))

    # -------------------------------------------------------------------------------------------- ends
    def settled(self, v: DNode) -> Unrest:
        """Why the node is not at rest; None if it is: every room over and given back, nothing kept."""
        for k, at in enumerate(v.script):
            if at != GONE and not (at and v.outcome[k] != SILENT and v.released[k]):
                return "L1", f"room {k} is never over at decode {self.index}"
        rooms, _, _, grants, _, live, queue = v.rank
        if live or queue:
            return "L2", f"a region of decode {self.index}'s ring is never freed"
        if rooms or grants:
            return "S8", f"decode {self.index} keeps state of rooms that are over"
        return ("L1", "kernels or writes are under way") if v.scatters or v.writes else None
