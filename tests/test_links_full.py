"""A caller for whom a prefill rank has no link is told so, by the rank's name, and may come again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.stories import layout
from test_disconnect import full_prefill
from test_foreign_groups import hello

from kvproto import DecodeEndpoint, LinkError, PrefillEndpoint
from kvproto.fsm.timing import Timer
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol import effects as do
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings
from kvproto.verify.testing.pools import noise

LINKS, PATIENCE_S = 2, 10.0
WHY = r"prefill rank 0 of group 1 has 2 links, as many as Settings\.links allows"


class Crowd:
    """A prefill rank with few links, and decode ranks that call it."""

    def __init__(self) -> None:
        self.ends, self.fabric, held = ExitStack(), Fabric(auto=True), layout(1)
        timing = Timing(call=Timer(20.0, 3))  # an answer that is late is not asked for again
        self.held, self.settings = held, Settings(ring_bytes=1 << 16, slot_bytes=1 << 12, links=LINKS, timing=timing)
        self.prefill = self.ends.enter_context(
            PrefillEndpoint(
                held, 0, noise(held, 0, 8, 1), MemoryTransport(self.fabric), chunk_tokens=8, settings=self.settings
            )
        )
        self.decodes = list[DecodeEndpoint]()

    def call(self, group: int) -> DecodeEndpoint:
        """One more instance calls."""
        transport = MemoryTransport(self.fabric)
        pool = noise(self.held, 0, 8, 2)
        end = DecodeEndpoint(self.held, 0, pool, transport, chunk_tokens=8, group=group, settings=self.settings)
        self.decodes.append(self.ends.enter_context(end))
        end.connect(self.held, [self.prefill.address])
        return end

    def pump(self, over: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not over():
            assert time.monotonic() < end
            for each in (self.prefill, *self.decodes):
                each.poll()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    made = Crowd()
    with made.ends:
        yield made


def test_a_caller_beyond_the_bound_is_told_and_counted(crowd: Crowd) -> None:
    served = [crowd.call(10 + at) for at in range(LINKS)]
    crowd.pump(lambda: all(each.ready() for each in served))
    late = crowd.call(99)
    with pytest.raises(LinkError, match=WHY):
        crowd.pump(late.ready)
    assert crowd.prefill.metrics()["calls beyond the bound"] == 1, "it does not call again by itself"
    assert any("as many as Settings.links allows" in text for text in crowd.prefill.reports())
    assert all(each.ready() for each in served)


def test_it_is_served_when_it_comes_again_and_another_has_left(crowd: Crowd) -> None:
    served = [crowd.call(10 + at) for at in range(LINKS)]
    crowd.pump(lambda: all(each.ready() for each in served))
    late = crowd.call(99)
    with pytest.raises(LinkError, match=WHY):
        crowd.pump(late.ready)
    served[0].disconnect()
    crowd.pump(lambda: not served[0].links())
    crowd.pump(lambda: any("was lost" in text for text in crowd.prefill.links()))
    late.connect(crowd.held, [crowd.prefill.address])
    crowd.pump(late.ready)


def test_the_refusal_goes_where_the_call_came_from() -> None:
    rank = full_prefill(wired=4)
    link, effects = rank.hello(hello(100, 7), 0.0, b"there")
    assert not link
    [refusal] = [each for each in effects if isinstance(each, do.RefuseCall)]
    assert (refusal.place, refusal.session) == (b"there", 7) and "4 links" in refusal.why
    assert len(effects) == 1 and len(rank.links) == 4
