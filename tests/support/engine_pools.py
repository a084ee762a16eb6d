"""Engine pools: caches as engines make them, filled and judged by their dimensions' names alone.

A `Form` says what an engine allocates: a letter a dimension (see `kvproto.adapters.geometry`), a tensor a layer or one
of all, K and V in one row, in one tensor, or apart.  What a token's row is, and where it is, is known here by indexing
the engine's own tensor with those letters: no stride, view or run of the project has a part in it.

The KV of (layer, K or V, token, head) is random and the same for every rank of both sides; everything else in the
memory, before and after, is noise of its own, and is compared, too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from kvproto.adapters.geometry import Geometry, Shards, geometry

LAYERS, HEADS, K_DIM, V_DIM, BLOCKS = 3, 4, 8, 8, 12


@dataclass(frozen=True)
class Form:
    """How an engine keeps its cache."""

    letters: str
    #: K and V share a row; `cut`: and are told apart
    fused: bool = False
    cut: bool = False
    opaque: str = ""
    #: elements of something else after each block
    gap: int = 0

    def __str__(self) -> str:
        more = ["K|V" if self.cut else "KV" if self.fused else "", self.opaque, "gaps" if self.gap else ""]
        return " ".join([self.letters, *filter(None, more)])


@dataclass
class Cache:
    """One rank's cache: the engine's tensors, and what the project makes of them."""

    form: Form
    shards: Shards
    size: int
    #: each as the engine allocated it, K's, then V's if they are apart
    tensors: list[torch.Tensor]
    whole: list[torch.Tensor] = field(default_factory=list)

    @property
    def held(self) -> tuple[range, range]:
        """(layers, heads) of the model."""
        made = self.geometry().layout
        layer, layers = made.layers_of(self.shards.rank)
        head, heads = made.heads_of(self.shards.rank)
        return range(layer, layer + layers), range(head, head + heads)

    def geometry(self) -> Geometry:
        """Return the geometry, as an adapter would make it."""
        form, ours = self.form, self.tensors
        apart = not form.fused and "2" not in form.letters
        keys, values = (ours[: len(ours) // 2], ours[len(ours) // 2 :]) if apart else (ours, [])
        return geometry(
            keys, form.letters, self.shards, v=values, k_dim=K_DIM if form.cut else 0,
            page_size=self.size if "S" in form.letters else 0, opaque=form.opaque,
        )  # fmt: skip

    def rows(self, layer: int, page: int, slot: int) -> list[torch.Tensor]:
        """Return views [head, content] of K and V, or of both in one, of a local layer and token."""
        form, where = self.form, {"B": page, "N": slot, "S": page * self.size + slot, "L": layer}
        kinds: Sequence[int] = (0, 1) if not form.fused else (0,)
        found = []
        for kind in kinds:
            if "L" in form.letters:
                tensor = self.tensors[0 if form.fused or "2" in form.letters else kind]
            else:
                tensor = self.tensors[layer + (0 if "2" in form.letters else kind * (len(self.tensors) // len(kinds)))]
            index = tuple(kind if letter == "2" else where.get(letter, slice(None)) for letter in form.letters)
            row = tensor[index]
            found.append(row if "H" in form.letters else row[None])
        return found


def make(form: Form, shards: Shards, size: int, layers: int, seed: int, device: str = "cpu") -> Cache:
    """A rank's cache of noise, `BLOCKS` blocks of so many tokens."""
    generator = torch.Generator().manual_seed(seed)
    heads = max(1, shards.heads // shards.tp)
    width = K_DIM + V_DIM if form.fused else K_DIM
    sizes = {"L": layers, "B": BLOCKS, "N": size, "S": BLOCKS * size, "H": heads, "C": width, "2": 2}
    shape = [sizes[letter] for letter in form.letters]
    one = "L" in form.letters
    count = (1 if one else layers) * (1 if form.fused or "2" in form.letters else 2)
    whole, tensors = [], []
    for _ in range(count):
        rows = shape[0], int(torch.Size(shape[1:]).numel()) + form.gap
        memory = torch.randint(0, 1 << 30, rows, dtype=torch.int32, generator=generator).to(device).view(torch.float32)
        whole.append(memory)
        tensors.append(memory[:, : rows[1] - form.gap].view(shape))
    return Cache(form, shards, size, tensors, whole)


def truth(tokens: int, seed: int = 5) -> torch.Tensor:
    """[layer, K or V, token, head, content] of the model."""
    generator = torch.Generator().manual_seed(seed)
    shape = (LAYERS, 2, tokens, HEADS, K_DIM)
    return torch.randint(0, 1 << 30, shape, dtype=torch.int32, generator=generator).view(torch.float32)


def fill(cache: Cache, kv: torch.Tensor, pages: list[int], tokens: range) -> None:
    """Write the model's KV of these tokens where the engine would."""
    layers, heads = cache.held
    for local, layer in enumerate(layers):
        for token in tokens:
            rows = cache.rows(local, pages[token // cache.size], token % cache.size)
            own = kv[layer, :, token, heads.start : heads.stop].to(rows[0].device)
            for row, value in zip(rows, own if len(rows) > 1 else [torch.cat([*own], -1)], strict=True):
                row.copy_(value)


def memory_of(cache: Cache) -> list[torch.Tensor]:
    """All of the engine's memory as bits: a copy."""
    return [each.view(torch.int32).cpu().clone() for each in cache.whole]


def table(tokens: int, size: int, seed: int) -> list[int]:
    """Distinct pages, some of them neighbours."""
    return random.Random(seed).sample(range(BLOCKS), -(-tokens // size))
