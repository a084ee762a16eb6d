"""Judging: makes an endpoint whose rank is checked while it runs, if the operator asks for it.

The judge belongs to the verifying wing, which no engine process loads otherwise.  So it is imported by name, and only
if `conformance` is on.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TypeVar

E = TypeVar("E")
JUDGE = "kvproto.verify.adapters.conformance"


def judged(make: Callable[[], E], *, wanted: bool) -> E:
    """Make an endpoint; if `wanted`, its rank is followed, and each breach is logged as an error, once."""
    if not wanted:
        return make()
    endpoint: E = importlib.import_module(JUDGE).judged(make)
    return endpoint
