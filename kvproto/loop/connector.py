"""Connector: the blocking steps of a wire-up, on a helper thread.

Connecting a transport takes milliseconds, or seconds if the peer is slow, and so does compiling the kernels of a link.
So both run on one helper thread, and their end comes back to the loop as an event.  The peer's own loop has to poll
meanwhile, and does.

Only a link's latest call matters.  A call that comes while an earlier one is queued replaces it, so the queue is
bounded by the number of links, however often a peer calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kvproto.io.transports.base import Transport, TransportError
from kvproto.protocol.events import WiredUp, WireFailed

WARM_S = 2.0


class WireUp:
    """Connects a transport to peers, off the loop."""

    def __init__(
        self, transport: Transport, answer: Callable[[WiredUp | WireFailed, str], None],
        begin: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """On the helper thread `begin` is called before all else.

        `answer` gets each event, and the peer that is connected by then (empty: none).
        """
        self._transport = transport
        self._answer = answer
        self._closed = False
        #: calls whose answers the loop has not taken (`heard`); of the loop's thread
        self.under_way = 0
        #: by link: the call that waits for the thread; both threads change it
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[int, bytes, Callable[[], None], Callable[[str], None]]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="kvproto-wire-up", initializer=begin)

    def connect(
        self, link: int, session: int, endpoint: bytes, prepare: Callable[[], None],
        reach: Callable[[str], None] = lambda _peer: None,
    ) -> None:  # fmt: skip
        """Connect to this endpoint for this call.

        `prepare` runs before the connection; `reach` runs after it, with the connected peer.
        """
        with self._lock:
            waits = link in self._waiting
            self._waiting[link] = session, endpoint, prepare, reach
        if waits:
            return
        self.under_way += 1
        try:
            self._pool.submit(self._connect, link)
        except BaseException as error:  # no thread is to be had: the link fails, and is called again
            with self._lock:
                del self._waiting[link]
            if self._closed:  # the caller's mistake, not a lack of threads
                raise
            self._answer(WireFailed(link, session, f"{type(error).__name__}: {error}"), "")

    def _connect(self, link: int) -> None:
        with self._lock:
            call = self._waiting.pop(link, None)
        if call is None:  # it was given up: there was no thread for it then
            return
        session, endpoint, prepare, reach = call
        peer = ""
        try:
            prepare()
            peer = self._transport.connect(endpoint)
            self._transport.warm(peer, WARM_S)
            reach(peer)
        except TransportError as error:
            self._answer(WireFailed(link, session, f"{error.kind}: {error}"), peer)
        except BaseException as error:  # noqa: BLE001  # a library's own: the link fails with its words, the loop goes on
            self._answer(WireFailed(link, session, f"{type(error).__name__}: {error}"), peer)
        else:
            self._answer(WiredUp(link, session, peer), peer)

    def heard(self) -> None:
        """The loop takes an answer."""
        self.under_way -= 1

    def close(self) -> None:
        """Wait for what is under way, take no more."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)
