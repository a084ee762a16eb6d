"""The cargo of a fabric: writes as bags of pieces, their possible steps, and the news they make."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from .base import Fault, Handle, PeerId
from .regions import Request

StepKind = Literal["land", "arrive", "complete"]


class FabricStep(msgspec.Struct, frozen=True, order=True):
    """`piece` is the index of the piece that lands, 0 for the other kinds."""

    writer: PeerId
    handle: Handle
    kind: StepKind
    piece: int = 0


class WriteEnd(msgspec.Struct, frozen=True):
    """News for an instance: the end of one of its writes, with the fault if there is one."""

    handle: Handle
    fault: Fault | None = None
    quiescent: bool = True


class WriteArrived(msgspec.Struct, frozen=True):
    """A peer's write arrived."""

    peer: PeerId
    tag: bytes


class FabricPeerLost(msgspec.Struct, frozen=True):
    """A peer is gone."""

    peer: PeerId
    fault: Fault


News: TypeAlias = WriteEnd | WriteArrived | FabricPeerLost


class FabricWrite:
    """A write on the fabric; `pieces`: (source address, target address, length) of those in flight."""

    __slots__ = ("handle", "pieces", "tag", "target", "told", "writer")

    def __init__(
        self, writer: PeerId, target: PeerId, handle: Handle, request: Request, piece: int, tag: bytes
    ) -> None:
        self.writer, self.target, self.handle, self.tag = writer, target, handle, tag
        self.pieces = dict(enumerate(_cut(request, piece)))
        self.told = False  # the writer knows that it is complete; the tag may still be under way


def _cut(request: Request, piece: int) -> list[tuple[int, int, int]]:
    rows = zip(request.local[:, 0].tolist(), request.remote[:, 0].tolist(), request.local[:, 1].tolist(), strict=True)
    return [
        (src + at, dst + at, min(piece or length, length - at))
        for src, dst, length in rows
        for at in range(0, length, piece or length)
    ]
