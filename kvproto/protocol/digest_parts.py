"""Digest parts: a hash each.  Generated: `make digest` writes this file; a stale one fails a test."""

from __future__ import annotations

PARTS = {
    "layout": "d1f3c39c",
    "ring": "6661dc94",
    "timing": "8646bf28",
    "messages": "5d65f989",
    "notification": "7cb9ce9b",
    "vocabulary": "43f9a87b",
    "routes": "20b72cf3",
    "prefill_room": "355cf4c0",
    "prefill_send": "f641c87c",
    "prefill_write": "224ade06",
    "prefill_link": "8c646066",
    "decode_room": "e682eec3",
    "decode_grant": "dfb067da",
    "decode_link": "e690d45d",
}
