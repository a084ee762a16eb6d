"""Worlds: what surrounds a client and a server, what has to hold there, and bugs that would break it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from examples.leased_calls import tables
from examples.leased_calls.parties import NAMES, TELLING, make
from examples.leased_calls.tables import CLIENT, SERVER
from examples.leased_calls.words import C, Execute, Granted, HasRun, Result, RunAsked, S, Tell, Wanted
from kvproto.fsm.party import Member
from kvproto.fsm.records import Log
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.verify.framework.checker import PlantedBug
from kvproto.verify.framework.draw.scene import Scene
from kvproto.verify.framework.scenario import ApplicationCall, Chances, Scenario, View
from kvproto.verify.framework.stage import Stage
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.world_tale import WorldChecker

#: what the call returns
RESULT = 7


class Around(msgspec.Struct, frozen=True):
    """Was the call wanted, how often has it run, what was the application told?"""

    wanted: bool = False
    ran: int = 0
    told: str = ""


class OneCall(Scenario):
    """A client, a server, and call 1."""

    def around(self, number: int) -> Around:
        """Nothing has happened."""
        del number
        return Around()

    def start(self, number: int, around: Around, life: int, now: float) -> tuple[Member, list[Effect]]:
        """A start loses what was in memory; the server counts its lives."""
        del around, now
        return make(number, life), []

    def act(self, number: int, around: Around, effect: Effect) -> tuple[Around, Event | None]:
        """The call runs, and its handler returns; or the application is told."""
        del number
        if isinstance(effect, Execute):
            return replace(around, ran=around.ran + 1), HasRun(effect.call, RESULT)
        assert isinstance(effect, Tell)
        return replace(around, told=effect.end), None

    def calls(self, number: int, around: Around) -> Iterable[ApplicationCall]:
        """The client's application wants call 1, once."""
        if number == CLIENT and not around.wanted:
            yield ApplicationCall("want call 1", replace(around, wanted=True), Wanted(1))

    def crashed(self, number: int, around: Around) -> Around:
        """An application that dies with its client is told nothing; that the call has run stays so."""
        return replace(around, told=around.told or "nothing: it died") if number == CLIENT and around.wanted else around

    def broken(self, views: list[View]) -> tuple[str, str] | None:
        """At most once; and the client knows what it says."""
        client, server = (view.around for view in views)
        if server.ran > 1:
            return "once", "the call runs a second time"
        if client.told == "done" and not server.ran:
            return "truth", "the client has a result of a call that has not run"
        return ("truth", "a call has run of which the client says that it has not") if (
            client.told == "not run" and server.ran
        ) else None  # fmt: skip

    def unrest(self, views: list[View]) -> tuple[str, str] | None:
        """The application is told, and no lease lasts for ever."""
        client = views[CLIENT].around
        if client.wanted and not client.told:
            return "end", "the application is never told"
        held = [value for value in (views[SERVER].values or {}).get("calls", {}).values() if value.state is not S.ENDED]
        return ("lease", f"the server keeps the call in {held[0].state.name}") if held else None

    def sights(self, views: list[View]) -> Iterable[str]:
        """How calls end, and that one has run of which nobody can tell."""
        client, server = (view.around for view in views)
        yield from [client.told] if client.told else []
        yield from ["maybe, and it ran"] if client.told == "maybe" and server.ran else []


BOTH = tuple(NAMES.values())
SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "calm": lambda: OneCall(
        BOTH, Chances(must=("done",), never=("maybe", "not run"), about="nothing goes wrong")
    ),
    "lossy": lambda: OneCall(
        BOTH, Chances(drop=2, duplicate=2, early=2, must=("done", "not run", "maybe"),
                      about="messages are lost, and repeated")
    ),
    "crash": lambda: OneCall(
        BOTH, Chances(drop=1, duplicate=1, early=1, crash=1, must=("done", "maybe", "maybe, and it ran"),
                      about="a party dies and comes back")
    ),
}  # fmt: skip


def forgets(bench: TablePatch) -> None:
    """The server runs the call anew when it is asked again."""
    (row,) = bench.rows(tables.server, S.RAN, RunAsked, "of_this_life")
    bench.change(tables.server, [row], target=S.RUNNING, do=(tables.execute,))


def any_life(bench: TablePatch) -> None:
    """The server runs under a lease of a former life."""
    (row,) = bench.rows(tables.server, S.LEASED, RunAsked, "of_this_life")
    bench.change(tables.server, [row], when=None)
    bench.drop(tables.server, [tables.server.rows[row.index + 1]])


def second_lease(bench: TablePatch) -> None:
    """The client runs under another lease when it is given one."""
    bench.change(tables.client, bench.rows(tables.client, C.AWAIT_RESULT, Granted), verb="row", let=tables.leased,
                 do=(tables.run,))  # fmt: skip


class CallChecker(WorldChecker):
    """Worlds of one call, and bugs that calls are known for."""

    suites = {"all": tuple(SCENARIOS)}  # noqa: RUF012
    planted = {  # noqa: RUF012
        "forgets": PlantedBug(forgets.__doc__ or "", "lossy", ("once",), forgets),
        "any-life": PlantedBug(any_life.__doc__ or "", "crash", ("once",), any_life),
        "second-lease": PlantedBug(second_lease.__doc__ or "", "crash", ("once",), second_lease),
    }


CHECKER = CallChecker(SCENARIOS)


# --------------------------------------------------------------------------------------------- scenes
def _traces(stage: Stage) -> list[Log]:
    return stage.logs(TELLING)


def done() -> Stage:
    """The call runs, and its lease ends."""
    stage = Stage(OneCall(BOTH, Chances()))
    stage.call(CLIENT, "want call 1")
    stage.run(10.0)
    return stage


def maybe() -> Stage:
    """The server dies when the call has run, and nobody can tell any more."""
    stage = Stage(OneCall(BOTH, Chances()), lambda _sender, _receiver, body: isinstance(body, Result))
    stage.call(CLIENT, "want call 1")
    stage.run(0.3)
    stage.crash(SERVER)
    stage.start(SERVER)
    stage.run(1.0)
    return stage


SCENES = (
    Scene("done", "A call runs, and its lease ends", done, _traces, (1,)),
    Scene("maybe", "The server dies when the call has run, and nobody can tell any more", maybe, _traces, (1,)),
)
