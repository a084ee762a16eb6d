"""NIXL library: its agents in one process, as far as the transport calls them.

They write into each other's memory, and fail when a test says so.

The names, arguments, errors and the form of the metadata are those of 1.5.1; what it does is what the real one was seen
to do (`kvproto/io/transports/nixl.py`): a transfer moves while its status is asked for, its notification goes with the
answer that it is through, and whoever releases one in flight has made a mistake that the library does not tell of.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from kvproto.lab.torture.nixl_samples import Row, metadata

ERRORS = (
    "nixlRemoteDisconnectError", "nixlCancelledError", "nixlBackendError", "nixlUnknownError", "nixlNotFoundError",
    "nixlNotAllowedError", "nixlInvalidParamError", "nixlMismatchError", "nixlNotPostedError", "nixlRepostActiveError",
    "nixlNotSupportedError",
)  # fmt: skip


class Library:
    """The library, and what it is told to do."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        #: by call: what it raises, as often as it is called
        self.refuses: dict[str, str] = {}
        #: transfers are in progress, and stay so
        self.stands = False
        #: of one whose posting has failed it is only said that it was not posted
        self.forgets = False
        self.mems = ["DRAM_SEG", "VRAM_SEG"]
        #: how the metadata of an agent is written
        self.form: Callable[[bytes, tuple[Row, ...], tuple[Row, ...]], bytes] = metadata
        #: calls that change something, in their order
        self.calls: list[tuple[Any, ...]] = []
        self.errors = {name: type(name, (Exception,), {}) for name in ERRORS}
        self.bindings = SimpleNamespace(
            **self.errors, DRAM_SEG="DRAM", VRAM_SEG="VRAM", NIXL_WRITE="write", NIXL_SUCCESS="done",
            nixlXferDList=Rows,
        )  # fmt: skip
        self.api = SimpleNamespace(
            nixl_agent_config=SimpleNamespace, nixl_agent=self._agent,
            nixl_thread_sync_t=SimpleNamespace(NIXL_THREAD_SYNC_STRICT="strict"),
        )  # fmt: skip

    def _agent(self, name: str, config: Any) -> Agent:
        self.ask("nixl_agent", name)
        assert (config.enable_prog_thread, config.backends, config.sync_mode) == (False, [], "strict")
        assert name not in self.agents, "an agent's name is for one life"
        self.agents[name] = Agent(self, name)
        return self.agents[name]

    def ask(self, call: str, *args: Any) -> None:
        """It is called; raises what this call is told to raise."""
        self.calls.append((call, *args))
        if call in self.refuses:
            error = self.errors.get(self.refuses[call], RuntimeError)
            raise error(f"planted in {call}")

    def called(self, call: str) -> list[Any]:
        """With what it was called."""
        return [args for name, *args in self.calls if name == call]


class Rows:
    """Descriptors of one side."""

    def __init__(self, kind: str, rows: Any) -> None:
        assert kind in ("DRAM", "VRAM") and rows.dtype == np.uint64
        self.kind, self.rows = kind, rows.tolist()


def _inside(side: Rows, regions: list[Row]) -> bool:
    return all(
        any(at <= addr and addr + nbytes <= at + size and dev == there for at, size, there in regions)
        for addr, nbytes, dev in side.rows
    )


class Transfer:
    """One that was made: posted or not, through or not."""

    def __init__(self, near: Rows, far: Rows, peer: str, tag: bytes) -> None:
        self.near, self.far, self.peer, self.tag = near, far, peer, tag
        self.posted = self.ended = False
        self.error: Exception | None = None


class Agent:
    """Both halves of NIXL's agent, the Python one and the one in its `agent`."""

    def __init__(self, library: Library, name: str) -> None:
        self.library, self.name, self.agent = library, name, self
        self.regions: list[Row] = []
        self.devices: set[Row] = set()
        #: by peer: its regions, with those that it had before
        self.known: dict[str, list[Row]] = {}
        self.transfers: dict[int, Transfer] = {}
        #: prepared lists: their entries, and whose memory it is (empty: this agent's)
        self.lists: dict[int, Rows] = {}
        self.listed: dict[int, str] = {}
        self.notes: dict[str, list[bytes]] = {}
        self._next = 1

    def _ask(self, call: str, *args: Any) -> None:
        self.library.ask(call, *args)

    def _error(self, name: str) -> Exception:
        error: Exception = self.library.errors[name]("as the library has it")
        return error

    def _peer(self, name: str) -> Agent:
        if name not in self.known:
            raise self._error("nixlNotFoundError")
        if name not in self.library.agents:
            raise self._error("nixlRemoteDisconnectError")
        return self.library.agents[name]

    def create_backend(self, name: str, params: dict[str, str]) -> None:
        self._ask("create_backend", name, params)

    def get_backend_mem_types(self, name: str) -> list[str]:
        assert name == "UCX"
        return self.library.mems

    def register_memory(self, rows: list[tuple[int, int, int, str]], kind: str) -> Any:
        self._ask("register_memory", self.name, rows, kind)
        ((addr, nbytes, dev, _),) = rows
        self.regions.append((addr, nbytes, dev))
        if kind == "VRAM":
            self.devices.add((addr, nbytes, dev))
        return addr, nbytes, dev

    def deregister_memory(self, reg: Any) -> None:
        self._ask("deregister_memory", self.name, reg)
        self.regions.remove(reg)
        self.devices.discard(reg)

    def get_agent_metadata(self) -> bytes:
        hosts = tuple(row for row in self.regions if row not in self.devices)
        return self.library.form(self.name.encode(), hosts, tuple(self.devices))

    def add_remote_agent(self, blob: bytes) -> bytes:
        self._ask("add_remote_agent", self.name)
        at = blob.index(b"Agent") + 5
        name = blob[at + 8 : at + 8 + int.from_bytes(blob[at : at + 8], "little")]
        there = self.library.agents.get(name.decode())
        self.known.setdefault(name.decode(), []).extend(there.regions if there is not None else [])
        return name

    def remove_remote_agent(self, name: str | bytes) -> None:
        self._ask("remove_remote_agent", self.name, name)
        del self.known[name if isinstance(name, str) else name.decode()]

    def createXferReq(  # noqa: N802 (NIXL's names)
        self, way: str, local: Any, remote: Any, peer: str, tag: bytes, backends: list[int]
    ) -> int:  # fmt: skip
        self._ask("createXferReq", self.name, peer)
        assert (way, backends) == ("write", []) and peer in self.known and isinstance(tag, bytes)
        assert [row[1] for row in local.rows] == [row[1] for row in remote.rows]
        if not (_inside(local, self.regions) and _inside(remote, self.known[peer])):
            raise self._error("nixlNotFoundError")
        handle, self._next = self._next, self._next + 1
        self.transfers[handle] = Transfer(local, remote, peer, tag)
        return handle

    def prepXferDlist(self, whose: str, kind: str, rows: Any, backends: list[int]) -> int:  # noqa: N802
        self._ask("prepXferDlist", self.name, whose)
        assert backends == [] and rows.dtype == np.uint64 and rows.shape[1] == 5
        entries = [(at + i * step, nbytes, dev) for at, nbytes, dev, step, count in rows.tolist() for i in range(count)]
        side = Rows(kind, np.array(entries, np.uint64))
        if not _inside(side, self.known[whose] if whose else self.regions):
            raise self._error("nixlNotFoundError")
        handle, self._next = self._next, self._next + 1
        self.lists[handle], self.listed[handle] = side, whose
        return handle

    def releasedDlistH(self, handle: int) -> None:  # noqa: N802
        self._ask("releasedDlistH", self.name, handle)
        del self.lists[handle]

    def makeXferReq(  # noqa: N802
        self, way: str, near: int, ours: Any, far: int, theirs: Any, tag: bytes, backends: list[int], skip: bool
    ) -> int:  # fmt: skip
        assert (ours.dtype, theirs.dtype, skip) == (np.int32, np.int32, False)
        sides = [
            Rows(self.lists[each].kind, np.array([self.lists[each].rows[at] for at in indices.tolist()], np.uint64))
            for each, indices in ((near, ours), (far, theirs))
        ]
        self._ask("makeXferReq", self.name, near, far)
        return self.createXferReq(way, sides[0], sides[1], self.listed[far], tag, backends)

    def postXferReq(self, handle: int, tag: bytes) -> None:  # noqa: N802
        assert tag == b"", "which would take the place of the transfer's own"
        transfer = self.transfers[handle]
        transfer.posted = True
        try:
            self._ask("postXferReq", self.name, handle)
        except Exception as error:
            transfer.error = error  # which every look at it tells again
            raise

    def getXferStatus(self, handle: int) -> str:  # noqa: N802
        transfer = self.transfers[handle]
        if not transfer.posted:
            raise self._error("nixlNotPostedError")
        if transfer.error is not None:
            transfer.ended = True
            raise self._error("nixlNotPostedError") if self.library.forgets else transfer.error
        try:
            self._ask("getXferStatus", self.name, handle)
            if self.library.stands:
                return "in progress"
            if not transfer.ended:
                self._move(transfer)
        except Exception:
            transfer.ended = True
            raise
        transfer.ended = True
        return "done"

    def _move(self, transfer: Transfer) -> None:
        peer = self._peer(transfer.peer)
        for (source, nbytes, _), (target, _, _) in zip(transfer.near.rows, transfer.far.rows, strict=True):
            ctypes.memmove(target, source, nbytes)
        if transfer.tag:
            peer.notes.setdefault(self.name, []).append(transfer.tag)

    def releaseXferReq(self, handle: int) -> None:  # noqa: N802
        self._ask("releaseXferReq", self.name, handle)
        transfer = self.transfers.pop(handle)
        assert transfer.ended or not transfer.posted, "released in flight: the source is read all the same"

    def getNotifs(self, known: dict[str, list[bytes]], backends: list[int]) -> dict[str, list[bytes]]:  # noqa: N802
        assert known == {} and backends == []
        self._ask("getNotifs", self.name)
        found, self.notes = self.notes, {}
        return found

    def genNotif(self, peer: str, tag: bytes) -> None:  # noqa: N802
        self._ask("genNotif", self.name, peer)
        self._peer(peer).notes.setdefault(self.name, []).append(tag)
