"""A write whose region is granted before its KV is there is made ready while nothing happens, and posted as it is."""

from __future__ import annotations

from typing import Any

from kvproto.layout.sharding import Layout
from kvproto.protocol.states import PSend
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import SMALL, Pair

LAYOUT = Layout(layers=2, heads=2, k_dim=16, v_dim=16, itemsize=2, dtype="bfloat16", page_size=4, tp=1)


def test_writes_are_ready_before_their_kv_is() -> None:
    made: list[Any] = []
    with Pair(LAYOUT, LAYOUT, grid=8, settings=SMALL) as pair:
        parts = inside(pair.prefills[0])
        prepare = parts.data.transport.prepare
        parts.data.transport.prepare = lambda *about: made.append(about) or prepare(*about)  # type: ignore[method-assign,func-returns-value]
        room = pair.name(24)
        pair.open_decode(room)
        pair.prefills[0].open(room, 24, pair.tables[room][0])
        pair.prefills[0].prefetch(room)
        pair.pump(lambda: len(made) == 3)
        sends = parts.rank.sends[room.key].values()
        assert sum(send.state is PSend.AWAIT_KV for send in sends) == 3 < SMALL.slots
        assert not parts.data._foresee() and parts.data.stats["writes"] == 0
        pair.finish(room)
        pair.check(room)
        assert parts.data.stats["writes"] == 3
    assert len(made) == 3
