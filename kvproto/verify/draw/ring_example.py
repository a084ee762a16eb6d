"""The ring's worked example: made by the ring itself, step by step, so that its numbers are right."""

from __future__ import annotations

from kvproto.protocol.ring import Ring, RingRegion, usable
from kvproto.verify.framework.draw.tables import table_md

SIZE = 100
#: what is done: a letter and a size is a grant, a letter alone a free
SCRIPT: tuple[tuple[str, int], ...] = (
    ("A", 60), ("B", 30), ("C", 40), ("D", 50), ("A", 0), ("B", 0), ("D", 0), ("C", 0), ("E", 70),
)  # fmt: skip


def ring_md() -> str:
    """A table: what is done, the region, the watermark afterwards, and what may be written now."""
    ring = Ring(SIZE)
    held: dict[str, RingRegion] = {}
    lines = []
    for name, size in SCRIPT:
        where = ""
        if size:
            region = ring.reserve(size)
            assert region is not None
            held[name] = region
            where = f"round {region.round}, {region.offset} to {region.end}"
        else:
            ring.free(held.pop(name).grant)
        able = [each for each, region in held.items() if usable(region.round, region.end, ring.mark)]
        waiting = [each for each in held if each not in able]
        done = f"grant {name}, {size} units" if size else f"free {name}"
        lines.append((done, where, f"({ring.mark[0]}, {ring.mark[1]})", " ".join(able), " ".join(waiting)))
    return table_md(("what is done", "region", "watermark", "may be written", "waits"), lines)
