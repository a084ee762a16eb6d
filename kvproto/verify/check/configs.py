"""Configs: the named configurations, and the suites that gather them.

Small worlds with one kind of trouble each find most; the larger ones show that nothing hides in the crowd.  A name says
what is special.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.verify.check.config import Budget, Config
from kvproto.verify.check.deep_configs import DEEP
from kvproto.verify.check.group_worlds import BOTH_WAYS, GROUPS
from kvproto.verify.check.small_worlds import AT_ONCE, SMALL
from kvproto.verify.check.timed_configs import TIMED_LARGE, TIMED_SMALL

#: where writes may carry their notification, too: each of these once more, as `NAME-tells`
_TELLS = (
    "smoke", "patient", "two-slots", "queue", "drop", "duplicate", "early", "late", "late-answer", "abort", "writes",
    "doubt", "kernel", "timeout", "link", "death", "restart", "reuse", "unordered", "unordered-abort", "abort-link",
    "kernel-duplicate", "prepare", "odd-sizes", "fan-in", "fan-in-abort", "fan-in-duplicate", "fan-in-unordered",
    "fan-out", "memory",
)  # fmt: skip
EARLY_ACK = "a part confirmed before its write was seen to end"
#: what only a timer's end, or trouble, may bring about
TOLD_TWICE = "a part that its write has told is told by a message"


def _telling(worlds: dict[str, Config]) -> dict[str, Config]:
    """The same worlds, in which staged writes carry their notification."""
    return {
        f"{name}-tells": replace(
            world, native_notify=True, must=(*world.must, EARLY_ACK), about=f"{world.about}; writes tell of themselves"
        )
        for name, world in worlds.items()
    }


CONFIGS = {**SMALL, **GROUPS, **_telling({name: SMALL[name] for name in _TELLS})}
for _name in ("smoke-tells", "two-slots-tells"):
    CONFIGS[_name] = replace(CONFIGS[_name], never=(TOLD_TWICE,))
#: worlds small enough to be searched for each mutant of the tables, the cheap ones first
_JUDGES = (
    "smoke", "two-slots", "wait", "patient", "prefix", "odd-sizes", "no-ring", "early", "duplicate", "drop", "abort",
    "pages", "aborts", "writes", "kernel", "timeout", "handshake", "death", "reuse", "unordered", "abort-timeout",
    "late-answer", "slow-engine", "late-engine", "eager-engine", "aux-first", "wait-early", "wait-abort", "abort-link",
    "window", "kernel-duplicate", "kernel-timeout", "slow-duplicate", "other-version", "newer-build", "other-length",
    "other-secret",
    "death-abort", "smoke-tells", "drop-tells", "abort-tells", "writes-tells", "timeout-tells", "prepare",
    "prepare-pages", "batches", "batches-doubt", "leave", "leave-link", "fan-in-leave",
    "turn", "credit", "credit-abort", "permit", "permit-late", "turn-permit", "refuse", "refuse-abort", "fan-in-refuse",
    "announce", "withdraw", "withdraw-pages", "fan-in-death", "close", "close-unordered",
    "replica", "fan-out", "queue", "fan-out-link",
    "fan-in-kernel", "fan-in", "doubt", "link", "fan-out-kernel", "unordered-abort", "batches-prepare",
    "fan-in-unordered", "restart", "fan-in-abort", "late", "prepare-late", "fan-in-link",
)  # fmt: skip
SUITES: dict[str, tuple[str, ...]] = {
    "judges": _JUDGES,
    "quick": ("smoke", "roomy", "patient", "wait", "two-slots", "prefix", "full-hit", "abort", "drop", "fan-in"),
}
#: worlds in which every kind of trouble is searched in turn
CROWDS: dict[str, Config] = {
    "2p1d-2chunks": Config(prefills=2, ring=2, engine=AT_ONCE, about="two writers, a ring for one chunk"),
    "2p1d-2rooms": Config(prefills=2, rooms=2, chunks=1, ring=2, engine=AT_ONCE, about="two writers, two rooms"),
    "1p2d-2chunks": Config(decodes=2, ring=1, engine=AT_ONCE, about="two readers, two chunks"),
    "1p2d-2rooms": Config(decodes=2, rooms=2, chunks=1, ring=1, engine=AT_ONCE, about="two readers, two rooms"),
    "2p2d": Config(
        prefills=2, decodes=2, stages=2, chunks=1, ring=2, engine=AT_ONCE, swift=True,
        about="two stages, two heads: everyone to everyone",
    ),
}  # fmt: skip
#: two rooms of two chunks, engines that call four times a room, kernels and writes that take time; few things are slow
HASTY: dict[str, Config] = {
    f"{name}-2x2-r{ring}": replace(world, rooms=2, chunks=2, ring=ring, hasty=True, about="two rooms of two chunks")
    for name, world, rings in (
        ("2p1d", Config(prefills=2), (2, 4)),  # three units hold no more chunks of two writers than two
        ("1p2d", Config(decodes=2), (2, 3, 4)),
        ("2p2d", Config(prefills=2, decodes=2, stages=2), (2, 4)),
    )
    for ring in rings
}
#: crowds in which writes carry their notification
CROWDS |= _telling({name: CROWDS[name] for name in ("2p1d-2chunks", "1p2d-2chunks")})
HASTY |= _telling({name: HASTY[name] for name in ("2p1d-2x2-r2", "2p1d-2x2-r4", "1p2d-2x2-r2", "1p2d-2x2-r3")})
FAULTS: dict[str, Budget] = {
    "calm": Budget(), "drop": Budget(drop=1), "duplicate": Budget(duplicate=1), "early": Budget(early=1),
    "abort": Budget(abort=1), "link": Budget(link=1), "crash": Budget(crash=1), "write": Budget(write=1),
    "doubt": Budget(doubt=1), "kernel": Budget(kernel=1), "timeout": Budget(timeout=1), "late": Budget(late=1),
}  # fmt: skip
#: what takes hours: two rooms of two chunks; where kernels and writes take no time, and where they do
NIGHT: dict[str, Config] = {
    "2p1d-swift": Config(prefills=2, rooms=2, ring=2, engine=AT_ONCE, swift=True, live=False),
    "1p2d-swift": Config(decodes=2, rooms=2, ring=1, engine=AT_ONCE, swift=True, live=False),
    "2p2d-swift": Config(prefills=2, decodes=2, stages=2, ring=2, engine=AT_ONCE, swift=True, live=False),
    "2p1d-full": Config(prefills=2, rooms=2, ring=2, engine=AT_ONCE, live=False, limit=60_000_000),
    "1p2d-full": Config(decodes=2, rooms=2, ring=1, engine=AT_ONCE, live=False, limit=60_000_000),
    "2p2d-full": Config(prefills=2, decodes=2, stages=2, rooms=2, ring=4, engine=AT_ONCE, live=False, limit=60_000_000),
}


def _each(worlds: dict[str, Config], slow: int = 0) -> dict[str, Config]:
    return {
        f"{name}-{fault}": replace(world, budget=replace(budget, slow=slow), about=f"{world.about}; {fault}")
        for name, world in worlds.items()
        for fault, budget in FAULTS.items()
    }


SUITES["small"] = tuple(CONFIGS)
#: worlds in which time has numbers: those that are searched with every change, and all of them
SUITES["timed-small"], SUITES["timed"] = tuple(TIMED_SMALL), (*TIMED_SMALL, *TIMED_LARGE)
CONFIGS |= TIMED_SMALL | TIMED_LARGE
SUITES["both-ways"] = tuple(BOTH_WAYS)
CONFIGS |= BOTH_WAYS
CONFIGS |= _each(CROWDS) | _each(HASTY, slow=1)
CONFIGS |= {f"{name}-two-slow": replace(world, budget=Budget(slow=2)) for name, world in HASTY.items()}
# With two rooms, or two by two ranks, these reach many millions; the first two a few in a swift world.
for _name in ("link", "timeout"):
    for _crowd in ("2p1d-2rooms", "1p2d-2rooms"):
        CONFIGS[f"{_crowd}-{_name}"] = replace(CONFIGS[f"{_crowd}-{_name}"], swift=True, live=False)
_LONG = (
    *(f"{crowd}-{fault}" for crowd in ("2p1d-2rooms", "1p2d-2rooms") for fault in ("crash", "link", "timeout")),
    *(f"2p2d-{fault}" for fault in ("abort", "link", "crash", "timeout")),
)
_NIGHT = _each(NIGHT)
CONFIGS |= {name: _NIGHT.pop(name) for name in ("1p2d-swift-calm", "1p2d-swift-drop", "2p1d-swift-calm")}
#: larger worlds in which writes carry their notification: a quarter of an hour more than the standard ones
SUITES["tells"] = tuple(name for name in CONFIGS if "-tells-" in name)
#: two by two ranks with two rooms of two chunks, in haste: five minutes on two cores
SUITES["two-by-two"] = tuple(name for name in CONFIGS if name.startswith("2p2d-2x2-"))
_APART = {*_LONG, *SUITES["tells"], *SUITES["two-by-two"], *SUITES["both-ways"]}
SUITES["standard"] = tuple(name for name in CONFIGS if name not in _APART)
CONFIGS |= _NIGHT
CONFIGS |= {f"{name}-two-slow": world for name, world in _each(HASTY, slow=2).items() if not name.endswith("calm")}
CONFIGS |= DEEP
SUITES["deep"] = tuple(DEEP)
SUITES["night"] = tuple(name for name in CONFIGS if name not in SUITES["standard"])
