"""Troubled rank: a rank of the pipeline benchmark with an engine that withdraws, aborts or is late."""

from __future__ import annotations

import time
from typing import Any

import torch

from kvproto.lab.bench.pipeline_rank import PipelineRank
from kvproto.lab.bench.pools import MARKER
from kvproto.room import Room

#: seconds in which what should not be written any more would be
AFTER_S = 0.1


class TroubledRank(PipelineRank):
    """`trouble` is one room from its opening to its release."""

    def trouble(self, kind: str, gen: int, tokens: int, turns: int) -> tuple[bool, bool]:
        """Do it after so many passes; whether the room has succeeded, and whether the pool is as it should be."""
        name, before = Room(1, gen), self._tensors(clone=True)
        if self.side == "P":
            self._prefill(kind, name, tokens, turns)
        else:
            self.mark()
            self.endpoint.open(name, tokens, self.tables[1])
            if kind == "decode aborts":
                self._pass(turns)
                self.endpoint.abort(name)
        found = list[Any]()

        def over() -> bool:
            found.extend(self.endpoint.finished())
            return bool(found)

        self._until(over)
        self._until(lambda: name in self.endpoint.released())
        if self.side == "P":
            self._put(before)
            return found[0].ok, True
        if found[0].ok:
            return True, self.right([1], tokens)
        self.mark()  # they are the engine's again: who writes now writes into another room
        end = time.monotonic() + AFTER_S
        self._until(lambda: time.monotonic() > end)
        return False, all(bool(each.eq(MARKER).all()) for each in self._tensors())

    def _prefill(self, kind: str, name: Room, tokens: int, turns: int) -> None:
        endpoint, pages, size = self.endpoint, self.tables[1], self.form.prefill.page_size
        half = tokens * 3 // 4 // size * size  # there are fewer spare pages than pages of a room
        endpoint.open(name, tokens, () if kind == "late" else pages[: half // size])
        endpoint.aux(name, b"aux")
        if kind == "late":
            for upto in (size, half + 5, tokens):
                self._pass(turns)
                given = 0 if upto == size else 1 if upto == half + 5 else half // size + 1
                endpoint.produced(name, upto, pages=pages[given : -(-upto // size)])
            return
        if kind != "replaced":
            endpoint.produced(name, tokens, pages=pages[half // size :])
            self._pass(turns)
            if kind == "prefill aborts":
                endpoint.abort(name)
            return
        spare = self._spare(len(pages) - half // size)
        self._copy(pages[half // size :], spare)
        endpoint.produced(name, tokens, pages=spare)
        self._pass(turns)
        endpoint.withdraw(name, half)
        self._until(lambda: endpoint.withdrawn(name))
        for tensor in self._tensors():  # now they are another room's
            tensor[spare] = MARKER
        endpoint.produced(name, tokens, pages=pages[half // size :])

    def _spare(self, count: int) -> torch.Tensor:
        assert self.pool is not None
        used = set(self.tables[1].tolist())
        return torch.tensor([page for page in range(self.pool.pages) if page not in used][:count])

    def _copy(self, source: torch.Tensor, to: torch.Tensor) -> None:
        for tensor in self._tensors():
            tensor[to] = tensor[source]

    def _tensors(self, *, clone: bool = False) -> list[torch.Tensor]:
        assert self.pool is not None
        found = [each.view(torch.uint8) for each in (*self.pool.k, *self.pool.v)]
        return [each.clone() for each in found] if clone else found

    def _put(self, before: list[torch.Tensor]) -> None:
        for tensor, kept in zip(self._tensors(), before, strict=True):
            tensor[:] = kept

    def _pass(self, turns: int) -> None:
        for _ in range(turns):
            self.endpoint.poll()
