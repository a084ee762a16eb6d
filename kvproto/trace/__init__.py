"""What ranks did: kept, written, read, replayed, and told."""

from kvproto.trace.records import (
    Head,
    HeardEntry,
    Log,
    SentEntry,
    StepEntry,
    TraceError,
    lines,
    load,
    log_of,
    parse,
    save,
)
from kvproto.trace.replay import Difference, replay

__all__ = [
    "Difference", "Head", "HeardEntry", "Log", "SentEntry", "StepEntry", "TraceError", "lines", "load", "log_of",
    "parse", "replay", "save",
]  # fmt: skip
