"""kvproto: the KV-cache transfer protocol as tables that are checked, run and drawn.

Importing this package loads neither torch nor zmq nor nixl; the names below are fetched when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproto.decode import DecodeEndpoint
    from kvproto.handlers.kernels.base import Pool
    from kvproto.layout import Layout, Plan
    from kvproto.prefill import PrefillEndpoint
    from kvproto.rooms import Outcome, Room, Status
    from kvproto.settings import Settings
    from kvproto.states import Cause
    from kvproto.tables import TABLES

__version__ = "0.1.0"
__all__ = [
    "TABLES", "Cause", "DecodeEndpoint", "Layout", "Outcome", "Plan", "Pool", "PrefillEndpoint", "Room", "Settings",
    "Status",
]  # fmt: skip

_HOME = {
    "DecodeEndpoint": "decode", "PrefillEndpoint": "prefill", "Outcome": "rooms", "Room": "rooms",
    "Status": "rooms", "Pool": "handlers.kernels.base", "Layout": "layout", "Plan": "layout", "Settings": "settings",
    "Cause": "states", "TABLES": "tables",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # whatever the name stands for
    if name not in _HOME:
        raise AttributeError(f"module 'kvproto' has no attribute {name!r}")
    return getattr(import_module(f"kvproto.{_HOME[name]}"), name)
