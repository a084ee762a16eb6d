"""The way that goes well, and what lies apart from it: the one thing about a picture that rows do not say.

A table has no opinion on which of its ways is the usual one.  A picture needs one: the usual way is drawn thick and
straight, failures stand apart.  Here it is, state by state; a test demands that every step of it is a row, and that
nothing apart lies on it.  All states that are in neither are detours: they end well, too.
"""

from __future__ import annotations

from kvproto.fsm.vocabulary import State
from kvproto.protocol.states import DGrant, DLink, DRoom, PLink, PRoom, PSend, PWrite

WELL: dict[str, tuple[State, ...]] = {
    "prefill_room": (PRoom.UNKNOWN, PRoom.AWAIT_PEERS, PRoom.AWAIT_FORWARD, PRoom.OPEN, PRoom.DONE),
    "prefill_send": (
        PSend.NEW, PSend.AWAIT_GRANT, PSend.AWAIT_WATERMARK, PSend.AWAIT_KV, PSend.AWAIT_SLOT, PSend.GATHERING,
        PSend.WRITING, PSend.AWAIT_ACK, PSend.DONE,
    ),
    "prefill_write": (PWrite.NEW, PWrite.POSTING, PWrite.IN_FLIGHT, PWrite.COMPLETED),
    "prefill_link": (PLink.NEW, PLink.AWAIT_WIRE_UP, PLink.UP),
    "decode_room": (DRoom.UNKNOWN, DRoom.AWAIT_PEERS, DRoom.OPEN, DRoom.DONE),
    "decode_grant": (DGrant.NEW, DGrant.AWAIT_SPACE, DGrant.FILLING, DGrant.SCATTERING, DGrant.FREED),
    "decode_link": (DLink.NEW, DLink.AWAIT_WELCOME, DLink.UP),
}  # fmt: skip

APART: dict[str, tuple[State, ...]] = {
    "prefill_room": (PRoom.DRAINING, PRoom.AWAIT_NOTED, PRoom.FAILED, PRoom.ABORTED),
    "prefill_send": (PSend.DRAINING, PSend.STOPPED),
    "prefill_write": (PWrite.ENDING, PWrite.IN_DOUBT, PWrite.FAILED),
    "prefill_link": (PLink.LOST, PLink.REFUSED, PLink.FORGOTTEN),
    "decode_room": (DRoom.DRAINING, DRoom.SETTLING, DRoom.FAILED, DRoom.ABORTED),
    "decode_grant": (DGrant.QUARANTINED,),
    "decode_link": (DLink.AWAIT_RETURN, DLink.REFUSED),
}
