"""The short answers of both data planes: at work or not, what wakes the loop, a store's share.

Each is asked of what it looks at, by hand: nothing is moved.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import product
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kvproto.data.chunk_launch import end_rows
from kvproto.data.decode_data import DecodeData
from kvproto.data.device_streams import DeviceStreams, table_failed
from kvproto.data.gathers import GATHER, Gathers
from kvproto.data.joint_launches import JointLaunches
from kvproto.data.pool_memory import _closed_end, _shape, away
from kvproto.data.prefill_data import WHOLE, PrefillData
from kvproto.data.room_entry import NO_PAGES, NO_TABLE, RoomEntry
from kvproto.data.transport_roles import transport_roles
from kvproto.data.writes import RankWrites
from kvproto.io.kernels.pool import KernelError, Pool, Slice
from kvproto.io.transports.base import Completed, Handle
from kvproto.layout.placement import Placement
from kvproto.loop.rank_loop import Loop
from kvproto.observe.logs import named
from kvproto.protocol.events import BatchRefused, BatchUnmade, GatherFailed, RoomFailed
from kvproto.protocol.states import Cause


@pytest.mark.parametrize("busy", list(product((0, 1), repeat=3)))
def test_memory_is_in_use_while_anything_may_still_touch_it(busy: tuple[int, int, int]) -> None:
    some = [[None] * count for count in busy]
    decode = SimpleNamespace(scatters=some[0], launches=some[1], rank=SimpleNamespace(grants=some[2]))
    prefill = SimpleNamespace(gathers=some[0], writes=some[1], rank=SimpleNamespace(writes=some[2]))
    for data, given in ((DecodeData, decode), (PrefillData, prefill)):
        assert vars(data)["at_work"].fget(given) is any(busy)


@pytest.mark.parametrize("polled", [False, True])
@pytest.mark.parametrize("busy", list(product((False, True), repeat=4)))
def test_a_decode_rank_rests_only_where_writers_say_when_they_write(busy: tuple[bool, ...], polled: bool) -> None:
    stirs, scatters, calling, transport = busy
    given: Any = SimpleNamespace(
        transport=SimpleNamespace(caps=SimpleNamespace(needs_target_progress=polled), busy=lambda: transport),
        stirs=stirs, scatters=scatters, calling=calling,
    )  # fmt: skip
    assert DecodeData.alarms(given) == ([] if polled and not any(busy) else None)


@pytest.mark.parametrize(
    ("slowdown", "runs", "most"),
    [(WHOLE, True, WHOLE), (50, False, WHOLE), (50, True, 25), (1, True, 1), (99, True, 49)],
)
def test_beside_a_forward_two_stores_share_what_they_may_take(slowdown: int, runs: bool, most: int) -> None:
    given: Any = SimpleNamespace(
        rank=SimpleNamespace(settings=SimpleNamespace(forward_slowdown=slowdown)),
        streams=SimpleNamespace(forward_runs=lambda: runs),
    )
    assert PrefillData._most(given) == most


def test_a_prefill_rank_rests_on_forwards_that_have_an_event() -> None:
    told = list[object]()

    class Alarm:
        def set(self, event: object) -> int | None:
            told.append(event)
            return 7 if event == "forward" else None

    class Waits:
        def __init__(self, event: object) -> None:
            self.event = event

        def awaits(self) -> object:
            return self.event

    for gathers, writes, alarm, found, asked in (
        ("forward", None, Alarm(), [7], ["forward"]), (None, "forward", Alarm(), [7], ["forward"]),
        ("forward", "forward", Alarm(), [7, 7], ["forward"] * 2), ("nothing", None, Alarm(), None, []),
        ("forward", None, None, None, []), (None, None, Alarm(), None, []), ("other", None, Alarm(), None, ["other"]),
    ):  # fmt: skip
        told.clear()
        given: Any = SimpleNamespace(
            transport=SimpleNamespace(busy=lambda: False), gather_alarm=alarm, write_alarm=alarm,
            gathers=gathers and Waits(None if gathers == "nothing" else gathers), writes=writes and Waits(writes),
        )  # fmt: skip
        assert (PrefillData.alarms(given), told) == (found, asked)
        given.transport.busy = lambda: True
        assert PrefillData.alarms(given) is None


def test_routes_are_estimated_anew_where_a_link_has_a_connection() -> None:
    for wired in (False, True):
        told, to = list[object](), SimpleNamespace(estimates={1: 2}, owed={3: 4})
        given: Any = SimpleNamespace(
            rank=SimpleNamespace(peers={5: to}), link_peer={5: "peer"} if wired else {},
            _reach=lambda *asked, told=told: told.append(asked),
        )  # fmt: skip
        PrefillData.reach_anew(given, 5)
        assert (to.estimates, to.owed) == ({}, {})
        assert told == ([(5, "peer")] if wired else [])


@pytest.mark.parametrize(("kept", "busy"), list(product((False, True), repeat=2)))
def test_a_role_is_busy_with_what_it_keeps_and_with_its_transport(kept: bool, busy: bool) -> None:
    moving: Any = SimpleNamespace(busy=lambda: busy, poll=lambda: [Completed(Handle(1))] * kept)
    prefill, decode = transport_roles(moving)
    decode.poll()
    assert (prefill.busy(), decode.busy()) == (kept or busy, busy)


def test_what_ends_the_process_is_held_wherever_a_kernel_or_a_write_fails() -> None:
    held, told, error = list[object](), list[object](), SystemExit("planted")
    loop: Any = SimpleNamespace(
        hold=held.append, raise_event=told.append, logs=SimpleNamespace(part=lambda *_: None)
    )
    nothing: Any = None
    writes = RankWrites(loop, nothing, nothing, nothing)
    gathers = JointLaunches[Any](loop, nothing, None, GATHER, nothing)
    for fails in (writes.refuse, writes.unmade, gathers.fail):
        fails((1, 2, 3), error)
    assert told == [BatchRefused(1, 2, 3), BatchUnmade(1, 2, 3), GatherFailed(1, 2, 3)] and held == [error] * 3


def test_caches_at_the_end_are_open_to_writers_where_a_room_has_one_slot_or_table_and_no_digests() -> None:
    for slots, digested, why in (
        (1, False, ""), (2, False, "a room has its state in 2 slots or tables"),
        (1, True, "digests are made of what is staged"),
    ):  # fmt: skip
        end: Any = SimpleNamespace(room_slots=slots, digested=digested, end=SimpleNamespace(name="state"))
        assert _closed_end(end) == why


def test_a_detached_pool_is_closed_and_peers_keep_what_they_were_told() -> None:
    told = Placement((), ())
    memory = away(told)
    assert (memory.regions, memory.told, memory.placement.closed) == ([], told, "the pool is detached")


def test_a_dimension_of_one_element_is_no_step_of_a_plane() -> None:
    assert _shape(torch.zeros(8, 1, 2, 4)) == [(8, 32), (2, 16), (1, 16)]


def test_a_room_without_rows_at_its_end_has_no_launch_of_them() -> None:
    entry, nothing = RoomEntry(8, NO_TABLE, NO_PAGES, 0), cast("Any", None)
    for entry.ends in ((), ((), (3,))):
        with pytest.raises(KernelError, match="the room has no slot and no window yet"):
            end_rows(nothing, entry, 0)


def test_the_oldest_gather_waits_for_its_layers_unless_something_else_is_to_be_launched() -> None:
    first, later = (SimpleNamespace(entry=SimpleNamespace(after=lambda *asked: asked), layers=at) for at in (3, 4))
    effect = SimpleNamespace(to=SimpleNamespace(cut=SimpleNamespace(end=40)))
    going = [(0, 0, effect, first), (1, 1, effect, later)]
    for given, launches, found in ((going, [], (40, 3)), (going, [1], None), ([], [], None), ([], [1], None)):
        asked: Any = SimpleNamespace(_going=given, launches=launches)
        assert Gathers.awaits(asked) == found


def test_a_rank_s_loop_holds_what_ends_the_process_and_counts_lines_that_are_lost() -> None:
    held, raised, blamed, error = list[object](), list[object](), list[object](), SystemExit("planted")
    loop: Any = SimpleNamespace(
        hold=held.append, raise_event=raised.append, counts=Counter[str](),
        logs=SimpleNamespace(blame=lambda *what: blamed.append(what)),
        attempt=lambda _, action: action(), connections=SimpleNamespace(stands=lambda link: link == 3),
    )  # fmt: skip
    for lost in (1, 2):
        Loop._line_lost(loop, error)
        assert loop.counts == {"log lines lost": lost} and held == [error] * lost
    Loop.room_failed(loop, 7, "Gather", error)
    assert held == [error] * 3 and raised == [RoomFailed(7, Cause.KERNEL_FAILED)]
    assert blamed[0][:2] == (7, Cause.KERNEL_FAILED)  # type: ignore[index]
    assert (Loop._stands(loop, 3), Loop._stands(loop, 4)) == (True, False)


def test_a_table_of_a_window_spans_it_wherever_it_begins_and_a_room_of_one_slot_has_none() -> None:
    for window, page, entries in ((0, 4, 1), (20, 4, 6), (16, 4, 5), (1, 4, 1), (2, 4, 2)):
        pool: Any = SimpleNamespace(end=SimpleNamespace(window=window), origin=page, page_size=page)
        assert vars(Pool)["stride"].fget(pool) == entries
    for digested, slots, window, own in (
        (False, 1, 0, False), (True, 1, 0, True), (False, 2, 0, True), (False, 1, 1, True),
    ):  # fmt: skip
        pool = SimpleNamespace(digested=digested, room_slots=slots, end=SimpleNamespace(window=window))
        assert vars(Pool)["own_tables"].fget(pool) is own
    kinds = [SimpleNamespace(units=2, layers=3), SimpleNamespace(units=5, layers=7)]
    share: Any = SimpleNamespace(kinds=kinds)
    assert (vars(Slice)["heads"].fget(share), vars(Slice)["layers"].fget(share)) == (2, 3)


def test_a_table_that_cannot_be_placed_ends_its_room_or_its_first_launch() -> None:
    told, error = list[object](), OSError("planted")
    loop: Any = SimpleNamespace(room_failed=lambda *what: told.append(what))
    known, opening = (SimpleNamespace(room=room, fault=None) for room in (SimpleNamespace(key=7), None))
    for entry in (known, opening):
        table_failed(loop, entry, error)  # type: ignore[arg-type]
    assert told == [(7, "page table", error)] and known.fault is None
    assert opening.fault == (Cause.KERNEL_FAILED, f"page table: {named(error)}")


def test_one_table_that_cannot_be_placed_is_not_tried_twice() -> None:
    tried, failed, error = list[object](), list[object](), OSError("planted")

    def place(entries: list[object]) -> None:
        tried.append(entries)
        raise error

    lane: Any = SimpleNamespace(
        _placing=Lock(), unplaced=deque(["one"]), _place_together=place, failed=lambda *what: failed.append(what)
    )
    DeviceStreams.place_all(lane)
    assert (tried, failed) == ([["one"]], [("one", error)])
