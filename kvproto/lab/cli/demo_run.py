"""Demo run: what the command line asks for, as values."""

from __future__ import annotations

import argparse
from typing import Any

from kvproto.arguments import only_without
from kvproto.lab.demo.caches_job import CachesJob
from kvproto.lab.demo.family import FAMILIES
from kvproto.lab.demo.job import DemoJob, GroupShape, RoomSpec
from kvproto.lab.demo.run import Run, chunk_bytes, make_rooms

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3fn"}
#: what is assumed for KV in host memory, and on GPUs: there a model of real proportions, with chunks as large as NVLink
#: wants them (`kvproto bench pipeline --what pieces`), and several in the ring
DEFAULTS: dict[str, tuple[Any, Any]] = {
    "prefill_tp": (4, 2), "decode_tp": (2, 1), "kv_heads": (4, 8), "head_dim": (16, 128), "layers": (4, 32),
    "hidden": (0, 4096), "rooms": (6, 64), "tokens": (1500, 1024), "least": (0.5, 0.125), "new": (12, 6),
    "chunk": (256, 512), "ring": ((6.5, 0), (16.0, 0)), "window": (4, 8), "slots": (4, 8), "grant_wait": (0.5, 5.0),
    "warm": (False, True), "limit": (60.0, 240.0),
    "passes": ("live,staged,pages", "live,live_pages,staged,pages"),
}  # fmt: skip


#: options that mean nothing where the library's own cache says what there is
WITHOUT = "--maps", "--digests", "--kv-heads", "--head-dim", "--layers", "--hidden"


def refuse(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """The parser's error for what means nothing with a model of several caches."""
    what = f"--model {args.model}"
    only_without(parser, args, what, *WITHOUT)
    if args.device != "cpu":
        parser.error(f"--device {args.device} is not of {what}: it computes on the CPU")


def complete(args: argparse.Namespace) -> None:
    for name, usual in DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, usual[args.device == "cuda"])


def shapes(args: argparse.Namespace) -> tuple[GroupShape, GroupShape]:
    """The two engines; ValueError: no such order in a page."""
    page_p, page_d = args.page_size
    order_p, _, order_d = args.order.partition(":")
    if not {order_p, order_d or order_p} <= {"NHD", "HND"}:
        raise ValueError(f"--order {args.order}: NHD, HND or P:D of the two")
    prefill = GroupShape(args.prefill_tp, args.prefill_pp, page_p, order_p)
    return prefill, GroupShape(args.decode_tp, args.decode_pp, page_d, order_d or order_p)


def make_run(args: argparse.Namespace) -> Run:
    """ValueError (LayoutError is one) for arguments that make no run."""
    several = args.model in FAMILIES
    if several and args.passes is None:
        args.passes = "live"
    complete(args)
    size, unit = args.ring
    if several:
        job: DemoJob | CachesJob = CachesJob(
            args.model, *shapes(args), rooms_of(args), DTYPES[args.dtype], args.chunk, args.seed
        )
    else:
        job = plain = DemoJob(
            *shapes(args), rooms_of(args),
            family=args.model, dtype=DTYPES[args.dtype], heads=args.kv_heads, dim=args.head_dim, layers=args.layers,
            width=args.hidden, chunk=args.chunk, seed=args.seed,
        )  # fmt: skip
        unit = unit or chunk_bytes(plain)
    return Run(
        job, int(size * unit) if unit else size, ("live",) if args.no_pages else tuple(args.passes.split(",")),
        transport=args.transport, grant_wait=args.grant_wait, window=args.window, abort=args.abort, device=args.device,
        trace=args.trace and str(args.trace.resolve()), limit_s=args.limit, warm=args.warm, slots=args.slots,
        staging=args.staging, in_chunks=not unit, maps=args.maps, digests=args.digests,
    )  # fmt: skip


def rooms_of(args: argparse.Namespace) -> tuple[RoomSpec, ...]:
    return make_rooms(
        args.rooms + args.warm, args.tokens, page=args.page_size[1], prefix=args.prefix, full_prefix=args.full_prefix,
        new=args.new, seed=args.seed, least=args.least,
    )  # fmt: skip
