"""Who writes what to whom: the plan that both ends derive from the same two layouts.

Ranks hold intervals of heads and of layers (`kvproto.layout.sharding`), so all of the planning is one idea: **what a
prefill rank owes a decode rank is the overlap of two intervals of heads and two intervals of layers**. No ratio of
the two tensor-parallel sizes appears anywhere; 6 ranks serve 4 as simply as 4 serve 2.

Writers with the same heads and layers are replicas, and for each reader exactly one of them writes: readers take
turns over the replicas, in reader order, so no replica has two duties more than another. The others remain *linked*
to the reader: they share its rooms, its aborts and its outcome, but post nothing.

The aux row of a reader comes from its *lead*. Its content (the first token) is born on the last prefill stage, so the
lead is on the last stage that writes to the reader. If the decode side has stages too, its early readers may hear
only from early writers; the engine then hands the content to these leads.

A plan is built once a pair of groups, at the handshake, and is then read from dictionaries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from kvproto.layout.sharding import Interval, Layout, LayoutError, Reason, chunks

PART_ALIGNMENT: Final = 256  #: bytes; every part of a grant starts at a multiple, so every grant does
_AGREED: Final[tuple[tuple[str, Reason], ...]] = (
    ("layers", "layers-differ"),
    ("heads", "heads-differ"),
    ("k_dim", "k-dim-differs"),
    ("v_dim", "v-dim-differs"),
    ("itemsize", "itemsize-differs"),
    ("dtype", "dtype-differs"),
)

Holding = tuple[Interval, Interval]  #: (heads, layers) of one rank
Sizes = tuple[tuple[int, int], ...]  #: parts as (bytes a token, how many such parts)
T = TypeVar("T")


class Share(msgspec.Struct, frozen=True, cache_hash=True):
    """What one writer (a P rank) writes for one reader (a D rank); offsets count in each rank's own pool."""

    writer: int
    reader: int
    src_head: int
    dst_head: int
    heads: int
    src_layer: int
    dst_layer: int
    layers: int


class Plan:
    """All shares between a prefill and a decode group: every (reader, head, layer) exactly once.

    Both sides build it, once, and from then on only look up. Sizes are bytes, tokens are counts.
    Raises `LayoutError` if the two layouts, or the grid (tokens a cell), do not go together.
    """

    __slots__ = ("_before", "_duties", "_lead", "_linked", "_linked_to", "_share", "_sizes", "_whole_rows", "_writers",
                 "decode", "grid", "prefill", "shares")  # fmt: skip

    def __init__(self, prefill: Layout, decode: Layout, grid: int) -> None:
        _agree(prefill, decode, grid)
        self.prefill, self.decode, self.grid = prefill, decode, grid
        contacts = sorted(_contacts(prefill, decode), key=lambda contact: (contact[0].reader, contact[0].writer))
        self.shares: tuple[Share, ...] = tuple(share for share, _ in contacts)
        self._share = {(share.writer, share.reader): share for share in self.shares}
        ours, theirs = range(prefill.ranks), range(decode.ranks)
        pairs = [(writer, share.reader) for share, replicas in contacts for writer in replicas]
        self._duties = _index(ours, ((share.writer, share) for share in self.shares))
        self._writers = _index(theirs, ((share.reader, share) for share in self.shares))
        self._linked = _index(ours, pairs)
        self._linked_to = _index(theirs, ((reader, writer) for writer, reader in pairs))
        self._lead = {rank: self._leader(owed) for rank, owed in self._writers.items()}
        self._before: dict[tuple[int, int], Sizes] = {}
        self._sizes = {rank: self._lay_out(rank) for rank in self._writers}
        same_page = prefill.page_size == decode.page_size and prefill.local_heads == decode.local_heads
        one_order = prefill.order == decode.order or prefill.page_size == 1 or prefill.local_heads == 1
        self._whole_rows = prefill.local_heads if same_page and one_order else 0

    def duties(self, writer: int) -> tuple[Share, ...]:
        """What the writer writes, by reader."""
        return _of_rank(self._duties, writer, "writer")

    def writers(self, reader: int) -> tuple[Share, ...]:
        """What the reader receives, by writer: the fan-in of each of its grants, in the order of the parts."""
        return _of_rank(self._writers, reader, "reader")

    def linked(self, writer: int) -> tuple[int, ...]:
        """The readers that hold something the writer holds, whichever replica has the duty."""
        return _of_rank(self._linked, writer, "writer")

    def linked_to(self, reader: int) -> tuple[int, ...]:
        """The writers that hold something the reader holds, replicas without a duty included."""
        return _of_rank(self._linked_to, reader, "reader")

    def lead(self, reader: int) -> int:
        """The writer that sends the aux row: the lowest with a duty on the last stage that writes to the reader."""
        return _of_rank(self._lead, reader, "reader")

    def share(self, writer: int, reader: int) -> Share:
        """What the writer writes for the reader; `LayoutError` no-duty if that is nothing."""
        return _owed(self._share, writer, reader)

    def overlap(self, writer: int, reader: int) -> Share | None:
        """What the two hold in common, whoever has the duty to write it; None if they are not linked."""
        meeting = _meet(_holding(self.prefill, writer), _holding(self.decode, reader))
        return meeting and Share(writer, reader, *meeting)

    def part_bytes(self, share: Share, tokens: int) -> int:
        """Bytes of the share's part for so many tokens: [K of each layer | V of each], each [token, head, dim]."""
        return share.heads * share.layers * self.prefill.cell_bytes * _counted(tokens)

    def part_offset(self, reader: int, writer: int, tokens: int) -> int:
        """Where the writer's part begins in the reader's grant for a cell of so many tokens."""
        return _aligned(_owed(self._before, writer, reader), tokens)

    def grant_bytes(self, reader: int, tokens: int) -> int:
        """Bytes of the reader's grant for a cell of so many tokens, all parts aligned."""
        return _aligned(_of_rank(self._sizes, reader, "reader"), tokens)

    def direct(self, share: Share) -> bool:
        """Whether the share can go page to page: whole rows on both sides, and pages of the same bytes."""
        return share.heads == self._whole_rows

    def admit(self, tokens: int, prefix: int) -> int:
        """The number of chunks of a room whose first `prefix` tokens D has; refuses a prefix that ends inside a page.

        A full hit (prefix = tokens) moves no KV, so it may end anywhere.
        """
        if prefix % self.decode.page_size and prefix != tokens:
            size = self.decode.page_size
            raise LayoutError("prefix-off-page", f"prefix {prefix} is not whole pages of {size}: shorten it")
        return chunks(tokens, prefix, self.grid)

    def _leader(self, owed: tuple[Share, ...]) -> int:
        last = max(share.writer // self.prefill.tp for share in owed)
        return min(share.writer for share in owed if share.writer // self.prefill.tp == last)

    def _lay_out(self, reader: int) -> Sizes:
        """Note what lies before each part; parts of one size are counted: a look-up costs the sizes."""
        sizes: Counter[int] = Counter()
        for share in self._writers[reader]:
            self._before[share.writer, reader] = tuple(sizes.items())
            sizes[self.part_bytes(share, 1)] += 1
        return tuple(sizes.items())


@lru_cache(maxsize=16)
def plan_between(prefill: Layout, decode: Layout, grid: int) -> Plan:
    """The plan of these two layouts, made once: large ones take a tenth of a second, and every rank calls."""
    return Plan(prefill, decode, grid)


def _agree(prefill: Layout, decode: Layout, grid: int) -> None:
    for name, reason in _AGREED:
        ours, theirs = getattr(prefill, name), getattr(decode, name)
        if ours != theirs:
            raise LayoutError(reason, f"{name} is {ours} on the prefill side and {theirs} on the decode side")
    if grid < 1:
        raise LayoutError("grid-not-positive", f"the grid is {grid} tokens; derive it with grid_tokens()")
    if grid % prefill.page_size or grid % decode.page_size:
        pages = f"pages of {prefill.page_size} (prefill) and {decode.page_size} (decode)"
        raise LayoutError("grid-not-whole-pages", f"a grid of {grid} tokens is not whole {pages}; use grid_tokens()")


def _contacts(prefill: Layout, decode: Layout) -> Iterator[tuple[Share, list[int]]]:
    """Each share, with all the writers that could have written it: replicas take turns, by reader."""
    replicas: dict[Holding, list[int]] = {}
    for writer in range(prefill.ranks):
        replicas.setdefault(_holding(prefill, writer), []).append(writer)
    turns = dict.fromkeys(replicas, 0)
    for reader in range(decode.ranks):
        wanted = _holding(decode, reader)
        for held, group in replicas.items():
            if meeting := _meet(held, wanted):
                yield Share(group[turns[held] % len(group)], reader, *meeting), group
                turns[held] += 1


def _holding(layout: Layout, rank: int) -> Holding:
    return layout.heads_of(rank), layout.layers_of(rank)


def _meet(held: Holding, wanted: Holding) -> tuple[int, int, int, int, int, int] | None:
    """(source, target, count) of the heads and of the layers in common, offsets local to each side."""
    heads, layers = (_common(ours, theirs) for ours, theirs in zip(held, wanted, strict=True))
    return heads + layers if heads[2] > 0 and layers[2] > 0 else None


def _common(ours: Interval, theirs: Interval) -> tuple[int, int, int]:
    first = max(ours[0], theirs[0])
    return first - ours[0], first - theirs[0], min(sum(ours), sum(theirs)) - first


def _index(keys: range, pairs: Iterable[tuple[int, T]]) -> dict[int, tuple[T, ...]]:
    table: dict[int, list[T]] = {key: [] for key in keys}
    for key, value in pairs:
        table[key].append(value)
    return {key: tuple(values) for key, values in table.items()}


def _aligned(sizes: Sizes, tokens: int) -> int:
    _counted(tokens)
    return sum(-(size * tokens // -PART_ALIGNMENT) * PART_ALIGNMENT * parts for size, parts in sizes)


def _counted(tokens: int) -> int:
    if tokens < 0:
        raise LayoutError("negative-tokens", f"{tokens} tokens; take the count from cell()")
    return tokens


def _of_rank(table: dict[int, T], rank: int, side: str) -> T:
    try:
        return table[rank]
    except KeyError:
        raise LayoutError("no-such-rank", f"{side} {rank!r}; the group has {len(table)} ranks, from 0") from None


def _owed(table: dict[tuple[int, int], T], writer: int, reader: int) -> T:
    try:
        return table[writer, reader]
    except KeyError:
        raise LayoutError("no-duty", f"writer {writer!r} has no duty towards reader {reader!r}; see duties()") from None
