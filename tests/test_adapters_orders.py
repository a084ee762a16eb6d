"""Calls that adapters make on an endpoint: rows, partial blocks, and a withdrawal that waits."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.scripted_sglang import Stage

from kvproto.adapters import prefill_worker
from kvproto.adapters.geometry import Geometry
from kvproto.adapters.prefill_worker import PrefillWorker
from kvproto.adapters.request_words import GiveBlocks, GiveUp, OpenRoom, Ticket, Withdraw
from kvproto.adapters.sglang.requests import Receiver, Sender
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause

LAYOUT = Layout(layers=1, heads=1, k_dim=4, v_dim=4, itemsize=2, dtype="float16", page_size=1, tp=1)
TICKET = Ticket(7, 100)


class ToldEndpoint:
    """Keeps what it is told; a room that was withdrawn is read for so many questions more."""

    def __init__(self, read: float = 0) -> None:
        self.read, self.calls = read, list[tuple[Any, ...]]()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **about: self.calls.append((name, *args[1:], *about.items()))

    def withdrawn(self, _room: object) -> bool:
        self.calls.append(("withdrawn",))
        self.read -= 1
        return self.read < 0

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]


def worker(endpoint: ToldEndpoint, unit: int = 1) -> PrefillWorker:
    made = PrefillWorker(cast("Any", endpoint), Geometry(cast("Any", None), LAYOUT, unit))
    made.carry[OpenRoom](OpenRoom("a", TICKET))
    return made


@pytest.mark.parametrize(("upto", "units"), [(0, 0), (15, 0), (16, 1), (31, 1), (96, 6), (99, 6), (100, 7), (112, 7)])
def test_a_block_that_is_not_full_counts_only_at_the_end_of_the_prompt(upto: int, units: int) -> None:
    endpoint = ToldEndpoint()
    worker(endpoint, unit=16).carry[GiveBlocks](GiveBlocks("a", (1, 2), upto))
    assert endpoint.of("open")[0][0] == 7, "blocks of the whole prompt, the last of which is not full"
    assert endpoint.of("produced")[0][0] == units
    assert len(endpoint.of("aux")) == (upto >= TICKET.tokens)


def test_a_withdrawal_returns_only_when_nothing_reads_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, slept = ToldEndpoint(read=3), list[float]()
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=slept.append)
    monkeypatch.setattr(prefill_worker, "time", clock)
    worker(endpoint).carry[Withdraw](Withdraw("a"))
    assert endpoint.of("withdraw") == [(0,)] and len(endpoint.of("withdrawn")) == 4
    assert len(slept) == 3 and all(0 < pause <= 1e-3 for pause in slept), "an engine's step waits for it"


def test_a_withdrawal_that_never_ends_is_told_after_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, endpoint = [0.0], ToldEndpoint(read=float("inf"))

    def sleep(seconds: float) -> None:
        now[0] += max(seconds, 0.1)

    monkeypatch.setattr(prefill_worker, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    with pytest.raises(TimeoutError, match="still reads blocks that were taken away"):
        worker(endpoint).carry[Withdraw](Withdraw("a"))
    assert 1.0 <= now[0] <= 30.0


def test_a_room_asks_for_its_grants_when_it_is_opened_and_is_refused_when_it_is_given_up() -> None:
    endpoint = ToldEndpoint()
    made = worker(endpoint)
    assert [call[0] for call in endpoint.calls] == ["open", "prefetch"]
    made.carry[GiveUp](GiveUp("a", TICKET, report=False))
    assert endpoint.of("refuse") == [(Cause.PREFILL_ABORTED,)]


@pytest.mark.parametrize(("told", "row"), [(0, 0), (3, 3), (None, -1)])
def test_row_0_of_the_metadata_is_a_row(told: int | None, row: int) -> None:
    heard = list[object]()
    sender, receiver = (cast("Any", kind.__new__(kind)) for kind in (Sender, Receiver))
    for request in (sender, receiver):
        request.hear = heard.append
    sender.init(2, told)
    receiver.send_metadata([1], told)
    assert (sender.aux_index, receiver.aux_index) == (row, row) and len(heard) == 2


def test_the_first_row_of_the_metadata_is_carried() -> None:
    """A request that has row 0 at both sides is carried."""
    with Stage(1, 1) as stage:
        for side in (stage.prefill, stage.decode):
            side.rows.sort(reverse=True)
            assert side.rows[-1] == 0, "the next one"
        stage.ask(1, 50)
        stage.run()
        assert stage.decode.ended == stage.prefill.ended == {1: "well"}
