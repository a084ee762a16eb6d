"""A prefill node: the rank, its engine, its gathers, its slots, and the writes that it has posted.

The engine follows the configuration's script for each room and may give a room up at any point.  A slot's content is
tracked from the end of a gather to the end of the write that reads it, so that a slot that is used twice, KV that is
read before it is there, and pages that are given back too early are all seen here.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.check.config import GRID, Config
from kvproto.check.node import (
    FAILURE,
    LAST,
    LATE,
    MORE,
    NOW,
    SILENT,
    Input,
    Out,
    add,
    judge,
    put,
    remove,
)  # fmt: skip
from kvproto.check.prefill_local_steps import PNode, PrefillMoves, page_bytes
from kvproto.check.snapshot import LONG_AGO, freeze_prefill, thaw_prefill
from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.events import ROOM_CHUNK, TimerFired
from kvproto.protocol.states import Cause
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.settings import DECODE_GROUP, PREFILL_GROUP


class PrefillNode(PrefillMoves):
    """All that one prefill rank can do."""

    def __init__(self, config: Config, index: int) -> None:
        super().__init__(config, index)
        layout = config.prefill_layout
        self.rank = PrefillRank(
            layout, index, group=PREFILL_GROUP, grid=GRID, incarnation=1, settings=config.settings
        )  # fmt: skip

    def initial(self, life: int = 0, script: tuple[int, ...] = ()) -> tuple[PNode, list[Out]]:
        """A rank that has just started; `script`: rooms that the engine of a former life has lost."""
        cfg, n = self.config, len(self.names.keys)
        script = script or (0,) * n
        nobody, slots = (None,) * cfg.decodes, tuple(range(cfg.slots))
        bare = ((), (), nobody, nobody, (), slots, (), (), ((),) * cfg.decodes, ())
        return PNode(life, bare, script, (), (), (None,) * cfg.slots, (), (SILENT,) * n, (False,) * n), []

    # -------------------------------------------------------------------------------------------- step
    def step(self, v: PNode, what: Input) -> tuple[PNode, list[Out]]:
        """The next value, and what leaves the node.  Raises `Violation`."""
        thaw_prefill(self.rank, self.names, v.rank, DECODE_GROUP, self.plan)
        v, effects = self._drive(v, what)
        v, outs = self._take(v, effects)
        self.judge_ends(self.rank)
        return v._replace(rank=freeze_prefill(self.rank, self.names, self.config.decodes)), outs

    def _drive(self, v: PNode, what: Input) -> tuple[PNode, list[Effect]]:
        rank, kind, keys = self.rank, what[0], self.names.keys
        match kind:
            case "message" | "message late":
                _, d, (epoch, k, body) = what
                room, now = keys[k] if k >= 0 else 0, LATE if kind == "message late" else NOW
                return v, self.call(rank, lambda: rank.receive(d + 1, epoch, room, body, now))
            case "hello":
                return v, self._hello(*what[1:])
            case "engine" | "engine late":
                return self._engine(v, what[1], LATE if kind == "engine late" else NOW)
            case "abort":
                return v, self._handle(ev.EngineAborted(keys[what[1]], Cause.PREFILL_ABORTED))
            case "gathered" | "gathered late":
                k, chunk, d, slot = what[1]
                v = v._replace(gathers=remove(v.gathers, what[1]), slots=put(v.slots, slot, (k, chunk, d)))
                return v, self._handle(ev.Gathered(keys[k], chunk, d), LATE if kind == "gathered late" else NOW)
            case "gather failed":
                k, chunk, d, _ = what[1]
                return v._replace(gathers=remove(v.gathers, what[1])), self._handle(ev.GatherFailed(keys[k], chunk, d))
            case "wrote":
                return self._wrote(v, *what[1:])
            case "age":
                self._age(what[1], what[2])
                return v, []
            case _:
                return self._drive_link(v, what)

    def _drive_link(self, v: PNode, what: Input) -> tuple[PNode, list[Effect]]:
        keys = self.names.keys
        match what[0]:
            case "wired":
                wired = ev.WiredUp(what[1] + 1, what[2])
                return v._replace(wires=remove(v.wires, what[1:])), self._handle(wired)
            case "wire failed":
                failed = ev.WireFailed(what[1] + 1, what[2], "out of reach")
                return v._replace(wires=remove(v.wires, what[1:])), self._handle(failed)
            case "lost":
                return v, self._handle(ev.TransportLost(what[1] + 1))
            case "beat" | "silence":
                return v, self._handle(TimerFired(0, ROOM_CHUNK, what[1] + 1, MORE if what[0] == "beat" else LAST))
            case "link timer":
                return v, self._handle(TimerFired(0, ROOM_CHUNK, what[1] + 1, LAST, busy=False))
            case "room timer":
                return v, self._handle(TimerFired(keys[what[1]], ROOM_CHUNK, 0, what[2]))
            case "send timer":
                _, k, chunk, d, tries = what
                return v, self._handle(TimerFired(keys[k], chunk, d, tries))
        raise ValueError(what)

    def _handle(self, event: Event, now: float = NOW) -> list[Effect]:
        return list(self.call(self.rank, lambda: self.rank.handle(event, now)))

    def _hello(self, d: int, session: int, life: int, epoch: int) -> list[Effect]:
        rank, cfg = self.rank, self.config
        digest = "0" * 16 if cfg.misfit == "tables" and not life else tables_digest()
        said = msg.Hello(
            msg.VERSION, digest, session, DECODE_GROUP, d, cfg.decode_layout, GRID,
            cfg.settings.timing.lease.period, bytes([life]),
        )  # fmt: skip
        rank.next_epoch, rank.next_link = epoch - 1, d + 1
        _, effects = self.call(rank, lambda: rank.hello(said, NOW))
        return list(effects)

    def _engine(self, v: PNode, k: int, now: float) -> tuple[PNode, list[Effect]]:
        key, cfg, effects = self.names.keys[k], self.config, []
        tokens = cfg.tokens + (GRID if cfg.misfit == "length" else 0)
        produced = self.produced(v.script[k])
        for word in self.words[v.script[k]]:
            event: Event
            match word:
                case "open":
                    event = ev.EngineOpened(key, tokens)
                case "schedule":
                    event = ev.ForwardScheduled(key)
                case "produce":
                    produced += 1
                    event = ev.TokensProduced(key, min(cfg.tokens, cfg.prefix + produced * GRID))
                case "finish":
                    event = ev.TokensProduced(key, cfg.tokens)
                case _:
                    event = ev.AuxProvided(key)
            effects += self._handle(event, now)
        return v._replace(script=put(v.script, k, v.script[k] + 1)), effects

    def _wrote(self, v: PNode, how: str, k: int, chunk: int, d: int) -> tuple[PNode, list[Effect]]:
        job = next((j for j in v.posted if j[:3] == (k, chunk, d)), None)
        if job is None:
            return v, []
        key = self.names.keys[k]
        if how == "doubt":
            return v, self._handle(ev.WriteFailed(key, chunk, d, settled=False))
        v = v._replace(posted=remove(v.posted, job))
        done = ev.WriteCompleted(key, chunk, d) if how == "ok" else ev.WriteFailed(key, chunk, d, settled=True)
        return v, self._handle(done)

    def _age(self, d: int, session: int) -> None:
        """The decode rank's wait is over: what it granted on an older call of this link can be used no more."""
        link = self.rank.links.get(d + 1)
        if link is None or link.session >= session:
            return
        for sends in self.rank.sends.values():
            for at, send in sends.items():
                if at & 0xFFFF == d:
                    sends[at] = replace(send, asked=LONG_AGO, lease=-1.0 if send.lease else 0.0)

    # ----------------------------------------------------------------------------------------- effects
    def _take(self, v: PNode, effects: list[Effect]) -> tuple[PNode, list[Out]]:
        outs: list[Out] = []
        for effect in effects:
            match effect:
                case do.Transmit():
                    k = self.names.place[effect.room] if effect.room else -1
                    outs.append(("send", effect.link - 1, (effect.epoch, k, effect.body)))
                case do.TransmitAux():
                    k = self.names.place[effect.room]
                    judge("S5", self._aux_given(v, k), f"the aux row of room {k} is sent before the engine gave it")
                    outs.append(("send", effect.link - 1, (effect.epoch, k, msg.Aux(b""))))
                case do.SayWelcome():
                    outs.append(("send", effect.link - 1, (0, -1, ("WELCOME", effect.session, effect.epoch))))
                case do.SayRefusal():
                    outs.append(("send", effect.link - 1, (0, -1, ("REFUSAL", effect.session, effect.why))))
                case do.Connect():
                    v = v._replace(wires=add(v.wires, (effect.link - 1, effect.session)))
                case do.LaunchGather() | do.PostWrite() | do.PostPages():
                    v = self._take_job(v, effect, outs)
                case do.AnnounceOutcome() | do.AnnounceReleased():
                    v = self._take_word(v, effect, outs)
                case Report():
                    judge("S10", holds=False, text=f"{effect.what}: {effect.why}")
        return v, outs

    def _aux_given(self, v: PNode, k: int) -> bool:
        return any("aux" in group for group in self.words[: v.script[k]])

    def _take_job(self, v: PNode, effect: Effect, outs: list[Out]) -> PNode:
        assert isinstance(effect, do.LaunchGather | do.PostWrite | do.PostPages)
        k, chunk, d = self.names.place[effect.room], effect.chunk, effect.peer
        if not isinstance(effect, do.PostWrite):
            ready = chunk < self.produced(v.script[k])
            judge("S12", ready, f"chunk {chunk} of room {k} is read before it is computed")
            judge("S4", not v.released[k], f"chunk {chunk} of room {k} is read after its pages were given back")
        if isinstance(effect, do.LaunchGather):
            busy = {job[3] for job in (*v.gathers, *v.posted)}
            judge("S12", effect.slot not in busy, f"slot {effect.slot} is gathered into while it is read")
            return v._replace(gathers=add(v.gathers, (k, chunk, d, effect.slot)))
        staged = isinstance(effect, do.PostWrite)
        slot = effect.slot if isinstance(effect, do.PostWrite) else -1
        full = not staged or v.slots[slot] == (k, chunk, d)
        judge("S12", full, f"slot {slot} does not hold chunk {chunk} of room {k}")
        judge("S2", not any(j[:3] == (k, chunk, d) for j in v.posted), f"chunk {chunk} of room {k} is posted twice")
        where = effect.offset if isinstance(effect, do.PostWrite) else -1
        if isinstance(effect, do.PostPages):
            judge("S12", effect.pages == page_bytes(chunk), f"chunk {chunk} of room {k} goes to another chunk's pages")
        link = self.rank.link_to(effect.room, d)
        assert link is not None
        outs.append(("post", d, (k, chunk, where, self.rank.peers[link].endpoint[0])))
        return v._replace(posted=add(v.posted, (k, chunk, d, slot)))

    def _take_word(self, v: PNode, effect: do.AnnounceOutcome | do.AnnounceReleased, outs: list[Out]) -> PNode:
        k = self.names.place[effect.room]
        if isinstance(effect, do.AnnounceOutcome):
            outcome = list(v.outcome)
            self.hear_outcome(outcome, effect)
            if outcome[k] == FAILURE:
                outs.append(("failed", k))
            return v._replace(outcome=tuple(outcome))
        if v.script[k] <= 0:
            return v  # the engine has not opened the room, so it has given no pages
        judge("S6", v.outcome[k] != SILENT, f"room {k} is given back before it has an outcome")
        judge("S6", not v.released[k], f"room {k} is given back twice")
        flying = [job for job in (*v.gathers, *v.posted) if job[0] == k]
        judge("S4", not flying, f"room {k} is given back while {len(flying)} gather(s) or write(s) of it are in flight")
        return v._replace(released=put(v.released, k, True))
