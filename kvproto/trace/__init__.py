"""What ranks did: kept, written, read, replayed, and told.  The framework's functions, told how ranks speak."""

from __future__ import annotations

from functools import partial

from kvproto.fsm.trace import merge as _merge
from kvproto.fsm.trace import records as _records
from kvproto.fsm.trace import tell as _tell
from kvproto.fsm.trace.perfetto import perfetto as _perfetto
from kvproto.fsm.trace.records import HeardEntry, Log, SentEntry, StepEntry, TraceError
from kvproto.fsm.trace.replay import Difference
from kvproto.fsm.trace.replay import replay as _replay
from kvproto.trace.telling import TELLING
from kvproto.trace.written import RankLogHead

#: the log of what a rank's trace holds now, and logs as files and back
log_of = partial(_records.log_of, telling=TELLING)
lines = partial(_records.lines, telling=TELLING)
save = partial(_records.save, telling=TELLING)
load = partial(_records.load, telling=TELLING)
parse = partial(_records.parse, telling=TELLING)
#: the first difference between a log and the tables
replay = partial(_replay, telling=TELLING)
#: several ranks' logs as one story, the rooms of a story, the moments about some of them
merge = partial(_merge.merge, telling=TELLING)
rooms = partial(_merge.subjects, telling=TELLING)
select = partial(_merge.select, telling=TELLING)
#: a story as text, as a sequence chart, and for Perfetto
text = partial(_tell.text, telling=TELLING)
sequence = partial(_tell.sequence, telling=TELLING)
perfetto = partial(_perfetto, telling=TELLING)

__all__ = [
    "Difference",
    "HeardEntry",
    "Log",
    "RankLogHead",
    "SentEntry",
    "StepEntry",
    "TraceError",
    "lines",
    "load",
    "log_of",
    "merge",
    "parse",
    "perfetto",
    "replay",
    "rooms",
    "save",
    "select",
    "sequence",
    "text",
]  # fmt: skip
