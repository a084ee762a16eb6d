"""Transport peer: ends of the backends, by name, made of `kvproto.verify.testing.transport_ends`."""

from __future__ import annotations

import os
from functools import partial

import pytest

from kvproto.io.transports.base import BackendUnavailable, Transport
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.verify.testing import transport_ends
from kvproto.verify.testing.transport_ends import SIZE, LocalPeer, Rank, drain, failed, wait

__all__ = ["LocalPeer", "ProcessPeer", "Rank", "drain", "failed", "local_pair", "make", "make_or_skip", "wait"]


def make(backend: str) -> Transport:
    """A transport of this process. The backend is imported only if it is asked for."""
    os.environ.setdefault("UCX_NET_DEVICES", "lo")
    if backend.startswith("nixl"):
        from kvproto.io.transports.nixl import NixlTransport

        return NixlTransport()
    from kvproto.io.transports.mooncake import MooncakeTransport

    return MooncakeTransport("127.0.0.1")


def make_or_skip(backend: str) -> Transport:
    try:
        return make(backend)
    except BackendUnavailable as error:
        pytest.skip(str(error))


class ProcessPeer(transport_ends.ProcessPeer):
    """A rank of this backend in a process of its own."""

    def __init__(self, backend: str, size: int = SIZE) -> None:
        super().__init__(partial(make, backend), size)

    def ready(self) -> ProcessPeer:
        super().ready()
        return self


def local_pair() -> tuple[Transport, LocalPeer]:
    fabric = Fabric(auto=True)
    return MemoryTransport(fabric), LocalPeer(MemoryTransport(fabric))
