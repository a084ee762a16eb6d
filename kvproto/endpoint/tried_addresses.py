"""Tried addresses: connections beside links, for addresses that an engine names while the link is up.

The decode rank's table decides what becomes of such an address (`decode_link`); here is its connection.  There is one
a link at most, under the link's number with a minus sign: the loop hands over what comes by it with that number, and
the rank hears nothing of it but the answer to the call.  A connection ends when its address is given up or taken, when
another address is tried, and when its link is lost or forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from kvproto.io.control.control import ControlError, Peer
from kvproto.loop.call_preparation import is_name
from kvproto.loop.rank_loop import Loop
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.rank.decode import DecodeRank


class TriedAddresses:
    """The handlers for addresses that are tried; the loop's thread."""

    def __init__(
        self, loop: Loop, rank: DecodeRank, name: Callable[[int], str], taken: Callable[[int, str], None],
    ) -> None:  # fmt: skip
        """`name` words a link for the log; `taken` is told of a link, and the address that it leads to now."""
        self._loop, self._rank, self._name, self._taken = loop, rank, name, taken
        #: by link: the address that is tried beside it
        self.tried: dict[int, str] = {}

    def end(self, link: int) -> None:
        """Close the connection beside this link, if there is one."""
        self.tried.pop(link, None)
        self._loop.connections.forget(-link)

    def call(self, effect: do.TryAddress) -> None:
        """Call there, by the connection that there is or a new one."""
        link, connections = effect.link, self._loop.connections
        if self.tried.get(link) != effect.address:
            self.end(link)
            try:
                connections.bind(-link, self._connect(effect.address))
            except ControlError as error:
                self._loop.raise_event(ev.AddressAnswered(link, effect.session, str(error)))
                return
            self.tried[link] = effect.address
        if not connections.waits(-link):
            connections.send(-link, 0, 0, self._rank.hello(effect.session, link))

    def _connect(self, address: str) -> Peer:
        if is_name(address):
            raise ControlError(f"nobody knows the name in {address!r}")
        return self._loop.control.connect(address)

    def take(self, effect: do.TakeAddress) -> None:
        """The connection beside the link becomes the link's."""
        self.tried.pop(effect.link, None)
        self._loop.connections.take(-effect.link, effect.link)
        self._taken(effect.link, effect.address)

    def leave(self, effect: do.LeaveAddress) -> None:
        """Close the connection beside the link, and log why."""
        address = self.tried.get(effect.link, "its new address")
        self.end(effect.link)
        self._loop.counts["addresses that were tried in vain"] += 1
        self._loop.logs.untaken(self._name(effect.link), address, effect.why)
