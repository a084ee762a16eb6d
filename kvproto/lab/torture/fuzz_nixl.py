"""Fuzz NIXL: damaged metadata of a peer for a live transport in a child process.

The decoders of `fuzz` raise or take; here the question is whether the process survives.  A child holds a transport and
a peer that is polled, damages the peer's metadata in place, and writes each input's number before it uses it.  The
parent runs one child at a time.  A child that ends by a signal is a finding with the number of its last input, and the
next child goes on behind it.

Half of the inputs are damaged anywhere.  The other half are damaged in one of the parts that UCX parses (the worker
address, a region's key), with the lengths around them made anew: what NIXL's part alone would refuse gets further.
"""

from __future__ import annotations

import faulthandler
import os
import random
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import torch

from kvproto.io.transports import endpoint as endpoints
from kvproto.io.transports import nixl_metadata
from kvproto.io.transports.base import TransportError
from kvproto.io.transports.nixl import NixlTransport
from kvproto.io.transports.ucx_address import FormError
from kvproto.lab.torture.fuzz import ENOUGH, FuzzResult, damaged

NAME = "NIXL itself, in child processes"
#: inputs of one child: a crash costs the start of another
INPUTS_OF_A_CHILD = 500
#: a child that needs longer for one input ends itself
HUNG_S = 30.0
WARM_S = 0.02
FOUND = "FOUND "
LENGTH = struct.Struct("<Q")
BYTES = 4096


def fuzz_nixl(seed: int, inputs: int) -> FuzzResult:
    """Damage so many inputs of live transports; a process that dies or hangs is an undocumented outcome."""
    result = FuzzResult(NAME)
    began = time.perf_counter()
    while result.inputs < inputs and len(result.found) < ENOUGH:
        first = result.inputs
        _add(result, seed, first, _child(seed, first, min(INPUTS_OF_A_CHILD, inputs - first)))
    result.seconds = time.perf_counter() - began
    return result


def _child(seed: int, first: int, count: int) -> tuple[int, list[str]]:
    """Run one child: its exit status, and the lines it wrote."""
    command = [sys.executable, "-m", __name__, str(seed), str(first), str(count)]
    child = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)  # noqa: S603 - our own code
    return child.returncode, child.stdout.splitlines()


def _add(result: FuzzResult, seed: int, first: int, end: tuple[int, list[str]]) -> None:
    """Count what a child's inputs came to."""
    status, lines = end
    begun = [line for line in lines if line.isdecimal()]
    result.inputs = int(begun[-1]) + 1 if begun else first + 1
    result.taken += lines.count("taken")
    result.documented += lines.count("refused")
    found = [line.removeprefix(FOUND) for line in lines if line.startswith(FOUND)]
    if status:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        found.append(f"input {result.inputs - 1} of seed {seed}: the process {how}")
    result.undocumented += len(found)
    result.found += found


# ---------------------------------------------------------------------------------------------- in the child
class UcxPart(NamedTuple):
    """A part of NIXL's metadata that UCX parses: where its field's length is, where it begins and ends."""

    length_at: int
    begin: int
    end: int

    def replaced(self, blob: bytes, part: bytes) -> bytes:
        """The metadata with another part in its place, and the field's length made anew."""
        kept = blob[self.length_at + LENGTH.size : self.begin]
        return blob[: self.length_at] + LENGTH.pack(len(kept) + len(part)) + kept + part + blob[self.end :]


def ucx_parts(blob: bytes) -> dict[str, UcxPart]:
    """The worker address and the key in the metadata of an agent with one region."""
    address = blob.index(b"UCX|c") + len(b"UCX|c")
    row = blob.index(LENGTH.pack(1) + b"|", blob.index(b"nixlSDList")) + LENGTH.size + 1
    return {"address": _part(blob, address, 0), "key": _part(blob, row, nixl_metadata.ROW.size)}


def _part(blob: bytes, length_at: int, kept: int) -> UcxPart:
    """A field from behind its first bytes, which are NIXL's."""
    begin = length_at + LENGTH.size
    return UcxPart(length_at, begin + kept, begin + LENGTH.unpack_from(blob, length_at)[0])


def doctored(blob: bytes, dice: random.Random) -> bytes:
    """Metadata damaged anywhere, or only in a part that UCX parses."""
    if dice.random() < 0.5:
        return damaged((blob,), dice)
    part = dice.choice(list(ucx_parts(blob).values()))
    return part.replaced(blob, damaged((blob[part.begin : part.end],), dice))


class LivePeer:
    """A transport with one region, polled by a thread of its own."""

    def __init__(self) -> None:
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        memory = torch.zeros(BYTES, dtype=torch.uint8)
        transport = NixlTransport(maps=False)
        transport.register(memory.data_ptr(), BYTES)
        said = transport.endpoint()[: -endpoints.SUM]
        self.said = msgspec.msgpack.decode(said, type=endpoints.InstanceDescription)
        self._ready.set()
        while not self._over.is_set():
            transport.poll()
            time.sleep(1e-3)
        transport.close()


class Target:
    """The transport under test; made anew when an input has left something in flight."""

    def __init__(self, *, checked: bool = True) -> None:
        self._memory, self._checked = torch.zeros(BYTES, dtype=torch.uint8), checked
        self._make()

    def _make(self) -> None:
        self._transport = NixlTransport(maps=False)
        self._transport.register(self._memory.data_ptr(), BYTES)
        self._transport.checks_metadata &= self._checked

    def meet(self, said: endpoints.InstanceDescription) -> None:
        """Connect, warm, poll and disconnect.  Raises TransportError."""
        try:
            peer = self._transport.connect(endpoints.encode(said))
            self._transport.warm(peer, WARM_S)
            self._transport.poll()
            self._transport.disconnect(peer)
        except TransportError as error:
            if not isinstance(error.__cause__, FormError):  # the library has seen it, and may keep a part of it
                self._transport.close()
                self._make()
            raise


def outcomes(seed: int, first: int, count: int, *, checked: bool = True) -> Iterator[str]:
    """In the child: a line with each input's number, and a line with what became of it."""
    live, target = LivePeer(), Target(checked=checked)
    for number in range(first, first + count):
        faulthandler.dump_traceback_later(HUNG_S, exit=True)
        yield str(number)
        blob = doctored(live.said.blob, random.Random(f"{NAME} {seed} {number}"))
        try:
            target.meet(msgspec.structs.replace(live.said, blob=blob))
        except TransportError:
            yield "refused"
        except Exception as error:  # noqa: BLE001  # what is looked for
            yield f"{FOUND}input {number} of seed {seed}: {type(error).__name__}: {str(error)[:120]}"
        else:
            yield "taken"


def main(argv: Sequence[str]) -> None:
    seed, first, count = map(int, argv)
    for line in outcomes(seed, first, count):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    os._exit(0)  # without the library's end, which is not under test


if __name__ == "__main__":
    main(sys.argv[1:])
