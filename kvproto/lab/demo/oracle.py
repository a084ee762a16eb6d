"""Oracle: the judging process; it runs every room unsharded, and writes files for prefixes.

It shares no memory, no pool and no connection with the ranks. What a D rank "already holds" of a room comes from its
file: a prefix is KV that some earlier request left behind, and here the judge was that request.
"""

from __future__ import annotations

from pathlib import Path

import torch

from kvproto.lab.bench.machine import machine
from kvproto.lab.demo.job import DemoJob
from kvproto.lab.demo.model import UnshardedRoom, build, oracle_tokens, reference
from kvproto.lab.demo.pages import sheet_of
from kvproto.lab.demo.placement import device_of
from kvproto.lab.demo.verify import Sheet, Verdict
from kvproto.lab.process_group import ParentPipe


def truth_file(directory: Path, room: int) -> Path:
    return directory / f"room-{room}.truth"


def load_truth(directory: Path, room: int) -> UnshardedRoom:
    truth: UnshardedRoom = torch.load(truth_file(directory, room), weights_only=False)
    return truth


def truth_sheet(truth: UnshardedRoom) -> Sheet:
    rows = {
        (kind, layer): each.transpose(0, 1).contiguous().view(torch.uint8)
        for kind, whole in (("k", truth.keys), ("v", truth.values))
        for layer, each in enumerate(whole)
    }
    return sheet_of(rows, dict.fromkeys(rows, 0))


def program(line: ParentPipe, job: DemoJob, directory: Path, kind: str = "cpu") -> None:
    """Send ("verdict", (room, Verdict)) for each room, prefixed ones first, after its file is written."""
    device = device_of(kind, "decode", 0)
    if kind != "cpu":
        line.tell("machine", machine())
    model = build(job, device=device)
    for room in sorted(job.rooms, key=lambda r: r.prefix == 0):
        truth = reference(model, job, room)
        torch.save(truth, truth_file(directory, room.room))
        library = oracle_tokens(job, room, device=device) if job.dtype == "float32" else None
        rows = {"k": room.tokens, "v": room.tokens}
        verdict = Verdict(truth.tokens, truth.logits, truth_sheet(truth), library, truth.seconds, rows)
        line.tell("verdict", (room.room, verdict))
