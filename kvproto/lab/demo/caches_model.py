"""Caches model: a library's model with several caches, and the judge, who carries rooms by it alone.

The library's own modules and cache are used as they are; the judge forwards the same chunks as a prefill rank, since
sums of floating-point numbers depend on shapes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers.cache_utils import DynamicCache

from kvproto.lab.demo.cache_field import caches_of, fields_of, rows_of, window_of
from kvproto.lab.demo.caches_job import CachesJob
from kvproto.lab.demo.family import FAMILIES, build_family
from kvproto.lab.demo.job import RoomSpec, Side
from kvproto.lab.demo.model import aux_row, pieces_of, prompt, read_aux
from kvproto.lab.demo.pages import Rows, sheet_of
from kvproto.lab.demo.verify import Verdict
from kvproto.lab.process_group import ParentPipe
from kvproto.layout.sharding import Layout


class CachesModel:
    """The job's model in this process, and what its caches are."""

    def __init__(self, job: CachesJob) -> None:
        self.job, self.model = job, build_family(job)
        tried = self.empty()
        self.forward(torch.zeros(1, dtype=torch.long), tried)
        self.fields = fields_of(FAMILIES[job.family], tried)
        self.window = window_of(tried)
        self.caches = caches_of(self.fields, self.window)
        self.units = {(each.kind, each.layer): (each.units, each.row_bytes) for each in self.fields}

    def empty(self) -> DynamicCache:
        return DynamicCache(config=self.model.config)

    @torch.inference_mode()
    def forward(self, ids: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        """Forward these tokens behind what the cache holds; the last one's logits."""
        out = self.model(input_ids=ids[None], past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = out.logits[0, -1]
        return logits

    def prefill(self, room: RoomSpec) -> Iterator[tuple[int, DynamicCache, bytes | None]]:
        """Forward a room's prompt chunk by chunk: (tokens so far, cache, the last chunk's aux row)."""
        cache, first = self.empty(), 0
        for piece in pieces_of(prompt(self.job, room), self.job.chunk):
            logits = self.forward(piece, cache)
            first += len(piece)
            yield first, cache, aux_row(int(logits.argmax()), logits) if first == room.tokens else None

    def more(self, cache: DynamicCache, token: int, count: int) -> Iterator[bytes]:
        """Continue with `count` tokens after this one: an aux row of each."""
        for _ in range(count):
            logits = self.forward(torch.tensor([token]), cache)
            token = int(logits.argmax())
            yield aux_row(token, logits)

    def layout(self, side: Side) -> Layout:
        shape, layers = self.job.shape(side), self.model.config.num_hidden_layers
        return Layout.of_caches(self.caches, layers=layers, page_size=shape.page_size, tp=shape.tp, pp=shape.pp,
                                order=shape.order)  # fmt: skip


def load_rows(directory: Path, room: int) -> tuple[Rows, bytes]:
    """The rows of a room's prompt as the judge computed them, and its aux row."""
    rows, row = torch.load(directory / f"room-{room}.rows")
    return rows, row


def judge(line: ParentPipe, job: CachesJob, directory: Path, _kind: str = "cpu") -> None:
    """Send ("verdict", (room, Verdict)) for each room, prefixed ones first, after its rows are in a file."""
    me = CachesModel(job)
    for room in sorted(job.rooms, key=lambda each: each.prefix == 0):
        start = time.monotonic()
        *_, (_, cache, row) = me.prefill(room)
        assert row is not None
        rows, said, seconds = rows_of(me.fields, cache), [row], [time.monotonic() - start]
        torch.save((rows, row), directory / f"room-{room.room}.rows")
        start += time.monotonic() - start - seconds[0]  # the file is no part of what the tokens took
        for each in me.more(cache, read_aux(row)[0], room.new - 1):
            said.append(each)
            seconds.append(time.monotonic() - start)
        tokens, digests = map(list, zip(*map(read_aux, said), strict=True))
        counts = {kind: len(whole) for (kind, _), whole in rows.items()}
        sheet = sheet_of(rows, dict.fromkeys(rows, 0))
        line.tell("verdict", (room.room, Verdict(tokens, digests, sheet, None, tuple(seconds), counts)))
