"""Chunkworld: one chunk, two writers, one decode rank, explored to the end.

A state is the two writers, the reader, the memory between them and the network.  The network is a *set*: a message
that was ever sent may arrive at any time, any number of times, in any order, or never.  So loss, repetition and
reordering are all there without a bound, and repeating a request adds nothing.

The memory is what one-sided writes make of it.  A write of a writer is flying into the ring or into the pages, or in
doubt (its writer was told that it failed, and its bytes may still land), or it has landed and its writer does not know
yet; one that has told of itself may then be reported as failed.  A region that is freed is somebody else's at once, and
a part of it that was given up is nobody's.

What must hold, in every step: S1, S2, S3, S4, S5, S6 (see `Memory`), and S10 by the ranks themselves.  And from every
state the end can be reached (L1): every room over, every region free, nothing in flight.

The same world is written down twice more: by hand from the prose in Murphi (spec/murphi/chunk.m), and as Promela that
is made from the ranks' steps (`promela`).  All three must have the same number of states, of each ring and kind.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from kvproto.protocol.states import DGrant, DRoom, PRoom, PSend
from witness.chunk import BOTH, TIMED, TO_READER, TO_WRITER, WRITERS, RankOutput, Tables
from witness.chunk_reader import Reader, RValue
from witness.chunk_writer import Writer, WValue

STILL, STAGED, PAGES, STAGED_DOUBT, PAGES_DOUBT, LANDED = range(6)
FLYING = (STAGED, PAGES, STAGED_DOUBT, PAGES_DOUBT)
IN_RING = (STAGED, STAGED_DOUBT)
#: (writer, message) -> its bit in the network's mask
BITS = {pair: 1 << i for i, pair in enumerate((w, word) for w in WRITERS for word in (*TO_READER, *TO_WRITER))}


class BrokenProperty(Exception):  # noqa: N818
    """A property does not hold."""


class Memory(NamedTuple):
    """Each writer's write; the writers (mask) whose bytes are in the region, in the pages."""

    write: tuple[int, int] = (STILL, STILL)
    staged: int = 0
    paged: int = 0

    def put(self, writer: int, to: int) -> Memory:
        return self._replace(write=(to, self.write[1]) if writer == 0 else (self.write[0], to))


class ChunkState(NamedTuple):
    """Ranks by their numbers, the memory, and the network as a mask of `BITS`."""

    writers: tuple[int, int]
    reader: int
    memory: Memory
    net: int


def judge(holds: bool, text: str) -> None:
    if not holds:
        raise BrokenProperty(text)


class ChunkWorld:
    """One kind of ring, and the ranks built from these tables."""

    def __init__(self, ring: str, tables: Tables | None = None, *, trouble: bool = True, tells: bool = False) -> None:
        """Make the world.

        `trouble`: engines give up, kernels and writes fail, patience ends rooms; `tells`: a staged write carries its
        notification.
        """
        tables = tables or Tables()
        self.ring, self.trouble, self.tells = ring, trouble, tells
        self.writers = [Writer(i, ring, tables, trouble=trouble, tells=tells) for i in WRITERS]
        self.reader = Reader(ring, tables, trouble=trouble)
        self.values: list[dict[Any, int]] = [{}, {}, {}]
        self.of: list[list[Any]] = [[], [], []]
        self.memo: dict[tuple[int, int, str, int], tuple[int, RankOutput]] = {}
        self.refused: Counter[str] = Counter()

    def number(self, at: int, value: Any) -> int:
        """The number of a rank's value; ranks 0 and 1 write, 2 reads."""
        found = self.values[at].get(value)
        if found is None:
            found = self.values[at][value] = len(self.of[at])
            self.of[at].append(value)
        return found

    def step(self, at: int, number: int, what: str, writer: int = 0) -> tuple[int, RankOutput]:
        """The output of a rank for an input, remembered."""
        key = at, number, what, writer
        found = self.memo.get(key)
        if found is None:
            value = self.of[at][number]
            new: Any
            if at == len(WRITERS):
                new, out = self.reader.step(value, what, writer)
            else:
                new, out = self.writers[at].step(value, what)
            self.refused.update(f"{what}: {why}" for why in out.refused)
            found = self.memo[key] = self.number(at, new), out
        return found

    def first(self) -> ChunkState:
        """Both writers have asked."""
        starts = [writer.first() for writer in self.writers]
        net = sum(BITS[pair] for _, out in starts for pair in out.sent)
        numbers = self.number(0, starts[0][0]), self.number(1, starts[1][0])
        return ChunkState(numbers, self.number(2, self.reader.first()), Memory(), net)

    # -------------------------------------------------------------------------------------- what comes next
    def next(self, state: ChunkState) -> list[ChunkState]:
        """The states that come next.  Raises `BrokenProperty`."""
        found: list[ChunkState] = []
        for i in WRITERS:
            found += self._writer_moves(state, i)
        reader: RValue = self.of[2][state.reader]
        found += [self._read(state, what, 0) for what in self.reader.inputs(reader)]
        found += [self._read(state, word, i) for i in WRITERS for word in TO_READER if state.net & BITS[i, word]]
        return found

    def _writer_moves(self, state: ChunkState, i: int) -> list[ChunkState]:
        value: WValue = self.of[i][state.writers[i]]
        found = [self._write(state, i, what) for what in self.writers[i].inputs(value)]
        for word in TO_WRITER:
            if state.net & BITS[i, word]:
                found += [self._write(state, i, what) for what in ([word, f"{word} late"] if word in TIMED else [word])]
        write = state.memory.write[i]
        if write in FLYING:
            told = BITS[i, "NOTE_STAGED"] if self.tells and write in IN_RING else 0
            found.append(state._replace(memory=self._land(state, i, write), net=state.net | told))
        if write in FLYING and self.trouble:
            found.append(self._write(state, i, "failed" if write in (STAGED, PAGES) else "settled", STILL))
        if write in (STAGED, PAGES) and self.trouble:
            found.append(self._write(state, i, "doubted", STAGED_DOUBT if write == STAGED else PAGES_DOUBT))
        if write == LANDED:
            found.append(self._write(state, i, "completed", STILL))
            if self.tells and self.trouble and value.send is not None and value.send.state is PSend.WRITING:
                found.append(self._write(state, i, "failed", STILL))
        return found

    def _write(self, state: ChunkState, i: int, what: str, write: int | None = None) -> ChunkState:
        number, out = self.step(i, state.writers[i], what)
        memory = state.memory if write is None else state.memory.put(i, write)
        if out.posted:
            judge(memory.write[i] == STILL, "S2: a second write is posted")
            judge(out.posted != "astray", "S1: a write is posted to where no region is")
            memory = memory.put(i, STAGED if out.posted == "staged" else PAGES)
        value: WValue = self.of[i][number]
        if "released" in out.told:
            judge(not value.gather and memory.write[i] not in FLYING, "S4: a writer's pages are given back too early")
        if "success" in out.told:
            failed = self.of[2][state.reader].room.state not in (DRoom.OPEN, DRoom.DONE)
            there = failed or bool((memory.staged | memory.paged) >> i & 1)
            judge(there and memory.write[i] == STILL, "S6: a writer has success before its bytes are there")
        numbers = (number, state.writers[1]) if i == 0 else (state.writers[0], number)
        return ChunkState(numbers, state.reader, memory, self._said(state.net, out))

    @staticmethod
    def _said(net: int, out: RankOutput) -> int:
        for pair in out.sent:
            net |= BITS[pair]
        return net

    def _land(self, state: ChunkState, i: int, write: int) -> Memory:
        """The bytes of a write land."""
        memory, reader = state.memory, self.of[2][state.reader]
        judge(not (memory.staged | memory.paged) >> i & 1, "S2: a part is written twice")
        if write in IN_RING:
            open_ = reader.held and reader.grant is not None and reader.grant.state is not DGrant.SCATTERING
            judge(open_ and not reader.other, "S1: a write lands in a region that is not its own")
            return memory.put(i, LANDED)._replace(staged=memory.staged | 1 << i)
        judge(reader.room.state is not DRoom.ABORTED, "S4: a write lands in pages that were given back")
        return memory.put(i, LANDED)._replace(paged=memory.paged | 1 << i)

    def _read(self, state: ChunkState, what: str, writer: int) -> ChunkState:
        number, out = self.step(2, state.reader, what, writer)
        old, new, memory = self.of[2][state.reader], self.of[2][number], state.memory
        if new.grant is not None:
            memory = memory._replace(staged=memory.staged & ~new.grant.by_pages)
        if what == "scattered":
            memory = memory._replace(paged=memory.paged | memory.staged)
        if out.scatter:
            judge(out.scatter == memory.staged, "S3: a scatter reads what is not there")
        if old.held and not new.held:
            judge(not any(write in IN_RING for write in memory.write), "S4: a region is freed too early")
            memory = memory._replace(staged=0)
        if "released" in out.told:
            judge(not any(write in FLYING for write in memory.write), "S4: pages are given back too early")
        if "success" in out.told:
            judge(memory.paged == BOTH, "S5: success without all bytes")
        return ChunkState(state.writers, number, memory, self._said(state.net, out))

    # ------------------------------------------------------------------------------------------- naming
    def rests(self, state: ChunkState) -> bool:
        """Every room is over, and nothing is held or in flight."""
        reader: RValue = self.of[2][state.reader]
        writers: list[WValue] = [self.of[i][state.writers[i]] for i in WRITERS]
        over = all(value.room.state in (PRoom.DONE, PRoom.ABORTED) and not value.gather for value in writers)
        return over and reader.room.state in (DRoom.DONE, DRoom.ABORTED) and not (reader.held or reader.grant)

    def kinds(self, state: ChunkState) -> list[str]:
        """Names of what the state is, of writer 0 where it is a writer's; the other witnesses count the same."""
        reader: RValue = self.of[2][state.reader]
        value: WValue = self.of[0][state.writers[0]]
        names = [f"ring {self.ring}", f"reader {named(reader.room)}", f"grant {named(reader.grant)}"]
        names += [f"writer {named(value.room)}", f"send {named(value.send)}", f"write {WRITES[state.memory.write[0]]}"]
        return names


#: the prose's words for what the tables call otherwise
WORDS = {
    "ABORTED": "FAILED", "AWAIT_NOTED": "UNNOTED", "AWAIT_SPACE": "QUEUED", "AWAIT_GRANT": "ASKING",
    "AWAIT_WRITERS": "OTHERS", "AWAIT_TURN": "TURN", "AWAIT_WATERMARK": "WAITING", "AWAIT_KV": "NO_KV",
    "AWAIT_PAGES": "ASKING_PAGES", "AWAIT_ACK": "TELLING",
}  # fmt: skip
WRITES = ("STILL", "STAGED", "PAGED", "STAGED_DOUBT", "PAGED_DOUBT", "LANDED")


def named(value: Any) -> str:
    """The prose's word for the state of a room, a send or a grant."""
    if value is None:
        return "NONE"
    name: str = value.state.name
    return "STOPPING" if value.state is PSend.DRAINING else WORDS.get(name, name)
