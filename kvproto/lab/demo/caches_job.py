"""Caches job: a run of the demonstration with a model of several caches, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from kvproto.lab.demo.family import VOCAB
from kvproto.lab.demo.job import GroupShape, RoomSpec, Side
from kvproto.lab.demo.run import Carrier, Staging
from kvproto.layout.sharding import align_chunk_tokens

DTYPES = "bfloat16", "float32"
#: ranks that may share the heads of every family, and stages that its layers may have
RANKS, STAGES = (1, 2, 4, 8), 4


@dataclass(frozen=True)
class CachesJob:
    """The values from which every process derives the same model, prompts and layouts."""

    family: str
    prefill: GroupShape
    decode: GroupShape
    rooms: tuple[RoomSpec, ...]
    dtype: str = "bfloat16"
    chunk: int = 64  # tokens a forward of the chunked prefill
    seed: int = 0
    vocab: int = VOCAB

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype} with --model {self.family}; it computes in {' or '.join(DTYPES)}")
        for shape in (self.prefill, self.decode):
            if shape.tp not in RANKS or shape.pp > STAGES:
                raise ValueError(
                    f"tp {shape.tp} x pp {shape.pp} with --model {self.family}: {', '.join(map(str, RANKS))} ranks can"
                    f" share its heads, and {STAGES} stages its layers"
                )

    def shape(self, side: Side) -> GroupShape:
        return self.prefill if side == "prefill" else self.decode

    @property
    def chunk_tokens(self) -> int:
        """Tokens a chunk: a forward's, in whole pages of both sides."""
        return align_chunk_tokens(self.chunk, self.prefill.page_size, self.decode.page_size)


@dataclass(frozen=True)
class CachesRun:
    """`ring`: staging memory of a D rank, in bytes if `in_bytes`, else in its largest chunks."""

    job: CachesJob
    ring: float = 4.0
    in_bytes: bool = False
    transport: Carrier = "nixl"
    staging: Staging = "device"
    grant_wait: float = 1.0
    slots: int = 4
    window: int = 4
    maps: bool = False  # pages are on the CPU, where nothing is mapped
    keys: str | None = None  # the secret file that all ranks share: an encrypted control plane
    limit_s: float = 60.0  # the longest that a phase may take
