"""The rows of the pipeline benchmark: who sends to whom, and how much in what form."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvproto.layout.sharding import Layout
from kvproto.settings import Route

MIB = 1 << 20
#: MiB of a room that is best stored in one chunk, where pages are mapped
ONE_CHUNK = 256


@dataclass(frozen=True)
class PipelineShape:
    """The ranks of both sides, and their devices."""

    prefill: int
    decode: int
    prefill_on: tuple[int, ...]
    decode_on: tuple[int, ...]
    layers: int = 32
    heads: int = 8
    dim: int = 128
    #: tokens a page on either side; if it is not said: 16, and 32 on the decode side of equal groups, so that nothing
    #: is alike
    page_sizes: tuple[int, int] | None = None

    def layouts(self) -> tuple[Layout, Layout]:
        pages = self.page_sizes or (16, 32 if self.prefill == self.decode else 16)
        both = [
            Layout(layers=self.layers, heads=self.heads, k_dim=self.dim, v_dim=self.dim, itemsize=2, dtype="bfloat16",
                   page_size=page, tp=tp)
            for page, tp in zip(pages, (self.prefill, self.decode), strict=True)
        ]  # fmt: skip
        return both[0], both[1]

    @property
    def token_bytes(self) -> int:
        return self.layers * self.heads * self.dim * 4

    @property
    def gpus(self) -> int:
        """Count the GPUs that a host needs for it."""
        return max(*self.prefill_on, *self.decode_on) + 1

    @property
    def name(self) -> str:
        gpus = len({*self.prefill_on, *self.decode_on})
        return f"{self.prefill}->{self.decode} on {gpus}"


@dataclass(frozen=True)
class Case:
    """One row. `chunk`: MiB of the whole KV in one; `ring`: MiB on each decode rank (0: enough for all)."""

    what: str
    size: int
    chunk: int
    slots: int = 8
    rooms: int = 1
    window: int = 64
    ring: int = 0
    max_descs: int = 0
    repeats: int = 15
    staging: str = "device"
    #: how parts travel (`Settings.route`); of `what` "slice": page to page
    route: Route = "staged"
    #: memory of the peer may be mapped, where the transport has it: its pages for kernels
    #: (`kvproto.data.mapped_pages`), its ring on the host for a copy engine (`kvproto.io.transports.copy_engine`)
    maps: bool = False
    #: all layers of a page lie in one block, on both sides, and tokens a page (0: the shape's)
    packed: bool = False
    page: int = 0
    #: beside each transfer the same pages by NIXL's lists and indices, by hand (`kvproto.lab.bench.bare`)
    by_index: bool = False
    #: pages follow one another, as in a cache that nothing has been freed of
    fresh: bool = False
    #: seconds after which no further sample is begun, where there are three
    seconds: float = 60.0
    #: beside each transfer one bulk write of as many bytes (or of as many as the ring holds), and of a room alone the
    #: same gathers, writes and scatters by hand (`kvproto.lab.bench.bare`)
    beside: bool = False


SHAPES = {
    "1-1": PipelineShape(1, 1, (0,), (1,)),
    "2-2": PipelineShape(2, 2, (0, 0), (1, 1)),
    "1-2": PipelineShape(1, 2, (0,), (1, 1)),
    "2-1": PipelineShape(2, 1, (0, 0), (1,)),
    "2-4": PipelineShape(2, 4, (0, 0), (1, 1, 1, 1)),
    "4-2": PipelineShape(4, 2, (0, 0, 0, 0), (1, 1)),
    "2-1w": PipelineShape(2, 1, (0, 1), (2,)),
    "1-2w": PipelineShape(1, 2, (0,), (1, 2)),
    "4-2w": PipelineShape(4, 2, (0, 1, 2, 3), (2, 0)),
    "2-4w": PipelineShape(2, 4, (0, 1), (1, 2, 0, 3)),
    "4-1w": PipelineShape(4, 1, (0, 1, 2, 0), (3,)),
    "1-1r": PipelineShape(1, 1, (1,), (0,)),
    "1-1s": PipelineShape(1, 1, (0,), (0,)),
    "1-2s": PipelineShape(1, 2, (0,), (0, 0)),
    "2-1s": PipelineShape(2, 1, (0, 0), (0,)),
    "tiny1": PipelineShape(1, 1, (0,), (1,), layers=2, heads=4, dim=16),
    "tiny": PipelineShape(1, 2, (0,), (1, 1), layers=2, heads=4, dim=16),
}


def mapped(rows: list[Case]) -> list[Case]:
    """The same rows as endpoints do them by themselves, where kernels may store into mapped pages.

    There a chunk is a launch and a note and nothing else, so rooms that will go that way are one chunk.
    """
    whole = (row if row.size > ONE_CHUNK else replace(row, chunk=row.size) for row in rows)
    return list(dict.fromkeys(replace(row, route="cost", maps=True) for row in whole))


def cases(name: str, what: str, repeats: int) -> list[Case]:
    """Return a shape's rows: `figures` is the table, `slice` the other route.

    `pieces` is rate over chunk size: how large a chunk should be on this link.
    """
    if name == "tiny" and what == "pieces":
        return [Case("one", 4, chunk, repeats=2) for chunk in (1, 2, 4)]
    if name == "tiny1":
        one = Case("one", 1, 1, route="pages", by_index=True, beside=True, page=16, repeats=2)
        return [one, replace(one, packed=True)]
    if name == "tiny":
        one = Case("one", 1, 1, repeats=2, beside=True)
        return [one, Case("many", 1, 1, rooms=3, repeats=2), Case("slice", 1, 1, repeats=1)]
    if what == "slice":
        rows = [Case("slice", size, min(size, 64), repeats=3) for size in (4, 16, 64, 256)]
        rows += [Case("slice", 64, 64, max_descs=most, repeats=3) for most in (256, 4096)]
        return rows + [Case("one", size, size, repeats=repeats) for size in (4, 16, 64, 256)]
    if what == "pages":
        alike = (16, True), (64, True), (128, True), (128, False)
        rooms = (64, 64), (1024, 256), (1024, 1024)
        row = Case("one", 64, 64, route="pages", by_index=True, beside=True, repeats=repeats)
        return [
            replace(row, size=size, chunk=chunk, page=page, packed=packed)
            for page, packed in alike for size, chunk in rooms
        ]  # fmt: skip
    if what == "pieces":
        pairs = [(size, size >> cut) for size in (64, 256, 1024) for cut in range(7) if size >> cut >= 4]
        return [Case("one", size, chunk, repeats=repeats) for size, chunk in pairs]
    if what == "pinned":
        some = Case("many", 1024, 64, rooms=4, repeats=5, ring=1024, staging="pinned", beside=True, maps=True)
        rows = [some, replace(some, maps=False), *(replace(some, chunk=chunk) for chunk in (16, 128))]
        return rows + [replace(some, what="one", size=256, chunk=chunk, rooms=1, ring=0) for chunk in (16, 64)]
    parts = max(SHAPES[name].prefill, SHAPES[name].decode)  # of a chunk: with more of them, larger chunks
    sizes = ((64, 16), (64, 32), (256, 32), (256, 64), (1024, 64), (1024, 128))
    if what == "goals":
        forms = (64, 64), (256, 64), (1024, 128)
        rows = [Case("one", size, min(size, each * parts), repeats=repeats, beside=True) for size, each in forms]
        large = Case("many", 1024, 128 * parts, rooms=8, repeats=repeats, beside=True)
        more = [replace(large, size=64, chunk=64), large]
        return [*rows, *more]
    wanted = dict.fromkeys((size, min(size, chunk * parts)) for size, chunk in sizes)
    rows = [Case("one", size, chunk, repeats=repeats, beside=True) for size, chunk in wanted]
    many = (16, 64, 64), (64, 64, 64), (4, 256, 128), (16, 256, 128), (4, 1024, 128), (8, 1024, 128)
    return rows + [
        Case("many", size, min(size, chunk * parts), rooms=rooms, repeats=repeats) for rooms, size, chunk in many
    ]
