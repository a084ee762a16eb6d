"""The framework: base types, tables of rows, and the compiled step.  It knows nothing of KV.

The names with which a protocol is written are here; each is loaded when it is first used.  They are public: what they
promise is in docs/framework.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproto.fsm.codec import U32, U64, Body, Message, WireError
    from kvproto.fsm.driver import Driver
    from kvproto.fsm.errors import ArgumentError, KvprotoError
    from kvproto.fsm.kinds import Mask
    from kvproto.fsm.machine import Machine
    from kvproto.fsm.party import Member, MemberMessage, Party
    from kvproto.fsm.records import Log, TraceError, load, save
    from kvproto.fsm.routing import Fact, Routes
    from kvproto.fsm.table import Output, Row, Table, Value
    from kvproto.fsm.telling import Telling
    from kvproto.fsm.timing import Timer, Timers
    from kvproto.fsm.vocabulary import Broadcast, Effect, Event, Internal, Report, State, TimerFired, Transmit

__all__ = [
    "U32", "U64", "ArgumentError", "Body", "Broadcast", "Driver", "Effect", "Event", "Fact", "Internal", "KvprotoError",
    "Log", "Machine", "Mask", "Member", "MemberMessage", "Message", "Output", "Party", "Report", "Routes", "Row",
    "State", "Table", "Telling", "Timer", "TimerFired", "Timers", "TraceError", "Transmit", "Value", "WireError",
    "load", "save",
]  # fmt: skip

#: where each name is
_HOME = {
    **dict.fromkeys(("U32", "U64", "Body", "Message", "WireError"), "codec"), "Driver": "driver",
    **dict.fromkeys(("ArgumentError", "KvprotoError"), "errors"), "Mask": "kinds", "Machine": "machine",
    **dict.fromkeys(("Member", "MemberMessage", "Party"), "party"),
    **dict.fromkeys(("Log", "TraceError", "load", "save"), "records"),
    **dict.fromkeys(("Fact", "Routes"), "routing"), **dict.fromkeys(("Output", "Row", "Table", "Value"), "table"),
    "Telling": "telling", **dict.fromkeys(("Timer", "Timers"), "timing"),
    **dict.fromkeys(
        ("Broadcast", "Effect", "Event", "Internal", "Report", "State", "TimerFired", "Transmit"), "vocabulary"
    ),
}  # fmt: skip


def __getattr__(name: str) -> Any:  # whatever the name stands for
    if name not in _HOME:
        raise AttributeError(f"module 'kvproto.fsm' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"kvproto.fsm.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
