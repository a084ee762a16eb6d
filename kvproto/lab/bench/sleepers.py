"""Sleepers: a forward's last KV by hand, where every thread sleeps until another one wakes it.

What is left of a transfer if nothing is there but its hops: the end of the forward wakes a thread of the prefill rank,
which launches the stores; their end wakes it again; one byte by a socket of loopback wakes a thread of the decode rank,
and that one its engine's.  The stores are bound beforehand, and no message, state or table is looked at.  The threads
have what a loop's own thread has: the switch interval, the timer slack, calls that keep the interpreter's lock.  So an
endpoint with a thread of its own is not sooner, unless something begins while the forward still runs.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch

from kvproto.data.device_alarm import DeviceAlarm
from kvproto.data.device_streams import CurrentStream, new_stream
from kvproto.endpoint.news import News
from kvproto.io.control.poller import Waiter
from kvproto.io.kernels.base import Launch
from kvproto.lab.bench.bare import LONGEST_S
from kvproto.loop.own_thread import OwnThread

HOST = "127.0.0.1"


class StoreSleeper:
    """A prefill rank's: sleeps until a forward is over, stores, sleeps until that has ended, and tells."""

    def __init__(self, device: torch.device) -> None:
        self._index = device.index or 0
        self._listener = socket.create_server((HOST, 0))
        #: where it listens
        self.port: int = self._listener.getsockname()[1]
        self._line: socket.socket | None = None
        self._alarms = [DeviceAlarm(new_stream(device), self._index) for _ in range(2)]
        self._waiter = Waiter()

    @contextmanager
    def serving(self, stream: Any, launches: Sequence[Launch]) -> Iterator[Callable[[Any], None]]:
        """Yield what takes the forward's event; at the end, wait until its KV was told."""
        if self._line is None:
            self._line = _prompt(self._listener.accept()[0])
        given = SimpleQueue[Any]()
        with _own_thread(lambda: self._store(given.get(), stream, launches), self._index):
            yield given.put

    def close(self) -> None:
        """Close the sockets and alarms."""
        for each in (self._line, self._listener, *self._alarms):
            if each is not None:
                each.close()

    def _store(self, event: Any, stream: Any, launches: Sequence[Launch]) -> None:
        forward, store = self._alarms
        self._sleep(forward, event)
        for launch in launches:
            launch(stream, None)
        over = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with CurrentStream(stream, self._index):
            over.record(stream)
        self._sleep(store, over)
        assert self._line is not None
        self._line.send(b"0")

    def _sleep(self, alarm: DeviceAlarm, event: Any) -> None:
        descriptor = alarm.set(event)
        if descriptor is not None:
            self._waiter.ready([descriptor], LONGEST_S)
        event.synchronize()  # over, but if there was no alarm


class NewsSleeper:
    """A decode rank's: sleeps until it is told, and wakes its engine."""

    def __init__(self, port: int) -> None:
        self._line = _prompt(socket.create_connection((HOST, port), LONGEST_S))

    @contextmanager
    def serving(self) -> Iterator[News]:
        """Yield the news that will be set."""
        news = News()

        def receive() -> None:
            self._line.recv(1)
            news.set()

        with _own_thread(receive, -1):
            yield news

    def close(self) -> None:
        """Close the socket."""
        self._line.close()


def _prompt(line: socket.socket) -> socket.socket:
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line


@contextmanager
def _own_thread(work: Callable[[], None], gpu: int) -> Iterator[None]:
    """Do it on a thread that has the settings of a loop's; within: it runs."""
    asks = OwnThread(gpu=gpu)

    def run() -> None:
        asks.enter()
        work()

    thread = Thread(target=run, daemon=True)
    asks.begin()
    try:
        thread.start()
        yield
        thread.join(LONGEST_S)
    finally:
        asks.end()
