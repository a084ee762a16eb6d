"""Calls that adapters make on an endpoint: rows, partial blocks, and a withdrawal that waits."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from support.scripted_sglang import Stage, TransferError

from kvproto.adapters import prefill_worker
from kvproto.adapters.card import Card
from kvproto.adapters.decode_worker import DecodeWorker
from kvproto.adapters.geometry import Geometry
from kvproto.adapters.prefill_worker import PrefillWorker
from kvproto.adapters.request_words import Announce, GiveBlocks, GiveUp, Load, OpenRoom, Ticket, Withdraw
from kvproto.adapters.sglang import tables
from kvproto.adapters.sglang.receiver import Receiver
from kvproto.adapters.sglang.room_lives import RoomLives
from kvproto.adapters.sglang.sender import Sender
from kvproto.fsm.machine import Machine
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.room import Caller, Outcome, Room

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


def test_blocks_wait_for_the_event_of_their_own_step() -> None:
    endpoint = ToldEndpoint()
    made = worker(endpoint)
    for upto, event in ((40, "first"), (100, "second")):
        made.before([OpenRoom("a", TICKET)] if upto == 40 else [])
        made.after([GiveBlocks("a", (1,), upto)], event)
    assert [call[:2] for call in endpoint.of("produced")] == [(40, "first"), (100, "second")]


@pytest.mark.parametrize(("prefix", "units"), [(0, 0), (16, 1), (31, 1), (100, 7)])
def test_a_prefix_that_ends_inside_a_block_does_not_count_it(prefix: int, units: int) -> None:
    endpoint: Any = ToldEndpoint()
    endpoint.pool = SimpleNamespace(page_size=1)
    made = DecodeWorker(endpoint, Geometry(cast("Any", None), LAYOUT, 16))
    card = Card(9, 1, LAYOUT, 4, ("tcp://here:1",)).encode()
    made.known = cast("Any", SimpleNamespace(call=lambda _: None))
    made.carry[Announce](Announce("a", replace(TICKET, peer=card)))
    made.carry[Load](Load("a", (1, 2, 3, 4, 5, 6, 7), prefix))
    assert endpoint.of("announce") == [(7, ("group", 9), ("secret", b""))]
    told = ("prefix", units), ("group", 9), ("secret", b""), ("slot", None), ("window", None)
    assert endpoint.of("open") == [(7, (1, 2, 3, 4, 5, 6, 7), *told)]


def test_a_withdrawal_returns_only_when_nothing_reads_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, slept = ToldEndpoint(read=3), list[float]()
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=slept.append)
    monkeypatch.setattr(prefill_worker, "time", clock)
    worker(endpoint).carry[Withdraw](Withdraw("a"))
    assert endpoint.of("withdraw") == [(0,)] and len(endpoint.of("withdrawn")) == 4
    assert len(slept) == 3 and all(0 < pause <= 1e-3 for pause in slept), "an engine's step waits for it"


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
        request.hear, request.kv_mgr = heard.append, SimpleNamespace(instance=SimpleNamespace(stage=0))
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


class WaitingEndpoint(ToldEndpoint):
    """A prefill endpoint for whose room a decode instance waits: it has 16 of 48 tokens, in pages of 16."""

    pool = SimpleNamespace(device=SimpleNamespace(type="cpu"))
    waits = Caller(group=3, tokens=48, prefix=16, page_size=16)

    def caller(self, _room: object) -> Caller:
        return self.waits


def sender_of(endpoint: ToldEndpoint) -> Sender:
    """A sender whose decode instance is there, in pages of 8 tokens."""
    kind = type("Rank", (SimpleNamespace,), {"failure": TransferError, "metric": SimpleNamespace})
    rank = kind(
        machine=Machine(tables.sender, tables.Timing()), endpoint=endpoint, tasks={}, advance=lambda: None,
        layout=SimpleNamespace(page_size=8), aux=SimpleNamespace(read=lambda row: f"row {row}"),
        kv_args=SimpleNamespace(kv_item_lens=[10, 6]), instance=SimpleNamespace(data_parallel=1, stages=(), stage=0),
        reporter=None, forwards=None, lives=RoomLives(),
    )  # fmt: skip
    made = Sender(cast("Any", rank), "an address", 7)
    assert made.poll() == tables.WAITING
    return made


def test_each_forward_asks_for_grants_and_its_pages_wait_for_their_own_event() -> None:
    """An event of an early send is spent by it: the next pages are computed later."""
    endpoint = WaitingEndpoint()
    sender = sender_of(endpoint)
    sender.init(3, 2)
    sender.scheduled()
    sender._early_send_wait_event = "early"
    sender.send([4])
    sender.scheduled()
    sender.send([5, 6])
    assert [call[0] for call in endpoint.calls] == ["open", "prefetch", "produced", "prefetch", "aux", "produced"]
    assert endpoint.of("open") == [(48, [0, 0], ("group", 3))]
    told = [(24, "early", ("pages", [4])), (48, None, ("pages", [5, 6, 0]))]
    assert endpoint.of("produced") == told
    assert endpoint.of("aux") == [("row 2",)]


def test_what_was_handed_over_is_counted_in_bytes_of_all_tensors() -> None:
    sender = sender_of(WaitingEndpoint())
    sender.init(3, 2)
    sender.send([4])
    assert sender.get_transfer_metric() == SimpleNamespace(transfer_total_bytes=16)


@pytest.mark.parametrize("aborted", [False, True])
def test_a_failure_is_told_with_the_first_reason_and_whether_it_is_another_rank_s(*, aborted: bool) -> None:
    endpoint = WaitingEndpoint()
    sender = sender_of(endpoint)
    sender.init(3, 2)
    if aborted:
        sender.abort()
        sender.end(Outcome(Room(7), Cause.PREFILL_ABORTED, reason="given up"))
    with pytest.raises(TransferError) as told:
        sender.failure_exception()
    assert (told.value.why, told.value.elsewhere) == (
        ("aborted by SGLang", False) if aborted else ("it has failed on another rank", True)
    )
    assert len(endpoint.of("abort")) == 1, "the room is given up here, too"


def test_a_decode_instance_that_gives_up_before_the_sender_is_started_is_noticed() -> None:
    endpoint = WaitingEndpoint()
    sender = sender_of(endpoint)
    endpoint.waits = replace(endpoint.waits, cause=Cause.DECODE_ABORTED)
    assert sender.poll() == tables.FAILED and "given it up: DECODE_ABORTED" in sender.why
