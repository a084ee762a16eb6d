"""Metrics: the names and values that an operator reads about a rank.

The loop takes a snapshot on request (`kvproto.metrics.snapshots`); between requests this module costs nothing.  Events
that have to be counted when they happen (messages, ends of timers, outcomes, the time of a pass) have counters there.

`kvproto.metrics.exporter` serves the metrics; docs/operating.md explains them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kvproto.layout.costs import NO_ROUTE
from kvproto.observe.durations import Durations
from kvproto.protocol.states import DGrant

if TYPE_CHECKING:
    from kvproto.endpoint.endpoint import Endpoint
    from kvproto.rank.decode import DecodeRank
    from kvproto.rank.prefill import PrefillRank

Kind = Literal["gauge", "counter", "histogram"]


#: bytes
GIB = 1 << 30


class Metric(NamedTuple):
    """One name; `labels` beside side, group and rank, which all have."""

    kind: Kind
    labels: tuple[str, ...]
    help: str


class Measured(NamedTuple):
    """A number of one metric (a histogram's: its durations), for these values of its labels."""

    name: str
    labels: tuple[str, ...]
    value: float | Durations


# fmt: off
METRICS: dict[str, Metric] = {
    "kvproto_rooms": Metric("gauge", ("state",), "Rooms that are not over, by their machine's state."),
    "kvproto_outcomes": Metric("counter", ("cause",), "Rooms that ended, by cause (NONE: success)."),
    "kvproto_room_seconds": Metric("histogram", ("phase",), "Duration of a room's phases: open (until its outcome);"
                                   " transfer (prefill, rooms that succeed: from the later of all KV produced and every"
                                   " decode rank open until the last part is written); release (from outcome to"
                                   " release)."),
    "kvproto_bytes": Metric("counter", ("route",), "Bytes of KV moved, by route: staged (through the decode rank's"
                            " ring), pages (written into its pages piece by piece), mapped (stored there by a kernel of"
                            " the prefill rank; a decode rank counts these as pages). Prefill counts a write when it"
                            " ends; decode counts staged bytes when they are scattered, pages when the room succeeds."),
    "kvproto_open_rooms": Metric("gauge", (), "Rooms that the engine opened and whose outcome or release it has not"
                                 " taken yet."),
    "kvproto_pool_attached": Metric("gauge", (), "1: the endpoint has its pool; 0: it is detached, or about to be."),
    "kvproto_sends": Metric("gauge", ("state",), "Prefill: sends that are not over, by state."),
    "kvproto_grants": Metric("gauge", ("state",), "Decode: chunks under way, by state."),
    "kvproto_parts": Metric("counter", ("route",), "Prefill: parts by route: staged, pages (page by page, since the"
                            " ring was not to be had), direct (page to page, as nothing is re-sliced), mapped (by a"
                            " kernel that stores into the peer's pages)."),
    "kvproto_route_seconds": Metric("gauge", ("peer_group", "peer_rank", "route"), "Prefill: estimated time of the"
                                    " KV of the last kind of room for this peer by each possible route; the cheaper one"
                                    " is chosen."),
    "kvproto_cost_seconds": Metric("gauge", ("peer_group", "peer_rank", "of"), "Prefill: what this peer's link costs,"
                                   " as its profile says or its transfers have shown: a piece of a write; a launch of a"
                                   " gather or a scatter; the message that a region of the ring is waited for; a GiB"
                                   " in one large write, in pieces, beside their number (0: nothing), and copied."),
    "kvproto_staging_fallbacks": Metric("counter", ("state", "event"), "Prefill: sends that gave the ring up, by the"
                                        " state in which they waited and what ended it; NEW: parts that are never"
                                        " staged."),
    "kvproto_slots": Metric("gauge", ("state",), "Prefill: staging slots, held and free."),
    "kvproto_slot_queue": Metric("gauge", (), "Prefill: sends that wait for a slot."),
    "kvproto_credit_queue": Metric("gauge", (), "Prefill: sends that wait for a credit to request a region."),
    "kvproto_permit_queue": Metric("gauge", (), "Prefill: sends that wait for a permit to write page to page."),
    "kvproto_watermark_waits": Metric("gauge", (), "Prefill: granted regions that wait for the watermark."),
    "kvproto_unposted_writes": Metric("gauge", (), "Prefill: writes that wait for their KV or for the transport."),
    "kvproto_ring_bytes": Metric("gauge", ("part",), "Decode: the ring: size; used (regions a writer may write to now);"
                                 " promised (regions beyond the watermark); quarantined (of rooms that failed)."),
    "kvproto_ring_lag_bytes": Metric("gauge", (), "Decode: bytes from the watermark to the end of the last promise."),
    "kvproto_oldest_grant_seconds": Metric("gauge", (), "Decode: age of the oldest region, to a second."),
    "kvproto_space_queue": Metric("gauge", (), "Decode: chunks that wait for a region of the ring."),
    "kvproto_links": Metric("gauge", ("state",), "Links, by state."),
    "kvproto_links_by_build": Metric("gauge", ("wire_version", "tables"), "Links that are up, by the wire version at"
                                     " which they work, and whether the peer's tables and code are this build's (same)"
                                     " or another's (other)."),
    "kvproto_link_missed_heartbeats": Metric("gauge", ("peer_group", "peer_rank"), "Own heartbeats, or calls, since a"
                                             " message of the peer arrived: of the 64 most silent links."),
    "kvproto_messages_sent": Metric("counter", ("message",), "Messages of the protocol that were sent."),
    "kvproto_messages_received": Metric("counter", ("message",), "Messages received, handled or dropped."),
    "kvproto_timer_ends": Metric("counter", ("machine", "state", "to"), "Ends of timers: a repeat where the state"
                                 " stays."),
    "kvproto_outbox": Metric("gauge", ("unit",), "Queued for peers that take no more: frames, bytes."),
    "kvproto_inbox": Metric("gauge", ("what",), "Queued for the loop's next pass: calls, frames."),
    "kvproto_pass_seconds": Metric("histogram", (), "Duration of a pass of the loop in which something happened."),
    "kvproto_anomalies": Metric("counter", ("what",), "Events that a healthy deployment does not have, by reason:"
                                " messages dropped, calls refused, addresses without an answer, faults."),
}
# fmt: on
#: name -> its name before 0.1, which the exporter serves beside it until the next release
FORMER_NAMES = {
    "kvproto_open_rooms": "kvproto_entries",
    "kvproto_staging_fallbacks": "kvproto_fallbacks",
    "kvproto_link_missed_heartbeats": "kvproto_link_silent_beats",
    "kvproto_anomalies": "kvproto_counts",
}  # fmt: skip

LONGEST_SILENCES = MOST_PEERS = 64


def measure(endpoint: Endpoint) -> Iterator[Measured]:
    """Yield all metrics of one endpoint; on its loop's thread."""
    rank, loop = endpoint._rank, endpoint._loop  # noqa: SLF001  # an endpoint's own
    yield from _by_state("kvproto_rooms", rank.rooms.values())
    yield from _by_state("kvproto_links", rank.links.values())
    yield from _counted("kvproto_outcomes", {cause.name: count for cause, count in endpoint._ends.items()})  # noqa: SLF001
    for phase, durations in endpoint._phases.items():  # noqa: SLF001
        yield Measured("kvproto_room_seconds", (phase,), durations.copy())
    yield Measured("kvproto_open_rooms", (), len(endpoint._entries))  # noqa: SLF001
    yield Measured("kvproto_pool_attached", (), int(not endpoint.pool_words()))
    yield from _counted("kvproto_links_by_build", _by_build(rank))
    silent = sorted(rank.links, key=lambda link: -rank.links[link].silent)[:LONGEST_SILENCES]
    for link in silent:
        labels = str(rank.peers[link].group), str(rank.peers[link].rank)
        yield Measured("kvproto_link_missed_heartbeats", labels, rank.links[link].silent)
    yield from _loop(loop)
    yield from _counted("kvproto_timer_ends", rank.timer_ends)
    yield from _counted("kvproto_anomalies", {**rank.counts, **loop.counts, **loop.control.counts.away})
    yield from _prefill(rank, endpoint._data) if rank.side == "prefill" else _decode(rank, endpoint)  # type: ignore[arg-type] # noqa: SLF001


def _by_build(rank: Any) -> Counter[tuple[str, str]]:
    builds = [value.build for value in list(rank.links.values()) if value.state is rank.UP]
    return Counter((str(each.version), "same" if each.digest == rank.build.digest else "other") for each in builds)


def _loop(loop: Any) -> Iterator[Measured]:
    yield from _counted("kvproto_messages_sent", _tags(loop.connections.said))
    yield from _counted("kvproto_messages_received", _tags(loop.heard))
    frames, nbytes = loop.control.outboxes.waiting()
    yield from _counted("kvproto_outbox", {"frames": frames, "bytes": nbytes})
    calls, arrived = loop.backlog
    yield from _counted("kvproto_inbox", {"calls": calls, "frames": arrived})
    yield Measured("kvproto_pass_seconds", (), loop.passes.copy())


def _prefill(rank: PrefillRank, data: Any) -> Iterator[Measured]:
    yield from _by_state("kvproto_sends", (send for parts in rank.sends.values() for send in parts.values()))
    yield from _counted("kvproto_bytes", data.writes.written)
    routes = {"staged": "writes", "pages": "pages", "direct": "direct", "mapped": "mapped"}
    yield from _counted("kvproto_parts", {route: data.stats[name] for route, name in routes.items()})
    yield from _counted("kvproto_staging_fallbacks", {key[1:3]: count for key, count in rank.entered.items()})
    yield from _estimates(rank)
    yield from _counted("kvproto_slots", {"held": len(rank.slot_of), "free": len(rank.free_slots)})
    yield Measured("kvproto_slot_queue", (), len(rank.slot_queue))
    yield Measured("kvproto_credit_queue", (), sum(map(len, list(rank.credit_queues.values()))))
    yield Measured("kvproto_permit_queue", (), len(rank.permit_queue))
    yield Measured("kvproto_watermark_waits", (), sum(map(len, rank.watch.values())))
    yield Measured("kvproto_unposted_writes", (), len(data.writes.unposted))


def _estimates(rank: PrefillRank) -> Iterator[Measured]:
    for peer in sorted(rank.peers.values(), key=lambda peer: (peer.group, peer.rank))[:MOST_PEERS]:
        last = next(reversed(peer.estimates.values()), None)
        for route, seconds in (("staged", last.staged), (last.way, last.pages)) if last is not None else ():
            if seconds < NO_ROUTE:
                yield Measured("kvproto_route_seconds", (str(peer.group), str(peer.rank), route), seconds)
        if peer.plan is None:
            continue
        costs = rank.link_costs(peer)
        rates = ("gib", costs.rate), ("gib_in_pieces", costs.piece_rate), ("gib_copied", costs.copy)
        calls = ("piece", costs.piece), ("launch", costs.launch), ("message", costs.message)
        for of, cost in (*calls, *((of, GIB / rate) for of, rate in rates)):
            yield Measured("kvproto_cost_seconds", (str(peer.group), str(peer.rank), of), cost)


def _decode(rank: DecodeRank, endpoint: Any) -> Iterator[Measured]:
    yield from _by_state("kvproto_grants", (grant for parts in rank.grants.values() for grant in parts.values()))
    yield from _counted("kvproto_bytes", endpoint._data.moved)  # noqa: SLF001
    ring = rank.ring
    size = {region.grant: region.end - region.offset for region in ring.live.values()}
    held = {grant: nbytes for grant, nbytes in size.items() if grant not in ring.freed}
    promised = sum(nbytes for grant, nbytes in held.items() if grant in ring.blocked)
    grants = (grant for parts in rank.grants.values() for grant in parts.values())
    doubtful = (grant.grant for grant in grants if grant.state is DGrant.QUARANTINED)
    yield from _counted("kvproto_ring_bytes", {
        "size": ring.size, "used": sum(held.values()) - promised, "promised": promised,
        "quarantined": sum(held.get(grant, 0) for grant in doubtful),
    })  # fmt: skip
    round_, tail = ring.mark
    yield Measured("kvproto_ring_lag_bytes", (), (ring.round - round_) * ring.size + ring.head - tail)
    age = endpoint._ages.oldest(endpoint._loop.now)  # noqa: SLF001
    yield Measured("kvproto_oldest_grant_seconds", (), age)
    yield Measured("kvproto_space_queue", (), len(rank.space_queue))


def _by_state(name: str, values: Iterable[Any]) -> Iterator[Measured]:
    yield from _counted(name, Counter(value.state.name for value in values))


def _counted(name: str, counts: Any) -> Iterator[Measured]:
    for labels, count in counts.items():
        yield Measured(name, labels if isinstance(labels, tuple) else (labels,), count)


def _tags(counts: Counter[type[Any]]) -> dict[str, int]:
    return {str(kind.__struct_config__.tag): count for kind, count in counts.items()}
