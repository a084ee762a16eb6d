"""Holdings: the resources of an endpoint and its process; they are equal before and after, or
something leaks.

Both ends of it count: rooms, sends, grants and slots by name (`left_over`), and what the process has of the system.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from kvproto.endpoint.endpoint import Endpoint
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pools import left_over

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def holdings(endpoint: Endpoint) -> dict[str, object]:
    """Everything that could leak, of an endpoint over a transport with books (not the one in memory)."""
    parts = inside(endpoint)
    transport = parts.data.transport
    return {
        "rooms": left_over(endpoint), "threads": threading.active_count(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())), "writes": transport.busy(),
        "regions": len(transport._table.regions()), "peers": len(list(transport._links.all())),  # noqa: SLF001
        "leaving": len(getattr(parts.data, "leaving", ())), "links": len(parts.rank.links),
        "bound": len(parts.loop.connections.peer_of), "loop": parts.loop._thread is None,  # noqa: SLF001
    }  # fmt: skip


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
