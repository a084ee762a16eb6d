"""A decode rank's scatters: parts, sources and plans, which are prepared, and when it looks again."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from support.stories import layout

from kvproto.data.decode_data import SCATTER, STIRS_S, DecodeData
from kvproto.data.joint_launches import JointLaunches
from kvproto.data.pool_memory import costs_profile
from kvproto.data.prepared_launches import ReadyLaunch
from kvproto.data.room_entry import NO_TABLE, RoomEntry
from kvproto.data.staged_writes import SMALL
from kvproto.io.kernels.base import Done
from kvproto.io.transports.base import TransportError
from kvproto.layout.cut import Cut, layers_of
from kvproto.layout.plan import Plan
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import PagesRsp, StgNotify
from kvproto.protocol.notification import make_tag
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import Pair

CHUNK_TOKENS, REGION, ROOM = 16, 256, 5


class Asked:
    """A decode rank whose kernels write down what they are asked for."""

    def __init__(self, pair: Pair) -> None:
        _, self.loop, entries, self.data = inside(pair.decodes[0])
        self.plan = pair.plan
        pages = np.arange(40, 50, dtype=np.int64)
        entries[ROOM] = RoomEntry(32, torch.from_numpy(pages), pages, len(pages), carried=(self.plan, 0))
        self.parts: list[list[Any]] = []
        self.brought: list[tuple[int, int]] = []
        self.data.kernels = cast("Any", SimpleNamespace(bind=self.bind))
        self.data.ring.twins = True
        self.data.ring.bring = lambda *where: self.brought.append(where)  # type: ignore[method-assign]

    def bind(self, side: str, _pool: Any, _table: Any, first: int, tokens: int, parts: list[Any]) -> Any:
        assert (side, first, tokens) == ("scatter", CHUNK_TOKENS, CHUNK_TOKENS)
        self.parts.append(parts)
        return lambda _stream, _after: Done()

    def scatter(self, writers: int, chunk: int = 0, groups: int = 1) -> list[Any]:
        self.data._scatter(self.launch(writers, chunk, groups))
        return self.parts.pop()

    def end(self, cut: Cut) -> int:
        return REGION + self.plan.grant_bytes(0, cut)

    def launch(self, writers: int = 0b11, chunk: int = 0, groups: int = 1) -> do.LaunchScatter:
        cut = Cut(CHUNK_TOKENS, CHUNK_TOKENS, chunk % groups, groups)
        return do.LaunchScatter(ROOM, chunk, writers, REGION, self.end(cut), cut)

    def bound(self) -> tuple[RoomEntry, Plan, ReadyLaunch]:
        entry, plan = self.data.entries[ROOM], self.plan
        return entry, plan, self.data._bind(self.launch(), entry, plan)

    def where(self, part: torch.Tensor) -> tuple[int, int]:
        """Its first byte in the ring, and its bytes."""
        return part.data_ptr() - self.data.ring.near.data_ptr(), part.nbytes


@pytest.fixture
def asked() -> Iterator[Asked]:
    with Pair(layout(2), layout(1), chunk_tokens=CHUNK_TOKENS) as pair:
        yield Asked(pair)


@pytest.mark.parametrize("writers", [0b01, 0b10, 0b11])
@pytest.mark.parametrize(("chunk", "groups"), [(0, 1), (2, 2), (3, 2)])
def test_it_reads_the_parts_of_its_writers_each_at_its_place(
    asked: Asked, writers: int, chunk: int, groups: int
) -> None:
    plan, group = asked.plan, chunk % groups
    expected = []
    for share in plan.writers(0):
        part = layers_of(share, group, groups)
        start = REGION + plan.part_offset(0, share.writer, Cut(0, CHUNK_TOKENS, group, groups))
        if writers >> share.writer & 1:
            expected.append((part, (start, plan.part_bytes(part, Cut(0, CHUNK_TOKENS)))))
    made = asked.scatter(writers, chunk, groups)
    assert [(part, asked.where(staged)) for part, staged in made] == expected
    assert asked.brought == [(REGION, REGION + plan.grant_bytes(0, Cut(0, CHUNK_TOKENS, group, groups)))]
    assert asked.data.stats == {"scatters": 1}


def test_what_is_bound_says_what_it_was_made_from_and_which_bytes_it_reads(asked: Asked) -> None:
    entry, plan, made = asked.bound()
    assert (made.entry, made.by, made.first, made.layers) == (entry, plan, REGION, 0)
    assert made.end == REGION + plan.grant_bytes(0, Cut(0, CHUNK_TOKENS))
    assert made.nbytes == sum(plan.part_bytes(share, Cut(0, CHUNK_TOKENS)) for share in plan.writers(0))


def test_bytes_are_counted_by_the_route_on_which_they_came(asked: Asked) -> None:
    data, (entry, plan, made) = asked.data, asked.bound()
    for count in (1, 2):
        asked.scatter(0b01)
        assert data.moved == {"staged": count * made.nbytes // 2, "pages": 0}, "one of two parts of a chunk"
        assert entry.staged == data.moved["staged"]
    for prefix, pages in ((CHUNK_TOKENS, 0), (0, made.nbytes)):
        entry.carried = plan, prefix
        data.arrived(entry)
        assert data.moved["pages"] == pages


def looked_at(polled: list[str], name: str) -> list[Any]:
    """Note that it is polled, and have no news."""
    polled.append(name)
    return []


@pytest.mark.parametrize(("took", "stirs"), [(0.0, False), (STIRS_S, False), (2 * STIRS_S, True)])
def test_bytes_are_coming_where_a_poll_of_the_transports_takes_time(asked: Asked, took: float, stirs: bool) -> None:
    data, polled, times = cast("Any", asked.data), list[str](), [took, 0.0]
    data.loop = SimpleNamespace(clock=SimpleNamespace(real=times.pop))
    for name, each in (("the transport", data.transport), ("the former", SimpleNamespace())):
        each.poll = partial(looked_at, polled, name)
        data.former = each
    data.stirs = not stirs
    data.poll()
    assert data.stirs is stirs and polled == ["the transport", "the former"]
    data.former, data.loop = None, asked.loop


def test_a_table_that_was_put_off_is_placed_before_it_is_bound(asked: Asked) -> None:
    placed: list[int] = []
    asked.data.streams.place_all = lambda: placed.append(1)  # type: ignore[method-assign]
    asked.bound()
    assert not placed
    asked.data.entries[ROOM].table = NO_TABLE
    asked.bound()
    assert placed == [1]


@pytest.mark.parametrize(
    ("device", "ready", "at_once"), [(False, True, False), (True, False, False), (True, True, True)]
)
def test_what_is_ready_for_a_device_is_launched_at_once_and_the_rest_after_the_frames(
    asked: Asked, device: bool, ready: bool, at_once: bool
) -> None:
    data = asked.data
    assert data.launches.hungry is None and not data.compiles, "there is no device"
    assert data.costs == data.rank.settings.costs_of(costs_profile(data.transport.caps, data.pool))
    effect, asked.data.launches.hungry = asked.launch(), (lambda _: True) if device else None
    if ready:
        asked.data.prepared.kept[effect] = asked.bound()[2]
    asked.loop.handlers[do.LaunchScatter](effect)
    assert asked.data.stats["scatters"] == at_once
    asked.data.launches.run()
    assert asked.data.stats["scatters"] == 1


def test_one_that_was_made_ready_waits_for_its_table_and_its_bytes_as_well(asked: Asked) -> None:
    waited, (entry, plan, made) = list[RoomEntry](), asked.bound()
    asked.data.streams.await_table = waited.append  # type: ignore[assignment,method-assign]
    asked.data.prepared.kept[asked.launch()], entry.placed = made, "its table"
    asked.parts.clear()
    asked.data._scatter(asked.launch())
    assert not asked.parts, "it was ready"
    assert waited == [entry] and asked.brought == [(REGION, REGION + plan.grant_bytes(0, Cut(0, CHUNK_TOKENS)))]


def test_a_small_region_is_read_with_the_others_of_its_moment_and_a_large_one_at_once(asked: Asked) -> None:
    data = asked.data
    data.together = JointLaunches[Any](data.loop, data.kernels, "a stream", SCATTER, data._went)
    data.small = asked.plan.grant_bytes(0, Cut(0, CHUNK_TOKENS))
    asked.scatter(0b11)
    assert data.stats["scatters"] == 0
    data.together.go()
    assert data.stats["scatters"] == 1
    data.small -= 1
    asked.scatter(0b11)
    assert data.stats["scatters"] == 2


def test_a_scatter_that_cannot_be_made_fails_alone(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(asked.loop, "raise_event", told.append)
    monkeypatch.setattr(asked.data.kernels, "bind", lambda *_: 1 // 0)
    asked.data._scatter(asked.launch(chunk=3))
    assert told == [ev.ScatterFailed(ROOM, 3)] and not asked.data.scatters


def test_large_regions_that_were_granted_are_made_ready_one_a_look(asked: Asked) -> None:
    data, rank, since = asked.data, cast("Any", asked.data.rank), list[int]()
    large, small, strange = asked.launch(), asked.launch(chunk=1), replace(asked.launch(chunk=2), room=99)
    assert data.small == SMALL and not data._prepare_next()
    data.small = asked.plan.grant_bytes(0, Cut(0, CHUNK_TOKENS)) - 1
    unplanned = replace(large, room=7)
    data.entries[7] = copy(data.entries[ROOM])
    data.entries[7].carried = None

    def expected_scatters(first: int) -> list[do.LaunchScatter]:
        since.append(first)
        return [large, small, strange, unplanned]

    rank.expected_scatters = expected_scatters
    data._granted -= 3
    assert data._prepare_next() and large in data.prepared and small not in data.prepared
    assert since == [rank.ring.next_grant - 3]
    data.small += 1
    assert data._prepare_next()
    data.small = 0
    assert data._prepare_next() and data._prepare_next() and not data._prepare_next()
    assert list(data.prepared.kept) == [large] and len(since) == 1


def test_only_a_device_has_its_scatters_foreseen_and_only_while_nothing_moves(asked: Asked) -> None:
    data, looks = cast("Any", asked.data), [True, False]
    data._prepare_next = looks.pop
    assert not data.poll() and len(looks) == 2
    data.streams.stream = "a stream"
    assert not data.poll() and data.poll() and not looks
    data.transport.poll = lambda: [None]
    assert data.poll()


def test_notes_are_heard_on_the_link_of_who_wrote_them_now(asked: Asked) -> None:
    rank, heard = cast("Any", asked.data.rank), list[Any]()

    def receive(*what: Any) -> list[Any]:
        heard.append(what)
        return []

    rank.receive = receive
    ((group, index), link), *_ = rank.link_of.items()
    asked.data._arrived(make_tag(group, index, [(9, ROOM, StgNotify(1, 2)), (9, ROOM, StgNotify(2, 3))]))
    assert heard == [(link, 9, ROOM, StgNotify(chunk, chunk + 1), asked.loop.now, b"", 0) for chunk in (1, 2)]


def test_its_transport_follows_the_loop_s_thread_and_ends_with_it(asked: Asked) -> None:
    called: list[str] = []
    transport = cast("Any", asked.data.transport)
    transport.adopt, close = lambda: called.append("adopt"), transport.close
    transport.close = lambda: called.append("close")
    asked.data.adopt()
    asked.data.close()
    assert called == ["adopt", "close"]
    transport.close = close


@pytest.mark.parametrize(("error", "told"), [
    (OSError("planted"), TransportError("the former transport: OSError: planted")),
    (KeyboardInterrupt("planted"), KeyboardInterrupt("planted")),
])  # fmt: skip
def test_every_instance_is_closed_and_what_one_raises_is_told(
    asked: Asked, error: BaseException, told: BaseException
) -> None:
    data, called = cast("Any", asked.data), list[str]()

    def fails() -> None:
        raise error

    data.former = SimpleNamespace(close=fails)
    data.next = SimpleNamespace(adopt=lambda: called.append("adopt"), close=lambda: called.append("close"))
    with pytest.raises(type(told), match=str(told)):
        data.close()
    assert called == ["adopt", "close"], "the next instance was made on another thread"
    data.former = data.next = None


def test_it_is_cut_by_the_plan_of_its_own_room(asked: Asked) -> None:
    assert len(asked.scatter(0b1111)) == 2
    asked.data.entries[ROOM].carried = Plan(layout(4), layout(1), CHUNK_TOKENS), 0
    assert len(asked.scatter(0b1111)) == 4


def test_pages_are_told_from_the_one_with_the_first_token_to_the_one_with_the_last(asked: Asked) -> None:
    sent: list[Any] = []
    asked.loop.connections.send = lambda *what: sent.append(what)  # type: ignore[method-assign]
    size = asked.data.rank.layout.page_size
    asked.loop.handlers[do.TransmitPages](do.TransmitPages(1, 2, ROOM, 3, Cut(size, size + 1), 0.5))
    told = np.arange(41, 43, dtype="<u4").tobytes()
    assert sent == [(1, 2, ROOM, PagesRsp(3, told, 0.5))]


@pytest.mark.parametrize(("device", "expected", "granted", "soon"), [
    (False, 1, 8, False), (True, 1, 7, True), (True, 0, 8, True), (True, 0, 7, False),
])  # fmt: skip
def test_scatters_are_made_ready_on_a_device_while_a_region_was_granted_that_was_not_looked_at(
    device: bool, expected: int, granted: int, soon: bool
) -> None:
    data: Any = SimpleNamespace(
        streams=SimpleNamespace(stream=object() if device else None), _expected=[0] * expected, _granted=7,
        rank=SimpleNamespace(ring=SimpleNamespace(next_grant=granted)),
    )  # fmt: skip
    assert cast("Any", vars(DecodeData)["_soon"]).fget(data) is soon


@pytest.mark.parametrize(("notify", "progress", "grants", "calling", "awake"), [
    (False, False, 1, 1, False), (True, False, 1, 0, True), (True, False, 0, 1, False),
    (False, True, 1, 0, True), (False, True, 0, 1, True), (True, True, 0, 0, False),
])  # fmt: skip
def test_a_rank_looks_again_while_somebody_may_need_it(
    notify: bool, progress: bool, grants: int, calling: int, awake: bool
) -> None:
    caps, moving = SimpleNamespace(native_notify=notify, needs_target_progress=progress), [False]
    data: Any = SimpleNamespace(
        transport=SimpleNamespace(caps=caps, busy=lambda: moving[0]), rank=SimpleNamespace(grants=[0] * grants),
        calling=[0] * calling, scatters=[], _soon=False,
    )  # fmt: skip
    assert DecodeData.busy(data) is awake
    data._soon = True
    assert DecodeData.busy(data), "a scatter may be made ready"
    data._soon = False
    data.scatters = [0]
    assert DecodeData.busy(data)
    data.scatters, moving[0] = [], True
    assert DecodeData.busy(data)
