"""The plan: who writes what to whom, derived by both ends from the same two layouts.

Ranks hold intervals of heads and of layers (`kvproto.layout.sharding`), so planning is one idea: **a prefill rank owes
a decode rank the overlap of two intervals of heads and two intervals of layers**. No ratio of the two tensor-parallel
sizes appears; 6 ranks serve 4 as simply as 4 serve 2.

Writers with the same heads and layers are replicas, and for each reader exactly one of them writes.  Readers take turns
over the replicas, in reader order, so duties differ by at most one. The other replicas remain *linked* to the reader:
they share its rooms, its aborts and its outcome, but post nothing.

Of named caches each part is cut by itself, so a share has a piece of each, and replicas share the layers of a part
instead of taking turns (`kvproto.layout.shared_caches`).

What travels at the end, state and windows, has a plan of its own (`Plan.state`), between the two layouts of it; its
chunks are cut by that one (`Plan.of`).  There a part has a block for each cache, of as many rows as that one has.  A
rank is linked to all that it meets in either.  A joint chunk is cut by both, and all who write of either write it.

The aux row of a reader comes from its *lead*. The last prefill stage computes its content (the first token), so the
lead is on the last stage that writes to the reader. If the decode side has stages too, its early readers may be linked
only to early writers; the engine then passes the content to these leads.

A plan is made at the handshake, once for each pair of groups, and costs nothing then: shares are computed when they are
first needed (`kvproto.layout.contacts`), and cached.  So a call costs a rank only the ranks that it meets, however
large the layout that a caller names. """

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import lcm
from typing import Final, TypeVar

from kvproto.layout.agreement import agree
from kvproto.layout.contacts import Contacts, Share
from kvproto.layout.cut import Block, Cut, Part, block_offsets, chunks, layers_of
from kvproto.layout.placement import Placement, closed_between, page_runs
from kvproto.layout.sharding import PART_ALIGNMENT, Layout, LayoutError, units_at
from kvproto.layout.shared_caches import SharedCaches

__all__ = ["Plan", "Share", "Sizes", "plan_between"]

AT_END: Final = -1  #: in place of a number of layer groups: of a joint chunk
PARTS: Final = 4096  #: parts of chunks that a plan keeps
T = TypeVar("T")
Widths = tuple[int, ...]  #: bytes of a row of each block of a part: of a token, or of each cache at the end
Sizes = tuple[tuple[Widths, int], ...]  #: parts as (their widths, how many such parts)


class Plan:
    """All shares between a prefill and a decode group: every (reader, head, layer) exactly once.

    Both sides make it, once, and each works out only what it asks for. Sizes are bytes, tokens are counts. Any thread.
    Raises `LayoutError` if the two layouts, or the chunk size (tokens a cell), do not go together.
    """

    __slots__ = ("_alike", "_before", "_blocks", "_contacts", "_duties", "_end_plans", "_ends", "_fan_in",
                 "_linked_to", "_owed_widths", "_parts", "_rows", "_share", "_sizes", "_writers", "chunk_tokens",
                 "decode", "fewest_layers", "joint_tokens", "prefill", "state", "state_groups")  # fmt: skip

    def __init__(self, prefill: Layout, decode: Layout, chunk_tokens: int) -> None:
        agree(prefill, decode, chunk_tokens)
        self.prefill, self.decode, self.chunk_tokens = prefill, decode, chunk_tokens
        self._contacts = SharedCaches(prefill, decode) if prefill.named else Contacts(prefill, decode)
        self._rows = tuple(kind.row for kind in prefill.kinds)
        ours, theirs = prefill.state, decode.state
        #: of a plan of what travels at the end: the layout of each cache, and the numbers of its kinds
        self._ends = prefill.ends if ours is None else ()
        self._blocks = prefill.blocks if self._ends else ((0, len(self._rows)),)
        #: the plan of what travels at the end: its tokens are slots, or those of a window; None: nothing does
        self.state: Plan | None = None
        if ours is not None and theirs is not None:
            self.state = Plan(ours, theirs, lcm(ours.page_size, theirs.page_size))
        #: chunks of a room's state
        self.state_groups = 0 if self.state is None else _state_groups(self.state)
        #: a room's last cell of so many tokens or fewer is one chunk with its state; 0: it never is
        self.joint_tokens = prefill.joint_tokens(chunk_tokens) if decode.joint else 0
        #: layers of the smallest share: a room has no more layer groups than that
        self.fewest_layers = self._contacts.fewest_layers()
        #: what was asked for: shares by writer, by reader and by both; by reader, the widths of all its shares; by
        #: reader, layer group and how many there are, what lies before a writer's part, and in all of a grant
        self._duties: dict[int, tuple[Share, ...]] = {}
        self._writers: dict[int, tuple[Share, ...]] = {}
        self._linked_to: dict[int, tuple[int, ...]] = {}
        self._owed_widths: dict[int, Widths] = {}
        self._share: dict[tuple[int, ...], Share] = {}
        self._before: dict[tuple[int, ...], Sizes] = {}
        self._sizes: dict[tuple[int, int, int], Sizes] = {}
        #: by reader, and whether a chunk has tokens, and what travels at the end
        self._fan_in: dict[tuple[int, bool, bool], tuple[int, ...]] = {}
        self._end_plans: dict[int, Plan] = {}
        #: by writer, reader, tokens, layer group and how many there are
        self._parts: dict[tuple[int, int, int, int, int], Part] = {}
        self._alike = prefill.page_size == decode.page_size and page_runs(prefill, None) == page_runs(decode, None)

    def of(self, cut: Cut) -> Plan:
        """Return the plan by which this chunk is cut: this one, or that of the state."""
        if not cut.state:
            return self
        if self.state is None:
            raise LayoutError("no-such-chunk", "a chunk of state, and nothing in the layout travels at the end")
        return self.state

    def end_plan(self, at: int) -> Plan:
        """Return the plan of one cache that travels at the end, by its number: always the same one.

        What is prepared for it is found by that.
        """
        known = self._end_plans.get(at)
        if known is None:
            near, far = self.prefill.ends[at], self.decode.ends[at]
            known = self._end_plans.setdefault(at, Plan(near, far, near.page_size))
        return known

    @property
    def shares(self) -> tuple[Share, ...]:
        """All of them, by reader and writer: as many as pairs of ranks that meet."""
        return tuple(share for reader in range(self.decode.ranks) for share in self.writers(reader))

    def duties(self, writer: int) -> tuple[Share, ...]:
        """Return the shares that the writer writes, by reader."""
        known = self._duties.get(writer)
        if known is None:
            known = tuple(self._contacts.owed_by(_known(self.prefill, writer, "writer")))
            self._share |= {(writer, share.reader): share for share in known}
            self._duties[writer] = known
        return known

    def writers(self, reader: int) -> tuple[Share, ...]:
        """Return the shares that the reader gets, by writer: the fan-in of its grants, in the order of parts."""
        known = self._writers.get(reader)
        if known is None:
            known = tuple(self._contacts.owed_to(_known(self.decode, reader, "reader")))
            self._writers[reader] = known
        return known

    def state_readers(self, writer: int) -> tuple[int, ...]:
        """Return the readers that the writer writes state to."""
        return () if self.state is None else tuple(share.reader for share in self.state.duties(writer))

    def state_writers(self, reader: int) -> tuple[int, ...]:
        """Return the writers of the reader's state."""
        return () if self.state is None else tuple(share.writer for share in self.state.writers(reader))

    def linked(self, writer: int) -> tuple[int, ...]:
        """The readers that hold something the writer holds, whichever replica has the duty."""
        return tuple(self._contacts.readers(_known(self.prefill, writer, "writer")))

    def linked_to(self, reader: int) -> tuple[int, ...]:
        """The writers that hold something the reader holds, replicas without a duty included."""
        known = self._linked_to.get(reader)
        if known is None:
            known = tuple(self._contacts.writers(_known(self.decode, reader, "reader")))
            self._linked_to[reader] = known
        return known

    def lead(self, reader: int) -> int:
        """Return the writer of the aux row: the lowest on the last stage that writes to the reader."""
        if self.state is None:
            return self._contacts.lead(_known(self.decode, reader, "reader"))
        writers = [share.writer for share in (*self.writers(reader), *self.state.writers(reader))]
        last = max(writers) // self.prefill.tp
        return min(writer for writer in writers if writer // self.prefill.tp == last)

    def share(self, writer: int, reader: int) -> Share:
        """Return the share that the writer writes for the reader; LayoutError no-duty if there is none."""
        known = self._share.get((writer, reader))
        if known is None:
            self.duties(writer)
            known = _owed(self._share, writer, reader)
        return known

    def overlap(self, writer: int, reader: int) -> Share | None:
        """Return the common KV of the two, whichever replica writes it; None if they are not linked."""
        if _known(self.decode, reader, "reader") not in self._contacts.readers(writer):
            return None
        return self._contacts.meet(writer, reader)

    def cuts(self, shares: Sequence[Share], most: int) -> Iterator[list[Share]]:
        """The shares, and the parts of them of each chunk of rooms of 2, 4, 8 … layer groups, up to so many."""
        groups = 1
        while shares and groups <= min(most, self.fewest_layers):
            yield from ([layers_of(share, group, groups) for share in shares] for group in range(groups))
            groups *= 2

    def state_cuts(self, shares: Sequence[Share]) -> Iterator[list[Share]]:
        """The parts of these shares of state in each chunk of state."""
        groups = self.state_groups
        yield from ([layers_of(share, group, groups) for share in shares] for group in range(groups) if shares)

    @property
    def whole_state(self) -> tuple[Cut, ...]:
        """The largest chunks of what travels at the end, of a room that fills every window."""
        tokens, groups = 0 if self.state is None else self.state.prefill.window, self.state_groups
        return tuple(Cut(tokens, self.joint_tokens, group, groups, state=True) for group in range(groups))

    def _of_end(self, cut: Cut) -> Cut:
        # Rooms longer than every window are alike.
        return cut.of_end(min(cut.end, self.of(cut).prefill.window))

    def fan_in(self, reader: int, cut: Cut) -> tuple[int, ...]:
        """Return the writers of a chunk for the reader."""
        kind = reader, cut.tokens > 0, cut.state
        if kind not in self._fan_in:
            tokens = {share.writer for share in self.writers(reader)} if cut.tokens else set()
            self._fan_in[kind] = tuple(sorted({*tokens, *(self.state_writers(reader) if cut.state else ())}))
        return self._fan_in[kind]

    def part(self, writer: int, reader: int, cut: Cut) -> Part:
        """Return what the writer has of this chunk for the reader; chunks of one size share one object.

        LayoutError: no-duty, or layer-groups where its share has not so many layers.
        """
        if cut.state:
            end = self._of_end(cut)
            if not cut.tokens:
                return self.of(cut).part(writer, reader, end)
            key = writer, reader, cut.tokens, end.tokens, AT_END
        else:
            key = writer, reader, cut.tokens, cut.group, cut.groups
        known = self._parts.get(key)
        if known is None:
            if len(self._parts) >= PARTS:
                self._parts.clear()
            known = self._parts[key] = self._part(writer, reader, cut)
        return known

    def _part(self, writer: int, reader: int, cut: Cut) -> Part:
        if not cut.state:
            share = layers_of(self.share(writer, reader), cut.group, cut.groups)
            return Part(share, self.part_offset(reader, writer, cut), self.part_bytes(share, cut))
        offset = self.part_offset(reader, writer, cut)
        found, nbytes = list[Block](), 0
        for plan, each in self._of_both(cut):
            owed = plan.owed(writer, reader)
            if owed is not None:
                at = -(nbytes // -PART_ALIGNMENT) * PART_ALIGNMENT
                found.append(Block(owed, at, plan.part_bytes(owed, each), plan is not self))
                nbytes = at + found[-1].nbytes
        return Part(found[0].share, offset, nbytes, tuple(found))

    def _of_both(self, cut: Cut) -> tuple[tuple[Plan, Cut], ...]:
        """A joint chunk as the two plans that cut it count it."""
        return (self, cut.only(at_end=False)), (self.of(cut), self._of_end(cut))

    def owed(self, writer: int, reader: int) -> Share | None:
        """Return the share that the writer writes for the reader; None: none is owed."""
        self.duties(writer)
        return self._share.get((writer, reader))

    def part_bytes(self, share: Share, cut: Cut) -> int:
        """Return the bytes of a share in the cut: by kind [each of its layers], each [token, head, bytes].

        Of what travels at the end they are so in each cache's block.
        """
        if cut.state:
            return self.of(cut).part_bytes(share, self._of_end(cut))
        return self._size(self._widths(share), cut)

    def kv_bytes(self, share: Share, cut: Cut) -> int:
        """Return the same without what aligns one cache's rows behind another's."""
        if cut.state:
            return self.of(cut).kv_bytes(share, self._of_end(cut))
        return self._kv_size(self._widths(share), cut)

    def owed_bytes(self, reader: int, cut: Cut) -> int:
        """Return the `kv_bytes` of all that the reader gets in the cut."""
        if cut.state:
            return self.of(cut).owed_bytes(reader, self._of_end(cut))
        widths = self._owed_widths.get(reader)
        if widths is None:
            every = map(self._widths, self.writers(reader))
            widths = self._owed_widths[reader] = tuple(map(sum, zip(*every, strict=True)))
        return self._kv_size(widths, cut) if widths else 0  # a stage without any such cache

    def part_offset(self, reader: int, writer: int, cut: Cut) -> int:
        """Return the offset of the writer's part in the reader's grant of this cut."""
        if cut.state and not cut.tokens:
            return self.of(cut).part_offset(reader, writer, self._of_end(cut))
        if cut.state:
            if writer not in self.fan_in(reader, cut):
                _owed(self._before, writer, reader)
            return sum(plan.bytes_before(reader, writer, each) for plan, each in self._of_both(cut))
        self._lay_out(reader, cut.group, cut.groups)
        return self._aligned(_owed(self._before, writer, reader, cut.group, cut.groups), cut)

    def bytes_before(self, reader: int, writer: int, cut: Cut) -> int:
        """Return the bytes of the parts of those before this writer, which may have none."""
        every = self._lay_out(reader, cut.group, cut.groups)
        later = (share.writer for share in self.writers(reader) if share.writer >= writer)
        return self._aligned(self._before.get((next(later, -1), reader, cut.group, cut.groups), every), cut)

    def grant_bytes(self, reader: int, cut: Cut) -> int:
        """Return the bytes of the reader's grant of this cut, all parts aligned."""
        if cut.state:
            plans = self._of_both(cut) if cut.tokens else ((self.of(cut), self._of_end(cut)),)
            return sum(plan.grant_bytes(reader, each) for plan, each in plans)
        return self._aligned(self._lay_out(reader, cut.group, cut.groups), cut)

    def _widths(self, share: Share) -> Widths:
        if not share.pieces:
            return (share.heads * share.layers * self.prefill.cell_bytes,)
        rows = [row * piece.units * piece.layers for row, piece in zip(self._rows, share.pieces, strict=True)]
        return tuple(sum(rows[first:end]) for first, end in self._blocks)

    def _kv_size(self, widths: Widths, cut: Cut) -> int:
        tokens = _counted(cut)
        rows = [each.last_rows(tokens) for each in self._ends] or [tokens]
        return sum(width * count for width, count in zip(widths, rows, strict=True))

    def _size(self, widths: Widths, cut: Cut) -> int:
        tokens = _counted(cut)
        if not self._ends:
            return widths[0] * tokens
        if len(widths) == 1:
            return widths[0] * self._ends[0].last_rows(tokens)
        rows = [each.last_rows(tokens) for each in self._ends]
        return block_offsets(width * count for width, count in zip(widths, rows, strict=True))[-1]

    def _aligned(self, sizes: Sizes, cut: Cut) -> int:
        total = 0
        for widths, parts in sizes:
            total += -(self._size(widths, cut) // -PART_ALIGNMENT) * PART_ALIGNMENT * parts
        return total

    def direct(self, share: Share, ours: Placement | None = None, theirs: Placement | None = None) -> bool:
        """Whether the share goes page to page in whole pages.

        It does if both sides have all of its heads, pages of the same bytes, and each page of a plane is one run.
        `ours` and `theirs`: the two ranks' placements (None: `dense`).
        """
        if self._fraction(share):
            return False
        if ours is None is theirs:
            return self._alike
        source, target = page_runs(self.prefill, ours), page_runs(self.decode, theirs)
        return self.prefill.page_size == self.decode.page_size and source == target and "" not in source

    def _fraction(self, share: Share) -> str:
        """Return the words for a part with some of a rank's heads only; empty: both ranks have just these."""
        for number, kind in enumerate(self.prefill.kinds):
            units = share.piece(number).units
            for side, layout in (("prefill", self.prefill), ("decode", self.decode)):
                held = units_at(kind.units, layout.tp, 0)[1]
                if units and units != held:
                    heads = f"units of {kind.name}" if share.pieces else "heads"
                    return f"a part has {units} of the {side} rank's {held} {heads}, a fraction of every page"
        return ""

    def why_staged(self, share: Share, ours: Placement | None, theirs: Placement | None) -> str:
        """Say why the share does not go page to page in whole pages; empty: it does."""
        closed = closed_between(ours, theirs)
        if closed or self.direct(share, ours, theirs):
            return closed
        if fraction := self._fraction(share):
            return fraction
        sides = (("prefill", self.prefill, ours), ("decode", self.decode, theirs))
        for side, layout, placement in sides:
            if "" in page_runs(layout, placement):
                return f"a page of the {side} rank's pool is not one run of bytes"
        if self.prefill.page_size != self.decode.page_size:
            return (
                f"pages of {self.prefill.page_size} tokens on the prefill side, of {self.decode.page_size} on the other"
            )
        return "the two sides have the tokens and heads of a page in different order"

    def admit(self, tokens: int, prefix: int) -> int:
        """Return the chunks of a room whose first `prefix` tokens D has; refuse a prefix inside a page.

        A full hit (prefix = tokens) moves no KV, so it may end anywhere.
        """
        if prefix % self.decode.page_size and prefix != tokens:
            size = self.decode.page_size
            raise LayoutError("prefix-off-page", f"prefix {prefix} is not whole pages of {size}: shorten it")
        return chunks(tokens, prefix, self.chunk_tokens)

    def _lay_out(self, reader: int, group: int, groups: int) -> Sizes:
        """Note what lies before each part; parts of one size are counted: a look-up costs the sizes."""
        known = self._sizes.get((reader, group, groups))
        if known is None:
            sizes: Counter[Widths] = Counter()
            for share in self.writers(reader):
                self._before[share.writer, reader, group, groups] = tuple(sizes.items())
                sizes[self._widths(layers_of(share, group, groups))] += 1
            known = self._sizes[reader, group, groups] = tuple(sizes.items())
        return known


@lru_cache(maxsize=16)
def plan_between(prefill: Layout, decode: Layout, chunk_tokens: int) -> Plan:
    """The plan of these two layouts, made once: every rank of a group calls, and each asks for the same."""
    return Plan(prefill, decode, chunk_tokens)


def _state_groups(state: Plan) -> int:
    """Return the chunks of the state, as its cache says; LayoutError: some share has fewer layers."""
    groups = state.prefill.named[0].groups
    if groups > state.fewest_layers:
        told = f"{groups} groups of state, and the smallest share has {state.fewest_layers} layers"
        raise LayoutError("layer-groups", f"{told}: cut it into no more groups than that")
    return groups


def _counted(cut: Cut) -> int:
    if cut.tokens < 0:
        raise LayoutError("negative-tokens", f"{cut.tokens} tokens; take the count from a cut")
    return cut.tokens


def _known(side: Layout, rank: int, name: str) -> int:
    if not 0 <= rank < side.ranks:
        raise LayoutError("no-such-rank", f"{name} {rank!r}; the group has {side.ranks} ranks, from 0")
    return rank


def _owed(table: dict[tuple[int, ...], T], writer: int, reader: int, *group: int) -> T:
    try:
        return table[writer, reader, *group]
    except KeyError:
        raise LayoutError("no-duty", f"writer {writer!r} has no duty towards reader {reader!r}; see duties()") from None
