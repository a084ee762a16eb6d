"""Call preparation: the slow steps before a call, compilation of kernels and look-ups of names.

Both run on one helper thread, neither on the engine's thread nor on the loop's.  A look-up takes seconds if a name
server is slow.  libzmq would do it in the one thread that carries all frames of the endpoint, so libzmq only gets
numeric addresses.  A name may move: if a call is not answered, its name is looked up again.

If nothing is slow (kernels on a CPU, numeric addresses), there is no thread.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kvproto.errors import EndpointError
from kvproto.io.control.keys import MARK


def is_name(address: str) -> bool:
    scheme, _, rest = address.partition("://")
    host = rest.partition(MARK)[0].rpartition(":")[0].strip("[]")
    if scheme != "tcp" or not host or ";" in host:
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def numbered(address: str) -> str:
    """Return the address with its host's IPv4 number, or unchanged for an unknown name; may take seconds."""
    if not is_name(address):
        return address
    place, mark, key = address.partition(MARK)
    scheme, _, rest = place.partition("://")
    host, _, port = rest.rpartition(":")
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return address
    return f"{scheme}://{found[0][4][0]}:{port}{mark}{key}"


class CallPreparation:
    """One thread, made when it is needed."""

    def __init__(
        self, hand_over: Callable[[Callable[[], None]], None], begin: Callable[[], None] = lambda: None
    ) -> None:  # fmt: skip
        """`hand_over` runs a callable on the loop; EndpointError: the loop has ended.

        `begin` is called on the thread before anything else.
        """
        self._hand_over, self._begin = hand_over, begin
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[], Callable[[], None]]) -> None:
        """Do this work on the thread, and what it returns on the loop's."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="kvproto-call", initializer=self._begin)
        self._pool.submit(self._do, work)

    def _do(self, work: Callable[[], Callable[[], None]]) -> None:
        then = work()
        with contextlib.suppress(EndpointError):
            self._hand_over(then)

    def close(self) -> None:
        """Take no more; what is under way ends by itself, and nobody waits for it."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
