"""Proof: proves one table, for every state and event, on every value that fulfils the invariant.

For each way through the step the solver is asked for a value, an event and a witness that fulfil the invariant and
the assumptions, take this way, and then break the invariant or a promise.  If there is none, for no pair, and the
initial value fulfils the invariant, then all of it holds of every machine of the table, in every run, of any length.

That a step raises nothing is proved along with it (S10), and a pair that the assumptions leave nothing of is told, so
that no proof is one of nothing.  What the solver finds is a *counterexample to induction*: a step out of the
invariant.  The run that leads there may not exist; then the invariant is too weak, or an assumption is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import process_time
from typing import Any

import msgspec
import z3

from kvproto.fsm.table import Row
from kvproto.fsm.timing import NamedTimers
from kvproto.verify.framework.claims import Claim, Claims, Step
from kvproto.verify.prove.steps import NOW, Pair, TermMachine, TimerEnd, Way, machine_of, pairs, subjects, walk
from kvproto.verify.prove.terms import Facts, forget, formula, landmarks
from kvproto.verify.prove.values import Maker, shown

#: milliseconds for one question
PATIENCE = 10_000
INVARIANT, RAISES = "invariant", "S10"
#: what every step of every table of the transfer promises
OWN_WORDS = "What a step leaves behind is about the room, the chunk, the peer and the link that its event was about."
ABOUT_ITS_KEY = "What a step leaves behind is about the machine that its event was about."


class Failure(msgspec.Struct, frozen=True):
    """A claim that is not proved: the step that breaks it, in words."""

    table: str
    pair: str
    claim: str
    text: str
    row: str
    where: str
    story: tuple[str, ...]


class PairProof(msgspec.Struct):
    """The result of one pair of state and event."""

    table: str
    pair: str
    ways: int = 0
    questions: int = 0
    possible: bool = False
    failures: list[Failure] = []
    proved: dict[str, int] = {}
    seconds: float = 0.0


class Goal(msgspec.Struct):
    """A statement that has to follow; `name` is `invariant`, or a property's."""

    name: str
    text: str
    term: Any
    facts: Facts


class TableProver:
    """Proves the claims of one table, pair by pair."""

    #: names of what is proved of every step: that it raises nothing, and what it is about
    raises, about = RAISES, "S9"
    about_text = OWN_WORDS

    def __init__(self, claims: Claims[Any, Any], timing: NamedTimers) -> None:
        self.claims = claims
        self.table = claims.table
        self.machine: TermMachine = machine_of(self.table, timing)
        self.pairs = pairs(self.table)
        #: what fails first is enough
        self._hasty = False

    def start(self) -> PairProof:
        """The initial value fulfils the invariant."""
        found = PairProof(self.table.name, "at first", possible=True)
        broken = self.claims.broken(self.machine.initial, self.claims.ghost())
        found.failures = [Failure(self.table.name, "at first", INVARIANT, text, "", "", ()) for text in broken]
        found.proved = {INVARIANT: 1}
        return found

    def fails(self, pair: Pair) -> str:
        """The first claim about one pair that is not proved; "": all are.  For who asks nothing more."""
        self._hasty = True
        found = self.prove(pair)
        self._hasty = False
        return found.failures[0].claim if found.failures else ""

    def prove(self, pair: Pair) -> PairProof:
        began = process_time()
        found = PairProof(self.table.name, pair.name)
        maker = Maker()
        forget()
        for value, event in self._subjects(maker, pair):
            for seen in self._witnesses(maker, pair):
                if self._hasty and found.failures:
                    return found
                self._subject(value, event, seen, maker, found)
        found.seconds = process_time() - began
        return found

    def _subjects(self, maker: Maker, pair: Pair) -> Iterator[tuple[Any, Any]]:
        if pair.state is not self.table.initial:
            yield from subjects(maker, self.table, pair)
            return
        for event in maker.variants(pair.event, "e"):
            yield self.machine.initial, event

    def _witnesses(self, maker: Maker, pair: Pair) -> Iterator[Any]:
        if pair.state is self.table.initial:
            yield self.claims.ghost()
        else:
            yield from maker.variants(self.claims.ghost, "seen")

    def _subject(self, value: Any, event: Any, seen: Any, maker: Maker, found: PairProof) -> None:
        solver = z3.SimpleSolver()
        solver.set("timeout", PATIENCE)
        self.grant(solver, value, event, seen)
        solver.add(*maker.facts)
        found.questions += 1
        if solver.check() == z3.unsat:
            return
        found.possible = True
        for way, step in self._steps(value, event, seen):
            if self._hasty and found.failures:
                return
            found.ways += 1
            self._way(solver, way, step, found)

    def grant(self, solver: Any, value: Any, event: Any, seen: Any, *, invariant: bool = True) -> None:
        """Have the solver take the table's invariant, and what it assumes of the event, for granted."""
        for claim in self._invariant(value.state) if invariant else ():
            assume(solver, lambda test=claim.test: test(value, seen))
        for claim in self.claims.assumptions:
            if not claim.about or type(event) in claim.about:
                assume(solver, lambda test=claim.test: test(value, event, seen))

    def _steps(self, value: Any, event: Any, seen: Any) -> Iterator[tuple[Way, Step | None]]:
        steps: list[Step] = []

        def witness(way: Way) -> None:
            step = Step(value, event, way.after, way.effects, NOW, seen)
            step.then = self.claims.follow(step)
            steps.append(step)

        for way in walk(self.machine, value, event, witness):
            yield way, None if way.fault else steps[-1]

    def _way(self, solver: Any, way: Way, step: Step | None, found: PairProof) -> None:
        goals = [Goal(self.raises, f"the step raises nothing ({way.fault})", z3.BoolVal(False), [])]
        if step is not None:
            goals = list(self._goals(way, step))
        for goal, model in unproved(solver, [*way.conditions, *way.facts], goals, found):
            found.failures.append(failure(found, goal, told(way, step, model), way.row))
            if self._hasty:
                break

    def _invariant(self, state: Any) -> Iterator[Claim]:
        return (claim for claim in self.claims.invariant if not claim.about or state in claim.about)

    def _goals(self, way: Way, step: Step) -> Iterator[Goal]:
        after = step.after
        made = way.row is not None and (way.row.opens or way.row.source is not self.table.initial)
        for claim in self._invariant(after.state) if made else ():
            yield _goal(INVARIANT, claim, lambda test=claim.test: test(after, step.then))
        fits = self.is_about
        yield Goal(self.about, self.about_text, *formula(lambda: all(fits(e, step.event, after) for e in step.effects)))
        waits = self.claims.waits_
        if waits is not None and isinstance(after.due, TimerEnd):
            yield _goal(waits.name, waits, lambda: waits.test(after, step.then) == after.due.timer)
        for claim in self.claims.promises_:
            if not claim.about and isinstance(step.event, claim.on or object):
                yield _goal(claim.name, claim, lambda test=claim.test: test(step))
            for effect in step.effects:
                if isinstance(effect, claim.about):
                    yield _goal(claim.name, claim, lambda test=claim.test, effect=effect: test(step, effect))

    def is_about(self, effect: Any, event: Any, value: Any) -> Any:
        """Ask whether an effect or a fact is about what the event was about."""
        return _about(effect, event, value)


class KeyedProver(TableProver):
    """Proves claims of any protocol whose events, effects and messages name their machine alike."""

    raises, about, about_text = "raises", "key", ABOUT_ITS_KEY

    def is_about(self, effect: Any, event: Any, value: Any) -> Any:
        """Ask whether the effect, and the message in it, have the event's key where they have such a field."""
        key = event.__struct_fields__[0]
        said = [each for each in (effect, getattr(effect, "body", None)) if isinstance(each, msgspec.Struct)]
        return all(getattr(each, key) == getattr(event, key) for each in said if key in each.__struct_fields__)


def told(way: Way, step: Step | None, model: Any) -> Iterator[str]:
    yield f"state   {way.before.state.name} {shown(way.before, model)}"
    if step is not None and step.seen.__struct_fields__:
        yield f"witness {shown(step.seen, model)}"
    yield f"event   {type(way.event).__name__} {shown(way.event, model)}"
    if way.row is not None:
        yield f"row     {way.row} ({way.row.where.rpartition('/')[2]})"
    if step is not None:
        yield f"then    {step.after.state.name} {shown(step.after, model)}"
        for effect in step.effects:
            yield f"effect  {type(effect).__name__} {shown(effect, model)}"
    if way.fault:
        yield f"raises  {way.fault}"


def _about(effect: Any, event: Any, value: Any) -> bool:
    """It is an effect or a fact, and about what the event was about.

    A link's words are about no room.  A room's go by the link that the event names, or to which the value is bound.  An
    outcome may be about no peer (-1).
    """
    said, known = effect.__struct_fields__, event.__struct_fields__
    if "link" in said and not ("link" in known or hasattr(value, "to")):
        return effect.link == event.peer and ("room" not in said or effect.room == 0)
    if "link" in said and not effect.link == (event.link if "link" in known else value.to.link):  # noqa: SIM201  # terms
        return False
    peer = event.rank if "rank" in known else event.peer if "peer" in known else -1
    if "peer" in said and not (effect.peer == peer or effect.peer == -1 or peer == -1):  # noqa: PLR1714  # terms
        return False
    return all(getattr(effect, key) == getattr(event, key) for key in ("room", "chunk") if key in said and key in known)


def _goal(name: str, claim: Claim, question: Any) -> Goal:
    try:
        term, facts = formula(question)
    except AssertionError as error:
        raise AssertionError(f"{name}: {claim.text}: {error}") from error
    return Goal(name, claim.text, term, facts)


def assume(solver: Any, question: Any) -> None:
    """Have the solver know what is asked to be so."""
    term, facts = formula(question)
    solver.add(term, *facts)


def unproved(solver: Any, conditions: list[Any], goals: Sequence[Goal], found: PairProof) -> Iterator[tuple[Goal, Any]]:
    """Yield the goals that do not follow, each with a model if there is one; one question where all do."""
    for goal in goals:
        found.proved[goal.name] = found.proved.get(goal.name, 0) + 1
    found.questions += 1
    solver.push()
    solver.add(*conditions, *[fact for goal in goals for fact in goal.facts], *landmarks())
    try:
        if solver.check(z3.Not(z3.And(*[goal.term for goal in goals]))) == z3.unsat:
            return
        found.questions += len(goals)
        for goal in goals:
            verdict = solver.check(z3.Not(goal.term))
            if verdict != z3.unsat:
                yield goal, solver.model() if verdict == z3.sat else None
    finally:
        solver.pop()


def failure(found: PairProof, goal: Goal, story: Iterable[str], row: Row | None = None) -> Failure:
    """Make the failure of a goal; `row`: the one that fires."""
    place = row.where.rpartition("/")[2] if row is not None else ""
    return Failure(found.table, found.pair, goal.name, goal.text, str(row or ""), place, tuple(story))
