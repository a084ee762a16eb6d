"""A transport that closes while another thread has left a write in flight."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from kvproto.io.transports.base import Handle, TransportError, WritePart
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.links import InFlightWrite
from kvproto.io.transports.memory import MemoryTransport
from kvproto.io.transports.regions import bulk


class Watched(MemoryTransport):
    """One that notes what it still has in flight when it ends."""

    left: list[Handle]

    def _end(self) -> None:
        self.left = list(self._flights)
        super()._end()


def left_in_flight(fabric: Fabric) -> tuple[Watched, np.ndarray[Any, np.dtype[np.uint8]], object]:
    """A transport with a write that another thread left, its target's bytes, and what must live as long."""
    transport, other = Watched(fabric), MemoryTransport(fabric)
    bytes_, target = np.full(64, 7, np.uint8), np.zeros(64, np.uint8)
    source = transport.register(bytes_.ctypes.data, 64)
    region = other.register(target.ctypes.data, 64)
    peer = transport.connect(other.endpoint())
    prepared = transport.prepare(peer, [WritePart(source, transport.remote(peer, region.index), bulk(0, 0, 64))], b"")

    def leave() -> None:
        flight: InFlightWrite = transport._post(Handle(0), prepared)
        transport._leave(flight)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(leave).result()
    assert transport.busy()
    return transport, target, (bytes_, other)


def test_a_transport_that_closes_waits_for_what_another_thread_has_left() -> None:
    transport, target, _ = left_in_flight(Fabric(auto=True))
    transport.close(30.0)
    assert set(target.tolist()) == {7} and transport.left == []
    assert not transport.busy() and transport.poll() == []


def test_a_transport_that_closes_waits_for_a_thread_that_warms_a_peer() -> None:
    fabric = Fabric(auto=True)
    transport, other = Watched(fabric), MemoryTransport(fabric)
    peer, looks = transport.connect(other.endpoint()), list[bool]()
    transport._links.hold(peer)

    def look() -> None:
        looks.append(transport._links.held())
        if len(looks) == 2:
            transport._links.release(peer)

    transport._look = look  # type: ignore[method-assign]
    transport.close(30.0)
    assert looks == [True, True]


def test_what_has_not_ended_when_a_transport_closes_is_taken_over_before_the_end() -> None:
    transport, target, _ = left_in_flight(Fabric())
    transport.close(0.0)
    assert transport.left == [Handle(0)] and set(target.tolist()) == {0}
    assert not transport.busy() and transport.quiescent(Handle(0)) and transport.poll() == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("step", ["_progress", "_gather", "_end"])
def test_a_close_of_which_a_step_fails_goes_on_to_its_end_and_says_so(
    monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    transport, _, _alive = left_in_flight(Fabric())

    def fail() -> None:
        raise error("planted")

    monkeypatch.setattr(transport, step, fail)
    with pytest.raises(error if error is KeyboardInterrupt else TransportError, match="planted"):
        transport.close(0.02)
    assert transport.closed and hasattr(transport, "left") == (step != "_end")
    if step != "_gather":
        assert transport.quiescent(Handle(0)) and not transport.busy()
    monkeypatch.undo()
    transport.close()
