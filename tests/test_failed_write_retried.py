"""A staged write that has failed, and of which no byte can land any more, is retried over pages and saves its room."""

from __future__ import annotations

import pytest
from support.stories import layout

from kvproto.io.transports.base import Handle
from kvproto.io.transports.fabric import Fabric
from kvproto.protocol.states import Cause
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

TOKENS = 20


def fail_first_writes(pair: Pair, times: int = 1) -> Room:
    """Carry a room whose first `times` writes fail; returns the room."""
    data, room, failed = inside(pair.prefills[0]).data, pair.open(TOKENS), set[Handle]()
    pair.produce(room)
    for _ in range(times):
        pair.pump(lambda known=frozenset(failed): bool(data.writes.flying.keys() - known))  # type: ignore[misc]
        failed |= data.writes.flying.keys()
        pair.fabric.fail(data.transport.instance, max(failed))
    pair.fabric.auto = True
    pair.fabric.run()
    pair.pump(lambda: pair.over(room))
    return room


def test_one_settled_failure_of_a_staged_write_does_not_fail_its_room() -> None:
    with Pair(layout(1), layout(1), grid=32, fabric=Fabric(native_notify=False)) as pair:
        room = fail_first_writes(pair)
        assert pair.causes(room) == {Cause.NONE}
        pair.check(room)
        entered = inside(pair.prefills[0]).rank.entered
        assert sum(count for key, count in entered.items() if key[1:3] == ("WRITING", "WriteFailed")) == 1
        counts = pair.prefills[0].metrics()
        assert counts["direct"] + counts["slices"] == 1


@pytest.mark.parametrize(("tells", "times"), [(True, 1), (False, 2)])
def test_a_write_that_tells_and_the_retry_itself_are_not_retried(tells: bool, times: int) -> None:
    with Pair(layout(1), layout(1), grid=32, fabric=Fabric(native_notify=tells)) as pair:
        room = fail_first_writes(pair, times)
        assert pair.causes(room) == {Cause.WRITE_FAILED}
