"""Any schedule of a real pair of groups over real control sockets; and defects that the machine must find."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import kvproto.protocol.ring
import kvproto.rank.prefill_queues
from kvproto.verify.check.mutations import MUTANTS
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.testing.hypothesis_machine import TransferMachine

pytestmark = pytest.mark.timeout(900)  # a search: how long it takes depends on who else uses the machine
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def test_any_schedule() -> None:
    run_state_machine_as_test(
        TransferMachine, settings=settings(max_examples=30, stateful_step_count=40, suppress_health_check=QUIET)
    )


def hunt(examples: int = 150) -> None:
    """The same examples each time, none of them made smaller: what counts is that one is found."""
    run_state_machine_as_test(
        TransferMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=40, derandomize=True, database=None, phases=[Phase.generate],
            suppress_health_check=QUIET, report_multiple_bugs=False,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("defect", "said"),
    [("success-before-all-chunks", "wrong bytes|breaks the protocol"), ("slot-reuse", "wrong bytes|is not theirs"),
     ("chunk-offset-not-advanced", "lands at")],
)  # fmt: skip
def test_a_planted_row_is_found(defect: str, said: str) -> None:
    with TablePatch() as bench:
        MUTANTS[defect].apply(bench)
        with pytest.raises(AssertionError, match=said):
            hunt()


def test_a_ring_that_lets_everything_be_written_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kvproto.protocol.ring, kvproto.rank.prefill_queues):
        monkeypatch.setattr(module, "usable", lambda *_: True)
    with pytest.raises(AssertionError, match="still another's"):
        hunt()
