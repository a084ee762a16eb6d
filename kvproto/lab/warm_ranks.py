"""Warm ranks: libraries and compiled steps of both sides, made once by the fork server for all ranks.

A process that starts alone takes half a second of processor time for the steps, and another half where traces are
judged; what the fork server has compiled, its children share.  It must start no thread: a fork copies only one, so
`process_group` caps the numeric libraries at one.  The server itself leaves without the interpreter's teardown, in
which some of these libraries complain of leaks.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import os
import sys

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
for _name in ("torch", "zmq", "nixl._api"):
    if importlib.util.find_spec(_name.partition(".")[0]) is not None:
        importlib.import_module(_name)
if "torch" in sys.modules:
    sys.modules["torch"].set_num_threads(1)
if sys.argv[:1] == ["-c"]:  # as the server is started; nowhere else is an exit code thrown away
    _server = os.getpid()
    atexit.register(lambda: os._exit(0) if os.getpid() == _server else None)
gc.freeze()  # what is loaded stays shared: the collector of a forked rank does not touch it
