"""The worlds in which requests are searched, and the bugs that adapters are known for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvproto.adapters import request_tables, room_tables
from kvproto.adapters.request_events import BlocksOrdered, Finished, Preempted, RankReported, RoomEnded
from kvproto.adapters.request_words import DRank, P, PRank
from kvproto.verify.adapters.scripted_engine import Serving
from kvproto.verify.framework.checker import PlantedBug, plants
from kvproto.verify.framework.scenario import Chances, Scenario
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.world_tale import WorldChecker

SERVED = ("A served", "A refused")
SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "prefill": lambda: Serving(
        "prefill", Chances("fifo", must=(*SERVED, "a room GONE"), about="one prompt in two chunks, two ranks"), ranks=2,
    ),
    "prefill-two": lambda: Serving(
        "prefill", Chances("fifo", must=("A served", "B refused"), about="two prompts that want the same blocks"),
        requests="AB",
    ),
    "prefill-long": lambda: Serving(
        "prefill", Chances("fifo", must=SERVED, about="one prompt, computed in one to three chunks"), tokens=3
    ),
    "decode": lambda: Serving(
        "decode", Chances("fifo", must=(*SERVED, "a room LOST"), about="one request, two ranks"), ranks=2
    ),
    "decode-two": lambda: Serving(
        "decode", Chances("fifo", must=("A served", "B refused"), about="two requests that want the same blocks"),
        requests="AB",
    ),
}  # fmt: skip
BUGS: dict[str, PlantedBug] = {}
planted = partial(plants, BUGS)


@planted("silent-refusal", "prefill", "told")
def silent_refusal(bench: TablePatch) -> None:
    """Given up before it has blocks: nobody is told."""
    rows = bench.rows(request_tables.prefill_request, P.ADMITTED, Finished)
    bench.without(request_tables.prefill_request, rows, "refuse")


@planted("blocks-of-an-ended-room", "prefill", "order")
def blocks_of_an_ended_room(bench: TablePatch) -> None:
    """KV of a room that is released is still handed to the endpoint."""
    rows = bench.rows(room_tables.prefill_room, PRank.GONE, BlocksOrdered)
    bench.change(room_tables.prefill_room, rows, verb="row", do=(room_tables.carry_out,), why="")


@planted("early-free", "prefill", "reuse")
def early_free(bench: TablePatch) -> None:
    """The first rank's report frees the blocks."""
    for state in (P.PROMISED, P.ABORTED):
        rows = bench.rows(request_tables.prefill_request, state, RankReported, "last")
        bench.change(request_tables.prefill_request, rows, when=None)


@planted("forgotten-withdrawal", "prefill-two", "reuse", "landing")
def forgotten_withdrawal(bench: TablePatch) -> None:
    """A preempted request's room still reads its blocks."""
    for state in (P.OPEN, P.COMPUTED):
        rows = bench.rows(request_tables.prefill_request, state, Preempted)
        bench.without(request_tables.prefill_request, rows, "withdraw")


@planted("failed-at-once", "decode", "landing")
def failed_at_once(bench: TablePatch) -> None:
    """A load is reported when it has failed, not when it is released."""
    rows = bench.rows(room_tables.decode_room, DRank.OPEN, RoomEnded, None)
    bench.change(
        room_tables.decode_room, rows, target=DRank.OVER, do=(room_tables.report_failed, room_tables.forget_told)
    )


CHECKER = WorldChecker(SCENARIOS, BUGS)
