"""Trial: a mutant in memory, and its tests in a process of their own.

State is per process (compiled tables, caches, threads), so each mutant gets a fresh one.  To start Python, torch and
pytest for each would take longer than the tests: the trial is a fork of a process that has loaded those and nothing of
kvproto.  In it a finder stands before all others and compiles the mutant's module from the changed tree; no file is
touched, so what happens to the run leaves nothing behind, and trials go side by side.

A run of the tests that fails, crashes or takes too long has killed the mutant; the first failing test is its witness.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from kvproto.verify.mutate.forks import FAILS, Ending, Fork, send
from kvproto.verify.mutate.operators import CodeMutant, mutated

NOTHING_RUN = "no test ran"
LONGEST_TEST_S = 120


class MutantLoader(importlib.machinery.SourceFileLoader):
    """Loads the changed tree in its file's place."""

    def __init__(self, name: str, path: str, mutant: CodeMutant) -> None:
        super().__init__(name, path)
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = mutated(self.mutant, Path(path).read_text())
        return compile(tree, path, "exec", dont_inherit=True)


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds one module: the mutant's."""

    def __init__(self, root: Path, mutant: CodeMutant) -> None:
        self.path, self.mutant = root / mutant.file, mutant
        # a package is imported by its folder's name
        self.module = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:  # fmt: skip
        if fullname != self.module:
            return None
        loader = MutantLoader(fullname, str(self.path), self.mutant)
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


class FirstFailure:
    """Sends the parent the test that runs, and the first one that fails or takes too long."""

    def __init__(self, told: int) -> None:
        self.told, self.passed = told, 0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Name the test before it runs: it may end the process."""
        send(self.told, Ending(nodeid))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count a test that has passed, and end at one that has failed."""
        self.passed += report.when == "call" and report.passed
        if report.failed:
            self.tell(report.nodeid, FAILS)

    def pytest_collectreport(self, report: Any) -> None:
        """End at a file that could not be read: the mutant breaks an import."""
        if report.failed:
            self.tell(report.nodeid, FAILS)

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: Any, settings: Any) -> bool:
        """Limit the test's seconds: pytest-timeout's own timer ends the process without a word to the parent."""
        timer = threading.Timer(settings.timeout, self.tell, (item.nodeid, f"took longer than {settings.timeout:g} s"))
        timer.daemon = True
        timer.start()
        item.cancel_timeout = timer.cancel
        return True

    def tell(self, test: str, how: str) -> None:
        """Send it, and end: the rest of the tests would say nothing more."""
        send(self.told, Ending(test, how))
        os._exit(1)

    def end(self, code: int) -> None:
        if not self.passed:
            self.tell("", NOTHING_RUN)
        os._exit(code)


class Chosen:
    """Keeps these tests, in their order; one whose name comes of what the mutant has changed may be gone."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.places = {test: at for at, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self.places]
        items[:] = sorted(kept, key=lambda item: self.places[item.nodeid])


@cache
def warm() -> None:
    """Load what every trial needs, and kvproto is no part of."""
    import _pytest.assertion.rewrite  # noqa: F401
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401, ICN001
    import torch
    import zmq  # noqa: F401

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # no fork walks through it


def begin(root: Path, mutant: CodeMutant, tests: Sequence[str]) -> Fork:

    def work(told: int) -> None:
        forget_kvproto()
        sys.meta_path.insert(0, MutantFinder(root, mutant))
        quiet(root)
        first, files = FirstFailure(told), dict.fromkeys(test.partition("::")[0] for test in tests)
        first.end(int(pytest.main([*calm(), "-x", *files], plugins=[first, Chosen(tests)])))

    return Fork(work)


def forget_kvproto() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kvproto"]:
        del sys.modules[name]


def quiet(root: Path) -> None:
    """Make this process silent and deterministic: same examples each time, kernels interpreted, no
    shrinking. It works in `root`.
    """
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silence, stream)
    os.chdir(root)
    os.environ |= {"CI": "1", "KVPROTO_TRIAL": "1", "TRITON_INTERPRET": "1"}


def calm() -> list[str]:
    """Return pytest's options; the parent's watchdog is no thread of the child: faulthandler would wait."""
    return ["-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0", "-o", f"timeout={LONGEST_TEST_S}"]
