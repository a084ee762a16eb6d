"""Metrics for Prometheus: `pip install 'kvproto[metrics]'`.

    exporter = MetricsExporter(prefill, decode)     # any endpoints of this process
    exporter.serve(9400)                            # a thread of its own; or registry.register(exporter)

A scrape runs on the server's thread, and asks each endpoint's loop for its numbers (`kvproto.metrics.snapshots`).
Between scrapes it costs a loop nothing, and a loop never waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from kvproto.metrics.metrics import FORMER_NAMES, METRICS, Metric
from kvproto.metrics.snapshots import Snapshots
from kvproto.observe.durations import Durations

if TYPE_CHECKING:
    from kvproto.endpoint.endpoint import Endpoint

WHO = ("side", "group", "rank")
#: what is told of every endpoint, beside its snapshot
UP = Metric("gauge", (), "1 while the endpoint's loop runs; 0: it was closed, or has broken.")
AGE = Metric("gauge", (), "Age of these numbers: large where nobody polls.")
FAMILIES: dict[str, type[Any]] = {
    "gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily,
}  # fmt: skip


class MetricsExporter(Collector):
    """The collector of some endpoints' metrics for a Prometheus registry."""

    def __init__(self, *endpoints: Endpoint, timeout: float = 1.0) -> None:
        """`timeout`: seconds that a scrape waits for a loop; then it has the loop's last numbers."""
        self._sources = [Snapshots(endpoint) for endpoint in endpoints]
        self._timeout = timeout
        self._server: Any = None

    def serve(self, port: int = 0, host: str = "127.0.0.1") -> int:
        """Serve them under `/metrics` from a thread of its own; returns the port (0 takes any that is free)."""
        registry = CollectorRegistry()
        registry.register(self)
        self._server, _ = start_http_server(port, host, registry)
        return int(self._server.server_port)

    def close(self) -> None:
        """End the server, if there is one."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def describe(self) -> Iterable[Any]:
        """Nothing beforehand: a registry need not ask the loops when this is registered."""
        return ()

    def collect(self) -> Iterable[Any]:
        """Yield the metric families of all endpoints; any thread."""
        families = {name: _family(name, metric) for name, metric in METRICS.items()}
        up, age = _family("kvproto_up", UP), _family("kvproto_snapshot_age_seconds", AGE)
        for source in self._sources:
            runs, snapshot = source.take(self._timeout)
            up.add_metric(source.labels, float(runs))
            if snapshot is None:
                continue
            age.add_metric(source.labels, time.monotonic() - snapshot.taken)
            for name, labels, value in snapshot.measured:
                _add(families[name], (*source.labels, *labels), value)
        former = [_renamed(families[name], old) for name, old in FORMER_NAMES.items()]
        return [up, age, *families.values(), *former]


def _family(name: str, metric: Metric) -> Any:
    return FAMILIES[metric.kind](name, metric.help, labels=(*WHO, *metric.labels))


def _renamed(family: Any, old: str) -> Any:
    """Return a family with the same samples under its former name."""
    former = type(family)(old, f"Former name of {family.name}; the next release drops it.")
    former.samples = [sample._replace(name=sample.name.replace(family.name, old)) for sample in family.samples]
    return former


def _add(family: Any, labels: tuple[str, ...], value: float | Durations) -> None:
    if isinstance(value, Durations):
        family.add_metric(labels, value.buckets(), value.total)
    else:
        family.add_metric(labels, float(value))
