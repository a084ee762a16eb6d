"""Transport roles: one transport under both roles of a rank, each of which polls it as its own.

Every event is of one role: a prefill role posts writes, so their ends and lost peers are its; a decode role posts none,
so arrivals are its.  A poll of one keeps what is the other's for the other's next poll, in the same turn of the loop.
The owner of both closes the transport.
"""

from __future__ import annotations

from typing import Any, cast

from kvproto.io.transports.base import Arrived, Transport, TransportEvent


class TransportRole:
    """The transport as one role sees it; what is not here is the transport's own."""

    other: TransportRole

    def __init__(self, transport: Transport, *, arrivals: bool) -> None:
        """`arrivals`: this role hears of peers' writes, else of the ends of this rank's."""
        self._transport, self._arrivals = transport, arrivals
        #: events that the other role's poll has found; at most those of one poll of the transport
        self._kept: list[TransportEvent] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def poll(self) -> list[TransportEvent]:
        """Return this role's events; make progress, unless the other role has just found some."""
        if not self._kept:
            for event in self._transport.poll():
                (self if isinstance(event, Arrived) is self._arrivals else self.other).keep(event)
        found, self._kept = self._kept, []
        return found

    def keep(self, event: TransportEvent) -> None:
        self._kept.append(event)

    def busy(self) -> bool:
        """Whether a write is not quiescent, or an event is kept."""
        return bool(self._kept) or self._transport.busy()

    def close(self, drain_s: float = 1.0) -> None:
        """Nothing: the other role may still need the transport."""


def transport_roles(transport: Transport) -> tuple[Transport, Transport]:
    prefill, decode = TransportRole(transport, arrivals=False), TransportRole(transport, arrivals=True)
    prefill.other, decode.other = decode, prefill
    return cast("Transport", prefill), cast("Transport", decode)
