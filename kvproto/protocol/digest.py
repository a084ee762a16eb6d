"""The digest: a hash of each part of the protocol, by which a reader sees in what two builds differ.

Two ranks tell each other their digests when they meet.  A difference refuses nobody (`versions` says what does): it is
logged, shown by `explain` and counted by a metric, and a trace that other tables made is not replayed.
`kvproto.verify.claims.protocol_digest` computes the hashes from the tables and the source, and says what they cover;
here they are constants, so that a process starts without parsing source.  After a change of a table, a message or the
code behind them, `make digest` brings the constants up to date.
"""

from __future__ import annotations

from kvproto.fsm.digest import joined
from kvproto.protocol.digest_parts import PARTS

DIGEST = joined(PARTS)


def tables_digest() -> str:
    """The digest of this build, `part:hash` each."""
    return DIGEST
