"""Tampered room: what a faulty transfer would leave of several caches; the judge has to find each.

another head             two heads of a cache, or of a state, are exchanged
convolution in one piece what comes of a convolution that is cut as one interval, not by its segments
a page left out          a page of the last cache of tokens (the index, where there is one) was never written
another room's state     the state of a room that is in another slot
a window one token early the window's rows begin one token too early
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvproto.lab.demo.cache_field import LOCAL, STATE, Rows
from kvproto.lab.demo.caches_job import CachesJob
from kvproto.lab.demo.caches_pages import CachesPages
from kvproto.lab.demo.family import FAMILIES
from kvproto.lab.demo.job import RoomSpec


@dataclass(frozen=True)
class TamperedRoom:
    """A room's rows on one decode rank, and what a control may need of the rank."""

    job: CachesJob
    room: RoomSpec
    pages: CachesPages
    rows: Rows
    others: Sequence[Rows]


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


def one_piece(at: TamperedRoom) -> Rows | None:
    """Put the channels of P's ranks side by side, as if each were one interval of the whole."""
    segments, tp = FAMILIES[at.job.family].segments, at.job.prefill.tp
    keys = _of(at.rows, STATE)
    if not keys or tp == 1 or at.job.decode.tp > 1:
        return None
    layer = keys[0][1]
    whole = [at.rows[f"{STATE}.{each.name}", layer] for each in segments]
    units = [rows.shape[1] for rows in whole]
    ranks = [[rows[:, _mine(n, tp, rank)] for rows, n in zip(whole, units, strict=True)] for rank in range(tp)]
    flat = torch.cat([share.flatten() for rank in ranks for share in rank])
    found, first = dict(at.rows), 0
    for each, rows in zip(segments, whole, strict=True):
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
    rows, size = at.rows[keys[-1]].clone(), at.pages.page_size
    rows[at.room.prefix : at.room.prefix + size] ^= 0xFF
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
    "convolution in one piece": one_piece,
    "a page left out": page_left_out,
    "another room's state": another_state,
    "a window one token early": early_window,
}
