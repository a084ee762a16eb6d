"""What a file of results holds, as types: what tables, plots and suggestions read of it, and within which bounds.

A file that was cut or doctored is refused by run, row and field before anything is made of it.  Only what is read is
asked for; a benchmark may write more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from kvproto.fsm.bounded_files import FileError, decoded, document
from kvproto.lab.bench.torture_table import TortureRow
from kvproto.lab.bench.trace_report import TraceRow

Speed = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Amount = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
MiB = Annotated[float, msgspec.Meta(ge=1e-6, le=1e9)]  # there are ratios of them
Name = Annotated[str, msgspec.Meta(max_length=256)]
Spread = dict[str, Speed]
NotEmpty = msgspec.Meta(min_length=1)


class KernelRow(msgspec.Struct):
    """A call of `kernels`, with or without digests, ours or beside others."""

    what: Name
    pair: Name
    bytes: Amount
    parts: Amount
    page: Amount


class OurKernelRow(KernelRow):
    """A call of our kernels, beside a copy."""

    ratio: Speed
    row: Amount


class DigestRow(KernelRow):
    """A call with digests, beside one without."""

    cost: Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)]


class PeerKernelRow(KernelRow):
    """A call of our kernels and of others."""

    ratio: Speed
    peer_ratio: Speed
    faster: Speed


class StripRow(msgspec.Struct):
    """A copy of strips."""

    strip: Amount
    of: Amount
    write_ratio: Speed
    read_ratio: Speed


class HostRow(msgspec.Struct):
    """What a launch takes of the host's time."""

    median_us: Speed


class CallRow(msgspec.Struct):
    """What a call takes of the host's time, ours and others'."""

    what: Name
    ours_us: Speed
    peer_us: Speed


class PeerFigures(msgspec.Struct):
    """Beside others' kernels, or why not."""

    missing: Name | UnsetType = UNSET
    release: Name | UnsetType = UNSET
    kernels: Annotated[list[PeerKernelRow], NotEmpty] | UnsetType = UNSET
    calls: Annotated[list[CallRow], NotEmpty] | UnsetType = UNSET


class KernelFigures(msgspec.Struct):
    """Of `kvproto bench kernels`."""

    kernels: Annotated[list[OurKernelRow], NotEmpty]
    digests: Annotated[list[DigestRow], NotEmpty] | UnsetType = UNSET
    strips: list[StripRow] | UnsetType = UNSET
    host: Annotated[list[HostRow], NotEmpty] | UnsetType = UNSET
    peer: PeerFigures | UnsetType = UNSET


class CurveRow(msgspec.Struct, kw_only=True):
    """What a suggestion reads of a transfer between GPUs."""

    what: Name
    pair: Name
    size: MiB
    chunk: MiB
    ring: Amount
    gbs: Speed
    staging: Name | UnsetType = UNSET


class PipelineRow(CurveRow, kw_only=True):
    """A transfer between GPUs."""

    slots: Amount
    rooms: Amount
    max_descs: Amount
    links: Annotated[int, msgspec.Meta(ge=1, lt=1 << 20)]
    pieces: Amount
    ms: Speed
    right: bool
    bulk_ms: Speed | UnsetType = UNSET
    bulk_gbs: Speed | UnsetType = UNSET
    ratio: Speed | UnsetType = UNSET


class RouteRow(msgspec.Struct):
    """Rooms by ring, by pages and by choice; of a simulation, what would be chosen."""

    pair: Name
    size: MiB
    pages: Name
    chosen: Name
    staged_ms: Speed
    pages_ms: Speed
    profile: Name | UnsetType = UNSET
    right: bool | UnsetType = UNSET
    bulk_ms: Speed | UnsetType = UNSET
    cost_ms: Speed | UnsetType = UNSET
    staged_share: Speed | UnsetType = UNSET
    pages_share: Speed | UnsetType = UNSET
    cost_share: Speed | UnsetType = UNSET
    loss: Annotated[float, msgspec.Meta(ge=-1.0, le=1e9)] | UnsetType = UNSET
    pieces: Amount | UnsetType = UNSET
    staged_estimate_ms: Speed | UnsetType = UNSET
    pages_estimate_ms: Speed | UnsetType = UNSET


class GridRow(msgspec.Struct):
    """A cell of the grid, or what it was left out for."""

    pair: Name
    page: Amount
    tokens: Amount
    batch: Amount
    size: MiB
    skipped: dict[Name, Name]
    right: bool | UnsetType = UNSET
    share: Speed | UnsetType = UNSET
    bulk_ms: Speed | UnsetType = UNSET
    bulk_p95_ms: Speed | UnsetType = UNSET
    staged_ms: Speed | UnsetType = UNSET
    #: which way that was, where it was not staged by order
    went: str | UnsetType = UNSET
    staged_p95_ms: Speed | UnsetType = UNSET
    floor_ms: Speed | UnsetType = UNSET
    descriptors_ms: Speed | UnsetType = UNSET
    descriptors_p95_ms: Speed | UnsetType = UNSET
    faster: Speed | UnsetType = UNSET


class PinnedRow(msgspec.Struct):
    """A call with staging in host memory."""

    what: Name
    bytes: Amount
    pieces: Amount
    copy_gbs: Speed
    staged_gbs: Speed
    direct_gbs: Speed
    ratio: Speed


class TransportRow(msgspec.Struct):
    """A write, or what is told of one."""

    what: Name
    how: Name
    size: MiB
    pieces: Amount | UnsetType = UNSET
    ms: Speed | UnsetType = UNSET
    gbs: Speed | UnsetType = UNSET
    copy_gbs: Speed | UnsetType = UNSET
    ratio: Speed | UnsetType = UNSET
    told_us: Speed | UnsetType = UNSET
    over_us: Speed | UnsetType = UNSET


class ControlFigures(msgspec.Struct):
    """Of `kvproto bench control`."""

    spin: bool
    cuda: bool
    pace_ms: Speed
    rows: Annotated[list[dict[str, Amount | Spread]], NotEmpty]
    rooms_a_second: Annotated[list[Speed], NotEmpty]
    idle: list[Speed]
    right: bool
    calls: dict[str, Spread] | UnsetType = UNSET
    rooms_a_second_by_hand: list[Speed] | UnsetType = UNSET


class DepartedRow(msgspec.Struct):
    """An endpoint at rest, beside instances that have ended without a word."""

    side: Literal["D", "P"]
    departed: Amount
    pass_us: Speed
    mean_us: Speed
    p99_us: Speed
    idle_share: Speed
    rss_mib: Speed
    grown_kib_s: Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]


class Held(msgspec.Struct):
    """What a process holds."""

    rss_mib: Speed
    descriptors: Amount


class ComeAndGoneRow(msgspec.Struct):
    """Instances that came, carried a room, were let go of and ended."""

    side: Literal["D", "P"]
    instances: Amount
    seconds: Speed
    before: Held
    after: Held
    left: dict[Name, Amount]
    halfway: Held | UnsetType = UNSET


class ChurnFigures(msgspec.Struct):
    """Of `kvproto bench churn`."""

    departed: list[DepartedRow]
    come_and_gone: list[ComeAndGoneRow]


class DemoPass(msgspec.Struct):
    """A pass of the demonstration."""

    route: Name
    gbs: Speed
    seconds: Spread
    first_token: dict[str, Spread]


class DemoByLayer(msgspec.Struct):
    """Rooms of a length, cut in one way, beside the same not cut."""

    tokens: Amount
    asked: Amount
    groups: Amount
    without: Spread
    by_layer: Spread
    gain: Annotated[float, msgspec.Meta(ge=-1e6, le=1)]


class DemoFigures(msgspec.Struct):
    """Of `kvproto demo`."""

    title: str
    unsharded: dict[str, Spread]
    passes: list[DemoPass]
    by_layer: list[DemoByLayer] = []


class LayersRow(msgspec.Struct):
    """A prompt cut into layer groups."""

    way: Name
    tokens: Amount
    groups: Amount
    bytes: Amount
    bulk_ms: Speed
    last_ms: Speed
    floor_ms: Speed
    after_ms: Speed
    total_ms: Speed


class StepFigures(msgspec.Struct):
    """What an event costs."""

    us_per_event: Speed
    us_per_event_best: Speed
    bytes_per_room: Speed
    gc_ms: Speed
    disagreements: list[Name]


class ConformanceFigures(msgspec.Struct):
    """What it costs to be judged."""

    plain: Speed
    followed: Speed
    judge: Speed
    rank_pays: Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)]
    found: list[Name]


class MachineOfRun(msgspec.Struct):
    """What of a machine a table names; there is more."""

    gpus: list[Name] | None = None
    gpu: Name | None = None
    torch: Name | None = None
    python_ns: Speed | None = None


class RunHead(msgspec.Struct):
    """Which benchmark, by which command, when, on which machine."""

    bench: Name
    command: Annotated[str, msgspec.Meta(max_length=4096)]
    machine: MachineOfRun
    figures: Any
    date: Name | UnsetType = UNSET


FIGURES: dict[str, Any] = {
    "kernels": KernelFigures, "pipeline": list[PipelineRow], "pinned": list[PinnedRow],
    "transport": list[TransportRow], "control": ControlFigures, "demo": DemoFigures, "layers": list[LayersRow],
    "route": list[RouteRow], "grid": list[GridRow], "churn": ChurnFigures, "torture": list[TortureRow],
    "step": StepFigures, "conformance": ConformanceFigures, "trace": list[TraceRow],
}  # fmt: skip


def checked_run(where: str, run: Any) -> dict[str, Any]:
    """The run as it is.  `FileError`: it is none; `where` is its place."""
    head = decoded(where, run, RunHead)
    if head.bench not in FIGURES:
        raise FileError(f"{where}: bench: {head.bench!r} is none of {', '.join(FIGURES)}")
    decoded(f"{where}: figures of {head.bench}", head.figures, FIGURES[head.bench])
    return dict(run)


def checked_results(path: Path) -> dict[str, Any]:
    """A file of results.  `FileError` names run and field."""
    return {"runs": [checked_run(f"{path}: run {number}", run) for number, run in enumerate(_runs(path), 1)]}


def curve_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of all pipeline runs in a file of results, or of the one run that it is.  `FileError`, as above."""
    found: list[dict[str, Any]] = []
    for number, run in enumerate(_runs(path), 1):
        if isinstance(run, dict) and run.get("bench") == "pipeline":
            decoded(f"{path}: run {number}: figures", run.get("figures"), list[CurveRow])
            found += run["figures"]
    return found


def _runs(path: Path) -> list[Any]:
    try:
        data = document(path)
    except FileNotFoundError as error:
        told = "there are no results here: --results FILE names some, and `kvproto bench NAME --json FILE` writes them"
        raise FileError(f"{path}: {told}") from error
    runs = data.get("runs", [data]) if isinstance(data, dict) else None
    if not isinstance(runs, list):
        raise FileError(f"{path}: not a file of results: an object with a list of runs is expected")
    return runs
