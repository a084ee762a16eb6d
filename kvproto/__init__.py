"""kvproto: the KV-cache transfer protocol as tables that are checked, run and drawn.

The names that an engine needs are here; `dir(kvproto)` lists them.  Importing this package loads nothing: neither torch
nor zmq nor nixl, nor any module of its own.  A name is loaded when it is first used.  If its libraries are not
installed it raises `MissingExtraError`, with the command that installs them. """

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvproto.version import __version__ as __version__

if TYPE_CHECKING:
    from kvproto.endpoint.decode_endpoint import DecodeEndpoint
    from kvproto.endpoint.endpoint_events import (
        EndpointEvent,
        EventsMissed,
        PeerLeft,
        PeerLost,
        PeerSilent,
        PeerUp,
        PoolAttached,
        PoolDetached,
        Reported,
        RoomFinished,
        RoomMet,
        RoomOpened,
        RoomProduced,
        RoomReleased,
    )
    from kvproto.endpoint.host_pool import HostPool
    from kvproto.endpoint.peer_endpoint import PeerEndpoint
    from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
    from kvproto.endpoint.resume_point import PageDigests, ResumePoint, Resumption, resume_prefix
    from kvproto.endpoint.spans import RoomSpans
    from kvproto.errors import ArgumentError, EndpointError, KvprotoError, LinkError, MissingExtraError, NotFoundError
    from kvproto.fsm.timing import Timer
    from kvproto.io.control.keys import Keys
    from kvproto.io.kernels.cache_pool import CachePool
    from kvproto.io.kernels.pool import Pool
    from kvproto.io.transports.base import TransportError
    from kvproto.io.transports.fabric import Fabric
    from kvproto.io.transports.memory import MemoryTransport
    from kvproto.io.transports.mooncake import MooncakeTransport
    from kvproto.io.transports.nixl import NixlTransport
    from kvproto.layout.caches import Cache, CachePart
    from kvproto.layout.plan import Plan
    from kvproto.layout.sharding import Layout, LayoutError, align_chunk_tokens
    from kvproto.metrics.exporter import MetricsExporter
    from kvproto.protocol.states import Cause
    from kvproto.protocol.tables import TABLES
    from kvproto.protocol.timing import Timing
    from kvproto.room import Outcome, Room, Status
    from kvproto.settings import Settings

__all__ = [
    "TABLES", "ArgumentError", "Cache", "CachePart", "CachePool", "Cause", "DecodeEndpoint", "EndpointError",
    "EndpointEvent", "EventsMissed", "Fabric", "HostPool", "Keys", "KvprotoError", "Layout", "LayoutError",
    "LinkError", "MemoryTransport", "MetricsExporter", "MissingExtraError", "MooncakeTransport", "NixlTransport",
    "NotFoundError", "Outcome", "PageDigests", "PeerEndpoint", "PeerLeft", "PeerLost", "PeerSilent", "PeerUp", "Plan",
    "Pool", "PoolAttached", "PoolDetached", "PrefillEndpoint", "Reported", "ResumePoint", "Resumption", "Room",
    "RoomFinished", "RoomMet", "RoomOpened", "RoomProduced", "RoomReleased", "RoomSpans", "Settings", "Status", "Timer",
    "Timing", "TransportError", "align_chunk_tokens", "resume_prefix",
]  # fmt: skip

#: where each name is
_HOME = {
    "DecodeEndpoint": "endpoint.decode_endpoint", "PrefillEndpoint": "endpoint.prefill_endpoint",
    "PeerEndpoint": "endpoint.peer_endpoint",
    **dict.fromkeys((
        "EndpointEvent", "EventsMissed", "PeerLeft", "PeerLost", "PeerSilent", "PeerUp", "PoolAttached",
        "PoolDetached", "Reported", "RoomFinished", "RoomMet", "RoomOpened", "RoomProduced", "RoomReleased",
    ), "endpoint.endpoint_events"),
    "HostPool": "endpoint.host_pool",
    **dict.fromkeys(("PageDigests", "ResumePoint", "Resumption", "resume_prefix"), "endpoint.resume_point"),
    "MetricsExporter": "metrics.exporter", "RoomSpans": "endpoint.spans",
    "Outcome": "room", "Room": "room", "Status": "room",
    "ArgumentError": "errors", "EndpointError": "errors", "KvprotoError": "errors", "LinkError": "errors",
    "MissingExtraError": "errors", "NotFoundError": "errors", "TransportError": "io.transports.base",
    "Timer": "fsm.timing", "Timing": "protocol.timing", "Settings": "settings", "Cause": "protocol.states",
    "TABLES": "protocol.tables", "Layout": "layout.sharding", "LayoutError": "layout.sharding",
    "Plan": "layout.plan", "align_chunk_tokens": "layout.sharding",
    "Cache": "layout.caches", "CachePart": "layout.caches", "CachePool": "io.kernels.cache_pool",
    "Keys": "io.control.keys", "Pool": "io.kernels.pool", "Fabric": "io.transports.fabric",
    "MemoryTransport": "io.transports.memory",
    "MooncakeTransport": "io.transports.mooncake", "NixlTransport": "io.transports.nixl",
}  # fmt: skip
#: the extras that bring what a name needs, for those that need more than the core
_EXTRAS = {
    "DecodeEndpoint": "nixl,gpu", "PrefillEndpoint": "nixl,gpu", "Pool": "gpu", "CachePool": "gpu",
    "HostPool": "nixl,gpu", "PeerEndpoint": "nixl,gpu",
    "Fabric": "nixl", "Keys": "nixl",
    "MemoryTransport": "nixl", "MetricsExporter": "metrics", "RoomSpans": "otel",
    "MooncakeTransport": "mooncake-cpu", "NixlTransport": "nixl", "TransportError": "nixl",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # whatever the name stands for
    if name not in _HOME:
        raise AttributeError(f"module 'kvproto' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"kvproto.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if name not in _EXTRAS or (error.name or "kvproto").partition(".")[0] == "kvproto":
            raise
        from kvproto.errors import MissingExtraError

        remedy = f"pip install 'kvproto[{_EXTRAS[name]}]'"
        raise MissingExtraError(f"kvproto.{name} needs {error.name}, which is not installed: {remedy}") from error
    globals()[name] = value  # the next one who asks finds it without this function
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
