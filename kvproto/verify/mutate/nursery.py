"""A nursery: a process in which a file's tests are collected once, and every trial is a fork of it.

The nursery imports and collects, which takes longer than most trials; each fork puts the mutant's code in the place of
the function's own, in whatever object has it (`plant`). The first forks change nothing and follow the lines that each
test comes by (`reach`); of a mutant those are asked that reach it. A test that fails then is left out, and told. Only
so many of all nurseries' hands are at work as there are cores.

Three kinds of mutants cannot be planted so (`ELSEWHERE`): those of functions that ran already while tests were
collected, those that take a function its last look at a variable of the function around it, and what a module or class
names, which is copied from there. They are tried in a process that imports the changed text (`trial`).
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import msgspec
import pytest

from kvproto.verify.mutate.forks import Cores, Ending, Fork, lines_of
from kvproto.verify.mutate.operators import CodeMutant
from kvproto.verify.mutate.planting import Place, functions_of, place_of, plant
from kvproto.verify.mutate.reach import Choice, Follower, Reached
from kvproto.verify.mutate.trial import NOTHING_RUN, FirstFailure, calm, forget_kvproto, quiet

ELSEWHERE, NO_JUDGE = "to be tried in a process of its own", "no test passes"
#: seconds between two looks at a trial; what it may take of a core: so many, and so many times what its tests took when
#: followed; and how much longer by the clock, on a machine that does other things, too
TICK_S, LEAST_S, TIMES, PATIENCE = 0.005, 5, 3, 6
FIRST_S = 600
#: tests that a hand follows, at least, if there are as many
FEW = 24
#: told of a mutant, its witness, the seconds that it took, and which tests reach it; of none: a test that is left out
Tell = Callable[[CodeMutant | None, str, float, Sequence[str]], None]


class Nursery:
    """A plugin of pytest: where the tests would run, trials do."""

    def __init__(
        self, file: Path, tests: Sequence[str], mutants: Sequence[CodeMutant], effort_s: float, hands: int,
        cores: Cores, tell: Tell,
    ) -> None:  # fmt: skip
        self.file, self.tests, self.mutants, self.effort_s, self.hands = file, tests, mutants, effort_s, hands
        self.cores, self.tell = cores, tell
        #: files of tests that cannot be read, and tests that are not there
        self.uncollected: list[str] = []
        #: functions of the file that ran before any trial
        self.ran: set[Place] = set()
        #: tests that have noticed a mutant, and pass without one
        self.sound: set[str] = set()
        self._known: list[FunctionType] = []

    def seen(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename == os.fspath(self.file):
            self.ran.add(place_of(frame.f_code))

    def pytest_configure(self, config: pytest.Config) -> None:
        """Have no plugin wait for a watchdog that is a thread of the parent, where tests cannot be collected."""
        config.pluginmanager.unregister(name="faulthandler")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be read, as where a package is missing."""
        if report.failed:
            self.uncollected.append(f"{report.nodeid} cannot be collected")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests that are asked: pytest ends where it is given the name of one that is not there."""
        names = {test: (f"{test}[", f"{test}::") for test in self.tests}
        by_test = {test: [item for item in items if f"{item.nodeid}[".startswith(names[test])] for test in self.tests}
        self.uncollected += [f"{test} is not there" for test, found in by_test.items() if not found]
        items[:] = dict.fromkeys(item for found in by_test.values() for item in found)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Every trial, each hand's one after the other."""
        sys.setprofile(None)
        self._known = list(functions_of(self.file))
        # Tests collect garbage as a file begins: a fork that walks through all of this copies every page of it.
        gc.collect()
        gc.freeze()
        broken, reached = self._unchanged(session)
        for sentence in broken:
            self.tell(None, sentence, 0.0, ())
        if broken and not reached:
            self.tell(None, NO_JUDGE, 0.0, ())
            return True
        works = [partial(self._tries, session, reached, hand) for hand in range(self.hands)]
        for _, line in lines_of(works, self.hands):
            number, witness, seconds, tests = msgspec.json.decode(line, type=tuple[int, str, float, list[str]])
            self.tell(self.mutants[number], witness, seconds, tests)
        return True

    def _tries(self, session: pytest.Session, reached: list[Reached], hand: int, told: int) -> None:
        """Every trial of one hand, in a fork of the nursery: neighbours, which the same tests notice."""
        ran, count = {name.replace(".<locals>", "") for name, _ in self.ran}, len(self.mutants)
        choice = Choice(self.file.read_text(), reached, self.effort_s, ran)
        for number in range(count * hand // self.hands, count * (hand + 1) // self.hands):
            mutant = self.mutants[number]
            able = choice.tests(mutant)
            with self.cores.one():
                began = time.monotonic()
                witness = self._witness(session, mutant, {each.test: each.seconds for each in able})
            tests = [each.test for each in able]
            os.write(told, msgspec.json.encode((number, witness, time.monotonic() - began, tests)) + b"\n")
            choice.noticed(mutant, witness)

    def _unchanged(self, session: pytest.Session) -> tuple[list[str], list[Reached]]:
        """The tests that break a run without any change, and what each of the others reaches."""
        found, broken = list[Reached](), list(self.uncollected)
        # A hand's first test takes the seconds of all that is made once: of few tests each would seem slow.
        hands = min(self.hands, 1 + len(session.items) // FEW)
        works = [partial(self._followed, session.items[hand::hands], session) for hand in range(hands)]
        for _, line in lines_of(works, hands):
            breaks, reached = msgspec.json.decode(line, type=tuple[list[str], list[Reached]])
            broken += breaks
            found += reached
        order = {item.nodeid: at for at, item in enumerate(session.items)}
        return broken, sorted(found, key=lambda each: order[each.test])

    def _followed(self, left: Sequence[pytest.Item], session: pytest.Session, told: int) -> None:
        """The same of one hand's tests; those behind one that fails have a fork of their own."""
        broken, found = list[str](), list[Reached]()
        while left:
            with tempfile.TemporaryFile() as kept, self.cores.one():
                ending = in_fork(session, partial(self._follow, session, left, kept.fileno()), FIRST_S)
                kept.seek(0)
                found += [msgspec.json.decode(line, type=Reached) for line in kept]
            if ending.sentence in ("", NOTHING_RUN):  # all of these may be left out here
                break
            broken.append(ending.sentence)
            left = left[1 + next((at for at, item in enumerate(left) if item.nodeid == ending.test), len(left)) :]
        os.write(told, msgspec.json.encode((broken, found)) + b"\n")

    def _follow(self, session: pytest.Session, items: Sequence[pytest.Item], kept: int, first: FirstFailure) -> None:
        """Run these tests, and keep a line of what each has reached."""
        # A step that contains a guard's expression comes by no line of the guard: have it call the guard.
        if (inline := sys.modules.get("kvproto.fsm.inline")) is not None:
            vars(inline)["_simple"] = lambda _: None
        follower = Follower(self.file)
        for item, following in in_turn(items):
            began, passed = follower.begin(), first.passed
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if first.passed > passed:  # it was not left out
                follower.end(item.nodeid, began)
                os.write(kept, msgspec.json.encode(follower.found.pop()) + b"\n")
        sys.settrace(None)
        first.end(0)

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
    cores: Cores, tell: Tell,
) -> None:  # fmt: skip
    forget_kvproto()
    quiet(root)
    nursery = Nursery(root / file, tests, mutants, effort_s, hands, cores, tell)
    sys.setprofile(nursery.seen)
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    pytest.main([*calm(), "--capture=sys", *files], plugins=[nursery])
