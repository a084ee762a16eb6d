"""One chunk, two writers, one reader: the ranks that run against a model that was written by hand from the prose."""

from __future__ import annotations

import functools
import os

import pytest
from support.witness import Rumoured, bare, changed, model, rumur

from kvproto.check.witness.chunk_search import ChunkSearchResult, explore

TROUBLED = ("empty", "full", "small")
NOBODY = {"grant NONE", "send NONE", "write STILL"}  # follow from the others
EMPTY = {"FIRST": 0, "LAST": 0}  # the empty ring alone


@functools.cache
def ranks(rings: tuple[str, ...], trouble: bool, tells: bool = False) -> ChunkSearchResult:
    return explore(rings=rings, trouble=trouble, tells=tells)


def agree(found: ChunkSearchResult, theirs: Rumoured) -> None:
    assert theirs.error == ""
    assert found.faults == [] and found.refused == {} and found.lost == 0
    assert theirs.states == sum(found.states.values())
    assert theirs.covers == {kind: found.kinds[kind] for kind in theirs.covers}
    assert found.kinds.keys() - theirs.covers.keys() == NOBODY, "every kind that occurs is compared"
    assert found.states.keys() == {ring.removeprefix("ring ") for ring in found.kinds if ring.startswith("ring ")}


def test_the_ranks_and_the_prose_have_the_same_states() -> None:
    found = ranks(TROUBLED, True)
    assert found.states == {"empty": 39180, "full": 309245, "small": 8666}
    agree(found, rumur(model("chunk.m", {}, found.kinds)))


def test_they_have_the_same_states_where_the_watermark_is_awaited() -> None:
    found = ranks(("ahead",), False)
    assert found.kinds["send WAITING"] > 0
    agree(found, rumur(model("chunk.m", {"FIRST": 3, "LAST": 3, "TROUBLE": 0}, found.kinds)))


def test_they_have_the_same_states_where_writes_carry_their_notification() -> None:
    found = ranks(("empty",), True, True)
    assert found.states != {"empty": ranks(TROUBLED, True).states["empty"]}
    agree(found, rumur(model("chunk.m", {"LAST": 0, "TELLS": 1}, found.kinds)))


@pytest.mark.timeout(900)
@pytest.mark.skipif(not os.environ.get("KVPROTO_NIGHT"), reason="1.4 million states: minutes (KVPROTO_NIGHT=1)")
def test_they_have_the_same_states_where_the_watermark_is_awaited_and_everything_fails() -> None:
    found = ranks(("ahead",), True)
    agree(found, rumur(model("chunk.m", {"FIRST": 3, "LAST": 3}, found.kinds)))


#: (what it is, a passage, what stands there instead, what is said)
WRONG = [
    ("the fan-in counts messages", "if forall v: Writer do arrived[v] end then", "if arrived[w] then", "S"),
    ("no quarantine", "no_grant();\n      grant := QUARANTINED;", "free_region();\n      no_grant();", "S4"),
    ("drained too early", "send[w] := STOPPING;\n    elsif", "send[w] := NO_SEND;\n    elsif", "S4"),
    ("a lost answer to an abort", "    elsif wroom[w] != W_DRAINING then", "    elsif wroom[w] = W_UNNOTED then", "L1"),
    ("who gave up is not noted", "        by_pages[w] := true;\n        hopes[w]", "        hopes[w]", ""),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), [pytest.param(*rest, id=name) for name, *rest in WRONG])
def test_a_model_that_is_wrong_is_seen(old: str, new: str, said: str) -> None:
    found = rumur(bare(changed(model("chunk.m", EMPTY), old, new)))
    assert said in found.error
    assert found.error or found.states != ranks(TROUBLED, True).states["empty"]
