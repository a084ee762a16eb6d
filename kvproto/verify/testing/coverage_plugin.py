"""Coverage plugin of pytest: the rows and routes that a run fires.

Load it by `pytest -p kvproto.verify.testing.coverage_plugin`, or in the top conftest.py by
`pytest_plugins = ["kvproto.verify.testing.coverage_plugin"]`.

    pytest --rows                    count, and report rows and routes at the end
    pytest --rows --rows-least 100   fail the run if fewer rows fired than that, or fewer routes were taken, in percent

It counts what happens on ranks (`kvproto.verify.framework.trace.coverage`), in the test process and in xdist's workers;
what processes do that tests start by themselves is not seen.

A test that plays a peer, a library or an engine which breaks the contract says so by `@pytest.mark.misbehaving`, and
what it brings about is counted apart: the report lists what honest traffic has not fired and only misbehaviour has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kvproto.verify.claims.kv import KV
from kvproto.verify.framework.trace.coverage import Collector, lacking

SECTION = "kvproto_rows"
#: the kinds of what tests see
HONEST, MISBEHAVING = "honest", "misbehaving"
#: lines of what is missing that are repeated at the end
MOST = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvproto")
    group.addoption("--rows", action="store_true", help="report which rows and routes of the protocol were fired")
    group.addoption("--rows-least", type=float, metavar="PERCENT", help="fail if fewer were fired (implies --rows)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MISBEHAVING}: plays a peer, a library or an engine that breaks the contract")
    if config.option.rows or config.option.rows_least is not None:
        config.pluginmanager.register(RowCoverage(config), "kvproto-rows")


class CollectorByKind(Collector):
    """A collector that hands what it sees to the one whose turn it is."""

    def __init__(self) -> None:
        super().__init__(KV.counted)
        self.by_kind = {HONEST: Collector(KV.counted), MISBEHAVING: Collector(KV.counted)}
        self.kind = HONEST

    def note(self, entry: Any) -> None:
        """An entry of a rank's trace."""
        if self.counting:
            self.by_kind[self.kind].note(entry)


class RowCoverage:
    """The plugin while it counts."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.kinds = CollectorByKind()
        self.counts = self.kinds.by_kind
        self.stack = ExitStack()
        self.stack.enter_context(self.kinds.installed())
        self.least: float | None = config.option.rows_least

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.kinds.kind = MISBEHAVING if item.get_closest_marker(MISBEHAVING) else HONEST
        found = yield
        self.kinds.kind = HONEST
        return found

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        for kind, said in getattr(node, "workeroutput", {}).get(SECTION, {}).items():
            self.counts[kind].add_dump(said)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Hand a worker's counts to the controller before the worker finishes; the controller judges."""
        self.stack.close()
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[SECTION] = {kind: counts.dump() for kind, counts in self.counts.items()}
        yield
        if output is not None or not self._short():
            return
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        # Behind pytest's own closing line: of a long log most see the end alone.
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            for line in (*lacking(self._whole())[:MOST], f"that is too few: --rows-least {self.least:g} was asked for"):
                reporter.write_line(line, red=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        whole = self._whole()
        say = terminalreporter.write_line
        terminalreporter.section("rows and routes of the protocol")
        for name, counts in (*self.counts.items(), ("together", whole)):
            rows, routes = counts.percent()
            say(f"{name:<12} {rows:.1f} % of the rows fired, {routes:.1f} % of the routes were taken")
        for title, lines in (
            ("only misbehaviour has fired", lacking(self.counts[HONEST], self.counts[MISBEHAVING])),
            ("never fired", lacking(whole)),
        ):
            for line in (f"{title}:", *(f"  {line}" for line in lines)) if lines else ():
                say(line)

    def _whole(self) -> Collector:
        made = Collector(KV.counted)
        for counts in self.counts.values():
            made.add(counts)
        return made

    def _short(self) -> bool:
        return self.least is not None and min(self._whole().percent()) < self.least
