"""Claims: invariants of each table beside its rows, in the vocabulary of the rows; `kvproto prove`
proves them.

Each file has the claims of one table.  A change of a table that keeps its promises leaves them as they
are; one that does not is told by the state, event and row that break them.
"""

from __future__ import annotations

from typing import Any

from kvproto.verify.claims import decode_link, decode_room, prefill_link, prefill_room
from kvproto.verify.claims.decode_grant import grant_claims
from kvproto.verify.claims.prefill_send import send_claims
from kvproto.verify.claims.prefill_write import write_claims
from kvproto.verify.framework.claims import Claims

#: in the order of `TABLES`
CLAIMS: tuple[Claims[Any, Any], ...] = (
    prefill_room.room_claims, send_claims, write_claims, prefill_link.link_claims, decode_room.room_claims, grant_claims,
    decode_link.link_claims,
)  # fmt: skip
#: those whose witnesses know nothing but what their machine has done and heard; that of a prefill rank's link knows
#: the true watermark and what is in flight, too
TRACEABLE = tuple(claims for claims in CLAIMS if claims is not prefill_link.link_claims)
