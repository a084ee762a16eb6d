"""Plan: the events of a run as a pure function of the seed, so a report needs the seed alone.

*Rooms* are numbered; 2k and 2k + 1 have the same name and go opposite ways. A name's id comes back with the next gen
after `IDS` others, often while the room before it is still held. A room may be in *trouble*: given up, never opened,
slow or failing kernels, differing lengths, or a name of another group's room (`intruder`).

*Episodes* are faults that strike ranks and links. `at` counts rooms: up to `at` are opened while all is well, `storm`
more while the faults are at work, and no more until all links have come back. So most rooms are undisturbed, and must
succeed, however slow the machine. Every room is made from a seed of its own, on demand.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from kvproto.lab.torture.fleet import (
    DECODE,
    DECODE_RANKS,
    NAMES,
    PREFILL_RANKS,
    SILENCE_S,
    WAYS,
    GroupWay,
    TortureFleet,
    make_fleet,
)
from kvproto.room import Room

IDS = 40
PROBES = 2 * len(WAYS)
PAGE = 32  # a prefix is whole pages of both sides

Trouble = Literal[
    "", "abort-P", "abort-D", "abort-both", "absent-P", "absent-D", "gather-fails", "gather-slow", "scatter-fails",
    "scatter-slow", "mismatch", "intruder", "intruded",
]  # fmt: skip
#: how often each is chosen, among those in trouble
TROUBLES: dict[Trouble, int] = {
    "abort-P": 20, "abort-D": 20, "abort-both": 10, "absent-P": 2, "absent-D": 2, "gather-fails": 8, "gather-slow": 8,
    "scatter-fails": 8, "scatter-slow": 8, "mismatch": 6, "intruder": 8,
}  # fmt: skip
StrikeKind = Literal[
    "kill", "kill-and-move", "stop", "pause", "jump", "cut", "half-open", "half-open-back", "delay", "double", "mix",
    "lose",
]  # fmt: skip
#: faults of ranks, and of the cables between control sockets
ON_RANKS: tuple[StrikeKind, ...] = ("kill", "kill-and-move", "stop", "pause", "jump")
#: what a protocol must bear without the loss of a room
HARMLESS: frozenset[str] = frozenset({"delay", "double", "mix", "pause"})
#: afterwards a rank's clock reads much more than its last work took
ENDS_TIMERS: frozenset[str] = frozenset({"jump", "stop"})
#: each kind comes about as often as it stands here
STRIKES: tuple[StrikeKind, ...] = (
    "kill", "stop", "cut", "double", "kill", "half-open", "mix", "kill-and-move", "pause", "delay", "stop", "jump",
    "half-open-back", "lose",
)  # fmt: skip


class TortureSize(msgspec.Struct, frozen=True):
    """The size of a run: rooms, episodes, faults in one; rooms at a time each way; share of names in it."""

    rooms: int
    episodes: int
    strikes: int
    at_once: int = 6
    troubled: float = 0.18


SIZES = {
    "short": TortureSize(rooms=200, episodes=3, strikes=4, troubled=0.3),
    "medium": TortureSize(rooms=4000, episodes=40, strikes=3),
    "long": TortureSize(rooms=20_000, episodes=120, strikes=3),
}


class Act(msgspec.Struct, frozen=True):
    """An engine's act, so many seconds after its last one: open, prefetch, produced (upto), aux, abort."""

    after: float
    what: Literal["open", "prefetch", "produced", "aux", "abort"]
    upto: int = 0


class TortureRoom(msgspec.Struct, frozen=True):
    """A room: `acts` by (group, index) of a rank that has anything to do with it; `seed`: of its KV."""

    number: int
    room: Room
    way: GroupWay
    tokens: int
    prefix: int
    trouble: Trouble
    acts: dict[tuple[int, int], tuple[Act, ...]]
    seed: int
    #: kernels: seconds that one takes
    slow: float = 0.0


class Strike(msgspec.Struct, frozen=True):
    """A fault on a rank ("D0") or a cable ("D0>P1"), `after` seconds into its episode, for `seconds`.

    `every`: how many frames pass between two that are hit; `amount`: seconds that a frame is late or a clock jumps.
    """

    kind: StrikeKind
    target: str
    after: float
    seconds: float
    every: int = 0
    amount: float = 0.0


class Episode(msgspec.Struct, frozen=True):
    """Strikes that come together."""

    at: int
    storm: int
    strikes: tuple[Strike, ...]


class TorturePlan(msgspec.Struct, frozen=True):
    """A whole run."""

    seed: int
    size: TortureSize
    fleet: TortureFleet
    episodes: tuple[Episode, ...]

    def room(self, number: int) -> TortureRoom:
        probe = number >= self.size.rooms
        return _room(self.seed, 0.0 if probe else self.size.troubled, number, probe=probe)

    def probes(self, turn: int) -> range:
        """Return numbers of rooms of middling length without trouble, two each way, behind those of the run."""
        return range(self.size.rooms + turn * PROBES, self.size.rooms + (turn + 1) * PROBES)


def make_plan(seed: int, size: TortureSize) -> TorturePlan:
    dice = random.Random(f"{seed} fleet")
    fleet = make_fleet(dice)
    return TorturePlan(seed, size, fleet, _episodes(random.Random(f"{seed} faults"), size, fleet))


# ------------------------------------------------------------------------------------------------------- faults
def _episodes(dice: random.Random, size: TortureSize, fleet: TortureFleet) -> tuple[Episode, ...]:
    span = size.rooms // (size.episodes + 1)
    kinds = _shuffled(dice, size.episodes * size.strikes)
    return tuple(
        Episode((k + 1) * span, span // 2, _strikes(dice, fleet, kinds[k * size.strikes :][: size.strikes]))
        for k in range(size.episodes)
    )


def _shuffled(dice: random.Random, count: int) -> list[StrikeKind]:
    """So many kinds: each round of them in another order."""
    kinds: list[StrikeKind] = []
    while len(kinds) < count:
        kinds += dice.sample(STRIKES, len(STRIKES))
    return kinds[:count]


def _strikes(dice: random.Random, fleet: TortureFleet, kinds: Sequence[StrikeKind]) -> tuple[Strike, ...]:
    """Targets are all different: a rank that is dead cannot be stopped."""
    ranks = dice.sample([*PREFILL_RANKS, *DECODE_RANKS], len(kinds))
    cables = dice.sample([f"{d}>{p}" for d, p in fleet.cables()], len(kinds))
    return tuple(
        _strike(dice, kind, rank if kind in ON_RANKS else cable)
        for kind, rank, cable in zip(kinds, ranks, cables, strict=True)
    )


def _strike(dice: random.Random, kind: StrikeKind, target: str) -> Strike:
    after, long = round(dice.uniform(0.0, 0.4), 3), round(SILENCE_S * dice.uniform(1.1, 1.5), 3)
    every = dice.randint(2, 5)
    if kind == "kill-and-move" and target in DECODE_RANKS:  # nobody calls it: it has no address
        kind = "kill"
    match kind:
        case "kill" | "kill-and-move":
            return Strike(kind, target, after, round(dice.choice((0.0, 0.3, long)), 3))
        case "stop" | "half-open" | "half-open-back":
            return Strike(kind, target, after, long)
        case "pause":
            return Strike(kind, target, after, round(dice.uniform(0.05, SILENCE_S / 3), 3))
        case "jump":
            return Strike(kind, target, after, 0.0, amount=round(dice.uniform(0.5, 10.0), 3))
        case "cut":
            return Strike(kind, target, after, round(dice.choice((0.0, 0.5, long)), 3))
        case "delay":
            return Strike(kind, target, after, long, amount=round(dice.uniform(0.005, 0.08), 4))
    return Strike(kind, target, after, long, every=every)


# -------------------------------------------------------------------------------------------------------- rooms
@lru_cache(maxsize=4096)
def _room(seed: int, troubled: float, number: int, *, probe: bool) -> TortureRoom:
    pair, second = divmod(number, 2)
    both = random.Random(f"{seed} pair {pair}")
    first_way = WAYS[pair % len(WAYS)]
    trouble = both.choices([*TROUBLES], [*TROUBLES.values()])[0] if both.random() < troubled else ""
    struck = both.randrange(2)  # which of the two the trouble is; an intruder is the second
    base = random.Random(f"{seed} ids").getrandbits(63)
    room = Room(base + pair % IDS, pair // IDS)
    way = first_way if not second else _opposite(first_way)
    if trouble == "intruder":
        trouble = "intruder" if second else "intruded"
        way = (first_way[0], way[1]) if second else way
    elif second != struck:
        trouble = ""
    dice = random.Random(f"{seed} room {number}")
    tokens = dice.choice((1, dice.randint(1, 32), dice.randint(33, 100), dice.randint(33, 100), dice.randint(101, 200)))
    prefix = dice.choice((0, 0, 0, tokens if dice.random() < 0.2 else tokens // 2 // PAGE * PAGE))
    if probe:
        tokens = 100
    if probe or trouble == "mismatch":  # of another length, a prefix might end inside a page
        prefix = 0
    acts = _acts(dice, way, tokens, trouble)
    slow = round(dice.uniform(0.005, 0.06), 4) if trouble.endswith("-slow") else 0.0
    return TortureRoom(number, room, way, tokens, prefix, trouble, acts, dice.getrandbits(48), slow)


def _opposite(way: GroupWay) -> GroupWay:
    return 3 - way[0], 23 - way[1]


def _acts(dice: random.Random, way: GroupWay, tokens: int, trouble: str) -> dict[tuple[int, int], tuple[Act, ...]]:
    members = [(group, index) for group in way for index in range(len(NAMES[group]))]
    scripts = {member: _decode(dice) if member[0] in DECODE else _prefill(dice, tokens) for member in members}
    if trouble == "intruder":
        return {member: script for member, script in scripts.items() if member[0] in DECODE}
    if trouble == "intruded":  # its owner takes its time, so that the other finds it at work
        return {m: (s[0], *(Act(0.15, a.what, a.upto) for a in s[1:])) for m, s in scripts.items()}
    if trouble == "mismatch":
        victim = dice.choice([member for member in members if member[0] in DECODE])
        scripts[victim] = (Act(scripts[victim][0].after, "open", tokens + 1),)
    for side, group in zip("PD", way, strict=True):
        ours = [member for member in members if member[0] == group]
        hit = dice.sample(ours, dice.randint(1, len(ours)))
        for member in hit:
            if trouble in (f"abort-{side}", "abort-both"):
                at = dice.randint(1, len(scripts[member]))
                scripts[member] = (*scripts[member][:at], Act(dice.choice((0.0, 0.005, 0.05)), "abort"))
            elif trouble == f"absent-{side}":
                del scripts[member]
    return scripts


def _prefill(dice: random.Random, tokens: int) -> tuple[Act, ...]:
    acts = [Act(_soon(dice), "open")]
    if dice.random() < 0.7:
        acts.append(Act(_soon(dice), "prefetch"))
    steps = sorted({*dice.sample(range(tokens), min(tokens, dice.randint(0, 3))), tokens} - {0})
    acts += [Act(_soon(dice), "produced", upto) for upto in steps]
    acts.insert(dice.randint(1, len(acts)), Act(0.0, "aux"))
    return tuple(acts)


def _decode(dice: random.Random) -> tuple[Act, ...]:
    return (Act(_soon(dice), "open"),)


def _soon(dice: random.Random) -> float:
    return round(dice.choice((0.0, 0.0, 0.0, dice.uniform(0.0, 0.03))), 4)
