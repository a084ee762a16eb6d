"""Network: a link's messages as a value: two queues, reports of ended writes, and carried
notifications.

Directions, links, reports and notifications are never ordered against each other.  A message can be lost, or arrive and
stay to arrive again, as often as the budget says; what is meant for a prefill rank, reports included, can come when the
lease that it gives, or that somebody waits with, is over.  Reports come from the prefill rank's own transport, and
notifications from the decode rank's: they are not lost.
"""

from __future__ import annotations

from typing import NamedTuple

from kvproto.verify.framework import network
from kvproto.verify.framework.network import Net

TO_DECODE, TO_PREFILL, REPORT, NOTIFICATION = 0, 1, 2, 3


class Wire(NamedTuple):
    """Messages, reports and notifications by their numbers; unordered queues are kept sorted."""

    to_decode: tuple[int, ...] = ()
    to_prefill: tuple[int, ...] = ()
    reports: tuple[int, ...] = ()
    notifications: tuple[int, ...] = ()

    @property
    def quiet(self) -> bool:
        return not any(self)


class Delivery(NamedTuple):
    """One thing that the network can do: hand over `item` (None: lose it), `left` stays, for a price."""

    way: int
    item: int | None
    left: Wire
    cost: str


def push(wire: Wire, way: int, item: int, net: Net) -> Wire:
    return put_queue(wire, way, network.push(wire[way], item, _order(way, net)))


def _order(way: int, net: Net) -> Net:
    return net if way < REPORT else "unordered"


def put_queue(wire: Wire, way: int, queue: tuple[int, ...]) -> Wire:
    queues = list(wire)
    queues[way] = queue
    return Wire._make(queues)


def deliveries(wire: Wire, net: Net) -> list[Delivery]:
    found = []
    for way in (TO_DECODE, TO_PREFILL, REPORT, NOTIFICATION):
        for item, rest in network.first(wire[way], _order(way, net)):
            left = put_queue(wire, way, rest)
            found.append(Delivery(way, item, left, ""))
            if way in (TO_PREFILL, REPORT):
                found.append(Delivery(way, item, left, "late"))
            if way < REPORT:
                found += [Delivery(way, None, left, "drop"), Delivery(way, item, wire, "duplicate")]
    return found
