"""Conformance: whether a machine's steps keep what is claimed of its table, on real values.

A replay says that each step is what the rows make of its event.  A trace can be that and still be none that a system
could have made: events come that nobody can have raised, a region that was never given out, an answer that the
surroundings have given their word against.  That is what claims say (`kvproto.fsm.claims`): beside each machine goes
its witness, and at every step it is asked, in this order,

* what the surroundings gave their word for when this event comes (the assumptions);
* whether the invariant holds of the new value;
* whether what the step leaves behind keeps its promises.

`Witnesses` does so for the steps of a trace that is read (`kvproto.fsm.trace.replay`); `ConformanceMonitor` for drivers
that run: each step is fired again as soon as it was made, and asked.  Who does not monitor pays nothing: drivers have
the plain trace then.

A machine that is met in the middle of its life has no witness: of it nothing is asked until it begins anew.  Claims of
which the witness knows things that no trace tells are left out by whoever names the claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from kvproto.fsm.claims import Claim, Claims, Step
from kvproto.fsm.driver import STEP, Driver
from kvproto.fsm.table import Output, Value
from kvproto.fsm.trace.coverage import watched
from kvproto.fsm.vocabulary import Event

if TYPE_CHECKING:
    from kvproto.fsm.trace.telling import Telling

#: machines whose witnesses are remembered: of those that ended long ago nobody asks
REMEMBERED = 1 << 16
#: breaches that a monitor keeps
MOST = 16


class Breach(msgspec.Struct, frozen=True):
    """`what` is broken: an assumption, the invariant, or the promise of this name; `text`: how it reads."""

    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"


class Witnesses:
    """The witnesses of one party's machines."""

    def __init__(self, claims: Mapping[str, Claims[Any]]) -> None:
        """`claims` by table."""
        self.asked = {name: ClaimsAsked(each) for name, each in claims.items()}
        self.seen: dict[tuple[str, Any], Any] = {}

    def take(
        self, table: str, key: Any, before: Value, event: Event, after: Value, effects: tuple[Output, ...], now: float
    ) -> Breach | None:  # fmt: skip
        """The machine with this key takes a step; the first claim that does not hold of it, if any."""
        asked = self.asked.get(table)
        if asked is None:
            return None
        at, of = (table, key), asked.claims
        seen = of.ghost() if before.state is of.table.initial else self.seen.get(at)
        if seen is None:
            return None
        step = Step(before, event, after, effects, now, seen)
        try:
            found = asked.broken(step)
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            return Breach("no claim can be asked", f"{type(error).__name__}: {error}")
        self._keep(at, step.then if after.state not in of.table.final or of.table.tombstones else None)
        return found

    def _keep(self, at: tuple[str, Any], seen: Any) -> None:
        if seen is None:
            self.seen.pop(at, None)
            return
        self.seen[at] = seen
        if len(self.seen) > REMEMBERED:
            del self.seen[next(iter(self.seen))]


class ConformanceMonitor:
    """Follows drivers of one protocol while they run."""

    def __init__(self, telling: Telling, timing: Any) -> None:
        """`timing`: any, since of a step that is fired again it is not asked when its timer ends."""
        self.telling, self.machines = telling, telling.machines(timing)
        self.steps = 0
        #: what was found first, up to `MOST`
        self.found: list[str] = []

    @contextmanager
    def installed(self) -> Iterator[ConformanceMonitor]:
        """Follow the drivers that are made while the block runs."""
        plain = Driver.make_trace
        made = staticmethod(lambda entries: watched(plain(entries), FollowedParty(self)))
        Driver.make_trace = made  # type: ignore[method-assign]
        try:
            yield self
        finally:
            Driver.make_trace = staticmethod(plain)  # type: ignore[method-assign]

    def judge(self) -> None:
        """AssertionError with what was found first, if anything was."""
        assert not self.found, "\n".join(self.found)


class FollowedParty:
    """One driver that is followed, and the witnesses of its machines."""

    def __init__(self, monitor: ConformanceMonitor) -> None:
        self.monitor, self.witnesses = monitor, Witnesses(monitor.telling.claims)

    def note(self, entry: Any) -> None:
        """An entry of its trace: a step is fired again, and asked."""
        if type(entry) is not tuple or len(entry) != STEP:
            return
        monitor = self.monitor
        now, row, event, old, new = entry
        table = monitor.telling.by_value[type(old)]
        again, value, effects = monitor.machines[table.name].fire(old, event, now)
        monitor.steps += 1
        said = ""
        if again is not row or value.state is not new.state:
            said = f"the tables say {again}, to {value.state.name}"
        else:
            key = monitor.telling.key_of(table, event)
            broken = self.witnesses.take(table.name, key, old, event, new, effects, now)
            said = str(broken) if broken is not None else ""
        if said and len(monitor.found) < MOST:
            monitor.found.append(f"{table.name}: {event} in {old.state.name}: row {row}: {said}")


class ClaimsAsked:
    """The claims of a table by what they are about, so that a step asks those alone that concern it."""

    def __init__(self, claims: Claims[Any]) -> None:
        self.claims, table = claims, claims.table
        self.of_event = {kind: [c for c in claims.assumptions if _about(c, kind)] for kind in table.events}
        self.of_state = {at: [c for c in claims.invariant if not c.about or at in c.about] for at in table.states}
        self.of_step = [claim for claim in claims.promises_ if not claim.about]
        self.of_effects = [claim for claim in claims.promises_ if claim.about]

    def broken(self, step: Step) -> Breach | None:
        """The first claim that the step does not keep; gives it the witness that comes after."""
        for claim in self.of_event[type(step.event)]:
            if not claim.test(step.before, step.event, step.seen):
                return Breach("nobody can have raised this event", f"{claim.text} ({claim.paid})")
        step.then = self.claims.follow(step)
        for claim in self.of_state[step.after.state]:
            if not claim.test(step.after, step.then):
                return Breach("the invariant", claim.text)
        for claim in self.of_step:
            if not claim.test(step):
                return Breach(claim.name, claim.text)
        for claim in self.of_effects if step.effects else ():
            for effect in step.effects:
                if isinstance(effect, claim.about) and not claim.test(step, effect):
                    return Breach(claim.name, claim.text)
        return None


def _about(claim: Claim, kind: type[Event]) -> bool:
    return not claim.about or issubclass(kind, claim.about)
