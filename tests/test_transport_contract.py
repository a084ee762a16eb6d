"""The contract asked of every backend; the tests are `kvproto.verify.testing.transport_contract`'s.

The writer is this process; the target is another one, except on the in-memory fabric.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from transport_peer import ProcessPeer, Rank, local_pair, make_or_skip

pytest.register_assert_rewrite("kvproto.verify.testing.transport_contract")

from kvproto.verify.testing.transport_contract import Ends, TransportContract


class TestMemory(TransportContract):
    @pytest.fixture(scope="class")
    @classmethod
    def ends(cls) -> Ends:
        transport, local = local_pair()
        return Rank(transport), local


def processes(backend: str) -> Iterator[Ends]:
    rank = Rank(make_or_skip(backend))
    remote = ProcessPeer(backend)
    yield rank, remote.ready()
    rank.close()
    assert remote.end() == 0


class TestNixl(TransportContract):
    @pytest.fixture(scope="class")
    @classmethod
    def ends(cls) -> Iterator[Ends]:
        yield from processes("nixl")


class TestMooncake(TransportContract):
    @pytest.fixture(scope="class")
    @classmethod
    def ends(cls) -> Iterator[Ends]:
        yield from processes("mooncake")
