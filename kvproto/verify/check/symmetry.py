"""Symmetry: what a value would be if two rooms of one life had each other's ids.

The rooms of a configuration differ in nothing but their ids, and no row looks at an id.  So the exchange of two rooms
takes behaviours to behaviours, and a search needs only one state of each pair.  What a queue orders stays in order, and
so do a rank's rooms where their order decides (`ordered`); what is kept sorted by room is sorted anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvproto.verify.check.decode_memory import DNode
from kvproto.verify.check.prefill_local_steps import PNode
from kvproto.verify.check.snapshot import by_end

Swap = tuple[int, ...]  #: the new place of each room's place
InOrder = Callable[[tuple[Any, ...], Swap], tuple[Any, ...]]


def _by_room(items: tuple[Any, ...], swap: Swap) -> tuple[Any, ...]:
    """Pairs (place, anything), sorted by place."""
    return tuple(sorted(((swap[k], rest) for k, rest in items), key=lambda pair: pair[0]))


def _each(items: tuple[Any, ...], swap: Swap) -> tuple[Any, ...]:
    new = list(items)
    for k, item in enumerate(items):
        new[swap[k]] = item
    return tuple(new)


def _lead(items: tuple[Any, ...], swap: Swap) -> tuple[Any, ...]:
    """Tuples that begin with a place; the order stays."""
    return tuple((swap[item[0]] if item[0] >= 0 else -1, *item[1:]) for item in items)


def swap_value(value: Any, swap: Swap, *, ordered: bool) -> Any:
    """A node's value with rooms exchanged; `ordered`: its rooms are in the order in which they were met."""
    rooms = _lead if ordered else _by_room
    return _prefill(value, swap, rooms) if isinstance(value, PNode) else _decode(value, swap, rooms)


def _prefill(v: PNode, swap: Swap, in_order: InOrder) -> PNode:
    rooms, tombs, links, known, sends, free, held, queue, watch, writes, permits, waiting, queues = v.rank
    rank = (
        in_order(rooms, swap), _by_room(tombs, swap), links, known, _by_room(sends, swap), free,
        tuple(sorted(_lead(held, swap))), _lead(queue, swap),
        tuple(tuple(sorted((r, e, swap[k], c, p) for r, e, k, c, p in heap)) for heap in watch),
        tuple(sorted(_lead(writes, swap))), tuple(sorted(_lead(permits, swap))), _lead(waiting, swap),
        tuple(_lead(asking, swap) for asking in queues),
    )  # fmt: skip
    return PNode(
        v.life, rank, _each(v.script, swap),
        tuple(sorted(_lead(v.gathers, swap))), tuple(sorted(_lead(v.preparing, swap))),
        tuple(sorted(_lead(v.posted, swap))),
        tuple((swap[slot[0]], *slot[1:]) if slot else None for slot in v.slots), v.wiring, v.wires,
        _each(v.outcome, swap), _each(v.released, swap),
    )  # fmt: skip


def _token(token: int, swap: Swap) -> int:
    if not token:
        return 0
    k, rest = divmod(token - 1, 1024)
    return 1 + swap[k] * 1024 + rest


def _decode(v: DNode, swap: Swap, in_order: InOrder) -> DNode:
    rooms, tombs, links, grants, head, live, queue = v.rank
    ended = by_end(_lead(tombs, swap)) if in_order is _lead else _by_room(tombs, swap)
    rank = (in_order(rooms, swap), ended, links, _by_room(grants, swap), head, _lead(live, swap), _lead(queue, swap))
    writes = tuple(sorted((p, swap[k], *rest) for p, k, *rest in v.writes))
    return DNode(
        v.life, rank, _each(v.script, swap), tuple(sorted(_lead(v.scatters, swap))), writes,
        tuple(_token(token, swap) for token in v.ring), _each(v.pages, swap), _each(v.outcome, swap),
        _each(v.released, swap), _each(v.aux, swap),
    )  # fmt: skip


def swap_message(message: Any, swap: Swap) -> Any:
    """A message `(epoch, place, body)`, or a report `(how, place, chunk)`."""
    return (message[0], swap[message[1]], *message[2:]) if message[1] >= 0 else message


def swap_blame(blamed: int, swap: Swap) -> int:
    return sum(1 << new for k, new in enumerate(swap) if blamed >> k & 1)
