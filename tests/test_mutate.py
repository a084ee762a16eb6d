"""Mutants of code: operators change the text that they find again, and a trial reports a killed one."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
import runpy
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.night import night_alone

from kvproto.errors import ArgumentError
from kvproto.io.kernels import count
from kvproto.verify.mutate.changes import CHANGES
from kvproto.verify.mutate.forks import Ending, Fork, send
from kvproto.verify.mutate.gate import KILLED, digest, run, table
from kvproto.verify.mutate.operators import CodeMutant, mutants_of, mutated
from kvproto.verify.mutate.planting import plant
from kvproto.verify.mutate.reach import Choice, Follower, Reached
from kvproto.verify.mutate.targets import Targets, every, load, sample
from kvproto.verify.mutate.verdicts import Verdict, append, read, survivors

ROOT = Path(__file__).parent.parent
TEXT = '''
LIMIT = 3

class Counter:
    """A text."""

    def add(self, count: int, most: int = 4) -> bool:
        if count < 0 or count > most:
            raise ValueError(f"{count + 1}")
        self.total = larger(self.total, count)
        self.total += 2
        self.note(count)
        self.tell(count)
        return True

    def least(self, counts):
        self.known = {"least": min(counts), "even": [each for each in counts if each % 2]}
        del self.total
        return self.known

    def tell(self, count):
        raise NotImplementedError
'''


GUARDED = """
def ask(call):
    try:
        call()
    except OSError:
        return False
    else:
        return True
    finally:
        call.close()
"""
#: files whose tests are quick
QUICK = ["kvproto/fsm/timer_wheel.py", "kvproto/io/control/outbox.py"]


def test_a_try_that_catches_nothing_does_the_rest_as_before() -> None:
    [each] = [each for each in mutants_of("guarded.py", GUARDED) if each.operator == "unguard"]
    changed = ast.unparse(mutated(each, GUARDED)).splitlines()
    assert changed == ["def ask(call):", "    try:", "        call()", "        return True", "    finally:",
                       "        call.close()"]  # fmt: skip
    bare = GUARDED[: GUARDED.index("    finally")]
    [each] = [each for each in mutants_of("guarded.py", bare) if each.operator == "unguard"]
    assert "except" not in (text := ast.unparse(mutated(each, bare))) and "return True" in text


def test_every_operator_changes_one_place_of_a_function_and_nothing_for_people() -> None:
    found = mutants_of("counter.py", TEXT)
    told = [(each.operator, each.line) for each in found]
    assert told == [("scale", 2), ("scale", 2), ("compare", 8), ("compare", 8), ("constant", 8), ("join", 8),
                    ("negate", 8), ("operand", 8), ("operand", 8), ("drop", 9), ("assign", 10), ("swap", 10),
                    ("constant", 11), ("sign", 11), ("call", 13), ("truth", 14), ("arithmetic", 17), ("assign", 17),
                    ("constant", 17), ("entry", 17), ("entry", 17), ("extreme", 17), ("filter", 17), ("drop", 18),
                    ("return", 19)]  # fmt: skip
    assert {each.operator for each in found} == set(CHANGES) - {"unguard"}
    whole = ast.unparse(ast.parse(TEXT)).splitlines()
    for each in found:
        changed = ast.unparse(mutated(each, TEXT)).splitlines()
        assert sum(a != b for a, b in zip(whole, changed, strict=True)) == 1, each.name


NUMBERS = """
FEW, MANY = 30, 1 << 10
PAUSE_S: float = 0.5
KIND = 1
names = 7
WAYS = "add", "read"
KINDS = {"few": FEW}

class Options:
    pause_s: float = abs(2.0)
    ended_s: float = 0.0
    kind = 3

def add(values: "tl.tensor"):
    return values + MANY

async def read():
    await FEW
    return FEW, WAYS
"""


def test_what_a_module_or_a_field_begins_with_is_changed_and_its_readers_asked() -> None:
    def made(each: CodeMutant) -> tuple[Any, ...]:
        space: dict[str, Any] = {}
        exec(compile(mutated(each, NUMBERS), "numbers", "exec"), space)  # noqa: S102
        return space["FEW"], space["MANY"], space["PAUSE_S"], space["Options"].pause_s

    found = mutants_of("numbers.py", NUMBERS)
    scaled = [each for each in found if each.operator == "scale"]
    places = ["FEW", "MANY", "PAUSE_S", "Options.pause_s"]
    assert [each.where for each in scaled] == [place for place in places for _ in range(2)]
    assert {made(each) for each in scaled} == {
        (600, 1024, 0.5, 2.0), (30, 20480, 0.5, 2.0), (1, 1024, 0.5, 2.0), (30, 51, 0.5, 2.0),
        (30, 1024, 10.0, 2.0), (30, 1024, 0.025, 2.0), (30, 1024, 0.5, 40.0), (30, 1024, 0.5, 0.1),
    }  # fmt: skip
    entries = [each for each in found if each.operator == "entry"]
    assert [each.where for each in entries] == ["WAYS", "WAYS", "KINDS"]
    ways = [ast.unparse(mutated(each, NUMBERS).body[4]) for each in entries[:2]]
    assert ways == ["WAYS = ('read',)", "WAYS = ('add',)"]
    assert [each.where for each in found if each.operator == "return"] == ["add", "read"]
    reached = [Reached("reads", 0.1, (18, 19)), Reached("adds", 0.2, (15,)), Reached("looks at values", 0.3, ())]
    choice = Choice(NUMBERS, reached, 9.0)
    asked = {each.where: [test.test for test in choice.tests(each)] for each in (*scaled, *entries)}
    assert asked["WAYS"] == asked["FEW"]
    assert len(asked["Options.pause_s"]) == 3
    assert asked["FEW"] == ["reads", "looks at values"] and asked["MANY"] == ["adds", "looks at values"]
    assert len(asked["PAUSE_S"]) == 3, "nobody reads it here"


def test_the_changed_text_of_a_kernel_is_found_where_its_function_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linecache, "cache", linecache.cache.copy())
    file = "kvproto/io/kernels/count.py"
    (first, *_) = [each for each in mutants_of(file, (ROOT / file).read_text()) if each.where == "_mixed"]
    before, later = (inspect.getsource(each) for each in (count._mixed, count._weighed))
    assert plant(ROOT / file, [], first) == {("_mixed", count._mixed.__code__.co_firstlineno)}
    assert ast.dump(ast.parse(inspect.getsource(count._mixed))) != ast.dump(ast.parse(before))
    assert inspect.getsource(count._weighed) == later


def test_the_projects_own_targets_and_reasons_fit_its_files() -> None:
    targets = load(ROOT)
    found = every(ROOT, targets)
    assert {each.file for each in found} == set(targets.targets)
    assert sample(found, 20, 1) == sample(found, 20, 1) != sample(found, 20, 2)
    for test in {test for file in targets.targets for test in targets.tests(file)}:
        name, _, part = test.partition("::")
        first = part.partition("::")[0].partition("[")[0]
        assert not first or re.search(rf"^ *(def|class) {first}\b", (ROOT / name).read_text(), re.MULTILINE), test


def test_every_file_that_an_engine_runs_is_a_target() -> None:
    targets = load(ROOT).targets
    for folder in ("adapters", "data", "endpoint", "io", "layout", "loop", "rank"):
        files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "kvproto" / folder).rglob("*.py"))]
        assert [file for file in files if file not in targets and mutants_of(file, (ROOT / file).read_text())] == []


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    targets = load(ROOT)
    with pytest.raises(ArgumentError, match="no operator"):
        every(ROOT, targets, operators=["turn"])
    with pytest.raises(ArgumentError, match="no target"):
        every(ROOT, targets, ["kvproto/none.py"])
    with pytest.raises(ArgumentError, match="own tree"):
        load(tmp_path)


def one_module(folder: Path, name: str, code: str, tests: str) -> Targets:
    """Write a module, and the tests that are asked about its mutants."""
    (folder / f"{name}.py").write_text(code)
    (folder / f"test_{name}.py").write_text(tests)
    (folder / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {os.fspath(folder)!r})\n")
    return Targets({f"{name}.py": [f"test_{name}.py"]}, {})


def test_a_mutant_is_killed_by_the_test_that_notices_and_another_survives(tmp_path: Path) -> None:
    code = "def fits(count):\n    return count <= 3 and count != 7\n"
    test = "from limit import fits\n\ndef test_fits():\n    assert fits(3) and not fits(4)\n"
    targets = one_module(tmp_path, "limit", code, test)
    mutants = [each for each in every(tmp_path, targets) if each.operator == "operand"]
    found = run(tmp_path, targets, mutants, 9.0, 2, lambda _: None)
    assert [verdict.killed for verdict in found] == [True, False]
    (left,) = survivors(targets, found)
    assert left.mutant.variant == 1
    reason = Targets(targets.targets, {"limit.py: fits: operand (1)": "seven is more than three"})
    assert not survivors(reason, found) and "| limit.py | 2 | 1 | 1 | 0 |" in table(reason, found)


def test_a_mutant_of_which_no_test_runs_survives(tmp_path: Path) -> None:
    test = "import pytest\nfrom limit import fits\n\n@pytest.mark.skipif(not fits(3), reason='')\ndef test_fits(): {}\n"
    targets = one_module(tmp_path, "limit", "def fits(count):\n    return count <= 3\n", test)
    mutants = [each for each in every(tmp_path, targets) if each.operator == "compare"]
    for body, killed in (("assert fits(2)", False), ("assert fits(2)\n\ndef test_3(): assert fits(3)", True)):
        (tmp_path / "test_limit.py").write_text(test.format(body))
        assert [each.killed for each in run(tmp_path, targets, mutants, 9.0, 1, lambda _: None)] == [killed]


TABLE = """
from __future__ import annotations
from kvproto.fsm.table import Table, Value
from kvproto.fsm.vocabulary import Event, State

class S(State):
    NEW = 0
    OVER = 1

class Poke(Event, frozen=True):
    count: int

class Poked(Value, frozen=True):
    pass

def enough(v: Poked, e: Poke, now: float) -> bool:
    return e.count > 3

def poke(count):
    return Poke(count)

table = Table("poked", Poked, S, initial=S.NEW, final=(S.OVER,), events=(Poke,), timers={})
table.row(S.NEW, Poke, S.OVER, when=enough)
table.ignore(S.NEW, Poke, "not yet")
"""
POKES = """
from kvproto.fsm.machine import Machine
from kvproto.fsm.timing import Timers
from poked import S, poke, table

def test_pokes():
    machine = Machine(table, Timers())
    states = [machine.step(machine.initial, poke(count), 0.0)[0].state for count in (3, 4)]
    assert states == [S.NEW, S.OVER]
"""


def test_a_guard_that_its_table_s_step_contains_is_reached(tmp_path: Path) -> None:
    targets = one_module(tmp_path, "poked", TABLE, POKES)
    mutants = [each for each in every(tmp_path, targets) if each.where == "enough"]
    found = run(tmp_path, targets, mutants, 9.0, 1, lambda _: None)
    assert {verdict.by for verdict in found} == {"test_poked.py::test_pokes"} and len(found) > 1


NEEDS_ANOTHER = """
import time
from limit import fits

seen = []

def test_slow():
    seen.append(2)
    time.sleep(0.2)
    assert fits(2)

def test_quick():
    assert fits(2) and seen
"""


def test_a_test_that_fails_without_another_one_notices_nothing(tmp_path: Path) -> None:
    targets = one_module(tmp_path, "limit", "def fits(count):\n    return count <= 3\n", NEEDS_ANOTHER)
    found = run(tmp_path, targets, every(tmp_path, targets), 9.0, 1, lambda _: None)
    assert {verdict.mutant.operator: verdict.killed for verdict in found} == {
        "compare": False, "constant": False, "return": True,
    }  # fmt: skip


FAILS_HERE = """
import os
from limit import fits

def test_that_needs_what_is_not_here():
    assert {breaks} and fits(2)

def test_fits():
    assert fits(3) and not fits(4)
"""


@pytest.mark.parametrize("breaks", ["False", "os._exit(1)"])
def test_a_test_that_fails_on_this_machine_is_left_out_and_named(tmp_path: Path, breaks: str) -> None:
    code, tests = "def fits(count):\n    return count <= 3\n", FAILS_HERE.format(breaks=breaks)
    targets, warned = one_module(tmp_path, "limit", code, tests), list[str]()
    (tmp_path / "test_far.py").write_text("import a_package_that_is_not_here")
    targets.targets["limit.py"] += ["test_far.py::test_far", "test_limit.py::test_of_before"]
    mutants = every(tmp_path, targets)
    found = run(tmp_path, targets, mutants, 9.0, 1, lambda _: None, warned.append)
    assert {verdict.by for verdict in found} == {"test_limit.py::test_fits"}
    start = "left out, since it fails on limit.py as it is: test_"
    assert sorted(text.removeprefix(start).partition(" ")[0] for text in warned) == [
        "far.py", "far.py::test_far", "limit.py::test_of_before", "limit.py::test_that_needs_what_is_not_here",
    ]  # fmt: skip
    (tmp_path / "test_limit.py").write_text(tests.replace("not fits(4)", breaks))
    with pytest.raises(ArgumentError, match=r"no test passes on limit\.py as it is"):
        run(tmp_path, targets, mutants, 9.0, 2, lambda _: None, warned.append)


TAKES_TIME = """
import time
from {name} import fits

def test_fits():
    began = time.monotonic()
    time.sleep(0.05)
    with open({path!r}, "a") as file:
        file.write(f"{{began}} {{time.monotonic()}}\\n")
    assert fits(3)
"""


def test_hands_of_several_files_work_on_as_many_cores_as_there_are(tmp_path: Path) -> None:
    code, targets = f"def fits(count):\n    return {' and '.join(['count <= 3'] * 16)}\n", Targets({}, {})
    for name in ("one", "other"):
        tests = TAKES_TIME.format(name=name, path=os.fspath(tmp_path / "took"))
        targets.targets |= one_module(tmp_path, name, code, tests).targets
    run(tmp_path, targets, every(tmp_path, targets, operators=["constant"]), 9.0, 2, lambda _: None)
    took = [line.split() for line in (tmp_path / "took").read_text().splitlines()]
    steps = sorted([*((float(began), 1) for began, _ in took), *((float(ended), -1) for _, ended in took)])
    at_work = [sum(step for _, step in steps[:count]) for count in range(len(steps))]
    assert len(took) > 32 and max(at_work) == 2


NAMED_BY_WORDS = """
import pytest
import words

@pytest.mark.parametrize("word", words.WORDS)
def test_a_word(word):
    assert word in words.WORDS

def test_count():
    assert len(words.WORDS) == 2
"""


def test_a_test_whose_name_the_mutant_takes_away_keeps_no_other_out(tmp_path: Path) -> None:
    targets = one_module(tmp_path, "words", 'WORDS = {"one": "a", "other": "b"}\n', NAMED_BY_WORDS)
    found = run(tmp_path, targets, every(tmp_path, targets), 9.0, 1, lambda _: None)
    assert [verdict.by for verdict in found] == ["test_words.py::test_count"] * 2


def test_a_fork_is_heard_while_it_runs_and_blamed_on_the_test_that_ran_last() -> None:
    def runs_tests(told: int) -> None:
        for number in range(2000):  # more than a pipe holds that nobody reads
            send(told, Ending(f"test_{number}{'x' * 100}"))
        send(told, Ending("test_last"))
        time.sleep(60)

    fork, passes = Fork(runs_tests), Fork(lambda _: os._exit(0))
    while fork._last.test != "test_last":
        assert fork.ended() is None
    late = fork.stop("did not end in 1 s")
    assert late == Ending("test_last", "did not end in 1 s") and late.witness == "test_last"
    while (ending := passes.ended()) is None:
        time.sleep(0.001)
    assert ending == Ending() and not ending.witness and not Ending("test_last").witness


REACHED = """
def sign(count):
    if (
        count
        < 0
    ):
        return -1
    try:
        return int(1 / count > 0)
    except ZeroDivisionError:
        return 0
"""


def test_a_mutant_is_asked_of_those_that_reach_its_statement_likeliest_and_quickest_first(tmp_path: Path) -> None:
    file = tmp_path / "sign.py"
    file.write_text(REACHED)
    sign = runpy.run_path(os.fspath(file))["sign"]
    before, follower = sys.gettrace(), Follower(file)
    try:
        for count, test in ((-2, "below"), (0, "none"), (5, "above")):
            began = follower.begin()
            sign(count)
            follower.end(test, began)
    finally:
        sys.settrace(before)
        threading.settrace(before)
    lines = {each.test: each.lines for each in follower.found}
    assert 7 in lines["below"] and 11 in lines["none"] and 11 not in lines["above"]
    seconds = {"below": 1.0, "none": 3.0, "above": 2.0}
    choice = Choice(REACHED, [Reached(test, seconds[test], lines[test]) for test in lines], effort_s=4.0)
    mutants = mutants_of("sign.py", REACHED)
    (least,) = [each for each in mutants if each.operator == "compare" and each.line == 4]
    assert choice.statement(least.line) == (3, 6)
    assert [each.test for each in choice.tests(least)] == ["below", "above"], "the third is too dear"
    choice.noticed(least, "none")
    assert [each.test for each in choice.tests(least)] == ["none", "below"]
    never = next(each for each in mutants if each.line == 11)
    assert [each.test for each in choice.tests(never)] == ["none"]
    assert not Choice(REACHED, [Reached("below", 1.0, lines["below"])], effort_s=4.0).tests(never)


TABLED = """
def made(count):
    return {count: count + 1}

TABLE = made(3)
"""
LOOKS = """
from tabled import TABLE

def test_table():
    assert TABLE[3] == 4
"""


def test_a_function_that_ran_when_its_module_was_imported_is_asked_of_every_test(tmp_path: Path) -> None:
    targets = one_module(tmp_path, "tabled", TABLED, LOOKS)
    mutants = [each for each in every(tmp_path, targets) if each.where == "made"]
    found = run(tmp_path, targets, mutants, 9.0, 1, lambda _: None)
    assert {verdict.by for verdict in found} == {"test_tabled.py::test_table"} and len(found) > 2


def test_a_package_is_imported_with_its_change(tmp_path: Path) -> None:
    one_module(tmp_path, "tabled", "", LOOKS)
    (tmp_path / "tabled.py").unlink()
    (tmp_path / "tabled").mkdir()
    (tmp_path / "tabled" / "__init__.py").write_text(TABLED)
    targets = Targets({"tabled/__init__.py": ["test_tabled.py"]}, {})
    found = run(tmp_path, targets, every(tmp_path, targets), 9.0, 1, lambda _: None)
    assert {verdict.by for verdict in found} == {"test_tabled.py::test_table"} and len(found) > 2


def test_what_a_class_names_is_asked_of_every_test_and_what_a_module_names_of_its_readers() -> None:
    text = "SIZES = {1: 2}\n\nclass Sizes:\n    known: dict = {3: 4}\n\n    def first(self):\n        return SIZES[1]\n"
    others = [Reached("reads", 1.0, (7,)), Reached("looks", 2.0, ()), Reached("calls", 3.0, (6,))]
    choice = Choice(text, others, effort_s=9.0)
    asked = {each.where: [test.test for test in choice.tests(each)] for each in mutants_of("sizes.py", text)}
    assert asked["Sizes.known"] == ["reads", "looks", "calls"] and asked["SIZES"] == ["reads", "looks"]


def test_a_log_has_each_trial_and_counts_as_long_as_its_file_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "limit.py").write_text("def fits(count):\n    return count <= 3\n")
    (mutant, *more), log = every(tmp_path, Targets({"limit.py": []}, {})), tmp_path / "log"
    killed, left = Verdict(mutant, KILLED, "test_fits", 0.5), Verdict(more[0], "", "", 0.5)
    same = digest(tmp_path, more)
    for verdict in (Verdict(mutant, "", "", 0.1), killed, left):
        append(log, verdict, same)
    assert read([log], [mutant, *more], same) == {mutant: killed, more[0]: left}
    assert read([log], [mutant], same) == {mutant: killed}
    (tmp_path / "limit.py").write_text("def fits(count):\n    return count <= 4\n")
    assert not read([log], [mutant, *more], digest(tmp_path, more))
    log.write_text("{}")
    for path in (log, tmp_path / "none"):
        with pytest.raises(ArgumentError):
            read([path], [mutant], same)


@night_alone("by day the same few each time")
@pytest.mark.timeout(600)  # a process for each test that is asked
def test_a_seeded_sample_of_the_quick_files_leaves_no_survivor_without_a_reason() -> None:
    seed = time.strftime("%Y%m%d")
    files = [word for file in QUICK for word in ("--file", file)]
    asked = [*files, "--sample", "60", "--seed", seed, "--jobs", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "kvproto", "mutate", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr}"
    assert "| all | " in done.stdout
