"""Workers and introductions, call by call, at an endpoint that writes down what it is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from support.scripted_endpoint import ScriptedEndpoint

from kvproto import ArgumentError
from kvproto.adapters import introductions, prefill_worker
from kvproto.adapters.card import Card, CardError, group_of
from kvproto.adapters.card_trust import CardTrust
from kvproto.adapters.decode_worker import DecodeWorker
from kvproto.adapters.geometry import Geometry, GeometryError
from kvproto.adapters.introductions import STANDS_S, Introductions
from kvproto.adapters.prefill_worker import PrefillWorker
from kvproto.adapters.request_events import Allocated, Arrived, Resume
from kvproto.adapters.request_parties import everyone, scheduler
from kvproto.adapters.request_words import (
    Announce,
    GiveBlocks,
    GiveUp,
    Load,
    OpenRoom,
    Received,
    Skip,
    Ticket,
    Withdraw,
)
from kvproto.errors import LinkError
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.room import Outcome, Room

LAYOUT = Layout(layers=2, heads=4, k_dim=4, v_dim=4, itemsize=2, dtype="float16", page_size=4, tp=1)
CARD = Card(7, 1, LAYOUT, 8, ("tcp://10.0.0.1:5",))
TOKENS, UNIT = 21, 2
TICKET = Ticket(5, TOKENS, CARD.encode(), secret=b"s")


def decode(trust: CardTrust | None = None) -> tuple[Any, ScriptedEndpoint]:
    endpoint: Any = ScriptedEndpoint()
    return DecodeWorker(endpoint, Geometry(endpoint.pool, LAYOUT, UNIT), trust), endpoint


def test_a_decode_worker_opens_a_room_with_whole_units_the_prefix_and_its_slots() -> None:
    worker, endpoint = decode()
    worker.before([Announce("one", TICKET)])
    assert endpoint.of("announce") == [(Room(5), 11, {"group": 7, "secret": b"s"})], "21 tokens are 11 units"
    worker.before([Load("one", (9, 8, 7), 5, (3,))])
    how = {"prefix": 2, "group": 7, "secret": b"s", "slot": (3,), "window": None}
    assert endpoint.of("open") == [(Room(5), 11, (9, 8, 7), how)]


def test_a_worker_that_is_closed_closes_its_endpoint() -> None:
    worker, endpoint = decode()
    assert not endpoint.of("close")
    worker.close()
    assert endpoint.of("close") == [()]


def test_a_window_is_given_with_the_last_blocks_of_the_prompt_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint: Any = ScriptedEndpoint()
    monkeypatch.setattr(Geometry, "window", lambda _geometry, tables, tokens: {"window": (tables, tokens)})
    worker = PrefillWorker(endpoint, Geometry(endpoint.pool, LAYOUT, UNIT))
    worker.before([OpenRoom("one", TICKET)])
    for upto in (20, 21):
        worker.after([GiveBlocks("one", (1,), upto, (), ((4,),))])
    assert [call[-1]["window"] for call in endpoint.of("produced")] == [None, {"window": (((4,),), 11)}]


def test_a_request_that_needs_no_load_opens_its_room_over_pages_that_nobody_reads() -> None:
    worker, endpoint = decode()
    worker.before([Announce("one", TICKET), Skip("one")])
    how = {"prefix": 11, "group": 7, "secret": b"s", "slot": None, "window": None}
    assert endpoint.of("open") == [(Room(5), 11, [0, 0, 0], how)] and not endpoint.of("abort")


def test_with_recurrent_state_a_request_that_needs_no_load_is_given_up() -> None:
    worker, endpoint = decode()
    endpoint.pool.ends = ("some",)
    worker.before([Announce("one", TICKET), Skip("one")])
    assert endpoint.of("abort") == [(Room(5),)] and not endpoint.of("open")


def test_a_request_that_is_given_up_aborts_its_own_room_alone() -> None:
    worker, endpoint = decode()
    worker.before([Announce("one", TICKET), GiveUp("one", TICKET, report=False)])
    assert endpoint.of("abort") == [(Room(5),)]
    worker.before([GiveUp("unknown", TICKET, report=False)])
    assert len(endpoint.of("abort")) == 1


def test_cards_are_trusted_as_the_worker_is_told() -> None:
    strict = CardTrust(b"0123456789abcdef")
    worker, endpoint = decode(strict)
    assert worker.known.trust is strict
    worker.before([Announce("one", TICKET)])
    assert not endpoint.of("connect"), "the card has no signature"
    trusting, endpoint = decode()
    assert trusting.known.trust == CardTrust()
    trusting.before([Announce("one", TICKET)])
    assert endpoint.of("connect") == [(LAYOUT, CARD.addresses, {"group": 7, "chunk_tokens": 8})]


def test_an_order_that_the_endpoint_refuses_gives_up_a_room_that_is_open_and_reports_one_that_is_not() -> None:
    worker, endpoint = decode()
    endpoint.answers["announce"] = ArgumentError("no")
    worker.before([Announce("early", TICKET)])
    assert not endpoint.of("abort")
    worker.before([Load("early", (1,), 0)])
    found = worker.results()
    assert found.received == found.failed == {"early"}
    endpoint.answers["announce"], endpoint.answers["open"] = None, ArgumentError("no")
    worker.before([Announce("late", replace(TICKET, room=6)), Load("late", (1,), 0)])
    assert endpoint.of("abort") == [(Room(6),)]


def test_outcomes_and_releases_are_told_to_who_asks_before_they_are_reported() -> None:
    worker, endpoint = decode()
    told = list[Any]()
    worker.on_outcome = lambda request, outcome: told.append((request, outcome.cause))
    worker.on_release = told.append
    worker.before([Announce("one", TICKET), Load("one", (1, 2, 3), 0)])
    endpoint.answers["finished"] = [Outcome(Room(5), Cause.NONE), Outcome(Room(99), Cause.NONE)]
    endpoint.answers["released"] = [Room(5), Room(99)]
    found = worker.results()
    assert told == [("one", Cause.NONE), "one"] and found.received == {"one"} and not found.failed
    assert not worker._tickets and not worker._requests


def test_a_room_of_another_request_of_the_same_number_is_left_alone() -> None:
    worker, endpoint = decode()
    worker.before([Announce("one", TICKET)])
    worker._tickets["two"] = TICKET
    assert worker._holds("one") and not worker._holds("two")
    worker._requests[Room(6)] = "three"
    assert not worker._holds("three"), "it has no ticket here"
    worker._open("two", (1,), 0)
    assert not endpoint.of("open")


def test_a_timer_of_the_rank_fires_at_its_deadline_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now, fired = [100.0], list[float]()
    worker, _ = decode()
    monkeypatch.setattr("kvproto.adapters.worker.time", SimpleNamespace(monotonic=lambda: now[0]))

    def tick(at: float) -> list[Any]:
        fired.append(at)
        return []

    worker.rank = SimpleNamespace(next_deadline=105.0, tick=tick)
    worker.results()
    now[0] = 105.0
    worker.results()
    assert fired == [105.0]


# --------------------------------------------------------------------------------------------- prefill
def prefill() -> tuple[Any, ScriptedEndpoint]:
    endpoint: Any = ScriptedEndpoint()
    worker = PrefillWorker(endpoint, Geometry(endpoint.pool, LAYOUT, UNIT))
    worker.before([OpenRoom("one", replace(TICKET, peer="d"))])
    return worker, endpoint


def test_a_prefill_worker_opens_a_room_of_whole_units_and_gives_what_is_computed() -> None:
    worker, endpoint = prefill()
    assert endpoint.of("open") == [(Room(5), 11, {"group": group_of("d"), "secret": b"s"})]
    assert endpoint.of("prefetch") == [(Room(5),)]
    worker.after([GiveBlocks("one", (4, 5), 7, (2,))], "event")
    worker.after([GiveBlocks("one", (6,), TOKENS)])
    assert endpoint.of("produced") == [
        (Room(5), 3, "event", {"pages": (4, 5), "slot": (2,), "window": None}),
        (Room(5), 11, None, {"pages": (6,), "slot": None, "window": None}),
    ]  # fmt: skip
    assert endpoint.of("aux") == [(Room(5), b"")]


def test_a_withdrawal_returns_when_nothing_is_read_and_ends_when_the_loop_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, endpoint = prefill()
    now, reading = [50.0], [True, True, False]
    stand_in = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: now.append(now.pop() + 1.0))
    monkeypatch.setattr(prefill_worker, "time", stand_in)
    monkeypatch.setattr(endpoint, "withdrawn", lambda _: not reading.pop(0), raising=False)
    worker.before([Withdraw("one")])
    assert endpoint.of("withdraw") == [(Room(5), 0)] and reading == [] and now == [52.0]
    # A write to a decode process that stands reads for long: its room fails, and the engine goes on.
    monkeypatch.setattr(endpoint, "withdrawn", lambda _: False, raising=False)
    states = [{"OPEN": [Room(5)]}, {"SETTLING": [Room(5)]}]
    monkeypatch.setattr(endpoint, "rooms", lambda: states.pop(0), raising=False)
    worker.before([Withdraw("one")])
    assert endpoint.of("abort") == [(Room(5),)] and not states
    assert 52.0 + prefill_worker.WITHDRAW_S < now[0] <= 55.0 + prefill_worker.WITHDRAW_S
    monkeypatch.setattr(endpoint, "rooms", lambda: {"OPEN": [Room(5)]}, raising=False)
    with pytest.raises(TimeoutError, match="its loop stands"):
        worker.before([Withdraw("one")])


# ---------------------------------------------------------------------------------------- introductions
class Known:
    """Introductions at a scripted endpoint, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **trust: Any) -> None:
        self.endpoint, self.now = ScriptedEndpoint(), [0.0]
        endpoint: Any = self.endpoint
        self.of = Introductions(endpoint, CardTrust(**trust))
        monkeypatch.setattr(introductions, "time", SimpleNamespace(monotonic=lambda: self.now[0]))

    def calls(self) -> int:
        return len(self.endpoint.of("connect"))


def test_a_card_is_called_by_once_while_its_links_lead_there(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Known(monkeypatch)
    at.of.call(CARD)
    at.of.call(CARD)
    assert at.calls() == 1 and at.endpoint.of("ready") == [(7, CARD.addresses)]
    assert at.endpoint.of("leads_to") == [(CARD.addresses, 7)]
    at.endpoint.answers["leads_to"] = False
    at.of.call(CARD)
    at.endpoint.answers |= {"leads_to": True, "ready": LinkError("refused")}
    at.of.call(CARD)
    assert at.calls() == 3


def test_the_instance_that_was_asked_for_longest_ago_gives_way_to_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Known(monkeypatch, instances=2)
    first, second, third = (replace(CARD, group=group) for group in (1, 2, 3))
    for card in (first, second, first, third):
        at.of.call(card)
    assert at.endpoint.of("disconnect") == [(2,)] and [*at.of.cards] == [1, 3]
    at.endpoint.answers["any_up"] = True
    with pytest.raises(CardError, match="raise card_instances"):
        at.of.call(second)


def test_another_layout_is_heard_when_the_one_before_was_never_agreed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Known(monkeypatch)
    other = replace(CARD, chunk_tokens=16)
    at.of.call(CARD)
    at.of.call(other)
    assert at.endpoint.of("disconnect") == [(7,)] and at.calls() == 2 and at.of.cards[7] == other


def test_another_layout_than_was_agreed_to_is_heard_after_its_time_and_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at, other = Known(monkeypatch), replace(CARD, chunk_tokens=16)
    at.of.call(CARD)
    at.endpoint.answers["agreed"] = True

    def refused(card: Card, why: str) -> None:
        with pytest.raises(CardError, match=why):
            at.of.call(card)

    refused(other, "has answered with another layout")
    at.now[0] = STANDS_S - 0.1
    refused(other, "has answered with another layout")
    at.endpoint.answers["any_up"] = True
    refused(other, "is connected with another layout")
    at.endpoint.answers["any_up"] = False
    at.now[0] = STANDS_S
    refused(other, "has answered with another layout")
    at.now[0] = 2 * STANDS_S
    at.of.call(other)
    assert at.calls() == 2 and at.of.cards[7] == other
    refused(CARD, "has answered with another layout")


def test_an_instance_that_gives_way_is_forgotten_with_what_contradicted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    at, other = Known(monkeypatch, instances=1), replace(CARD, chunk_tokens=16)
    at.of.call(CARD)
    at.endpoint.answers["agreed"] = True
    with pytest.raises(CardError):
        at.of.call(other)
    at.of.call(replace(CARD, group=8))
    at.of.call(CARD)
    at.now[0] = STANDS_S
    with pytest.raises(CardError):
        at.of.call(other)


# -------------------------------------------------------------------------------------------- small things
@pytest.mark.parametrize("instances", [0, -1, 1.0, True, "3"])
def test_a_count_of_instances_that_is_none_is_refused(instances: Any) -> None:
    with pytest.raises(ArgumentError, match="card_instances"):
        CardTrust.read(instances=instances)
    assert CardTrust.read(instances=1).instances == 1


def test_a_signature_is_that_of_hmac_with_sha256() -> None:
    """By the standard's second test case, RFC 4231."""
    told = CardTrust(b"Jefe").signature_of(b"what do ya want for nothing?")
    assert told == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"


def test_a_geometry_error_has_its_reason_and_its_sentence_apart() -> None:
    error = GeometryError("no-pool", "why")
    assert (error.reason, error.sentence, str(error)) == ("no-pool", "why", "no-pool: why")


@pytest.mark.parametrize(
    ("ours", "older"), [((3, 4), "this side is the older one"), ((7, 8), "the prefill instance is")]
)
def test_of_two_protocols_the_older_side_is_named(monkeypatch: pytest.MonkeyPatch, ours: Any, older: str) -> None:
    monkeypatch.setattr("kvproto.adapters.card.PROTOCOL", ours)
    replace(CARD, protocol=ours).check()
    with pytest.raises(CardError, match=older):
        replace(CARD, protocol=(5, 6)).check()


@pytest.mark.parametrize("failed", [(False,) * 3, *((at == 0, at == 1, at == 2) for at in range(3))])
def test_a_load_that_failed_on_any_rank_resumes_as_failed(failed: tuple[bool, ...]) -> None:
    """In whatever order the ranks report."""
    party = scheduler("decode", 3)
    party.handle(Arrived("one", TICKET, everyone(3)), 0.0)
    party.handle(Allocated("one", (1, 2), 0), 0.0)
    effects = [each for rank, bad in enumerate(failed, 1) for each in party.receive(rank, Received("one", bad), 0.0)]
    (resumed,) = [each for each in effects if isinstance(each, Resume)]
    assert resumed.recompute is any(failed)


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [("chunk_tokens", 4, (1 << 32) - 4), ("data_parallel", 1, 4096), ("incarnation", 0, (1 << 48) - 1),
     ("group", 0, (1 << 64) - 1)],
)  # fmt: skip
def test_the_numbers_of_a_card_have_their_bounds(field: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(replace(CARD, **{field: value}), field) == value
    for value in (-4 if field == "chunk_tokens" else least - 1, most + (4 if field == "chunk_tokens" else 1)):
        with pytest.raises(ArgumentError, match=f"card: {field} is"):
            replace(CARD, **{field: value})


def test_the_tokens_of_a_chunk_are_one_or_more() -> None:
    of_one = replace(LAYOUT, page_size=1)
    assert replace(CARD, layout=of_one, chunk_tokens=1).chunk_tokens == 1
    with pytest.raises(ArgumentError, match="it is a number from 1 to 4294967295"):
        replace(CARD, layout=of_one, chunk_tokens=0)


@pytest.mark.parametrize(("address", "well"), [("x", True), ("x" * 512, True), ("x" * 513, False), ("", False),
                                               ("tcp://a:1\n", False)])  # fmt: skip
def test_an_address_of_a_card_is_short_and_can_be_shown(address: str, well: bool) -> None:
    if well:
        assert replace(CARD, addresses=(address,)).addresses == (address,)
    else:
        with pytest.raises(ArgumentError, match="printable characters"):
            replace(CARD, addresses=(address,))
