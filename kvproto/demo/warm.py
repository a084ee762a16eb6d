"""Imported once, by the fork server, for all ranks: the seconds that torch and transformers take to load are spent once.

It must start no thread: a fork copies only one. (group.py caps the numeric libraries at one thread for that reason.)
"""

from __future__ import annotations

import gc
import importlib
import importlib.util

import torch
import torch.distributed

for _name in ("kvproto.demo.shard", "kvproto.demo.controls", "zmq", "nixl._api"):
    if importlib.util.find_spec(_name.partition(".")[0]) is not None:
        importlib.import_module(_name)

torch.set_num_threads(1)
gc.freeze()  # what is loaded stays shared: the collector of a forked rank does not touch it
