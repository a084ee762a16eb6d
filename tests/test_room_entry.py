"""A room's entry beside its value: the event that a part waits for, and the engines' page tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.stories import layout

from kvproto.data.room_entry import (
    FEW,
    MARKS,
    NO_PAGES,
    NO_TABLE,
    RoomEntry,
    as_table,
    need_pages,
    page_runs_of,
)
from kvproto.errors import ArgumentError
from kvproto.protocol.states import Cause


def entry() -> RoomEntry:
    return RoomEntry(32, NO_TABLE, NO_PAGES, 0)


def test_the_first_event_after_which_all_of_it_is_there_or_else_the_last() -> None:
    room = entry()
    assert room.after(1, 1) is None
    for mark in ((8, 1, "half"), (8, 2, "whole"), (16, 2, "more")):
        room.mark(*mark)
    asked = [(8, 1), (7, 0), (8, 2), (9, 1), (16, 2), (17, 2), (16, 3)]
    assert [room.after(*each) for each in asked] == ["half", "half", "whole", "more", "more", "more", "more"]


def test_a_room_is_computed_when_all_of_it_is_reported_first() -> None:
    room, times = entry(), iter((3.0, 4.0))
    for tokens, layers, computed in ((8, 2, 0.0), (32, 1, 0.0), (32, 2, 3.0), (32, 2, 3.0)):
        room.report(tokens, layers, 2, times.__next__)
        assert room.computed == computed


@pytest.mark.parametrize(
    ("computed", "met", "written", "transfer"),
    [(3.0, 2.0, 5.0, (3.0, 5.0)), (2.0, 3.0, 5.0, (3.0, 5.0)), (3.0, 4.0, 2.0, (4.0, 4.0)), (0.0, 2.0, 5.0, None),
     (3.0, 0.0, 5.0, None), (3.0, 2.0, 0.0, None)],
)  # fmt: skip
def test_a_transfer_is_from_when_it_could_begin_to_its_last_part(
    computed: float, met: float, written: float, transfer: tuple[float, float] | None
) -> None:
    room = entry()
    room.computed, room.met, room.written = computed, met, written
    assert room.transfer is None, "it has no end yet"
    room.cause = Cause.NONE
    assert room.transfer == transfer
    room.cause = Cause.STALLED
    assert room.transfer is None


def test_names_are_of_the_entry_that_has_the_room() -> None:
    room, name = entry(), entry()
    room.takers, name.of = (name,), room
    assert room.names == name.names == (room, name) and name.main is room.main is room


def test_of_what_was_computed_the_parts_that_went_by_pages_stay() -> None:
    room = entry()
    share: Any = "a share"
    room.by_pages = [(0, 4, share), (4, 4, share), (2, 7, share), (6, 3, share)]
    room.forget_marks(8, 1)
    assert room.by_pages == [(0, 4, share), (4, 4, share)]


def test_of_old_events_the_later_ones_are_enough() -> None:
    room = entry()
    for tokens in range(1, MARKS + 4):
        room.mark(tokens, 1, tokens)
    assert len(room.marks) == MARKS and room.after(1, 1) == 4 and room.after(MARKS + 3, 1) == MARKS + 3


def test_what_was_said_of_tokens_that_are_taken_back_is_forgotten() -> None:
    room = entry()
    room.forget_marks(8, 2)
    assert not room.marks
    for mark in ((8, 2, "first"), (16, 2, "second")):
        room.mark(*mark)
    room.forget_marks(8, 2)
    assert room.marks == [(8, 2, "second")], "what is there still is behind the last that was said"
    room.forget_marks(0, 2)
    assert room.after(8, 2) == "second", "a gather that was asked for before, and is launched now, waits for it"


@pytest.mark.parametrize("given", [
    [3, 1], (3, 1), np.array([3, 1], np.int32), np.array([3, 1], np.uint16), torch.tensor([3, 1], dtype=torch.int32),
    torch.tensor([3, 1]),
])  # fmt: skip
def test_page_ids_come_in_any_form_and_are_the_room_s_own(given: Any) -> None:
    made = as_table(given)
    assert made.dtype == np.int64 and made.tolist() == [3, 1]
    made[0] = 9
    assert int(given[0]) == 3


@pytest.mark.parametrize("form", [list, np.array, torch.tensor, lambda ids: torch.tensor(ids, dtype=torch.int32)])
def test_page_ids_of_more_than_sixteen_bits_stay_as_they_are(form: Any) -> None:
    ids = [65_535, 65_536, 1 << 30]
    assert as_table(form(ids)).tolist() == ids


@pytest.mark.parametrize("none", [(), [], np.empty(0), torch.empty(0), torch.empty(0, dtype=torch.bool)])
def test_no_pages_have_no_type(none: Any) -> None:
    assert as_table(none).tolist() == [] and as_table(none).dtype == np.int64


@pytest.mark.parametrize(("given", "words"), [
    ([1.5], "integers, not float64"), ([True], "integers, not bool"), (["a"], "integers, not"),
    (torch.tensor([1.0]), "integers, not torch.float32"), (torch.tensor([1j]), "integers, not torch.complex64"),
    (torch.tensor([True]), "integers, not torch.bool"), ([[1], [2]], "one dimension, not 2"),
    (3, "one dimension, not 0"), (torch.tensor([[1]]), "one dimension, not 2"),
])  # fmt: skip
def test_what_are_no_page_ids_is_said(given: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        as_table(given)


@pytest.mark.parametrize("long", [False, True], ids=["one by one", "as an array"])
def test_runs_are_of_pages_that_follow_one_another(long: bool) -> None:
    more = FEW if long else 0
    tail = list(range(1000, 1000 + more))
    for pages, runs in (([], 0), ([0], 1), ([7, 8, 9], 1), ([7, 9, 8], 3), ([7, 7, 8], 2), ([0, 1, 5, 6, 7, 3], 3)):
        assert page_runs_of(np.array(pages + tail, np.int64)) == runs + long
    assert page_runs_of(np.arange(FEW)) == 1


@pytest.mark.parametrize("long", [False, True], ids=["one by one", "as an array"])
def test_pages_cover_the_tokens_and_are_of_the_pool(long: bool) -> None:
    of, pages = layout(1, page=4), np.arange(FEW + 1 if long else 3, dtype=np.int64)
    full, last = 4 * len(pages), len(pages) - 1
    need_pages(of, full, pages, len(pages))
    need_pages(of, full - 3, pages, len(pages))
    need_pages(of, full + 8, pages, len(pages), given=2)
    need_pages(of, 8, NO_PAGES, 1, given=2)
    with pytest.raises(ArgumentError, match=f"tokens need {len(pages) + 1} pages of 4, the table has {len(pages)}"):
        need_pages(of, full + 1, pages, 99)
    with pytest.raises(ArgumentError, match="need 3 pages of 4, the table has 2"):
        need_pages(of, 9, NO_PAGES, 99, given=2)
    with pytest.raises(ArgumentError, match=f"page {last} of a pool of {last}: pages are 0 .. {last - 1}"):
        need_pages(of, full, pages, last)
    pages[1] = -1
    with pytest.raises(ArgumentError, match=r"page -1 of a pool of 99: pages are 0 \.\. 98"):
        need_pages(of, full, pages, 99)
