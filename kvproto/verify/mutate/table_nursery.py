"""Table nursery: collect tests once, and fork for each mutant those that the changed row reaches.

The first fork changes nothing and counts, for each test, the rows and routes that it fires on ranks. A mutant is then
tried with the tests that fire what it changes: those first that have noticed another mutant of the same row, then the
quickest. A test that fires nothing looks at values or changes tables itself, and is tried with every mutant; so is
every test with a mutant whose rows nobody can name. A test that once noticed the mutant (`hints`) is tried alone first.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from kvproto.fsm.routing import Routes
from kvproto.verify.claims.kv import KV
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.trace.coverage import Collector, Counted
from kvproto.verify.mutate.bodies import MUTATED
from kvproto.verify.mutate.nursery import FIRST_S, LEAST_S, TIMES, in_fork, in_turn
from kvproto.verify.mutate.table_operators import SUBJECTS, TableMutant
from kvproto.verify.mutate.trial import NOTHING_RUN, FirstFailure, calm, quiet
from kvproto.verify.mutate.verdicts import Verdict

#: a table or list of routes by name, and the place of one of its rows or routes
Line = tuple[str, int]
UNCOLLECTED = "the collection of tests fails"


class FiredTest(msgspec.Struct, frozen=True):
    """A test, the seconds that it took, and what it fired on ranks."""

    test: str
    seconds: float
    lines: frozenset[Line]


class TableTold(msgspec.Struct):
    """A nursery's line: a verdict, or the test that fails with the tables as they are."""

    verdict: Verdict[TableMutant] | None = None
    broken: str = ""


class TableQuestions(msgspec.Struct, frozen=True):
    """The judges before the tests, whether tests are asked then, and the test that noticed it once."""

    judge: Callable[[TableMutant], Verdict[TableMutant]]
    wants_tests: Callable[[Verdict[TableMutant]], bool]
    hints: Mapping[str, str]


class TableNursery:
    """A plugin of pytest: where the tests would run, mutants are judged."""

    def __init__(self, mutants: Sequence[TableMutant], ask: TableQuestions, tell: Callable[[TableTold], None]) -> None:
        self.mutants, self.ask, self.tell = mutants, ask, tell
        self._fired: list[FiredTest] = []
        #: by line: which tests noticed a mutant of it, how often
        self._noticed: defaultdict[Line, Counter[str]] = defaultdict(Counter)
        #: tests that pass with the tables as they are, and the seconds that each takes
        self._sound: dict[pytest.Item, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_exception_interact(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        """Report a file of tests that cannot be imported, and end before faulthandler waits for a thread."""
        if isinstance(report, pytest.CollectReport):
            self.tell(TableTold(broken=UNCOLLECTED))
            os._exit(1)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        for mutant in self.mutants:
            began, known = time.monotonic(), items.get(self.ask.hints.get(mutant.name, ""))
            if known is not None and self._noticed_again(session, mutant, known):
                self.tell(TableTold(Verdict(mutant, "test", known.nodeid, round(time.monotonic() - began, 2))))
                continue
            verdict = self.ask.judge(mutant)
            if self.ask.wants_tests(verdict) and items:
                if not self._fired and (broken := self._unchanged(session)):
                    self.tell(TableTold(broken=broken))
                    return True
                verdict = self._tested(session, verdict, items)
            self.tell(TableTold(verdict))
        return True

    def _noticed_again(self, session: pytest.Session, mutant: TableMutant, known: pytest.Item) -> bool:
        """Tell whether the test that noticed the mutant once passes unchanged tables, and fails with the
        mutant.

        It takes a second, where the worlds before it, and a run of all tests unchanged, take a minute each.
        """
        if known not in self._sound:
            began = time.monotonic()
            if in_fork(session, partial(_run, session, [known], None), FIRST_S).how:
                return False
            self._sound[known] = time.monotonic() - began
        most_s = LEAST_S + TIMES * round(self._sound[known])
        return in_fork(session, partial(_run, session, [known], mutant), most_s).witness == known.nodeid

    def _unchanged(self, session: pytest.Session) -> str:
        """The test that fails with the tables as they are (empty: none does); what each test fires is kept."""
        with tempfile.NamedTemporaryFile() as kept:

            def work(first: FirstFailure) -> None:
                counts, found = Collector(Counted(tuple(MUTATED), KV.counted.routes)), list[FiredTest]()
                with counts.installed():
                    for item, following in in_turn(session.items):
                        counts.rows.clear()
                        counts.routes.clear()
                        began = time.monotonic()
                        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                        lines = frozenset((*counts.rows, *counts.routes))
                        found.append(FiredTest(item.nodeid, time.monotonic() - began, lines))
                Path(kept.name).write_bytes(msgspec.json.encode(found))
                first.end(0)

            broken = in_fork(session, work, FIRST_S).sentence
            self._fired = [] if broken else msgspec.json.decode(kept.read(), type=list[FiredTest])
        return broken

    def _tested(
        self, session: pytest.Session, verdict: Verdict[TableMutant], items: Mapping[str, pytest.Item]
    ) -> Verdict[TableMutant]:  # fmt: skip
        mutant, began = verdict.mutant, time.monotonic()
        able = self._able(mutant)
        asked = [items[each.test] for each in able]
        most_s = LEAST_S + TIMES * round(sum(each.seconds for each in able))
        witness = in_fork(session, partial(_run, session, asked, mutant), most_s).witness if able else ""
        if witness in ("", NOTHING_RUN):
            return verdict
        for line in lines_of_mutant(mutant) or ():
            self._noticed[line][witness] += 1
        return Verdict(mutant, "test", witness, round(verdict.seconds + time.monotonic() - began, 2))

    def _able(self, mutant: TableMutant) -> list[FiredTest]:
        """The tests that can notice it, the likeliest and quickest first."""
        lines, hint = lines_of_mutant(mutant), self.ask.hints.get(mutant.name, "")
        able = [each for each in self._fired if lines is None or not each.lines or lines & each.lines]
        noticed = sum((self._noticed[line] for line in lines or ()), Counter[str]())
        return sorted(able, key=lambda each: (each.test != hint, -noticed[each.test], each.seconds))


def _run(
    session: pytest.Session, items: Sequence[pytest.Item], mutant: TableMutant | None, first: FirstFailure
) -> None:  # fmt: skip
    """Run these tests with the mutant in the tables (None: the tables as they are), and end the process."""
    with TablePatch() as patch:
        if mutant is not None:
            mutant.plant(patch)
        for item, following in in_turn(items):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    first.end(0)


def lines_of_mutant(mutant: TableMutant) -> frozenset[Line] | None:
    """The rows or routes that it changes; None: nobody can name them all."""
    if isinstance(SUBJECTS[mutant.table], Routes):
        return frozenset({(mutant.table, mutant.place)})
    if not mutant.touched or (mutant.body is not None and not mutant.compares):
        return None
    # A guard that lets an event pass, or keeps one off, has other rows of its pair fire.
    pairs = {(table, row.source, row.event) for table, row in mutant.touched}
    rows = [(name, row) for name, table in SUBJECTS.items() if not isinstance(table, Routes) for row in table.rows]
    return frozenset((name, row.index) for name, row in rows if (name, row.source, row.event) in pairs)


def rear_tables(
    told: int, root: Path, tests: Sequence[str], mutants: Sequence[TableMutant], ask: TableQuestions
) -> None:  # fmt: skip
    """Judge these mutants, in a process that was made for it; each verdict is a line (`TableTold`)."""
    quiet(root)

    def tell(line: TableTold) -> None:
        os.write(told, msgspec.json.encode(line) + b"\n")

    pytest.main([*calm(), "--capture=sys", *tests], plugins=[TableNursery(mutants, ask, tell)])
