"""The mutations of the exam; importing this package enters them all."""

from __future__ import annotations

from kvproto.check.mutations import decode, prefill, regions, sends
from kvproto.check.mutations.registry import EXAM

__all__ = ["EXAM", "decode", "prefill", "regions", "sends"]
