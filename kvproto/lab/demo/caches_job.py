"""Caches job: the values from which all processes of a run with several caches derive the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kvproto.lab.demo.family import FAMILIES, VOCAB
from kvproto.lab.demo.job import GroupShape, RoomSpec, Side

DTYPES = "bfloat16", "float32"
#: ranks that may share the heads of every family, and stages that its layers may have
RANKS, STAGES = (1, 2, 4, 8), 4


@dataclass(frozen=True)
class CachesJob:
    """The whole run.  Layouts are the library's own cache's: a process without the model has none."""

    judge: ClassVar[str] = "kvproto.lab.demo.caches_model:judge"
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
    def about(self) -> str:
        return FAMILIES[self.family].has
