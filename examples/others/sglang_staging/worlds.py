"""The worlds that are searched of SGLang's staging, one for each interleaving that is known.

A world says who is there, what applications may do and how often the network may err; and for which of the properties
of `staging` it is asked.  Nothing in it says what is expected.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from examples.others.sglang_staging.parties import KNOWN, RoomPlan
from examples.others.sglang_staging.prefill import Mends
from examples.others.sglang_staging.staging import PROPERTIES, May, Staging
from kvproto.verify.framework.scenario import Chances
from kvproto.verify.framework.world_tale import WorldChecker

__all__ = ["PROPERTIES"]

ONE, OUT, IN = ("P0", "D0"), ("P0", "D0", "D1"), ("P0", "P1", "D0")
CROSSED = ("P0", "P1", "D0", "D1")
TO_ONE, TO_TWO, OF_TWO = RoomPlan((0,), (1,)), RoomPlan((0,), (1, 2)), RoomPlan((0, 1), (2,))
TWO_CHUNKS = RoomPlan((0,), (1,), (1, 1))
Made = Callable[..., Staging]


def _of(*args: Any, **fields: Any) -> Made:
    def make(mends: Mends = frozenset(), asks: tuple[str, ...] = ()) -> Staging:
        names, rooms, own = args
        return Staging(names, rooms, asks or own, mends=mends, **fields)

    return make


#: by name: the world of an interleaving that is known; see `KNOWN`
WORLDS: dict[str, Made] = {
    "R1": _of(OUT, {1: TO_TWO}, ("S2",), about="one prefill rank, two decode ranks"),
    "R2": _of(CROSSED, {1: RoomPlan((0,), (2, 3)), 2: RoomPlan((1,), (2,))}, ("S12",), ring=1,
              about="a second room of another prefill rank, a ring of one chunk"),
    "R3": _of(CROSSED, {1: RoomPlan((0,), (2, 3)), 2: RoomPlan((1,), (2, 3))}, ("L1",), ring=1, may=May(eager=True),
              about="two prefill ranks, two decode ranks, rings of one chunk"),
    "R4": _of(IN, {1: OF_TWO}, ("L1",), about="two prefill ranks write one chunk"),
    "R5": _of(IN, {1: OF_TWO}, ("S3",), chances=Chances(duplicate=1), about="two writers, a message comes twice"),
    "R6": _of(ONE, {1: TO_ONE}, ("S10",), staging=False, about="staging is switched on at prefill only"),
    "R7": _of(ONE, {1: TO_ONE}, ("S10",), may=May(abort=(1,), hold=False),
              about="decode gives up, without deferred release"),
    "R8": _of(OUT, {1: TO_TWO}, ("L1",), may=May(optimistic=True), about="two decode ranks, optimistic prefill"),
    "R9": _of(ONE, {1: RoomPlan((0,), (1,), (3,)), 2: TO_ONE}, ("S9",), ring=2,
              about="two rooms, one larger than the ring"),
    "R10": _of(ONE, {1: TO_ONE}, ("S10",), may=May(breaks=True), about="a write fails"),
    "R11": _of(ONE, {1: TWO_CHUNKS}, ("S6",), about="a room of two chunks"),
    "R12": _of(ONE, {1: TWO_CHUNKS, 2: TO_ONE}, ("S12",), may=May(abort=(1,), eager=True), ring=1,
               about="two rooms, three chunks, a ring of one; decode gives up"),
    "R13": _of(ONE, {1: TO_ONE}, ("L1",), may=May(cancel=True), about="prefill gives up"),
    "R14": _of(ONE, {1: TO_ONE}, ("L1",), chances=Chances(crash=1, restart=False), about="a rank dies"),
    "R15": _of(ONE, {1: TO_ONE}, ("S12",), may=May(abort=(1,), lives=2),
               about="decode gives up, and the id is used again"),
    "R16": _of(ONE, {1: TWO_CHUNKS}, ("S5",), chances=Chances(drop=1), about="a room of two chunks, a message is lost"),
    "R17": _of(OUT, {1: TO_TWO}, ("S4",), may=May(abort=(1,), late=True),
               about="two decode ranks, decode gives up, the sender comes late"),
}  # fmt: skip
#: what a world is not asked with every mend, and why
EXCEPT: dict[str, tuple[tuple[str, ...], str]] = {
    "R7": (("S1", "S12"), "without deferred release pages go back while writes may come: that is what it is for"),
    "R16": (("L1", "S9"), "no message is sent again when it was lost, R14's PING included: no mend here adds that"),
}
#: by interleaving: the mends that take it away
MENDS: dict[str, Mends] = {name: frozenset({"R1" if name == "R2" else name}) for name in KNOWN}
EVERY = frozenset(KNOWN)


class StagingChecker(WorldChecker):
    """Worlds of SGLang's staging."""

    first = "R1"


CHECKER = StagingChecker(WORLDS)
MENDED = StagingChecker({name: partial(make, EVERY) for name, make in WORLDS.items()})
