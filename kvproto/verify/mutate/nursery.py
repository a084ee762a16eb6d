"""A nursery: a process in which a file's tests are collected once, and every trial is a fork of it.

To import what tests need takes longer than most trials do.  So the nursery imports and collects, and each fork puts the
mutant's code in the place of the function's own, in whatever object has it (`plant`): only bodies of functions are
changed, and what tests make of them they make anew.  The first forks change nothing and follow the lines that each
test comes by (`reach`); of a mutant those are asked that reach it.  A nursery's hands share tests and then mutants.

Of a kernel Triton's interpreter reads the text when it first runs: the changed text is put where Python looks for it.

Three kinds of mutants cannot be planted so, and are told as such (`ELSEWHERE`): those of functions that ran already
while tests were collected, and may have left anything behind, those that take a function its last look at a variable of
the function around it, and what a module or class names, which is copied from there.  They are tried in a process
that imports the changed text (`trial`).
"""

from __future__ import annotations

import ast
import gc
import linecache
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import msgspec
import pytest

from kvproto.verify.mutate.forks import Ending, Fork, lines_of
from kvproto.verify.mutate.operators import CodeMutant, kernel_of, mutated
from kvproto.verify.mutate.reach import Choice, Follower, Reached
from kvproto.verify.mutate.trial import NOTHING_RUN, FirstFailure, calm, forget_kvproto, quiet

ELSEWHERE = "to be tried in a process of its own"
#: seconds between two looks at a trial; what it may take of a core: so many, and so many times what its tests took when
#: followed; and how much longer by the clock, on a machine that does other things, too
TICK_S, LEAST_S, TIMES, PATIENCE = 0.005, 5, 3, 6
FIRST_S = 600
#: a function by name and first line
Place = tuple[str, int]
#: told of a mutant (None: nothing changed), its witness, the seconds that it took, and which tests reach it
Tell = Callable[[CodeMutant | None, str, float, Sequence[str]], None]


class Nursery:
    """A plugin of pytest: where the tests would run, trials do."""

    def __init__(self, file: Path, mutants: Sequence[CodeMutant], effort_s: float, hands: int, tell: Tell) -> None:
        self.file, self.mutants, self.effort_s, self.hands, self.tell = file, mutants, effort_s, hands, tell
        #: functions of the file that ran before any trial
        self.ran: set[Place] = set()
        #: tests that have noticed a mutant, and pass without one
        self.sound: set[str] = set()
        self._known: list[FunctionType] = []

    def seen(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile: what runs."""
        if event == "call" and frame.f_code.co_filename == os.fspath(self.file):
            self.ran.add(_place(frame.f_code))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Every trial, each hand's one after the other."""
        sys.setprofile(None)
        if session.testsfailed:
            self.tell(None, "cannot be collected", 0.0, ())
            return True
        self._known = list(functions_of(self.file))
        # Tests collect garbage as a file begins: a fork that walks through all of this copies every page of it.
        gc.collect()
        gc.freeze()
        began = time.monotonic()
        broken, reached = self._unchanged(session)
        self.tell(None, broken, time.monotonic() - began, ())
        if broken:
            return True
        works = [partial(self._tries, session, reached, hand) for hand in range(self.hands)]
        for _, line in lines_of(works, self.hands):
            number, witness, seconds, tests = msgspec.json.decode(line, type=tuple[int, str, float, list[str]])
            self.tell(self.mutants[number], witness, seconds, tests)
        return True

    def _tries(self, session: pytest.Session, reached: list[Reached], hand: int, told: int) -> None:
        """Every trial of one hand, in a fork of the nursery."""
        choice = Choice(self.file.read_text(), reached, self.effort_s)
        for number in range(hand, len(self.mutants), self.hands):
            mutant, began = self.mutants[number], time.monotonic()
            able = choice.tests(mutant)
            witness = self._witness(session, mutant, {each.test: each.seconds for each in able})
            tests = [each.test for each in able]
            os.write(told, msgspec.json.encode((number, witness, time.monotonic() - began, tests)) + b"\n")
            choice.noticed(mutant, witness)

    def _unchanged(self, session: pytest.Session) -> tuple[str, list[Reached]]:
        """The test that breaks a run without any change, and what each test reaches."""
        found, broken = list[Reached](), set[str]()
        works = [partial(self._followed, session, hand) for hand in range(self.hands)]
        for _, line in lines_of(works, self.hands):
            breaks, reached = msgspec.json.decode(line, type=tuple[str, list[Reached]])
            broken.add(breaks)
            found += reached
        if found:
            broken.discard(NOTHING_RUN)  # a hand may have no test, or such alone as are left out here
        order = {item.nodeid: at for at, item in enumerate(session.items)}
        return max(broken), sorted(found, key=lambda each: order[each.test])

    def _followed(self, session: pytest.Session, hand: int, told: int) -> None:
        """The same of one hand's tests, in a fork of the nursery."""
        with tempfile.NamedTemporaryFile() as kept:

            def work(first: FirstFailure) -> None:
                # A step that contains a guard's expression comes by no line of the guard: have it call the guard.
                if (inline := sys.modules.get("kvproto.fsm.inline")) is not None:
                    vars(inline)["_simple"] = lambda _: None
                follower = Follower(self.file)
                for item, following in in_turn(session.items[hand :: self.hands]):
                    began, passed = follower.begin(), first.passed
                    session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    if first.passed > passed:  # it was not left out
                        follower.end(item.nodeid, began)
                sys.settrace(None)
                Path(kept.name).write_bytes(msgspec.json.encode(follower.found))
                first.end(0)

            broken = in_fork(session, work, FIRST_S).sentence
            reached = [] if broken else msgspec.json.decode(kept.read(), type=list[Reached])
        os.write(told, msgspec.json.encode((broken, reached)) + b"\n")

    def _witness(self, session: pytest.Session, mutant: CodeMutant, able: dict[str, float]) -> str:
        """Return the first of these tests (seconds of each) that fails, and passes where nothing is changed."""
        items = {item.nodeid: item for item in session.items}
        while able:
            asked, most_s = [items[test] for test in able], LEAST_S + TIMES * round(sum(able.values()))
            witness = self._trial(session, mutant, asked, most_s)
            if witness not in able or witness in self.sound:
                return witness
            # In this order: a test that needs another one to have run before fails of itself, and notices nothing.
            fails = self._trial(session, None, asked[: [*able].index(witness) + 1], most_s)
            if fails not in able:
                self.sound.add(witness)
                return witness
            able = {test: seconds for test, seconds in able.items() if test != fails}
        return ""

    def _trial(self, session: pytest.Session, mutant: CodeMutant | None, items: list[pytest.Item], most_s: int) -> str:
        def work(first: FirstFailure) -> None:
            if mutant is not None and not self._planted(mutant):
                first.tell("", ELSEWHERE)
            for item, following in in_turn(items):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            first.end(0)

        return in_fork(session, work, most_s).witness

    def _planted(self, mutant: CodeMutant) -> bool:
        places = plant(self.file, self._known, mutant)
        return bool(places) and self.ran.isdisjoint(places)


def in_fork(session: pytest.Session, work: Callable[[FirstFailure], None], most_s: int) -> Ending:
    """Do it in a fork, which sends the first failure and does not return; how it ended."""

    def run(told: int) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))
        first = FirstFailure(told)
        session.config.pluginmanager.register(first)
        work(first)

    fork, most_by_clock_s = Fork(run), PATIENCE * most_s
    latest = time.monotonic() + most_by_clock_s
    while (ending := fork.ended()) is None:
        if time.monotonic() > latest:
            return fork.stop(f"did not end in {most_by_clock_s} s")
        time.sleep(TICK_S)
    return ending


def in_turn(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each with the one that follows it: pytest keeps what both need."""
    return zip(items, [*items[1:], None], strict=False)  # of no item there is no next one


def rear(
    root: Path, file: str, tests: Sequence[str], mutants: Sequence[CodeMutant], effort_s: float, hands: int,
    tell: Tell,
) -> int:  # fmt: skip
    """Try these mutants of a file, in a process that was made for it; pytest's exit code."""
    forget_kvproto()
    quiet(root)
    nursery = Nursery(root / file, mutants, effort_s, hands, tell)
    sys.setprofile(nursery.seen)
    return int(pytest.main([*calm(), "--capture=sys", *tests], plugins=[nursery]))


# ------------------------------------------------------------------------------------------------ functions
def functions_of(file: Path) -> Iterator[FunctionType]:
    """All functions that this file has made."""
    name = os.fspath(file)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == name:
            yield each


def plant(file: Path, known: Sequence[FunctionType], mutant: CodeMutant) -> set[Place]:
    """Give the known functions the mutant's code; return the changed ones (none: it cannot be done)."""
    tree = mutated(mutant, file.read_text())
    if (kernel := kernel_of(tree, mutant)) is not None:
        return _plant_kernel(file, kernel)
    code = compile(tree, os.fspath(file), "exec", dont_inherit=True)
    made = {_place(each): each for each in _codes(code)}
    changed = [each for each in known if made.get(_place(each.__code__), each.__code__) != each.__code__]
    try:
        for each in changed:
            each.__code__ = made[_place(each.__code__)]
    except ValueError:  # other free variables
        return set()
    return {_place(each.__code__) for each in changed}


def _plant_kernel(file: Path, kernel: ast.FunctionDef) -> set[Place]:
    """No function of the file begins at another line than before: there Python looks for its text."""
    lines = file.read_text().splitlines(keepends=True)
    long = slice(kernel.lineno - 1, kernel.end_lineno)
    changed = [f"{line}\n" for line in ast.unparse(kernel).splitlines()]
    lines[long] = changed + ["\n"] * (len(lines[long]) - len(changed))
    linecache.cache[os.fspath(file)] = len("".join(lines)), None, lines, os.fspath(file)
    return {(kernel.name, kernel.lineno)}


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _place(code: CodeType) -> Place:
    return code.co_qualname, code.co_firstlineno
