"""Row coverage of a pytest run.

Load it by `pytest -p kvproto.testing.coverage_plugin`, or in the top conftest.py by
`pytest_plugins = ["kvproto.testing.coverage_plugin"]`.

    pytest --rows                    count, and report rows, guard outcomes and pairs at the end
    pytest --rows --rows-least 100   fail the run if fewer rows fired than that, in percent
    pytest --rows-out rows.json      keep the counts: `kvproto draw --coverage rows.json` paints them

It counts in the test process and in xdist's workers; what processes do that tests start by themselves is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kvproto.fsm.trace.coverage import Collector, percent, report, undump
from kvproto.protocol.tables import TABLES

SECTION = "kvproto_rows"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("kvproto")
    group.addoption("--rows", action="store_true", help="report which rows of the protocol's tables fired")
    group.addoption("--rows-least", type=float, metavar="PERCENT", help="fail if fewer rows fired (implies --rows)")
    group.addoption("--rows-out", type=Path, metavar="FILE", help="write the counts to FILE (implies --rows)")


def pytest_configure(config: pytest.Config) -> None:
    """Count from now on, if that was asked for."""
    if config.option.rows or config.option.rows_least is not None or config.option.rows_out:
        config.pluginmanager.register(RowCoverage(config), "kvproto-rows")


class RowCoverage:
    """The plugin while it counts."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.counts = Collector(TABLES)
        self.stack = ExitStack()
        self.stack.enter_context(self.counts.installed())
        self.least: float | None = config.option.rows_least

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:  # noqa: ARG002 - xdist's own type
        """A worker has ended: its counts are ours."""
        said = getattr(node, "workeroutput", {}).get(SECTION)
        if said is not None:
            self.counts.add(undump(said, TABLES))

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """A worker hands its counts to the controller before it says that it has finished; the controller judges."""
        self.stack.close()
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[SECTION] = self.counts.dump()
        yield
        if output is not None:
            return
        if self.config.option.rows_out:
            self.counts.save(self.config.option.rows_out)
        if self._short() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The report."""
        terminalreporter.section("rows of the protocol's tables")
        terminalreporter.write_line(report(self.counts))
        if self._short():
            text = f"{percent(self.counts):.1f} % of the rows fired; --rows-least {self.least:g} was asked for"
            terminalreporter.write_line(text, red=True)

    def _short(self) -> bool:
        return self.least is not None and percent(self.counts) < self.least
