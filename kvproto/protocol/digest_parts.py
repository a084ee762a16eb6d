"""Digest parts: a hash each.  Generated: `make digest` writes this file; a stale one fails a test."""

from __future__ import annotations

PARTS = {
    "layout": "5a34fce6",
    "ring": "6661dc94",
    "timing": "9081d5dc",
    "messages": "f1e11cdc",
    "notification": "7cb9ce9b",
    "vocabulary": "54bf5904",
    "routes": "5c6ff03d",
    "prefill_room": "425bb8b3",
    "prefill_send": "47a6cb1d",
    "prefill_write": "6c76da69",
    "prefill_link": "f47d950d",
    "decode_room": "535f785f",
    "decode_grant": "ecf2ed9d",
    "decode_link": "2eb10dae",
}
