"""More protocols: leased calls, and a lock in one file, are searched, proved, mutated and drawn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from test_docs import fits

from examples.fencing_lock import lock as fencing_lock
from examples.leased_calls.parties import CALLS, TELLING
from examples.leased_calls.tables import client
from examples.leased_calls.words import C, Granted, RunAsked
from examples.leased_calls.worlds import CHECKER, SCENES
from kvproto import fsm
from kvproto.cli import main
from kvproto.fsm.records import lines
from kvproto.verify.framework.protocol import Protocol
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.trace.coverage import Collector
from kvproto.verify.mutate.protocol_gate import ProtocolGate

ROOT = Path(__file__).parent.parent
PLACES = {
    "calls": "examples.leased_calls.parties:CALLS", "lock": "examples.fencing_lock.lock:LOCK",
    "commit": "examples.two_phase_commit.parties:PROTOCOL",
}  # fmt: skip
#: how much there is of each world: a change of meaning is seen in review
COUNTS = {"calm": (7, 6), "lossy": (4_268, 16_358), "crash": (3_283, 8_884)}
Say = Callable[..., str]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """The output of a command about a protocol; `code`: its exit code."""
    monkeypatch.chdir(ROOT)

    def call(protocol: str, *words: str, code: int = 0) -> str:
        assert main([*words, "--tables", PLACES[protocol]]) == code
        said = capsys.readouterr()
        return said.out or said.err

    return call


@pytest.mark.parametrize(("protocol", "rows"), [("calls", "2 tables, 46 rows"), ("lock", "3 tables, 14 rows")])
def test_tables_have_no_error(protocol: str, rows: str, say: Say) -> None:
    assert say(protocol, "lint") == f"{rows}: no errors\n"


@pytest.mark.parametrize("name", COUNTS)
def test_a_world_of_calls_is_searched_to_its_end(name: str) -> None:
    result = CHECKER.search(name, limit=None, memory=4_000, report=None)
    assert (result.ended, result.violations) == ("exhausted", [])
    assert (result.states, result.transitions) == COUNTS[name]


def test_every_row_of_calls_that_can_fire_is_fired_in_the_worlds() -> None:
    with Collector(CALLS.counted).installed() as counts:
        for name in COUNTS:
            CHECKER.search(name, limit=None, memory=2_000, report=None)
    left = {str(row) for table in CALLS.tables for row in counts.missing(table) if row.verb != "refuse"}
    at_once = {f"RUNNING --{event}--> RUNNING: ignore" for event in ("LeaseAsked", "RunAsked")}
    assert left == at_once, "a handler returns at once in these worlds"


def test_the_lock_is_a_page_of_text_and_its_worlds_hold(say: Say) -> None:
    text = Path(fencing_lock.__file__).read_text()
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 150
    assert "exhausted" in say("lock", "check", "--quiet")
    with TablePatch() as bench:
        (row,) = bench.rows(fencing_lock.storage, fencing_lock.G.GUARDED, fencing_lock.Write, "is_older")
        bench.drop(fencing_lock.storage, [row])
        assert "order: the storage goes back in time" in say("lock", "check", "--quiet", code=1)


def test_bugs_that_are_planted_are_noticed(say: Say) -> None:
    for protocol, count in (("calls", 3), ("commit", 3)):
        assert f"{count} of {count} caught" in say(protocol, "check", "--mutants")
    assert "plants nothing" in say("lock", "check", "--mutants", code=2)


# ------------------------------------------------------------------------------------------------ proofs
@pytest.mark.parametrize("protocol", PLACES)
def test_claims_are_proved(protocol: str, say: Say) -> None:
    pytest.importorskip("z3")
    proofs = json.loads(say(protocol, "prove", "--json"))
    assert all(proof["pairs"] and not proof["failures"] for proof in proofs)
    assert "there is nothing to prove of 'ring'" in say(protocol, "prove", "ring", code=2)


def unproved() -> list[tuple[str, str]]:
    """Each claim about the client that does not follow from the rows as they are now."""
    proof = pytest.importorskip("kvproto.verify.prove.proof")
    prover = proof.KeyedProver(CALLS.claimed()["client"], CALLS.timing)
    return [(each.claim, each.text) for pair in prover.pairs for each in prover.prove(pair).failures]


def test_a_client_that_takes_a_second_lease_breaks_a_claim() -> None:
    with TablePatch() as bench:
        rows = bench.rows(client, C.AWAIT_RESULT, Granted)
        bench.change(client, rows, verb="row", let=client.rows[1].let, do=client.rows[1].do)
        found = unproved()
    assert any(name == "once" and text.startswith("A call that may have run keeps its lease") for name, text in found)


def test_a_step_about_another_machine_is_not_proved() -> None:
    def other(v: fsm.Value, e: Granted) -> fsm.Output:
        return RunAsked(e.call + 1, e.life)

    with TablePatch() as bench:
        bench.change(client, [client.rows[1]], do=(other,))
        assert "key" in {name for name, _ in unproved()}


# ----------------------------------------------------------------------------------------------- mutants
@pytest.mark.parametrize(("protocol", "count"), [("calls", 30), ("commit", 24), ("lock", 60)])
def test_no_mutant_of_a_sample_survives(protocol: str, count: int, say: Say) -> None:
    pytest.importorskip("z3")
    said = say(protocol, "mutate", "--sample", str(count), "--jobs", "1")
    assert f"| all | {count} |" in said
    assert "SURVIVES" not in said


def test_mutants_of_another_protocol_are_its_own() -> None:
    gate = ProtocolGate(PLACES["calls"])
    with gate.at_work():
        names = {each.table for each in gate.every(ROOT, gate.load(ROOT))}
    assert names == {"client", "server"}
    with pytest.raises(SystemExit, match="2"):
        main(["mutate", "--record", "--sample", "1", "--tables", PLACES["calls"]])


# ----------------------------------------------------------------------------------- export, draw, trace
@pytest.mark.parametrize("protocol", PLACES)
def test_an_export_has_its_schema(protocol: str, say: Say) -> None:
    document, schema = json.loads(say(protocol, "export")), json.loads(say(protocol, "export", "--schema"))
    assert fits(document, schema) == []
    assert document["machines"][0]["rows"] and document["messages"] and document["timers"]


def test_calls_are_drawn_told_and_replayed(say: Say, tmp_path: Path) -> None:
    assert say("calls", "draw", "server").startswith("flowchart TD")
    assert "maybe" in say("calls", "draw", "--scene", "maybe")
    files = []
    for number, log in enumerate(SCENES[0].logs()):
        files.append(str(tmp_path / f"{number}.jsonl"))
        Path(files[-1]).write_text("".join(line + "\n" for line in lines(log, TELLING)))
    assert "Tell(end done, result 7)" in say("calls", "trace", *files, "--about", "1")
    assert say("calls", "replay", *files).count("as the tables say") == len(files) == 2


# -------------------------------------------------------------------------------------------------- keys
class Flag(fsm.Event, frozen=True):
    """It has happened; to which call, nobody says."""


class Late(fsm.Event, frozen=True):
    """It names its machine last."""

    life: int
    call: int


class Hush(fsm.Body, tag="HUSH", frozen=True):
    """Nothing is said."""


@pytest.mark.parametrize(("thing", "text"), [
    (Flag, "the first field of Flag must be the key of a client"),
    (Late, "the first field of Late must be the key of a client"),
    (Hush, "the first field of HUSH must be the key of a machine"),
])  # fmt: skip
def test_what_does_not_name_its_machine_first_is_refused(thing: Any, text: str) -> None:
    class Told(type(TELLING)):  # type: ignore[misc]
        """With one name more."""

    told = Told(CALLS.tables, TELLING.timing, TELLING.digest, (), fsm.Body)
    told.events, told.messages = dict(TELLING.events), dict(TELLING.messages)
    if issubclass(thing, fsm.Body):
        told.messages["HUSH"] = thing

    class Mine(Protocol, frozen=True):
        """A protocol that is told so."""

        def told(self) -> fsm.Telling:
            return told

    fields = {name: getattr(CALLS, name) for name in CALLS.__struct_fields__}
    with TablePatch() as bench:
        if not issubclass(thing, fsm.Body):
            bench.ignore(client, tuple(C), thing)
            bench.patch(client, "_events", (*client.events, thing))
        found = [str(each) for each in replace(Mine(**fields), sources=None).lint([])]
    assert [text in each and "keyless" in each for each in found] == [True]


def test_a_route_without_a_function_needs_the_fields() -> None:
    routes = fsm.Routes("client", (Hush,))
    with pytest.raises(TypeError, match="Hush has no 'call', Late has: name a function that makes one"):
        routes.route(Hush, to=Late)
    with pytest.raises(TypeError, match="Hush is no event"):
        routes.route(Hush)
