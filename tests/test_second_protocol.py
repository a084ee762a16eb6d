"""The second protocol: every tool takes it, its planted bugs are found, and it runs over sockets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.night import night_alone

from examples.two_phase_commit import parties
from examples.two_phase_commit.parties import PROTOCOL, WORDS, SenderIs, make
from examples.two_phase_commit.protocol import (
    COORDINATOR,
    Begun,
    C,
    Decision,
    Inquire,
    Message,
    P,
    Prepare,
    Timing,
    Vote,
    coordinator,
    participant,
)
from examples.two_phase_commit.worlds import CHECKER, SCENES, Commit
from kvproto.cli import main
from kvproto.fsm.codec import pack
from kvproto.fsm.records import lines
from kvproto.fsm.routing import Routes
from kvproto.fsm.table import Table
from kvproto.fsm.vocabulary import Transmit
from kvproto.loop.party_loop import PartyLoop
from kvproto.verify.framework.frozen import PartyValue, freeze
from kvproto.verify.framework.scenario import Chances
from kvproto.verify.framework.search import Result, run
from kvproto.verify.framework.stage import Stage
from kvproto.verify.framework.symmetry import renamed
from kvproto.verify.framework.trace.coverage import Collector
from kvproto.verify.framework.world import World
from kvproto.verify.framework.world_steps import Steps
from kvproto.verify.framework.world_tale import _StorySearch

ROOT = Path(__file__).parent.parent
TABLES = ["--tables", "examples.two_phase_commit.parties:PROTOCOL"]
#: how much there is of each world: a change of meaning is seen in review
COUNTS = {"smoke": (37, 61), "lossy": (12_457, 52_162), "crash": (2_613, 7_146), "unable": (7_084, 26_312)}
#: and of those that take a while
LARGE = {"two": (142_405, 435_778), "crashes": (205_859, 899_271)}
Say = Callable[..., str]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """The output of a command; `code`: its exit code."""
    monkeypatch.chdir(ROOT)

    def call(*words: str, code: int = 0) -> str:
        assert main([*words, *TABLES]) == code
        said = capsys.readouterr()
        return said.out or said.err

    return call


def search(name: str) -> Result:
    return CHECKER.search(name, limit=None, memory=4_000, report=None)


# ----------------------------------------------------------------------------------------------------- lint
def test_the_tables_have_no_error(say: Say) -> None:
    assert say("lint") == "2 tables, 37 rows: no errors\n"


def test_an_error_is_told_with_its_line(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("participant", participant.value, P, initial=P.UNKNOWN, final=participant.final,
                  events=participant.events, timers=participant.timers, tombstones=True)  # fmt: skip
    table.rows = [row for row in participant.rows if row.source is not P.PREPARED]
    monkeypatch.setattr(parties, "PROTOCOL", replace(PROTOCOL, tables=(coordinator, table)))
    said = say("lint", code=1)
    assert "examples/two_phase_commit/protocol.py:" in said
    assert "nobody decides DecisionReceived in PREPARED" in said


def test_a_name_that_leads_nowhere_is_told() -> None:
    of_another_kind = "kvproto.verify.framework.lint:lint"
    for place in ("nowhere", "examples.two_phase_commit.parties:NOTHING", "no.such.module:X", of_another_kind):
        with pytest.raises(SystemExit, match="2"):
            main(["lint", "--tables", place])


# ---------------------------------------------------------------------------------------------------- check
@pytest.mark.parametrize("name", COUNTS)
def test_a_world_is_searched_to_its_end(name: str) -> None:
    result = search(name)
    assert (result.ended, result.states, result.transitions) == ("exhausted", *COUNTS[name])


@night_alone("a quarter of a million states")
@pytest.mark.parametrize("name", LARGE)
def test_a_large_world_is_searched_to_its_end(name: str) -> None:
    result = search(name)
    assert (result.ended, result.states, result.transitions) == ("exhausted", *LARGE[name])


def test_the_command_searches_lists_and_refuses(say: Say) -> None:
    assert "37 states" in say("check", "--quiet")
    listed = say("check", "--list")
    assert all(name in listed for name in (*COUNTS, *LARGE, *CHECKER.planted))
    assert "is it lossy" in say("check", "losy", code=2)
    assert "no planted bug" in say("check", "--plant", "nothing", code=2)
    assert "not all of it" in say("check", "lossy", "--limit", "100", "--quiet", code=3)
    assert json.loads(say("check", "smoke", "--json"))["states"] == COUNTS["smoke"][0]


@pytest.mark.parametrize("bug", CHECKER.planted)
def test_a_planted_bug_is_found_as_a_story(bug: str, say: Say, tmp_path: Path) -> None:
    story = say("check", "--plant", bug, "--quiet", "--save", str(tmp_path), code=1)
    assert "  1. C: its application: begin 1" in story
    assert any(f"     {expected}: " in story for expected in CHECKER.planted[bug].expect)
    (file,) = tmp_path.iterdir()
    with CHECKER.planting(bug):
        assert CHECKER.walk(file.read_text()).broken in CHECKER.planted[bug].expect
    walked = CHECKER.walk(file.read_text())
    assert walked.gone or not walked.broken, "without the bug nothing of it is left"
    assert "once " in say("replay", str(file))


def test_the_shortest_way_to_break_an_impatient_participant(say: Say) -> None:
    lines = say("check", "--plant", "impatient", "--quiet", code=1).splitlines()[1:]
    assert lines == [
        "  1. C: its application: begin 1",
        "  2. P1: hears PREPARE (txn 1) from C",
        "  3. P1: its timer of 1 ends in PREPARED  [although messages are under way]",
        "  4. P2: hears PREPARE (txn 1) from C",
        "  5. C: hears VOTE (txn 1, yes) from P1",
        "  6. C: hears VOTE (txn 1, yes) from P2",
        "     atomicity: transaction 1: C commits it, P1 aborts it",
    ]
    chart = say("check", "--plant", "impatient", "--quiet", "--diagram", code=1)
    assert "C->>P1: PREPARE (txn 1)" in chart


def test_a_crash_comes_in_the_middle_of_what_a_party_does(say: Say) -> None:
    assert "crashes after DECISION to P1, DECISION to P2" in say("check", "--plant", "tells-first", "--quiet", code=1)


def test_a_party_that_raises_is_told_and_not_only_by_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Commit, "act", act)
    (tale,) = search("smoke").violations
    assert tale.property == "stops"
    assert "OSError: the disk is full" in tale.text


def test_what_is_alike_is_exchanged_and_nothing_is_lost_by_it() -> None:
    chances = Chances(drop=1, live=False)
    alike, apart = (World(Commit(chances, participants=1, txns=2)) for _ in range(2))
    assert len(alike.swaps) == 1
    apart.swaps = []
    whole = _StorySearch("apart", apart, 4_000)
    whole.run()
    canonical = {_orbit(apart, alike, state) for state in whole.order}
    assert run(_StorySearch("alike", alike, 4_000)).states == len(canonical) < len(whole.order)


def _orbit(apart: World, alike: World, state: tuple[int, ...]) -> frozenset[object]:
    """A state and its exchange, as values: numbers differ between worlds."""
    (swap,) = alike.swaps
    views, wires = apart.views(state), [apart._queue(state, pair) for pair in apart.pairs]
    memory = [apart.steps.parties.values[number] for number in state[: apart.n]]
    said = [tuple(sorted(map(repr, (apart.messages.values[m] for m in wire)))) for wire in wires]
    other = [tuple(sorted(repr(renamed(apart.messages.values[m], swap)) for m in wire)) for wire in wires]
    left = apart.budgets.values[state[-1]]
    plain = repr([(value.life, _machines(value.memory, {}), value.around) for value in memory])
    around = [apart.scenario.renamed(view.around, swap) for view in views]
    exchanged = repr([(v.life, _machines(v.memory, {1: 2, 2: 1}), a) for v, a in zip(memory, around, strict=True)])
    return frozenset({(plain, *said, left), (exchanged, *other, left)})


def _machines(memory: Any, names: dict[int, int]) -> object:
    stores = memory[0]  # what is at hand is the same for all
    return [[sorted((names.get(key, key), repr(value)) for key, value in part) for part in store] for store in stores]


def test_every_row_that_can_fire_is_fired_in_the_worlds() -> None:
    with Collector(PROTOCOL.counted).installed() as counts:
        for name in COUNTS:
            CHECKER.search(name, limit=None, memory=2_000, report=None)
    left = [row for table in PROTOCOL.tables for row in counts.missing(table)]
    assert {row.verb for row in left} == {"refuse"}, "what no party of these worlds can cause"
    assert len(left) == sum(row.verb == "refuse" for table in PROTOCOL.tables for row in table.rows)


# ----------------------------------------------------------------------------------------------- draw, trace
def test_machines_are_drawn_in_every_form(say: Say, tmp_path: Path) -> None:
    assert say("draw", "participant").startswith("flowchart TD")
    for form, suffix in (("svg", "svg"), ("md", "md"), ("mermaid", "mmd")):
        say("draw", "--format", form, "--out", str(tmp_path))
        assert sorted(path.stem for path in tmp_path.glob(f"*.{suffix}")) == ["coordinator", "participant"]
    assert "promised, and in the log" in (tmp_path / "participant.md").read_text()
    assert "there is no machine" in say("draw", "room", code=2)


def test_scenes_are_played_and_drawn(say: Say) -> None:
    chart = say("draw", "--scene", "crash")
    assert "participant P1 as participant 1" in chart
    assert "Note over C: log: Recovered(word commit)" in chart
    assert "P2--xC: INQUIRE txn 1" in chart
    assert "there is no scene" in say("draw", "--scene", "wedding", code=2)


def test_a_trace_is_told_replayed_and_shown(say: Say, tmp_path: Path) -> None:
    files = []
    for number, log in enumerate(SCENES[1].logs()):
        files.append(str(tmp_path / f"{number}.jsonl"))
        Path(files[-1]).write_text("".join(line + "\n" for line in lines(log, WORDS)))
    assert say("trace", *files) == "transaction 1: 11 steps\n"
    story = say("trace", *files, "--about", "1")
    assert "VoteReceived(peer 2, yes)   coordinator: AWAIT_VOTES -> COMMITTED" in story
    assert "=> WriteLog(word commit)" in story
    assert "sequenceDiagram" in say("trace", *files, "--format", "mermaid")
    assert json.loads(say("trace", *files, "--format", "json"))[0]["kind"]
    assert "transaction 9 is not in these traces" in say("trace", *files, "--about", "9", code=2)
    assert say("replay", *files).count("as the tables say") == len(files) == 4
    say("inspect", *files, "--out", str(tmp_path / "t.html"))
    assert 'id="participant.PREPARED"' in (tmp_path / "t.html").read_text()
    path = Path(files[-1])
    path.write_text(path.read_text().replace('"to": "COMMITTED"', '"to": "ABORTED"', 1))
    assert "the tables say  COMMITTED" in say("replay", *files, code=1)


# ------------------------------------------------------------------------------------------- over sockets
def test_processes_commit_although_the_coordinator_is_killed(say: Say, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.two_phase_commit.run", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the coordinator is dead: SIGKILL" in done.stdout
    assert "outcomes so far: none" in done.stdout
    traces = sorted(map(str, tmp_path.glob("*.jsonl")))
    assert say("replay", *traces).count("as the tables say") == 4
    assert "[log] Recovered(word commit)" in say("trace", *traces, "--about", "1")


def test_what_is_no_message_and_who_is_no_party_changes_nothing() -> None:
    addresses = {0: "tcp://127.0.0.1:*", 1: "tcp://127.0.0.1:*"}
    loop = PartyLoop(make(COORDINATOR, {0: "C", 1: "P1"}, Timing()), addresses, Message, {})
    try:
        peer = loop.control.connect(loop.control.address or "")
        odd = b"nonsense", pack(1, Vote(1, yes=True), 0), pack(7, Inquire(1)), pack(1, Decision(1, commit=True))
        for frame in odd:
            loop.control.send(peer, frame)
        end = time.monotonic() + 10.0
        while len(loop.reports) + sum(loop.member.counts.values()) < len(odd) and time.monotonic() < end:
            loop.poll()
            loop.wait(0.005)
        assert loop.counts["malformed frames"] == 2
        assert loop.member.counts == {"messages of strangers": 1, "messages for the other side": 1}
        assert len(loop.reports) == 2
    finally:
        loop.close()


# ---------------------------------------------------------------------------------------------- the framework
def test_a_member_speaks_to_whom_it_is_told() -> None:
    member = make(COORDINATOR, {0: "C", 1: "P1", 2: "P2"})
    begun = member.handle(Begun(5, 0b100), 0.0)
    assert [(effect.peer, effect.body.txn) for effect in begun if isinstance(effect, Transmit)] == [(2, 5)]
    assert Routes.place(SenderIs.STRANGER) == 1


def test_properties_see_a_machine_that_has_left_its_tombstone_as_it_is_now() -> None:
    steps = Steps(Commit(Chances()))
    first: PartyValue = steps.parties.values[steps.first(COORDINATOR).number]
    member: Any = steps._member(COORDINATOR, first)
    initial = member.stores["transactions"].machine.initial
    over, again = replace(initial, state=C.ABORTED), replace(initial, state=C.AWAIT_VOTES)
    member.tombs |= {1: over, 2: over}
    member.transactions[1] = again
    view = steps.view(COORDINATOR, steps.parties(first._replace(memory=freeze(member))))
    assert view.values is not None and view.values["transactions"] == {1: again, 2: over}


def test_a_stage_keeps_former_lives_and_timers_end_by_its_clock() -> None:
    stage = Stage(Commit(Chances()), lose=lambda _sender, _receiver, body: not isinstance(body, Prepare))
    stage.call(COORDINATOR, "begin 1")
    stage.run(5.0)
    states = [stage.members[number].transactions[1].state for number in (1, 2)]  # type: ignore[attr-defined]
    assert states == [P.PREPARED, P.PREPARED], "nobody hears them, and they wait"
    assert stage.members[COORDINATOR].tombs[1].state is C.ABORTED  # type: ignore[attr-defined]
    stage.crash(1)
    stage.start(1)
    assert stage.members[1].transactions[1].state is P.PREPARED  # type: ignore[attr-defined]
    assert sorted(log.head.name for log in stage.logs(WORDS)) == ["C", "P1", "P1", "P2"]
