"""The protocol: six tables.  `TABLES` is what everything else is made from."""

from __future__ import annotations

from typing import Any

from kvproto.rows import Table
from kvproto.tables.decode_grant import decode_grant
from kvproto.tables.decode_room import decode_room
from kvproto.tables.links import decode_link, prefill_link
from kvproto.tables.prefill_room import prefill_room
from kvproto.tables.prefill_send import prefill_send

TABLES: tuple[Table[Any], ...] = (
    prefill_room, prefill_send, prefill_link, decode_room, decode_grant, decode_link,
)  # fmt: skip
