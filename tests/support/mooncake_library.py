"""Mooncake library: its engine in one process, as far as the transport calls it.

It writes into the memory of other engines, and fails when a test says so.

What the real one was seen to do (`kvproto/io/transports/mooncake.py`): an id is answered once, and pending for ever
afterwards; a failure has no reason; what is beyond its queue is not taken.
"""

from __future__ import annotations

import ctypes
from itertools import count
from types import SimpleNamespace
from typing import Any

Task = tuple[str, int, int, int]


class Library:
    """The library, and what it is told to do."""

    def __init__(self, *, cuda: bool = False) -> None:
        self.engines: dict[str, Engine] = {}
        #: what starting an engine, registering memory and the end of that answer
        self.status = 0
        #: an engine that has started has no port
        self.portless = False
        #: tasks stay pending; those to these addresses fail; addresses that answer no probe
        self.stands, self.fails, self.silent = False, set[str](), set[str]()
        #: tasks that the engine takes, in all
        self.room = 1 << 30
        self.tasks: dict[int, Task] = {}
        self.answered: set[int] = set()
        #: of every task and every write that waits: where to, from where, into where, bytes
        self.submitted: list[Task] = []
        self.synced: list[Task] = []
        self.numbers, self.ports = count(1), count(15001)
        self.module = SimpleNamespace(TransferEngine=lambda: Engine(self), SUPPORT_CUDA=cuda)


class Engine:
    """TransferEngine."""

    def __init__(self, library: Library) -> None:
        self.library, self.memory = library, dict[int, int]()
        self.port = next(library.ports)

    def initialize(self, host: str, how: str, protocol: str, device: str) -> int:
        assert (how, protocol, device) in {("P2PHANDSHAKE", "tcp", ""), ("P2PHANDSHAKE", "rdma", "mlx5_0")}
        self.library.engines[f"{host}:{self.port}"] = self
        return self.library.status

    def get_rpc_port(self) -> int:
        if self.library.portless:
            raise RuntimeError("it listens nowhere")
        return self.port

    def register_memory(self, addr: int, nbytes: int) -> int:
        if not self.library.status:
            self.memory[addr] = nbytes
        return self.library.status

    def unregister_memory(self, addr: int) -> int:
        if not self.library.status:
            del self.memory[addr]
        return self.library.status

    def send_probe(self, address: str) -> int:
        return int(address not in self.library.engines or address in self.library.silent)

    def transfer_sync_write(self, address: str, source: int, target: int, nbytes: int) -> int:
        self.library.synced.append((address, source, target, nbytes))
        return -int(self._fails(address, target, nbytes))

    def transfer_submit_write(self, address: str, source: int, target: int, nbytes: int) -> int:
        if len(self.library.tasks) >= self.library.room:
            return 0
        task = next(self.library.numbers)
        self.library.tasks[task] = (address, source, target, nbytes)
        self.library.submitted.append(self.library.tasks[task])
        return task

    def transfer_check_status(self, task: int) -> int:
        assert task not in self.library.answered, "it is pending for ever"
        if self.library.stands:
            return 0
        address, source, target, nbytes = self.library.tasks.pop(task)
        self.library.answered.add(task)
        if self._fails(address, target, nbytes):
            return -1
        ctypes.memmove(target, source, nbytes)
        return 1

    def _fails(self, address: str, target: int, nbytes: int) -> bool:
        there: Any = self.library.engines.get(address)
        regions = there.memory.items() if there is not None else ()
        held = any(at <= target and target + nbytes <= at + size for at, size in regions)
        return address in self.library.fails or not held
