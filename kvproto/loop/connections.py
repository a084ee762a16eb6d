"""Connections: the control-plane peer at the other end of each link.

A link belongs to the protocol, the connection under it to the control plane, and a peer that reconnects has a new
connection.  So a link is bound to its latest connection, and frames of the previous one are dropped.

A message with an epoch leaves at the loop's next flush, bundled with the link's other messages.  Frames that a peer
does not accept queue in the control plane, in order; the link's own frames (heartbeats, watermarks, the handshake) go
before those of rooms.  If that queue is full, too, the peer is treated as gone: its queue is dropped, and its link is
reported lost (counted as "queue full").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from kvproto.io.control.control import Control, Peer, Sent
from kvproto.loop.blames import BLAMING, Blames
from kvproto.protocol import effects as do
from kvproto.protocol.codec import encode
from kvproto.protocol.messages import Message


class HasControl(Protocol):
    """The owner of a control plane, which may be replaced."""

    control: Control


class Connections:
    """Links and peers, one to one; `lost` is told of a link whose peer's outbox is full."""

    def __init__(self, at: HasControl, counts: Counter[str], lost: Callable[[int], None], blames: Blames) -> None:
        self.at, self.counts, self.lost, self.blames = at, counts, lost, blames
        self.peer_of: dict[int, Peer] = {}
        self.link_at: dict[Peer, int] = {}
        #: messages that were sent, by kind
        self.said: Counter[type[Message]] = Counter()

    def bind(self, link: int, peer: Peer) -> None:
        """This link's messages go to this peer from now on."""
        if self.peer_of.get(link, peer) != peer:
            self.forget(link)
        self.peer_of[link] = peer
        self.link_at[peer] = link

    def forget(self, link: int) -> None:
        peer = self.peer_of.pop(link, None)
        if peer is not None:
            self.link_at.pop(peer, None)
            self.at.control.disconnect(peer)

    def take(self, other: int, link: int) -> None:
        """The connection of the one becomes the other's, whose former one is closed."""
        self.bind(link, self.peer_of.pop(other))

    def stands(self, link: int) -> bool:
        """Whether the connection to this link's peer is up: its process is there."""
        peer = self.peer_of.get(link)
        return peer is not None and self.at.control.stands(peer)

    def waits(self, link: int) -> bool:
        """Whether something waits for this link's peer."""
        return self.peer_of.get(link) in self.at.control.outboxes

    def clear(self, link: int) -> None:
        """Give up what waits for this link's peer: something newer says all that it did."""
        peer = self.peer_of.get(link)
        if peer is not None:
            self.at.control.outboxes.forget(peer)

    def transmit(self, effect: do.Transmit) -> None:
        self.send(effect.link, effect.epoch, effect.room, effect.body)

    def send(self, link: int, epoch: int, room: int, body: Message) -> None:
        peer = self.peer_of.get(link)
        if peer is None:
            self.counts["messages to nobody"] += 1
            return
        self.said[kind := type(body)] += 1
        if kind in BLAMING:
            body = self.blames.put(room, body)
        control = self.at.control
        if control.send(peer, encode(epoch, room, body), urgent=not room, later=epoch > 0) is Sent.FULL:
            self.counts["queue full"] += 1
            control.outboxes.forget(peer)
            self.lost(link)
