"""Warm imports: torch and transformers once, by the fork server, for all ranks.

It must start no thread: a fork copies only one. (group.py caps the numeric libraries at one thread for that reason.)
The server itself leaves without the interpreter's teardown, in which some of these libraries complain of leaks.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import os
import sys

import torch
import torch.distributed

for _name in ("kvproto.lab.demo.rank_program", "zmq", "nixl._api"):
    if importlib.util.find_spec(_name.partition(".")[0]) is not None:
        importlib.import_module(_name)

torch.set_num_threads(1)
if sys.argv[:1] == ["-c"]:  # as the server is started; nowhere else is an exit code thrown away
    _server = os.getpid()
    atexit.register(lambda: os._exit(0) if os.getpid() == _server else None)
gc.freeze()  # what is loaded stays shared: the collector of a forked rank does not touch it
