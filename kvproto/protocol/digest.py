"""The digest: sixteen hex digits that are equal where the tables are.

Both sides name it in the handshake, and two ranks whose tables differ do not work together.  It covers what a
row says (states, events, guards, changes and effects by name), the timers' names and the wire version; not the
bodies of guards, which is why the version counts up when one of those changes its meaning.
"""

from __future__ import annotations

import hashlib
from functools import cache

from kvproto.fsm.table import Row
from kvproto.protocol.messages import VERSION
from kvproto.protocol.tables import TABLES


def _line(row: Row) -> str:
    names = (row.when, row.let, *row.do)
    return f"{row.verb} {row.source.name} {row.event.__name__} {row.target.name} " + " ".join(
        f.__name__ if f else "-" for f in names
    )


@cache
def tables_digest() -> str:
    """The digest of `TABLES`."""
    text = [f"version {VERSION}"]
    for table in TABLES:
        text.append(table.name)
        text += [f"{state.name} {timer}" for state, timer in table.timers.items()]
        text += [_line(row) for row in table.rows]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]
