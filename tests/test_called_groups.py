"""The table of called groups is linted, proved, and searched with calls at any moment and two threads."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from weakref import WeakSet

import pytest
from support.small_protocols import assert_found, assert_holds, unfired
from support.stories import layout

from kvproto.endpoint import group_table as gt
from kvproto.endpoint.group_table import Destination, Group, decode_group
from kvproto.endpoint.prefill_groups import STEPS, GroupParty
from kvproto.errors import ArgumentError, EndpointError, LinkError
from kvproto.fsm.timing import Timers
from kvproto.fsm.vocabulary import Event
from kvproto.verify.check.called_groups import CHECKER, GROUPS, SCENARIOS
from kvproto.verify.claims.decode_group import group_claims
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.prove.proof import PairProof, TableProver
from kvproto.verify.prove.steps import Pair
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair as Endpoints

#: how much there is of each world: a change of meaning is seen in review
COUNTS = {
    "called": (1_562, 5_041), "called-again": (3_701, 10_464), "called-by-name": (19_874, 71_173),
    "called-and-bound": (920, 2_625), "called-and-closed": (4_494, 11_740),
}  # fmt: skip


def test_the_table_has_no_errors() -> None:
    assert GROUPS.lint([]) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_order_of_calls_and_links(name: str) -> None:
    assert_holds(CHECKER, name, COUNTS[name])


@pytest.mark.parametrize("name", CHECKER.planted)
def test_a_planted_bug_is_found(name: str) -> None:
    assert_found(CHECKER, name)


def test_every_row_that_does_something_is_fired() -> None:
    assert unfired(CHECKER, SCENARIOS, [decode_group]) == []


# ------------------------------------------------------------------------------------------------ the proof
def proof(pair: Pair) -> PairProof:
    return TableProver(group_claims, Timers()).prove(pair)


def test_what_is_claimed_is_proved() -> None:
    prover = TableProver(group_claims, Timers())
    proofs = [prover.start(), *map(prover.prove, prover.pairs)]
    assert [failure for each in proofs for failure in each.failures] == []
    assert [each.pair for each in proofs if not each.possible] == [
        "NEW DisconnectCalled", "LEFT DisconnectCalled", "NEW LinkEnded", "UNLINKED LinkEnded",
    ], "what nobody says: the rows refuse it"  # fmt: skip


@pytest.mark.parametrize(("state", "event", "guard", "claim"), [
    (Group.PREPARING, gt.GroupPrepared, "earlier", "Ranks are called for the engine's last"),
    (Group.CALLED, gt.NameFound, "earlier", "Ranks are called for the engine's last"),
    (Group.CALLED, gt.LinkEnded, "last", "Some rank has a link"),
    (Group.LEFT, gt.LinkEnded, "last", "Some rank has a link"),
])  # fmt: skip
def test_a_row_that_is_taken_out_breaks_the_proof_by_name(
    state: Group, event: type[Event], guard: str, claim: str
) -> None:
    with TablePatch() as bench:
        bench.drop(decode_group, bench.rows(decode_group, state, event, guard))
        failures = proof(Pair(state, event)).failures
    assert any(failure.text.startswith(claim) for failure in failures), failures


# ------------------------------------------------------------------------------------------- what is kept
def test_plans_of_groups_that_came_and_went_are_not_kept() -> None:
    class Plan:
        """A plan that can be watched."""

    party, plans = GroupParty(bound=9), WeakSet[Plan]()
    for call in range(1, 101):
        plans.add(plan := Plan())
        party.handle(gt.ConnectCalled(call, call, Destination(plan)), 0.0)
        party.handle(gt.DisconnectCalled(call), 0.0)
        del plan
    gc.collect()
    assert not party.groups and len(plans) <= STEPS


# ---------------------------------------------------------------------------------------------- two threads
def test_an_engine_that_connects_and_disconnects_beside_the_loop_s_thread_leaves_nothing_behind() -> None:
    with Endpoints(layout(2), layout(1), chunk_tokens=8, ready=False) as pair:
        decode, addresses = pair.decodes[0], [each.address for each in pair.prefills]
        pair.turn()
        for each in pair.endpoints:
            each.start()
        for turn in range(100):
            decode.connect(pair.plan.prefill, addresses)
            assert decode.leads_to(addresses) in (True, False)
            if turn % 3:
                decode.disconnect()
                assert decode.any_up() in (True, False)
        wait_until(decode.ready, "it is up")
        decode.disconnect()
        wait_until(lambda: not decode._groups._party.groups, "nothing is left")
        assert not inside(decode).rank.links and not decode._groups.links.links
        assert not [text for text in decode.reports() if re.search("decode_group|fault", text)]
        assert inside(decode).loop.counts["faults"] == 0


@pytest.mark.parametrize("error", [RuntimeError("planted"), KeyboardInterrupt("planted")])
def test_a_call_that_raises_costs_its_own_link_and_says_so(error: BaseException) -> None:
    with Endpoints(layout(2), layout(1), chunk_tokens=8, ready=False) as pair:
        decode, addresses = pair.decodes[0], [each.address for each in pair.prefills]
        rank, call = inside(decode).rank, inside(decode).rank.call

        def raising(group: int, index: int, *about: Any) -> Any:
            if index == 0:
                raise error
            return call(group, index, *about)

        rank.call = raising  # type: ignore[method-assign, assignment]
        decode.connect(pair.plan.prefill, addresses)
        ends = not isinstance(error, Exception)
        with pytest.raises(KeyboardInterrupt) if ends else nullcontext():  # when the pass is over
            decode.poll()
        with pytest.raises(LinkError, match=r"could not be called: .*planted"):
            pair.pump(decode.ready)
        assert [peer.rank for peer in rank.peers.values()] == [1], "the other rank was called"
        rank.call = call  # type: ignore[method-assign]
        decode.connect(pair.plan.prefill, addresses)
        pair.pump(decode.ready)


def test_each_rank_without_a_link_is_told_with_its_own_reason() -> None:
    with Endpoints(layout(4), layout(1), chunk_tokens=8, ready=False) as pair:
        decode, rank = pair.decodes[0], inside(pair.decodes[0]).rank

        def refusing(group: int, index: int, *about: Any) -> Any:
            raise ArgumentError("no more ranks" if index > 1 else f"rank {index} is unknown")

        rank.call = refusing  # type: ignore[method-assign, assignment]
        decode.poll()
        with pytest.raises(LinkError) as found:
            decode.ready()
    assert str(found.value) == (
        "prefill rank 0: refused: rank 0 is unknown; prefill rank 1: refused: rank 1 is unknown; "
        "prefill ranks 2, 3: refused: no more ranks"
    )


def test_what_is_prepared_when_the_endpoint_is_closed_calls_nobody() -> None:
    with Endpoints(layout(2), layout(1), chunk_tokens=8, ready=False) as pair:
        decode, addresses = pair.decodes[0], [each.address for each in pair.prefills]
        assert decode._groups._party.groups, "it has called, and the loop has yet to take what was prepared"
        decode.close()
        assert not inside(decode).rank.links and not decode._groups._party.groups
        with pytest.raises(EndpointError, match="closed"):
            decode.connect(pair.plan.prefill, addresses)


def wait_until(over: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 20.0
    while not over():
        assert time.monotonic() < end, what
        time.sleep(0.001)
