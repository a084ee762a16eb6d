"""RouterMetrics: what a router counts of the requests that it forwards, for Prometheus."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

HELP = {
    "requests_total": ("counter", "requests by status (left: the client has; broken: an instance has, in its answer)"),
    "retries_total": ("counter", "requests that went to another instance, by the one that was away"),
    "in_flight": ("gauge", "requests that are being answered"),
    "seconds_total": ("counter", "seconds that answered requests took"),
}


class RouterMetrics:
    """Counts of one router; the event loop's thread."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, float]] = {name: defaultdict(int) for name in HELP}
        self._counts["in_flight"][""] = 0

    @contextmanager
    def request(self) -> Iterator[Any]:
        begun, told, counts = time.monotonic(), SimpleNamespace(status="left"), self._counts
        counts["in_flight"][""] += 1
        try:
            yield told
        finally:
            counts["in_flight"][""] -= 1
            counts["requests_total"][f'{{status="{told.status}"}}'] += 1
            counts["seconds_total"][""] += time.monotonic() - begun

    def retried(self, instance: str) -> None:
        """Count a request that goes to another instance than this one."""
        self._counts["retries_total"][f'{{instance="{instance}"}}'] += 1

    def text(self) -> str:
        lines = []
        for name, (kind, what) in HELP.items():
            lines += [f"# HELP kvproto_router_{name} {what}", f"# TYPE kvproto_router_{name} {kind}"]
            lines += [f"kvproto_router_{name}{labels} {value}" for labels, value in sorted(self._counts[name].items())]
        return "\n".join(lines) + "\n"
