"""Result: the outcome of a run as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import linear_regression

import msgspec

from kvproto.errors import KvprotoError
from kvproto.lab.torture.ledger import Found
from kvproto.lab.torture.plan import TorturePlan

#: findings of one kind that are told; more than so many say nothing new
ENOUGH = 12


class TortureResult(msgspec.Struct):
    """The result of a run. `rss`: by rank, MiB at the begin of its last life and at the end."""

    seed: int
    carrier: str
    rooms: int = 0
    undisturbed: int = 0
    faults: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = {}
    troubles: dict[str, int] = {}
    strikes: dict[str, int] = {}
    hits: int = 0
    rss: dict[str, tuple[float, float]] = {}
    late: int = 0
    starved: int = 0
    found: list[str] = []
    traces: str = ""
    #: who was kept from running, in words; empty where the machine let all of them run
    starvation: str = ""
    #: steps of the ranks that lived to the end, in their last lives, all of them judged
    judged: int = 0

    @property
    def ok(self) -> bool:
        return not self.found


class StarvedError(KvprotoError):
    """The machine kept processes from running: nothing was learnt from what did not happen in time."""


#: a process that was kept from running for more than this share of a run was starved
STARVED_SHARE = 0.05


def starvation(kept: Mapping[str, float], seconds: float) -> str:
    """Name the processes that were kept from running for more than a little; empty: none were."""
    most = max(kept, key=lambda name: kept[name], default="")
    if not most or kept[most] < STARVED_SHARE * seconds:
        return ""
    waits = f"it kept {most} from running for {kept[most]:.1f} s of {seconds:.0f} s"
    return f"this machine was starved: {waits}; run on a quieter one, or with fewer rooms --at-once"


class SoakResult(msgspec.Struct):
    """The result of a soak. `rss`: by side, MiB after each batch; `slope`: bytes a room over the second
    half; `found`: what is wrong.
    """

    rooms: int
    carrier: str
    seconds: float = 0.0
    rooms_a_second: float = 0.0
    rss: dict[str, list[float]] = {}
    slope: dict[str, float] = {}
    found: list[str] = []

    @property
    def ok(self) -> bool:
        return not self.found


class TakeoverResult(msgspec.Struct):
    """The result of rooms that others have taken over."""

    seed: int
    carrier: str
    kill: str
    rooms: int = 0
    lives: int = 0
    #: of rooms that were not over; and rooms that two or more have hit
    kills: int = 0
    killed_again: int = 0
    #: rooms of which something had arrived, and whose replacement has computed other KV
    other_kv: int = 0
    #: of KV: of all prompts; written by prefill ranks; written beyond the prompts; arrived, and not sent again
    prompt_bytes: int = 0
    written_bytes: int = 0
    again_bytes: int = 0
    kept_bytes: int = 0
    #: in pages, by the judge
    wrong_bytes: int = 0
    #: steps of the ranks that survived, all of them judged
    judged: int = 0
    seconds: float = 0.0
    found: list[str] = []
    traces: str = ""

    @property
    def ok(self) -> bool:
        return not self.found


def slope(rooms: Sequence[float], nbytes: Sequence[float]) -> float:
    """Bytes a room, by least squares over the second half of the samples; 0 where there are not two."""
    xs, ys = rooms[len(rooms) // 2 :], nbytes[len(nbytes) // 2 :]
    return linear_regression(xs, ys).slope if len(xs) > 1 else 0.0


def few(found: Iterable[Found]) -> list[Found]:
    seen: Counter[str] = Counter()
    kept = []
    for each in found:
        seen[each[0]] += 1
        kept += [each] if seen[each[0]] <= ENOUGH else []
    return kept


def told(plan: TorturePlan, found: Found) -> str:
    kind, number, text = found
    if number < 0:
        return f"{kind}: {text}"
    room = plan.room(number)
    trouble = f", {room.trouble}" if room.trouble else ""
    return f"{kind}: room {room.room.id} gen {room.room.gen} (number {number}, way {room.way}{trouble}): {text}"
