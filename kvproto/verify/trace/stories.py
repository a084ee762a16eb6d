"""Stories: the steps of ranks, written, read, replayed and told, by the framework's functions."""

from __future__ import annotations

from functools import partial

from kvproto.fsm import records as _records
from kvproto.fsm.records import HeardEntry, Log, SentEntry, StepEntry, TraceError
from kvproto.observe.rank_traces import lines, log_of, save
from kvproto.observe.written import RankLogHead
from kvproto.verify.framework.trace import merge as _merge
from kvproto.verify.framework.trace import tell as _tell
from kvproto.verify.framework.trace.replay import Difference
from kvproto.verify.framework.trace.replay import replay as _replay
from kvproto.verify.trace.rank_stories import TELLING

#: files back to logs
load = partial(_records.load, telling=TELLING)
parse = partial(_records.parse, telling=TELLING)
#: the first difference between a log and the tables
replay = partial(_replay, telling=TELLING)
#: several ranks' logs as one story, the rooms of a story, the moments about some of them
merge = partial(_merge.merge, telling=TELLING)
rooms = partial(_merge.subjects, telling=TELLING)
select = partial(_merge.select, telling=TELLING)
#: a story as text, and as a sequence chart
text = partial(_tell.text, telling=TELLING)
sequence = partial(_tell.sequence, telling=TELLING)

__all__ = [
    "Difference", "HeardEntry", "Log", "RankLogHead", "SentEntry", "StepEntry", "TraceError", "lines", "load",
    "log_of", "merge", "parse", "replay", "rooms", "save", "select", "sequence", "text",
]  # fmt: skip
