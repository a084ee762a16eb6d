"""Called groups: the worlds of `decode_group`, bugs to plant, and both as a protocol for the tools.

No message depends on the table, so its digest is in none; traces of these worlds carry it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvproto.endpoint import group_table as gt
from kvproto.endpoint.group_table import Group, decode_group
from kvproto.fsm.codec import Body
from kvproto.fsm.telling import Telling
from kvproto.fsm.timing import Timers
from kvproto.verify.check.calling import Calling
from kvproto.verify.framework.checker import PlantedBug, plants
from kvproto.verify.framework.digest_text import digest_of
from kvproto.verify.framework.protocol import Protocol
from kvproto.verify.framework.scenario import Chances, Scenario
from kvproto.verify.framework.sources import Sources
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.world_tale import WorldChecker

TABLES = (decode_group,)
#: for traces of worlds; it is in no message
said = partial(digest_of, TABLES, ())
SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "called": lambda: Calling(
        Chances(must=("0 ready", "0 LEFT", "0 UNLINKED"), about="a group of two ranks, called twice"),
        ranks=2, connects=2,
    ),
    "called-again": lambda: Calling(
        Chances(must=("0 ready", "0 LEFT", "0 UNLINKED"), about="a group of one rank, called three times")
    ),
    "called-by-name": lambda: Calling(
        Chances(must=("0 ready",), about="a group of two ranks whose names are looked up again, called twice"),
        ranks=2, connects=2, by_name=True,
    ),
    "called-and-bound": lambda: Calling(
        Chances(must=("0 UNLINKED", "1 ready"), about="two groups, of which one is kept without a link"),
        groups=2, connects=1, bound=1,
    ),
    "called-and-closed": lambda: Calling(
        Chances(must=("0 ready", "closed"), about="a group of two ranks, called twice; the endpoint is closed"),
        ranks=2, connects=2, closes=True,
    ),
}  # fmt: skip
BUGS: dict[str, PlantedBug] = {}
planted = partial(plants, BUGS)


@planted("stale-preparation", "called-again", "stale")
def stale_preparation(bench: TablePatch) -> None:
    """The result of an earlier `connect` is taken for that of the last one."""
    bench.drop(decode_group, bench.rows(decode_group, Group.PREPARING, gt.GroupPrepared, "earlier"))


@planted("left-and-called", "called", "stale")
def left_and_called(bench: TablePatch) -> None:
    """A group that the engine has let go of is called when it is prepared."""
    rows = bench.rows(decode_group, Group.LEFT, gt.GroupPrepared)
    bench.change(decode_group, rows, verb="row", target=Group.CALLING, let=gt.call, do=(gt.call_all,), why="")


@planted("ready-before-called", "called", "ready")
def ready_before_called(bench: TablePatch) -> None:
    """The links of an earlier `connect` count until the loop has called its ranks."""
    rows = bench.rows(decode_group, Group.PREPARING, gt.GroupPrepared, "prepared")
    bench.change(decode_group, rows, target=Group.CALLED)


@planted("kept-for-ever", "called", "left")
def kept_for_ever(bench: TablePatch) -> None:
    """A group that was let go stays when its last link is forgotten."""
    bench.drop(decode_group, bench.rows(decode_group, Group.LEFT, gt.LinkEnded, "last"))


@planted("forgotten-in-silence", "called", "told")
def forgotten_in_silence(bench: TablePatch) -> None:
    """Nothing is logged of a link that is forgotten."""
    rows = bench.rows(decode_group, Group.CALLED, gt.LinkEnded, "last")
    bench.without(decode_group, rows, "tell_unlinked")


@planted("unbounded", "called-and-bound", "bound")
def unbounded(bench: TablePatch) -> None:
    """A group that has lost its last link stays, however many there are."""
    bench.without(decode_group, bench.rows(decode_group, Group.CALLED, gt.LinkEnded, "last"), "keep")


@planted("called-after-the-close", "called-and-closed", "closed")
def called_after_the_close(bench: TablePatch) -> None:
    """A group that was closed while it was prepared is called."""
    bench.drop(decode_group, bench.rows(decode_group, Group.PREPARING, gt.CloseCalled))


ENGINE = (
    gt.ConnectCalled, gt.DisconnectCalled, gt.CloseCalled, gt.GroupPrepared, gt.RanksCalled, gt.NameFound, gt.LinkEnded,
)  # fmt: skip
GROUPS = Protocol(
    name="groups", tables=TABLES, timing=Timers(), digest=said,
    sources=Sources(TABLES, (), engine=ENGINE, answers={}, raised={}, states=()),
    telling="kvproto.verify.check.called_groups:TELLING", checker="kvproto.verify.check.called_groups:CHECKER",
)  # fmt: skip
TELLING = Telling(TABLES, Timers, said, (gt,), Body)
CHECKER = WorldChecker(SCENARIOS, BUGS)
