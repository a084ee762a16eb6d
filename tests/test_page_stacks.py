"""Runs of a page that lie evenly spaced are one copy: which are, what the driver is given, refusals."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from kvproto.io.kernels import page_stacks
from kvproto.io.kernels.base import Events
from kvproto.io.kernels.engine_pages import EnginePages
from kvproto.io.kernels.page_stacks import LEAST_BYTES, LEAST_ROWS, PageRun, PageStack, StackCopy, stacks
from kvproto.io.kernels.pool import KernelError

ROW = LEAST_BYTES // LEAST_ROWS
#: bytes of a layer here and there, in which other slots and other heads lie
NEAR, FAR = 4 * ROW, 16 * ROW
HERE, THERE = 1 << 30, 1 << 40
WHOLE = 1 << 40


def runs(rows: int, nbytes: int = ROW, *, at: int = 0, there: int = 0) -> list[PageRun]:
    """One run a layer, the first so many bytes behind the first bytes of both sides."""
    first = PageRun(HERE + at, THERE + there, nbytes, ROW, 4 * ROW)
    return [first.moved(row, NEAR, FAR) for row in range(rows)]


def anywhere(address: int) -> int:
    return THERE if address < THERE else THERE + WHOLE


def test_rows_evenly_spaced_on_both_sides_are_one_stack() -> None:
    made = runs(LEAST_ROWS)
    assert stacks(made[::-1], anywhere) == ([PageStack(made[0], LEAST_ROWS, NEAR, FAR)], [])
    assert stacks(made[:-1], anywhere) == ([], made[:-1]), "too few rows"
    short = [replace(run, nbytes=ROW - 1) for run in made]
    assert stacks(short, anywhere) == ([], short), "too few bytes"
    long = runs(LEAST_ROWS - 1, 2 * ROW)
    assert stacks(long, anywhere) == ([], long), "bytes enough, and too few rows"
    longer = runs(2 * LEAST_ROWS, ROW // 2)
    assert stacks(longer, anywhere) == ([PageStack(longer[0], 2 * LEAST_ROWS, NEAR, FAR)], [])
    assert stacks([], anywhere) == ([], [])


def test_parts_that_lie_between_one_another_are_a_stack_each() -> None:
    q, v = runs(9), runs(9, 2 * ROW, at=ROW, there=8 * ROW)
    made, left = stacks([*v, *q], anywhere)
    assert made == [PageStack(q[0], 9, NEAR, FAR), PageStack(v[0], 9, NEAR, FAR)] and not left
    alone = PageRun(HERE + 3 * ROW, THERE, ROW, ROW, 4 * ROW)
    assert stacks([*q, alone], anywhere) == ([PageStack(q[0], 9, NEAR, FAR)], [alone])


def test_so_many_parts_may_lie_between_two_rows_and_no_more() -> None:
    for parts, found in ((page_stacks._NEAR, page_stacks._NEAR), (page_stacks._NEAR + 1, 0)):
        far = 2 * parts * ROW
        mixed = [
            PageRun(HERE + (row * parts + part) * 2 * ROW, THERE + row * far + part * 2 * ROW, ROW + part, ROW, ROW)
            for row in range(LEAST_ROWS) for part in range(parts)
        ]  # fmt: skip
        assert len(stacks(mixed, anywhere)[0]) == found


def test_the_longest_stack_that_begins_with_a_row_is_taken() -> None:
    """The second row may be that of another layer: every other one would be a stack of half the rows."""
    made = runs(4 * LEAST_ROWS)
    skipping = [each for at, each in enumerate(made) if at != 1]
    found, left = stacks(skipping, anywhere)
    assert [(stack.first, stack.rows, stack.near) for stack in found] == [
        (made[0], 2 * LEAST_ROWS, 2 * NEAR), (made[3], 2 * LEAST_ROWS - 1, 2 * NEAR),
    ]  # fmt: skip
    assert not left


@pytest.mark.parametrize("change", [{"nbytes": ROW + 1}, {"step": 2 * ROW}, {"far_step": ROW}, {"there": THERE + 1}])
def test_a_row_of_another_form_or_place_ends_a_stack(change: dict[str, int]) -> None:
    made = runs(2 * LEAST_ROWS)
    made[LEAST_ROWS] = other = replace(made[LEAST_ROWS], **change)
    found, left = stacks(made, anywhere)
    assert found == [PageStack(made[0], LEAST_ROWS, NEAR, FAR)]
    assert other in left and len(left) == LEAST_ROWS


def test_rows_that_overlap_or_go_backwards_there_are_no_stack() -> None:
    backwards = [replace(run, there=THERE + WHOLE // 2 - FAR * at) for at, run in enumerate(runs(LEAST_ROWS))]
    assert stacks(backwards, anywhere) == ([], backwards)
    for change in ({"here": HERE}, {"there": THERE}):
        name, first = next(iter(change.items()))
        close = [replace(run, **{name: first + (ROW - 1) * at}) for at, run in enumerate(runs(LEAST_ROWS))]
        assert stacks(close, anywhere) == ([], close)
        touching = [replace(run, **{name: first + ROW * at}) for at, run in enumerate(runs(LEAST_ROWS))]
        assert len(stacks(touching, anywhere)[0]) == 1


@pytest.mark.parametrize("side", ["here", "there"])
def test_a_stack_ends_with_its_allocation(side: str) -> None:
    made = runs(2 * LEAST_ROWS)
    last = made[LEAST_ROWS - 1]
    end = last.here + ROW if side == "here" else last.there + ROW

    def bounded(address: int) -> int:
        here = (side == "here") == (address < THERE)
        return end if here and address < end else anywhere(address)

    first, second = stacks(made, bounded)[0]
    assert (first.rows, second.first, second.rows) == (LEAST_ROWS, made[LEAST_ROWS], LEAST_ROWS)
    end -= 1
    assert stacks(made, bounded) == ([second], made[:LEAST_ROWS]), "the eighth row reaches beyond"
    assert stacks(made, lambda _: 0) == ([], made)


def by_hand(given: Any, stream: Any) -> int:
    """Do what the driver does with a box."""
    box = given._obj
    for at in range(box.slices):
        to = box.dst_device + at * box.dst_pitch * box.dst_height
        ctypes.memmove(to, box.src_device + at * box.src_pitch * box.src_height, box.width)
    assert (box.lines, box.src_kind, box.dst_kind) == (1, 4, 4)
    return int(stream.value or 0)


def test_a_copy_moves_the_rows_of_one_slot_and_nothing_else() -> None:
    near = np.arange(1, 3 * 5 * 8 + 1, dtype=np.uint8).reshape(3, 5, 8)  # layers, slots, bytes
    far = np.zeros((3, 4, 16), np.uint8)
    first = PageRun(near.ctypes.data, far.ctypes.data + 8, 8, near.strides[1], far.strides[1])
    copy = StackCopy(PageStack(first, 3, near.strides[0], far.strides[0]), by_hand)
    assert copy(4, 2, 0) == 0 and copy.nbytes == 24
    assert np.array_equal(far[:, 2, 8:], near[:, 4])
    far[:, 2, 8:] = 0
    assert not far.any()
    assert copy(0, 0, 7) == 7


@pytest.mark.parametrize(("apart", "step", "lines"), [
    (page_stacks.MOST_PITCH, 64, (page_stacks.MOST_PITCH, 1)), (1 << 31, 1 << 20, (1 << 20, 1 << 11)),
    (1 << 31, 3 << 20, (1 << 31, 1)), (1 << 31, 0, (1 << 31, 1)), (1 << 32, 1 << 31, (1 << 32, 1)),
    (page_stacks.MOST_PITCH, 1, (page_stacks.MOST_PITCH, 1)), (1 << 31, 1, (1, 1 << 31)),
    (2 * page_stacks.MOST_PITCH, page_stacks.MOST_PITCH, (page_stacks.MOST_PITCH, 2)),
])  # fmt: skip
def test_slices_far_apart_have_as_many_lines_as_there_are_slots_between_them(
    apart: int, step: int, lines: tuple[int, int]
) -> None:
    given = list[Any]()

    def copy(box: Any, _stream: Any) -> int:
        given.append(box._obj)
        return 0

    for near, far in ((apart, NEAR), (NEAR, apart)):
        steps = (step, ROW) if near == apart else (ROW, step)
        StackCopy(PageStack(PageRun(HERE, THERE, 64, *steps), 8, near, far), copy)(0, 0, 0)
    assert (given[0].src_pitch, given[0].src_height) == (given[1].dst_pitch, given[1].dst_height) == lines
    assert (given[1].src_pitch, given[1].src_height) == (given[0].dst_pitch, given[0].dst_height) == (NEAR, 1)
    assert all((box.width, box.slices) == (64, 8) for box in given)


def test_stacks_go_before_the_runs_beside_them_and_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[Any]()

    def queue(copies: Any, first: int, end: int, stream: int) -> int:
        told.append((copies[:, first:end].T.tolist(), stream))
        return 0

    def stacked(*about: int) -> int:
        told.append(about)
        return code

    monkeypatch.setattr(Events, "ticket", lambda _, on: ("ticket", on))
    monkeypatch.setattr(page_stacks.StackCopy, "__call__", lambda _, *about: stacked(*about))
    copy, code = StackCopy(PageStack(runs(1)[0], 8, NEAR, FAR), by_hand), 0
    run, stream = PageRun(1000, 2000, 16, 16, 32), SimpleNamespace(cuda_stream=9)
    both, alone = (EnginePages(-1, some, queue, [copy]) for some in ([run], []))
    assert both.page_bytes == 8 * ROW + 16 and alone.page_bytes == 8 * ROW
    far = np.array([3], "<u4")
    assert both.launch((5,), far, stream) == ("ticket", stream)  # type: ignore[comparison-overlap]
    assert told == [(5, 3, 9), ([[2096, 1080, 16]], 9)]
    alone.launch((5,), far, stream)
    assert told[2:] == [(5, 3, 9)], "nothing is left for a batch"
    code = 700
    with pytest.raises(KernelError, match="CUresult 700"):
        both.launch((5,), far, stream)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A driver, and whether its device has a context."""
    made = SimpleNamespace(cuMemcpy3DAsync_v2=by_hand, there=True, places=[])

    @contextmanager
    def on_device(_driver: Any, place: int) -> Any:
        made.places.append(place)
        yield made.there

    monkeypatch.setattr(page_stacks, "cuda_driver", lambda: made)
    monkeypatch.setattr(page_stacks, "on_device", on_device)
    monkeypatch.setattr(page_stacks, "allocation", lambda _, address: (7, anywhere(address) - 7))
    return made


def test_a_device_stacks_what_it_can_ask_of(driver: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    made = runs(LEAST_ROWS)
    found, left = page_stacks.device_stacks(made, 3)
    assert ([each.nbytes for each in found], left, driver.places) == ([LEAST_BYTES], [], [3])
    driver.there = False
    assert page_stacks.device_stacks(made, 3) == ([], made)
    driver.there = True
    monkeypatch.setattr(page_stacks, "allocation", lambda *_: None)
    assert page_stacks.device_stacks(made, 3) == ([], made)
    del driver.cuMemcpy3DAsync_v2
    assert page_stacks.device_stacks(made, 3) == ([], made)
    monkeypatch.setattr(page_stacks, "cuda_driver", lambda: None)
    assert page_stacks.device_stacks(made, 3) == ([], made)
