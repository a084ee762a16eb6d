"""Prefill groups of a decode endpoint: their calls, and when they are ready, agree and lead somewhere."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import Mock, call

import pytest
from msgspec.structs import replace
from support.stories import layout

from kvproto.endpoint import prefill_groups
from kvproto.endpoint.group_table import (
    DisconnectCalled,
    Group,
    GroupValue,
    KeepUnlinked,
    LinkEnded,
    NameFound,
    Prepare,
    TellUnlinked,
)
from kvproto.errors import ArgumentError, EndpointError, LinkError, NotFoundError
from kvproto.layout.cut import Cut
from kvproto.layout.placement import Placement
from kvproto.settings import PREFILL_GROUP, Route
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import SMALL, Pair

NOWHERE = "tcp://127.0.0.1:1"


def addresses(pair: Pair) -> list[str]:
    return [each.address for each in pair.prefills]


# ------------------------------------------------------------------------------------------------ calls
def test_no_group_is_called_by_a_loop_that_has_broken_or_an_endpoint_that_closes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = pair.decodes[0]
    loop, groups = inside(decode).loop, decode._groups
    with monkeypatch.context() as patch:
        patch.setattr(loop, "broken", RuntimeError("planted"))
        with pytest.raises(EndpointError, match="the loop has stopped"):
            decode.connect(layout(2), addresses(pair), group=5)
    with monkeypatch.context() as patch:
        patch.setattr(groups, "_closed", value=True)  # since the loop was asked
        with pytest.raises(EndpointError, match="this endpoint is closed"):
            decode.connect(layout(2), addresses(pair), group=5)
    assert groups.find(5) is None


def test_the_numbers_of_calls_rise(pair: Pair) -> None:
    groups = pair.decodes[0]._groups
    for group in (5, 6):  # by them the oldest is dropped
        pair.decodes[0].connect(layout(2), addresses(pair), group=group)
    calls = [found.call for group in (PREFILL_GROUP, 5, 6) if (found := groups.find(group)) is not None]
    assert len(calls) == 3 and calls == sorted(set(calls))


def test_kernels_of_a_call_are_made_before_the_groups_are_locked(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, locked = pair.decodes[0], list[bool]()
    lock = decode._groups._lock
    monkeypatch.setattr(inside(decode).data.kernels, "prepare", lambda *_: locked.append(lock.locked()))
    decode.connect(layout(2), addresses(pair), group=5)
    assert locked and not locked[0]


def test_links_are_left_and_called_anew_each_after_what_was_held_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, did = pair.decodes[0], list[tuple[Any, ...]]()
    rank, loop = inside(decode)[:2]

    def notes(*about: Any) -> list[Any]:
        did.append(about)
        return []

    monkeypatch.setattr(loop.control, "flush", lambda: notes("flush"))
    monkeypatch.setattr(rank, "take_leave", lambda now: notes("leave", now))
    monkeypatch.setattr(rank, "to_call_anew", lambda: [2, 1])
    monkeypatch.setattr(rank, "call_anew", lambda link, now: notes("call", link, now))
    monkeypatch.setattr(decode._groups.links, "settle", lambda link: notes("settle", link))
    decode._groups.call_anew()
    calls = [each for link in (2, 1) for each in (("settle", link), ("call", link, loop.now))]
    assert did == [("flush",), ("leave", loop.now), ("flush",), *calls]


@pytest.mark.parametrize(
    ("missing", "route", "warned"), [(0, "staged", 0), (1, "staged", 1), (1, "pages", 0), (1, "cost", 1)]
)
def test_a_ring_that_holds_no_chunk_is_warned_of(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, missing: int, route: Route, warned: int
) -> None:
    decode, told = pair.decodes[0], list[tuple[Any, ...]]()
    rank, loop = inside(decode)[:2]
    chunk = pair.plan.grant_bytes(0, Cut(0, 8))
    monkeypatch.setattr(rank, "settings", replace(SMALL, ring_bytes=chunk - missing, route=route))
    monkeypatch.setattr(loop.logs, "small_ring", lambda *about: told.append(about))
    data = inside(decode).data
    closed = dataclasses.replace(data.memory, placement=Placement((), (), "planted"))
    monkeypatch.setattr(data, "memory", closed)
    decode.connect(layout(2), addresses(pair), group=5)
    decode.poll()
    assert told == [("prefill group 5", chunk, chunk - 1, "the pool of the decode rank is closed: planted")] * warned


def test_the_oldest_group_without_a_link_is_dropped_where_there_are_too_many() -> None:
    party = prefill_groups.GroupParty(2)
    party.groups = {
        7: GroupValue(Group.UNLINKED, call=3), 8: GroupValue(Group.UNLINKED, call=1),
        9: GroupValue(Group.CALLED, call=0), 6: GroupValue(Group.UNLINKED, call=2),
    }  # fmt: skip
    party._keep(KeepUnlinked())
    assert list(party._queue) == [DisconnectCalled(8)]
    del party.groups[8]
    party._queue.clear()
    party._keep(KeepUnlinked())
    assert not party._queue


# ------------------------------------------------------------------------------------------------ questions
def test_a_group_is_ready_unless_a_rank_is_tried_at_the_address_that_it_is_to_have(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, (first, second) = pair.decodes[0], addresses(pair)
    for at, tried, ready in ((0, first, False), (1, second, False), (0, second, True), (1, NOWHERE, True)):
        trial = {(PREFILL_GROUP, at): tried}
        monkeypatch.setattr(inside(decode).rank, "tries", lambda *link, trial=trial: trial.get(link, ""))
        assert decode.ready() is ready


def test_a_rank_whose_link_has_ended_is_named_with_the_reason(pair: Pair) -> None:
    groups = pair.decodes[0]._groups
    groups._party.groups[PREFILL_GROUP] = replace(value := groups.get(PREFILL_GROUP), unlinked=0b10)
    groups._reasons = {(PREFILL_GROUP, 0): "of another time", (PREFILL_GROUP, 1): "planted"}
    with pytest.raises(LinkError, match=r"^prefill rank 1: planted$"):
        pair.decodes[0].ready()
    groups._party.groups[PREFILL_GROUP] = value


def test_a_group_agrees_while_one_of_its_links_does(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = pair.decodes[0]
    rank, links = inside(decode).rank, list(decode._groups.links.links.values())
    agreed = links[0].agreed
    assert len(links) == 2 and agreed is not None and decode.agreed()
    links[1].agreed = None
    assert decode.agreed()
    with monkeypatch.context() as patch:
        patch.setattr(rank, "reached", lambda *_: (True, "refused"))
        assert not decode.agreed()
    with monkeypatch.context() as patch:
        patch.setattr(rank, "reached", lambda *link: (True, "refused" * (link == (PREFILL_GROUP, 0))))
        for each in links:
            each.agreed = None if each.rank else agreed
        assert not decode.agreed(), "rank 1 has not agreed, and rank 0 is refused"
    links[0].agreed, links[1].agreed = replace_chunk(agreed), None
    assert not decode.agreed(), "by another plan"
    links[0].agreed, links[0].group = agreed, 5
    assert not decode.agreed(), "a link of another group"
    links[0].group = PREFILL_GROUP
    decode.connect(layout(2), addresses(pair), group=5)
    assert not decode.agreed(5) and decode.agreed()


def replace_chunk(plan: Any) -> Any:
    """The same plan with chunks twice as long."""
    return type(plan)(plan.prefill, plan.decode, 2 * plan.chunk_tokens)


def test_a_group_leads_where_its_links_lead_or_are_about_to(pair: Pair) -> None:
    decode, ours = pair.decodes[0], addresses(pair)
    assert decode.leads_to(ours)
    assert not any(decode.leads_to(each) for each in ([], ours[:1], [*ours, NOWHERE], ours[::-1], [ours[0], NOWHERE]))
    decode.connect(layout(2), [NOWHERE] * 2, group=5)
    assert decode.leads_to([NOWHERE] * 2, 5) and not decode.leads_to(ours, 5), "the loop has yet to call"


@pytest.mark.parametrize("at", ["tries", "leads_to"])
def test_a_group_that_was_called_leads_where_each_of_its_own_links_is_or_is_tried(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    decode, ours = pair.decodes[0], addresses(pair)
    rank, where = inside(decode).rank, {(PREFILL_GROUP, each): address for each, address in enumerate(ours)}
    monkeypatch.setattr(rank, "tries", lambda *_: "")
    monkeypatch.setattr(rank, "leads_to", lambda *_: "")
    assert not decode.leads_to(ours), "though they are the addresses of its call"
    monkeypatch.setattr(rank, at, lambda *link: where.get(link, ""))
    assert decode.leads_to(ours)
    value = decode._groups.get(PREFILL_GROUP)
    decode._groups._party.groups[PREFILL_GROUP] = replace(value, to=replace(value.to, named=("one", "other")))
    assert decode.leads_to(["one", "other"]) and not decode.leads_to(["other", "one"]), "by the numbers of its names"
    decode._groups._party.groups[PREFILL_GROUP] = value


def test_a_group_may_be_called_with_another_plan_at_other_addresses_alone(pair: Pair) -> None:
    groups, (first, _) = pair.decodes[0]._groups, addresses(pair)
    another = replace_chunk(groups.get(PREFILL_GROUP).to.plan)
    with pytest.raises(ArgumentError, match="connected with another layout or chunk size"):
        groups.connect(PREFILL_GROUP, another, (NOWHERE, first))
    groups.connect(PREFILL_GROUP, another, (NOWHERE, NOWHERE))
    assert groups.get(PREFILL_GROUP).to.plan is another


# ------------------------------------------------------------------------------------------------ preparation
def test_one_name_among_the_addresses_is_looked_up_beside_the_loop(pair: Pair) -> None:
    groups = pair.decodes[0]._groups
    plan = groups.get(PREFILL_GROUP).to.plan
    assert groups._slow(plan, [NOWHERE, "tcp://a.name:1"]) and groups._slow(plan, ["tcp://a.name:1", NOWHERE])
    assert not groups._slow(plan, [NOWHERE, NOWHERE])


def test_reasons_of_a_group_s_earlier_calls_are_forgotten_with_the_next_one(pair: Pair) -> None:
    decode = pair.decodes[0]
    groups, earlier, other = decode._groups, (PREFILL_GROUP, 1), (5, 1)
    groups._reasons = {earlier: "earlier", other: "another group's"}
    decode.connect(layout(2), addresses(pair))
    decode.poll()
    assert groups._reasons == {other: "another group's"}
    groups._reasons[earlier] = "newer"
    value = groups.get(PREFILL_GROUP)
    groups._prepared(Prepare(PREFILL_GROUP, value.call - 1, value.to))[0]()
    assert earlier in groups._reasons, "the result of an earlier call changes nothing"


def test_why_links_have_ended_is_kept_as_long_as_their_groups_are(pair: Pair) -> None:
    groups = pair.decodes[0]._groups
    groups._reasons = {(7, PREFILL_GROUP): "of a group that is gone", (PREFILL_GROUP, 1): "earlier"}
    groups._tell(TellUnlinked(PREFILL_GROUP, 0, "gone", left=True))
    assert (PREFILL_GROUP, 0) not in groups._reasons, "the engine has left it"
    groups._tell(TellUnlinked(PREFILL_GROUP, 0, "lost", left=False))
    assert groups._reasons == {(PREFILL_GROUP, 1): "earlier", (PREFILL_GROUP, 0): "lost"}


def test_the_name_of_a_call_is_looked_up_once_at_a_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, asked = pair.decodes[0], list[Any]()
    groups = decode._groups
    (link, *_) = groups.links.links.values()
    monkeypatch.setattr(groups._preparation, "submit", asked.append)
    groups._look_again(link)
    assert not asked, "its address is a number"
    monkeypatch.setattr(prefill_groups, "is_name", lambda _: True)
    for _ in range(2):
        groups._look_again(link)
    assert (len(asked), link.looking) == (1, True)
    asked[0]()()
    assert (len(asked), link.looking) == (1, False)
    groups._look_again(link)
    link.group, link.looking = 77, False
    groups._look_again(link)
    assert len(asked) == 2 and not link.looking, "its group is not there"
    link.group = PREFILL_GROUP


@pytest.mark.parametrize(
    ("dialled", "tried", "found", "moved"),
    [
        ("1", "2", "1", False), ("1", "2", "2", False), ("1", "", "3", True), ("1", "", "name", True),
        ("", "", "name", False), ("", "", "3", True), ("", "3", "3", False),
    ],
)  # fmt: skip
def test_a_name_has_moved_if_no_connection_leads_where_it_does(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, dialled: str, tried: str, found: str, *, moved: bool
) -> None:
    groups, heard, asked = pair.decodes[0]._groups, list[Any](), list[Any]()
    value = replace(groups.get(PREFILL_GROUP), call=9)
    named = replace(value.to, named=("name", "name"))
    groups._party.groups[PREFILL_GROUP] = replace(value, to=named)
    (link,) = (each for each in groups.links.links.values() if each.rank == 1)
    link.dialled, link.tried = dialled, tried
    monkeypatch.setattr(groups._preparation, "submit", asked.append)
    monkeypatch.setattr(groups, "_hear", heard.append)
    monkeypatch.setattr(prefill_groups, "is_name", lambda _: True)
    monkeypatch.setattr(prefill_groups, "numbered", {"name": found}.__getitem__)
    groups._look_again(link)
    asked[0]()()
    numbers = list(value.to.numbers)
    numbers[link.rank] = found
    assert heard == [NameFound(PREFILL_GROUP, value.call, replace(named, numbers=tuple(numbers)), link.rank, moved)]
    groups._party.groups[PREFILL_GROUP] = value


def test_an_event_that_the_table_refuses_is_reported_by_the_loop(pair: Pair) -> None:
    decode = pair.decodes[0]
    decode._groups._party.groups[5] = GroupValue(Group.UNLINKED)
    decode._groups._hear(LinkEnded(5, 0, "planted"))
    decode.poll()
    assert decode.metrics()["refused events"] == 1 and "LinkEnded" in decode.reports()[-1]


# ------------------------------------------------------------------------------------------------ their end
def test_a_group_that_is_let_go_is_found_but_not_connected(pair: Pair) -> None:
    groups = pair.decodes[0]._groups
    groups._party.groups[5] = left = GroupValue(Group.LEFT)
    assert groups.find(5) is left
    with pytest.raises(NotFoundError, match="prefill group 5 is not connected"):
        groups.get(5)


def test_after_a_close_nothing_is_prepared_and_no_group_is_found(pair: Pair) -> None:
    decode = pair.decodes[0]
    groups, closes = decode._groups, Mock()
    groups._preparation.close, close = closes, groups._preparation.close  # type: ignore[method-assign]
    decode.close()
    close()
    assert closes.mock_calls == [call()]
    for group in (PREFILL_GROUP, 5):
        with pytest.raises(EndpointError, match="this endpoint is closed"):
            groups.get(group)
