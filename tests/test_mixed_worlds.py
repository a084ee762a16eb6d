"""Worlds of two builds: ranks of another build meet ours, and come back as the other one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.builds import Edit, build
from test_versions_meet import ALONE, NEWER

from kvproto import cli
from kvproto.errors import ArgumentError
from kvproto.verify.check.config import Budget
from kvproto.verify.check.configs import CONFIGS
from kvproto.verify.check.mixed_builds import Mix, check_beside, mixes
from kvproto.verify.check.other_build import OTHER, OtherBuild, beside
from kvproto.verify.check.search import check
from kvproto.verify.framework.search import Result

NEW_MESSAGE = '''
class StagingHint(Body, tag="STAGING_HINT", frozen=True):
    """A request will come."""

    chunk: Chunk


class StagingRsp(Body'''
NEW_EFFECT = '''
def hint(v: V, e: On) -> Output:
    """Tell that a request will come."""
    return do.Transmit(v.to.link, v.to.epoch, e.room, StagingHint(e.chunk))


def ask_pages(v: V, e: On) -> Output:
'''
REGION = "route(msg.StagingReq,    ChunkIs.GRANTED,"
NAMES = "import Mark, SlotOrNone\nfrom kvproto.protocol.messages import"
#: a message more, told before STAGING_REQ: who does not know it drops it, and answers the request
HINT: tuple[Edit, ...] = (
    ("\nclass StagingRsp(Body", NEW_MESSAGE),
    ("    | StagingReq | StagingRsp", "    | StagingReq | StagingHint | StagingRsp"),
    ("D_CHUNKS = (msg.StagingReq,", "D_CHUNKS = (msg.StagingReq, msg.StagingHint,"),
    (REGION, f'drop(msg.StagingHint, why="hints")\n{REGION}'),
    (f"{NAMES} PagesReq,", f"{NAMES} PagesReq, StagingHint,"),
    ("\ndef ask_pages(v: V, e: On) -> Output:\n", NEW_EFFECT),
    ("let=ask, do=(ask_grant,))", "let=ask, do=(hint, ask_grant))"),
)
#: a row that means something else: a part is done when its write has completed, and is not confirmed
UNCONFIRMED: tuple[Edit, ...] = (
    (
        "row(S.WRITING,         WriteCompleted,   S.AWAIT_ACK,       let=begin_ack, do=(free_slot, notify))",
        "row(S.WRITING,         WriteCompleted,   S.DONE,            let=begin_ack, do=(free_slot, notify, finish))",
    ),
    (
        "row(S.WRITING_PAGES,   WriteCompleted,   S.AWAIT_ACK,       let=begin_ack, do=(free_permit, notify))",
        "row(S.WRITING_PAGES,   WriteCompleted,   S.DONE,            let=begin_ack, do=(free_permit, notify, finish))",
    ),
    ("return do.Send(e.room, 1 << e.peer, ChunkAck(e.chunk))", "return do.Send(e.room, 0, ChunkAck(e.chunk))"),
)
#: and it is said so, by a version of its own
UNCONFIRMED_ALONE = (*UNCONFIRMED, NEWER[0], ALONE)
PREFILL, DECODE = Mix("prefill", first=True), Mix("decode", first=True)


def searched(name: str, folder: Path, mix: Mix, **changes: Any) -> Result:
    return check_beside(name, replace(CONFIGS[name], **changes), folder, mix)


@pytest.mark.parametrize("mix", [PREFILL, DECODE], ids=str)
def test_the_same_build_beside_itself_has_the_states_of_one(tmp_path: Path, mix: Mix) -> None:
    found, alone = searched("drop", build(tmp_path), mix), check("drop", CONFIGS["drop"])
    assert not found.violations and not alone.violations
    assert (found.states, found.transitions, found.depth) == (alone.states, alone.transitions, alone.depth)


def test_rooms_that_could_be_exchanged_are_told_apart_beside_another_build(tmp_path: Path) -> None:
    """The exchange of two rooms knows one build's form alone, so more states are left than in one build."""
    found = searched("state-two-rooms", build(tmp_path), DECODE)
    assert CONFIGS["state-two-rooms"].exchanges and not found.violations
    assert found.ended == "exhausted" and found.states > check("state-two-rooms", CONFIGS["state-two-rooms"]).states


@pytest.mark.parametrize("edits", [NEWER, HINT], ids=["a field more", "a message more"])
@pytest.mark.parametrize("name", ["smoke", "drop"])
def test_what_is_only_added_works_with_us_on_either_side(tmp_path: Path, name: str, edits: tuple[Edit, ...]) -> None:
    folder = build(tmp_path, *edits)
    for mix in (PREFILL, DECODE):
        found = searched(name, folder, mix)
        assert found.ended == "exhausted" and not found.violations, [each.story() for each in found.violations]


def test_ranks_that_crash_come_back_as_the_other_build_in_the_middle_of_a_room(tmp_path: Path) -> None:
    folder, counts = build(tmp_path, *NEWER), set()
    config = replace(CONFIGS["smoke"], chunks=1, budget=Budget(crash=1))
    ours = check("smoke", config)
    for mix in mixes(config):
        found = check_beside("smoke", config, folder, mix)
        assert found.ended == "exhausted" and not found.violations, [each.story() for each in found.violations]
        counts.add((found.states, found.transitions))
    assert len(mixes(config)) == 4 and counts == {(ours.states, ours.transitions)}


def test_a_row_that_means_something_else_is_found_where_the_two_builds_meet(tmp_path: Path) -> None:
    folder = build(tmp_path, *UNCONFIRMED)
    with beside(folder, OTHER):
        other = OtherBuild()
        alone = other.get("verify.check.search.check")("smoke", other.config(CONFIGS["smoke"]))
    assert not alone.violations, "two ranks of that build work together"
    (tale,) = searched("smoke", folder, DECODE).violations
    assert tale.property == "L3" and "AWAIT_ACK" in tale.text


@pytest.mark.parametrize("mix", [PREFILL, DECODE], ids=str)
def test_a_version_of_its_own_has_it_refused(tmp_path: Path, mix: Mix) -> None:
    folder = build(tmp_path, *UNCONFIRMED_ALONE)
    found = searched("handshake", folder, mix, misfit="build", chunks=1)
    assert found.ended == "exhausted" and not found.violations, [each.story() for each in found.violations]
    assert "failure here" in found.sights and "success here" not in found.sights


def test_the_command_searches_both_sides_and_says_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = build(tmp_path, *UNCONFIRMED)
    assert cli.main(["check", "smoke", "--beside", str(folder), "--quiet"]) == 1
    said = capsys.readouterr().out
    assert "smoke: decode ranks are of the other build" in said and "L3" in said
    assert cli.main(["check", "smoke", "--beside", str(folder), "--json", "--quiet"]) == 1
    names = [each["name"] for each in json.loads(capsys.readouterr().out)["runs"]]
    assert len(names) == 2


def test_what_cannot_be_mixed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="there is no package kvproto in"), beside(tmp_path, OTHER):
        pass
    with pytest.raises(ArgumentError, match="time has numbers"):
        searched(next(name for name, config in CONFIGS.items() if config.timed), build(tmp_path), DECODE)
