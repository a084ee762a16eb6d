"""Digest parts: a hash each.  Generated: `make digest` writes this file; a stale one fails a test."""

from __future__ import annotations

PARTS = {
    "layout": "ab2aa399",
    "ring": "6661dc94",
    "timing": "8646bf28",
    "messages": "6455291e",
    "notification": "7cb9ce9b",
    "vocabulary": "2f7d49ef",
    "routes": "49887f3f",
    "prefill_room": "7c7e1d70",
    "prefill_send": "4025248c",
    "prefill_write": "7f3fb60d",
    "prefill_link": "0b46f120",
    "decode_room": "86f0a5f2",
    "decode_grant": "dfb067da",
    "decode_link": "b33cc75c",
}
