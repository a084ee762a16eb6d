"""The room entry: the engine's data of a room that the protocol does not need.

Page tables, aux rows and the event that orders a gather after the forward are here, beside the protocol's own small
value of the room.  Data of that value is not duplicated, except two things that the engine may ask for before the loop
has taken its call, or when the value is gone: the length, and the outcome.  An entry is made when the engine opens the
room, and dropped when the engine has been handed both outcome and release.  Handlers find it by the room's key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvproto.errors import ArgumentError
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.room import Outcome, Room

#: events of a room that are kept
MARKS = 64
#: pages that are looked at one by one: fewer take less time so than what an array's operations cost each
FEW = 32
#: page ids on the host, int64, in token order
HostPages = npt.NDArray[np.int64]


@dataclass(slots=True)
class RoomEntry:
    """One room.

    `table`: int64 page ids on the pool's device, in token order; `pages`: the same on the host (on a CPU the same
    memory).

    Both have their full length from the beginning; `given` pages of it are there, what follows is not read.
    """

    tokens: int
    table: torch.Tensor
    pages: HostPages
    given: int
    #: by cache that travels at the end (`Pool.ends`): the room's slots of state, or its pages of the window; empty: the
    #: engine has not given them yet
    ends: tuple[tuple[int, ...], ...] = ()
    #: the same as tables on the pool's device; None: in the pool's table of all slots
    end_tables: tuple[torch.Tensor | None, ...] = ()
    #: its name, once it is open
    room: Room | None = None
    aux: bytes | None = None
    #: the group at which the decode engine has announced it, without pages as yet (0: it has not)
    announced: int = 0
    #: withdrawals by the engine, and how many of them the loop has passed to the sends
    taken: int = 0
    heard: int = 0
    #: KV that the engine has reported: tokens in all layers, and tokens (`ahead`) in the first `layers` of them
    full: int = 0
    ahead: int = 0
    layers: int = 0
    #: CUDA events after which it is there, as they were given: (tokens, layers, event)
    marks: list[tuple[int, int, Any]] = field(default_factory=list)
    #: on a decode rank: the room's plan and prefix; on a prefill rank with digests: the parts that went page to page,
    #: as (first token, tokens, share)
    carried: tuple[Plan, int] | None = None
    by_pages: list[tuple[int, int, Share]] = field(default_factory=list)
    #: of a name that the engine has shared the room with: the entry that has the room; else the entries of such names
    of: RoomEntry | None = None
    takers: tuple[RoomEntry, ...] = ()
    #: how the room has ended; and what the engine was told of this name, which it may have given up before
    end: Outcome | None = None
    cause: Cause | None = None
    released: bool = False
    #: the engine has been handed the outcome
    handed: bool = False
    told: int = 0
    #: CUDA event after which the table is on the device; the first launch that reads it waits, and takes it away
    placed: Any = None
    #: the first fault on this rank: its cause, if it fails the room, and the sentence
    fault: tuple[Cause, str] | None = None
    #: when (by `Clock.real`; 0: not yet) it was opened, all of its KV was produced, every decode rank had opened it,
    #: its newest part was written, and its outcome was announced
    opened: float = 0.0
    computed: float = 0.0
    met: float = 0.0
    written: float = 0.0
    ended: float = 0.0
    #: decode: bytes of its parts that have come through the ring and are in its pages
    staged: int = 0

    @property
    def main(self) -> RoomEntry:
        return self.of or self

    @property
    def names(self) -> tuple[RoomEntry, ...]:
        return self.main, *self.main.takers

    @property
    def reported(self) -> tuple[Any, ...]:
        """Return all that `produced` changes here; a call that raises puts it back."""
        return self.given, self.ends, self.full, self.ahead, self.layers, self.computed

    @reported.setter
    def reported(self, before: tuple[Any, ...]) -> None:
        self.given, self.ends, self.full, self.ahead, self.layers, self.computed = before

    @property
    def transfer(self) -> tuple[float, float] | None:
        """Begin and end of this prefill rank's transfer; None: it has no end, or nothing was written.

        It begins when all of the KV is there and every decode rank has opened the room, and ends with the last part.
        The forward, a decode instance without pages and an aux row that comes late are other waits.
        """
        begun = max(self.computed, self.met)
        if self.cause is not Cause.NONE or not (self.computed and self.met and self.written):
            return None
        return begun, max(begun, self.written)

    def report(self, tokens: int, layers: int, held: int, now: Callable[[], float]) -> None:
        """Record what is computed, on the engine's thread: its next call is checked against it at once."""
        if layers == held:
            self.full = max(self.full, tokens)
        else:
            self.ahead, self.layers = tokens, layers
        if self.full == self.tokens and not self.computed:
            self.computed = now()

    def mark(self, tokens: int, layers: int, event: Any) -> None:
        """Record the event after which the KV of these first tokens and layers is in the pages.

        Only the newest `MARKS` events are kept: later ones cover the older.
        """
        self.marks = [*self.marks[1 - MARKS :], (tokens, layers, event)]

    def after(self, tokens: int, layers: int) -> Any:
        """The first event after which the KV of so many tokens and layers is there; None: it is there already."""
        event = None
        for upto, depth, event in self.marks:  # noqa: B007  # the last one, if none is enough
            if upto >= tokens and depth >= layers:
                break
        return event

    def forget_marks(self, upto: int, layers: int) -> None:
        """Keep the newest event for the first `upto` tokens, whose KV is there in all `layers` of this rank."""
        self.marks = [(upto, layers, self.marks[-1][2])] if self.marks else []
        # Withdrawn pages hold other KV by the time that digests are computed.
        self.by_pages = [cell for cell in self.by_pages if cell[0] + cell[1] <= upto]


#: a table without pages
NO_PAGES: HostPages = np.empty(0, np.int64)
#: of a room whose table is not on its way to the device yet
NO_TABLE = torch.from_numpy(NO_PAGES)


def as_table(pages: Any) -> HostPages:
    """The page ids (a sequence, array or tensor of ints) on the host, the room's own: a copy."""
    if isinstance(pages, tuple) and not pages:
        return NO_PAGES
    if isinstance(pages, torch.Tensor):
        if (pages.is_floating_point() or pages.is_complex() or pages.dtype is torch.bool) and pages.numel():
            raise ArgumentError(f"page ids are integers, not {pages.dtype}")
        pages = pages.to("cpu", torch.int64).numpy()
    given = np.array(pages)
    if given.dtype.kind not in "iu" and given.size:
        raise ArgumentError(f"page ids are integers, not {given.dtype}")
    if given.ndim != 1:
        raise ArgumentError(f"a page table has one dimension, not {given.ndim}")
    return given.astype(np.int64, copy=False)


def page_runs_of(pages: HostPages) -> int:
    """How many runs of consecutive pages these are, on the host and in token order."""
    if len(pages) <= FEW:
        runs, goes_on = 0, -1
        for page in pages.tolist():
            runs += page != goes_on
            goes_on = page + 1
        return runs
    return 1 + int(np.count_nonzero(pages[1:] - pages[:-1] != 1))


def need_pages(layout: Layout, tokens: int, pages: HostPages, pool_pages: int, given: int = 0) -> None:
    """Raise ArgumentError unless pages, after those `given`, cover the tokens and are in the pool."""
    needed, have = -(-tokens // layout.page_size), given + len(pages)
    if have < needed:
        raise ArgumentError(f"{tokens} tokens need {needed} pages of {layout.page_size}, the table has {have}")
    if not len(pages):
        return
    ids = pages.view(np.uint64)  # one below zero is a very large one
    if (max(ids.tolist()) if len(pages) <= FEW else int(ids.max())) >= pool_pages:
        page = next(int(page) for page in pages if not 0 <= page < pool_pages)
        raise ArgumentError(f"page {page} of a pool of {pool_pages}: pages are 0 .. {pool_pages - 1}")
