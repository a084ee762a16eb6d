"""Digest parts: a hash each.  Generated: `make digest` writes this file; a stale one fails a test."""

from __future__ import annotations

PARTS = {
    "layout": "501c4553",
    "ring": "6661dc94",
    "timing": "9081d5dc",
    "messages": "22a080e3",
    "notification": "7cb9ce9b",
    "vocabulary": "8f6aa91e",
    "routes": "43c9fdb6",
    "prefill_room": "425bb8b3",
    "prefill_send": "25894258",
    "prefill_write": "6c76da69",
    "prefill_link": "6cd78087",
    "decode_room": "d54bcb26",
    "decode_grant": "dfb067da",
    "decode_link": "a2ffa76f",
}
