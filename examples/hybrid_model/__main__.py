"""Move a hybrid model's request between two groups, over NIXL, and continue it from what has arrived.

    python -m examples.hybrid_model --prefill 4 --decode 2

A small Qwen3-Next of random weights runs the prompt on each prefill rank.  Every byte that the continuation reads is
taken from the decode ranks' pages and slots.  Its tokens are compared with those of the model alone, exit code 1: they
differ.  `--swap` exchanges two segments of the convolution before, to see that it is noticed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch

from examples.hybrid_model.job import Job, build, continued, forward, parts_of, prompt, tensors_of
from examples.hybrid_model.rank import Rank
from kvproto.lab.bench.members import Members


def moved(job: Job) -> tuple[int, list[dict[str, list[torch.Tensor]]]]:
    """Move the request; return the token that came with it, and what each decode rank has of it."""
    members = Members()
    for side, count in (("P", job.prefill), ("D", job.decode)):
        for index in range(count):
            members.start(side, index, Rank, side, index, job)
    try:
        addresses = list(members.tell("P", "address").values())
        members.tell("D", "connect", addresses)
        members.tell("P", "compute")
        ends = members.tell("PD", "outcome")
        if wrong := {f"{side}{index}": cause for (side, index), (cause, _) in ends.items() if cause != "NONE"}:
            raise RuntimeError(f"the room failed: {wrong}")
        token = next(token for (side, _), (_, token) in ends.items() if side == "D" and token >= 0)
        return token, list(members.tell("D", "arrived").values())
    finally:
        members.close()


def resumed(job: Job, token: int, ranks: list[dict[str, list[torch.Tensor]]], *, swap: bool) -> list[int]:
    """Continue from what decode ranks have, in a cache that is full of noise before."""
    model = build(job)
    _, past = forward(model, prompt(job))
    for tensor in tensors_of(past):
        tensor.normal_()
    for rank, found in enumerate(ranks):
        if swap:
            found = found | {"delta.q": found["delta.k"], "delta.k": found["delta.q"]}  # noqa: PLW2901
        for name, views in parts_of(past, job.decode, rank).items():
            for view, part in zip(views, found[name], strict=True):
                view.copy_(part)
    return continued(model, token, past, job.new)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser("examples.hybrid_model", description=(__doc__ or "").partition("\n\n")[0])
    for name, about in (
        ("prefill", "ranks"), ("decode", "ranks"), ("tokens", "of the prompt"), ("prefix", "tokens that decode has"),
        ("new", "tokens"), ("groups", "chunks of the state"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=getattr(Job, name), help=f"{about} (default %(default)s)")
    parser.add_argument("--swap", action="store_true", help="exchange q and k of the convolutions that arrived")
    options = vars(parser.parse_args(argv))
    swap = options.pop("swap")
    job = Job(**options)
    token, ranks = moved(job)
    model = build(job)
    first, past = forward(model, prompt(job))
    wanted, found = continued(model, first, past, job.new), resumed(job, token, ranks, swap=swap)
    print(f"the model alone  {wanted}\nfrom what came   {found}\n{'equal' if wanted == found else 'DIFFERENT'}")
    return 0 if wanted == found else 1


if __name__ == "__main__":
    sys.exit(main())
