"""Wire-ups that end otherwise than they began: links hold connections, and nothing else does."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.stories import layout

from kvproto.errors import LinkError
from kvproto.protocol.states import Cause
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise

SECONDS = 10.0


def connected(pair: Pair) -> list[str]:
    """Peers of the prefill rank's transport."""
    transport: Any = inside(pair.prefills[0]).data.transport
    return [link.peer for link in transport._links.all()]


def test_a_call_that_comes_while_its_peer_is_wired_up_keeps_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decode engine detaches and attaches while the kernels for its first call compile."""
    begun, let, asked = threading.Event(), threading.Semaphore(0), list[str]()
    with Pair(layout(1), layout(1), chunk_tokens=8, ready=False) as pair:
        prefill, decode = pair.prefills[0], pair.decodes[0]
        real = prefill._map_pages

        def slow(caller: Any, peer: str) -> None:
            asked.append(peer)
            begun.set()
            let.acquire(timeout=SECONDS)
            real(caller, peer)

        monkeypatch.setattr(prefill, "_map_pages", slow)
        decode.detach()
        pair.pump(lambda: decode.detached and begun.is_set())
        decode.attach(noise(layout(1), 0, pair.pages, 2))
        let.release()
        pair.pump(lambda: len(asked) > 1)  # the first call's answer is too old, and the next one is being wired up
        for _ in range(50):
            pair.turn()
        let.release(9)
        pair.pump(decode.ready)
        assert connected(pair) == [inside(prefill).data.link_peer[1]]
        room = pair.open(30)
        pair.finish(room)
        assert pair.causes(room) == {Cause.NONE}


def test_a_wire_up_that_fails_behind_the_connection_lets_it_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no memory for kernels")

    with Pair(layout(1), layout(1), chunk_tokens=8, ready=False) as pair:
        monkeypatch.setattr(pair.prefills[0], "_map_pages", refuse)
        with pytest.raises(LinkError, match="no memory for kernels"):
            pair.pump(pair.decodes[0].ready)
        pair.pump(lambda: not connected(pair))
