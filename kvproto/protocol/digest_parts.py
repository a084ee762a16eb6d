"""Digest parts: a hash each.  Generated: `make digest` writes this file; a stale one fails a test."""

from __future__ import annotations

PARTS = {
    "layout": "b1cf6046",
    "ring": "6661dc94",
    "timing": "0614de4d",
    "messages": "fdc0db8a",
    "notification": "7cb9ce9b",
    "vocabulary": "a832551b",
    "routes": "71e97034",
    "prefill_room": "61a3a8ed",
    "prefill_send": "38bbede3",
    "prefill_write": "7f3fb60d",
    "prefill_link": "41055dc2",
    "decode_room": "57c1adda",
    "decode_grant": "6b20c4ba",
    "decode_link": "b96cb174",
}
