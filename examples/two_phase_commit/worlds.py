"""What surrounds coordinator and participants where they are checked and drawn, and what has to hold there.

A party's surroundings are its log, which survives a crash, and what its application has begun and was told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from examples.two_phase_commit import protocol
from examples.two_phase_commit.parties import WORDS, Participant, Party, make
from examples.two_phase_commit.protocol import (
    COORDINATOR,
    Announce,
    Begun,
    C,
    P,
    Recovered,
    TimerFired,
    Timing,
    WriteLog,
    announce_abort,
    log_commit,
    tell_commit,
)
from kvproto.fsm.records import Log
from kvproto.fsm.timing import Timer
from kvproto.fsm.vocabulary import Effect
from kvproto.verify.framework.checker import PlantedBug
from kvproto.verify.framework.draw.scene import Scene
from kvproto.verify.framework.scenario import ApplicationCall, Chances, Scenario, View
from kvproto.verify.framework.stage import Stage
from kvproto.verify.framework.symmetry import Renaming
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.world_tale import WorldChecker


class Entry(msgspec.Struct, frozen=True, order=True):
    """A word in a log, or an outcome that an application was told."""

    txn: int
    word: str


class Around(msgspec.Struct, frozen=True, order=True):
    """A party's log; what its application has begun, and was told."""

    log: tuple[Entry, ...] = ()
    begun: tuple[int, ...] = ()
    told: tuple[Entry, ...] = ()

    def word(self, txn: int) -> str:
        """The log's last word on a transaction."""
        return next((entry.word for entry in reversed(self.log) if entry.txn == txn), "")


class Commit(Scenario):
    """A coordinator `C` and participants `P1`, `P2` ...; those in `without` cannot do the first transaction."""

    def __init__(
        self, chances: Chances, *, participants: int = 2, txns: int = 1, without: tuple[int, ...] = ()
    ) -> None:  # fmt: skip
        self.txns, self.without = tuple(range(1, txns + 1)), without
        names = ("C", *(f"P{number}" for number in range(1, participants + 1)))
        super().__init__(names, chances, {} if without else {("txn", "begun"): self.txns})
        self.members = sum(1 << number for number in range(1, participants + 1))

    def around(self, number: int) -> Around:
        """An empty log."""
        del number
        return Around()

    def start(self, number: int, around: Around, life: int, now: float) -> tuple[Party, list[Effect]]:
        """Read the log; whose changes were at hand when the party crashed, they are lost."""
        party = make(number, dict(enumerate(self.names)), Timing(votes=Timer(0.2, 2)))
        if isinstance(party, Participant) and not life:
            party.at_hand = frozenset(self.txns) - (frozenset({1}) if number in self.without else frozenset())
        effects: list[Effect] = []
        for txn in self.txns:
            word = around.word(txn)
            effects += party.handle(Recovered(txn, word), now) if word else []
        return party, effects

    def act(self, number: int, around: Around, effect: Effect) -> tuple[Around, None]:
        """The log grows; the application is told."""
        del number
        if isinstance(effect, WriteLog):
            return replace(around, log=(*around.log, Entry(effect.txn, effect.word))), None
        assert isinstance(effect, Announce)
        entry = Entry(effect.txn, "commit" if effect.commit else "abort")
        return replace(around, told=tuple(sorted({*around.told, entry}))), None

    def calls(self, number: int, around: Around) -> Iterable[ApplicationCall]:
        """The coordinator's application begins each transaction once."""
        for txn in self.txns if number == COORDINATOR else ():
            if txn not in around.begun:
                begun = tuple(sorted((*around.begun, txn)))
                yield ApplicationCall(f"begin {txn}", replace(around, begun=begun), Begun(txn, self.members))

    def broken(self, views: list[View]) -> tuple[str, str] | None:
        """All or nothing: whatever applications are told of a transaction, in all lives, is one and the same."""
        told = {(entry.txn, entry.word): view.name for view in views for entry in view.around.told}
        for txn in self.txns:
            if (txn, "commit") in told and (txn, "abort") in told:
                both = f"{told[txn, 'commit']} commits it, {told[txn, 'abort']} aborts it"
                return "atomicity", f"transaction {txn}: {both}"
            if (txn, "commit") in told and self.without and txn == 1:
                return "consent", f"transaction {txn} is committed, and P{self.without[0]} has not promised it"
        return None

    def unrest(self, views: list[View]) -> tuple[str, str] | None:
        """Every transaction that somebody has promised is decided there, and committed by all if by anybody."""
        for view in views:
            for txn, value in (view.values or {}).get("transactions", {}).items():
                if value.state in (C.AWAIT_VOTES, P.PREPARED):
                    return "decision", f"transaction {txn} stays {value.state.name} at {view.name}"
        for txn in self.txns:
            told = [view.name for view in views if Entry(txn, "commit") in view.around.told]
            if told and len(told) < len(views):
                return "decision", f"transaction {txn} is committed by {', '.join(told)} alone"
        return None

    def sights(self, views: list[View]) -> Iterable[str]:
        """Both ends are reached, and somebody is in doubt while others have committed."""
        words = {entry.word for view in views for entry in view.around.told}
        yield from (f"a {word}" for word in words)
        values = [(view.values or {}).get("transactions", {}).values() for view in views]
        states = {value.state for machines in values for value in machines}
        if {P.PREPARED, P.COMMITTED} <= states:
            yield "doubt while others have committed"

    def renamed(self, around: Around, by: Renaming) -> Around:
        """The log keeps its order; what was begun and told is sorted anew."""
        made: Around = super().renamed(around, by)
        return replace(made, begun=tuple(sorted(made.begun)), told=tuple(sorted(made.told)))


BOTH = ("a commit", "a abort")
SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "smoke": lambda: Commit(Chances(about="nothing goes wrong", must=("a commit",), never=("a abort",))),
    "lossy": lambda: Commit(
        Chances(drop=2, duplicate=1, early=1, must=BOTH, about="messages are lost, and come twice")
    ),
    "crash": lambda: Commit(
        Chances(crash=1, drop=1, must=(*BOTH, "doubt while others have committed"), about="a party dies and comes back")
    ),
    "crashes": lambda: Commit(Chances(crash=2, duplicate=1, early=1, must=BOTH, about="two crashes, late messages")),
    "unable": lambda: Commit(
        Chances(crash=1, drop=1, duplicate=1, must=("a abort",), about="a participant that cannot"), without=(2,)
    ),
    "two": lambda: Commit(Chances(crash=1, must=("a commit",), about="two transactions at a time"), txns=2),
}


def impatient(bench: TablePatch) -> None:
    """A participant that hears nothing gives its promise up."""
    rows = bench.rows(protocol.participant, P.PREPARED, TimerFired)
    bench.change(protocol.participant, rows, target=P.ABORTED, do=(announce_abort,))


def tells_first(bench: TablePatch) -> None:
    """The coordinator tells its decision before it is in the log."""
    (row,) = bench.rows(protocol.coordinator, C.AWAIT_VOTES, protocol.VoteReceived, "last_yes")
    bench.change(protocol.coordinator, [row], do=(tell_commit, log_commit, *row.do[2:]))


def promises_in_memory(bench: TablePatch) -> None:
    """A participant promises, and does not log it."""
    rows = bench.rows(protocol.participant, P.UNKNOWN, protocol.PrepareAsked, "able")
    bench.without(protocol.participant, rows, "log_promise")


class CommitChecker(WorldChecker):
    """Worlds of two-phase commit, and bugs that it is known for."""

    suites = {"all": tuple(SCENARIOS)}  # noqa: RUF012
    planted = {  # noqa: RUF012
        "impatient": PlantedBug(impatient.__doc__ or "", "lossy", ("atomicity",), impatient),
        "tells-first": PlantedBug(tells_first.__doc__ or "", "crash", ("atomicity", "decision"), tells_first),
        "promises-in-memory": PlantedBug(promises_in_memory.__doc__ or "", "crash", ("decision",), promises_in_memory),
    }


CHECKER = CommitChecker(SCENARIOS)


# --------------------------------------------------------------------------------------------- scenes
def _traces(stage: Stage) -> list[Log]:
    return stage.logs(WORDS)


def commit() -> Stage:
    """Both participants promise, and commit."""
    stage = Stage(Commit(Chances()))
    stage.call(COORDINATOR, "begin 1")
    stage.run(0.1)
    return stage


def crash() -> Stage:
    """The coordinator dies when it has decided; one participant waits until it is back."""
    lost: list[object] = []

    def lose(_sender: int, receiver: int, body: object) -> bool:
        first = isinstance(body, protocol.Decision) and receiver == len(stage.around) - 1 and not lost
        lost.extend([body] if first else [])
        return first

    stage = Stage(Commit(Chances()), lose)
    stage.call(COORDINATOR, "begin 1")
    stage.run(0.01)
    stage.crash(COORDINATOR)
    stage.run(0.5)
    stage.start(COORDINATOR)
    stage.run(1.0)
    return stage


SCENES = (
    Scene("commit", "Both participants promise, and commit", commit, _traces, (1,)),
    Scene("crash", "The coordinator dies when it has decided; who has not heard of it waits", crash, _traces, (1,)),
)
