"""Tampered room: what a faulty transfer would leave of a room; the judge has to find each.

another head             two heads of a cache, or of a state, are exchanged
another chunk            two chunks of the room are exchanged
a chunk read too early   a chunk has the bytes of the one before: its ring region was read before the write landed
convolution in one piece what comes of a convolution that is cut as one interval, not by its segments
a page left out          a page of the last cache of tokens (the index, where there is one) was never written
another room's state     the state of a room that is in another slot
a window one token early the window's rows begin one token too early
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvproto.adapters.recurrence import Segment
from kvproto.lab.demo.cache_field import LOCAL, STATE
from kvproto.lab.demo.job import RoomSpec
from kvproto.lab.demo.pages import Rows


@dataclass(frozen=True)
class TamperedRoom:
    """A room's rows on one decode rank, and what a control may need of the rank.

    `cells`: (first token, tokens) of each chunk that was moved; `segments`: of the model's convolutions; `tp`: of P
    and of D.
    """

    room: RoomSpec
    page_size: int
    rows: Rows
    cells: Sequence[tuple[int, int]] = ()
    others: Sequence[Rows] = ()
    segments: Sequence[Segment] = ()
    tp: tuple[int, int] = (1, 1)


def _of(rows: Rows, cache: str) -> list[tuple[str, int]]:
    return [key for key in rows if key[0].startswith(f"{cache}.")]


def another_head(at: TamperedRoom) -> Rows | None:
    """Exchange the first two units of the last part that has two here."""
    key = next((key for key in reversed(at.rows) if at.rows[key].shape[1] > 1), None)
    if key is None or not _moved(at, key):
        return None
    rows = at.rows[key].clone()
    rows[:, [0, 1]] = rows[:, [1, 0]]
    return at.rows | {key: rows}


def another_chunk(at: TamperedRoom) -> Rows | None:
    return _with_chunks(at, lambda first, second: (second, first))


def early_chunk(at: TamperedRoom) -> Rows | None:
    return _with_chunks(at, lambda first, _: (first, first))


def _with_chunks(at: TamperedRoom, made: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Rows | None:
    """Replace the first two chunks in every part, as far as the shorter one goes."""
    if len(at.cells) < 2:
        return None
    (a, count), (b, last) = at.cells[:2]
    here, there = (slice(first, first + min(count, last)) for first in (a, b))
    found = {key: rows.clone() for key, rows in at.rows.items()}
    for key, rows in at.rows.items():
        found[key][here], found[key][there] = made(rows[here], rows[there])
    return found


def one_piece(at: TamperedRoom) -> Rows | None:
    """Put the channels of P's ranks side by side, as if each were one interval of the whole."""
    (tp, decode_tp), keys = at.tp, _of(at.rows, STATE)
    if not keys or tp == 1 or decode_tp > 1:
        return None
    layer = keys[0][1]
    whole = [at.rows[f"{STATE}.{each.name}", layer] for each in at.segments]
    units = [rows.shape[1] for rows in whole]
    ranks = [[rows[:, _mine(n, tp, rank)] for rows, n in zip(whole, units, strict=True)] for rank in range(tp)]
    flat = torch.cat([share.flatten() for rank in ranks for share in rank])
    found, first = dict(at.rows), 0
    for each, rows in zip(at.segments, whole, strict=True):
        found[f"{STATE}.{each.name}", layer] = flat[first : first + rows.numel()].view(rows.shape)
        first += rows.numel()
    return found


def _mine(units: int, tp: int, rank: int) -> Tensor:
    held = torch.arange(units).repeat_interleave(max(1, tp // units))
    return held.tensor_split(tp)[rank]


def page_left_out(at: TamperedRoom) -> Rows | None:
    """Have noise in the rows of one page, as before a page is written."""
    keys = [key for key in at.rows if not key[0].startswith((f"{STATE}.", f"{LOCAL}."))]
    if not keys or not _moved(at, keys[-1]):
        return None
    rows = at.rows[keys[-1]].clone()
    rows[at.room.prefix : at.room.prefix + at.page_size] ^= 0xFF
    return at.rows | {keys[-1]: rows}


def another_state(at: TamperedRoom) -> Rows | None:
    keys = _of(at.rows, STATE)
    return at.rows | {key: at.others[0][key] for key in keys} if keys and at.others else None


def early_window(at: TamperedRoom) -> Rows | None:
    keys = _of(at.rows, LOCAL)
    return at.rows | {key: at.rows[key].roll(1, 0) for key in keys} if keys and at.room.tokens > 1 else None


def _moved(at: TamperedRoom, key: tuple[str, int]) -> bool:
    return at.room.prefix < at.room.tokens or key[0].startswith((f"{STATE}.", f"{LOCAL}."))


CONTROLS: dict[str, Callable[[TamperedRoom], Rows | None]] = {
    "another head": another_head,
    "another chunk": another_chunk,
    "a chunk read too early": early_chunk,
    "convolution in one piece": one_piece,
    "a page left out": page_left_out,
    "another room's state": another_state,
    "a window one token early": early_window,
}


def corrupted(rooms: Iterable[TamperedRoom]) -> Iterator[tuple[str, int, Rows]]:
    """Yield (control, room, rows) of each control on the first of these rooms that it can be applied to."""
    rooms = list(rooms)
    for name, control in CONTROLS.items():
        found = next(((each.room.room, rows) for each in rooms if (rows := control(each)) is not None), None)
        if found is not None:
            yield name, *found
