"""Moments: a message's time of asking; a request carries its time, and its answer repeats it.

What is granted is granted from then on, so in a world messages grow old as values do.  Where time has no numbers a
moment is one of two words, lately or long ago; a message becomes old when the decode rank has waited for as long as
leases and writes last (`lost-link` in docs/prove.md says that this is enough).  Where it has, it is how long ago it
was, and time that passes is added to every message that is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kvproto.protocol.messages import Message, PagesReq, PagesRsp, StagingReq, StagingRsp
from kvproto.protocol.timing import Timing
from kvproto.verify.check.network import Wire
from kvproto.verify.framework.frozen import ValueNumbers
from kvproto.verify.framework.network import Net

LONG_AGO = -1000.0
#: a request older than this is older than every lease
OLDEST = 2 * Timing().lease.period


def lately(at: float) -> float:
    return 0.0 if at >= 0 else LONG_AGO


def since(at: float) -> float:
    """How long ago it was; beyond all leases, long ago."""
    return at if at > -OLDEST else LONG_AGO


def dated(body: Message, moment: Callable[[float], float]) -> Message:
    if not isinstance(body, StagingReq | PagesReq | PagesRsp | StagingRsp):
        return body
    return body if isinstance(body, StagingRsp) and body.queued else replace(body, asked=moment(body.asked))


def in_words(body: Message) -> Message:
    """Return a message as a world without numbers of time keeps it.

    What comes of the queue is taken there for the answer to a request that was made lately: it grows old with the wire
    as the first request does with the send.
    """
    return replace(dated(body, lately), queued=False) if isinstance(body, StagingRsp) else dated(body, lately)


def aged(wire: Wire, messages: ValueNumbers, net: Net, moment: Callable[[float], float]) -> Wire:
    """The wire, of whose messages each speaks of another moment."""

    def older(item: int) -> int:
        message: tuple[Any, ...] = messages.values[item]
        return messages((*message[:-1], dated(message[-1], moment)))

    ways = [tuple(older(item) for item in way) for way in (wire.to_decode, wire.to_prefill)]
    ways = [tuple(sorted(way)) if net == "unordered" else way for way in ways]
    return wire._replace(to_decode=ways[0], to_prefill=ways[1])
