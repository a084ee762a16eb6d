"""kvproto: the KV-cache transfer protocol as tables that are checked, run and drawn.

Importing this package loads neither torch nor zmq nor nixl; the names below are fetched when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproto.engine.decode_endpoint import DecodeEndpoint
    from kvproto.engine.prefill_endpoint import PrefillEndpoint
    from kvproto.engine.room import Outcome, Room, Status
    from kvproto.io.kernels.base import Pool
    from kvproto.layout.plan import Plan
    from kvproto.layout.sharding import Layout
    from kvproto.protocol.states import Cause
    from kvproto.protocol.tables import TABLES
    from kvproto.rank.settings import Settings

__version__ = "0.1.0"
__all__ = [
    "TABLES", "Cause", "DecodeEndpoint", "Layout", "Outcome", "Plan", "Pool", "PrefillEndpoint", "Room", "Settings",
    "Status",
]  # fmt: skip

_HOME = {
    "DecodeEndpoint": "engine.decode_endpoint", "PrefillEndpoint": "engine.prefill_endpoint",
    "Outcome": "engine.room", "Room": "engine.room", "Status": "engine.room", "Pool": "io.kernels.base",
    "Layout": "layout.sharding", "Plan": "layout.plan", "Settings": "rank.settings", "Cause": "protocol.states",
    "TABLES": "protocol.tables",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # whatever the name stands for
    if name not in _HOME:
        raise AttributeError(f"module 'kvproto' has no attribute {name!r}")
    return getattr(import_module(f"kvproto.{_HOME[name]}"), name)
