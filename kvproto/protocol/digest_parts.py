"""Digest parts: a hash each.  Generated: `make digest` writes this file; a stale one fails a test."""

from __future__ import annotations

PARTS = {
    "layout": "70c6c6aa",
    "ring": "6661dc94",
    "timing": "8646bf28",
    "messages": "fdc0db8a",
    "notification": "7cb9ce9b",
    "vocabulary": "6265dd52",
    "routes": "4a0b4ba4",
    "prefill_room": "20d65abe",
    "prefill_send": "ada6f008",
    "prefill_write": "7f3fb60d",
    "prefill_link": "41055dc2",
    "decode_room": "3536e873",
    "decode_grant": "6293ba92",
    "decode_link": "d557df51",
}
