"""The connector, with a record of what it did: one line of JSON an event, a file a process.

`kv_connector_extra_config`: `record`: the folder; `name`: the instance's, which begins with its side's letter; with
`digests` the record has, of each room that ended well,

* the digests of what this rank's kernels gathered or scattered;
* the checksums of what then lies in the engine's cache, by (block of the prompt, layer, head), taken when the room is
  released: before the prefill engine frees the blocks, and before the decode engine computes on them.  They look past
  whatever carried the KV, so they also cover what went from page to page.

Each line is written at once, so that what was written before a process was killed is there.

While the folder has a file `spoil`, two heads of one layer (or the elements of its latents) are exchanged after each
load, which has to be noticed; with `spoil-draft` those of one of the draft's layers.  A file `compile` has each decode
rank compile for a minute between two steps (`compiling`).
"""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

import torch

from examples.vllm.compiling import COMPILES_S, Compiler, compile_for
from kvproto.adapters.vllm.connector import KVProtoConnector
from kvproto.adapters.vllm.drafts import draft_layer
from kvproto.adapters.vllm.ranks import data_parallel_suffix
from kvproto.room import Outcome
from vllm.distributed.parallel_state import get_pp_group, get_tp_group
from vllm.model_executor.models.utils import extract_layer_index


def _number(name: str, layers: int) -> int:
    """Return the number of a layer; a draft's come behind the model's so many."""
    draft, own = draft_layer(name, layers), int(extract_layer_index(name))
    return own if draft is None else draft


class RecordingConnector(KVProtoConnector):
    """As it is, and recorded."""

    def on_new_request(self, request: Any) -> None:
        """The engine has seen it."""
        super().on_new_request(request)
        if not hasattr(self, "record"):
            self._open("scheduler")
        self._note(event="arrived", request=request.request_id)

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Watch the worker."""
        super().register_kv_caches(kv_caches)
        tp = get_tp_group()
        self.rank_in_group = tp.rank_in_group
        self._open(str(get_pp_group().rank_in_group * tp.world_size + tp.rank_in_group))
        groups = self._kv_cache_config.kv_cache_groups
        local = {name for group in self.windows for name in groups[group].layer_names}
        # Windows lie in blocks of other tables than those that orders have.
        self.layers = layers = self._vllm_config.model_config.get_total_num_hidden_layers()
        self.caches = {_number(name, layers): cache for name, cache in kv_caches.items() if name not in local}
        counts, self.compiler = self.worker.on_outcome, Compiler(Path(self.extra["record"]))
        # A layer of recurrence has slots in place of blocks, and no heads that could be told apart.
        self.summed = len({each.shape for each in self.caches.values()}) == 1
        #: by request: its blocks, and the first of them that is carried
        self.blocks, self.ended = dict[str, tuple[list[int], int]](), dict[str, Outcome]()

        def ended(request: str, outcome: Outcome) -> None:
            counts(request, outcome)
            self._ended(request, outcome)

        self.worker.on_outcome, self.worker.on_release = ended, self._released

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """What is ordered, and for which blocks."""
        for order in kv_connector_metadata.orders:
            name = type(order).__name__
            if name == "Load":
                size = self._vllm_config.cache_config.block_size
                self.blocks[order.request] = list(order.blocks), order.prefix // size
            elif name == "GiveBlocks":
                self.blocks.setdefault(order.request, ([], 0))[0].extend(order.blocks)
            elif name == "Withdraw":
                self.blocks.pop(order.request, None)
            self._note(event=name, request=order.request)
        super().handle_preemptions(kv_connector_metadata)
        if not self.produces and self.compiler.wanted():
            self._note(event="compiles")
            self._note(event="compiled", functions=compile_for(COMPILES_S))

    def _ended(self, request: str, outcome: Outcome) -> None:
        digests, endpoint = {}, self.worker.endpoint
        if outcome.ok and self.extra.get("digests"):
            digests = {"/".join(map(str, at)): value for at, value in endpoint.digests(outcome.room).items()}
        metrics = endpoint.metrics()
        posts = {"staged": metrics.get("writes", 0), "pages": metrics.get("pages", 0) + metrics.get("direct", 0),
                 "descriptors": metrics.get("pieces", 0)}  # fmt: skip
        self.ended[request] = outcome
        self._note(
            event="outcome", request=request, room=outcome.room.id, cause=outcome.cause.name, reason=outcome.reason,
            digests=digests, posts=posts, pid=os.getpid(),
        )  # fmt: skip

    def _released(self, request: str) -> None:
        outcome, (blocks, first) = self.ended.pop(request), self.blocks.pop(request, ([], 0))
        sums = self._sums(blocks, first) if outcome.ok and self.summed and self.extra.get("digests") else {}
        self._note(event="released", request=request, room=outcome.room.id, sums=sums)
        for file, drafts in (("spoil", False), ("spoil-draft", True)):
            if not self.produces and (Path(self.extra["record"]) / file).exists():
                mine = [cache for layer, cache in self.caches.items() if (layer >= self.layers) is drafts]
                cache = max(mine, key=lambda each: each.shape[1])
                cache[blocks] = cache[blocks].flip(1 if cache.shape[1] > 1 else 3)

    def _sums(self, blocks: list[int], first: int) -> dict[str, int]:
        """By block of the prompt, layer and head of the model."""
        found = {}
        for layer, cache in self.caches.items():
            heads = cache.shape[1]
            before = 0 if self._vllm_config.model_config.use_mla else self.rank_in_group * heads
            for place, block in enumerate(blocks[first:], first):
                for head in range(heads):
                    rows = cache[block, head].contiguous().view(torch.uint8).numpy().tobytes()
                    found[f"{place}/{layer}/{before + head}"] = zlib.crc32(rows)
        return found

    def _open(self, rank: str) -> None:
        name = self.extra["name"] + data_parallel_suffix(self._vllm_config)
        self.record = (Path(self.extra["record"]) / f"{name}-{rank}.jsonl").open("a")

    def _note(self, **what: Any) -> None:
        self.record.write(json.dumps({"at": time.time(), **what}) + "\n")
        self.record.flush()
