"""One chunk, two writers, one reader: running ranks, a hand-written Murphi model and Promela agree.

Each ring's world is searched once by our own search, whoever it is compared with.  A full ring in which everything
fails has nine tenths of all states: that is for the night.  So are a watermark that is awaited, and writes that carry
their notification.  By day everything fails where the ring is empty or too small, and a full one is gone through
without; of its troubles the checker has the small worlds of queues every day.
"""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from support.night import night_alone
from support.witness import Rumoured, Spun, bare, changed, model, rumur, spin
from witness.chunk_search import ChunkSearchResult, explore
from witness.promela import FILES, FOLDER

by_night_alone = night_alone("hundreds of thousands of states")
#: the others are searched for the better part of a minute each
BY_DAY = ("chunk_small",)
TROUBLED = ("empty", "full", "small")
NOBODY = {"grant NONE", "send NONE", "write STILL"}  # follow from the others
EMPTY, SMALL = {"FIRST": 0, "LAST": 0}, {"FIRST": 2, "LAST": 2}  # one ring alone


@functools.cache
def world(ring: str, trouble: bool, tells: bool) -> ChunkSearchResult:
    return explore(rings=(ring,), trouble=trouble, tells=tells)


def ranks(rings: tuple[str, ...], trouble: bool, tells: bool = False) -> ChunkSearchResult:
    """The states found in these rings' worlds together."""
    whole = ChunkSearchResult({}, 0, 0, {}, 0, 0, {}, [])
    for found in (world(ring, trouble, tells) for ring in rings):
        whole.states |= found.states
        whole.transitions += found.transitions
        whole.moves += found.moves
        whole.kinds = dict(Counter(whole.kinds) + Counter(found.kinds))
        whole.rests += found.rests
        whole.lost += found.lost
        whole.refused = dict(Counter(whole.refused) + Counter(found.refused))
        whole.faults += found.faults
    return whole


def agree(found: ChunkSearchResult, theirs: Rumoured) -> None:
    assert theirs.error == ""
    assert found.faults == [] and found.refused == {} and found.lost == 0
    assert theirs.states == sum(found.states.values())
    assert theirs.covers == {kind: found.kinds[kind] for kind in theirs.covers}
    assert found.kinds.keys() - theirs.covers.keys() == NOBODY, "every kind that occurs is compared"
    assert found.states.keys() == {ring.removeprefix("ring ") for ring in found.kinds if ring.startswith("ring ")}


@pytest.mark.parametrize(
    ("place", "ring", "count"), [pytest.param(0, "empty", 87954, marks=by_night_alone), (2, "small", 19538)]
)
def test_the_ranks_and_the_prose_have_the_same_states(place: int, ring: str, count: int) -> None:
    found = ranks((ring,), True)
    assert found.states == {ring: count}
    agree(found, rumur(model("chunk.m", {"FIRST": place, "LAST": place}, found.kinds)))


@by_night_alone
def test_they_have_the_same_states_in_all_rings_together() -> None:
    found = ranks(TROUBLED, True)
    assert found.states == {"empty": 87954, "full": 693132, "small": 19538}
    agree(found, rumur(model("chunk.m", {}, found.kinds)))


@pytest.mark.parametrize(
    ("place", "ring", "kind"),
    [(1, "full", "grant QUEUED"), pytest.param(3, "ahead", "send WAITING", marks=by_night_alone)],
)
def test_they_have_the_same_states_where_is_waited_and_nothing_fails(place: int, ring: str, kind: str) -> None:
    found = ranks((ring,), False)
    assert found.kinds[kind] > 0
    agree(found, rumur(model("chunk.m", {"FIRST": place, "LAST": place, "TROUBLE": 0}, found.kinds)))


@by_night_alone
def test_they_have_the_same_states_where_writes_carry_their_notification() -> None:
    found = ranks(("empty",), True, True)
    assert found.states != world("empty", True, False).states
    agree(found, rumur(model("chunk.m", {"LAST": 0, "TELLS": 1}, found.kinds)))


@by_night_alone
@pytest.mark.timeout(900)
def test_they_have_the_same_states_where_the_watermark_is_awaited_and_everything_fails() -> None:
    found = ranks(("ahead",), True)
    agree(found, rumur(model("chunk.m", {"FIRST": 3, "LAST": 3}, found.kinds)))


# ------------------------------------------------------------------------------------------ Promela, from the tables
def agree_with_spin(found: ChunkSearchResult, spun: Spun) -> None:
    """Spin's transitions: our moves, one that changes nothing in each state that is over, and the start."""
    assert spun.errors == 0
    assert found.faults == [] and found.lost == 0
    assert spun.stored == sum(found.states.values())
    assert spun.transitions == found.moves + found.rests + 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [name if name in BY_DAY else pytest.param(name, marks=by_night_alone) for name in FILES]
)
def test_spin_stores_as_many_states_as_our_own_search(name: str) -> None:
    about = FILES[name]
    agree_with_spin(ranks((about.ring,), about.trouble, about.tells), spin((FOLDER / f"{name}.pml").read_text()))


# ------------------------------------------------------------------------------------------ models that are wrong
#: (what it is, a passage, what stands there instead, what is said)
WRONG = [
    ("the fan-in counts messages", "if forall w: Writer do by_pages[w] | arrived[w] end then scatter(); end;",
     "scatter();", "S3"),
    ("no quarantine", "no_grant();\n      grant := QUARANTINED;", "free_region();\n      no_grant();", "S4"),
    ("drained too early", "send[w] := STOPPING;\n    elsif", "send[w] := NO_SEND;\n    elsif", "S4"),
    ("a lost answer to an abort", "    elsif wroom[w] != W_DRAINING then", "    elsif wroom[w] = W_UNNOTED then", "L1"),
    ("who gave up is not noted", "        by_pages[w] := true;\n        staged[w]", "        staged[w]", ""),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), [pytest.param(*rest, id=name) for name, *rest in WRONG])
def test_a_model_that_is_wrong_is_seen(old: str, new: str, said: str) -> None:
    found = rumur(bare(changed(model("chunk.m", EMPTY if said in ("S3", "S4") else SMALL), old, new)))
    assert said in found.error
    assert found.error or found.states != world("small", True, False).states["small"]
