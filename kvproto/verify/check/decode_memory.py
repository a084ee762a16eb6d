"""Decode memory: a decode rank's ring and pages, and the writes in flight to them.

A one-sided write asks nobody: the memory decides when it lands, piece by piece, until it completes, fails with nothing
more to land, or is in doubt for a while. Every piece is judged as it lands (S1, S2, S11), every scatter by what it
reads (S3), every freed region and page by what could still land there (S4).

A write's notification (its *tag*) is told once, at any moment after the last piece, whatever the writer's own report
says. A unit of the ring holds 0 or the name of the piece that was last written there; what is not its region's own is
wiped.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any, NamedTuple

from kvproto.layout.cut import Part
from kvproto.protocol import effects as do
from kvproto.protocol.messages import StgNotify
from kvproto.protocol.states import DGrant, DLink
from kvproto.verify.check.config import UNIT, Config
from kvproto.verify.check.node import FAILURE, SUCCESS, Input, Node, RankOutput, Violation, add, judge, put, remove
from kvproto.verify.check.snapshot import Frozen

Regions = dict[tuple[int, int], tuple[int, int, int, bool]]  #: (place, chunk) -> (round, offset, end, blocked)
HOLDING = (DGrant.FILLING, DGrant.QUARANTINED)
#: what the writer is told when a write lands for the last time, fails, is in doubt, or is in doubt no more
REPORTS = {"land": "ok", "fail": "failed", "fail told": "failed", "doubt": "doubt", "settle": "settled"}


class DNode(NamedTuple):
    """The value; places are rooms' places in the configuration."""

    life: int
    rank: Frozen
    #: a room: 1 once the engine has opened it
    script: tuple[int, ...]
    #: (place, chunk)
    scatters: tuple[Any, ...]
    #: (writer, place, chunk, offset or -1 for pages, tag or 0, batch, pieces that have not landed (mask), in doubt)
    writes: tuple[Any, ...]
    #: a unit: 0, or 1 + (place, chunk, writer, piece) as one number
    ring: tuple[int, ...]
    #: a room: what is in its pages (mask over chunk, writer and piece)
    pages: tuple[int, ...]
    outcome: tuple[int, ...]
    released: tuple[bool, ...]
    aux: tuple[bool, ...]
    #: in a moving world, by prefill rank: the life whose address the engine has yet to name (0: none)
    news: tuple[int, ...] = ()


class DecodeMemory(Node):
    """The memory of one decode rank."""

    SIDE = 1

    def __init__(self, config: Config, index: int) -> None:
        super().__init__(config, index)
        #: by chunk: who writes it; and all who write any
        self.writers_of = tuple(self.plan.fan_in(self.member, self.cut_at(k)) for k in range(config.sends))
        self.writers = tuple(sorted({*chain(*self.writers_of)}))
        #: units of the largest part, and of a chunk whose parts are all as large
        self.most = config.pieces * -(-config.layers // config.layer_groups)
        self.bits = self.most * len(self.writers)
        #: by writer and chunk, as they are asked for
        self._parts: dict[tuple[int, int], Part] = {}
        self._masks: dict[tuple[int, int], int] = {}

    def memory(self, v: DNode, what: Input, outs: list[RankOutput]) -> DNode:
        """Apply an input to the writes; add a report of an end to `outs`. Raises `Violation`."""
        if what[0] == "post":
            _, p, k, chunk, offset, tag, batch, life = what
            return self._post(v, (p, k, chunk, offset, tag, batch), life, outs)
        if what[0] == "peer crashed":
            return v._replace(writes=tuple(write for write in v.writes if write[0] != what[1]))
        write = what[1]
        p, k, chunk, offset, tag, batch, left, doubt = write
        v = v._replace(writes=remove(v.writes, write))
        if what[0] in ("land", "fail told"):
            v = self._land(v, p, k, chunk, offset, what[2])
            left &= ~(1 << what[2])
            if tag and not left:
                outs.append(("notified", p, (tag, k, StgNotify(chunk, 1))))
            if left or doubt:
                return v._replace(writes=add(v.writes, (p, k, chunk, offset, tag, batch, left, doubt)))
        elif what[0] == "doubt":
            v = v._replace(writes=add(v.writes, (p, k, chunk, offset, tag, batch, left, True)))
        outs.append(("wrote", p, (REPORTS[what[0]], k, chunk, batch)))
        return v

    def _post(self, v: DNode, where: tuple[int, int, int, int, int, int], life: int, outs: list[RankOutput]) -> DNode:
        p, k, chunk, offset, tag, batch = where
        if life != v.life:
            outs.append(("wrote", p, ("failed", k, chunk, batch)))  # the memory that it was meant for is gone
            return v
        whole = offset >= 0 or self.config.batches == 1
        pieces = self._pieces(self.others.member(p), chunk)
        write = (p, k, chunk, offset, tag, batch, (1 << pieces) - 1 if whole else 1 << batch, False)
        self._judge_open(v, p, k, chunk, offset)
        return v._replace(writes=add(v.writes, write))

    def _judge_open(self, v: DNode, p: int, k: int, chunk: int, offset: int) -> None:
        """A write may be on its way only into what is held for it."""
        whose, member = f"a write of writer {p} for chunk {chunk} of room {k}", self.others.member(p)
        judge("S1", self.names.peer(k, member) == p, f"{whose} is of a group that has no part in the room")
        if offset < 0:
            held = v.script[k] == 1 and not v.released[k]
            judge("S4", held, f"{whose} is on its way into pages that were given back")
            return
        region = regions(v).get((k, chunk))
        if region is None or region[1] != offset:
            raise Violation("S1", f"{whose} is on its way to a region that is not its own")
        judge("S1", not region[3], f"{whose} is on its way to a region that the watermark has not passed")
        grant = dict(dict(v.rank[3]).get(k, ())).get(chunk)
        held = grant is not None and grant.state in HOLDING
        judge("S4", held, f"{whose} is on its way to a region that is being read")
        missing = grant is not None and not grant.arrived >> member & 1
        judge("S2", missing, f"{whose} is on its way to a region that has it already")

    def _land(self, v: DNode, p: int, k: int, chunk: int, offset: int, piece: int) -> DNode:
        self._judge_open(v, p, k, chunk, offset)
        member = self.others.member(p)
        if offset < 0:
            there = 1 << self._bit(chunk, member, piece)
            judge("S2", not v.pages[k] & there, f"writer {p}'s part of chunk {chunk} of room {k} is written twice")
            return v._replace(pages=put(v.pages, k, v.pages[k] | there))
        at = self._units(chunk, member, offset)[piece]
        judge("S11", v.ring[at] == 0, f"unit {at} of the ring is written twice")
        return v._replace(ring=put(v.ring, at, self._token(k, chunk, member, piece)))

    def _pieces(self, p: int, chunk: int) -> int:
        """Units of a part; the last chunk's may be fewer."""
        return -(-self._part_of(p, chunk).nbytes // UNIT)

    def _part_of(self, p: int, chunk: int) -> Part:
        part = self._parts.get((p, chunk))
        if part is None:
            part = self._parts[p, chunk] = self.plan.part(p, self.member, self.cut_at(chunk))
        return part

    def _units(self, chunk: int, p: int, offset: int) -> list[int]:
        first = (offset + self._part_of(p, chunk).offset) // UNIT
        return list(range(first, first + self._pieces(p, chunk)))

    @staticmethod
    def _token(k: int, chunk: int, p: int, piece: int) -> int:
        return 1 + (((k * 16 + chunk) * 16 + p) * 4 + piece)

    def _bit(self, chunk: int, p: int, piece: int) -> int:
        return chunk * self.bits + self.writers.index(p) * self.most + piece

    def _part(self, chunk: int, p: int) -> int:
        mask = self._masks.get((p, chunk))
        if mask is None:
            mask = self._masks[p, chunk] = (1 << self._pieces(p, chunk)) - 1 << self._bit(chunk, p, 0)
        return mask

    def whole(self) -> int:
        return sum(self._part(chunk, p) for chunk, writers in enumerate(self.writers_of) for p in writers)

    def staged(self, v: DNode, k: int, chunk: int) -> int:
        grant = dict(dict(v.rank[3])[k])[chunk]
        return sum(self._part(chunk, p) for p in self.writers_of[chunk] if not grant.by_pages >> p & 1)

    def tidy(self, v: DNode) -> DNode:
        """Wipe what no region holds; judge what can still be written or read."""
        held = regions(v)
        for p, k, chunk, offset, _, _, left, _ in v.writes:
            if left:
                self._judge_open(v, p, k, chunk, offset)
        for k, chunk in v.scatters:
            judge("S4", (k, chunk) in held, f"the region of chunk {chunk} of room {k} is freed while it is read")
        self._judge_overlap(held)
        owner = {u: key for key, (_, offset, end, blocked) in held.items() if not blocked for u in _span(offset, end)}
        return v._replace(ring=tuple(t if t and owner.get(u) == _whose(t) else 0 for u, t in enumerate(v.ring)))

    @staticmethod
    def judge_order(before: DNode, after: DNode) -> None:
        """Judge that the first of a room's chunks that wait for a region has one before the others."""
        waiting = {(k, chunk) for k, chunk, _ in before.rank[6]} & {(k, chunk) for k, chunk, _ in after.rank[6]}
        for k, chunk in regions(after).keys() - regions(before).keys() if waiting else ():
            passed = min((early for room, early in waiting if room == k), default=chunk)
            judge("S13", passed >= chunk, f"chunk {chunk} of room {k} has a region, its chunk {passed} waits for one")

    @staticmethod
    def _judge_overlap(held: Regions) -> None:
        open_ = sorted((offset, end) for _, offset, end, blocked in held.values() if not blocked)
        for (_, end), (offset, _) in pairwise(open_):
            judge("S11", end <= offset, "two regions that may both be written overlap")

    def launch(self, v: DNode, effect: do.LaunchScatter) -> DNode:
        """A scatter begins: everything that it reads must be there; what goes by pages may come later (S5)."""
        k, chunk = self.names.place[effect.room], effect.chunk
        judge("S3", (k, chunk) not in v.scatters, f"chunk {chunk} of room {k} is scattered twice")
        for p in self.writers_of[chunk]:
            if effect.writers >> p & 1:
                want = [self._token(k, chunk, p, i) for i in range(self._pieces(p, chunk))]
                read = [v.ring[u] for u in self._units(chunk, p, effect.offset)]
                who = self.names.peer(k, p)
                judge("S3", read == want, f"writer {who}'s part of chunk {chunk} of room {k} is read, but is not there")
        return v._replace(scatters=add(v.scatters, (k, chunk)))

    def has_part(self, v: DNode, k: int, chunk: int, p: int) -> bool:
        return self._in_pages(v, k, chunk, p) or self._token(k, chunk, p, 0) in v.ring

    def _in_pages(self, v: DNode, k: int, chunk: int, p: int) -> bool:
        return not self._part(chunk, p) & ~v.pages[k]

    def sights(self, v: DNode) -> set[str]:
        """Return the sights of this value that a search should meet."""
        states = {grant.state for _, group in v.rank[3] for _, grant in group}
        seen = {
            "a region in quarantine": DGrant.QUARANTINED in states,
            "a part that goes over pages": any(write[3] < 0 for write in v.writes),
            "a promise that waits for the watermark": any(region[6] for region in v.rank[5]),
            "a ring that wraps": v.rank[4][0] > 0,
            "a chunk that waits for space": bool(v.rank[6]),
            "a write in doubt": any(write[7] for write in v.writes),
            "a link that may still be written through": any(
                link is not None and link.state is DLink.AWAIT_RETURN for link in v.rank[2]
            ),
            "a full prefix hit that succeeds": SUCCESS in v.outcome and not self.config.chunks,
            "success here": SUCCESS in v.outcome,
            "failure here": FAILURE in v.outcome,
            "chunks of one room out of order": any(_out_of_order(pages, self.bits) for pages in v.pages),
        }
        return {sight for sight, there in seen.items() if there}


def regions(v: DNode) -> Regions:
    return {(k, c): (r, offset, end, blocked) for k, c, r, offset, end, freed, blocked in v.rank[5] if not freed}


def _span(offset: int, end: int) -> range:
    return range(offset // UNIT, end // UNIT)


def _whose(token: int) -> tuple[int, int]:
    """(place, chunk) of a unit's content."""
    return (token - 1) // 1024, (token - 1) // 64 % 16


def _out_of_order(pages: int, bits: int) -> bool:
    """Something of a later chunk is in its pages, and nothing of an earlier one (of so many bits a chunk)."""
    whole = (1 << bits) - 1
    return any(pages >> bits * (c + 1) and not pages >> bits * c & whole for c in range(4))
