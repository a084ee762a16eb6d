"""Lines: which peer of the control plane is at the other end of a link, and what waits for it.

A link is the protocol's; the connection under it is the control plane's, and a peer that returns comes over another
one.  So a link is bound to its latest connection, and frames of the former one are nobody's.

A frame that the control plane cannot take yet stays in the backlog of its peer and is tried again in the next pass, in
order; a backlog beyond its bound means that the peer is as good as gone, and the link is reported lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kvproto.io.control.control import Control, Peer, Sent
from kvproto.io.control.outbox import Counts, Outboxes
from kvproto.protocol.codec import encode
from kvproto.protocol.messages import Message

#: frames, and their bytes, that wait for one peer beyond the control plane's own queue
BACKLOG, BACKLOG_BYTES = 65536, 64 << 20


class Lines:
    """Links and peers, one to one; `lost` is told of a link whose backlog is beyond its bound."""

    def __init__(
        self, control: Callable[[], Control], counts: Counter[str], lost: Callable[[int], None],
        frames: int = BACKLOG, nbytes: int = BACKLOG_BYTES,
    ) -> None:  # fmt: skip
        self.control, self.counts, self.lost = control, counts, lost
        self.peer_of: dict[int, Peer] = {}
        self.link_at: dict[Peer, int] = {}
        self.backlog = Outboxes(self._post, Counts(), frames, nbytes)

    def bind(self, link: int, peer: Peer) -> None:
        """This link's messages go to this peer from now on."""
        if self.peer_of.get(link, peer) != peer:
            self.forget(link)
        self.peer_of[link] = peer
        self.link_at[peer] = link

    def forget(self, link: int) -> None:
        """This link has no connection any more."""
        peer = self.peer_of.pop(link, None)
        if peer is not None:
            self.link_at.pop(peer, None)
            self.backlog.forget(peer)
            self.control().disconnect(peer)

    def send(self, link: int, epoch: int, room: int, body: Message) -> None:
        """Put this message on this link."""
        peer = self.peer_of.get(link)
        if peer is None:
            self.counts["messages to nobody"] += 1
            return
        if self.backlog.offer(peer, encode(epoch, room, body)) is Sent.FULL:
            self.backlog.forget(peer)
            self.lost(link)

    def _post(self, peer: Peer, frame: bytes) -> Sent:
        sent = self.control().send(peer, frame)
        if sent is Sent.FULL:
            self.counts["queue full"] += 1
        return sent
