"""Last rows: a room's slots of state, or its pages of a window, as its engine names them.

A pool has one of the two, or neither (`Cache.travels`).  Both are lent as pages are, until `released` or `withdrawn`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from kvproto.data.room_entry import RoomEntry, as_table
from kvproto.errors import ArgumentError
from kvproto.io.kernels.base import Pool
from kvproto.layout.plan import Plan
from kvproto.settings import Settings

#: a room's slot of state, or its slots
Slots = int | Sequence[int]


def need_last_rows(pool: Pool, tokens: int, slot: Slots | None, window: Any, *, late: bool = False) -> tuple[int, ...]:
    """Return the slots, or the pages of the window, of a room of so many tokens.

    There are none if the pool has neither, or if they come `late`.  ArgumentError: they are missing, too many or too
    few, not of the pool, or of what it has not.
    """
    state, size = pool.state, window_of(pool)
    if window is not None and not size:
        raise ArgumentError("window: no cache of this rank's pool has one, so a room has no pages of it")
    if slot is not None and (state is None or size):
        raise ArgumentError(f"slot {slot}: this rank's pool has no state, so a room has no slot in it")
    if state is None or (late and slot is window is None):
        return ()
    return _need_window(state, tokens, size, window) if size else _need_slots(state, slot)


def window_of(pool: Pool) -> int:
    """Tokens of the window that travels at the end; 0: none does."""
    return 0 if pool.state is None or pool.state.of is None else pool.state.of[0].window


def _need_slots(state: Pool, slot: Slots | None) -> tuple[int, ...]:
    most = f"slots are 0 .. {state.pages - 1}"
    if slot is None:
        raise ArgumentError(f"this rank's pool has state: give the room its slot ({most})")
    found = tuple(map(operator.index, slot)) if isinstance(slot, Sequence) else (operator.index(slot),)
    if len(found) != state.room_slots:
        raise ArgumentError(f"{len(found)} slots, and the state of a room is in {state.room_slots} of this pool")
    for each in found:
        if not 0 <= each < state.pages:
            raise ArgumentError(f"slot {each} of a pool of state for {state.pages} requests: {most}")
    return found


def _need_window(state: Pool, tokens: int, most: int, window: Any) -> tuple[int, ...]:
    size, first = state.page_size, max(0, tokens - most)
    begin, pages = first // size, tuple(as_table(() if window is None else window).tolist())
    needed = -(-tokens // size) - begin
    if len(pages) != needed:
        told = f"tokens {first} .. {tokens - 1} of the prompt lie in {needed}, from its page {begin} on"
        raise ArgumentError(f"window: {len(pages)} pages of {size} tokens; {told}")
    if not (min(pages) >= 0 and max(pages) < state.pages):
        raise ArgumentError(f"window: its pages are 0 .. {state.pages - 1}, and not all of {list(pages)} are")
    return pages


def need_last_rows_by_end(
    room: object, entry: RoomEntry, upto: int, slot: Slots | None, window: Any, pool: Pool
) -> tuple[int, ...]:  # fmt: skip
    """Return what a room has once `upto` tokens are produced; ArgumentError: nothing, or another."""
    if slot is window is None and (pool.state is None or entry.slot or operator.index(upto) != entry.tokens):
        return entry.slot
    found = need_last_rows(pool, entry.tokens, slot, window)
    if found != entry.slot and entry.full == entry.tokens:
        had, has = (", ".join(map(str, each)) for each in (entry.slot, found))
        where = "window is in pages" if window_of(pool) else "state is in slot"
        raise ArgumentError(f"{room}: its {where} {had}, not {has}: withdraw it first")
    return found


def need_ring_for_last_rows(plan: Plan, reader: int, settings: Settings) -> None:
    """ArgumentError: a chunk of state or window does not fit in the ring, and has no other way."""
    if not plan.state_writers(reader):
        return
    chunk = plan.grant_bytes(reader, plan.largest_state)
    if chunk > settings.ring_bytes:
        told = f"a chunk of state or window takes {chunk} bytes, the ring has {settings.ring_bytes}"
        raise ArgumentError(f"{told}: raise Settings.ring_bytes to that, it has no way over pages")
    if settings.route == "pages":
        raise ArgumentError("nothing is staged here (Settings.route), and a state or window has no way over pages")
