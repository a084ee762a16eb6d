"""A prefill node: the rank, its engine, its gathers, its slots, and the writes that it has posted.

The engine follows the configuration's script for each room and may give a room up at any point.  What the rank asks for
is judged in `prefill_slots`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvproto.fsm.vocabulary import Event
from kvproto.protocol import events as ev
from kvproto.protocol.events import ROOM_CHUNK, Claim, TimerFired
from kvproto.protocol.messages import Message
from kvproto.protocol.states import Cause, PLink
from kvproto.verify.check.config import CHUNK_TOKENS
from kvproto.verify.check.moments import LONG_AGO
from kvproto.verify.check.node import (
    GONE,
    LAST,
    LATE,
    LONG,
    MORE,
    NOW,
    SILENT,
    Input,
    RankOutput,
    add,
    judge,
    put,
    remove,
)  # fmt: skip
from kvproto.verify.check.prefill_local_steps import PNode
from kvproto.verify.check.prefill_slots import DOWN, PrefillSlots
from kvproto.verify.check.snapshot import Frozen, freeze_prefill, thaw_prefill
from kvproto.verify.sim.interpreter import Untaken

UNTAKEN: dict[str, type[Untaken]] = {"deferred": ev.BatchDeferred, "refused": ev.BatchRefused}


class PrefillNode(PrefillSlots):
    """All that one prefill rank can do."""

    def initial(self, life: int = 0, script: tuple[int, ...] = ()) -> tuple[PNode, list[RankOutput]]:
        """A rank that has just started; `script`: rooms that the engine of a former life has lost."""
        cfg, n = self.config, len(self.names.keys)
        script, links = script or self.script(), self.others.everyone
        nobody, slots = (None,) * links, tuple(range(cfg.slots))
        bare = ((), (), nobody, nobody, (), slots, (), (), ((),) * links, (), (), (), ((),) * links)
        empty = (None,) * cfg.slots
        return PNode(life, bare, script, (), (), (), empty, (), nobody, (SILENT,) * n, (False,) * n), []

    # -------------------------------------------------------------------------------------------- step
    def step(self, v: PNode, what: Input) -> tuple[PNode, list[RankOutput]]:
        """The next value, and what leaves the node.  Raises `Violation`."""
        self._thaw(v)
        self.current, self.outs, self.untaken = v, [], None
        self.drive(what)
        self.judge_ends(self.rank)
        return self._frozen(), self.outs

    def freeze_rank(self) -> Frozen:
        return freeze_prefill(self.rank, self.names, self.others.everyone)

    def thaw_rank(self, frozen: Frozen) -> None:
        thaw_prefill(self.rank, self.names, frozen, self.others, self.plan, self.placed)

    def _thaw(self, v: PNode) -> None:
        self.thaw_rank(v.rank)
        known = {link: at.place for link, at in self.rank.links.items()}  # one name, and it may be another's place now
        it, keys = self.interpreter, self.names.keys
        it.place_of, it.link_at = known, {place: link for link, place in known.items()}
        it.wires = {d + 1: wire or DOWN for d, wire in enumerate(v.wires)}
        it.unposted = {
            (keys[k], chunk, d): (replace(write, room=keys[k]), left) for k, chunk, d, write, left in v.preparing
        }

    def _frozen(self) -> PNode:
        v: PNode = self.current
        it, links = self.interpreter, self.others.everyone
        unposted = ((*key, replace(write, room=0), left) for key, (write, left) in it.unposted.items())
        preparing = sorted((self.names.place[room], *rest) for room, *rest in unposted)
        up = {link - 1 for link, at in self.rank.links.items() if at.state is PLink.UP}
        wires = tuple(it.wires.get(d + 1) if d in up else None for d in range(links))
        return v._replace(rank=self.freeze_rank(), preparing=tuple(preparing), wires=wires)

    def drive(self, what: Input) -> None:
        v, keys = self.current, self.names.keys
        match what[0]:
            case "message" | "message late":
                self._hear(what[1], what[2], LATE if what[0] == "message late" else NOW)
            case "hello":
                _, d, message, epoch = what
                self.rank.next_epoch, self.rank.next_link = epoch - 1, d + 1
                before = dict(self.rank.links)
                self._hear(d, message, NOW)
                self._judge_call(d, before)
            case "engine" | "engine late":
                self._engine(what[1], LATE if what[0] == "engine late" else NOW)
            case "abort" | "refuse" | "dismiss":
                self._give_up(what[0], what[1])
            case "gathered" | "gathered late" | "gathered deferred" | "gathered refused":
                self.untaken = UNTAKEN.get(what[0].removeprefix("gathered "))
                k, chunk, d, slot = what[1]
                self.current = v._replace(gathers=remove(v.gathers, what[1]), slots=put(v.slots, slot, (k, chunk, d)))
                self._handle(ev.Gathered(keys[k], chunk, d), LATE if what[0] == "gathered late" else NOW)
            case "gather failed":
                k, chunk, d, _ = what[1]
                self.current = v._replace(gathers=remove(v.gathers, what[1]))
                self._handle(ev.GatherFailed(keys[k], chunk, d))
            case "made" | "made late" | "deferred" | "refused" | "unmade":
                self._made(what[0], *what[1])
            case "wrote" | "wrote late":
                self._wrote(*what[1:], now=LATE if what[0] == "wrote late" else NOW)
            case "age":
                self._age(what[1], what[2])
            case _:
                self._drive_link(what)

    def _drive_link(self, what: Input) -> None:
        v, keys = self.current, self.names.keys
        match what[0]:
            case "close":
                self.take_leave()
            case "wired":
                _, d, session, life = what
                self.current = v._replace(wiring=remove(v.wiring, what[1:]))
                self._handle(ev.WiredUp(d + 1, session, str(life)))
            case "wire failed":
                self.current = v._replace(wiring=remove(v.wiring, what[1:]))
                self._handle(ev.WireFailed(what[1] + 1, what[2], "out of reach"))
            case "lost":
                self._handle(ev.TransportLost(what[1] + 1))
            case "overflowed":
                self._handle(ev.QueueOverflowed(what[1] + 1))
            case "beat" | "silence":
                self._handle(TimerFired(0, ROOM_CHUNK, what[1] + 1, MORE if what[0] == "beat" else LAST))
            case "link timer":
                self._handle(TimerFired(0, ROOM_CHUNK, what[1] + 1, LAST, busy=False))
            case "room timer":
                self._handle(TimerFired(keys[what[1]], ROOM_CHUNK, 0, what[2]))
            case "send timer":
                _, k, chunk, d, tries = what
                self._handle(self.rank.send_timer(keys[k], chunk << 16 | d, tries), LATE if tries == LONG else NOW)
            case _:
                raise ValueError(what)

    def _handle(self, event: Event, now: float = NOW) -> None:
        self.interpreter.handle(event, now)

    def _hear(self, d: int, message: tuple[int, int, Message], now: float) -> None:
        epoch, k, body = message
        room = self.names.keys[k] if k >= 0 else 0
        self.interpreter.hear(self.place(d), epoch, room, body, now)

    def _judge_call(self, d: int, links: dict[int, Any]) -> None:
        """Judge a call: it is put off only by writes of its own old link. It ends no link of another living
        rank, whatever its name; and no send of its old link waits for the new one.
        """
        rank, link, before = self.rank, d + 1, links.get(d + 1)
        for other, value in links.items():
            its_own = value.place == self.place(d) or value.state is not PLink.UP
            kept = its_own or rank.links[other].state is PLink.UP
            judge("S9", kept, f"decode {d} calls, and ends the link of {value.place.decode()}, which lives")
        if before is not None and before.state is PLink.LOST and rank.links[link] is before:
            held = any(rank.link_to(room, key & 0xFFFF) == link for room, key in rank.writes)
            judge("L1", held, f"decode {d} calls, and is put off for what is written to others")
        anew = link in rank.links and rank.links[link].state is PLink.AWAIT_WIRE_UP
        judge("S8", not (anew and rank.watch.get(link)), f"sends of decode {d}'s former life wait for its new ring")

    def _engine(self, k: int, now: float) -> None:
        key, cfg, script = self.names.keys[k], self.config, self.current.script
        tokens = cfg.tokens + (CHUNK_TOKENS if cfg.misfit == "length" else 0)
        produced = self.produced(script[k])
        self.current = self.current._replace(script=put(script, k, script[k] + 1))
        for word in self.words[script[k]]:
            event: Event
            match word:
                case "open":
                    group = 0 if cfg.misfit == "anyone" else self.others.group(self.names.peer(k, 0))
                    claim = Claim(group, b"a secret" if cfg.misfit == "secret" else b"")
                    event = ev.EngineOpened(key, tokens, claim)
                case "schedule":
                    event = ev.ForwardScheduled(key)
                case "produce":
                    produced += 1
                    event = ev.TokensProduced(key, min(cfg.tokens, cfg.prefix + produced * CHUNK_TOKENS))
                case "withdraw":
                    event = ev.TokensWithdrawn(key, cfg.prefix)
                case "withdrawn":
                    self._judge_withdrawn(k)
                    continue
                case "finish":
                    event = ev.TokensProduced(key, cfg.tokens)
                case _:
                    event = ev.AuxProvided(key)
            self._handle(event, now)

    def _judge_withdrawn(self, k: int) -> None:
        """Require that no operation reads memory that the engine may use again."""
        v: PNode = self.current
        read = any(job[0] == k for job in v.gathers) or any(job[0] == k and job[4] < 0 for job in v.posted)
        judge("S4", not read, f"pages of room {k} are read after they were given back to their engine")
        self.seen.add("KV that is taken back")

    def _give_up(self, how: str, k: int) -> None:
        """The engine ends the room; one that dismisses it never opens it afterwards."""
        key, script = self.names.keys[k], self.current.script
        if how == "dismiss":
            self.current = self.current._replace(script=put(script, k, GONE))
        abort = how == "abort"
        self._handle(ev.EngineAborted(key, Cause.PREFILL_ABORTED) if abort else ev.EngineRefused(key, Cause.DECLINED))

    def _made(self, how: str, k: int, chunk: int, d: int) -> None:
        key = self.names.keys[k], chunk, d
        if how == "unmade":
            del self.interpreter.unposted[key]
            self._handle(ev.BatchUnmade(*key))
            return
        self.untaken = UNTAKEN.get(how)
        self._handle(self.interpreter.offer(key), LATE if how == "made late" else NOW)

    def _wrote(self, how: str, k: int, chunk: int, batch: int, d: int, *, now: float) -> None:
        """Report the transport's word of a batch. A report that none of it can land may come before the one
        that it is in doubt: both are then one.
        """
        v, d = self.current, self.others.member(d)
        key = self.names.keys[k], chunk, d
        job = next((j for j in v.posted if j[:4] == (k, chunk, d, batch)), None)
        if job is None:
            return
        posted = remove(v.posted, job)
        doubt = how == "doubt"
        self.current = v._replace(posted=add(posted, (*job[:5], True)) if doubt else posted)
        if how == "settled" and job[5]:
            self._handle(ev.BatchSettled(*key), now)
        else:
            self._handle(ev.BatchCompleted(*key) if how == "ok" else ev.BatchFailed(*key, settled=not doubt), now)

    def _age(self, d: int, session: int) -> None:
        """The decode rank's wait is over: what it granted on an older call of this link can be used no more."""
        rank, at = self.rank, self.interpreter.link_at.get(self.place(d), 0)
        link = rank.links.get(at)
        if link is None or link.session >= session:
            return
        for room, sends in rank.sends.items():
            for part, send in sends.items():
                if rank.link_to(room, part & 0xFFFF) == at:
                    lease, begin_by = (-1.0 if until else 0.0 for until in (send.lease, send.begin_by))
                    sends[part] = replace(send, asked=LONG_AGO, first=LONG_AGO, lease=lease, begin_by=begin_by)
        for (room, part), write in rank.writes.items():
            if rank.link_to(room, part & 0xFFFF) == at:
                rank.writes[room, part] = replace(write, until=-1.0)
