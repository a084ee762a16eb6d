"""Spans of rooms, for OpenTelemetry: `pip install 'kvproto[otel]'`.

    endpoint.spans = RoomSpans()               # the process's tracer provider, or one of your own
    decode.open(room, ..., traceparent=header) # the request's context, as it came with the request

A room that has ended becomes a span, `kvproto room`, from its `open` on this rank to its outcome; on a prefill rank it
has a child, `kvproto transfer`: from the moment at which all of its KV was produced and every decode rank had opened
the room, until the last part was written.  Its parent is the room's
`traceparent`: the one with which this engine has opened it, or else the one that the other side has said.  So prefill,
decode and the transfer are one trace as soon as one of the two engines gives its context.

A span is made when its room is over, with the times that were noted anyway: an open room costs nothing, and a loop
waits for no exporter (a `BatchSpanProcessor` has a thread of its own; a `SimpleSpanProcessor` exports on the loop's).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, get_tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kvproto.room import Outcome

if TYPE_CHECKING:
    from kvproto.data.room_entry import RoomEntry  # it loads torch, and the extra of this module does not
    from kvproto.rank.base import Rank

KINDS = {"prefill": SpanKind.PRODUCER, "decode": SpanKind.CONSUMER}
PROPAGATOR = TraceContextTextMapPropagator()


class RoomSpans:
    """Makes a span of each room of an endpoint; one object may serve several endpoints."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """`provider`: whose tracer makes them (None: the process's)."""
        self._tracer = get_tracer("kvproto", tracer_provider=provider)

    def ended(self, rank: Rank, outcome: Outcome, entry: RoomEntry) -> None:
        """The room has its outcome; on the loop's thread."""
        end = time.time_ns()
        transfer = entry.transfer or (entry.ended, entry.ended)
        begun, first, last = (end - round((entry.ended - when) * 1e9) for when in (entry.opened, *transfer))
        parent = PROPAGATOR.extract({"traceparent": outcome.traceparent})
        about: dict[str, str | int] = {
            # ids have 64 bits without a sign, an attribute 63 and one
            "kvproto.room": str(outcome.room.id), "kvproto.gen": outcome.room.gen, "kvproto.tokens": entry.tokens,
            "kvproto.side": rank.side, "kvproto.group": str(rank.group), "kvproto.rank": rank.index,
            "kvproto.outcome": outcome.cause.name,
        }  # fmt: skip
        span = self._tracer.start_span(
            "kvproto room", parent, KINDS[rank.side], about, start_time=begun, record_exception=False
        )
        if entry.transfer is not None:
            inner = set_span_in_context(span, parent)
            self._tracer.start_span("kvproto transfer", inner, start_time=first).end(last)
        if outcome.cause and not outcome.cause.aborted:
            span.set_status(Status(StatusCode.ERROR, outcome.reason))
        span.end(end)
