"""Promela out of the ranks' own steps, for Spin.

Spin searches the same world as `chunkworld`, but nothing of that search is used here: each rank is *tabulated* by
itself.  From its first value every message that the other side could ever send, every engine's call, every end of a
kernel, of a write, of a timer is tried, until there are no new values; what the other side could send grows on the way,
so the two tables are grown together.  A value becomes a number, a step that changes anything becomes a row:

    :: d_step { w0 == 3 && net0 & 512 -> w0 = 7; m0 = STAGED }

What is global (which messages are there, who moves first, when bytes land) is Spin's alone, and so is the judgement of
what was written where.  What a rank ignores or refuses has no row.  A world that is over has a move that changes
nothing; so a state in which nothing can happen although it is not over is one of Spin's invalid end states.

All that the model remembers is what `chunkworld.State` remembers: the other variables (`open`, `failed`, `gone`,
`over0`, `over1`, `over2`) say something about a rank's number and are set with it.  Each process has one control state,
as every row is one `d_step` out of one loop.  So Spin must store exactly as many states as the Python search has, with
no constant between them.  Its transitions are the search's moves, one for each state that is over (the move that
changes nothing), and one more: Spin counts the first state as a transition, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvproto.protocol.states import DGrant, DRoom, PRoom, PSend
from witness.chunk import TIMED, TO_READER, TO_WRITER, WRITERS, RankOutput, Tables
from witness.chunk_reader import RValue
from witness.chunk_writer import WValue
from witness.chunkworld import BITS, ChunkWorld, named

READER = len(WRITERS)
#: inputs of a writer that are the end of its write: (what has to be so, what is so afterwards)
REPORTS = {
    "completed": ("m{i} == LANDED", "m{i} = STILL"),
    "failed": ("m{i} == STAGED || m{i} == PAGED", "m{i} = STILL"),
    "settled": ("m{i} == STAGED_DOUBT || m{i} == PAGED_DOUBT", "m{i} = STILL"),
    "doubted": ("m{i} == STAGED || m{i} == PAGED", "m{i} = m{i} + 2"),
}


class PromelaWorld(NamedTuple):
    """The subject of a file, as `ChunkWorld` has it."""

    ring: str
    trouble: bool = True
    tells: bool = False


#: the file in spec/promela/ of each world
FILES = {
    "chunk_empty": PromelaWorld("empty"), "chunk_full": PromelaWorld("full"), "chunk_small": PromelaWorld("small"),
    "chunk_ahead": PromelaWorld("ahead", trouble=False), "chunk_tells": PromelaWorld("empty", tells=True),
}  # fmt: skip

FOLDER = Path(__file__).parents[2] / "spec" / "promela"

HEADER = """\
/* Made from the tables by python -m witness.promela: do not edit.
   One chunk, two writers, one decode rank; the ring is {ring}{more}.
   {sizes[0]} and {sizes[1]} values of the writers, {sizes[2]} of the decode rank; {rows} rows. */

#define STILL 0
#define STAGED 1
#define PAGED 2
#define STAGED_DOUBT 3
#define PAGED_DOUBT 4
#define LANDED 5
#define FLYING(m) ((m) != STILL && (m) != LANDED)
#define TO_RING(m) ((m) == STAGED || (m) == STAGED_DOUBT)

short w0 = {start[0]}, w1 = {start[1]}, r = {start[2]};  /* the ranks */
int net0 = {net[0]}, net1 = {net[1]};         /* messages that were ever sent to or by each writer */
byte m0, m1;                   /* the writers' writes */
bit s0, s1, p0, p1;            /* bytes in the region, in the pages */
bit open, failed, gone;        /* the region may be written; the room has failed; its pages were given back */
bit over0, over1, over2;       /* the ranks' rooms are over */

#define LAND(m, s, p, net, said) \\
    assert(!(s || p));                          /* S2 */ \\
    if \\
    :: TO_RING(m) -> assert(open); s = 1; net = net | said  /* S1 */ \\
    :: else -> assert(!gone); p = 1             /* S4 */ \\
    fi; \\
    m = LANDED

"""


class PromelaStep(NamedTuple):
    """A step of one rank that changes something."""

    guard: str
    then: list[str]
    note: str


class Tabulation:
    """Every value of every rank, and what becomes of each with each input."""

    def __init__(self, about: PromelaWorld, tables: Tables | None = None) -> None:
        self.about = about
        self.world = ChunkWorld(about.ring, tables, trouble=about.trouble, tells=about.tells)
        self.start = self.world.first()
        self.said = {pair for pair, bit in BITS.items() if self.start.net & bit}
        self.said |= {(i, "NOTE_STAGED") for i in WRITERS if about.tells}
        #: (rank, number, input, whose message) -> (number, what leaves)
        self.steps: dict[tuple[int, int, str, int], tuple[int, RankOutput]] = {}
        before = -1
        while before != len(self.steps):
            before = len(self.steps)
            for at in (*WRITERS, READER):
                self._grow(at)

    def _grow(self, at: int) -> None:
        world = self.world
        number = 0
        while number < len(world.of[at]):
            for what, writer in self._inputs(at, number):
                if (at, number, what, writer) not in self.steps:
                    step = self.steps[at, number, what, writer] = world.step(at, number, what, writer)
                    self.said |= set(step[1].sent)
            number += 1

    def _inputs(self, at: int, number: int) -> Iterator[tuple[str, int]]:
        value = self.world.of[at][number]
        if at == READER:
            yield from ((what, 0) for what in self.world.reader.inputs(value))
            yield from ((word, i) for i in WRITERS for word in TO_READER if (i, word) in self.said)
            return
        yield from ((what, 0) for what in self.world.writers[at].inputs(value))
        for word in TO_WRITER:
            if (at, word) in self.said:
                yield from ((what, 0) for what in ([word, f"{word} late"] if word in TIMED else [word]))
        reports = REPORTS if self.world.trouble else ("completed",)
        yield from ((report, 0) for report in reports)

    def rows(self, at: int) -> list[PromelaStep]:
        """The steps that change something, in the order of the values."""
        rows = []
        for (rank, number, what, writer), (new, out) in self.steps.items():
            if rank == at and not (out.refused and new == number):
                if at == READER:
                    row = self._read(number, what, writer, new, out)
                else:
                    row = self._write(at, number, what, new, out)
                if row.then:
                    only_says = all(effect.startswith("net") for effect in row.then)
                    rows.append((number, _only_if_new(row) if only_says else row))
        return [row for _, row in sorted(rows, key=lambda pair: pair[0])]

    # ------------------------------------------------------------------------------------------ the writers
    def _write(self, i: int, number: int, what: str, new: int, out: RankOutput) -> PromelaStep:
        old_value, value = self.world.of[i][number], self.world.of[i][new]
        word = what.removesuffix(" late")
        guard, then = f"w{i} == {number}", []
        if word in TO_WRITER:
            guard += f" && net{i} & {bit(word)}"
        if what in REPORTS:
            condition, after = REPORTS[what]
            if what == "failed" and self.about.tells and old_value.send and old_value.send.state is PSend.WRITING:
                condition += " || m{i} == LANDED"
            guard += f" && ({condition.format(i=i)})"
            then.append(after.format(i=i))
        then += [f"w{i} = {new}"] if new != number else []
        if out.posted:
            then += [f"assert(m{i} == STILL)", f"m{i} = {'STAGED' if out.posted == 'staged' else 'PAGED'}"]
        if out.posted == "astray":
            then.append("assert(false)  /* S1 */")
        if "released" in out.told:
            then.append("assert(false)  /* S4 */" if value.gather else f"assert(!FLYING(m{i}))  /* S4 */")
        if "success" in out.told:
            then.append(f"assert(m{i} == STILL && (failed || s{i} || p{i}))  /* S6 */")
        if over(value) != over(old_value):
            then.append(f"over{i} = {int(over(value))}")
        return PromelaStep(guard, then + _send(out), self._note(i, number, what, new))

    # ------------------------------------------------------------------------------------------- the reader
    def _read(self, number: int, what: str, writer: int, new: int, out: RankOutput) -> PromelaStep:
        old, value = self.world.of[READER][number], self.world.of[READER][new]
        guard = f"r == {number}" + (f" && net{writer} & {bit(what)}" if what in TO_READER else "")
        then = [f"r = {new}"] if new != number else []
        before, after = (each.grant.by_pages if each.grant else 0 for each in (old, value))
        then += [f"s{i} = 0" for i in WRITERS if after & ~before & 1 << i]
        if what == "scattered":
            then.append("p0 = p0 | s0; p1 = p1 | s1")
        if out.scatter:
            parts = [f"s{i}" if out.scatter >> i & 1 else f"!s{i}" for i in WRITERS]
            then.append(f"assert({' && '.join(parts)})  /* S3 */")
        if old.held and not value.held:
            then += ["assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */", "s0 = 0; s1 = 0"]
        if "released" in out.told:
            then.append("assert(!FLYING(m0) && !FLYING(m1))  /* S4 */")
        if "success" in out.told:
            then.append("assert(p0 && p1)  /* S5 */")
        then += [f"{name} = {now}" for name, now in flags(value).items() if now != flags(old)[name]]
        return PromelaStep(guard, then + _send(out), self._note(READER, number, what, new))

    def _note(self, at: int, number: int, what: str, new: int) -> str:
        return f"{self._label(at, number)}  {what}  {self._label(at, new) if new != number else ''}".rstrip()

    def _label(self, at: int, number: int) -> str:
        value = self.world.of[at][number]
        return f"{named(value.room)}/{named(value.grant if at == READER else value.send)}"


def bit(word: str) -> int:
    """The message's bit among those of its writer: both writers together have more than an int."""
    return BITS[WRITERS[0], word]


def _nets(net: int) -> list[int]:
    return [sum(bit(word) for (who, word), each in BITS.items() if who == i and net & each) for i in WRITERS]


def _send(out: RankOutput) -> list[str]:
    said = {i: sum(bit(word) for who, word in set(out.sent) if who == i) for i in WRITERS}
    return [f"net{i} = net{i} | {bits}" for i, bits in said.items() if bits]


def _only_if_new(row: PromelaStep) -> PromelaStep:
    """A row that only says something: once it is said, it changes nothing, and must not look like a move."""
    said = [(effect.split()[0], effect.rpartition(" ")[2]) for effect in row.then]
    new = " || ".join(f"({net} & {bits}) != {bits}" for net, bits in said)
    return row._replace(guard=f"{row.guard} && ({new})")


def over(value: Any) -> bool:
    """The rank's room is over and nothing of it is left."""
    if isinstance(value, WValue):
        return value.room.state in (PRoom.DONE, PRoom.ABORTED) and not value.gather
    return value.room.state in (DRoom.DONE, DRoom.ABORTED) and not (value.held or value.grant)


def flags(value: RValue) -> dict[str, int]:
    """The flags of the decode rank that the memory has to know."""
    writable = value.held and value.grant is not None and value.grant.state is not DGrant.SCATTERING and not value.other
    return {
        "open": int(writable), "failed": int(value.room.state not in (DRoom.OPEN, DRoom.DONE)),
        "gone": int(value.room.state is DRoom.ABORTED), "over2": int(over(value)),
    }  # fmt: skip


def generate(about: PromelaWorld, tables: Tables | None = None) -> str:
    """The Promela of one world."""
    table = Tabulation(about, tables)
    start = table.start
    rows = [table.rows(at) for at in (*WRITERS, READER)]
    text = HEADER.format(
        ring=about.ring, sizes=[len(values) for values in table.world.of],
        more=", and nothing fails" * (not about.trouble) + ", and staged writes carry their notification" * about.tells,
        rows=sum(map(len, rows)), start=(*start.writers, start.reader), net=_nets(start.net),
    )  # fmt: skip
    for i in WRITERS:
        said = bit("NOTE_STAGED") if about.tells else 0
        lands = f"    :: d_step {{ FLYING(m{i}) -> LAND(m{i}, s{i}, p{i}, net{i}, {said}) }}\n"
        text += f"active proctype writer{i}() {{\n    do\n{lands}"
        text += _options(rows[i])
    text += "active proctype reader() {\n    do\n    :: d_step { over0 && over1 && over2 -> skip }\n"
    return text + _options(rows[READER])


def _options(rows: list[PromelaStep]) -> str:
    lines = [f"    :: d_step {{ {row.guard} -> {'; '.join(row.then)} }}  /* {row.note} */\n" for row in rows]
    return "".join(lines) + "    od\n}\n\n"


def write(folder: Path = FOLDER) -> list[Path]:
    """Make every file of spec/promela/ anew."""
    paths = []
    for name, about in FILES.items():
        path = folder / f"{name}.pml"
        path.write_text(generate(about))
        paths.append(path)
    return paths


def stale(folder: Path = FOLDER) -> list[str]:
    fresh = {f"{name}.pml": generate(about) for name, about in FILES.items()}
    return [name for name, text in fresh.items() if not (folder / name).exists() or (folder / name).read_text() != text]


if __name__ == "__main__":
    write(FOLDER)
