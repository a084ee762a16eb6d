"""Handler snapshot: the values by which two situations of a handlers' stage differ.

Everything that handlers, ranks, device, transport and frames hold, by room and chunk; without what only counts up or is
a time (epochs, grants, handles, ends of timers), which differs between two walks to the same place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kvproto.fsm.vocabulary import State
from kvproto.protocol.codec import decode
from kvproto.verify.testing.access import inside

if TYPE_CHECKING:
    from kvproto.endpoint.endpoint import Endpoint
    from kvproto.verify.testing.handler_stage import HandlerStage

#: fields of values that only count up, are times, or say what never changes here
UNTOLD = frozenset(
    ("due", "until", "asked_at", "grant", "round", "end", "slot", "session", "epoch", "mark_round", "mark_tail",
     "mark", "silent", "terms", "facts", "place", "address", "tries", "lease", "secret", "traceparent", "why")
)  # fmt: skip


def snapshot(stage: HandlerStage) -> tuple[object, ...]:
    """The situation, as something that can be compared and kept."""
    return (
        str(stage.device.waiting()), stage.device.quick, _transport(stage), _frames(stage),
        *(rank_of(stage, endpoint) for endpoint in stage.endpoints),
        _engines(stage), len(stage.cutting), len(stage.cuts),
    )  # fmt: skip


def _engines(stage: HandlerStage) -> object:
    told = sorted((*name, stage.number(room.key), outcome.cause.name)
                  for (*name, room), outcome in stage.outcomes.items())  # fmt: skip
    freed = sorted((*name, stage.number(room.key)) for *name, room in stage.releases)
    done = sorted((index, stage.number(key), upto) for (index, key), upto in stage.computed.items())
    taken = [(stage.number(room.key), sorted(task.taken), sorted(task.produced.items()))
             for room, task in stage.tasks.items()]  # fmt: skip
    queued = sorted((index, stage.number(key), ends) for (index, key), ends in stage.queued.items() if ends)
    return str((told, freed, done, taken, queued))


def _transport(stage: HandlerStage) -> object:
    fabric, keys = stage.fabric, dict[tuple[str, Any], object]()
    for prefill in stage.prefills:
        data = inside(prefill).data
        for handle, each in data.writes.flying.items():
            keys[data.transport.instance, handle] = [_key(stage, key) for key in each]
    cargo = [
        (keys.get((each.writer, each.handle)), tuple(each.pieces), bool(each.tag), each.told)
        for each in fabric._cargo.values()  # noqa: SLF001
    ]
    news = [
        [(type(each).__name__, keys.get((name, getattr(each, "handle", None))), getattr(each, "quiescent", None))
         for each in queue]
        for name, queue in fabric._news.items()  # noqa: SLF001
    ]  # fmt: skip
    return str((cargo, news))


def _frames(stage: HandlerStage) -> object:
    told = []
    for frames in stage.post.queues.values():
        said = [decode(bytes(frame)) for frame in frames]
        told.append([(type(body).__name__, stage.number(room), getattr(body, "chunk", None)) for _, room, body in said])
    return str(told)


def rank_of(stage: HandlerStage, endpoint: Endpoint) -> object:
    parts = inside(endpoint)
    rank, loop, entries, data = parts.rank, parts.loop, parts.entries, parts.data
    held: list[object] = [
        [(name, sorted((_key(stage, key), _value(value)) for key, value in store.items()))
         for name, store in rank.stores.items() if name != "links"],
        [_value(value) for value in rank.links.values()],
        sorted((stage.number(key), _value(value)) for key, value in rank.tombs.items() if stage.number(key) >= 0),
        [(stage.number(key), entry.placed is not None, entry.released, entry.handed, entry.taken - entry.heard,
          [(*mark[:2], mark[2].query()) for mark in entry.marks]) for key, entry in entries.items()],
        loop.backlog, [type(event).__name__ for event in loop._events],  # noqa: SLF001
    ]  # fmt: skip
    held.append(_prefill(stage, rank, data) if hasattr(data, "gathers") else _decode(stage, rank, data))
    return str(held)


def _prefill(stage: HandlerStage, rank: Any, data: Any) -> object:
    gathers, writes = data.gathers, data.writes
    return (
        [(stage.number(room), len(asked)) for room, asked in gathers.launches._rooms.items()],  # noqa: SLF001
        gathers.launches.turns.passed,
        [(_key(stage, key), len(gathers._later)) for key, *_ in gathers._going],  # noqa: SLF001
        sorted((slot, stage.number(mark[0]), mark[1])
               for slot, (mark, _) in data.prepared_writes._kept.items()),  # noqa: SLF001
        [(_key(stage, key), len(left.batches)) for key, left in writes.unposted.items()],
        [[_key(stage, key) for key in keys] for keys in writes.flying.values()], len(writes.doubtful),
        [_key(stage, key) for key in (*writes._held, *writes._waiting)], len(writes._held),  # noqa: SLF001
        [len(entry.pages) for entry in data.streams.unplaced],
        sorted((_key(stage, key), slot) for key, slot in rank.slot_of.items()), rank.free_slots,
        [_key(stage, key) for key in rank.slot_queue], [_key(stage, key) for key in rank.permit_queue],
        len(data.leaving), len(data.link_peer), data.streams.turn,
    )  # fmt: skip


def _decode(stage: HandlerStage, rank: Any, data: Any) -> object:
    ring = rank.ring
    regions = [(region.offset, region.round - ring.round, grant in ring.freed) for grant, region in ring.live.items()]
    turns = data.launches.turns.passed, rank.space_turns.passed
    unplaced = [len(entry.pages) for entry in data.streams.unplaced]
    return sorted(_key(stage, key) for key in data.scatters), regions, ring.head, turns, unplaced


def _key(stage: HandlerStage, key: Any) -> tuple[Any, ...]:
    """Return a key with its room by number; a part's key packs chunk and peer, equal in every walk."""
    if isinstance(key, tuple):
        room, *rest = key
        return stage.number(room), *rest
    return (stage.number(key),)


def _value(value: Any) -> object:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value).items()
        return str([(name, _value(each)) for name, each in fields if name not in UNTOLD])
    if isinstance(value, State):
        return value.name
    return repr(value) if not isinstance(value, float) else "time"
