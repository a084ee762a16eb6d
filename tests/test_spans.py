"""The request's trace travels with its room: to the other side, the outcome, and OpenTelemetry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.stories import layout

from kvproto.protocol.states import Cause
from kvproto.room import Outcome, Room
from kvproto.verify.testing.pair import Pair

PREFILL, DECODE = (f"00-{digit * 32}-{digit * 16}-01" for digit in "ad")
MALFORMED = ("", "00-1", DECODE.upper(), DECODE + "-more", DECODE + "\n", "é" * 55, None)


def opened(pair: Pair, prefill: Any, decode: Any, *, decode_first: bool) -> Room:
    room = pair.name(20)
    ours, theirs, tokens, _ = pair.tables[room]
    ends: list[tuple[Any, Any, Any]] = [(end, ours, prefill) for end in pair.prefills]
    others: list[tuple[Any, Any, Any]] = [(end, theirs, decode) for end in pair.decodes]
    for side in (others, ends) if decode_first else (ends, others):
        for end, pages, traceparent in side:
            end.open(room, tokens, pages, traceparent=traceparent)
        pair.settle()
    return room


def told(pair: Pair, room: Room) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"P": set(), "D": set()}
    for (side, _, name), outcome in pair.outcomes.items():
        if name == room:
            found[side].add(outcome.traceparent)
    return found


@pytest.mark.parametrize("decode_first", [False, True])
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((PREFILL, DECODE), (PREFILL, DECODE)), (("", DECODE), (DECODE, DECODE)), ((PREFILL, ""), (PREFILL, PREFILL)),
        (("", ""), ("", "")),
    ],
)  # fmt: skip
def test_one_engine_s_trace_is_enough(given: tuple[str, str], found: tuple[str, str], decode_first: bool) -> None:
    with Pair(layout(2), layout(1), chunk_tokens=8) as pair:
        room = opened(pair, *given, decode_first=decode_first)
        pair.finish(room)
        assert told(pair, room) == {"P": {found[0]}, "D": {found[1]}}


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_trace_is_none_and_fails_nothing(text: Any) -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        room = opened(pair, text, text, decode_first=True)
        pair.finish(room)
        assert told(pair, room) == {"P": {""}, "D": {""}} and pair.causes(room) == {Cause.NONE}


def test_a_stranger_s_trace_is_not_the_owner_s() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        room = pair.name(20)
        ours, theirs, tokens, _ = pair.tables[room]
        pair.decodes[0].open(room, tokens, theirs, traceparent=DECODE)
        pair.settle()
        pair.prefills[0].open(room, tokens, ours, secret=b"not shown")
        pair.prefills[0].abort(room)
        pair.pump(lambda: pair.over(room))
        assert told(pair, room) == {"P": {""}, "D": {DECODE}}


# ------------------------------------------------------------------------------------------------- spans
@pytest.fixture
def exported() -> Any:
    """(a tracer provider, what it has exported)."""
    pytest.importorskip("opentelemetry.sdk", reason="pip install 'kvproto[test]'")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, memory = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    return provider, memory


def test_both_sides_and_the_transfer_are_one_trace(exported: Any) -> None:
    from kvproto import RoomSpans

    provider, memory = exported
    with Pair(layout(2), layout(1), chunk_tokens=8) as pair:
        spans = RoomSpans(provider)
        for end in pair.endpoints:
            end.spans = spans
        room = opened(pair, "", DECODE, decode_first=True)
        pair.finish(room)
    made = memory.get_finished_spans()
    names = sorted((span.name, dict(span.attributes).get("kvproto.side", "")) for span in made)
    assert names == [
        ("kvproto room", "decode"), ("kvproto room", "prefill"), ("kvproto room", "prefill"),
        ("kvproto transfer", ""), ("kvproto transfer", ""),
    ]  # fmt: skip
    assert {format(span.context.trace_id, "032x") for span in made} == {DECODE.split("-")[1]}
    rooms = {span.context.span_id: span for span in made if span.name == "kvproto room"}
    assert {format(span.parent.span_id, "016x") for span in rooms.values()} == {DECODE.split("-")[2]}
    for span in rooms.values():
        assert span.attributes["kvproto.room"] == str(room.id) and span.attributes["kvproto.outcome"] == "NONE"
        assert span.attributes["kvproto.tokens"] == 20 and 0 < span.end_time - span.start_time < 60e9
    for span in made:
        if span.name == "kvproto transfer":
            outer = rooms[span.parent.span_id]
            assert outer.start_time <= span.start_time <= span.end_time <= outer.end_time


def test_a_failure_is_an_error_of_its_span_and_an_abort_is_none(exported: Any) -> None:
    from kvproto import RoomSpans

    provider, memory = exported
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        decode = pair.decodes[0]
        decode.spans = RoomSpans(provider)
        aborted, refused = pair.open(20), pair.name(20)
        decode.abort(aborted)
        ours, theirs, tokens, _ = pair.tables[refused]
        pair.prefills[0].open(refused, tokens, ours, secret=b"not shown")
        decode.open(refused, tokens, theirs)
        pair.pump(lambda: pair.over(aborted) and ("D", 0, refused) in pair.outcomes)
        pair.prefills[0].abort(refused)
    by_cause = {span.attributes["kvproto.outcome"]: span for span in memory.get_finished_spans()}
    assert by_cause.keys() == {"DECODE_ABORTED", "NOT_ENTITLED"}
    assert by_cause["DECODE_ABORTED"].status.status_code.name == "UNSET"
    failed = by_cause["NOT_ENTITLED"].status
    assert failed.status_code.name == "ERROR" and "another secret" in failed.description


def test_a_span_says_when_who_and_what_and_a_transfer_there_is_where_kv_was_produced(
    exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvproto import RoomSpans
    from kvproto.endpoint import spans

    provider, memory = exported
    now = 1_000_000_000_000_000_000
    monkeypatch.setattr(spans, "time", SimpleNamespace(time_ns=lambda: now))
    made, name = RoomSpans(provider), Room(2**64 - 1, 3)
    rank = cast("Any", SimpleNamespace(side="prefill", group=2**64 - 2, index=5))
    entry = cast("Any", SimpleNamespace(opened=8.0, transfer=(9.25, 10.0), ended=10.5, tokens=20))
    made.ended(rank, Outcome(name, Cause.NONE, traceparent=PREFILL), entry)
    transfer, room = memory.get_finished_spans()
    assert (room.name, room.kind.name, room.start_time, room.end_time) == (
        "kvproto room", "PRODUCER", now - 2_500_000_000, now,
    )  # fmt: skip
    assert dict(room.attributes) == {
        "kvproto.room": str(2**64 - 1), "kvproto.gen": 3, "kvproto.tokens": 20, "kvproto.side": "prefill",
        "kvproto.group": str(2**64 - 2), "kvproto.rank": 5, "kvproto.outcome": "NONE",
    }  # fmt: skip
    assert format(room.parent.span_id, "016x") == PREFILL.split("-")[2] and room.status.status_code.name == "UNSET"
    assert (transfer.name, transfer.start_time, transfer.end_time) == (
        "kvproto transfer", now - 1_250_000_000, now - 500_000_000,
    )  # fmt: skip
    assert transfer.parent.span_id == room.context.span_id
    memory.clear()
    rank.side, entry.transfer = "decode", None
    made.ended(rank, Outcome(name, Cause.STALLED, reason="why"), entry)
    (room,) = memory.get_finished_spans()
    assert (room.name, room.kind.name, room.parent) == ("kvproto room", "CONSUMER", None)
    assert (room.status.status_code.name, room.status.description) == ("ERROR", "why")


def test_spans_that_raise_are_reported_as_such_and_cost_no_room_its_outcome() -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no exporter")

    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        for end in (*pair.prefills, *pair.decodes):
            end.spans = cast("Any", SimpleNamespace(ended=refuse))
        rooms = [opened(pair, "", "", decode_first=True) for _ in range(2)]
        pair.finish(*rooms)
        assert all(pair.causes(room) == {Cause.NONE} for room in rooms)
        for end in (*pair.prefills, *pair.decodes):
            told = [text for text in end.reports() if "no exporter" in text]
            assert len(told) == len(rooms)
            assert told[0].startswith("the span of Room(id=") and "endpoint.spans" in told[0]
