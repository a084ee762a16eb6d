"""Last rows: a room's slots of state and its pages of windows, as its engine names them.

A pool has a pool for each cache that travels at the end (`Pool.ends`).  An engine gives the slot of state, and the
pages of the window; of several states or windows it gives each by the name of its cache.  All are lent as pages are,
until `released` or `withdrawn`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvproto.data.room_entry import RoomEntry, as_table
from kvproto.errors import ArgumentError
from kvproto.io.kernels.base import Kernels, Pool, Side
from kvproto.layout.cut import in_block
from kvproto.layout.placement import Placement
from kvproto.layout.plan import Plan, Share
from kvproto.settings import Settings

#: a room's slot of state, or its slots; by cache where there are several states
Slots = int | Sequence[int] | Mapping[str, Any]
Ends = tuple[tuple[int, ...], ...]


def need_last_rows(
    pool: Pool, tokens: int, slot: Slots | None, window: Any, *, late: bool = False, given: Ends = ()
) -> Ends:  # fmt: skip
    """Return a room's slots of state, and the pages of its windows, by cache that travels at the end.

    What the engine does not name is as `given` before, or comes `late`.  ArgumentError: it is missing, too many or too
    few, not of the pool, or of what it has not.
    """
    windows = {end.end.name: end for end in pool.ends if end.end.window}
    states = {end.end.name: end for end in pool.ends if not end.end.window}
    named = dict(_named("window", window, windows)) | dict(_named("slot", slot, states))
    found = list[tuple[int, ...]]()
    for at, end in enumerate(pool.ends):
        mine, name = named.get(end.end.name), end.end.name
        if mine is None and (late or (given and given[at])):
            found.append(given[at] if given else ())
        else:
            found.append(_need_window(end, name, tokens, mine) if end.end.window else _need_slots(end, name, mine))
    return tuple(found)


def _named(what: str, value: Any, ends: Mapping[str, Pool]) -> Iterator[tuple[str, Any]]:
    """Yield what the engine gives, by the names of caches that have it."""
    if value is None:
        return
    if not ends:
        lacks = "no cache of this rank's pool has one, so a room has no pages of it"
        raise ArgumentError(
            f"window: {lacks}" if what == "window"
            else f"slot {value}: this rank's pool has no state, so a room has no slot in it"
        )  # fmt: skip
    if isinstance(value, Mapping):
        if unknown := sorted(set(value) - set(ends)):
            raise ArgumentError(f"{what} of {', '.join(unknown)}: this rank's pool has {', '.join(ends)}")
        yield from value.items()
        return
    if len(ends) > 1:
        raise ArgumentError(f"{what}: this rank's pool has {', '.join(ends)}: give a dict of these names")
    yield next(iter(ends)), value


def _need_slots(state: Pool, name: str, slot: Any) -> tuple[int, ...]:
    most = f"slots are 0 .. {state.pages - 1}"
    if slot is None:
        raise ArgumentError(f"this rank's pool has {name}: give the room its slot ({most})")
    found = tuple(map(operator.index, slot)) if isinstance(slot, Sequence) else (operator.index(slot),)
    if len(found) != state.room_slots:
        raise ArgumentError(f"{len(found)} slots, and the {name} of a room is in {state.room_slots} of this pool")
    for each in found:
        if not 0 <= each < state.pages:
            raise ArgumentError(f"slot {each} of a pool of {name} for {state.pages} requests: {most}")
    return found


def _need_window(end: Pool, name: str, tokens: int, window: Any) -> tuple[int, ...]:
    several = end.room_slots
    if several == 1:
        return _need_table(end, name, tokens, () if window is None else window)
    tables = [] if window is None else list(window)
    if len(tables) != several:
        raise ArgumentError(f"window: {len(tables)} tables, and the {name} of a room is in {several} of this pool")
    found = list[int]()
    for table in tables:
        mine = _need_table(end, name, tokens, table)
        found += [*mine, *(0,) * (end.stride - len(mine))]
    return tuple(found)


def _need_table(end: Pool, name: str, tokens: int, window: Any) -> tuple[int, ...]:
    """Return the pages of one table, behind those that no row is in."""
    size, first = end.page_size, max(0, tokens - end.end.window)
    begin, pages = first // size, tuple(as_table(window).tolist())
    needed = -(-tokens // size) - begin
    if len(pages) != needed:
        told = f"tokens {first} .. {tokens - 1} of the prompt lie in {needed}, from its page {begin} on"
        raise ArgumentError(f"window: {len(pages)} pages of {size} tokens of {name}; {told}")
    if not (min(pages) >= 0 and max(pages) < end.pages):
        raise ArgumentError(f"window: pages of {name} are 0 .. {end.pages - 1}, and not all of {list(pages)} are")
    return (0,) * (end.first_row(tokens) // size) + pages


def need_last_rows_by_end(
    room: object, entry: RoomEntry, upto: int, slot: Slots | None, window: Any, pool: Pool
) -> Ends:  # fmt: skip
    """Return what a room has once `upto` tokens are produced; ArgumentError: it lacks, or is another."""
    if slot is window is None and not pool.ends:
        return entry.ends
    found = need_last_rows(
        pool, entry.tokens, slot, window, late=operator.index(upto) != entry.tokens, given=entry.ends
    )
    if found != entry.ends and entry.full == entry.tokens:
        at = next(at for at, mine in enumerate(found) if mine != entry.ends[at])
        had, has = (", ".join(map(str, each[at])) for each in (entry.ends, found))
        end = pool.ends[at].end
        where = "is in pages" if end.window else "is in slot"
        raise ArgumentError(f"{room}: its {end.name} {where} {had}, not {has}: withdraw it first")
    return found


def need_ring_for_last_rows(plan: Plan, reader: int, settings: Settings, ours: Placement) -> None:
    """ArgumentError: a chunk of state or window is not staged here, and has no other way.

    `ours`: where this rank's rows are open to writers.
    """
    if not plan.state_writers(reader):
        return
    chunk, why = max(plan.grant_bytes(reader, cut) for cut in plan.whole_state), ""
    if settings.route == "pages":
        why = "nothing is staged here (Settings.route)"
    elif chunk > settings.ring_bytes:
        why = f"a chunk of state or window takes {chunk} bytes, and Settings.ring_bytes is {settings.ring_bytes}"
    closed = ours.closed or ("" if ours.ends else "they are not open")
    if why and (closed := closed or next(filter(None, (each.closed for each in ours.ends)), "")):
        raise ArgumentError(f"{why}, and there is no way into slots or windows: {closed}")


def prepare_ends(
    kernels: Kernels, side: Side, pool: Pool, chunks: Iterator[list[Share]], tokens: Sequence[Share] = ()
) -> None:  # fmt: skip
    """Prepare the kernels of each chunk of what travels at the end: a call a cache.

    `tokens`: the shares of tokens that may be in a chunk with it, in one launch.
    """
    for shares in chunks:
        of_ends = ((end, [in_block(share, *end.block) for share in shares]) for end in pool.ends)
        calls = [(end, held) for end, mine in of_ends if (held := [each for each in mine if end.part_bytes(each, 1)])]
        for end, held in calls:
            kernels.prepare(end, side, held)
        for chunk in (calls, [(pool, tokens), *calls] if tokens else []):
            if len(chunk) > 1:
                kernels.prepare_joint(side, chunk)
