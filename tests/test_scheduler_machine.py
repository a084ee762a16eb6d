"""Schedulers under any schedule: two that do right, and defects of theirs that the machine must find."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings

pytest.importorskip("torch")
pytest.importorskip("zmq")

from hypothesis.stateful import run_state_machine_as_test
from support.small_scheduler import SmallDecode, SmallPrefill
from support.stories import layout

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.verify.testing.scheduler_machine import Scheduler, SchedulerMachine

PAGES = 16
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


class Small(SchedulerMachine):
    """Two prefill ranks, one decode rank, pages for about two requests."""

    prefill, decode, chunk_tokens, pages = layout(2), layout(1), 8, PAGES

    def make_prefill(self, endpoint: PrefillEndpoint, index: int) -> Scheduler:
        return SmallPrefill(endpoint, self.pages)

    def make_decode(self, endpoint: DecodeEndpoint, index: int) -> Scheduler:
        return SmallDecode(endpoint, self.pages)


def run(machine: type[SchedulerMachine], examples: int) -> None:
    """The same examples each time."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=30, derandomize=True, database=None, phases=[Phase.generate],
            suppress_health_check=QUIET, report_multiple_bugs=False, deadline=None,
        ),
    )  # fmt: skip


def test_schedulers_that_do_right_live_through_any_schedule() -> None:
    run(Small, 12)


class GivesBackAtTheOutcome(SmallDecode):
    """Takes an outcome for a release."""

    def hear(self) -> None:
        for outcome in self.endpoint.finished():
            self.opened.discard(outcome.room)
            self.pages.give_back(outcome.room)
        self.endpoint.released()


class ForgetsFailures(SmallDecode):
    """Gives back what has succeeded, and forgets the pages of what has not."""

    def hear(self) -> None:
        good = {outcome.room for outcome in self.endpoint.finished() if outcome.ok}
        self.opened -= good
        for room in self.endpoint.released():
            if room in good:
                self.pages.give_back(room)


class GoesOnAfterTheEnd(SmallPrefill):
    """Never asks how rooms have ended."""

    def hear(self) -> None:
        for room in self.endpoint.released():
            self.pages.give_back(room)


class WithEarlyRelease(Small):
    def make_decode(self, endpoint: DecodeEndpoint, index: int) -> Scheduler:
        return GivesBackAtTheOutcome(endpoint, self.pages)


class WithForgottenFailures(Small):
    def make_decode(self, endpoint: DecodeEndpoint, index: int) -> Scheduler:
        return ForgetsFailures(endpoint, self.pages)


class WithDeafPrefill(Small):
    def make_prefill(self, endpoint: PrefillEndpoint, index: int) -> Scheduler:
        return GoesOnAfterTheEnd(endpoint, self.pages)


@pytest.mark.parametrize(
    ("machine", "said"),
    [(WithEarlyRelease, "not yet released"), (WithForgottenFailures, "not idle"), (WithDeafPrefill, "not idle")],
)  # fmt: skip
def test_a_scheduler_that_does_wrong_is_found(machine: type[SchedulerMachine], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        run(machine, 400)
