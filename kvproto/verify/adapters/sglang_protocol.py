"""SGLang protocol: requests on a rank of SGLang for the tools, with worlds and known bugs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kvproto.adapters.sglang import tables as t
from kvproto.fsm.codec import Body
from kvproto.fsm.table import Table
from kvproto.fsm.telling import Key, Telling
from kvproto.fsm.vocabulary import Event
from kvproto.verify.adapters.polled_rank import NOBODY, PolledRank
from kvproto.verify.framework.checker import PlantedBug, plants
from kvproto.verify.framework.digest_text import digest_of
from kvproto.verify.framework.protocol import Protocol
from kvproto.verify.framework.scenario import Chances, Scenario
from kvproto.verify.framework.sources import Sources
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.world_tale import WorldChecker

ENDS = ("DONE", "FAILED", "STOPPED", "LANDED")
SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "sender": lambda: PolledRank("sender", Chances(must=(*ENDS, "SENT"), about="a request at a prefill rank")),
    "sender-refused": lambda: PolledRank(
        "sender", Chances(must=("FAILED",), never=("DONE", "LANDED"), about="the endpoint does not take the room"),
        opens=False,
    ),
    "sender-hit": lambda: PolledRank(
        "sender", Chances(must=(*ENDS, "SENT"), about="decode has all of its KV, and another stage sends the metadata"),
        hit=True,
    ),
    "receiver": lambda: PolledRank("receiver", Chances(must=(*ENDS, "REACHED"), about="a request at a decode rank")),
    "receiver-refused": lambda: PolledRank(
        "receiver", Chances(must=("FAILED",), never=("DONE", "LANDED"), about="the endpoint does not take the room"),
        opens=False,
    ),
}  # fmt: skip
BUGS: dict[str, PlantedBug] = {}
planted, said = partial(plants, BUGS), partial(digest_of, t.TABLES, ())


@planted("early-success", "sender", "reuse")
def early_success(bench: TablePatch) -> None:
    """A sender succeeds when decode has everything, and its pages may still be read."""
    for state in (t.S.OPEN, t.S.SENT):
        bench.change(t.sender, bench.rows(t.sender, state, t.Ended, "well"), target=t.S.DONE)


@planted("early-failure", "sender", "reuse")
def early_failure(bench: TablePatch) -> None:
    """A sender fails with its room, not with the room's release."""
    for state in (t.S.OPEN, t.S.SENT):
        bench.change(t.sender, bench.rows(t.sender, state, t.Ended, None), target=t.S.FAILED)


@planted("landing", "receiver", "reuse")
def landing(bench: TablePatch) -> None:
    """A receiver succeeds when all is there, and something may still land."""
    bench.change(t.receiver, bench.rows(t.receiver, t.R.OPEN, t.Ended, "well"), target=t.R.DONE)


@planted("silent-refusal", "sender", "told")
def silent_refusal(bench: TablePatch) -> None:
    """A sender that is given up before it was started tells nobody."""
    for state in t.EARLY:
        bench.without(t.sender, bench.rows(t.sender, state, t.GivenUp), "refuse_it")


@planted("silent-decline", "receiver", "told")
def silent_decline(bench: TablePatch) -> None:
    """A receiver that is given up before it has pages tells nobody."""
    bench.without(t.receiver, bench.rows(t.receiver, t.R.REACHED, t.GivenUp), "decline")


@planted("pages-of-an-ended-room", "sender", "order")
def pages_of_an_ended_room(bench: TablePatch) -> None:
    """KV that is computed after the room's end is still handed to the endpoint."""
    rows = bench.rows(t.sender, t.S.STOPPED, t.Given)
    bench.change(t.sender, rows, verb="row", do=(t.hand_over,), why="")


class PolledTelling(Telling):
    """SGLang's events name no request: each is an object of its own, and a story has one."""

    def key_of(self, table: Table[Any], event: Event) -> Key:
        return (0,)


CHECKER = WorldChecker(SCENARIOS, BUGS)
TELLING = PolledTelling(t.TABLES, t.Timing, said, (t,), Body)
SOURCES = Sources(
    t.TABLES, (NOBODY,),
    engine=(t.Made, t.Met, t.Started, t.Scheduled, t.Given, t.GivenUp, t.Unmet, t.Ended, t.Released), answers={},
    raised={}, states=(),
)  # fmt: skip
SGLANG = Protocol(
    name="SGLang's requests", tables=t.TABLES, timing=t.Timing(), digest=said, sources=SOURCES,
    telling=f"{__name__}:TELLING", checker=f"{__name__}:CHECKER",
)  # fmt: skip
