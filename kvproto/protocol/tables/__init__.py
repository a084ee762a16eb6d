"""The protocol: seven tables.  `TABLES` is what everything else is made from."""

from __future__ import annotations

from typing import Any

from kvproto.fsm.table import Table
from kvproto.protocol.tables.decode_grant import decode_grant
from kvproto.protocol.tables.decode_room import decode_room
from kvproto.protocol.tables.links import decode_link, prefill_link
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.protocol.tables.prefill_write import prefill_write

TABLES: tuple[Table[Any], ...] = (
    prefill_room, prefill_send, prefill_write, prefill_link, decode_room, decode_grant, decode_link,
)  # fmt: skip
