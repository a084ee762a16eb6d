"""The named configurations, and the suites that gather them.

Small worlds with one kind of trouble each find most; the larger ones show that nothing hides in the crowd.  A name says
what is special.
"""

from __future__ import annotations

from difflib import get_close_matches

from msgspec.structs import replace

from kvproto.check.config import Budget, Config

#: the engine in one go, and in two
AT_ONCE = ("open+schedule+finish+aux",)
IN_TWO = ("open+schedule", "finish+aux")
PAGES = ("a part that goes over pages", "a send that gave the ring up")

CONFIGS: dict[str, Config] = {
    # ------------------------------------------------------------------- one rank a side, one kind of trouble each
    "smoke": Config(ring=1, about="one room, two chunks, a ring for one"),
    "roomy": Config(
        ring=4, slots=2, patient=True, never=PAGES, must=("chunks of one room out of order",),
        about="a ring for all: nothing may go over pages",
    ),
    "patient": Config(
        ring=1, patient=True, must=("a promise that waits for the watermark",), about="the ring alone gets there"
    ),
    "wait": Config(
        ring=1, ahead=0, chunks=3, window=3, patient=True, engine=IN_TWO, must=("a chunk that waits for space",),
        about="promises end with the ring",
    ),
    "wait-early": Config(ring=1, ahead=0, budget=Budget(early=1), about="a chunk waits for space; its writer gives up"),
    "wait-abort": Config(ring=1, ahead=0, budget=Budget(abort=1), about="a chunk waits for space, and its room ends"),
    "window": Config(
        ring=1, chunks=3, window=1, engine=("open+schedule", "produce", "aux", "produce", "finish"),
        about="a window that slides, and an aux row before the last chunk",
    ),
    "two-slots": Config(ring=2, slots=2, must=("a write and a gather at once",), about="chunks overtake each other"),
    "one-slot": Config(ring=2, must=("a send that waits for a slot",), about="chunks queue for the one slot"),
    "queue": Config(ring=2, budget=Budget(timeout=1, late=1), about="leases end while chunks queue for a slot"),
    "slow-engine": Config(
        ring=1, chunks=1, engine=("open", "schedule", "finish+aux"), budget=Budget(abort=1, link=1),
        about="the engine takes its time to schedule",
    ),
    "late-engine": Config(
        ring=1, chunks=1, engine=("open", "schedule", "finish+aux"), budget=Budget(timeout=1),
        about="the engine takes too long to schedule",
    ),
    "eager-engine": Config(ring=1, chunks=1, engine=("open", "finish", "aux"), about="nobody says schedule"),
    "aux-first": Config(ring=1, chunks=1, engine=("open", "aux", "finish"), about="the aux row comes before the KV"),
    "drop": Config(ring=1, patient=True, budget=Budget(drop=1), about="any one message is lost"),
    "duplicate": Config(ring=1, budget=Budget(duplicate=1), about="any one message comes twice"),
    "early": Config(ring=1, slots=2, budget=Budget(early=1), about="one timer ends early"),
    "late": Config(
        ring=1, budget=Budget(late=1, link=1, timeout=1), must=("a lease that is over",),
        about="leases end before writes",
    ),
    "abort": Config(ring=1, budget=Budget(abort=1), must=("a region in quarantine",), about="either engine gives up"),
    "abort-timeout": Config(
        ring=1, chunks=1, budget=Budget(abort=1, timeout=1), about="an engine gives up, and a long timer ends"
    ),
    "late-answer": Config(ring=1, budget=Budget(late=1), about="what a lease is given for comes when it is over"),
    "aborts": Config(ring=1, budget=Budget(abort=2), about="both engines give up"),
    "writes": Config(ring=1, budget=Budget(write=1, abort=1), about="a write fails"),
    "doubt": Config(
        ring=1, budget=Budget(doubt=1, link=1), must=("a write in doubt",), about="a write is in doubt, a link is lost"
    ),
    "kernel": Config(ring=1, budget=Budget(kernel=1, abort=1), about="a gather or a scatter fails"),
    "timeout": Config(ring=1, budget=Budget(timeout=1), about="one long timer ends for no reason"),
    "link": Config(ring=1, budget=Budget(link=2), about="links are lost, and come back"),
    "handshake": Config(ring=1, wired=False, budget=Budget(drop=1, early=1), chunks=1, about="how a link comes up"),
    "other-tables": Config(
        ring=1, chunks=1, wired=False, engine=AT_ONCE, misfit="tables", budget=Budget(crash=1, drop=1),
        about="a rank that runs other tables is refused, and comes back with ours",
    ),
    "other-length": Config(
        ring=1, chunks=1, engine=AT_ONCE, misfit="length", budget=Budget(drop=1), about="the engines name other lengths"
    ),
    "death": Config(ring=1, restart=False, budget=Budget(crash=1), about="a rank dies for good"),
    "death-abort": Config(
        ring=1, chunks=1, engine=AT_ONCE, restart=False, budget=Budget(crash=1, abort=1),
        about="a rank dies for good, and the other engine gives up",
    ),
    "restart": Config(
        ring=1, budget=Budget(crash=2), must=("a stranger's heartbeat that is answered",),
        about="ranks die and start anew",
    ),
    "reuse": Config(lives=2, chunks=1, budget=Budget(abort=1), about="a room's id is used again"),
    "unordered": Config(
        net="unordered", chunks=1, budget=Budget(early=1, duplicate=1), about="messages overtake each other"
    ),
    "unordered-abort": Config(
        net="unordered", budget=Budget(abort=1), about="messages overtake each other, engines give up"
    ),
    "abort-link": Config(
        ring=1, chunks=1, engine=AT_ONCE, budget=Budget(abort=1, link=1), about="an engine gives up, a link is lost"
    ),
    "kernel-duplicate": Config(
        ring=1, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(kernel=1, duplicate=1),
        about="messages that come when their room has failed",
    ),
    "kernel-timeout": Config(
        ring=1, chunks=1, engine=AT_ONCE, budget=Budget(kernel=1, timeout=1), about="the end of a room is never noted"
    ),
    "slow-duplicate": Config(
        ring=1, chunks=1, engine=("open", "schedule", "finish+aux"), budget=Budget(duplicate=1),
        about="the engine takes its time, and a message comes twice",
    ),
    "prepare": Config(
        ring=1, preparing=True, budget=Budget(write=1, abort=1), about="writes take time to make ready, and may fail"
    ),
    "prepare-late": Config(
        ring=1, preparing=True, budget=Budget(late=1, link=1, timeout=1), must=("a lease that is over",),
        about="leases end while writes are made ready",
    ),
    "prepare-pages": Config(
        chunks=1, pages_only=True, preparing=True, budget=Budget(write=1, abort=1, late=1),
        about="nothing is staged, and writes take time to make ready",
    ),
    "batches": Config(
        chunks=1, pages_only=True, pieces=3, batches=3, engine=AT_ONCE, budget=Budget(write=2, abort=1),
        about="writes of three batches, of which some fail",
    ),
    "batches-doubt": Config(
        chunks=1, pages_only=True, pieces=2, batches=2, engine=AT_ONCE, budget=Budget(doubt=1, write=1, link=1),
        must=("a write in doubt",), about="writes of two batches, of which one is in doubt",
    ),
    "batches-prepare": Config(
        chunks=1, pages_only=True, pieces=3, batches=3, preparing=True, engine=AT_ONCE,
        budget=Budget(write=1, doubt=1, late=1, timeout=1),
        about="three batches that take time to make ready, of which some are given up",
    ),
    "pages": Config(pages_only=True, budget=Budget(abort=1, drop=1), must=PAGES[:1], about="nothing is staged"),
    "prefix": Config(prefix=2, about="the decode side has a page already"),
    "full-hit": Config(prefix=2, chunks=0, must=("a full prefix hit that succeeds",), about="only the aux row moves"),
    "odd-sizes": Config(
        pieces=3, short=1, lives=2, ring=4, window=1, patient=True, must=("a ring that wraps",),
        about="regions of two sizes, pieces that land in any order",
    ),
    # ---------------------------------------------------------------------------------- fan-in, fan-out, crowds
    "fan-in": Config(prefills=2, chunks=1, budget=Budget(early=1), about="two writers a region"),
    "fan-in-patient": Config(prefills=2, chunks=1, patient=True, about="two writers, and no way around the ring"),
    "fan-in-abort": Config(prefills=2, chunks=1, budget=Budget(abort=1), about="two writers, either engine gives up"),
    "fan-in-duplicate": Config(prefills=2, chunks=1, budget=Budget(duplicate=1), about="two writers, a message twice"),
    "fan-in-wait": Config(
        prefills=2, ring=2, ahead=0, engine=AT_ONCE, budget=Budget(early=1),
        about="a chunk waits for space, and one of its writers gives up",
    ),
    "fan-in-unordered": Config(
        prefills=2, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(early=1),
        about="one of two writers gives up, and its request comes late",
    ),
    "fan-in-kernel": Config(
        prefills=2, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(kernel=1),
        about="a room fails before every writer has heard of it",
    ),
    "fan-in-link": Config(
        prefills=2, chunks=1, engine=AT_ONCE, swift=True, budget=Budget(abort=1, link=1),
        about="a room ends while one of two links is down",
    ),
    "fan-out-kernel": Config(
        decodes=2, chunks=1, engine=AT_ONCE, budget=Budget(kernel=1, link=1), about="a room fails, and a link is lost"
    ),
    "fan-out": Config(decodes=2, chunks=1, budget=Budget(abort=1), about="two readers"),
    "fan-out-link": Config(decodes=2, chunks=1, engine=AT_ONCE, budget=Budget(link=1), about="one of two links"),
    "replica": Config(
        prefills=2, heads=1, chunks=1, budget=Budget(abort=1), must=("a replica that has nothing to write",),
        about="two ranks hold the same head, one writes",
    ),
    "no-ring": Config(prefills=2, chunks=1, ring=1, must=PAGES[:1], about="a chunk that no ring can hold"),
    "heads-of-line": Config(
        prefills=2, rooms=2, chunks=1, ring=2, patient=True, engine=AT_ONCE,
        about="two rooms, in any order at each rank",
    ),
    "memory": Config(
        prefills=2, rooms=2, chunks=1, ring=2, memory=1, engine=IN_TWO, about="the engine can hold one room"
    ),
}  # fmt: skip

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
            world, tells=True, must=(*world.must, EARLY_ACK), about=f"{world.about}; writes tell of themselves"
        )
        for name, world in worlds.items()
    }


CONFIGS |= _telling({name: CONFIGS[name] for name in _TELLS})
for _name in ("smoke-tells", "two-slots-tells"):
    CONFIGS[_name] = replace(CONFIGS[_name], never=(TOLD_TWICE,))
#: what is small enough to be searched a thousand times, cheap ones first; and what is searched that often only in haste
_GATE = (
    "smoke", "two-slots", "wait", "patient", "prefix", "odd-sizes", "no-ring", "early", "duplicate", "drop", "abort",
    "pages", "aborts", "writes", "kernel", "timeout", "handshake", "death", "reuse", "unordered", "abort-timeout",
    "late-answer", "slow-engine", "late-engine", "eager-engine", "aux-first", "wait-early", "wait-abort", "abort-link",
    "window", "kernel-duplicate", "kernel-timeout", "slow-duplicate", "other-tables", "other-length",
    "death-abort", "smoke-tells", "drop-tells", "abort-tells", "writes-tells", "timeout-tells", "prepare",
    "prepare-pages", "batches", "batches-doubt",
)  # fmt: skip
_HEAVY = (
    "link", "doubt", "queue", "restart", "late", "fan-in", "fan-in-abort", "fan-in-kernel", "fan-in-link",
    "fan-in-unordered", "fan-in-wait", "fan-out", "fan-out-kernel", "fan-out-link", "replica", "unordered-abort",
    "prepare-late", "batches-prepare",
)  # fmt: skip
SUITES: dict[str, tuple[str, ...]] = {
    "gate": (*_GATE, *(f"{name}-brief" for name in _HEAVY)),
    "gate-heavy": _HEAVY,
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
        ("2p1d", Config(prefills=2), (2, 3, 4)),
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
    "2p2d-full": Config(
        prefills=2, decodes=2, stages=2, rooms=2, ring=4, engine=AT_ONCE, live=False, limit=60_000_000
    ),
}


def _each(worlds: dict[str, Config], slow: int = 0) -> dict[str, Config]:
    """Every world with every kind of trouble."""
    return {
        f"{name}-{fault}": replace(world, budget=replace(budget, slow=slow), about=f"{world.about}; {fault}")
        for name, world in worlds.items()
        for fault, budget in FAULTS.items()
    }


SUITES["small"] = tuple(CONFIGS)
BRIEF = {
    f"{name}-brief": replace(CONFIGS[name], hasty=True, must=(), budget=replace(CONFIGS[name].budget, slow=1))
    for name in _HEAVY
}
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
SUITES["standard"] = tuple(name for name in CONFIGS if name not in _LONG)
CONFIGS |= _NIGHT
CONFIGS |= {f"{name}-two-slow": world for name, world in _each(HASTY, slow=2).items() if not name.endswith("calm")}
CONFIGS |= BRIEF
SUITES["night"] = tuple(name for name in CONFIGS if name not in SUITES["standard"] and name not in BRIEF)


def named(name: str) -> dict[str, Config]:
    """The configurations of a suite, or the one of this name.  Raises KeyError with what is like it."""
    if name in SUITES:
        return {each: CONFIGS[each] for each in SUITES[name]}
    if name not in CONFIGS:
        near = get_close_matches(name, (*SUITES, *CONFIGS)) or list(SUITES)
        raise KeyError(f"no configuration {name!r}; is it {' or '.join(near)}?  kvproto check --list has all")
    return {name: CONFIGS[name]}
