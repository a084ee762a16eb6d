"""Checks of an endpoint's construction and a room's opening: the last good value, and the first bad."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from support.stories import layout

from kvproto.data.device_streams import DeviceStreams
from kvproto.data.room_entry import NO_PAGES, NO_TABLE, RoomEntry
from kvproto.endpoint import validation
from kvproto.endpoint.validation import (
    LONGEST_S,
    as_traceparent,
    check_pool,
    make_control,
    need_group,
    need_incarnation,
    need_layer_groups,
    need_layers,
    need_more_pages,
    need_room,
    need_seconds,
    need_secret,
    new_incarnation,
    pick_kernels,
    undone_if_it_fails,
    why_unprepared,
)
from kvproto.errors import ArgumentError
from kvproto.io.control.control import LOOPBACK, ControlError
from kvproto.io.kernels.torch import TorchKernels
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout, LayoutError
from kvproto.protocol.codec import MAX_FRAME
from kvproto.protocol.messages import MAX_LAYER_GROUPS, MAX_SECRET
from kvproto.protocol.timing import Timing
from kvproto.verify.testing.fake_device import FakeDevice, SlowStreams
from kvproto.verify.testing.pools import noise

#: the first moment of 2020, in ns
EPOCH_NS = 1_577_836_800 * 10**9
PAGES, SIZE, TRACE = 9, 4, "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
LANE = DeviceStreams(torch.device("cpu"))
OF = layout(1, page=SIZE)


def test_a_later_life_has_a_higher_number_and_so_has_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def at(milliseconds: int, process: int) -> int:
        monkeypatch.setattr(time, "time_ns", lambda: EPOCH_NS + milliseconds * 10**6 + 999_999)
        monkeypatch.setattr(os, "getpid", lambda: process)
        return new_incarnation()

    assert at(1, 0) == 1 << 8 and at(5, 0x1234) == (5 << 8) + 0x34
    assert at((1 << 40) + 3, 255) == (3 << 8) + 255 and at((1 << 40) - 1, 255) == (1 << 48) - 1


def test_a_life_has_a_number_of_its_own_or_the_one_that_it_is_given() -> None:
    assert need_incarnation(None) >= new_incarnation() - (1 << 16)
    assert need_incarnation(cast("int", np.int64(1))) == 1 and need_incarnation((1 << 48) - 1) == (1 << 48) - 1
    for wrong in (0, -1, 1 << 48):
        with pytest.raises(ArgumentError, match=f"incarnation {wrong}: a life's number has 48 bits"):
            need_incarnation(wrong)


def test_what_is_made_of_a_control_plane_that_fails_closes_it() -> None:
    kept, failed = (make_control(LOOPBACK, None, Timing(), insecure=False) for _ in range(2))
    with undone_if_it_fails(("the control plane", kept.close)):
        pass
    with pytest.raises(MemoryError), undone_if_it_fails(("the control plane", failed.close)):
        raise MemoryError
    assert kept.address is not None and failed.address is not None
    with pytest.raises(ControlError, match="in use"):
        make_control(kept.address, None, Timing(), insecure=False)
    make_control(failed.address, None, Timing(), insecure=False).close()
    kept.close()


def test_a_gpu_has_kernels_of_its_own() -> None:
    triton = pytest.importorskip("kvproto.io.kernels.triton")
    where: Any = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    assert type(pick_kernels(where)) is triton.TritonKernels
    assert type(pick_kernels(noise(OF, 0, PAGES, 1))) is TorchKernels


@pytest.mark.parametrize(
    "of",
    [OF, replace(OF, layers=1), layout(2), replace(layout(2), order="HND"), replace(OF, v_dim=0), replace(OF, v_dim=4)],
)
def test_a_pool_is_its_rank_s_share(of: Layout) -> None:
    check_pool(of, of.ranks - 1, noise(of, of.ranks - 1, PAGES, 1), 8)
    check_pool(of, of.ranks - 1, noise(of, of.ranks - 1, PAGES, 1), None)


@pytest.mark.parametrize("wrong", [
    {"layers": 3}, {"heads": 8}, {"k_dim": 16}, {"v_dim": 4}, {"v_dim": 0}, {"page_size": 8}, {"order": "HND"},
])  # fmt: skip
def test_another_pool_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="the layout gives rank 0"):
        check_pool(replace(OF, **wrong), 0, noise(OF, 0, PAGES, 1), None)


def test_elements_are_of_the_pool_s_type_or_bytes_and_a_chunk_size_is_whole_pages() -> None:
    pool = noise(OF, 0, PAGES, 1)
    check_pool(replace(OF, dtype="bfloat16/opaque"), 0, pool, None)
    with pytest.raises(ArgumentError, match=r"elements are float16, the pool's torch\.bfloat16"):
        check_pool(replace(OF, dtype="float16"), 0, pool, None)
    bytes_ = noise(replace(OF, dtype="uint8", itemsize=1), 0, PAGES, 1)
    check_pool(replace(OF, dtype="float8_e4m3fn", itemsize=1), 0, bytes_, None)
    with pytest.raises(LayoutError):
        check_pool(OF, 0, pool, SIZE + 1)


def room(tokens: int, *pages: int, whole: bool = True) -> RoomEntry:
    return need_room(OF, tokens, pages, noise(OF, 0, PAGES, 1), LANE, whole=whole)


def test_a_room_has_its_pages_or_place_for_them() -> None:
    full = room(5, 3, 1)
    assert (full.tokens, full.given, full.pages.tolist(), full.table.tolist()) == (5, 2, [3, 1], [3, 1])
    part = room(9, 3, whole=False)
    assert (part.given, part.pages.tolist(), part.table.tolist()) == (1, [3, 0, 0], [3, 0, 0])
    assert isinstance(part.pages, np.ndarray) and isinstance(part.table, torch.Tensor)
    assert room(4, 3, 1).given == 2 and room(1, whole=False).pages.tolist() == [0]
    for tokens, words in ((5, "need 2 pages"), (0, "at least one"), (-1, "at least one")):
        with pytest.raises(ArgumentError, match=words):
            room(tokens, 3)
    with pytest.raises(ArgumentError, match="page 9 of a pool of 9"):
        room(9, PAGES, whole=False)


@pytest.mark.parametrize("named", [{"slot": 3}, {"window": [1]}])
def test_a_room_of_a_pool_without_such_caches_has_no_slot_and_no_window(named: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(named))):
        need_room(OF, 5, (3, 1), noise(OF, 0, PAGES, 1), LANE, **named)


def test_kernels_are_ready_for_powers_of_two_up_to_the_setting() -> None:
    assert [why_unprepared(groups, 4) for groups in (1, 2, 4)] == [""] * 3
    for groups in (3, 8):
        assert why_unprepared(groups, 4).startswith(f"{groups} layer groups: kernels are compiled for 1, 2, 4, ")


def test_what_cannot_be_undone_is_noted_beside_the_error_and_nothing_else_is() -> None:
    def planted() -> None:
        raise OSError("planted")

    for steps, notes in (([("well", lambda: None)], 0), ([("the region", planted)], 1)):
        with pytest.raises(ValueError, match="first") as told, undone_if_it_fails(*cast("Any", steps)):
            raise ValueError("first")
        found = getattr(told.value, "__notes__", [])
        assert len(found) == notes and all("not all could be undone" in each and "planted" in each for each in found)


def test_a_prompt_is_no_longer_than_a_message_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match=r"a room of 4294967296 tokens: .* at most 4294967295"):
        room(1 << 32, 3, whole=False)
    monkeypatch.setattr(validation, "MOST_TOKENS", 9)
    assert room(9, 3, whole=False).tokens == 9


def test_on_a_device_a_table_that_is_all_there_goes_with_others_and_one_that_is_not_at_once() -> None:
    streams = SlowStreams(FakeDevice(), "D0")
    made = [need_room(OF, 9, pages, noise(OF, 0, PAGES, 1), streams, whole=False) for pages in ((3,), (3, 1, 2))]
    assert [entry.table is NO_TABLE for entry in made] == [False, True] and len(streams) == 1


def test_pages_that_come_later_are_those_that_it_lacks() -> None:
    pool, part = noise(OF, 0, PAGES, 1), room(9, 3, whole=False)

    def more(upto: int, *pages: int) -> list[int]:
        return [*map(int, need_more_pages(OF, part, upto, pages, pool))]

    assert more(9, 5, 6) == [5, 6] and more(9, 5, 6, 7) == [5, 6] and more(4) == [] and more(0) == []
    for upto, pages, words in ((10, (5, 6), "10 tokens produced of 9"), (-1, (), "-1 tokens"), (5, (), "need 2 pages")):
        with pytest.raises(ArgumentError, match=words):
            more(upto, *pages)
    part.given = 3
    assert more(9, 8) == []
    part.given = 4
    assert more(9, 8) == [], "it has more than it needs"


HELD = 4


@pytest.mark.parametrize(("full", "ahead", "layers", "upto", "said"), [
    (0, 0, 0, 8, None), (0, 0, 0, 8, 1), (0, 0, 0, 8, HELD), (0, 8, 2, 8, 3), (0, 8, 2, 8, 2), (0, 8, 2, 16, None),
    (0, 8, 2, 4, None), (0, 8, 2, 4, HELD), (0, 8, 2, 16, HELD), (8, 8, 2, 16, 1), (8, 8, HELD, 4, 1),
])  # fmt: skip
def test_layers_are_said_one_after_the_other(full: int, ahead: int, layers: int, upto: int, said: int | None) -> None:
    entry = RoomEntry(16, torch.from_numpy(NO_PAGES), NO_PAGES, 0, full=full, ahead=ahead, layers=layers)
    assert need_layers("room", entry, upto, said, HELD) == (said or HELD)


@pytest.mark.parametrize(("upto", "said", "words"), [
    (8, 0, "0 layers produced of the 4"), (8, HELD + 1, "5 layers produced of the 4"),
    (8, 1, "now 1 of 8: layers and tokens only grow"), (7, 3, "now 3 of 7"), (9, 3, "come before those of token 9"),
    (9, 2, "come before those of token 9"),
])  # fmt: skip
def test_a_forward_is_not_said_to_go_back(upto: int, said: int, words: str) -> None:
    entry = RoomEntry(16, torch.from_numpy(NO_PAGES), NO_PAGES, 0, full=0, ahead=8, layers=2)
    with pytest.raises(ArgumentError, match=words):
        need_layers("room", entry, upto, said, HELD)


def test_layer_groups_are_as_many_as_the_smallest_share_has_layers() -> None:
    many = replace(layout(1), layers=2 * MAX_LAYER_GROUPS)
    for of, most in ((OF, 2), (many, MAX_LAYER_GROUPS)):
        plan = Plan(of, of, 8)
        assert [need_layer_groups(plan, groups) for groups in (1, most)] == [1, most]
        for groups in (0, most + 1):
            with pytest.raises(ArgumentError, match=f"{groups} layer groups: from 1 to {most}"):
                need_layer_groups(plan, groups)


def test_a_room_is_given_no_time_or_less_than_a_month() -> None:
    assert need_seconds(None) == 0.0 and need_seconds(1) == 1.0 and need_seconds(LONGEST_S - 1) == LONGEST_S - 1
    assert LONGEST_S == 31 * 24 * 3600.0
    for wrong in (0, 0.0, -1, LONGEST_S, True, "1", float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="it is in seconds"):
            need_seconds(cast("Any", wrong))


def test_groups_secrets_and_traces_are_of_their_size() -> None:
    assert [need_group(group) for group in (1, cast("Any", np.int64(3)), (1 << 64) - 1)] == [1, 3, (1 << 64) - 1]
    for group in (0, -1, 1 << 64):
        with pytest.raises(ArgumentError, match=f"group {group}"):
            need_group(group)
    assert need_secret(b"") == b"" and need_secret(bytes(MAX_SECRET)) == bytes(MAX_SECRET)
    for secret in ("text", bytes(MAX_SECRET + 1)):
        with pytest.raises(ArgumentError, match=f"up to {MAX_SECRET} bytes"):
            need_secret(cast("Any", secret))
    assert as_traceparent(TRACE) == TRACE.encode()
    assert [as_traceparent(cast("Any", wrong)) for wrong in (TRACE + "0", TRACE.upper(), "", None)] == [b""] * 4


def test_keys_are_read_from_their_file_and_to_do_without_any_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, pair = list[Any](), object()
    monkeypatch.setattr(validation, "Keys", SimpleNamespace(load=lambda path: ("read from", path)))
    monkeypatch.setattr(validation, "Control", lambda *args, **how: asked.append((*args, *how.values())))
    for keys, insecure in (("a file", False), (pair, False), (pair, True), (None, False)):
        make_control("where", cast("Any", keys), Timing(), insecure=insecure)
    assert not caplog.records
    for bind in ("where", None):
        make_control(bind, None, Timing(), insecure=True)
    assert [each.getMessage() for each in caplog.records] == [
        f"insecure=True: {who} without keys, beyond loopback, too" for who in ("where", "connects")
    ]
    assert asked == [
        ("where", MAX_FRAME, ("read from", "a file"), False, 5.0), ("where", MAX_FRAME, pair, False, 5.0),
        ("where", MAX_FRAME, pair, True, 5.0), ("where", MAX_FRAME, None, False, 5.0),
        ("where", MAX_FRAME, None, True, 5.0), (None, MAX_FRAME, None, True, 5.0),
    ]  # fmt: skip
