"""What ranks did: kept, written, read, replayed, and told."""

from kvproto.trace.records import Head, Heard, Log, Sent, Step, TraceError, lines, load, log_of, parse, save
from kvproto.trace.replay import Difference, replay

__all__ = [
    "Difference", "Head", "Heard", "Log", "Sent", "Step", "TraceError", "lines", "load", "log_of", "parse", "replay",
    "save",
]  # fmt: skip
