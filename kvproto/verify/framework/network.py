"""A network as a value: queues of messages, and what each can do next.

`fifo`: the messages of a queue arrive in order; `unordered`: each is on its own, and the queue is kept sorted, so that
queues with the same messages are one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

Net = Literal["fifo", "unordered"]
Queue = tuple[Any, ...]


def push(queue: Queue, item: Any, net: Net) -> Queue:
    return (*queue, item) if net == "fifo" else tuple(sorted((*queue, item)))


def first(queue: Queue, net: Net) -> Iterator[tuple[Any, Queue]]:
    """Each item that may arrive next, and the queue without it; of equal ones one."""
    for at in range(min(1, len(queue))) if net == "fifo" else range(len(queue)):
        if not at or queue[at] != queue[at - 1]:
            yield queue[at], queue[:at] + queue[at + 1 :]
