"""Sitecustomize: Python reads it at its start, so that all of SGLang's processes see the GPU alike.

The folder is on PYTHONPATH for that.
"""

import sys

if "resource_tracker" not in " ".join(sys.orig_argv):
    from importlib import import_module

    import_module("gpu_device").install()
