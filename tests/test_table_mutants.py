"""Mutants of the tables: their operators and judges, and a seeded sample in which each is noticed.

The whole takes hours (`make night`).  The sample is drawn anew by night, from the day, which is printed.
"""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from support.night import NIGHT, by_night

from kvproto.cli.ending import FOUND, WELL
from kvproto.errors import ArgumentError
from kvproto.fsm.machine import machine_for
from kvproto.fsm.routing import Routes
from kvproto.fsm.vocabulary import Event
from kvproto.protocol import effects as do
from kvproto.protocol.events import BatchCompleted
from kvproto.protocol.states import DGrant, PWrite
from kvproto.protocol.tables import links
from kvproto.protocol.tables.decode_grant import DGrantValue, as_agreed, gives_up
from kvproto.protocol.tables.prefill_write import PWriteValue, prefill_write
from kvproto.protocol.timing import Timing
from kvproto.rank import decode
from kvproto.rank.base import Rank
from kvproto.verify.cli import mutate_command
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.mutate import table_gate
from kvproto.verify.mutate.changed_functions import conditions, fields, negated, without_condition, without_field
from kvproto.verify.mutate.commuting import PLACES, place_of, why_apart
from kvproto.verify.mutate.table_judges import Effort, judge
from kvproto.verify.mutate.table_nursery import FiredTest, TableNursery, TableQuestions, lines_of_mutant
from kvproto.verify.mutate.table_operators import OPERATORS, SUBJECTS, TableMutant, mutants, sample
from kvproto.verify.mutate.verdicts import EQUAL, Verdict, append, read, shard, survivors
from kvproto.verify.testing.simulation import FAULTS, Simulation

ROOT = Path(__file__).parent.parent
COUNT = by_night(400, by_day=28)


@cache
def every() -> list[TableMutant]:
    """All mutants; not when the file is loaded, which every process of a run does."""
    return mutants()


NOTHING = Effort(worlds_s=0.0)


def named(part: str) -> TableMutant:
    """The one mutant whose name ends so."""
    (found,) = [each for each in every() if each.name.endswith(part)]
    return found


def test_every_operator_makes_mutants_and_no_two_have_one_name() -> None:
    assert {each.operator for each in every()} == set(OPERATORS)
    assert {each.table for each in every()} == set(SUBJECTS)
    assert len({each.name for each in every()}) == len(every())


def test_a_mutant_changes_one_thing_and_the_bench_puts_it_back() -> None:
    def now() -> list[object]:
        found: list[object] = []
        for each in SUBJECTS.values():
            found += each.routes if isinstance(each, Routes) else each.rows
            found += [] if isinstance(each, Routes) else [each.timers.copy(), each.periods.copy(), each.tries]
        return found

    before = now()
    for mutant in sample(every(), 150, 1):
        # a function that times a state touches the rows of its timer, and stands in one place
        most = len(mutant.touched) if mutant.operator == "body" else 1
        with TablePatch() as bench:
            mutant.plant(bench)
            after = now()
            gone = len(before) - len(after)
            changed = sum(old is not new and old != new for old, new in zip(before, after, strict=False))
            expected = gone == 1 if mutant.operator in ("close", "row") else gone == 0 and 1 <= changed <= most
            assert expected, mutant.name
        assert now() == before, mutant.name


def test_a_sample_has_of_each_operator_and_is_its_seed() -> None:
    assert {each.operator for each in sample(every(), len(OPERATORS), 1)} == set(OPERATORS)
    assert sample(every(), 40, 1) == sample(every(), 40, 1) != sample(every(), 40, 2)


def test_a_guard_loses_one_condition_and_a_change_one_field() -> None:
    class Part:
        peer, grant, chunk = 1, 0, 0

    assert len(conditions(as_agreed)) == 2
    by_pages = DGrantValue(DGrant.FILLING, writers=1, by_pages=2, grant=5)
    assert not as_agreed(by_pages, Part, 0.0)  # type: ignore[arg-type]
    assert without_condition(as_agreed, 1)(by_pages, Part, 0.0)
    assert negated(as_agreed)(by_pages, Part, 0.0)
    assert fields(gives_up) == ["asked", "by_pages"]
    less = without_field(gives_up, 1)(by_pages, Part, 0.0)
    assert (less.asked, less.by_pages) == (2, 2) and less.state is DGrant.FILLING


def test_steps_are_compiled_of_the_changed_function_and_whoever_asks_it_has_it() -> None:
    def step(value: PWriteValue) -> PWriteValue:
        new, _ = machine_for(prefill_write, Timing()).step(value, BatchCompleted(1, 0, 0), 0.0)
        return new

    last, first = PWriteValue(PWrite.IN_FLIGHT, flying=1), PWriteValue(PWrite.POSTING, flying=1)
    with TablePatch() as bench:
        named("prefill_write: last_flies - return v.flying != 1").plant(bench)
        assert step(last).state is PWrite.IN_FLIGHT
        assert step(first).flying == 0  # of another function
    assert step(last).state is PWrite.COMPLETED
    with TablePatch() as bench:
        named("decode_grant: in_doubt - return None").plant(bench)
        assert vars(decode)["in_doubt"](DGrantValue(DGrant.FILLING)) is None
    assert vars(decode)["in_doubt"](DGrantValue(DGrant.FILLING)) == 0


def test_a_helper_touches_the_rows_of_all_that_ask_it_in_both_tables_of_its_file() -> None:
    waiting = named("decode_grant: _waiting - return None")
    assert {(table, row.event.__name__) for table, row in waiting.touched} == {("decode_grant", "SpaceUsable")}
    alike = named("prefill_link: same_epoch - return None")
    assert {table for table, _ in alike.touched} == {"prefill_link", "decode_link"} and alike.compares
    tried = named("decode_link: silent_so_far - return None")
    assert {row.event.__name__ for _, row in tried.touched} == {"TimerFired"} and not tried.compares


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("decode_grant: FILLING PartArrived [last_staged] - to NEW", "proof"),
        ("decode_link: AWAIT_RETURN TimerFired [tries_left] - not again", "lint"),
        ("decode_grant: FILLING PartArrived [last_staged] - negated", "proof"),
        ("decode_grant: FILLING RoomStopped - row", "lint"),
        ("decode_group: PREPARING LinkEnded - tell_unlinked", "proof"),
        ("decode_group: NEW GroupPrepared - row", "lint"),
        ("prefill_send: AWAIT_CREDIT CreditTaken - row", "lint"),
        ("prefill_room: OPEN AuxProvided [first_aux] - not again", "proof"),
        ("prefill_room: AWAIT_ENGINE EngineOpened - own without work", "proof"),
        ("prefill_room: AWAIT_NOTED PeerNoted - no drop", "proof"),
        ("prefill_send: GATHERING - timer flight", "proof"),
        ("prefill_room: OPEN - no period of its own", "proof"),
        ("prefill: any [LinkIs.STRANGER] drop - not there", "proof"),
        ("decode_room: AWAIT_PEERS AuxLanded [first_aux] - have_aux without traceparent", "proof"),
        ("prefill_write: make_pages - return do.PreparePages(e.room, e.chunk, e.peer, e.pages, e.to)", "proof"),
        ("decode_grant: say_denied - return do.Send(e.room, StagingRefused(e.chunk), 1 << e.peer)", "proof"),
        ("decode_link: same_call_misfit - return agreed(e, v, now) and bool(e.fault)", "proof"),
        ("decode_link: AWAIT_WELCOME CallAsked [wanted_again] - without v.leaving", EQUAL),
    ],
)
def test_the_cheapest_judge_that_can_tell_is_named(name: str, who: str) -> None:
    verdict = judge(named(name), NOTHING)
    assert (verdict.judge, verdict.killed) == (who, who != EQUAL), verdict


def test_a_mutant_of_called_groups_is_played_in_their_worlds() -> None:
    verdict = judge(named("decode_group: CALLING RanksCalled [linked] - to PREPARING"), Effort())
    assert (verdict.judge, verdict.by) == ("world", "called: kept"), verdict


def test_a_world_is_asked_by_a_hint_first() -> None:
    silent = named("prefill_room: UNKNOWN PeerAnnounced - to AWAIT_PEERS")
    assert judge(silent, NOTHING).judge == ""
    assert judge(silent, NOTHING, "announce").by == "announce: S10"
    beat = named("prefill: Heartbeat [] route - not there")
    assert judge(beat, NOTHING).judge == "lint"


def test_reasons_are_for_mutants_that_there_are_and_tests_are_files(tmp_path: Path) -> None:
    known = table_gate.load(ROOT)
    assert all((ROOT / test.removeprefix("--deselect=").partition("::")[0]).is_file() for test in known.tests)
    assert set(known.kills) & {each.name for each in every()}
    with pytest.raises(ArgumentError, match="own tree"):
        table_gate.load(tmp_path)
    with pytest.raises(ArgumentError, match="no operator"):
        mutants(operators=["turn"])
    with pytest.raises(ArgumentError, match="no table"):
        mutants(["none"])


def test_a_log_is_taken_up_again_and_shards_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    asked = sample([each for each in every() if each.operator != "swap"], 9, 2)  # what commutes needs no verdict
    first, second, digest = shard(asked, 1, 2), shard(asked, 2, 2), table_gate.digest(ROOT, asked)
    assert sorted(first + second) == asked
    for each in first:
        append(one, Verdict(each, "", "", 0.5), digest)
        append(one, Verdict(each, "world", "drop: L1", 1.0), digest)
        append(one, Verdict(each, "", "", 0.5), digest)
    ours = ["--tables", "--operator", "period", "--from"]
    assert mutate_command.main([*ours, str(one)]) == FOUND, "a verdict that is missing is no good one"
    assert "Not tried yet: " in capsys.readouterr().out
    periods = mutants(operators=["period"])
    for each in periods:
        append(two, Verdict(each, "proof", "R", 0.5), digest)
    assert mutate_command.main([*ours, str(two)]) == WELL
    assert f"| all | {len(periods)} | 0 | {len(periods)} | " in capsys.readouterr().out
    for each in second:
        append(two, Verdict(each, "", "", 0.5), digest)
    found = read([one, two], asked, digest)
    assert sorted(found) == asked
    assert sorted(each.mutant for each in found.values() if each.killed) == first
    changed = tmp_path / "changed.jsonl"
    changed.write_text(re.sub('"digest":"[0-9a-f]+"', '"digest":"00000000"', one.read_text()))
    assert read([changed], asked, digest) == {}
    one.write_text('{"name": "x"}\n')
    with pytest.raises(ArgumentError, match=r"one\.jsonl:1 is no verdict"):
        read([one], asked, digest)


#: rows that neither lint, proofs nor worlds miss, and the test that looks at the first one
SILENT, LOOKS = "prefill_send: NEW WriteFailed - row", "test_sends.py::test_late_failures"
UNSEEN = "decode_grant: SCATTERING SpaceUsable - row"
#: tests that look at rows, and one that fires rows on ranks
TESTS = """
from kvproto.protocol.events import WriteFailed
from kvproto.protocol.states import PSend
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.verify.testing.simulation import Simulation

def test_rooms():
    assert not Simulation(1, 3, ()).run().breach

def test_late_failures():
    assert any(row.source is PSend.NEW and row.event is WriteFailed for row in prefill_send.rows)

def test_rows():
    assert prefill_send.rows
"""


def told_by(root: Path, reasons: table_gate.TableReasons, names: list[str]) -> list[Verdict[TableMutant]]:
    """The verdicts of these mutants with these tests."""
    told: list[Verdict[TableMutant]] = []
    found = table_gate.run(root, reasons, [named(name) for name in names], NOTHING.worlds_s, 1, told.append)
    assert sorted(told, key=lambda each: each.mutant) == found
    return found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def test_it():\n    assert False\n", "::test_it fails"),
        ("import pytest, time\n@pytest.mark.timeout(0.1)\ndef test_it():\n    time.sleep(60)\n",
         "::test_it took longer than 0.1 s"),
        ("import os\ndef test_it():\n    os.abort()\n", "::test_it ended its process"),
        ("import os\nfrom signal import SIGXCPU\ndef test_it():\n    os.kill(os.getpid(), SIGXCPU)\n",
         "::test_it used up its processor time"),
        ("import nothing\n", "the collection of tests fails"),
    ],
)  # fmt: skip
def test_a_test_that_fails_anyway_is_no_witness_and_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "test_broken.py").write_text(f"def test_before():\n    pass\n{text}")
    reasons = table_gate.TableReasons(["test_broken.py"], {})
    with pytest.raises(ArgumentError, match=f"{told} with the tables as they are"):
        told_by(tmp_path, reasons, [SILENT])


def test_the_tests_are_asked_about_what_nobody_else_noticed(tmp_path: Path) -> None:
    (tmp_path / "test_sends.py").write_text(TESTS)
    found = told_by(tmp_path, table_gate.TableReasons(["test_sends.py"], {}), [SILENT, UNSEEN])
    assert [(each.judge, each.by) for each in found] == [("", ""), ("test", LOOKS)]
    explained = table_gate.TableReasons(["test_sends.py"], {"row": {SILENT: "why"}})
    assert told_by(tmp_path, explained, [SILENT])[0].judge == "", "a reason spares the tests"


def test_the_test_that_noticed_a_mutant_before_is_asked_alone(tmp_path: Path) -> None:
    (tmp_path / "test_sends.py").write_text(TESTS + "\ndef test_broken():\n    assert False\n")
    reasons = table_gate.TableReasons(["test_sends.py"], {}, kills={SILENT: LOOKS})
    [found] = told_by(tmp_path, reasons, [SILENT])
    assert (found.judge, found.by) == ("test", LOOKS), "no other test has run: one of them is broken"
    for stale in ("test_sends.py::test_rows", "test_sends.py::test_broken", "test_sends.py::test_gone"):
        with pytest.raises(ArgumentError, match="test_broken fails with the tables as they are"):
            told_by(tmp_path, msgspec.structs.replace(reasons, kills={SILENT: stale}), [SILENT])


def test_tests_are_asked_that_fire_the_row_and_the_one_that_noticed_it_first() -> None:
    mutant = named(SILENT)
    ask = TableQuestions(lambda each: Verdict(each, "", "", 0.0), lambda _: False, {mutant.name: "known"})
    nursery = TableNursery([], ask, lambda _: None)
    line = ("prefill_send", mutant.place)
    assert lines_of_mutant(mutant) == frozenset({line})
    nursery._fired = [
        FiredTest("slow", 9.0, frozenset({line})), FiredTest("known", 8.0, frozenset({line, ("x", 1)})),
        FiredTest("looks", 1.0, frozenset()), FiredTest("another", 1.0, frozenset({("prefill_write", 99)})),
    ]  # fmt: skip
    assert [each.test for each in nursery._able(mutant)] == ["known", "looks", "slow"]
    nursery._noticed[line]["slow"] += 1
    assert [each.test for each in nursery._able(mutant)] == ["known", "slow", "looks"]
    assert lines_of_mutant(named("prefill_send: GATHERING - timer flight")) is None
    stranger = named("prefill: any [LinkIs.STRANGER] drop - not there")
    assert lines_of_mutant(stranger) == frozenset({("prefill", stranger.place)})


@pytest.mark.timeout(600)  # a process for each test that is asked
def test_a_seeded_sample_leaves_no_survivor_without_a_reason(capfd: pytest.CaptureFixture[str]) -> None:
    known, seed = table_gate.load(ROOT), int(time.strftime("%Y%m%d")) if NIGHT else 153
    with capfd.disabled():
        print(f"\nmutants of the tables: {COUNT}, seed {seed}") if NIGHT else None
    told: list[Verdict[TableMutant]] = []
    found = table_gate.run(ROOT, known, sample(every(), COUNT, seed), table_gate.EFFORT_S, 1, told.append)
    assert [each.mutant.name for each in survivors(known, found)] == []
    assert sum(each.killed for each in found) > len(found) / 2
    assert len(told) <= len(found) == COUNT and f"| all | {COUNT} |" in table_gate.table(known, found)


# ------------------------------------------------------------------------------------------ effects in another order
def books(rank: Any) -> str:
    """The rank's loans and queues."""
    names = ("free_slots", "slot_of", "slot_queue", "credits", "credit_queues", "permits", "permit_queue", "watch")
    return repr([getattr(rank, name, None) for name in (*names, "space_queue", "chunk_of")])


def test_what_may_be_exchanged_is_what_a_rank_keeps_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each effect touches its one declared place, in simulated worlds with every fault."""
    seen: dict[str, set[type]] = {name: set() for name in PLACES}
    made = Rank.__init__

    def watched(rank: Any, *args: Any, **options: Any) -> None:
        made(rank, *args, **options)
        rank.inner = Inner(rank)

    class Inner(dict[type, Any]):
        """The handlers, each looked at before and after."""

        def __init__(self, rank: Any) -> None:
            self.rank = rank
            for kind, act in rank.inner.items():
                self[kind] = act

        def __ior__(self, others: Any) -> Any:  # type: ignore[misc]
            for kind, act in others.items():
                self[kind] = act
            return self

        def __setitem__(self, kind: type, act: Any) -> None:
            place, rank = place_of(kind), self.rank
            if not place or issubclass(kind, Event):
                super().__setitem__(kind, act)
                return

            def looked_at(effect: Any) -> None:
                queue, out, lent = list(rank._queue), list(rank._out), books(rank)
                act(effect)
                seen[place].add(kind)
                assert place in ("said", "done") or rank._out == out, kind
                assert place in ("heard", "lent") or list(rank._queue) == queue, kind
                assert place != "heard" or list(rank._queue)[: len(queue)] == queue, kind
                assert place != "lent" or list(rank._queue)[len(rank._queue) - len(queue) :] == queue, kind
                assert place in ("lent", "watched") or books(rank) == lent, kind

            super().__setitem__(kind, looked_at)

    monkeypatch.setattr(Rank, "__init__", watched)
    for seed in (1, 2):
        assert Simulation(seed, 60, tuple(FAULTS), ring=4096).run().breach == ""
    assert {do.Send, do.SayHello} <= seen["said"] and do.OpenWindow in seen["heard"] and do.FreeSlot in seen["lent"]
    assert {do.StopSends, do.StopGrants, do.DrainGrants, do.AskLinks, do.RaiseLinkDown} <= seen["heard"]
    assert {do.TakeSlot, do.FreeCredit, do.LeaveQueue} <= seen["lent"]


def test_a_dialled_line_is_no_place_of_its_own() -> None:
    assert why_apart(links.raise_quiet, links.say_hello) and not why_apart(links.dial, links.say_hello)
    assert judge(named("decode_link: NEW CallAsked - say_hello before dial"), NOTHING).judge == "proof"


def test_a_left_out_effect_is_noticed_by_lint_or_proof_and_has_no_reason(tmp_path: Path) -> None:
    """A reason would say that it comes later: a world has no time, and a timer costs some."""
    effects = [each for each in every() if each.operator == "effect"]
    asked = by_night(effects, by_day=Random(31).sample(effects, 20))
    assert [each.name for each in asked if not judge(each, Effort(worlds_s=0.0, compares=False)).killed] == []
    for file in (table_gate.FILE, table_gate.LEFT_OUT_FILE):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text((ROOT / file).read_text())
    table_gate.load(tmp_path)
    name = effects[0].name
    for file, more in (
        (table_gate.FILE, f'[equivalent.effect]\n"{name}" = "it comes later"'),
        (table_gate.LEFT_OUT_FILE, f'"it comes later" = ["{name}"]'),
        (table_gate.LEFT_OUT_FILE, '"it comes later" = ["decode_room: DONE AuxLanded - rows"]'),
    ):
        text = (tmp_path / file).read_text()
        (tmp_path / file).write_text(f"{text}\n{more}\n")
        with pytest.raises(ArgumentError, match="has a reason, and is no row"):
            table_gate.load(tmp_path)
        (tmp_path / file).write_text(text)
