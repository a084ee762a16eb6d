"""The transfer of KV caches as one object, for the tools."""

from __future__ import annotations

from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing
from kvproto.verify.claims.protocol_digest import computed_digest
from kvproto.verify.claims.sources import SOURCES
from kvproto.verify.framework.protocol import Protocol

KV = Protocol(
    name="kvproto", tables=TABLES, timing=Timing(), digest=computed_digest, sources=SOURCES,
    telling="kvproto.verify.trace.rank_stories:TELLING", scenes="kvproto.verify.draw.scenes:SCENES",
    checker="kvproto.verify.check.checker:CHECKER", exchanges="kvproto.verify.draw.message_exchanges:TALK",
)  # fmt: skip
