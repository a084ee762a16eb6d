"""`python -m kvproto.check`: as `kvproto check`."""

from __future__ import annotations

import sys

from kvproto.check.command import main

sys.exit(main(sys.argv[1:]))
