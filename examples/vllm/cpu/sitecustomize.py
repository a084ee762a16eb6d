"""Sitecustomize: read by each Python with this folder on PYTHONPATH, so that `vllm serve` forks.

`forking` tells why.  Of the folders on that path Python reads the first one's file alone, so what an earlier build of
kvproto needs is here, too (`examples.engine_runs.fleet_build.older`).
"""

from importlib import import_module

import_module("msgspec")
import_module("forking").install()
