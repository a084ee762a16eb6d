"""What NIXL moves between two processes: in one piece, in many, with a tag; the ceiling of a pipeline.

Beside each bulk write stands a plain copy of as many bytes by torch (`copy`), which is what the machine can do: from
one GPU to the other, or in host memory. *polled* is NIXL by itself, its sender and its target polling; *thread* the
same with NIXL's progress thread on both sides; *ours* is the transport that endpoints use. A *tag* is a bulk write that
carries a notification: from before the post until the target has it in hands, and until the sender knows of its end.
*Pieces* are as many descriptors of equal size in random places: what the slice route asks of a transport.

The target is filled with a marker before the first write of a row and compared in full after it. Figures are medians.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, get_args

import torch

from kvproto.arguments import positive, real, several
from kvproto.lab.bench.members import Members
from kvproto.lab.bench.pools import seeded_bytes
from kvproto.lab.bench.results import Course, command_line
from kvproto.lab.bench.transport_ends import SEED, End, How, Rows, Target, opened, order, settle

MIB = 1 << 20
FEW = 1024  # pieces from which on a row is measured twice only
TAG = b"%08d"


@dataclass
class TransportPair:
    """A sender in this process, and the process that it writes to."""

    how: How
    nbytes: int
    where: tuple[str, str]

    def __enter__(self) -> Self:
        self.members = Members()
        self.members.start("D", 0, Target, self.nbytes, self.where[1], self.how)
        self.end: End = opened(self.nbytes, self.where[0], self.how)
        self.end.connect(self.ask("endpoint"))
        self.tags = 0
        return self

    def __exit__(self, *_: object) -> None:
        self.ask("end")
        self.end.close()

    def ask(self, name: str, *args: Any) -> Any:
        return self.members.tell("D", name, *args)["D", 0]

    def seconds(self, rows: Rows, tag: bytes = b"") -> tuple[float, float]:
        """When a write began, and how long it took its sender."""
        begin = time.perf_counter()
        self.end.write(rows, tag)
        return begin, time.perf_counter() - begin

    def row(self, size: int, pieces: int, repeats: int) -> dict[str, Any]:
        """A write of so many bytes in so many pieces."""
        rows = order(size, pieces)
        self.ask("mark")
        self.seconds(rows)
        right = self.ask("right", size, pieces)
        took = statistics.median(self.seconds(rows)[1] for _ in range(repeats))
        moved = int(rows[:, 2].sum())
        return {"kib": size >> 10, "pieces": pieces, "ms": 1e3 * took, "gbs": 1e-9 * moved / took, "right": right}

    def tagged(self, size: int, repeats: int) -> dict[str, Any]:
        """Microseconds from before the post: until the target has the tag, and until the sender knows of the end."""
        told, over = [], []
        rows = order(size, 1)
        for _ in range(repeats + 1):
            self.tags += 1
            tag = TAG % self.tags
            begin, took = self.seconds(rows, tag)
            told.append(1e6 * (self.ask("when", tag) - begin))
            over.append(1e6 * took)
        return {"kib": size >> 10, "told_us": statistics.median(told[1:]), "over_us": statistics.median(over[1:])}


def copies(sizes: Sequence[int], repeats: int, where: tuple[str, str]) -> dict[int, float]:
    """GB/s of a plain copy by torch, by size."""
    source, to = (seeded_bytes((max(sizes),), SEED, torch.device(each)) for each in where)
    found = {}
    for size in sizes:
        took = []
        for _ in range(repeats + 2):
            settle(source)
            settle(to)
            begin = time.perf_counter()
            to[:size].copy_(source[:size])
            settle(source)
            settle(to)
            took.append(time.perf_counter() - begin)
        found[size] = 1e-9 * size / statistics.median(took[2:])
    return found


def bench(
    course: Course, sizes: Sequence[int], pieces: Sequence[int], repeats: int, *, cuda: bool
) -> list[dict[str, Any]]:
    """Every row; sizes in bytes."""
    torch.set_num_threads(1)
    where = ("cuda:0", f"cuda:{torch.cuda.device_count() - 1}") if cuda else ("cpu", "cpu")
    largest, found = max(sizes), []
    ceiling = copies(sizes, repeats, where)
    for how in course.cases(get_args(How)):
        with TransportPair(how, largest, where) as pair:
            for size in sizes:
                row = {"what": "bulk", "how": how, **pair.row(size, 1, repeats)}
                found.append({**row, "copy_gbs": ceiling[size], "ratio": row["gbs"] / ceiling[size]})
            tagged = [pair.tagged(size, repeats) for size in (4096, *sizes)]
            found += [{"what": "tag", "how": how, "right": True, **row} for row in tagged]
            for size in sizes if how == "ours" else ():
                for count in (each for each in pieces if 1 < each <= size // 64):
                    row = pair.row(size, count, repeats if count < FEW else 2)
                    found.append({"what": "pieces", "how": how, **row})
        course.keep(found, f"{how}: all sizes")
    return found


#: numbers above 0
NUMBERS = several(real(1e-6, 1 << 30))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; 1 if bytes were wrong, 2 if there is no GPU where one was asked for."""
    parser = command_line("transport", __doc__)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--cuda", action="store_true", help="device memory: the first GPU to the last")
    place.add_argument("--cpu", action="store_true", help="host memory (the default)")
    parser.add_argument("--sizes", type=NUMBERS, default=[1, 4, 16, 64, 256], metavar="LIST",
                        help="MiB, comma separated (default 1,4,16,64,256)")  # fmt: skip
    parser.add_argument("--pieces", type=NUMBERS, default=[16, 1024, 16384], metavar="LIST",
                        help="comma separated (default 16,1024,16384)")  # fmt: skip
    parser.add_argument("--repeats", type=positive, default=9,
                        help="timed writes a row (default 9; 2 from 1024 pieces on)")  # fmt: skip
    options = parser.parse_args(argv)
    if options.cuda and not torch.cuda.is_available():
        print("torch sees no GPU here", file=sys.stderr)
        return 2
    sizes = [int(each * MIB) for each in options.sizes]
    course = Course("transport", argv, options)
    found = bench(course, sizes, [int(each) for each in options.pieces], options.repeats, cuda=options.cuda)
    course.end(found)
    return 0 if all(row["right"] for row in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
