"""Rank program: the shard of `rank` with an endpoint of the library, pass after pass.

What it does is what an engine would: open, produced, aux, finished, released. Nothing that the transfer says of itself
decides whether it was right: `line.tell("kv", ...)` hands the bytes of the pages to the parent, which knows what they
must be.
"""

from kvproto.lab.demo.decoder import decode
from kvproto.lab.demo.prefiller import prefill

__all__ = ["decode", "prefill"]
