"""Several live decode instances under one (group, rank): the first keeps its link, each other one is refused by name.

The reproduction: three instances with one group name took the link from each other in turn, and half of the rooms
never ended.  Everything here is the product's own: endpoints with threads, ZeroMQ sockets, bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
import torch

from kvproto import DecodeEndpoint, Layout, Pool, PrefillEndpoint, Room
from kvproto.errors import LinkError
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport

HELD = Layout(layers=1, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
GROUP, TOKENS, LIMIT = 11, 32, 30.0


def pool() -> Pool:
    """A pool of 64 pages."""
    made = [torch.zeros(64, 4, 2, 8, dtype=torch.bfloat16) for _ in range(2)]
    return Pool(made[:1], made[1:], "NHD", 4)


@pytest.fixture
def instances() -> Iterator[tuple[PrefillEndpoint, list[DecodeEndpoint]]]:
    """A prefill rank and three decode instances of one name, with threads of their own."""
    fabric = Fabric(auto=True)
    prefill = PrefillEndpoint(HELD, 0, pool(), MemoryTransport(fabric), grid=16)
    decodes = [DecodeEndpoint(HELD, 0, pool(), MemoryTransport(fabric), grid=16, group=GROUP) for _ in range(3)]
    for each in (prefill, *decodes):
        each.start()
    yield prefill, decodes
    for each in (prefill, *decodes):
        each.close()


def fate(decode: DecodeEndpoint) -> str:
    """"up" when the instance is connected, or the sentence of its refusal."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            if decode.ready():
                return "up"
        except LinkError as error:
            return str(error)
        time.sleep(0.005)
    return "neither"


def carry(prefill: PrefillEndpoint, decode: DecodeEndpoint, number: int) -> bool:
    """Move one room to this instance; whether it ended well there."""
    room, pages = Room(number), list(range(8))
    decode.open(room, TOKENS, pages)
    prefill.open(room, TOKENS, pages, group=GROUP)
    prefill.produced(room, TOKENS)
    prefill.aux(room, b"t")
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        prefill.finished(), prefill.released()
        if done := decode.finished():
            return [each.ok for each in done] == [True]
        time.sleep(0.005)
    return False


def test_the_first_of_three_live_instances_keeps_its_name(
    instances: tuple[PrefillEndpoint, list[DecodeEndpoint]], caplog: pytest.LogCaptureFixture
) -> None:
    prefill, (first, *others) = instances
    caplog.set_level(logging.WARNING)
    first.connect(HELD, [prefill.address])
    assert fate(first) == "up"
    for other in others:
        other.connect(HELD, [prefill.address])
    for other in others:
        said = fate(other)
        assert f"decode rank 0 of group {GROUP} is connected already" in said and "a group of its own" in said
        assert "is connected already" in other.links()[0]
    assert all(carry(prefill, first, 100 + n) for n in range(4))
    assert "a second live instance calls under this name" in prefill.links()[0]
    assert any("is connected already" in record.message for record in caplog.records)
    assert not any("is lost" in record.message for record in caplog.records)
    assert prefill.metrics()["calls under a name that is taken"] >= len(others)


def test_a_second_instance_has_the_name_when_the_first_has_ended(
    instances: tuple[PrefillEndpoint, list[DecodeEndpoint]],
) -> None:
    prefill, (first, second, _) = instances
    first.connect(HELD, [prefill.address])
    assert fate(first) == "up"
    first.close()
    second.connect(HELD, [prefill.address])
    assert fate(second) == "up" and carry(prefill, second, 7)
