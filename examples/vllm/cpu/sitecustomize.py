"""Sitecustomize: read by each Python with this folder on PYTHONPATH, so that `vllm serve` forks.

`forking` tells why.
"""

from importlib import import_module

import_module("forking").install()
