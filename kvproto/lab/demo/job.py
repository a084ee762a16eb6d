"""Job: the values from which every process of a demonstration derives the same numbers.

Nothing here is computed from what was transferred. The parent, the oracle and the ranks each hold the same `DemoJob`
and agree through it on weights (seed), prompts (seed and room), layouts and chunk boundaries. It is plain data, so
that the parent, which draws the progress bar, need not load torch.

The number of query heads is not an option: it is the smallest multiple of the KV heads that both groups can split
evenly, at least two a KV head, so that grouped-query attention and its replicas are always exercised.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import ClassVar, Literal

from kvproto.layout.sharding import Layout

Side = Literal["prefill", "decode"]
ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}


@dataclass(frozen=True)
class GroupShape:
    """One engine: `tp * pp` ranks, pages of `page_size` tokens, in-page order NHD or HND."""

    tp: int
    pp: int = 1
    page_size: int = 16
    order: Literal["NHD", "HND"] = "NHD"

    @property
    def ranks(self) -> int:
        return self.tp * self.pp


@dataclass(frozen=True)
class RoomSpec:
    """One request: `tokens` of prompt, of which D already holds `prefix`, then `new` greedy tokens on D."""

    room: int
    tokens: int
    prefix: int = 0
    new: int = 8


@dataclass(frozen=True)
class DemoJob:
    """The whole run. `dtype` is the KV's; with float8 KV the model itself computes in bfloat16."""

    judge: ClassVar[str] = "kvproto.lab.demo.oracle:program"
    prefill: GroupShape
    decode: GroupShape
    rooms: tuple[RoomSpec, ...]
    family: Literal["llama", "qwen3"] = "llama"
    dtype: str = "bfloat16"
    layers: int = 4
    heads: int = 4  # KV heads
    dim: int = 16  # elements a head, of K and of V
    vocab: int = 997
    std: float = 0.2  # of a weight in a model of 64; wide enough that greedy tokens keep changing
    width: int = 0  # of the hidden states; 0: as small as the heads allow
    chunk: int = 64  # tokens a forward of the chunked prefill
    seed: int = 0
    spare: int = 8  # pages of each pool that no room uses: they must come out unchanged

    def __post_init__(self) -> None:
        if self.dtype not in ITEMSIZE:
            raise ValueError(f"dtype {self.dtype!r} is not one of {', '.join(ITEMSIZE)}")
        if self.dim % 2:
            raise ValueError(f"{self.dim} elements a head: rotary positions need an even number")
        if self.width % self.query_heads:
            raise ValueError(f"hidden states of {self.width}: they must divide into {self.query_heads} query heads")
        if self.chunk < 1 or not self.rooms:
            raise ValueError("a job needs at least one room and a chunk of at least one token")
        if len({r.room for r in self.rooms}) != len(self.rooms):
            raise ValueError("two rooms of one job share an id")
        for r in self.rooms:
            if not (r.tokens >= 1 and 0 <= r.prefix <= r.tokens and r.new >= 1):
                raise ValueError(f"room {r.room}: need 0 <= prefix <= tokens, tokens >= 1, new >= 1; got {r}")

    @property
    def about(self) -> str:
        return f"{self.layers} layers, {self.heads} KV heads"

    @property
    def query_heads(self) -> int:
        least = lcm(self.heads, self.prefill.tp, self.decode.tp)
        return least if least >= 2 * self.heads else 2 * least

    @property
    def hidden(self) -> int:
        """As asked for; or at least 64, and what the configurations ask for: a multiple of the query heads."""
        return self.width or -(-64 // self.query_heads) * self.query_heads

    @property
    def spread(self) -> float:
        """Standard deviation of a weight: sums over hidden states come out alike whatever their width."""
        return self.std * (64 / self.width) ** 0.5 if self.width else self.std

    @property
    def compute(self) -> str:
        return "bfloat16" if self.dtype == "float8_e4m3fn" else self.dtype

    def shape(self, side: Side) -> GroupShape:
        return self.prefill if side == "prefill" else self.decode

    def layout(self, side: Side) -> Layout:
        """Return the layout of `side`'s group, as both ends exchange it."""
        shape = self.shape(side)
        return Layout(
            layers=self.layers, heads=self.heads, k_dim=self.dim, v_dim=self.dim,
            itemsize=ITEMSIZE[self.dtype], dtype=self.dtype, page_size=shape.page_size,
            tp=shape.tp, pp=shape.pp, order=shape.order,
        )  # fmt: skip

    def pages_of(self, side: Side, room: RoomSpec) -> int:
        """Pages that hold the prompt and, on D, what is generated after it."""
        tokens = room.tokens + (room.new if side == "decode" else 0)
        return -(-tokens // self.shape(side).page_size)

    def pool_pages(self, side: Side) -> int:
        return sum(self.pages_of(side, room) for room in self.rooms) + self.spare
