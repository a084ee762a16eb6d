"""Digest parts: a hash each.  Generated: `make digest` writes this file; a stale one fails a test."""

from __future__ import annotations

PARTS = {
    "layout": "501c4553",
    "ring": "6661dc94",
    "timing": "3477b2f0",
    "messages": "a1d2fe1a",
    "notification": "7cb9ce9b",
    "vocabulary": "a1e7ba26",
    "routes": "20b72cf3",
    "prefill_room": "425bb8b3",
    "prefill_send": "25894258",
    "prefill_write": "224ade06",
    "prefill_link": "7becc655",
    "decode_room": "b8e32a10",
    "decode_grant": "dfb067da",
    "decode_link": "e690d45d",
}
