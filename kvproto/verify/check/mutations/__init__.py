"""The mutants; importing this package enters them all."""

from __future__ import annotations

from kvproto.verify.check.mutations import decode, groups, prefill, regions, sends, state, timed
from kvproto.verify.check.mutations.registry import MUTANTS

__all__ = ["MUTANTS", "decode", "groups", "prefill", "regions", "sends", "state", "timed"]
