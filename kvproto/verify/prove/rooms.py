"""The two rooms of a request: the invariant of `kvproto.verify.claims.rooms`, step by step.

Either room takes a step, the decode rank's with its own table's invariant, which is proved by itself and taken for
granted here; of the other one only what the invariant looks at is made, in any state.  Or something happens beside them
(`MOVES`): an end of the link changes, a room is forgotten, a rank begins a new life.

What the invariant looks at is little, so most ways through a step lead to the same ends: what it says of these is
written once, and asked once of all ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from time import process_time
from typing import Any

import z3
from msgspec.structs import replace

from kvproto.fsm.kinds import field_hints
from kvproto.protocol.events import Claim
from kvproto.protocol.states import PRoom
from kvproto.protocol.timing import Timing
from kvproto.verify.claims import rooms as between
from kvproto.verify.claims.decode_room import room_claims as decode_claims
from kvproto.verify.claims.prefill_room import room_claims as prefill_claims
from kvproto.verify.claims.rooms import Chance, DEnd, DTerms, Link, PEnd, PFacts, Rooms
from kvproto.verify.framework.claims import Step, sentence
from kvproto.verify.prove.ends import one
from kvproto.verify.prove.proof import INVARIANT, Failure, Goal, PairProof, TableProver, assume, failure, told, unproved
from kvproto.verify.prove.steps import NOW, Pair, walk
from kvproto.verify.prove.terms import Ways, forget, formula
from kvproto.verify.prove.values import Maker, parts, shown

NAME = "rooms"
PREFILL, DECODE = "prefill", "decode"
#: how many obligations a way has, by property
COUNTS = Counter([INVARIANT] * len(between.INVARIANT) + [name for name, _ in between.PROMISES])


class RoomsProver:
    """Proves what holds between the rooms."""

    def __init__(self) -> None:
        timing = Timing()
        self.provers = {PREFILL: TableProver(prefill_claims, timing), DECODE: TableProver(decode_claims, timing)}
        self._written: dict[tuple[Any, ...], tuple[Rooms, list[Goal]]] = {}

    def prove(self) -> Iterator[PairProof]:
        """Every step of either room, and all that happens beside them."""
        yield start()
        for side, prover in self.provers.items():
            for pair in prover.pairs:
                yield self.pair(side, pair)
        for move in between.MOVES:
            yield self.move(move)

    def pair(self, side: str, pair: Pair) -> PairProof:
        """The steps of one room, `prefill` or `decode`, in one state on one event."""
        began = process_time()
        found = PairProof(NAME, f"{side} {pair.name}")
        claims, maker = self.provers[side].claims, Maker()
        forget()
        initial = pair.state is claims.table.initial
        chance = one(maker, Chance, "chance")
        seen = claims.ghost() if initial or side == PREFILL else one(maker, claims.ghost, "seen")
        values = [self.provers[side].machine.initial] if initial else [
            *maker.variants(claims.table.value, "v", state=pair.state, due=float("inf"))
        ]  # fmt: skip
        for value in values:
            for event in maker.variants(pair.event, "e"):
                rooms = _rooms(maker, **_end(side, value, seen))
                solver = self._solver(rooms, maker)
                if side == DECODE:
                    self.provers[side].grant(solver, value, event, seen)
                for test in between.ASSUMED:
                    assume(solver, lambda test=test, rooms=rooms, event=event: test(rooms, event, chance))
                found.questions += 1
                if solver.check() != z3.unsat:
                    found.possible = True
                    self._ways(side, rooms, (value, event, seen, chance), solver, found)
        found.seconds = process_time() - began
        return found

    def _ways(
        self, side: str, rooms: Rooms, about: tuple[Any, Any, Any, Chance], solver: Any, found: PairProof
    ) -> None:  # fmt: skip
        value, event, seen, chance = about
        prover, kept = self.provers[side], list[tuple[Rooms, Step]]()

        def witness(way: Any) -> None:
            step = Step(value, event, way.after, way.effects, NOW, seen, seen)
            if side == DECODE:
                step.then = prover.claims.follow(step)
            link = between.follow(rooms, step, chance)
            kept.append((replace(rooms, link=link, **_end(side, way.after, step.then)), step))

        held: set[tuple[Any, ...]] = set()
        for way in walk(prover.machine, value, event, witness):
            if way.fault:
                continue  # the table's own proof says that this way is none
            after, step = kept[-1]
            found.ways += 1
            if side == PREFILL and self._holds_anyway(solver, rooms, after, step, held, found):
                continue
            for goal, model in unproved(solver, [*way.conditions, *way.facts], self._goals(rooms, after, step), found):
                story = (*told(way, step, model), f"{'link':<7} {shown(after.link, model)}")
                found.failures.append(failure(found, goal, story, way.row))

    def _holds_anyway(
        self, solver: Any, before: Rooms, after: Rooms, step: Step, held: set[tuple[Any, ...]], found: PairProof
    ) -> bool:  # fmt: skip
        """It follows whatever the way's conditions are; asked once for all ways that lead to the same ends."""
        key, trial = tuple(parts(after)), PairProof(NAME, found.pair)
        if key not in held:
            if any(True for _ in unproved(solver, [], self._goals(before, after, step), trial)):
                return False
            held.add(key)
            found.questions += trial.questions
        found.proved = {**found.proved, **{name: found.proved.get(name, 0) + count for name, count in COUNTS.items()}}
        return True

    def _solver(self, rooms: Rooms, maker: Maker) -> Any:
        solver = z3.SimpleSolver()
        solver.add(*[goal.term for goal in self._invariant(rooms)], *maker.facts)
        return solver

    def _goals(self, before: Rooms, after: Rooms, step: Step | None) -> list[Goal]:
        tests = [(name, test, lambda test=test: test(before, after, step)) for name, test in between.PROMISES]
        return [*self._invariant(after), *(Goal(name, sentence(test), *formula(ask)) for name, test, ask in tests)]

    def _invariant(self, rooms: Rooms) -> list[Goal]:
        """Return the invariant's statements of these rooms, written once for all that are alike."""
        key = tuple(parts(rooms))
        if key not in self._written:
            says = [(fact, formula(partial(fact, rooms))[0]) for fact in between.INVARIANT]
            goals = [Goal(INVARIANT, sentence(fact), term, []) for fact, term in says]
            self._written[key] = rooms, goals  # with the rooms, so that their terms stay what they are
        return self._written[key][1]

    def move(self, move: Callable[[Rooms, Chance], Rooms | None]) -> PairProof:
        """One thing that happens beside the rooms."""
        began, text = process_time(), sentence(move)
        found, maker = PairProof(NAME, move.__name__.replace("_", " ")), Maker()
        forget()
        rooms, chance = _rooms(maker), one(maker, Chance, "chance")
        solver = self._solver(rooms, maker)
        for way in Ways():
            after = move(rooms, chance)
            if after is None or solver.check(*way.conditions) == z3.unsat:
                continue
            found.possible = True
            found.ways += 1
            for goal, model in unproved(solver, way.conditions, self._goals(rooms, after, None), found):
                story = (text, f"{'before':<7} {shown(rooms, model)}", f"{'then':<7} {shown(after.link, model)}")
                found.failures.append(failure(found, goal, story))
        found.seconds = process_time() - began
        return found


def start() -> PairProof:
    """Before anything was said the invariant holds."""
    first = Rooms(PEnd(PRoom.UNKNOWN, 0, PFacts(Claim())), between.NOT_KNOWN, 0, Link(), 0, 0, Claim(), 0)
    broken_ = [sentence(fact) for fact in between.INVARIANT if not fact(first)]
    found = PairProof(NAME, "at first", possible=True, proved={INVARIANT: 1})
    found.failures = [Failure(NAME, "at first", INVARIANT, text, "", "", ()) for text in broken_]
    return found


def _end(side: str, value: Any, seen: Any) -> dict[str, Any]:
    """Return the invariant's view of a room that takes a step."""
    if side == PREFILL:
        return {"p": PEnd(value.state, value.peers, PFacts(value.facts.claim))}
    everyone = value.terms.everyone if value.terms is not None else 0
    return {"d": DEnd(value.state, value.peers, DTerms(everyone)), "landed": seen.landed}


def _rooms(maker: Maker, **known: Any) -> Rooms:
    made: dict[str, Callable[[], Any]] = {
        "p": lambda: one(maker, PEnd, "p"), "d": lambda: one(maker, DEnd, "d"),
        "link": lambda: one(maker, Link, "link"), "claim": lambda: one(maker, Claim, "claim"),
    } | {name: lambda name=name: maker.scalar(field_hints(Rooms)[name], name)
         for name in ("landed", "peer", "reader", "chunk")}  # fmt: skip
    return Rooms(**{name: known[name] if name in known else make() for name, make in made.items()})


def prove() -> Iterator[PairProof]:
    yield from RoomsProver().prove()
