"""Python reads this at its start when this folder is on PYTHONPATH: so all of SGLang's processes see the CPU alike.

The helpers of multiprocessing import no torch, and need nothing of it.
"""

import sys

if "resource_tracker" not in " ".join(sys.orig_argv):
    from importlib import import_module

    import_module("cpu_device").install()
