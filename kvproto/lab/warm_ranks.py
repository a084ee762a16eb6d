"""Warm ranks: the compiled steps of both sides, made once by the fork server for all ranks.

A process that starts alone takes half a second of processor time for them, and another half where traces are judged;
what the fork server has compiled, its children share.
"""

from __future__ import annotations

from kvproto.layout.sharding import Layout
from kvproto.protocol.timing import Timing
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.trace.rank_stories import TELLING

_LAYOUT = Layout(layers=1, heads=1, k_dim=1, v_dim=1, itemsize=2, dtype="bfloat16", page_size=1, tp=1)
for _kind in (PrefillRank, DecodeRank):
    _kind(_LAYOUT, 0, group=1, chunk_tokens=1, incarnation=1).prepare()
for _machine in TELLING.machines(Timing()).values():
    assert _machine.steps
