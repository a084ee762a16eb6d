"""A request's four tables are linted and searched with a scripted engine; known bugs are found."""

from __future__ import annotations

from typing import Any

import pytest
from support.small_protocols import assert_found, assert_holds, unfired

from kvproto.adapters import room_tables
from kvproto.adapters.request_events import (
    Arrived,
    CarryOut,
    Finished,
    Forget,
    GiveUpOrdered,
    Preempted,
    RankReported,
    Renew,
    Scheduled,
    Timing,
)
from kvproto.adapters.request_parties import TABLES, everyone, rank, scheduler
from kvproto.adapters.request_words import (
    SCHEDULER,
    Announce,
    GiveBlocks,
    GiveUp,
    Load,
    OpenRoom,
    Promise,
    Sent,
    Ticket,
    Withdraw,
)
from kvproto.fsm.table import Table
from kvproto.fsm.vocabulary import Effect, Report, Transmit
from kvproto.verify.adapters.request_worlds import CHECKER, SCENARIOS
from kvproto.verify.adapters.requests_protocol import REQUESTS
from kvproto.verify.adapters.requests_protocol import said as common_to_both

#: how much there is of each world: a change of meaning is seen in review
COUNTS = {
    "prefill": (20_179, 64_085), "prefill-long": (2_009, 4_693), "decode": (1_284, 3_633), "decode-two": (3_435, 9_868),
}  # fmt: skip
TICKET = Ticket(7, 100)


def test_the_tables_have_no_errors() -> None:
    assert REQUESTS.lint([]) == []


@pytest.mark.parametrize("name", COUNTS)
def test_every_interleaving_of_a_small_world(name: str) -> None:
    assert_holds(CHECKER, name, COUNTS[name])


@pytest.mark.parametrize("name", CHECKER.planted)
def test_a_planted_bug_is_found(name: str) -> None:
    assert_found(CHECKER, name)


def test_every_row_that_does_something_is_fired() -> None:
    assert unfired(CHECKER, COUNTS, TABLES) == []


def test_the_worlds_are_those_that_are_named() -> None:
    assert set(COUNTS) | {"prefill-two"} == set(SCENARIOS)


# ---------------------------------------------------------------------------------------------- by hand
def said(effects: list[Effect]) -> list[object]:
    return [effect.body if isinstance(effect, Transmit) else effect for effect in effects]


def test_blocks_come_bit_by_bit_and_anew_after_they_were_taken_away() -> None:
    party = scheduler("prefill")
    assert said(party.handle(Arrived("a", TICKET, everyone()), 0.0)) == []
    assert said(party.handle(Scheduled("a", (5, 6), 32), 0.0)) == [OpenRoom("a", TICKET), GiveBlocks("a", (5, 6), 32)]
    assert said(party.handle(Scheduled("a", (5, 6, 9), 48), 0.0)) == [GiveBlocks("a", (9,), 48)]
    assert said(party.handle(Preempted("a"), 0.0)) == [Withdraw("a")]
    assert said(party.handle(Scheduled("a", (1, 2, 3), 48), 0.0)) == [GiveBlocks("a", (1, 2, 3), 48)]
    assert said(party.handle(Scheduled("a", (1, 2, 3, 4, 5, 6, 7), 101), 0.0)) == [GiveBlocks("a", (4, 5, 6, 7), 100)]


@pytest.mark.parametrize("table", [room_tables.prefill_room, room_tables.decode_room], ids=lambda table: table.name)
def test_a_rank_forgets_a_request_as_told_where_it_has_reported_it(table: Table[Any]) -> None:
    forgets = {room_tables.forget, room_tables.forget_told}
    ends = [row for row in table.rows if forgets & {*row.do}]
    given_up: Any = GiveUpOrdered("a", GiveUp("a", TICKET, report=False))
    assert len(ends) >= 4
    for row in ends:
        *reports, forgotten = (make(None, given_up) for make in row.do)
        assert forgotten == Forget("a", told=bool(reports)), row
        assert all(isinstance(each, Transmit) and each.body.request == "a" for each in reports)


def test_a_request_that_ended_well_is_handed_over_and_kept_until_all_have_reported() -> None:
    party = scheduler("prefill", ranks=2)
    party.handle(Arrived("a", TICKET, everyone(2)), 0.0)
    party.handle(Scheduled("a", (1, 2), 100), 0.0)
    ended = said(party.handle(Finished("a", well=True), 0.0))
    assert [type(each).__name__ for each in ended] == ["HandOver", "Promise", "Promise"]
    assert ended[1] == Promise("a")
    assert said(party.receive(1, Sent("a"), 0.0)) == []
    assert [type(each) for each in said(party.receive(1, Sent("a"), 0.0))] == [Report]
    assert [type(each).__name__ for each in said(party.receive(2, Sent("a"), 0.0))] == ["FreeBlocks"]


def test_given_up_before_it_has_blocks_the_other_side_is_told() -> None:
    party = scheduler("prefill")
    party.handle(Arrived("a", TICKET, everyone()), 0.0)
    told, freed = said(party.handle(Finished("a", well=False), 0.0))
    assert told == GiveUp("a", TICKET, report=False)
    assert type(freed).__name__ == "FreeBlocks"


def test_a_request_that_hands_nothing_over_is_nobodys_matter() -> None:
    party = scheduler("prefill")
    assert [type(each).__name__ for each in party.handle(Finished("b", well=True), 0.0)] == ["FreeBlocks"]
    assert [type(each) for each in party.handle(RankReported("b", 1, failed=False), 0.0)] == [Report]


def test_scheduler_and_ranks_have_one_digest() -> None:
    assert common_to_both() == common_to_both()
    assert len(common_to_both()) > 16


def test_a_room_that_waits_for_blocks_is_announced_again_until_it_has_some() -> None:
    party, period = rank("decode"), Timing().renew.period
    announced, load = Announce("a", TICKET), Load("a", (1, 2), 0)
    assert party.receive(SCHEDULER, announced, 0.0) == [CarryOut("a", announced)]
    assert party.tick(period / 2) == []
    for times in (1, 3):
        assert party.tick((times + 0.5) * period) == [Renew("a")]
    assert party.receive(SCHEDULER, load, 4 * period) == [CarryOut("a", load)]
    assert party.tick(9 * period) == []
