"""More protocols: a lock in one file beside two-phase commit: searched, proved, mutated and exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from test_docs import fits

from examples.fencing_lock import lock as fencing_lock
from examples.two_phase_commit.parties import PROTOCOL, WORDS
from examples.two_phase_commit.protocol import COORDINATOR, P, PrepareAsked, Vote, participant
from kvproto import fsm
from kvproto.cli import main
from kvproto.verify.framework.protocol import Protocol
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.mutate.protocol_gate import ProtocolGate

ROOT = Path(__file__).parent.parent
PLACES = {
    "lock": "examples.fencing_lock.lock:LOCK", "commit": "examples.two_phase_commit.parties:PROTOCOL",
}  # fmt: skip
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


def test_the_lock_s_tables_have_no_error(say: Say) -> None:
    assert say("lock", "lint") == "3 tables, 14 rows: no errors\n"


def test_the_lock_is_a_page_of_text_and_its_worlds_hold(say: Say) -> None:
    text = Path(fencing_lock.__file__).read_text()
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 150
    assert "exhausted" in say("lock", "check", "--quiet")
    with TablePatch() as bench:
        (row,) = bench.rows(fencing_lock.storage, fencing_lock.G.GUARDED, fencing_lock.Write, "is_older")
        bench.drop(fencing_lock.storage, [row])
        assert "order: the storage goes back in time" in say("lock", "check", "--quiet", code=1)


def test_bugs_that_are_planted_are_noticed(say: Say) -> None:
    assert "3 of 3 caught" in say("commit", "check", "--mutants")
    assert "plants nothing" in say("lock", "check", "--mutants", code=2)


# ------------------------------------------------------------------------------------------------ proofs
@pytest.mark.parametrize("protocol", PLACES)
def test_claims_are_proved(protocol: str, say: Say) -> None:
    pytest.importorskip("z3")
    proofs = json.loads(say(protocol, "prove", "--json"))
    assert all(proof["pairs"] and not proof["failures"] for proof in proofs)
    assert "there is nothing to prove of 'ring'" in say(protocol, "prove", "ring", code=2)


def test_a_step_about_another_machine_is_not_proved() -> None:
    proof = pytest.importorskip("kvproto.verify.prove.proof")

    def other(v: fsm.Value, e: PrepareAsked) -> fsm.Output:
        return fsm.Transmit(COORDINATOR, Vote(e.txn + 1, yes=True))

    with TablePatch() as bench:
        bench.change(participant, bench.rows(participant, P.PREPARED, PrepareAsked), do=(other,))
        prover = proof.KeyedProver(PROTOCOL.claimed()["participant"], PROTOCOL.timing)
        found = {each.claim for pair in prover.pairs for each in prover.prove(pair).failures}
    assert "key" in found


# ----------------------------------------------------------------------------------------------- mutants
@pytest.mark.parametrize(("protocol", "count"), [("commit", 24), ("lock", 60)])
def test_no_mutant_of_a_sample_survives(protocol: str, count: int, say: Say) -> None:
    pytest.importorskip("z3")
    said = say(protocol, "mutate", "--sample", str(count), "--jobs", "1")
    assert f"| all | {count} |" in said
    assert "SURVIVES" not in said


def test_mutants_of_another_protocol_are_its_own() -> None:
    gate = ProtocolGate(PLACES["commit"])
    with gate.at_work():
        names = {each.table for each in gate.every(ROOT, gate.load(ROOT))}
    assert names == {"coordinator", "participant"}
    with pytest.raises(SystemExit, match="2"):
        main(["mutate", "--record", "--sample", "1", "--tables", PLACES["commit"]])


# ----------------------------------------------------------------------------------------------- export
@pytest.mark.parametrize("protocol", PLACES)
def test_an_export_has_its_schema(protocol: str, say: Say) -> None:
    document, schema = json.loads(say(protocol, "export")), json.loads(say(protocol, "export", "--schema"))
    assert fits(document, schema) == []
    assert document["machines"][0]["rows"] and document["messages"] and document["timers"]


# -------------------------------------------------------------------------------------------------- keys
class Flag(fsm.Event, frozen=True):
    """It has happened; to which transaction, nobody says."""


class Late(fsm.Event, frozen=True):
    """It names its machine last."""

    life: int
    txn: int


class Hush(fsm.Body, tag="HUSH", frozen=True):
    """Nothing is said."""


@pytest.mark.parametrize(("thing", "text"), [
    (Flag, "the first field of Flag must be the key of a participant"),
    (Late, "the first field of Late must be the key of a participant"),
    (Hush, "the first field of HUSH must be the key of a machine"),
])  # fmt: skip
def test_what_does_not_name_its_machine_first_is_refused(thing: Any, text: str) -> None:
    class Told(type(WORDS)):  # type: ignore[misc]
        """With one name more."""

    told = Told(PROTOCOL.tables, WORDS.timing, WORDS.digest, (), fsm.Body)
    told.events, told.messages = dict(WORDS.events), dict(WORDS.messages)
    if issubclass(thing, fsm.Body):
        told.messages["HUSH"] = thing

    class Mine(Protocol, frozen=True):
        """A protocol that is told so."""

        def told(self) -> fsm.Telling:
            return told

    fields = {name: getattr(PROTOCOL, name) for name in PROTOCOL.__struct_fields__}
    with TablePatch() as bench:
        if not issubclass(thing, fsm.Body):
            bench.ignore(participant, tuple(P), thing)
            bench.patch(participant, "_events", (*participant.events, thing))
        found = [str(each) for each in replace(Mine(**fields), sources=None).lint([])]
    assert [text in each and "keyless" in each for each in found] == [True]


def test_a_route_without_a_function_needs_the_fields() -> None:
    routes = fsm.Routes("participant", (Hush,))
    with pytest.raises(TypeError, match="Hush has no 'life', Late has: name a function that makes one"):
        routes.route(Hush, to=Late)
    with pytest.raises(TypeError, match="Hush is no event"):
        routes.route(Hush)
