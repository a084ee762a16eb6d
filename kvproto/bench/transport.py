"""What NIXL moves between two processes in one piece, and in many: the ceiling of a pipeline, and why there is one.

A write of n bytes is posted by its sender and polled to its end by it, while the target polls too. The bytes are
taken from one buffer, and put into another, as one piece and as pieces of equal size in random places. The target is
filled with a marker before and compared in full after each first write.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from kvproto.bench.results import write
from kvproto.handlers.transports import Completed
from kvproto.handlers.transports.base import Kind
from kvproto.handlers.transports.nixl import NixlTransport

MARKER = 0xA5
MIB = 1 << 20


def noise(nbytes: int, device: torch.device) -> torch.Tensor:
    source = torch.Generator(device).manual_seed(1)
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8, generator=source, device=device)


def order(nbytes: int, pieces: int) -> np.ndarray[Any, Any]:
    """Descriptors that put piece i of the source to a random place."""
    size = nbytes // pieces
    starts = np.arange(pieces, dtype=np.uint64) * np.uint64(size)
    places = np.random.default_rng(pieces).permutation(pieces).astype(np.uint64) * np.uint64(size)
    return np.stack([starts, places, np.full(pieces, size, np.uint64)], 1)


def opened(nbytes: int, where: str) -> tuple[torch.Tensor, NixlTransport, Any]:
    device = torch.device(where)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    memory, transport = noise(nbytes, device), NixlTransport()
    kind: Kind = "VRAM" if memory.is_cuda else "DRAM"
    return memory, transport, transport.register(memory.data_ptr(), nbytes, kind, max(memory.get_device(), 0))


def target(conn: Connection, nbytes: int, where: str) -> None:
    """The process that is written to."""
    memory, transport, _ = opened(nbytes, where)
    conn.send(transport.endpoint())
    while True:
        while not conn.poll(0):
            transport.poll()
            os.sched_yield()
        what = conn.recv()
        if what == "end":
            transport.close()
            return
        if what == "mark":
            memory.fill_(MARKER)
            _settle(memory)
            conn.send(True)
            continue
        size, pieces = what
        wanted, rows = noise(nbytes, memory.device), order(size, pieces)
        places = torch.from_numpy((rows[:, 1] // rows[:, 2]).astype(np.int64)).to(memory.device)
        got, step = memory[: pieces * int(rows[0, 2])], int(rows[0, 2])
        same = torch.equal(got.view(pieces, step)[places], wanted[: got.numel()].view(pieces, step))
        conn.send(same and bool(memory[got.numel() :].eq(MARKER).all()))


def _settle(memory: torch.Tensor) -> None:
    if memory.is_cuda:
        torch.cuda.synchronize()


def bench(sizes: Sequence[int], pieces: Sequence[int], repeats: int, *, cuda: bool) -> list[dict[str, Any]]:
    where = ("cuda:0", f"cuda:{torch.cuda.device_count() - 1}") if cuda else ("cpu", "cpu")
    largest = max(sizes) * MIB
    context = multiprocessing.get_context("spawn")
    conn, theirs = context.Pipe()
    context.Process(target=target, args=(theirs, largest, where[1]), daemon=True).start()
    _, transport, source = opened(largest, where[0])
    peer = transport.connect(conn.recv())
    transport.warm(peer, 5.0)

    def once(rows: np.ndarray[Any, Any]) -> float:
        begin = time.perf_counter()
        handle = transport.write(peer, source, transport.remote(peer, 0), rows, b"")
        while Completed(handle) not in transport.poll():
            os.sched_yield()
        return time.perf_counter() - begin

    found = []
    for size in sizes:
        for count in pieces:
            rows = order(size * MIB, count)
            conn.send("mark")
            conn.recv()
            once(rows)
            conn.send((size * MIB, count))
            right = conn.recv()
            few = repeats if count < 1024 else 2
            seconds = statistics.median(once(rows) for _ in range(few + 1))
            moved = int(rows[:, 2].sum())
            found.append({"size": size, "pieces": count, "ms": 1e3 * seconds, "gbs": 1e-9 * moved / seconds,
                          "right": right})  # fmt: skip
    conn.send("end")
    transport.close()
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["  MiB  pieces         ms     GB/s"]
    lines += [
        f"{row['size']:5} {row['pieces']:7} {row['ms']:10.3f} {row['gbs']:8.1f}{'' if row['right'] else '  WRONG'}"
        for row in rows
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if bytes were wrong, 2 if there is no GPU where one was asked for."""
    about = (__doc__ or "").split("\n\n", maxsplit=1)[0]
    parser = argparse.ArgumentParser(prog="kvproto bench transport", description=about)
    parser.add_argument("--cuda", action="store_true", help="device memory: the first GPU to the last")
    parser.add_argument("--sizes", default="1,16,64,256", help="MiB, comma separated (default 1,16,64,256)")
    parser.add_argument("--pieces", default="1,16,1024,16384", help="comma separated (default 1,16,1024,16384)")
    parser.add_argument("--repeats", type=int, default=9, help="timed writes a row (default 9; 2 from 1024 pieces on)")
    parser.add_argument("--json", metavar="FILE", help="write all figures here as well ('-': standard output only)")
    options = parser.parse_args(argv)
    if options.cuda and not torch.cuda.is_available():
        print("torch sees no GPU here", file=sys.stderr)
        return 2
    sizes, pieces = ([int(each) for each in text.split(",")] for text in (options.sizes, options.pieces))
    found = bench(sizes, pieces, options.repeats, cuda=options.cuda)
    if options.json != "-":
        print(table(found))
    write(options.json, "transport", argv, found)
    return 0 if all(row["right"] for row in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
