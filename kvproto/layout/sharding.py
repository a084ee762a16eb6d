"""Sharding: how a group of ranks shards its KV cache.

Tensor parallelism cuts the heads, pipeline stages cut the layers, rooms are cut into cells. All cuts are *intervals*:

* Heads. With tp <= heads a rank holds ``heads / tp`` consecutive heads. With tp > heads, ``tp / heads`` consecutive
  ranks are replicas that hold the same single head. Only the rank's place in its stage counts, never its index in
  the group. A tp that neither divides nor is a multiple of the heads is refused.
* Layers. Stages hold consecutive blocks of layers: as many each as ``stages`` says; where it says nothing,
  ``layers // pp``, and the last ``layers % pp`` stages one more (the first stage also carries the embedding).
* Tokens. A room's are cut into cells (`kvproto.layout.cut`), each of whole pages of both sides, so that page sizes may
  differ.

A layout comes off the wire, so its constructor validates it, within bounds that make a hostile one cheap to refuse.
Copies are bit copies: a dtype is a name to compare, an itemsize a number of bytes. Elements smaller than a byte are
described by the bytes that they are packed into.

A layout with named caches (`kvproto.layout.caches`, `Layout.of_caches`) has units and rows by part. Its heads and dims
then say nothing, and its dtype is a name that no other layout has: a build that does not know caches refuses it. """

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from math import lcm
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from kvproto.errors import KvprotoError
from kvproto.layout.caches import ALL, MAX_CACHES, MAX_NAME, WIDEST, Cache, Kind, kinds_of, wrong_caches

Order = Literal["NHD", "HND"]
Reason = Literal[
    "bad-field",
    "heads-do-not-divide",
    "replicas-do-not-divide",
    "too-many-ranks",
    "fewer-layers-than-stages",
    "stages-do-not-add-up",
    "layers-differ",
    "heads-differ",
    "k-dim-differs",
    "v-dim-differs",
    "itemsize-differs",
    "dtype-differs",
    "bad-caches",
    "caches-differ",
    "chunk-tokens-not-positive",
    "chunk-tokens-not-whole-pages",
    "no-such-rank",
    "no-duty",
    "negative-tokens",
    "prefix-outside-room",
    "prefix-off-page",
    "no-such-chunk",
    "layer-groups",
    "table-too-short",
    "negative-page",
]

DEFAULT_CHUNK_TOKENS: Final = 8192  #: tokens a cell aims at when the prefill side is not chunked
PART_ALIGNMENT: Final = 256  #: bytes; every part of a grant starts at a multiple, so every grant does
MAX_RANKS: Final = 512  #: ranks in a group; what a rank works out of a plan costs as many at most

_BOUNDS: Final = (
    ("layers", 1, 1 << 16),
    ("heads", 1, 1 << 16),
    ("k_dim", 1, 1 << 20),
    ("v_dim", 0, 1 << 20),
    ("itemsize", 1, 16),
    ("page_size", 1, 1 << 20),
    ("tp", 1, MAX_RANKS),
    ("pp", 1, MAX_RANKS),
)

Interval = tuple[int, int]  #: (first, count)
Stages = Annotated[tuple[int, ...], msgspec.Meta(max_length=MAX_RANKS)]
Caches = Annotated[tuple[Cache, ...], msgspec.Meta(max_length=MAX_CACHES)]
#: the dtype of a layout whose caches are named; its heads, K dim, V dim and element bytes
NAMED: Final = "named caches"
UNUSED: Final = (1, 1, 0, 1)


class LayoutError(KvprotoError, ValueError):
    """A refused layout, pair of layouts or room: ``reason`` is a name, ``sentence`` cause and remedy."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(reason, sentence)
        self.reason: Reason = reason
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.reason}: {self.sentence}"


class Layout(msgspec.Struct, frozen=True, cache_hash=True):
    """How one group of ranks holds its KV cache. Rank index: ``stage * tp + place``. Raises `LayoutError`."""

    layers: int  #: of the whole model
    heads: int  #: KV heads of the whole model
    k_dim: int  #: elements of K a head
    v_dim: int  #: elements of V a head; 0: there is no V at all
    itemsize: int  #: bytes an element
    dtype: str  #: a name, equal on both sides
    page_size: int  #: tokens a page
    tp: int
    pp: int = 1
    order: Order = "NHD"  #: of a pool tensor; NHD: [page, token, head, dim], HND: [page, head, token, dim]
    stages: Stages = ()  #: layers of each stage, the first one's first; empty: near-equal, the last ones larger
    caches: Caches | UnsetType = UNSET  #: named caches in one page table; left out: one cache of K and V
    #: a room's last tokens may be one chunk with what travels at the end, if both sides say so
    joint: bool | UnsetType = UNSET

    @classmethod
    def of_caches(
        cls, caches: Sequence[Cache], *, layers: int, page_size: int, tp: int, pp: int = 1, order: Order = "NHD",
        stages: Stages = (), joint: bool = True,
    ) -> Layout:  # fmt: skip
        """Return the layout of a model with these caches; the other arguments are the fields of that name."""
        if not isinstance(caches, Sequence):
            raise LayoutError("bad-field", f"caches is {caches!r}; it must be a sequence of caches")
        both = {getattr(cache, "travels", ALL) for cache in caches} > {ALL}
        return cls(
            layers, *UNUSED, NAMED, page_size, tp, pp, order, stages, tuple(caches), (joint and both) or UNSET
        )  # fmt: skip

    def __post_init__(self) -> None:
        for name, low, high in _BOUNDS:
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise LayoutError("bad-field", f"{name} is {value!r}; it must be an int from {low} to {high}")
        if not isinstance(self.dtype, str) or not 0 < len(self.dtype) <= MAX_NAME:
            raise LayoutError("bad-field", f"dtype is {self.dtype!r}; it must be a name of 1 to {MAX_NAME} characters")
        if not isinstance(self.order, str) or self.order not in get_args(Order):
            raise LayoutError("bad-field", f"order is {self.order!r}; it must be 'NHD' or 'HND'")
        if self.ranks > MAX_RANKS:
            raise LayoutError("too-many-ranks", f"tp {self.tp} x pp {self.pp}; a group has at most {MAX_RANKS} ranks")
        self._check_stages()
        if self.tp <= self.heads and self.heads % self.tp:
            raise LayoutError("heads-do-not-divide", f"{self.heads} heads on tp {self.tp}; tp must divide the heads")
        if self.tp > self.heads and self.tp % self.heads:
            raise LayoutError(
                "replicas-do-not-divide", f"{self.heads} heads on tp {self.tp}; tp must be a multiple of the heads"
            )
        if self.caches is not UNSET:
            self._check_caches()

    @property
    def ranks(self) -> int:
        """Ranks of the group."""
        return self.tp * self.pp

    @property
    def local_heads(self) -> int:
        """Heads in the pool of each rank."""
        return max(1, self.heads // self.tp)

    @property
    def cell_bytes(self) -> int:
        """Bytes of K and V of one token in one head of one layer."""
        return (self.k_dim + self.v_dim) * self.itemsize

    def heads_of(self, rank: int) -> Interval:
        """(first, count) of the heads that the rank holds."""
        return units_at(self.heads, self.tp, self._checked_rank(rank) % self.tp)

    def layers_of(self, rank: int) -> Interval:
        """(first, count) of the layers that the rank holds."""
        stage = self._checked_rank(rank) // self.tp
        if self.stages:
            return sum(self.stages[:stage]), self.stages[stage]
        each, more = divmod(self.layers, self.pp)
        late = stage - (self.pp - more)  # how many of the larger stages come before this one, if any
        return stage * each + max(0, late), each + (late >= 0)

    @property
    def named(self) -> tuple[Cache, ...]:
        """The named caches; none in a layout of K and V."""
        return self.caches or ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The parts of all caches in the order of staged parts: K and V, or those of the named caches.

        Of caches of which every token travels; in the layout of what travels at the end, the parts of that.
        """
        return _kinds(self)

    @property
    def state(self) -> Layout | None:
        """How all that travels at the end is held, as one layout; None: nothing does, or this is it."""
        return _state(self)

    @property
    def ends(self) -> tuple[Layout, ...]:
        """The layout of each cache that travels at the end, by name; a page of state is a slot."""
        return _ends(self)

    @property
    def blocks(self) -> tuple[Interval, ...]:
        """Numbers (first, end) of the kinds of each cache, in the layout of what travels at the end."""
        ends = list(accumulate((len(each.kinds) for each in self.ends), initial=0))
        return tuple(pairwise(ends))

    @property
    def name(self) -> str:
        """In a layout of one cache: its name."""
        return self.named[0].name

    @property
    def window(self) -> int:
        """In a layout of what travels at the end: tokens of its longest window; 0: there is none."""
        return max((cache.window for cache in self.named), default=0)

    def last_rows(self, tokens: int) -> int:
        """In a layout of `ends`: the rows of each unit that travel after so many tokens."""
        return min(tokens, self.window) if self.window else 1

    def first_row(self, tokens: int) -> int:
        """In a layout of `ends`: the place of its first row in the first of its pages."""
        return max(0, tokens - self.window) % self.page_size if self.window else 0

    def units_of(self, kind: Kind, rank: int) -> Interval:
        """(first, count) of the kind's units that the rank holds."""
        return units_at(kind.units, self.tp, self._checked_rank(rank) % self.tp)

    def rows_of(self, kind: Kind, rank: int) -> Interval:
        """(first, count) of the kind's layers that the rank holds, counted among the kind's own."""
        first, layers = self.layers_of(rank)
        begin = bisect_left(kind.layers, first)
        return begin, bisect_left(kind.layers, first + layers) - begin

    def held_bytes(self, rank: int) -> int:
        """Bytes of one token in all that the rank holds."""
        held = ((kind.row, self.units_of(kind, rank)[1], self.rows_of(kind, rank)[1]) for kind in self.kinds)
        return sum(row * units * layers for row, units, layers in held)

    def slot_bytes(self, rank: int, chunk_tokens: int) -> int:
        """Bytes of a rank's largest staged part: a chunk of all that it holds, or one at the end."""
        held = self.held_bytes(rank)
        at_end, joint = 0 if self.state is None else self.state.group_bytes(rank), self.joint_tokens(chunk_tokens)
        return max(chunk_tokens * held, at_end + (joint * held + PART_ALIGNMENT if joint else 0))

    def fitted(self, room: int, chunk_tokens: int) -> Layout:
        """Return this layout, without joint chunks if a part of one may take more than so many bytes."""
        if not self.joint or max(self.slot_bytes(rank, chunk_tokens) for rank in range(self.ranks)) <= room:
            return self
        return replace(self, joint=UNSET)

    def joint_tokens(self, chunk_tokens: int) -> int:
        """Return how many last tokens of a room may be one chunk with what travels at the end; 0: none may.

        The chunk saves a room of few tokens a message of each kind, a gather and a write.  It may be a quarter larger
        than the largest of others, since slots and regions have to hold it.  A whole cell is never part of one.
        """
        if not self.joint or self.state is None or self.state.named[0].groups > 1:
            return 0
        token = _model_bytes(self)
        at_end = sum(each.last_rows(each.window) * _model_bytes(each) for each in self.ends)
        most = max(chunk_tokens * token, at_end) * 5 // 4
        return min(chunk_tokens - 1, (most - at_end) // token)

    def group_bytes(self, rank: int) -> int:
        """Bytes that a group of layers of what travels at the end has at most, by its heaviest layers."""
        weights = Counter[int]()
        for each in self.ends:
            rows = each.last_rows(each.window)
            for kind in each.kinds:
                first, held = each.rows_of(kind, rank)
                for layer in kind.layers[first : first + held]:
                    weights[layer] += rows * kind.row * each.units_of(kind, rank)[1]
        layers = -(-len(weights) // self.named[0].groups)
        gaps = WIDEST * (len(self.ends) - 1)
        return sum(sorted(weights.values())[len(weights) - layers :]) + (gaps if weights else 0)

    def _check_caches(self) -> None:
        if why := wrong_caches(self.caches, self.layers):
            raise LayoutError("bad-caches", why)
        if (self.heads, self.k_dim, self.v_dim, self.itemsize, self.dtype) != (*UNUSED, NAMED):
            raise LayoutError("bad-caches", "heads, dims, itemsize or dtype beside caches: use Layout.of_caches")
        every = kinds_of(self.named, self.layers)
        for kind in every:
            if kind.units % self.tp and self.tp % kind.units:
                raise LayoutError("heads-do-not-divide", f"{kind.units} units of {kind.name} on tp {self.tp}")
        if all(cache.travels != ALL for cache in self.named):
            return  # the state of a layout, some of whose stages may have none
        held = {layer for kind in every for layer in kind.layers}
        for stage in range(self.pp):
            first, layers = self.layers_of(stage * self.tp)
            if held.isdisjoint(range(first, first + layers)):
                last = first + layers - 1
                raise LayoutError("bad-caches", f"no cache has a layer of stage {stage} ({first}..{last})")

    def _check_stages(self) -> None:
        if self.layers < self.pp:
            raise LayoutError("fewer-layers-than-stages", f"{self.layers} layers cannot fill {self.pp} stages")
        if isinstance(self.stages, tuple) and not self.stages:
            return
        whole = isinstance(self.stages, tuple) and all(type(held) is int and held > 0 for held in self.stages)
        if not whole:
            raise LayoutError("bad-field", f"stages is {self.stages!r}; it must be a tuple of layers a stage, each > 0")
        if (len(self.stages), sum(self.stages)) != (self.pp, self.layers):
            raise LayoutError(
                "stages-do-not-add-up",
                f"{len(self.stages)} stages of {sum(self.stages)} layers for pp {self.pp} and {self.layers} layers; "
                "name the layers of each stage once",
            )

    def _checked_rank(self, rank: int) -> int:
        if not 0 <= rank < self.ranks:
            raise LayoutError("no-such-rank", f"rank {rank!r} in a group of {self.ranks}; ranks count from 0")
        return rank


@lru_cache(maxsize=64)
def _kinds(layout: Layout) -> tuple[Kind, ...]:
    if layout.named:
        return kinds_of([cache for cache in layout.named if cache.travels == ALL] or layout.named, layout.layers)
    dims = (("k", layout.k_dim), ("v", layout.v_dim))
    every = range(layout.layers)
    return tuple(Kind("kv", part, layout.heads, dim * layout.itemsize, every) for part, dim in dims if dim)


def _model_bytes(layout: Layout) -> int:
    """Bytes of a row of all kinds, in the whole model."""
    return sum(kind.row * kind.units * len(kind.layers) for kind in layout.kinds)


@lru_cache(maxsize=64)
def _state(layout: Layout) -> Layout | None:
    last = [cache for cache in layout.named if cache.travels != ALL]
    return None if len(last) in (0, len(layout.named)) else _of(layout, last)


@lru_cache(maxsize=64)
def _ends(layout: Layout) -> tuple[Layout, ...]:
    last = sorted((cache for cache in layout.named if cache.travels != ALL), key=lambda cache: cache.name)
    return tuple(_of(layout, [cache]) for cache in last)


def _of(layout: Layout, last: list[Cache]) -> Layout:
    size = layout.page_size if any(cache.window for cache in last) else 1
    return Layout.of_caches(
        last, layers=layout.layers, page_size=size, tp=layout.tp, pp=layout.pp, order=layout.order, stages=layout.stages
    )


def units_at(units: int, tp: int, place: int) -> Interval:
    """(first, count) of the units at a place: a block of them, or one that `tp / units` places hold."""
    if tp > units:
        return place * units // tp, 1
    return place * (units // tp), units // tp


def align_chunk_tokens(chunked_prefill: int | None, page_p: int, page_d: int) -> int:
    """Return the tokens of a cell: the prefill chunk (None: not chunked), in whole pages of both sides."""
    aim = DEFAULT_CHUNK_TOKENS if chunked_prefill is None else chunked_prefill
    if min(aim, page_p, page_d) < 1:
        raise LayoutError(
            "chunk-tokens-not-positive", f"chunk {aim}, pages {page_p} and {page_d}; None means 'not chunked'"
        )
    unit = lcm(page_p, page_d)
    return max(unit, aim // unit * unit)
