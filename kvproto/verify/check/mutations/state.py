"""State: mutants of the chunks that a model's state makes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvproto.layout.costs import Estimate
from kvproto.layout.cut import Cut, Part
from kvproto.protocol import events as ev
from kvproto.protocol.states import DGrant, DRoom
from kvproto.protocol.tables.prefill_room import PrefillWork
from kvproto.rank import prefill
from kvproto.rank.base import cut_of
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.check.mutations.registry import DROOMS, GRANTS, dg, dr, mutation
from kvproto.verify.framework.table_patching import TablePatch

computed = prefill._computed  # noqa: SLF001


@mutation("state-on-full-hit", "state-hit", "S5")
def state_on_full_hit(b: TablePatch) -> None:
    """A room whose tokens are all in the decode rank's pages is taken to be complete without its state."""

    def aux_completes(v: Any, e: ev.AuxLanded, now: float) -> bool:
        return bool(v.tokens == v.prefix or dr.aux_completes(v, e, now))

    b.change(DROOMS, b.rows(DROOMS, DRoom.OPEN, ev.AuxLanded, "aux_completes"), when=aux_completes)


@mutation("state-fan-in-of-tokens", "state-stages", "L1", "L2", "L3", "S10", "S3")
def state_fan_in_of_tokens(b: TablePatch) -> None:
    """A chunk of state waits for the writers of the tokens."""

    def open_grant(v: Any, e: ev.ChunkRequested) -> ev.StagingRequested:
        return ev.StagingRequested(e.room, e.chunk, e.peer, v.terms.writes, e.asked, e.cut)

    rows = b.rows(DROOMS, (DRoom.AWAIT_PEERS, DRoom.OPEN), ev.ChunkRequested, "of_plan")
    b.change(DROOMS, rows, do=(open_grant,))


@mutation("joint-fan-in-of-tokens", "joint-stages", "L1", "L2", "L3", "S10", "S3")
def joint_fan_in_of_tokens(b: TablePatch) -> None:
    """A joint chunk waits for the writers of its tokens alone (beside the catalogue)."""
    state_fan_in_of_tokens(b)


@mutation("joint-on-one-side", "joint", "S12", "S1", "S3", "S10", "S11")
def joint_on_one_side(b: TablePatch) -> None:
    """The prefill rank sends the last tokens without the state (beside the catalogue)."""

    def of_tokens(value: Any, k: int) -> Cut:
        cut = cut_of(value, k)
        return Cut(cut.first, cut.tokens)

    b.patch(prefill, "cut_of", of_tokens)


@mutation("state-before-the-last-token", "state", "S12")
def state_before_the_last_token(b: TablePatch) -> None:
    """State leaves with the first tokens: it is not the state after the last one (beside the catalogue)."""

    def early(work: PrefillWork, cut: Cut, part: Part) -> bool:
        return work.produced > 0 if cut.state else computed(work, cut, part)

    b.patch(prefill, "_computed", early)


@mutation("state-kept-on-withdrawal", "state-withdraw", "S12")
def state_kept_on_withdrawal(b: TablePatch) -> None:
    """A withdrawal takes back tokens that have not left, and leaves the state (beside the catalogue)."""

    def kept(rank: Any, effect: Any) -> None:
        before = prefill._computed  # noqa: SLF001
        prefill._computed = lambda work, cut, part: cut.state or before(work, cut, part)  # noqa: SLF001
        try:
            withdraw(rank, effect)
        finally:
            prefill._computed = before  # noqa: SLF001

    withdraw = PrefillRank._withdraw_kv  # noqa: SLF001
    b.patch(PrefillRank, "_withdraw_kv", kept)


@mutation("state-over-pages", "state", "S12")
def state_over_pages(b: TablePatch) -> None:
    """State that is not staged in time goes into slots that are not open (beside the catalogue)."""
    b.patch(PrefillRank, "end_estimate", lambda *_: Estimate(0.0, 0.0))


@mutation("first-speaks-for-all", "state-closed-fan-in", "S12")
def first_speaks_for_all(b: TablePatch) -> None:
    """The first writer that asks for pages sends all others there, closed or not (beside the catalogue)."""

    def first_gives_up(v: Any, e: ev.PagesRequested, now: float) -> Any:
        return replace(dg.first_gives_up(v, e, now), by_pages=e.writers)

    b.change(GRANTS, b.rows(GRANTS, DGrant.NEW, ev.PagesRequested), target=DGrant.FILLING_PAGES, let=first_gives_up)
