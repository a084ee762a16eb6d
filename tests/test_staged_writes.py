"""Staged writes alone: their parts, which are ready, and which prepared write goes when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from support.stories import layout

from kvproto.data.staged_writes import PreparedWrites, StagedWrite
from kvproto.io.transports.base import PeerId, TransportError
from kvproto.layout.cut import Cut, Part, layers_of
from kvproto.layout.plan import Plan
from kvproto.protocol import effects as do
from kvproto.protocol.events import Target
from kvproto.protocol.messages import StgNotify
from kvproto.protocol.notification import make_tag

CHUNK_TOKENS, SLOT = 16, 1 << 16
PLAN = Plan(layout(2), layout(1), CHUNK_TOKENS)
A, B = PeerId("a"), PeerId("b")


class World:
    """The staged writes of the second of two prefill ranks, over a transport that counts prepared writes."""

    def __init__(self, *, notify: bool = True) -> None:
        self.prepared_writes: list[Any] = []
        self.wrong = False
        self.peers = {1: A, 2: B}
        transport: Any = SimpleNamespace(
            caps=SimpleNamespace(native_notify=notify), remote=lambda peer, index: (peer, index),
            prepare=self.prepare, drop=self.prepared_writes.remove,
        )  # fmt: skip
        self.writes = PreparedWrites((7, 1), transport, cast("Any", "staging"), SLOT, self.peers)

    def prepare(self, *about: Any) -> Any:
        if self.wrong:
            raise ValueError("planted")
        self.prepared_writes.append(about)
        return about

    def ready(self, effect: do.LaunchGather) -> None:
        self.writes.ready(effect)


def gather(chunk: int = 0, *, slot: int = 3, link: int = 1, epoch: int = 9, groups: int = 1) -> do.LaunchGather:
    cut = Cut(0, CHUNK_TOKENS, chunk % groups, groups)
    return do.LaunchGather(5, chunk, 0, Target(link, epoch, cut, PLAN.part(1, 0, cut)), slot, 1024, 4)


def write(chunk: int = 0, **more: Any) -> do.PostWrite:
    made = gather(chunk, **more)
    return do.PostWrite(*(getattr(made, name) for name in made.__struct_fields__))


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("chunk", [0, 1, 3])
def test_a_write_is_its_part_of_its_region_from_its_slot(world: World, chunk: int, groups: int) -> None:
    share, group = PLAN.share(1, 0), chunk % groups
    part = layers_of(share, group, groups)
    start = PLAN.part_offset(share.reader, share.writer, Cut(0, CHUNK_TOKENS, group, groups))
    nbytes = PLAN.part_bytes(part, Cut(0, CHUNK_TOKENS))
    about = gather(chunk, groups=groups)
    assert about.to.part == Part(part, start, nbytes) and start > 0
    made = world.writes.take(write(chunk, groups=groups))
    assert made == StagedWrite(A, (3 * SLOT, 1024 + start, nbytes), (9, 5, StgNotify(chunk, 4)))


def test_what_was_made_ready_is_taken_with_its_prepared_write(world: World) -> None:
    world.ready(gather())
    (first,) = world.prepared_writes
    world.ready(gather())
    ((peer, parts, tag),) = world.prepared_writes
    assert first is world.prepared_writes[0], "it is not made ready twice"
    assert peer == A and tag == make_tag(7, 1, [(9, 5, StgNotify(0, 4))])
    (part,) = parts
    made = world.writes.take(write())
    assert made.prepared is world.prepared_writes[0] and part.descs.tolist() == [list(made.piece)]
    assert world.writes.take(write()).prepared is None and len(world.prepared_writes) == 1


@pytest.mark.parametrize("other", [write(1), write(link=2)])
def test_what_was_made_ready_for_another_write_is_dropped(world: World, other: do.PostWrite) -> None:
    world.ready(gather())
    made = world.writes.take(other)
    assert made.prepared is None and not world.prepared_writes
    assert made.note[2] == StgNotify(other.chunk, other.grant) and made.peer == world.peers[other.to.link]


@pytest.mark.parametrize("field", ["room", "peer", "to", "offset", "grant"])
def test_what_differs_in_anything_is_another_write(world: World, field: str) -> None:
    world.ready(gather())
    asked = write()
    other = write(epoch=8).to if field == "to" else getattr(asked, field) + 1
    made = world.writes.take(replace(asked, **{field: other}))
    assert made.prepared is None and not world.prepared_writes


def test_a_slot_has_the_latest_guess_and_others_keep_theirs(world: World) -> None:
    world.ready(gather(0, slot=0))
    world.ready(gather(1, slot=1))
    world.ready(gather(2, slot=0))
    assert len(world.prepared_writes) == 2
    assert world.writes.take(write(1, slot=1)).prepared is world.prepared_writes[0]
    assert world.writes.take(write(2, slot=0)).prepared is world.prepared_writes[1]


def test_a_peer_that_is_left_leaves_no_prepared_write_and_no_other_s(world: World) -> None:
    world.ready(gather(0, slot=0, link=1))
    world.ready(gather(0, slot=1, link=2))
    world.writes.leave(A)
    assert [about[0] for about in world.prepared_writes] == [B]
    assert world.writes.take(write(0, slot=0)).prepared is None
    assert world.writes.take(write(0, slot=1, link=2)).prepared is world.prepared_writes[0]


def test_slots_in_other_memory_leave_no_prepared_write_of_the_former(world: World) -> None:
    world.ready(gather(0, slot=0))
    world.ready(gather(1, slot=1))
    world.writes.move(cast("Any", "other memory"))
    assert not world.prepared_writes
    made = world.writes.take(write(0, slot=0))
    (part,) = world.writes.parts([made])
    assert made.prepared is None and cast("Any", part.src) == "other memory"


def test_a_guess_that_came_true_for_a_peer_that_was_exchanged_is_none(world: World) -> None:
    world.ready(gather())
    world.peers[1] = B
    made = world.writes.take(write())
    assert made.peer == B and made.prepared is None and not world.prepared_writes


def test_what_cannot_be_made_ready_is_told_by_the_write_alone(world: World) -> None:
    world.wrong = True
    world.ready(gather())
    assert world.writes.take(write()).prepared is None
    del world.peers[1]
    world.ready(gather())
    with pytest.raises(TransportError, match="not connected"):
        world.writes.take(write())
    assert not world.prepared_writes


def test_several_writes_to_a_peer_are_one_table_and_one_tag(world: World) -> None:
    made = [world.writes.take(write(chunk, slot=chunk)) for chunk in (0, 1)]
    (part,) = world.writes.parts(made)
    assert cast("Any", (part.src, part.dst)) == ("staging", (A, 0))
    assert cast("Any", part.descs).tolist() == [list(each.piece) for each in made]
    assert world.writes.tag(made) == make_tag(7, 1, [each.note for each in made])
    assert World(notify=False).writes.tag(made) == b""
