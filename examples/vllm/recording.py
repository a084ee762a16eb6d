"""The connector, with a record of what it did: one line of JSON a room, a rank.

`kv_connector_extra_config`: `record`: the folder; with `digests` each line has the digests of what the rank gathered or
scattered.  While the folder has a file `spoil`, two heads of one layer are exchanged after each load, which has to be
noticed.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch

from kvproto.adapters.vllm.connector import KVProtoConnector
from kvproto.adapters.worker import Worker
from kvproto.engine.room import Outcome
from vllm.distributed.parallel_state import get_tp_group


class RecordingConnector(KVProtoConnector):
    """As it is, and recorded."""

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Watch the worker."""
        super().register_kv_caches(kv_caches)
        side, rank = "P" if self.produces else "D", get_tp_group().rank_in_group
        self.record = (Path(self.extra["record"]) / f"{side}{rank}.jsonl").open("a")
        counts, self.loaded, self.caches = self.worker.on_outcome, dict[str, Any](), list(kv_caches.values())

        def ended(request: str, outcome: Outcome) -> None:
            counts(request, outcome)
            self._ended(self.worker, request, outcome)

        self.worker.on_outcome, self.worker.on_release = ended, self._released

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """What is ordered; what is loaded where."""
        for order in kv_connector_metadata.orders:
            name = type(order).__name__
            if name == "Load":
                self.loaded[order.request] = order
            self._note(event=name, request=order.request)
        super().handle_preemptions(kv_connector_metadata)

    def _ended(self, worker: Worker[Any], request: str, outcome: Outcome) -> None:
        digests = {}
        if outcome.ok and self.extra.get("digests"):
            digests = {"/".join(map(str, at)): value for at, value in worker.endpoint.digests(outcome.room).items()}
        self._note(
            event="outcome", request=request, room=outcome.room.id, cause=outcome.cause.name, reason=outcome.reason,
            digests=digests, posts=self._posts(),
        )  # fmt: skip

    def _posts(self) -> dict[str, int]:
        """Staged, and over pages, since the start."""
        metrics = self.worker.endpoint.metrics()
        return {"staged": metrics.get("writes", 0), "pages": metrics.get("slices", 0) + metrics.get("direct", 0)}

    def _released(self, request: str) -> None:
        self._note(event="released", request=request)
        order = self.loaded.pop(request, None)
        if order is not None and (Path(self.extra["record"]) / "spoil").exists():
            blocks = list(order.blocks)
            self.caches[1][blocks] = self.caches[1][blocks].flip(1)

    def _note(self, **what: Any) -> None:
        self.record.write(json.dumps({"at": time.time(), **what}) + "\n")
        self.record.flush()
