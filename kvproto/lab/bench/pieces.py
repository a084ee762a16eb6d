"""How large a chunk should be, from what was measured: `kvproto bench suggest`.

A chunk is a piece of the pipeline: while one is gathered, another is on the wire and a third is scattered. What decides
its size pulls both ways. Every piece costs the host some tens of microseconds and the wire its latency, so small ones
leave the link idle; the first piece is gathered and the last one scattered with nothing beside it, so a room of one
piece hides nothing. Where the best size lies depends on machine, transport and room, and is measured
(`kvproto bench pipeline --what pieces`): rate over chunk size, for rooms of several sizes.

`suggest` takes the curve of the room size that is nearest (in ratio) and of it the *smallest* chunk within `SLACK` of
the best: a smaller one needs less ring and fewer staging bytes, and during a chunked prefill KV leaves earlier. The
answer is cut to whole pages of both sides, and to the prefill's own chunk if that is smaller: KV that is not computed
cannot leave. Nothing is extrapolated: outside what was measured the nearest curve's answer stands, and the reason
says so.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path

from kvproto.arguments import pages, positive, whole
from kvproto.errors import ArgumentError
from kvproto.lab.bench.flat import Figure, checked_results, rows_of
from kvproto.lab.bench.pivot import markdown
from kvproto.layout.sharding import LayoutError, align_chunk_tokens

MIB = 1 << 20
DEFAULT = Path("examples/results/h200.json")
SLACK = 0.03
Curve = dict[int, float]  #: GB/s by MiB of a chunk


@dataclass(frozen=True)
class Suggestion:
    """A chunk size in tokens and in bytes of the whole KV, the GB/s measured at the nearest size, and why."""

    chunk_tokens: int
    nbytes: int
    gbs: float
    why: str


def curves(figures: Iterable[Figure], pair: str) -> dict[int, Curve]:
    """Find the best rate over chunk size of single rooms, by MiB of the room; `pair` as in "1->1"."""
    found: dict[int, Curve] = {}
    for row in rows_of(figures):
        labels, rate = row.labels, row.values.get("GB/s")
        size, chunk = labels.get("size"), labels.get("chunk")
        single = labels.get("what") == "one" and not labels.get("ring") and labels.get("staging", "device") == "device"
        if rate is None or not single or str(labels.get("pair")).split(" ")[0] != pair:
            continue
        if type(size) is int and type(chunk) is int and size > 0 and chunk > 0:
            curve = found.setdefault(size, {})
            curve[chunk] = max(curve.get(chunk, 0.0), rate)
    return found


def suggest(
    measured: Mapping[int, Curve], *, token_bytes: int, tokens: int, pages: tuple[int, int] = (16, 16),
    prefill_chunk: int | None = None,
) -> Suggestion:  # fmt: skip
    """Suggest chunk_tokens for rooms of `tokens` tokens of `token_bytes` over all layers and heads.

    ArgumentError: nothing was measured. LayoutError: pages or tokens that are none.
    """
    if not measured or not all(measured.values()):
        raise ArgumentError("no curve of this pair was measured: run kvproto bench pipeline --what pieces")
    if tokens < 1 or token_bytes < 1:
        raise LayoutError("chunk-tokens-not-positive", f"rooms of {tokens} tokens of {token_bytes} bytes")
    room = tokens * token_bytes / MIB
    size = _nearest(measured, room)
    curve = measured[size]
    best = max(curve, key=lambda chunk: curve[chunk])
    least = _chosen(curve)
    why = [f"rooms of {room:.0f} MiB; measured with {size} MiB: best {curve[best]:.0f} GB/s with {best} MiB a chunk"]
    if least != best:
        why.append(f"{least} MiB is within {SLACK:.0%} of it and needs less ring")
    aim = max(1, least * MIB // token_bytes)
    if prefill_chunk is not None and prefill_chunk < aim:
        aim = prefill_chunk
        why.append(f"the prefill computes {prefill_chunk} tokens at a time")
    chunk_tokens = align_chunk_tokens(aim, *pages)
    near = _nearest(curve, chunk_tokens * token_bytes / MIB)
    if curve[near] < (1 - SLACK) * curve[best]:
        why.append(f"that costs: {curve[near]:.0f} GB/s were measured with {near} MiB")
    if not min(measured) / 2 <= room <= max(measured) * 2:
        why.append("no room of nearly this size was measured")
    return Suggestion(chunk_tokens, chunk_tokens * token_bytes, curve[near], "; ".join(why))


def _chosen(curve: Curve) -> int:
    return min(chunk for chunk, gbs in curve.items() if gbs >= (1 - SLACK) * max(curve.values()))


def _nearest(sizes: Iterable[int], wanted: float) -> int:
    return min(sizes, key=lambda size: abs(log(size / wanted)))


def table(measured: Mapping[int, Curve]) -> str:
    """The curves: GB/s, a line a room size, a column a chunk size; the chosen one of each is bold."""
    chunks = sorted({chunk for curve in measured.values() for chunk in curve})
    rows = []
    for size, curve in sorted(measured.items()):
        good = _chosen(curve)
        cells = {chunk: f"{gbs:.0f}" for chunk, gbs in curve.items()}
        cells[good] = f"**{cells[good]}**"
        rows.append([size, *(cells.get(chunk, "") for chunk in chunks)])
    return markdown(["a room, MiB", *(f"chunks of {chunk}" for chunk in chunks)], rows)


def parser() -> argparse.ArgumentParser:
    about = (__doc__ or "").split("\n\n", maxsplit=1)[0]
    p = argparse.ArgumentParser(prog="kvproto bench suggest", description=about,
                                formatter_class=argparse.ArgumentDefaultsHelpFormatter)  # fmt: skip
    p.add_argument("--results", type=Path, default=DEFAULT, help="what `kvproto bench pipeline --json FILE` wrote")
    p.add_argument("--pair", default="1->1", help="whose curve: prefill->decode ranks, as measured")
    p.add_argument("--layers", type=positive, default=32, help="layers of the model")
    p.add_argument("--kv-heads", type=positive, default=8, help="KV heads of the model, all ranks together")
    p.add_argument("--k-dim", type=positive, default=128, help="elements of K a head")
    p.add_argument("--v-dim", type=whole(0, 1 << 20), default=None, help="elements of V a head; as K's if not given")
    p.add_argument("--itemsize", type=whole(1, 16), default=2, help="bytes an element")
    p.add_argument("--tokens", type=positive, default=4096, help="tokens of a usual room")
    p.add_argument("--pages", type=pages, default=(16, 16), metavar="P:D", help="tokens a page on either side")
    p.add_argument("--prefill-chunk", type=positive, default=None, help="tokens that the prefill computes at a time")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Print the curves and the suggested chunk_tokens."""
    options = parser().parse_args(argv)
    runs = [run for run in checked_results(options.results) if run.bench == "pipeline"]
    measured = curves((figure for run in runs for figure in run.figures), options.pair)
    dims = options.k_dim + (options.k_dim if options.v_dim is None else options.v_dim)
    found = suggest(
        measured, token_bytes=options.layers * options.kv_heads * dims * options.itemsize, tokens=options.tokens,
        pages=options.pages, prefill_chunk=options.prefill_chunk,
    )  # fmt: skip
    if options.json:
        print(
            json.dumps({"chunk_tokens": found.chunk_tokens, "bytes": found.nbytes, "gbs": found.gbs, "why": found.why})
        )
    else:
        print(f"GB/s of one room, by MiB of a chunk\n\n{table(measured)}")
        print(
            f"\nchunk_tokens={found.chunk_tokens}: "
            f"{found.nbytes / MIB:.1f} MiB of KV a chunk, {found.gbs:.0f} GB/s measured"
        )
        print(f"because: {found.why}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
