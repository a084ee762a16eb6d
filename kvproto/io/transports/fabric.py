"""Fabric: a network in one process whose every move is somebody's choice.

Instances on a fabric write into each other's memory for real, byte for byte, but nothing moves by itself: a write is
a bag of pieces, and each of these is one step, taken only when told:

    land      one piece is copied, read from the source *now*, so a source reused too early shows
    arrive    the tag reaches the target: only after every piece landed (property 1 of the contract)
    complete  the writer learns that it is done: after every piece landed, before or after `arrive`

`options()` lists the steps that are possible, `take` does one, `step(rng)` does a random one, `run` does all. With
`auto=True` each poll of an instance runs the fabric first: a plain, quick transport for tests and demonstrations.

Faults, as the real backends show them:

    fail      the rest of a write never lands; its writer is told, and it is quiescent
    doubt     the writer is told that it failed, in doubt; the write goes on, tag included
    mute      a tag is lost on its way
    cut       a writer loses its link to one peer: failures in doubt, then PeerLost; what is in flight may still land
    kill      an instance dies: what it sent and what was sent to it stops where it is; each writer to it loses it
    stall     an instance stops, as a stopped process does: data may land in it, nothing arrives or completes

The fabric knows nothing of rooms or grants. It is deterministic: same calls, same choices, same bytes.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from random import Random

from .base import Fault, Handle, PeerId, UsageError
from .cargo import FabricPeerLost, FabricStep, FabricWrite, News, StepKind, WriteArrived, WriteEnd
from .regions import Request


class Fabric:
    """A network of instances in one process.

    `piece` bytes land at once (0: a descriptor at once); `shuffle`: the pieces of a write land in any order;
    `native_notify=False`: tags do not travel, the control plane carries them."""

    def __init__(
        self, *, piece: int = 0, shuffle: bool = False, auto: bool = False, native_notify: bool = True
    ) -> None:
        self.piece = piece
        self.shuffle = shuffle
        self.auto = auto
        self.native_notify = native_notify
        self._lock = threading.RLock()  # instances of one fabric may live on different threads
        self._names: set[PeerId] = set()
        self._memory: dict[PeerId, dict[int, tuple[int, int]]] = {}  # instance -> region index -> (addr, end)
        self._news: dict[PeerId, deque[News]] = {}
        self._cargo: dict[tuple[PeerId, Handle], FabricWrite] = {}
        self._stalled: set[PeerId] = set()

    # -- steps

    def options(self) -> list[FabricStep]:
        """Every step that is possible now, oldest write first."""
        with self._lock:
            return [step for cargo in self._cargo.values() for step in self._steps(cargo)]

    def _steps(self, cargo: FabricWrite) -> list[FabricStep]:
        if cargo.pieces:
            pieces = list(cargo.pieces) if self.shuffle else [next(iter(cargo.pieces))]
            return [FabricStep(cargo.writer, cargo.handle, "land", piece) for piece in pieces]
        # Only the ends wait for a stalled process: its bytes land without it, as a network card's do.
        if {cargo.writer, cargo.target} & self._stalled:
            return []
        kinds: list[StepKind] = ["arrive"] if cargo.tag else []
        if not cargo.told:
            kinds.append("complete")
        return [FabricStep(cargo.writer, cargo.handle, kind) for kind in kinds]

    def take(self, step: FabricStep) -> None:
        """Raises UsageError if the step is not among the options."""
        with self._lock:
            cargo = self._cargo.get((step.writer, step.handle))
            if cargo is None or step not in self._steps(cargo):
                raise UsageError(f"{step} is not possible now: take one of options()")
            self._move(cargo, step)

    def step(self, rng: Random) -> FabricStep | None:
        """Take one of the options, evenly chosen. None: there was none."""
        with self._lock:
            options = self.options()
            if not options:
                return None
            chosen = options[rng.randrange(len(options))]
            self.take(chosen)
            return chosen

    def run(self) -> int:
        """Take the first option until there is none. Returns the number of steps."""
        with self._lock:
            steps = 0
            while options := next(filter(None, map(self._steps, self._cargo.values())), None):
                self.take(options[0])
                steps += 1
            return steps

    def _move(self, cargo: FabricWrite, step: FabricStep) -> None:
        if step.kind == "land":
            self._land(cargo, step.piece)
            return
        if step.kind == "arrive":
            self._tell(cargo.target, WriteArrived(cargo.writer, cargo.tag))
            cargo.tag = b""
        else:
            self._tell(cargo.writer, WriteEnd(cargo.handle))
            cargo.told = True
        if cargo.told and not cargo.tag:
            del self._cargo[cargo.writer, cargo.handle]

    def _land(self, cargo: FabricWrite, piece: int) -> None:
        src, dst, length = cargo.pieces[piece]
        # Looked up when the piece lands: the peer may have deregistered the memory since the post.
        if any(addr <= dst and dst + length <= end for addr, end in self._memory[cargo.target].values()):
            ctypes.memmove(dst, src, length)
            del cargo.pieces[piece]
        else:
            fault = Fault("stale_endpoint", f"peer {cargo.target} has deregistered the memory this write goes to")
            self._stop(cargo, fault)

    # -- faults

    def fail(self, writer: PeerId, handle: Handle) -> None:
        with self._lock:
            self._stop(self._flying(writer, handle), Fault("backend", "failed by the schedule"))

    def doubt(self, writer: PeerId, handle: Handle) -> None:
        with self._lock:
            cargo = self._flying(writer, handle)
            self._tell(writer, WriteEnd(cargo.handle, Fault("in_doubt", "put in doubt by the schedule"), False))

    def mute(self, writer: PeerId, handle: Handle) -> None:
        with self._lock:
            cargo = self._flying(writer, handle)
            cargo.tag = b""
            if cargo.told:
                del self._cargo[writer, handle]

    def cut(self, writer: PeerId, target: PeerId) -> None:
        with self._lock:
            self._tell(
                writer, FabricPeerLost(target, Fault("peer_lost", f"the link to {target} was cut by the schedule"))
            )

    def kill(self, instance: PeerId) -> None:
        with self._lock:
            # Its memory first: nothing may land in what a dead process had.
            self.leave(instance)
            fault = Fault("peer_lost", f"peer {instance} is gone")
            concerned = [cargo for cargo in self._cargo.values() if instance in (cargo.writer, cargo.target)]
            for cargo in concerned:
                self._stop(cargo, fault)
            for writer in dict.fromkeys(cargo.writer for cargo in concerned):
                self._tell(writer, FabricPeerLost(instance, fault))

    def stall(self, instance: PeerId) -> None:
        with self._lock:
            self._stalled.add(instance)

    def resume(self, instance: PeerId) -> None:
        with self._lock:
            self._stalled.discard(instance)

    def _flying(self, writer: PeerId, handle: Handle) -> FabricWrite:
        cargo = self._cargo.get((writer, handle))
        if cargo is None:
            raise UsageError(f"write {handle} of {writer} is not on the fabric")
        return cargo

    def _stop(self, cargo: FabricWrite, fault: Fault) -> None:
        del self._cargo[cargo.writer, cargo.handle]
        if not cargo.told:
            self._tell(cargo.writer, WriteEnd(cargo.handle, fault))

    # -- for the instances

    def join(self, name: str | None) -> PeerId:
        with self._lock:
            instance = PeerId(name if name is not None else f"memory-{len(self._names)}")
            if instance in self._names:
                raise UsageError(f"{instance} was on this fabric already: an instance id is for one life")
            self._names.add(instance)
            self._memory[instance] = {}
            self._news[instance] = deque()
            return instance

    def leave(self, instance: PeerId) -> None:
        with self._lock:
            self._memory.pop(instance, None)
            self._news.pop(instance, None)

    def expose(self, instance: PeerId, index: int, addr: int, nbytes: int) -> None:
        with self._lock:
            self._memory[instance][index] = (addr, addr + nbytes)

    def hide(self, instance: PeerId, index: int) -> None:
        with self._lock:
            self._memory.get(instance, {}).pop(index, None)

    def launch(self, writer: PeerId, target: PeerId, handle: Handle, request: Request, tag: bytes) -> None:
        with self._lock:
            if writer not in self._memory:
                raise UsageError(f"{writer} is gone: it cannot write")
            if target in self._memory:
                tag = tag if self.native_notify else b""
                self._cargo[writer, handle] = FabricWrite(writer, target, handle, request, self.piece, tag)
            else:
                fault = Fault("peer_lost", f"peer {target} is not on the fabric (any more)")
                self._tell(writer, WriteEnd(handle, fault))
                self._tell(writer, FabricPeerLost(target, fault))

    def news(self, instance: PeerId) -> list[News]:
        """Return the news of an instance since the last call."""
        with self._lock:
            if self.auto:
                self.run()
            queue = self._news.get(instance, deque())
            out = list(queue)
            queue.clear()
            return out

    def tell(self, writer: PeerId, target: PeerId, tag: bytes) -> bool:
        """A tag alone, at once; false: nobody is there, or tags do not travel."""
        with self._lock:
            there = self.native_notify and target in self._news
            if there:
                self._tell(target, WriteArrived(writer, tag))
            return there

    def _tell(self, instance: PeerId, news: News) -> None:
        if instance in self._news:
            self._news[instance].append(news)
