"""The transfer of KV caches as one object, for the tools."""

from __future__ import annotations

from kvproto.fsm.protocol import Protocol
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.sources import SOURCES
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing

KV = Protocol(
    name="kvproto", tables=TABLES, timing=Timing(), digest=tables_digest, sources=SOURCES,
    telling="kvproto.trace.telling:TELLING", scenes="kvproto.draw.scenes:SCENES",
    checker="kvproto.check.checker:CHECKER", exchanges="kvproto.draw.message_exchanges:TALK",
)  # fmt: skip
