"""One trial: a mutant in memory, and its tests in a process of their own.

State is per process (compiled tables, caches, threads), so each mutant gets a fresh one.  To start Python, torch and
pytest for each would take longer than the tests: the trial is a fork of a process that has loaded those and nothing of
kvproto.  In it a finder stands before all others and compiles the mutant's module from the changed tree; no file is
touched, so what happens to the run leaves nothing behind, and trials go side by side.

A run of the tests that fails, crashes or takes too long has killed the mutant; the first failing test is its witness.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import msgspec
import pytest

from kvproto.verify.mutate.operators import CodeMutant, mutated

FAILED, NOTHING_RUN, ENDLESS = "failed", "no test ran", "it does not end"
LONGEST_TEST_S = 120


class Trial(msgspec.Struct):
    """What became of a mutant: `witness`, the test that failed first; empty: it survives."""

    mutant: CodeMutant
    witness: str
    seconds: float


class MutantLoader(importlib.machinery.SourceFileLoader):
    """Loads the changed tree in its file's place."""

    def __init__(self, name: str, path: str, mutant: CodeMutant) -> None:
        super().__init__(name, path)
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Never from a cache."""
        path = self.get_filename(fullname)
        tree = mutated(self.mutant, Path(path).read_text())
        return compile(tree, path, "exec", dont_inherit=True)


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds one module: the mutant's."""

    def __init__(self, root: Path, mutant: CodeMutant) -> None:
        self.path, self.mutant = root / mutant.file, mutant
        self.module = mutant.file.removesuffix(".py").replace("/", ".")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:  # fmt: skip
        """The module with the change in it, or nothing."""
        del path, target
        if fullname != self.module:
            return None
        loader = MutantLoader(fullname, str(self.path), self.mutant)
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


class FirstFailure:
    """Tells the parent which test failed first, as soon as it has."""

    def __init__(self, told: int) -> None:
        self.told, self.passed = told, 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test has got so far."""
        self.passed += report.when == "call" and report.passed
        if report.failed:
            self.tell(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """A file could not be read: the mutant breaks an import."""
        if report.failed:
            self.tell(report.nodeid)

    def tell(self, what: str) -> None:
        """Say it, and end: the rest of the tests would say nothing more."""
        os.write(self.told, what.encode()[:4000])
        os._exit(1)

    def end(self, code: int) -> None:
        """All tests have run, and pytest says this of it."""
        if not self.passed:
            self.tell(NOTHING_RUN)
        os._exit(code)


@cache
def warm() -> None:
    """Load what every trial needs, and kvproto is no part of."""
    import _pytest.assertion.rewrite  # noqa: F401
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401, ICN001
    import torch
    import zmq  # noqa: F401

    torch.set_num_threads(1)


def begin(root: Path, mutant: CodeMutant | None, tests: Sequence[str]) -> tuple[int, int]:
    """Fork a trial of this mutant (None: of nothing changed); its process, and where it tells of a failure."""

    def change() -> None:
        forget_kvproto()
        if mutant is not None:
            sys.meta_path.insert(0, MutantFinder(root, mutant))

    return _fork(root, change, tests)


def forget_kvproto() -> None:
    """What is imported from now on is imported anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "kvproto"]:
        del sys.modules[name]


def _fork(root: Path, change: Callable[[], None], tests: Sequence[str]) -> tuple[int, int]:
    def work(told: int) -> None:
        change()
        _run(root, tests, told)

    return forked(work, 70)


def forked(work: Callable[[int], None], code: int) -> tuple[int, int]:
    """A fork, in a session of its own, that does this with a pipe to write to, and exits with `code`, if `work` has not
    ended it otherwise: the child's number, and where it is heard.
    """
    heard, told = os.pipe()
    child = os.fork()
    if child:
        os.close(told)
        return child, heard
    os.close(heard)
    os.setsid()
    try:
        work(told)
    finally:
        os._exit(code)
    raise AssertionError


def lines_of(works: Sequence[Callable[[int], None]], jobs: int) -> Iterator[tuple[int, bytes]]:
    """Do each of these in a fork, `jobs` at a time: which of them has told a line, and the line.

    Forks that are still going when nobody listens any more are ended.
    """
    left = list(enumerate(works))[::-1]
    #: by the descriptor by which it tells: its process, which it is, and half a line
    going: dict[int, tuple[int, int, bytes]] = {}
    try:
        while left or going:
            while left and len(going) < jobs:
                which, work = left.pop()
                child, hears = forked(work, 0)
                going[hears] = child, which, b""
            for hears in select.select(list(going), [], [])[0]:
                child, which, part = going[hears]
                said = os.read(hears, 1 << 16)
                *lines, part = (part + said).split(b"\n")
                going[hears] = child, which, part
                if not said:
                    del going[hears]
                    os.close(hears)
                    os.waitpid(child, 0)
                yield from ((which, line) for line in lines)
    finally:
        for child, _, _ in going.values():
            stop(child)
            os.waitpid(child, 0)


def _run(root: Path, tests: Sequence[str], told: int) -> None:
    quiet(root)
    first = FirstFailure(told)
    first.end(int(pytest.main([*calm(), "-x", *tests], plugins=[first])))


def quiet(root: Path) -> None:
    """This process says nothing, works there, searches the same examples each time, and interprets kernels; what fails
    fails, and nobody looks for a smaller example."""
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silence, stream)
    os.chdir(root)
    os.environ |= {"CI": "1", "KVPROTO_TRIAL": "1", "TRITON_INTERPRET": "1"}


def calm() -> list[str]:
    """Options of pytest; a watchdog of the parent's is no thread of the child: faulthandler would wait for it."""
    return ["-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0", "-o", f"timeout={LONGEST_TEST_S}"]


def end(heard: int, code: int) -> str:
    """The witness of a trial whose process has ended with this wait status."""
    said = os.read(heard, 4096).decode(errors="replace")
    os.close(heard)
    return said or (FAILED if code else "")


def stop(child: int) -> None:
    """End a trial and all that it has started."""
    os.killpg(child, signal.SIGKILL)
