"""Digest parts: a hash each.  Generated: `make digest` writes this file; a stale one fails a test."""

from __future__ import annotations

PARTS = {
    "layout": "3dae7205",
    "ring": "6661dc94",
    "timing": "0614de4d",
    "messages": "fdc0db8a",
    "notification": "1e18cf2e",
    "vocabulary": "a6bc9aea",
    "routes": "71e97034",
    "prefill_room": "9245f2aa",
    "prefill_send": "c5375886",
    "prefill_write": "7f3fb60d",
    "prefill_link": "41055dc2",
    "decode_room": "f618a56c",
    "decode_grant": "6b20c4ba",
    "decode_link": "b96cb174",
}
