"""Costs: estimates the seconds that a room would take by each route, to choose between ring and pages.

A few figures describe a link: the cost of one piece of a write, whatever its size (`piece`), the throughput of one
large write (`rate`) and of pieces that do not overlap (`piece_rate`), the cost of a gather or a scatter (`launch`, and
`copy` for each byte), and the wait for a region of the ring (`message`).

- *staged*: a region that is asked for and granted, then a gather, one write and a scatter for each chunk.  Successive
  chunks overlap: the slowest of the three counts for each chunk, the others once.
- *pages*: one write of many pieces, after runs that adjoin on both sides are joined (`kvproto.layout.byte_runs`).
  Pieces are posted while others move, so the slower of posting and moving counts; if each piece is a copy that the next
  one waits for, they add up.

In a fresh cache pages are consecutive and join; after an hour of use they lie at random and do not.  Each side counts
the runs of consecutive pages in a room's table once; a cut of either side is a cut of both.  So the number of pieces is
known except for cuts that coincide.

Over `cuda_ipc` a piece of 32 KiB takes 4 us and one of 1 MiB 7 us, where a large write takes 3 us for it; the ring
takes most of a millisecond longer than its bytes.  So a cache in use is staged, and a room of a fresh one only if it
has more than some 200 MiB.  Over RDMA a page of 16 KiB is as fast as a large write, and the two kernels of staging can
be saved.  A profile has the figures to begin with (`PROFILES`), and what a link carries corrects them
(`kvproto.data.write_times`), unless `Settings.costs` has others.  Measure with `kvproto bench route`.

If a peer's pages are mapped, as those of another process of the host can be (`kvproto.data.mapped_pages`), one kernel
stores a chunk straight into them.  Pieces cost nothing, and there is no gather and no scatter, so this costs what one
large write does, and is chosen at any size.  On two H200s stores reach 367 GB/s where a large write reaches 390.  On a
fast host the ring carries a little more of several large rooms at once (8 rooms of 1 GiB: 0.96 of the bulk write, by
stores 0.93), and as much of one alone.  But each chunk of the ring takes three times as much of both hosts: where
Python takes 75 ns a turn instead of 41, a room of 1 GiB takes 4.2 ms by stores and 8.5 by the ring.  Links of one room
to one rank, or from one, share that rank's port: the room's bytes at the busier of the two ends count (`at_the_port`).

*Layer groups.*  A group of layers leaves while the forward computes the next ones; after the forward only the last
group is left.  Each group costs the two kernels and the control path once more, so it has to be large enough
(`layer_groups`).  On two H200s a cell of 128 MiB left 0.49 ms after the forward in four groups (one 0.97, two 0.74,
eight 0.47), one of 1 GiB 0.86 in eight (one 3.45, two 2.51, four 1.50).  So 32 MiB are enough there: the bytes that
cross the link in a quarter of a launch (`kvproto bench layers`).

A route that does not exist costs `NO_ROUTE`.  Ties are staged.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Final

import msgspec

from kvproto.errors import ArgumentError
from kvproto.layout.byte_runs import pieces_of_pages
from kvproto.layout.cut import Cut
from kvproto.layout.placement import Placement
from kvproto.layout.plan import Plan, Share

#: seconds: longer than anything that is waited for, and a number that every format can write
NO_ROUTE: Final = 1e9
#: launches that the write of one layer group has to outlast, at least
GROUP_LAUNCHES: Final = 0.25
#: seconds of a piece, a launch or a message, at most
LONGEST: Final = 60.0
#: figures that are seconds of something that is done once
CALLS: Final = frozenset({"piece", "launch", "message"})


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The figures of a link; times in seconds, rates in bytes a second.  Raises ArgumentError."""

    #: one piece of a write, however small
    piece: float = 4e-6
    #: one large write
    rate: float = 390e9
    #: bytes in pieces each of which waits for the one before it; without bound where they overlap
    piece_rate: float = inf
    #: one gather or scatter, however small, until it is seen to have ended: mostly the host's share
    launch: float = 300e-6
    #: bytes that a gather or a scatter moves, each counted once
    copy: float = 2000e9
    #: what is ready to be written waits for its region of the ring: a request and its answer, or nothing if it was
    #: granted beforehand
    message: float = 200e-6

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            least, most = (0.0, LONGEST) if name in CALLS else (1.0, inf)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ArgumentError(f"Costs.{name} is {value!r}: it is a number from {least:g} to {most:g}")

    def __str__(self) -> str:
        return f"a piece {1e6 * self.piece:.3g} us, a large write {1e-9 * self.rate:.3g} GB/s"


#: by kind of link.  Pieces and rates of `cuda_ipc` (two H200s), `shm` and `tcp` were measured, launches
#: roughly; of `rdma` the rate is a 400 Gbit/s port's and the piece is what a queue pair is commonly said to take:
#: measure your own.  `free` is where nobody knows: all is staged
PROFILES: Final[dict[str, Costs]] = {
    "free": Costs(piece=0.0, rate=inf, launch=0.0, copy=inf, message=0.0),
    "cuda_ipc": Costs(piece_rate=350e9),
    "rdma": Costs(piece=0.25e-6, rate=48e9),
    "shm": Costs(piece=2e-6, rate=4e9, launch=60e-6, copy=2.4e9),
    "tcp": Costs(piece=38e-6, rate=1e9, launch=60e-6, copy=2.4e9),
    "mapped": Costs(piece=0.0),
}


class PageForm(msgspec.Struct, frozen=True):
    """How many pieces the pages of a share make: what does not change from room to room."""

    #: tokens of a page, of the smaller one of the two sides
    tokens: int
    #: pieces of one page, over all layers, K and V
    alone: int
    #: pieces that are saved where a page follows its neighbour on both sides
    joined: int

    def pieces(self, tokens: int, runs: int, cells: int = 1) -> int:
        """Count the pieces of so many tokens whose pages make so many runs (0: unknown, each page is one).

        `cells`: chunks, which cut runs.
        """
        pages = -(-tokens // self.tokens)
        return pages * self.alone - (pages - min(pages, runs + cells - 1 if runs else pages)) * self.joined


@lru_cache(maxsize=1024)
def page_form(plan: Plan, share: Share, ours: Placement | None = None, theirs: Placement | None = None) -> PageForm:
    """Count one page, and two that are neighbours."""
    one, two = (pieces_of_pages(plan, share, pages, ours, theirs) for pages in (1, 2))
    return PageForm(min(plan.prefill.page_size, plan.decode.page_size), one, 2 * one - two)


@lru_cache(maxsize=1024)
def at_the_port(plan: Plan, share: Share) -> float:
    """A room's bytes at the busier of the share's two ranks, as a multiple of the share's own."""
    ends = plan.writers(share.reader), plan.duties(share.writer)
    busier = max(sum(plan.part_bytes(each, Cut(0, plan.chunk_tokens)) for each in end) for end in ends)
    return busier / plan.part_bytes(share, Cut(0, plan.chunk_tokens))


def runs_between(ours: int, theirs: int) -> int:
    """Runs of two tables laid beside each other, at most; 0: one of them is not known."""
    return ours + theirs - 1 if ours and theirs else 0


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """The seconds of a room by each route, from first gather to last byte, without other rooms."""

    staged: float
    pages: float
    #: pages are mapped, so a kernel stores into them
    mapped: bool = False

    @property
    def way(self) -> str:
        """How the other route is called."""
        return "mapped" if self.mapped else "pages"

    @property
    def pages_extra_s(self) -> float:
        """How much longer by pages than staged, in seconds; without end where there is no way over pages."""
        return max(0.0, self.pages - self.staged)

    def __str__(self) -> str:
        return f"staged {_told(self.staged)}, {self.way} {_told(self.pages)}"


def estimate(
    costs: Costs, nbytes: int, pieces: int, chunks: int, *, ring: bool = True, open_: bool = True, mapped: bool = False,
    port: float = 1.0,
) -> Estimate:  # fmt: skip
    """Estimate a transfer of `nbytes`, in so many pieces (page to page) or chunks (staged).

    `ring`: it may be staged; `open_`: pages may be written; `mapped`: by a kernel; `port`: the bytes at the busier
    end, as a multiple of `nbytes`.
    """
    chunk = nbytes / max(1, chunks)
    kernel, write = costs.launch + chunk / costs.copy, max(costs.piece, port * chunk / costs.rate)
    staged = costs.message + 2 * kernel + write + max(0, chunks - 1) * max(kernel, write)
    passing = port * nbytes
    pages = max(passing / costs.rate, pieces * costs.piece + passing / costs.piece_rate)
    return Estimate(staged if ring else NO_ROUTE, pages if open_ else NO_ROUTE, mapped)


def layer_groups(costs: Costs, nbytes: int, most: int) -> int:
    """Return the best number of layer groups for a cell: a power of two, `most` at most; 1: none."""
    groups = 1
    while 2 * groups <= most and nbytes / costs.rate >= 2 * groups * GROUP_LAUNCHES * costs.launch:
        groups *= 2
    return groups


def _told(seconds: float) -> str:
    return "impossible" if seconds >= NO_ROUTE else f"{1e3 * seconds:.3g} ms"
