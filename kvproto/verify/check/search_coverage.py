"""What a search covers of the protocol: rows, guard outcomes, pairs of rows, routes.

A search does not follow one machine through its life; it goes from value to value.  So a pair is counted when its
second row fired from a value in which its first row had left a machine.  The value is what the search itself keeps of
it (`kvproto.verify.check.snapshot`): without deadlines and tries.
"""

from __future__ import annotations

from collections import defaultdict

from kvproto.fsm.table import Row, Value
from kvproto.verify.check.snapshot import plain
from kvproto.verify.claims.kv import KV
from kvproto.verify.framework.trace.coverage import Collector


class MachineCollector(Collector):
    """A collector that knows machines by their values."""

    def __init__(self) -> None:
        super().__init__(KV.counted)
        self._left: dict[tuple[str, Value], set[int]] = defaultdict(set)

    def take(self, row: Row, table: str, old: Value, new: Value) -> None:
        """A row fired."""
        self.rows[table, row.index] += 1
        for before in self._left.get((table, plain(old)), ()):
            self.pairs[table, before, row.index] += 1
        self._left[table, plain(new)].add(row.index)
