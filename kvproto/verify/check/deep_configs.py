"""Deep configs: several faults at once, by name, on demand, in the smallest world that can have them.

Each is about what two small worlds together do not show: a second fault that comes while the first is being mended.
`deep-two-…` is all of it for one room: every pair of the fourteen kinds of fault, and each twice.  `deep-2p2d-…` and
`deep-3p2d-…` have four and five ranks that work for one room.
"""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement

from msgspec.structs import replace

from kvproto.verify.check.config import KINDS, Budget, Config
from kvproto.verify.check.group_worlds import BOTH, CROSS, GO_ON, IN, OUT
from kvproto.verify.check.small_worlds import AT_ONCE, IN_TWO

#: one room of one chunk, one rank a side
ONE = Config(ring=1, chunks=1, engine=IN_TWO)
#: rooms that are under way together, one slot, one region
SLOT = Config(ring=1, chunks=1, rooms=3, engine=AT_ONCE, swift=True)
CHAIN = Budget(write=1, late=2, timeout=1)
#: what may go wrong in a world without numbers for time; an address that is made up has worlds of its own
FAULTS = tuple(kind for kind in KINDS if kind not in ("slow", "address"))


def forgotten() -> dict[str, Config]:
    """Two rooms, of which one is remembered when both are over."""
    world = replace(ONE, rooms=2, engine=AT_ONCE, tombstones=1)
    return {
        f"deep-tombstone-{kind}": replace(world, budget=Budget(**{kind: 1}), about=f"a tombstone of one; {kind}")
        for kind in FAULTS
    }


def three_to_two() -> dict[str, Config]:
    """Three stages that everyone writes from to two decode ranks: one fault of each kind, in haste."""
    about = "three stages, two decode ranks"
    world = Config(prefills=3, decodes=2, stages=3, ring=3, chunks=1, engine=AT_ONCE, hasty=True)
    each = {kind: replace(world, budget=Budget(slow=1, **{kind: 1}), about=f"{about}; {kind}") for kind in FAULTS}
    calm = replace(world, rooms=2, chunks=2, budget=Budget(slow=1), about=f"{about}; two rooms of two chunks")
    return {f"deep-3p2d-{name}": config for name, config in (*each.items(), ("2x2", calm))}


def two_readers_forgotten() -> dict[str, Config]:
    """Two rooms between one prefill rank and two decode ranks, of which one is remembered; in haste."""
    world = Config(decodes=2, rooms=2, ring=1, chunks=1, engine=AT_ONCE, hasty=True, tombstones=1)
    return {
        f"deep-tombstone-1p2d-{kind}": replace(
            world, budget=Budget(slow=1, **{kind: 1}), about=f"a tombstone of one, two readers; {kind}"
        )
        for kind in ("drop", "link", "crash")
    }


def two_faults_of_groups() -> dict[str, Config]:
    """Two groups a side that all work, and two faults at once; in haste."""
    world = replace(CROSS, swift=False, hasty=True, must=())
    return {
        f"deep-groups-cross-{one}-{other}": replace(world, budget=_budget(one, other), about=f"{one} and {other}")
        for one, other in combinations(("drop", "link", "crash"), 2)
    }


def two_faults_of_four() -> dict[str, Config]:
    """Two faults at once where four ranks work for one room, everyone with everyone; in haste."""
    world = Config(prefills=2, decodes=2, stages=2, ring=2, chunks=1, engine=AT_ONCE, hasty=True)
    kinds = ("drop", "abort", "link", "crash", "timeout", "write")
    return {
        f"deep-2p2d-{one}-{other}": replace(world, budget=_budget(one, other), about=f"two by two; {one} and {other}")
        for one, other in combinations(kinds, 2)
    }


def two_faults() -> dict[str, Config]:
    return {
        f"deep-two-{one}-{other}": replace(ONE, budget=_budget(one, other), about=f"{one} and {other}")
        for one, other in combinations_with_replacement(FAULTS, 2)
    }


def _budget(one: str, other: str) -> Budget:
    return Budget(**{one: 2} if one == other else {one: 1, other: 1})


DEEP: dict[str, Config] = {
    "deep-fan-in-unordered": Config(
        prefills=2, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(early=1, duplicate=1),
        about="two writers, messages overtake each other, one comes twice and one timer ends early",
    ),
    "deep-fan-out-unordered": Config(
        decodes=2, ring=1, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(early=1, duplicate=1),
        about="two readers, messages overtake each other, one comes twice and one timer ends early",
    ),
    "deep-slot": replace(
        SLOT, budget=CHAIN, about="a chain of failures on one slot: leases that are over, a write that fails, a timer"
    ),
    "deep-slot-two": replace(
        SLOT, rooms=2, swift=False, budget=CHAIN, about="the same chain, two rooms, in every order of all that happens"
    ),
    "deep-slot-three": replace(
        SLOT, budget=Budget(write=1, late=2), about="three rooms, leases that are over, a write that fails"
    ),
    "deep-link-drop": Config(ring=1, chunks=1, engine=AT_ONCE, budget=Budget(link=1, drop=1, abort=1),
                             about="a link is lost, a message, and an engine gives up"),
    "deep-crash-link": Config(ring=1, chunks=1, engine=AT_ONCE, budget=Budget(crash=1, link=1, drop=1),
                              about="a rank dies, a link is lost, and a message"),
    "deep-doubt-crash": Config(ring=1, chunks=1, engine=AT_ONCE, budget=Budget(doubt=1, crash=1, late=1),
                               about="a write is in doubt, and a rank dies"),
    "deep-reuse-crash": Config(lives=2, chunks=1, engine=AT_ONCE, budget=Budget(crash=1, abort=1, drop=1),
                               about="ids are used again by a rank that has come back"),
    "deep-overtaken": Config(
        rooms=2, ring=1, chunks=1, engine=AT_ONCE, tombstones=1, net="unordered", swift=True,
        budget=Budget(duplicate=1),
        about="a request that was said twice comes late, and finds a success that is forgotten",
    ),
    "deep-groups-in-two": replace(
        IN, swift=True, budget=Budget(link=1, drop=1), must=GO_ON,
        about="two prefill groups; a link of one is lost, and any message",
    ),
    "deep-groups-out-two": replace(
        OUT, swift=True, budget=Budget(link=1, drop=1), must=GO_ON,
        about="two decode groups; a link of one is lost, and any message",
    ),
    "deep-groups-in-unordered": replace(
        IN, swift=True, net="unordered", budget=Budget(link=1), must=GO_ON,
        about="two prefill groups; messages overtake each other, and a link of one is lost",
    ),
    "deep-groups-cross-crash": replace(
        CROSS, swift=True, budget=Budget(crash=1), must=BOTH, about="two groups a side; a rank of one dies, and returns"
    ),
}  # fmt: skip
DEEP |= forgotten() | two_readers_forgotten() | two_faults_of_groups()
DEEP |= three_to_two() | two_faults_of_four() | two_faults()
