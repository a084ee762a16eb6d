"""World steps: a party's results of an input, as values, computed once.

An input is a word and what belongs to it: `call` (an application's), `hear` (who, what), `timer` (which machine's),
`crash`, `restart`, and `crash in` another input: of that one's effects, in their order, only the first few have been
carried out when the party dies.  Parties are pure, so what came of an input once comes of it always.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from kvproto.fsm.driver import steps
from kvproto.fsm.party import Member
from kvproto.fsm.table import Row, Table
from kvproto.fsm.timer_wheel import INFINITY
from kvproto.fsm.vocabulary import Effect, Event, Transmit
from kvproto.verify.framework.frozen import NOW, PartyValue, ValueNumbers, freeze, thaw
from kvproto.verify.framework.scenario import Around, Scenario, View

Input = tuple[Any, ...]


class StepOutcome(NamedTuple):
    """The result of an input: the party's new number, its messages, and the number of its effects."""

    number: int
    sent: tuple[tuple[int, Any], ...]
    effects: tuple[str, ...]
    #: why the party has stopped, where it should not
    fault: str = ""


class Steps:
    """The parties of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.parties = ValueNumbers()
        #: the rows that have fired, by identity
        self.rows: dict[int, Row] = {}
        self._members: dict[tuple[int, int], Member] = {}
        self._outcomes: dict[tuple[int, int, Input], StepOutcome] = {}
        self._menus: dict[tuple[int, int], list[tuple[Input, str]]] = {}
        self._views: dict[tuple[int, int], View] = {}

    def first(self, i: int) -> StepOutcome:
        return self._start(i, PartyValue(-1, None, self.scenario.around(i)))

    def menu(self, i: int, number: int) -> list[tuple[Input, str]]:
        """Return the inputs that the party can take without a message, each with its cost."""
        found = self._menus.get((i, number))
        if found is None:
            found = self._menus[i, number] = list(self._menu(i, self.parties.values[number]))
        return found

    def _menu(self, i: int, value: PartyValue) -> Iterator[tuple[Input, str]]:
        if value.memory is None:
            if self.scenario.chances.restart:
                yield ("restart",), ""
            return
        for call in self.scenario.calls(i, value.around):
            yield ("call", call.word), ""
        member = self._member(i, value)
        for name, store in member.stores.items():
            for key, machine in store.items():
                if machine.due < INFINITY:
                    yield ("timer", name, key, machine.state.name), ""
        yield ("crash",), "crash"

    def cuts(self, i: int, number: int, what: Input) -> Iterator[Input]:
        if what[0] not in ("crash", "restart"):
            done = self.step(i, number, what).effects
            for count in range(1, len(done)):
                yield "crash in", what, done[:count]

    def view(self, i: int, number: int) -> View:
        """The party as properties see it."""
        found = self._views.get((i, number))
        if found is None:
            value = self.parties.values[number]
            values = None
            if value.memory is not None:
                stores = zip(self._member(i, value).stores, value.memory[0], strict=True)
                values = {name: dict((*tombs, *live)) for name, (live, tombs) in stores}
            found = self._views[i, number] = View(self.scenario.names[i], value.around, values)
        return found

    def tables(self, i: int, number: int) -> dict[str, Table[Any]]:
        """The tables of a party's machines, by store; of a dead party none."""
        value = self.parties.values[number]
        return {} if value.memory is None else {name: s.table for name, s in self._member(i, value).stores.items()}

    def traced(self, i: int, number: int, what: Input) -> Member | None:
        """Take the step once more; return the party, whose trace has this step alone (None: it does nothing)."""
        value = self.parties.values[number]
        if value.memory is None or what[0] in ("crash", "restart", "lost"):
            return None
        self._step(i, number, what)
        return self._members[i, value.life]

    def step(self, i: int, number: int, what: Input) -> StepOutcome:
        found = self._outcomes.get((i, number, what))
        if found is None:
            found = self._outcomes[i, number, what] = self._step(i, number, what)
        return found

    def _step(self, i: int, number: int, what: Input) -> StepOutcome:
        value: PartyValue = self.parties.values[number]
        if what[0] == "restart":
            return self._start(i, value)
        if value.memory is None:  # what is told to the dead is lost
            return StepOutcome(number, (), ())
        if what[0] == "crash":
            return StepOutcome(self._dead(i, value, value.around), (), ())
        most = len(what[2]) if what[0] == "crash in" else None
        member = self._member(i, value)
        try:
            around, effects = self._drive(i, member, value.around, what[1] if most is not None else what)
            around, sent, done = self._perform(i, member, around, effects, most)
        except Exception as error:  # noqa: BLE001  # whatever it is, it would have stopped the party
            return StepOutcome(number, (), (), f"{type(error).__name__}: {error}")
        self.rows |= {id(row): row for _, row, *_ in steps(member.trace) if row is not None}
        if most is not None:
            return StepOutcome(self._dead(i, value, around), sent, done)
        return StepOutcome(self.parties(PartyValue(value.life, freeze(member), around)), sent, done)

    def _start(self, i: int, value: PartyValue) -> StepOutcome:
        member, effects = self.scenario.start(i, value.around, value.life + 1, NOW)
        self._members[i, value.life + 1] = member
        around, sent, done = self._perform(i, member, value.around, effects, None)
        self.rows |= {id(row): row for _, row, *_ in steps(member.trace) if row is not None}
        return StepOutcome(self.parties(PartyValue(value.life + 1, freeze(member), around)), sent, done)

    def _dead(self, i: int, value: PartyValue, around: Around) -> int:
        return self.parties(PartyValue(value.life, None, self.scenario.crashed(i, around)))

    def _member(self, i: int, value: PartyValue) -> Member:
        member = self._members[i, value.life]
        thaw(member, value.memory)
        return member

    def _drive(self, i: int, member: Member, around: Around, what: Input) -> tuple[Around, list[Effect]]:
        match what:
            case ("hear", peer, body):
                return around, member.receive(peer, body, NOW)
            case ("timer", store, key, _):
                return around, member.expire(member.stores[store], key, NOW)
        call = next(call for call in self.scenario.calls(i, around) if call.word == what[1])
        return call.around, member.handle(call.event, NOW)

    def _perform(
        self, i: int, member: Member, around: Around, effects: list[Effect], most: int | None
    ) -> tuple[Around, tuple[tuple[int, Any], ...], tuple[str, ...]]:  # fmt: skip
        """Carry out effects and their answers in order, as a loop does; `most`: no more than so many."""
        sent: list[tuple[int, Any]] = []
        done: list[str] = []
        answers: deque[Event] = deque()
        left = deque(effects)
        while left and len(done) != most:
            effect = left.popleft()
            done.append(_said(effect, self.scenario.names))
            if isinstance(effect, Transmit):
                sent.append((effect.peer, effect.body))
            else:
                around, answer = self.scenario.carry_out(i, around, effect)
                answers += () if answer is None else (answer,)
            while answers and not left:
                left.extend(member.handle(answers.popleft(), NOW))
        return around, tuple(sent), tuple(done)


def _said(effect: Effect, names: tuple[str, ...]) -> str:
    """`DECISION to P1`, `WriteLog`."""
    if isinstance(effect, Transmit):
        return f"{type(effect.body).__struct_config__.tag} to {names[effect.peer]}"
    return type(effect).__name__
