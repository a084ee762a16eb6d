"""Proxy: the process between the control sockets, with a port and a fate of messages for every cable.

A cable is a decode rank's connection to a prefill rank. Each has one *ill* at a time:

    delay            every message comes so much later
    double           every n-th message comes twice
    mix              every n-th message comes after the one behind it (or after `MIXED_S`, if there is none)
    lose             every n-th message does not come
    half-open        what the decode rank says does not come; the connection stands, and nobody is told
    half-open-back   what the prefill rank says does not come
    cut              the connection ends, and a new one is refused

ZeroMQ is neither asked nor told: the proxy reads TCP and cuts it into messages (`zmtp`). What one side sends while the
other is stopped waits here, as it would in a network's buffers, and in its sender's.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from kvproto.lab.process_group import ParentPipe
from kvproto.lab.torture.fleet import LATE_S, CableName
from kvproto.lab.torture.plan import Strike
from kvproto.lab.torture.zmtp import MessageCutter

MIXED_S = 0.03
CHUNK = 1 << 16


class Cable:
    """One cable: its port, where it leads, its connections, its ill."""

    def __init__(self, name: CableName) -> None:
        self.name = name
        self.port = self.target = 0
        self.ill: Strike | None = None
        self.server: asyncio.Server | None = None
        self.hit = 0
        self._seen = 0
        self._ends: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[Any]] = set()

    async def listen(self) -> None:
        """Take a port, another one if there was one."""
        if self.server is not None:
            self.server.close()
        self.server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    def suffer(self, ill: Strike | None) -> None:
        """Take up this ill from now on; None: none."""
        self.ill = ill
        if ill is not None and ill.kind == "cut":
            self.hit += 1
            self.hang_up()

    def hang_up(self) -> None:
        for end in self._ends:
            end.transport.abort()

    async def close(self) -> None:
        """End what is connected, and wait until it has ended."""
        if self.server is not None:
            self.server.close()
        self.hang_up()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A decode rank's connection, until one of the two ends."""
        ends, task = [writer], asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        try:
            if self.ill is None or self.ill.kind != "cut":
                back, forth = await asyncio.open_connection("127.0.0.1", self.target)
                ends.append(forth)
                self._ends.update(ends)
                await _first_of(self._pump(reader, forth, forward=True), self._pump(back, writer, forward=False))
        except OSError:
            pass  # nobody listens there: as if it had been refused
        finally:
            self._carrying.discard(task)
            self._ends.difference_update(ends)
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, forward: bool) -> None:
        cutter, held = MessageCutter(), list[bytes]()
        try:
            while data := await reader.read(CHUNK):
                for unit, message in cutter.feed(data):
                    self._pass(unit, writer, held, forward=forward, message=message)
                await writer.drain()
        except OSError:
            return

    def _pass(
        self, unit: bytes, writer: asyncio.StreamWriter, held: list[bytes], *, forward: bool, message: bool
    ) -> None:  # fmt: skip
        self._seen += message
        ill, loop = self.ill, asyncio.get_running_loop()
        kind = "" if ill is None or not message or (ill.every and self._seen % ill.every) else ill.kind
        if kind == ("half-open-back" if forward else "half-open"):  # the other direction's
            kind = ""
        self.hit += kind != ""
        match kind:
            case "lose" | "half-open" | "half-open-back":
                return
            case "delay":
                loop.call_later(ill.amount if ill is not None else 0.0, _write, writer, unit)
            case "mix" if not held:
                held.append(unit)
                loop.call_later(MIXED_S, _release, writer, held)
            case _:
                _write(writer, unit * (2 if kind == "double" else 1))
                _release(writer, held)


async def _first_of(*pumps: Coroutine[Any, Any, None]) -> None:
    """Until one ends, which ends the others."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.transport.is_closing():
        writer.write(data)


def _release(writer: asyncio.StreamWriter, held: list[bytes]) -> None:
    while held:
        _write(writer, held.pop())


class Proxy:
    """All cables, and what the parent says of them."""

    def __init__(self, line: ParentPipe, names: list[CableName]) -> None:
        self.line = line
        self.cables = {name: Cable(name) for name in names}
        self.over = asyncio.Event()

    async def serve(self) -> None:
        """Until the parent has had enough."""
        for cable in self.cables.values():
            await cable.listen()
        self._tell_ports()
        loop = asyncio.get_running_loop()
        loop.add_reader(self.line.fileno(), self._heard)
        await self._watch_itself()
        loop.remove_reader(self.line.fileno())
        for cable in self.cables.values():
            await cable.close()
        self.line.tell("hit", sum(cable.hit for cable in self.cables.values()))

    async def _watch_itself(self) -> None:
        """Tell when this process was kept from running: messages were late, and no rank is to blame."""
        while not self.over.is_set():
            last = time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), LATE_S / 2)
            if time.monotonic() - last > LATE_S:
                self.line.tell("late", (last, time.monotonic()))

    def _tell_ports(self) -> None:
        self.line.tell("ports", {name: cable.port for name, cable in self.cables.items()})

    def _heard(self) -> None:
        while self.line.waiting():
            kind, data = self.line.listen()
            act: Callable[..., Any] = getattr(self, f"_{kind}")
            act(*data)

    def _lead(self, prefill: str, port: int) -> None:
        for (_, p), cable in self.cables.items():
            if p == prefill:
                cable.target = port
                cable.hang_up()

    def _move(self, prefill: str) -> None:
        """The cables to this rank get other ports: a new address, for those who call it."""

        async def move() -> None:
            for (_, p), cable in self.cables.items():
                if p == prefill:
                    await cable.listen()
            self._tell_ports()

        self._moving = asyncio.ensure_future(move())

    def _suffer(self, name: CableName, ill: Strike | None) -> None:
        self.cables[name].suffer(ill)

    def _close(self) -> None:
        self.over.set()


def program(line: ParentPipe, names: list[CableName]) -> None:
    asyncio.run(Proxy(line, names).serve())
