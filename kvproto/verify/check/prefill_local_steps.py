"""Prefill local steps: a prefill node's value, its steps without a message, and its states of rest."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvproto.protocol import effects as do
from kvproto.protocol.states import PLink, PRoom, PSend
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.protocol.tables.prefill_send import prefill_send, reads_withdrawn
from kvproto.verify.check.config import Config
from kvproto.verify.check.node import GONE, LAST, LONG, MORE, SILENT, Move, Node, Unrest
from kvproto.verify.check.snapshot import Frozen

SHORT_SENDS = (
    PSend.AWAIT_GRANT,
    PSend.AWAIT_WRITERS,
    PSend.AWAIT_TURN,
    PSend.AWAIT_WATERMARK,
    PSend.AWAIT_PAGES,
    PSend.AWAIT_ACK,
    PSend.AWAIT_AUX_ACK,
)
GIVING_UP = (PSend.AWAIT_GRANT, PSend.AWAIT_WRITERS, PSend.AWAIT_TURN, PSend.AWAIT_WATERMARK)
#: what can become of a gather, and its price; and of the write that opens with its end, where writes take time
GATHER = (("", "gathered"), ("late", "gathered late"), ("kernel", "gather failed"))
OPENING = (("", "gathered deferred"), ("write", "gathered refused"))
#: what can become of a batch that can be posted, and its price.  A lease that ends before the first is no fault of the
#: room's; one that ends between two batches is, and only a whole write over pages can be found to be unmakeable
FIRST_BATCH = (("", "made"), ("late", "made late"), ("late", "deferred"), ("write", "refused"))
UNMADE = (("write", "unmade"),)
NEXT_BATCH = (("", "made"), ("timeout", "made late"), ("late", "deferred"), ("write", "refused"))


class PNode(NamedTuple):
    """The value; places are rooms' places in the configuration."""

    life: int
    rank: Frozen
    #: a room: words of the script that the engine has said
    script: tuple[int, ...]
    #: (place, chunk, peer, slot)
    gathers: tuple[Any, ...]
    #: (place, chunk, peer, what is asked for, of room 0, batches that are not posted)
    preparing: tuple[Any, ...]
    #: (place, chunk, peer, batch, slot or -1 for pages, in doubt)
    posted: tuple[Any, ...]
    #: a slot: (place, chunk, peer) of what was gathered into it
    slots: tuple[Any, ...]
    #: (peer, session, the peer's life)
    wiring: tuple[Any, ...]
    #: a peer: the wire of its link while that is up
    wires: tuple[str | None, ...]
    outcome: tuple[int, ...]
    released: tuple[bool, ...]


class PrefillMoves(Node):
    """The moves at one prefill rank."""

    SIDE = 0

    def __init__(self, config: Config, index: int) -> None:
        super().__init__(config, index)
        self.words = tuple(tuple(word.split("+")) for word in config.engine)
        self.peers = config.peers(self.SIDE, index)

    def moves(self, v: PNode) -> list[Move]:
        self.names.follow((*v.rank[0], *v.rank[1]))
        found = [*self._engine_moves(v), *self._kernel_moves(v), *self._send_timers(v), *self._room_timers(v)]
        for d in self.peers:
            link = v.rank[2][d]
            if link is None:
                continue
            if link.state is PLink.UP:
                found += [Move("beat", "", d, -1, ("beat", d)), Move("beat", "", d, -1, ("silence", d))]
                found += [Move("plain", "link", d, -1, (word, d)) for word in ("lost", "overflowed")]
            elif link.state is PLink.AWAIT_WIRE_UP or not any(at & 0xFFFF == d for _, at, _ in v.rank[9]):
                found.append(Move("rare", "timeout", d, -1, ("link timer", d)))
        return found

    def _engine_moves(self, v: PNode) -> list[Move]:
        found = []
        for k, at in enumerate(v.script):
            if at == GONE or not self.may_begin(k, v.script, v.outcome):
                continue
            if at < len(self.words) and (not at or v.outcome[k] == SILENT) and self._has_memory(v, k, at):
                found.append(Move("plain", "", -1, k, ("engine", k)))
                if at and self._leased(v, k):
                    found.append(Move("plain", "late", -1, k, ("engine late", k)))
            if at > 0 and v.outcome[k] == SILENT:
                found.append(Move("plain", "abort", -1, k, ("abort", k)))
            found.append(Move("plain", "refuse", -1, k, ("refuse", k)))
            if not at:
                found.append(Move("plain", "refuse", -1, k, ("dismiss", k)))
        return found

    def _has_memory(self, v: PNode, k: int, at: int) -> bool:
        """The engine has room for what it would compute next."""
        if "withdrawn" in self.words[at] and self._reads_withdrawn(v, k):
            return False
        limit = self.config.memory
        if not limit or not {"produce", "finish"} & set(self.words[at]):
            return True
        held = sum(bool(self.produced(max(0, said))) and not v.released[j] for j, said in enumerate(v.script) if j != k)
        return held < limit

    @staticmethod
    def _reads_withdrawn(v: PNode, k: int) -> bool:
        return any(reads_withdrawn(send) for _, send in dict(v.rank[4]).get(k, ()))

    @staticmethod
    def _leased(v: PNode, k: int) -> bool:
        sends = dict(v.rank[4]).get(k, ())
        return any(send.state is PSend.AWAIT_PAGES_KV for _, send in sends)

    def _kernel_moves(self, v: PNode) -> list[Move]:
        found = [Move("plain", "", -1, -1, ("wired", *job)) for job in v.wiring]
        found += [Move("plain", "link", -1, -1, ("wire failed", *job)) for job in v.wiring]
        for job in v.gathers:
            for cost, what in (*GATHER, *OPENING) if self.config.preparing else GATHER:
                found.append(Move("plain", cost, -1, job[0], (what, job)))
        for k, chunk, d, write, left in v.preparing:
            staged = isinstance(write, do.PostWrite)
            whole = staged or left == self.prepare(write)
            for cost, what in FIRST_BATCH + UNMADE * (not staged) if whole else NEXT_BATCH:
                found.append(Move("plain", cost, -1, k, (what, (k, chunk, d))))
        return found

    def _send_timers(self, v: PNode) -> list[Move]:
        found = []
        for k, parts in v.rank[4]:
            for at, send in parts:
                chunk, member = at >> 16, at & 0xFFFF
                peer = self.names.peer(k, member)
                if send.state not in prefill_send.timers:
                    continue
                again = ("send timer", k, chunk, member, MORE)
                last = ("send timer", k, chunk, member, LAST)
                if send.state not in SHORT_SENDS:
                    found.append(Move("rare", "timeout", peer, k, again))
                    continue
                found.append(Move("short", "early", peer, k, again))
                if send.state in GIVING_UP and not self.config.patient:
                    found.append(Move("short", "early", peer, k, last))
                    if self.config.costs == "dear pages":
                        found.append(Move("plain", "late", peer, k, ("send timer", k, chunk, member, LONG)))
                elif send.state not in GIVING_UP:
                    found.append(Move("rare", "timeout", peer, k, last))
        return found

    def _room_timers(self, v: PNode) -> list[Move]:
        found = []
        for k, room in v.rank[0]:
            if room.state is PRoom.AWAIT_NOTED:
                found.append(Move("short", "early", -1, k, ("room timer", k, MORE)))
                found.append(Move("rare", "timeout", -1, k, ("room timer", k, LAST)))
            elif room.state in prefill_room.timers:
                kind = "long" if room.state in (PRoom.AWAIT_ENGINE, PRoom.AWAIT_PEERS) else "rare"
                found.append(Move(kind, "timeout", -1, k, ("room timer", k, LAST)))
        return found

    def produced(self, said: int) -> int:
        """Cells that are computed when the engine has said so many words."""
        words = [word for group in self.words[:said] for word in group]
        if "withdrawn" in words:
            words = words[len(words) - words[::-1].index("withdrawn") :]
        return self.config.chunks if "finish" in words else min(self.config.chunks, words.count("produce"))

    def sights(self, v: PNode) -> set[str]:
        """Return the sights of this value that a search should meet."""
        states = {send.state for _, parts in v.rank[4] for _, send in parts}
        written = {job[4] for job in v.posted}
        plan = self.plan
        seen = {
            "a send that waits for the watermark": PSend.AWAIT_WATERMARK in states,
            "a send that waits for a slot": PSend.AWAIT_SLOT in states,
            "a send that waits for a credit": PSend.AWAIT_CREDIT in states,
            "a send that waits for other writers": PSend.AWAIT_WRITERS in states,
            "a send that waits its turn": PSend.AWAIT_TURN in states,
            "a send that waits for a permit": PSend.AWAIT_PERMIT in states,
            "a send that gave the ring up": PSend.AWAIT_PAGES in states,
            "a lease that is over": any(send.lease < 0 for _, parts in v.rank[4] for _, send in parts),
            "a part confirmed before its write was seen to end": any(
                send.acked for _, parts in v.rank[4] for _, send in parts
            ),
            "a write and a gather at once": bool(v.gathers) and any(slot >= 0 for slot in written),
            "a replica that has nothing to write": not plan.duties(self.member) and bool(v.rank[0] or v.rank[1]),
            "a room that is ended before its engine opens it": any(
                room.work is not None and not room.work.owned for _, room in (*v.rank[0], *v.rank[1])
            ),
        }
        return {sight for sight, there in seen.items() if there}

    def settled(self, v: PNode) -> Unrest:
        """Why the node is not at rest; None if it is: every room over and given back, nothing kept."""
        for k, at in enumerate(v.script):
            if at != GONE and not (at and v.outcome[k] != SILENT and v.released[k]):
                return "L1", f"room {k} is never over at prefill {self.index}"
        rooms, _, _, _, sends, free, held, queue, _, writes, permits, waiting, asking = v.rank
        if (
            rooms
            or sends
            or held
            or queue
            or writes
            or permits
            or waiting
            or any(asking)
            or v.preparing
            or len(free) != self.config.slots
        ):
            return "S8", f"prefill {self.index} keeps state of rooms that are over"
        return ("L1", "kernels or writes are under way") if v.gathers or v.posted else None
