"""Stats for vLLM's log and its Prometheus endpoint: counts of an interval, summed over ranks.

sent, received    successful rooms               aborted, failed    rooms that an engine gave up, and the others
bytes             of KV that was written         posts              writes, staged or over pages
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats
from vllm.v1.metrics.utils import create_metric_per_engine

from kvproto.protocol.states import Cause
from kvproto.room import Outcome

#: by name: what is added up of an endpoint's metrics
COUNTED = {"bytes": ("bytes",), "posts": ("writes", "pages", "direct", "mapped")}
NAMES = ("sent", "received", "aborted", "failed", *COUNTED)
GIVEN_UP = (Cause.PREFILL_ABORTED, Cause.DECODE_ABORTED)


@dataclass
class TransferStats(KVConnectorStats):  # type: ignore[misc]  # vLLM's own are untyped here
    """Counts, by name."""

    data: dict[str, int]

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: Any) -> TransferStats:
        """Those of another rank or interval are added."""
        for name, value in other.data.items():
            self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        """As vLLM's log shows them."""
        return {f"kvproto {name}": self.data.get(name, 0) for name in NAMES}

    def is_empty(self) -> bool:
        return not any(self.data.values())


class Counts:
    """The counts of a rank since the last call."""

    def __init__(self) -> None:
        self._new: Counter[str] = Counter()
        self._told: Counter[str] = Counter()

    def outcome(self, outcome: Outcome, well: str) -> None:
        """A room has ended; `well`: the name for those that did so well."""
        self._new[well if outcome.ok else "aborted" if outcome.cause in GIVEN_UP else "failed"] += 1

    def take(self, metrics: Mapping[str, int]) -> TransferStats | None:
        """The interval's; None: nothing has happened."""
        for name, parts in COUNTED.items():
            total = sum(metrics.get(part, 0) for part in parts)
            self._new[name] += total - self._told[name]
            self._told[name] = total
        found, self._new = TransferStats(data={name: n for name, n in self._new.items() if n}), Counter()
        return None if found.is_empty() else found


class TransferPromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]  # vLLM's own are untyped here
    """The same as Prometheus counters, `vllm:kvproto_..._total`."""

    def __init__(self, config: Any, kinds: Any, labels: list[str], values: dict[int, list[object]]) -> None:
        super().__init__(config, kinds, labels, values)
        self._counters = {
            name: create_metric_per_engine(
                self._counter_cls(
                    name=f"vllm:kvproto_{name}", documentation=f"kvproto: {name}, summed over ranks.", labelnames=labels
                ),
                values,
            )
            for name in NAMES
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """An interval's counts."""
        for name, value in transfer_stats_data.items():
            self._counters[name][engine_idx].inc(value)
