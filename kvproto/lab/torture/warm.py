"""Warm: imports of the fork server for all ranks (`kvproto.lab.demo.warm` without the model); no
thread.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util

import torch

for _name in ("kvproto.lab.torture.rank", "kvproto.lab.torture.proxy", "zmq", "nixl._api"):
    if importlib.util.find_spec(_name.partition(".")[0]) is not None:
        importlib.import_module(_name)
torch.set_num_threads(1)
gc.freeze()
