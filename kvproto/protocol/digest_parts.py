"""Digest parts: a hash each.  Generated: `make digest` writes this file; a stale one fails a test."""

from __future__ import annotations

PARTS = {
    "layout": "57377bb9",
    "ring": "6661dc94",
    "timing": "8646bf28",
    "messages": "6455291e",
    "notification": "7cb9ce9b",
    "vocabulary": "7cb6f7c5",
    "routes": "d0d08c14",
    "prefill_room": "20d65abe",
    "prefill_send": "ada6f008",
    "prefill_write": "7f3fb60d",
    "prefill_link": "ddf39ea0",
    "decode_room": "3536e873",
    "decode_grant": "6293ba92",
    "decode_link": "8a3d67e1",
}
