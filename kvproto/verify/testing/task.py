"""Task: a room as its engines see it: its KV, pages, openers, and the ranks that know of its end."""

from __future__ import annotations

from typing import Any, Literal

import torch

from kvproto.io.kernels.base import Pool
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.room import Room, Status
from kvproto.verify.testing.forwards import Forward

Side = Literal["P", "D"]
#: groups of layers of a room, at most
MOST_LAYER_GROUPS = 3
Name = tuple[Side, int]
Key = tuple[Side, int, Room]
Rows = tuple[torch.Tensor, torch.Tensor]
#: by cache that travels at the end: the slot of its state, or the pages of its window
Last = dict[str, list[int]]


def rows_of(pages: list[int], first: int, last: int, size: int) -> Rows:
    """(page, slot) of these tokens of a room, as indices of a view."""
    tokens = torch.arange(first, last)
    return torch.tensor(pages)[tokens // size], tokens % size


def views(pool: Pool) -> list[torch.Tensor]:
    """The pool's own memory as [page, token, head, byte], by kind: K of each layer, then V."""
    raw = [tensor.view(torch.uint8) for tensors in pool.kinds for tensor in tensors]
    return raw if pool.order == "NHD" else [each.transpose(1, 2) for each in raw]


def every_view(pool: Pool) -> list[torch.Tensor]:
    """Return `views` of the pool, and of its states and windows."""
    return [view for each in (pool, *pool.ends) for view in views(each)]


class RoomTask:
    """A room as its engines see it: its KV, pages, openers, and the ranks that know of its end."""

    def __init__(
        self, room: Room, plan: Plan, ours: list[int], theirs: list[int], tokens: int, prefix: int, seed: int,
        last: dict[Side, Last],
    ) -> None:  # fmt: skip
        """`last`: by side, what it has of each cache that travels at the end."""
        bits = torch.Generator().manual_seed(seed)
        self.room, self.tokens, self.prefix = room, tokens, prefix
        self.pages: dict[Side, list[int]] = {"P": ours, "D": theirs}
        #: pages that the prefill engine has when it opens the room: all, or none; then they come with the KV
        self.paged = len(ours) if room.id % 2 else 0
        #: by kind and layer each tensor of the whole model, [token, head, byte]
        self.kv = [
            [torch.randint(0, 256, (tokens, kind.units, kind.row), dtype=torch.uint8, generator=bits)
             for _ in kind.layers]
            for kind in plan.prefill.kinds
        ]  # fmt: skip
        self.last = last
        #: by cache, kind and layer what travels at the end, [row, unit, byte]: a row of state, or those of the window
        self.state = {
            end.name: [
                [torch.randint(0, 256, (end.last_rows(tokens), kind.units, kind.row), dtype=torch.uint8, generator=bits)
                 for _ in kind.layers]
                for kind in end.kinds
            ]
            for end in plan.prefill.ends
        }  # fmt: skip
        self.opened: set[Name] = set()
        #: decode engines that have announced it; they open it when they have pages
        self.announced: set[Name] = set()
        self.waits: set[Name] = set()
        self.crashed: set[Name] = set()
        self.freed: set[str] = set()
        self.produced: dict[int, int] = {}
        #: groups of layers that its cells are cut into
        self.layer_groups = 1 + room.id % min(MOST_LAYER_GROUPS, plan.fewest_layers)
        #: by prefill rank: tokens of a forward that has begun, and how many layers of them are computed
        self.begun: dict[int, tuple[int, int]] = {}
        #: by prefill rank: forwards that are queued and that nobody has waited for
        self.forwards: dict[int, list[Forward]] = {}
        #: by prefill rank: pages that it has been given, if not `paged`; ranks whose last pages were taken back
        self.had: dict[int, int] = {}
        self.taken: set[int] = set()
        self.given: set[int] = set()
        self.good: set[int] = set()
        self.status: dict[Name, Status] = {}
        #: something has happened that may end the room without success
        self.hurt = False
        #: its engines take their time (the driver's note)
        self.late = False
        #: seconds that have passed since it was named
        self.age = 0.0

    def may_open(self, side: Side, index: int) -> bool:
        """Tell whether this engine may open the room: its pages are its own, it is neither open nor over here."""
        name = side, index
        over = name in self.announced and name not in self.waits
        return side not in self.freed and name not in self.opened | self.crashed and not over

    def open(self, side: Side, index: int) -> None:
        self.opened.add((side, index))
        self.waits.add((side, index))

    def announce(self, index: int) -> None:
        self.announced.add(("D", index))
        self.waits.add(("D", index))

    def part(self, layout: Layout, index: int) -> list[torch.Tensor]:
        found = []
        for kind, tensors in zip(layout.kinds, self.kv, strict=True):
            (head, heads), (layer, layers) = layout.units_of(kind, index), layout.rows_of(kind, index)
            found += [whole[:, head : head + heads] for whole in tensors[layer : layer + layers]]
        return found

    def state_of(self, layout: Layout, index: int) -> list[torch.Tensor]:
        """Return what this rank of the group has of a cache that travels at the end (`Layout.ends`)."""
        found = []
        for kind, tensors in zip(layout.kinds, self.state[layout.name], strict=True):
            (unit, units), (layer, layers) = layout.units_of(kind, index), layout.rows_of(kind, index)
            found += [whole[:, unit : unit + units] for whole in tensors[layer : layer + layers]]
        return found

    def lent(self, side: Side, pool: Pool) -> dict[str, Any]:
        """Return what this side's engine names beside the room's pages, as arguments of its calls."""
        found: dict[str, dict[str, Any]] = {}
        for end in pool.ends:
            what, mine = "window" if end.end.window else "slot", self.last[side][end.end.name]
            found.setdefault(what, {})[end.end.name] = mine if end.end.window else mine[0]
        return found

    def _last_rows(self, layout: Layout, side: Side) -> Rows:
        """Return where the rows of a cache that travels at the end are, in views of its pool."""
        size, window = layout.page_size, layout.window
        first = max(0, self.tokens - window) % size if window else 0
        return rows_of(self.last[side][layout.name], first, first + (min(self.tokens, window) if window else 1), size)

    def places(self, pool: Pool, side: Side, size: int) -> list[tuple[torch.Tensor, Rows]]:
        """Return each view of the pool, and where in it the room's rows are, and its last ones."""
        rows = rows_of(self.pages[side], self.prefix, self.tokens, size)
        found = [(view, rows) for view in views(pool)]
        for end in pool.ends:
            last = self._last_rows(end.end, side)
            found += [(view, last) for view in views(end)]
        return found

    def write(self, pool: Pool, layout: Layout, index: int, first: int, last: int, layers: int | None = None) -> None:
        """The forward of a prefill rank: these tokens come into its pages, of its first so many layers (all)."""
        rows, (begin, held) = rows_of(self.pages["P"], first, last, layout.page_size), layout.layers_of(index)
        end = begin + (held if layers is None else layers)
        own = [layer for kind in layout.kinds for layer in kind.layers if begin <= layer < begin + held]
        for layer, view, whole in zip(own, views(pool), self.part(layout, index), strict=True):
            if layer < end:
                view[rows] = whole[first:last]
        self._put_state(pool, index, whole=last == self.tokens and layers is None)

    def _put_state(self, pool: Pool, index: int, *, whole: bool) -> None:
        """Put there what belongs behind the last token; behind any other it is other bytes."""
        for end in pool.ends:
            rows = self._last_rows(end.end, "P")
            for view, state in zip(views(end), self.state_of(end.end, index), strict=True):
                view[rows] = state if whole else ~state

    def forward(
        self, pool: Pool, layout: Layout, index: int, first: int, last: int, layers: int | None = None
    ) -> Forward:  # fmt: skip
        """The forward is queued: its event.  The KV is there when somebody waits for it (`write`)."""
        queue = self.forwards.setdefault(index, [])
        return Forward(queue, first, last, lambda begin, end: self.write(pool, layout, index, begin, end, layers))

    def begin(self, index: int, upto: int, layers: int) -> tuple[int, int]:
        """Begin or continue a forward of so many tokens on this prefill rank; return tokens and layers."""
        begun, deep = self.begun.get(index, (0, 0))
        self.begun[index] = (begun, max(deep, layers)) if begun else (upto, layers)
        return self.begun[index]

    def more_pages(self, layout: Layout, index: int, upto: int) -> list[int]:
        """The pages that a prefill engine has to give with so many tokens, now that they are being computed."""
        first, last = self.had.get(index, self.paged), -(-upto // layout.page_size)
        self.had[index] = max(first, last)
        return self.pages["P"][first:last]

    def take_back(self, layout: Layout, index: int, upto: int) -> None:
        """The pages behind those of so many tokens are taken from this prefill engine."""
        self.produced[index] = min(self.produced.get(index, 0), upto)
        self.had[index] = min(self.had.get(index, self.paged), -(-upto // layout.page_size))
        self.taken.add(index)
        self.begun.pop(index, None)

    def lose(self, pool: Pool, layout: Layout, index: int) -> None:
        """Overwrite withdrawn and uncomputed pages with other bytes: they belong to others for a while."""
        first = self.produced[index]
        for forward in self.forwards.get(index, ()):
            forward.keep(first)
        if first < self.tokens:
            rows = rows_of(self.pages["P"], first, self.tokens, layout.page_size)
            for view in views(pool):
                view[rows] = ~view[rows]
            self._put_state(pool, index, whole=False)
        self.taken.discard(index)

    def whole(self, plan: Plan) -> bool:
        """Every engine has done all that is asked of it, and nothing has disturbed the room."""
        ranks = plan.prefill.ranks + plan.decode.ranks
        made = sum(upto == self.tokens for upto in self.produced.values())
        return not self.hurt and len(self.opened) == ranks and made == len(self.given) == plan.prefill.ranks
