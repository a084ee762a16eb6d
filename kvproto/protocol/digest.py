"""The digest: what two builds must have in common to work together, part by part.

Two ranks send their digests when they meet, and refuse each other at once where these differ, by the names of the
parts.  `kvproto.verify.claims.protocol_digest` computes the hashes from the tables and the source, and says what they
cover; here they are constants, so that a process starts without parsing source.  After a change of a table, a message
or the code behind them, `make digest` brings the constants up to date.

What lets two builds refuse each other must be the same in all builds: the frame, REFUSAL, and the beginning of HELLO,
up to the session (`codec.Call`).  The rest of HELLO, and every other message, may change: a call that cannot be read to
its end is refused by what its beginning says.
"""

from __future__ import annotations

from kvproto.fsm.digest import joined
from kvproto.protocol.digest_parts import PARTS

DIGEST = joined(PARTS)


def tables_digest() -> str:
    """The digest of this build, `part:hash` each."""
    return DIGEST
