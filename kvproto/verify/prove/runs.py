"""Runs: all proofs, cut into pieces that run side by side, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from kvproto.fsm.errors import ArgumentError
from kvproto.protocol.timing import Timing
from kvproto.verify.check.parallel_search import spread
from kvproto.verify.claims import CLAIMS
from kvproto.verify.claims.decode_group import group_claims
from kvproto.verify.framework.claims import Claims
from kvproto.verify.framework.protocol import Protocol, named
from kvproto.verify.prove import edge, ends, keys, lease, ring, rooms
from kvproto.verify.prove.proof import INVARIANT, RAISES, Failure, KeyedProver, PairProof, TableProver
from kvproto.verify.prove.steps import Pair

#: pairs of a table that one process takes at a time
PIECE = 24
#: of the protocol, and of the decode endpoint
TABLES: dict[str, Claims[Any, Any]] = {claims.table.name: claims for claims in (*CLAIMS, group_claims)}
#: what is proved beside the tables: lemmas, by name
LEMMAS: dict[str, Callable[[], Iterator[PairProof]]] = {
    ring.NAME: ring.prove, lease.NAME: lease.proofs, edge.NAME: edge.prove, keys.NAME: keys.proofs,
    ends.NAME: ends.prove, rooms.NAME: rooms.prove,
}  # fmt: skip

#: by table: the proof of both ends that it is a side of
TOGETHER: dict[str, Callable[[Pair], PairProof]] = {
    "prefill_send": lambda pair: ends.EndsProver().pair("send", pair),
    "decode_grant": lambda pair: ends.EndsProver().pair("grant", pair),
    "prefill_room": lambda pair: rooms.RoomsProver().pair(rooms.PREFILL, pair),
    "decode_room": lambda pair: rooms.RoomsProver().pair(rooms.DECODE, pair),
}


class Piece(msgspec.Struct, frozen=True):
    """Pairs `first` .. `last - 1` of a table; of lemmas: all.  `place`: the protocol ("": the transfer)."""

    name: str
    first: int = 0
    last: int = 0
    place: str = ""


class Proof(msgspec.Struct):
    """The result of one table, or of one group of lemmas."""

    name: str
    pairs: int = 0
    ways: int = 0
    questions: int = 0
    seconds: float = 0.0
    #: by property: how many obligations
    proved: dict[str, int] = {}
    #: pairs that the assumptions leave nothing of
    impossible: list[str] = []
    failures: list[Failure] = []

    def take(self, each: PairProof) -> None:
        self.pairs += each.pair != "at first"
        self.ways += each.ways
        self.questions += each.questions
        self.seconds += each.seconds
        for name, count in each.proved.items():
            self.proved[name] = self.proved.get(name, 0) + count
        self.impossible += [] if each.possible else [each.pair]
        self.failures += each.failures


def everything(place: str = "") -> tuple[str, ...]:
    """The names of all that can be proved of a protocol ("": of the transfer)."""
    return tuple(_claims(place)) if place else (*TABLES, *LEMMAS)


def pieces(names: Sequence[str], place: str = "") -> list[Piece]:
    """The work; without names, all of it.  Raises ArgumentError with the names that there are."""
    known = everything(place)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ArgumentError(f"there is nothing to prove of {unknown[0]!r}: one of {', '.join(known)}")
    found: list[Piece] = []
    longest, tables = (ends.NAME, rooms.NAME), _claims(place)
    for name in sorted(names or known, key=lambda name: name not in longest):  # these first
        count = len(tables[name].table.pairs()) if name in tables else 1
        found += [Piece(name, first, min(first + PIECE, count), place) for first in range(0, count, PIECE)]
    return found


def _claims(place: str) -> dict[str, Claims[Any, Any]]:
    return named(place, Protocol).claimed() if place else TABLES


@cache
def _prover(name: str, place: str) -> TableProver:
    if place:
        return KeyedProver(_claims(place)[name], named(place, Protocol).timing)
    return TableProver(TABLES[name], Timing())


def carry_out(piece: Piece) -> list[PairProof]:
    if piece.name in LEMMAS and not piece.place:
        return list(LEMMAS[piece.name]())
    prover = _prover(piece.name, piece.place)
    begin = [] if piece.first else [prover.start()]
    return begin + [prover.prove(pair) for pair in prover.pairs[piece.first : piece.last]]


def prove(names: Sequence[str], jobs: int = 1, place: str = "") -> list[Proof]:
    """Prove all that is about these names, in their order; `place`: the protocol ("": the transfer)."""
    work = pieces(names, place)
    found = {name: Proof(name) for name in names or everything(place)}
    for proofs in spread(carry_out, work, jobs):
        for each in proofs:
            found[each.table].take(each)
    return list(found.values())


__all__ = ["INVARIANT", "LEMMAS", "RAISES", "TABLES", "Proof", "carry_out", "everything", "pieces", "prove"]
