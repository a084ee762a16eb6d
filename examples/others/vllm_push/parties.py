"""vLLM's engines as parties, and all of it as objects for the tools: `PROTOCOL` as it is, `MENDED` with every mend."""

from __future__ import annotations

from functools import cache
from typing import Any

from examples.others.vllm_push import tables as protocol
from examples.others.vllm_push.tables import (
    ALL,
    Cancel,
    Cancelled,
    CancelReceived,
    FailReceived,
    Handshake,
    Landed,
    Mends,
    Metadata,
    P,
    PendingReceived,
    PushFail,
    PushPending,
    PushReg,
    PushTried,
    RegReceived,
    ShakeDone,
    StopReceived,
    Timing,
    Try,
    Write,
    WriteArrived,
)
from kvproto.fsm.codec import Body
from kvproto.fsm.party import Member, MemberMessage
from kvproto.fsm.routing import Routes
from kvproto.fsm.table import Table
from kvproto.fsm.telling import Telling
from kvproto.fsm.vocabulary import Event
from kvproto.verify.framework.digest_text import DigestTexts, digest, routes_say, table_says
from kvproto.verify.framework.protocol import Protocol

#: rows of the inventory, and one that it does not have
KNOWN = ("C1", "C3", "L1", "S2", "V5")


class MetadataSeen(Event, frozen=True):
    """The decode engine is known from now on."""

    peer: int


class BytesLanded(Event, frozen=True):
    """What happens whatever the tables make of it."""

    landed: Landed


def registered(h: MemberMessage) -> RegReceived:
    """`_handle_push_reg_notif`."""
    return RegReceived(h.body.request, h.peer, h.body.blocks)


def shaken(h: MemberMessage) -> MetadataSeen:
    """`_on_handshake`."""
    return MetadataSeen(h.peer)


def cancel(h: MemberMessage) -> CancelReceived:
    """Decode gives up."""
    return CancelReceived(h.body.request, h.peer)


def landed(h: MemberMessage) -> BytesLanded:
    """One-sided: they are there."""
    return BytesLanded(Landed(h.body.request, h.body.source, h.body.target))


def written(h: MemberMessage) -> WriteArrived:
    """The notification."""
    return WriteArrived(h.body.request)


def metadata(h: MemberMessage) -> Metadata:
    """Whoever asks."""
    del h
    return Metadata()


def failed(h: MemberMessage) -> FailReceived:
    """Nothing comes."""
    return FailReceived(h.body.request)


def is_pending(h: MemberMessage) -> PendingReceived:
    """It comes."""
    return PendingReceived(h.body.request)


def stopped(h: MemberMessage) -> StopReceived:
    """Nothing comes any more."""
    return StopReceived(h.body.request)


to_prefill = Routes("prefill", ALL, ())
to_prefill.route(PushReg, to=registered)
to_prefill.route(Metadata, to=shaken)
to_prefill.route(Cancel, to=cancel)
to_prefill.drop((Write, Handshake, PushFail, PushPending, Cancelled), why="messages for the other side")
to_decode = Routes("decode", ALL, ())
to_decode.route(Write, to=landed, then=written)
to_decode.answer(Handshake, to=metadata, why="who I am")
to_decode.route(PushFail, to=failed)
to_decode.route(PushPending, to=is_pending)
to_decode.route(Cancelled, to=stopped)
to_decode.drop((PushReg, Metadata, Cancel), why="messages for the other side")


def by_request(event: Any) -> Any:
    """The request that an event is about."""
    return event.request


@cache
def tables(mends: Mends) -> tuple[Table[Any], ...]:
    """Of prefill, and of decode."""
    return protocol.producers(mends), protocol.consumers(mends)


class Prefill(Member):
    """Requests, and the decode engines that the writer knows (`_remote_agents`)."""

    KEPT = ("agents",)

    def __init__(self, number: int, names: dict[int, str], mends: Mends) -> None:
        super().__init__(number, names, Timing(), to_prefill)
        self.add("requests", tables(mends)[0], by_request, bound=64)
        self.agents: frozenset[int] = frozenset()
        self.inner[Try] = self._try
        self.take(MetadataSeen, self._seen)

    def _try(self, effect: Try) -> None:
        requests = dict(self.stores["requests"].items())
        busy = any(value.state is P.SHAKING for value in requests.values())
        self._queue.append(PushTried(effect.request, requests[effect.request].peer in self.agents, busy))

    def _seen(self, event: MetadataSeen, now: float) -> None:
        self.agents |= {event.peer}
        take = self.stores["requests"].take
        for request, value in sorted(self.stores["requests"].items()):
            if value.state is P.SHAKING and value.peer == event.peer:
                take[ShakeDone](ShakeDone(request), now)
        for request, value in sorted(self.stores["requests"].items()):
            if value.state is P.MATCHED:
                busy = any(each.state is P.SHAKING for _, each in self.stores["requests"].items())
                take[PushTried](PushTried(request, value.peer in self.agents, busy), now)


class Decode(Member):
    """Requests."""

    def __init__(self, number: int, names: dict[int, str], mends: Mends) -> None:
        super().__init__(number, names, Timing(), to_decode)
        self.add("requests", tables(mends)[1], by_request, bound=64)
        self.take(BytesLanded, self._landed)

    def _landed(self, event: BytesLanded, _now: float) -> None:
        self._out.append(event.landed)


def said() -> str:
    """What two builds must have in common."""
    texts = DigestTexts()
    parts: dict[str, tuple[object, ...]] = {"messages": ALL}
    parts["routes"] = (*routes_say(to_prefill), *routes_say(to_decode))
    parts |= {table.name: tuple(table_says(table)) for table in tables(frozenset())}
    return digest({name: texts.part(name, roots) for name, roots in parts.items()})


class RequestTelling(Telling):
    """Names the request that a message is about."""

    def subject_of_body(self, body: Any) -> int:
        """Return the request; a handshake is of none (0)."""
        return getattr(body, "request", 0)


WORDS = RequestTelling(tables(frozenset()), Timing, said, (protocol,), Body)
PROTOCOL = Protocol(
    name="vLLM NIXL push", tables=tables(frozenset()), timing=Timing(), digest=said,
    telling="examples.others.vllm_push.parties:WORDS", checker="examples.others.vllm_push.worlds:CHECKER",
)  # fmt: skip
MENDED = Protocol(
    name="vLLM NIXL push, mended", tables=tables(frozenset(KNOWN)), timing=Timing(), digest=said,
    telling="examples.others.vllm_push.parties:WORDS", checker="examples.others.vllm_push.worlds:MENDED",
)  # fmt: skip
