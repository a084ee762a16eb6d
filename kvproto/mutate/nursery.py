"""A nursery: a process in which a file's tests are collected once, and every trial is a fork of it.

To import what tests need takes longer than most trials do.  So the nursery imports and collects, and each fork puts the
mutant's code in the place of the function's own, in whatever object has it (`plant`): only bodies of functions are
changed, and what tests make of them they make anew.

Two kinds of mutants cannot be planted so, and are told as such (`ELSEWHERE`): those of functions that ran already while
tests were collected, and may have left anything behind, and those that take a function its last look at a variable of
the function around it.  They are tried in a process that imports the changed text (`trial`).
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from kvproto.mutate.operators import CodeMutant, mutated
from kvproto.mutate.trial import ENDLESS, FirstFailure, calm, end, forget_kvproto, quiet, stop

ELSEWHERE = "to be tried in a process of its own"
TICK_S, LEAST_S, TIMES = 0.005, 20.0, 10
#: a function by name and first line
Place = tuple[str, int]
#: told of a mutant (None: nothing changed), its witness, and the seconds that it took
Tell = Callable[[CodeMutant | None, str, float], None]


class Nursery:
    """A plugin of pytest: where the tests would run, trials do."""

    def __init__(self, file: Path, mutants: Sequence[CodeMutant | None], tell: Tell) -> None:
        self.file, self.mutants, self.tell = file, mutants, tell
        #: functions of the file that ran before any trial
        self.ran: set[Place] = set()
        self._known: list[FunctionType] = []

    def seen(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile: what runs."""
        if event == "call" and frame.f_code.co_filename == os.fspath(self.file):
            self.ran.add(_place(frame.f_code))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Every trial, one after the other."""
        sys.setprofile(None)
        if session.testsfailed:
            self.tell(None, "they cannot be collected", 0.0)
            return True
        self._known = list(functions_of(self.file))
        longest = 30 * LEAST_S
        for mutant in self.mutants:
            began = time.monotonic()
            witness = self._trial(session, mutant, began + longest)
            took = time.monotonic() - began
            if mutant is None:
                longest = max(LEAST_S, TIMES * took)
            self.tell(mutant, witness, took)
            if mutant is None and witness:
                break
        return True

    def _trial(self, session: pytest.Session, mutant: CodeMutant | None, latest: float) -> str:
        heard, told = os.pipe()
        child = os.fork()
        if not child:
            os.setsid()
            self._run(session, mutant, FirstFailure(told))
        os.close(told)
        ended, code = 0, 0
        while not ended:
            time.sleep(TICK_S)
            if time.monotonic() > latest:
                stop(child)
                _, code = os.waitpid(child, 0)
                end(heard, code)
                return ENDLESS
            ended, code = os.waitpid(child, os.WNOHANG)
        return end(heard, code)

    def _run(self, session: pytest.Session, mutant: CodeMutant | None, first: FirstFailure) -> None:
        """In the fork: it does not return."""
        try:
            session.config.pluginmanager.register(first)
            if mutant is not None and not self._planted(mutant):
                first.tell(ELSEWHERE)
            for item, following in zip(session.items, [*session.items[1:], None], strict=True):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            first.end(0)
        finally:
            os._exit(70)

    def _planted(self, mutant: CodeMutant) -> bool:
        places = plant(self.file, self._known, mutant)
        return bool(places) and self.ran.isdisjoint(places)


def rear(root: Path, file: str, tests: Sequence[str], mutants: Sequence[CodeMutant | None], tell: Tell) -> int:
    """Try these mutants of a file, in a process that was made for it; pytest's exit code."""
    forget_kvproto()
    quiet(root)
    nursery = Nursery(root / file, mutants, tell)
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
    """Give the functions among the known ones the mutant's code; which are others now (none: it cannot be done)."""
    code = compile(mutated(mutant, file.read_text()), os.fspath(file), "exec", dont_inherit=True)
    made = {_place(each): each for each in _codes(code)}
    changed = [each for each in known if made.get(_place(each.__code__), each.__code__) != each.__code__]
    try:
        for each in changed:
            each.__code__ = made[_place(each.__code__)]
    except ValueError:  # other free variables
        return set()
    return {_place(each.__code__) for each in changed}


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _place(code: CodeType) -> Place:
    return code.co_qualname, code.co_firstlineno
