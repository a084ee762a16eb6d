"""Stage: the parties of a scenario, a clock turned by hand, and a network that follows the play.

It numbers the copies of messages that it carries, of each party in all its lives.

The parties are the ones that run; the stage only carries out their effects, and all of it happens in the order of one
clock, so that a play is the same every time.  What is drawn from it is therefore what the tables do.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from kvproto.fsm.copies import CopyNumbers
from kvproto.fsm.party import Member
from kvproto.fsm.records import Log, log_of
from kvproto.fsm.telling import Telling
from kvproto.fsm.vocabulary import Effect, Event, Transmit
from kvproto.verify.framework.scenario import Scenario

#: seconds that a message takes
DELAY = 1e-3


class Stage:
    """Parties by number; `lose` says of a message (sender, receiver, body) whether it is lost."""

    def __init__(self, scenario: Scenario, lose: Callable[[int, int, Any], bool] = lambda *_: False) -> None:
        """Every party starts at once; `run` lets things happen."""
        self.scenario, self.lose, self.now = scenario, lose, 0.0
        self.around = [scenario.around(number) for number in range(len(scenario.names))]
        self.lives = [-1] * len(scenario.names)
        self.members: dict[int, Member] = {}
        self.past: list[Member] = []
        self._numbers = CopyNumbers()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        for number in range(len(scenario.names)):
            self.start(number)

    # -------------------------------------------------------------------------------------- what a play says
    def call(self, number: int, word: str) -> None:
        """The party's application does what the scenario calls so."""
        found = next(call for call in self.scenario.calls(number, self.around[number]) if call.word == word)
        self.around[number] = found.around
        self._perform(number, self.members[number].handle(found.event, self.now))

    def crash(self, number: int) -> None:
        self.past.append(self.members.pop(number))
        self.around[number] = self.scenario.crashed(number, self.around[number])

    def start(self, number: int) -> None:
        self.lives[number] += 1
        self.members[number], effects = self.scenario.start(number, self.around[number], self.lives[number], self.now)
        self._perform(number, effects)

    def run(self, seconds: float) -> None:
        """Let that much time pass."""
        end = self.now + seconds
        while True:
            due, number = min(((m.next_deadline, n) for n, m in self.members.items()), default=(end, -1))
            message = self._agenda[0][0] if self._agenda else end
            if min(due, message) >= end:
                break
            self.now = max(self.now, min(due, message))
            if due < message:
                self._perform(number, self.members[number].tick(self.now))
            else:
                heappop(self._agenda)[2]()
        self.now = end

    def logs(self, telling: Telling) -> list[Log]:
        """The traces of all parties, those of former lives first."""
        return [log_of(member, telling=telling) for member in (*self.past, *self.members.values())]

    # ------------------------------------------------------------------------------------- what effects come to
    def _perform(self, number: int, effects: list[Effect]) -> None:
        answers: list[Event] = []
        for effect in effects:
            if isinstance(effect, Transmit):
                self._post(number, effect)
                continue
            self.around[number], answer = self.scenario.carry_out(number, self.around[number], effect)
            answers += [] if answer is None else [answer]
        for answer in answers:
            self._perform(number, self.members[number].handle(answer, self.now))

    def _post(self, sender: int, effect: Transmit) -> None:
        number = self._numbers.count((sender, effect.peer))
        if not self.lose(sender, effect.peer, effect.body):
            self._count += 1
            heappush(self._agenda, (self.now + DELAY, self._count, lambda: self._deliver(sender, effect, number)))

    def _deliver(self, sender: int, effect: Transmit, number: int) -> None:
        member = self.members.get(effect.peer)
        if member is not None:
            self._perform(effect.peer, member.receive(sender, effect.body, self.now, number))
