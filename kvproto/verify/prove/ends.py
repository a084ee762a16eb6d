"""The two ends together: the invariant of `kvproto.verify.claims.ends`, step by step.

Either the send takes a step or the grant does, each with its own table's invariant, which is proved by itself and
taken for granted here; the other one is in any state that its invariant allows.  One thing happens beside them: the
last byte of a write comes to its place (`IN_PLACE`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import process_time
from typing import Any

import z3
from msgspec.structs import replace

from kvproto.protocol.timing import Timing
from kvproto.verify.claims import ends as between
from kvproto.verify.claims.decode_grant import grant_claims
from kvproto.verify.claims.ends import Ends, Net
from kvproto.verify.claims.prefill_send import send_claims
from kvproto.verify.framework.claims import Claim, Claims, Step, sentence
from kvproto.verify.prove.proof import INVARIANT, Goal, PairProof, TableProver, assume, failure, told, unproved
from kvproto.verify.prove.steps import NOW, Pair, walk
from kvproto.verify.prove.terms import forget, formula
from kvproto.verify.prove.values import Maker, parts, shown

NAME, IN_PLACE = "ends", "in place"


class EndsProver:
    """Proves what holds between the ends."""

    def __init__(self) -> None:
        timing = Timing()
        self.provers = {"send": TableProver(send_claims, timing), "grant": TableProver(grant_claims, timing)}
        self._written: dict[tuple[Any, ...], tuple[Any, Any, list[Any]]] = {}

    def prove(self) -> Iterator[PairProof]:
        """Every step of either end, and the one of the transport."""
        for side, prover in self.provers.items():
            for pair in prover.pairs:
                yield self.pair(side, pair)
        yield self._lands()

    def pair(self, side: str, pair: Pair) -> PairProof:
        """The steps of one end, `send` or `grant`, in one state on one event."""
        began = process_time()
        found = PairProof(NAME, f"{side} {pair.name}")
        prover, claims = self.provers[side], self.provers[side].claims
        maker = Maker()
        forget()
        initial = pair.state is claims.table.initial
        value = prover.machine.initial if initial else one(maker, claims.table.value, side, state=pair.state)
        for event in maker.variants(pair.event, "e"):
            seen = claims.ghost() if initial else one(maker, claims.ghost, f"{side}'")
            mine = {"send": value, "sent": seen} if side == "send" else {"grant": value, "held": seen}
            ends = self._ends(maker, **mine)
            solver = self._solver(ends, maker)
            prover.grant(solver, value, event, seen, invariant=False)
            for test in between.ASSUMED:
                assume(solver, lambda test=test: test(ends, event))
            found.questions += 1
            if solver.check() == z3.unsat:
                continue
            found.possible = True
            self._ways(side, ends, value, event, seen, solver, found)
        found.seconds = process_time() - began
        return found

    def _ways(self, side: str, ends: Ends, value: Any, event: Any, seen: Any, solver: Any, found: PairProof) -> None:
        prover = self.provers[side]
        kept: list[tuple[Ends, Step]] = []

        def witness(way: Any) -> None:
            step = Step(value, event, way.after, way.effects, NOW, seen)
            step.then = prover.claims.follow(step)
            mine = {"send": way.after, "sent": step.then} if side == "send" else {"grant": way.after, "held": step.then}
            kept.append((replace(ends, net=between.follow(ends, step), **mine), step))

        for way in walk(prover.machine, value, event, witness):
            if way.fault:
                continue  # the table's own proof says that this way is none
            after, step = kept[-1]
            if way.row is not None and way.row.source is prover.table.initial and not way.row.opens:
                after = ends
            found.ways += 1
            for goal, model in unproved(solver, [*way.conditions, *way.facts], _goals(ends, after, step), found):
                story = (*told(way, step, model), *_network(ends, model))
                found.failures.append(failure(found, goal, story, way.row))

    def _lands(self) -> PairProof:
        """The last byte of a write comes to its place."""
        found, maker = PairProof(NAME, IN_PLACE, possible=True), Maker()
        forget()
        ends = self._ends(maker)
        solver = self._solver(ends, maker)
        assume(solver, lambda: bool(ends.sent.writes))
        step = Step(ends.send, None, ends.send, (), NOW, ends.sent, ends.sent)
        after = replace(ends, net=replace(ends.net, in_place=True))
        for goal, model in unproved(solver, [], _goals(ends, after, step), found):
            found.failures.append(failure(found, goal, _network(ends, model)))
        found.ways = 1
        return found

    def _solver(self, ends: Ends, maker: Maker) -> Any:
        solver = z3.SimpleSolver()
        for claims, value, seen in ((send_claims, ends.send, ends.sent), (grant_claims, ends.grant, ends.held)):
            solver.add(*self._own(claims, value, seen))
        for fact in between.INVARIANT:
            assume(solver, lambda fact=fact: fact(ends))
        solver.add(*maker.facts)
        return solver

    def _own(self, claims: Claims[Any, Any], value: Any, seen: Any) -> list[Any]:
        """A table's own invariant; of an end that takes no step it is the same each time, and written once."""
        key = (claims.table.name, *parts(value), *parts(seen))
        if key not in self._written:
            said: list[Any] = []
            for claim in claims.invariant:
                term, facts = formula(partial(_fulfils, claim, value, seen))
                said += [term, *facts]
            self._written[key] = value, seen, said  # with both, so that their terms stay what they are
        return self._written[key][2]

    def _ends(self, maker: Maker, **known: Any) -> Ends:
        made: dict[str, Any] = {
            "send": lambda: self._some(maker, send_claims, "send"),
            "sent": lambda: one(maker, send_claims.ghost, "sent"),
            "grant": lambda: self._some(maker, grant_claims, "grant"),
            "held": lambda: one(maker, grant_claims.ghost, "held"),
            "peer": lambda: maker.scalar(int, "peer"),
            "net": lambda: one(maker, Net, "net"),
        }  # fmt: skip
        return Ends(**{name: known[name] if name in known else make() for name, make in made.items()})

    @staticmethod
    def _some(maker: Maker, claims: Claims[Any, Any], name: str) -> Any:
        """A value in some state."""
        state = maker.state(claims.table.states, f"{name}.state")
        return one(maker, claims.table.value, name, state=state)


def one(maker: Maker, kind: type[Any], name: str, **fixed: Any) -> Any:
    """The struct of this kind, of which there is one variant."""
    fixed = fixed | ({"due": float("inf")} if "due" in kind.__struct_fields__ else {})
    (made,) = maker.variants(kind, name, **fixed)
    return made


def _fulfils(claim: Claim, value: Any, seen: Any) -> bool:
    return (bool(claim.about) and value.state not in claim.about) or claim.test(value, seen)


def _goals(before: Ends, after: Ends, step: Step) -> list[Goal]:
    kept = [Goal(INVARIANT, sentence(fact), *formula(partial(fact, after))) for fact in between.INVARIANT]
    promised = [(name, test, lambda test=test: test(before, after, step)) for name, test in between.PROMISES]
    return kept + [Goal(name, sentence(test), *formula(ask)) for name, test, ask in promised]


def _network(ends: Ends, model: Any) -> Iterator[str]:
    for name in ("send", "sent", "grant", "held", "peer", "net"):
        yield f"{name:<7} {shown(getattr(ends, name), model)}"


def prove() -> Iterator[PairProof]:
    """All that holds between the ends."""
    yield from EndsProver().prove()
