"""Judge: properties that hold on a stage at any moment. A breach is an AssertionError that says where.

status     rises, or falls to FAILED and stays there; it agrees with the outcome that the engine was told
bytes      at success the room's KV is in the decode pages, bit for bit; nothing else of a pool ever changes: not the
           prefix, not the tail of a last page, not pages of a room that succeeded or was released, not a free page
writes     a piece lands in a region that its own (room, chunk) holds and may use, in the part of its own writer; or in
           the pages of its own room, which is not over
regions    two regions that may both be written never overlap, and lie in the ring
reports    no rank is ever given an event that breaks the protocol, and no handler fails of itself
watermark  what a prefill rank believes of a ring is never ahead of it
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from kvproto.endpoint.endpoint import Endpoint
from kvproto.io.transports.cargo import FabricWrite
from kvproto.io.transports.fabric import Fabric
from kvproto.layout.cut import cut_at
from kvproto.protocol.ring import usable
from kvproto.protocol.states import DLink, PLink
from kvproto.room import Status
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.task import RoomTask, Rows, Side, every_view

if TYPE_CHECKING:
    from kvproto.verify.testing.stage import EngineStage

#: what a loop reports of troubles that the schedule has made
EXPECTED = ("write of ", "gather of ", "scatter of ", "frame from ", "call from ", "link ", "room ")


class WatchedFabric(Fabric):
    """A fabric that shows each piece to somebody before it lands."""

    landing: Any = None

    def _land(self, cargo: FabricWrite, piece: int) -> None:
        if self.landing is not None:
            self.landing(cargo, piece)
        super()._land(cargo, piece)

    def under_way(self, writer: str) -> list[FabricWrite]:
        """The writes of this instance of which a piece may still land."""
        return [cargo for cargo in self._cargo.values() if cargo.writer == writer and cargo.pieces]


class Judge:
    """The invariants of one stage."""

    def __init__(self, stage: EngineStage) -> None:
        self.stage = stage
        self.views = [every_view(endpoint.pool) for endpoint in stage.decodes]
        self.shadow = [[view.clone() for view in kept] for kept in self.views]
        self.pieces = 0

    def reborn(self, side: Side, index: int) -> None:
        if side == "D":
            self.views[index] = every_view(self.stage.decodes[index].pool)
            self.shadow[index] = [view.clone() for view in self.views[index]]

    # ------------------------------------------------------------------------------------------- bytes
    def _places(self, index: int, task: RoomTask) -> list[tuple[torch.Tensor, Rows]]:
        return task.places(self.stage.decodes[index].pool, "D", self.stage.plan.decode.page_size)

    def succeeded(self, index: int, task: RoomTask, aux: bytes) -> None:
        """A decode engine has been told of success: the KV, and the state, are there, now."""
        layout = self.stage.plan.decode
        wanted = [each[task.prefix :] for each in task.part(layout, index)]
        wanted += [rows for end in self.stage.decodes[index].pool.ends for rows in task.state_of(end.end, index)]
        for at, ((view, rows), want) in enumerate(zip(self._places(index, task), wanted, strict=True)):
            where = f"tensor {at}, tokens {task.prefix}..{task.tokens - 1}, pages {task.pages['D']}, {task.last}"
            same = torch.equal(view[rows], want)
            assert same, f"{task.room} succeeded on D{index} with wrong bytes in {where}"
            self.shadow[index][at][rows] = view[rows]
        assert aux == b"aux", f"{task.room} succeeded on D{index} with the aux row {aux!r}"
        task.good.add(index)

    def released(self, index: int, task: RoomTask) -> None:
        """A decode engine may use the pages again: from now on nothing may change them."""
        if index not in task.good:
            self._follow(index, task)

    def _follow(self, index: int, task: RoomTask) -> None:
        for (view, rows), shadow in zip(self._places(index, task), self.shadow[index], strict=True):
            shadow[rows] = view[rows]

    def _bytes(self, index: int) -> None:
        for task in self.stage.tasks.values():
            if ("D", index) in task.waits and index not in task.good:
                self._follow(index, task)
        for at, (view, shadow) in enumerate(zip(self.views[index], self.shadow[index], strict=True)):
            if not torch.equal(view, shadow):
                pages = torch.nonzero((view != shadow).flatten(1).any(1)).flatten().tolist()
                raise AssertionError(f"D{index}, tensor {at}: pages {pages} changed, and no room may write them")

    # ------------------------------------------------------------------------------------------ writes
    def _parts(self, instance: str, group: list[Any]) -> Any:
        return next(parts for parts in map(inside, group) if parts.data.transport.instance == instance)

    def landing(self, cargo: FabricWrite, piece: int) -> None:
        stage = self.stage
        writer, reader = self._parts(cargo.writer, stage.prefills), self._parts(cargo.target, stage.decodes)
        written = writer.data.writes.flying.get(cargo.handle)
        assert written is not None, f"P{writer.rank.index} has forgotten a write that still moves"
        self.pieces += 1
        for (key, chunk, _), target, length in _by_part(writer, written, *cargo.pieces[piece]):
            self._lands(writer, reader, key, chunk, target, length)

    def _lands(self, writer: Any, reader: Any, key: int, chunk: int, target: int, length: int) -> None:
        stage, ring = self.stage, reader.rank.ring
        offset = target - reader.data.memory.regions[0].addr
        task = next((task for task in stage.tasks.values() if task.room.key == key), None)
        assert task is not None, f"a write for the unknown room {key}"
        what = f"chunk {chunk} of {task.room} from P{writer.rank.index} to D{reader.rank.index}"
        if not 0 <= offset < ring.size:
            over = ("D", reader.rank.index) not in task.waits or reader.rank.index in task.good
            assert not over, f"{what} lands in pages of a room that is over"
            return
        held = [g for g, holder in reader.rank.chunk_of.items() if holder == (key, chunk) and g not in ring.freed]
        assert held, f"{what} lands in the ring, where it holds nothing"
        region = ring.live[held[0]]
        groups = task.layer_groups, stage.plan.state_groups, stage.plan.joint_tokens
        cut = cut_at(chunk, task.tokens, task.prefix, stage.plan.chunk_tokens, *groups)
        part = stage.plan.part(writer.rank.index, reader.rank.index, cut)
        start = region.offset + part.offset
        end = start + part.nbytes
        assert start <= offset <= offset + length <= end, f"{what} lands at {offset}, its part is {start}..{end}"
        assert usable(region.round, region.end, ring.mark), f"{what} lands in a region that is still another's"

    # ------------------------------------------------------------------------------------- at any moment
    def all(self) -> None:
        """Everything that can be looked at between two moves."""
        for index in range(len(self.stage.decodes)):
            self._bytes(index)
        for task in self.stage.tasks.values():
            for side, index in task.opened - task.crashed:
                self._status(side, index, task)
        self.ranks()

    def ranks(self) -> None:
        """Judge the ranks without the engines' words: regions, watermarks, reports."""
        for index in range(len(self.stage.decodes)):
            self._regions(index)
        self._watermarks()
        for side, index, endpoint in self.stage.named():
            refused = [text for text in endpoint.reports() if not text.startswith(EXPECTED)]
            assert not refused, f"{side}{index} was given what breaks the protocol: {refused[-1]}"

    def _status(self, side: Side, index: int, task: RoomTask) -> None:
        endpoint: Endpoint = (self.stage.prefills if side == "P" else self.stage.decodes)[index]
        before, key = task.status.get((side, index), Status.BOOTSTRAPPING), (side, index, task.room)
        try:
            now = endpoint.status(task.room)
        except KeyError:
            assert key in self.stage.outcomes, f"{side}{index} does not know {task.room}, which is not over"
            return
        over = before in (Status.FAILED, Status.SUCCESS)
        fine = now is before if over else now >= before or now is Status.FAILED
        assert fine, f"{task.room} on {side}{index} went from {before.name} to {now.name}"
        told = self.stage.outcomes.get(key)
        if told is not None:
            assert now is (Status.SUCCESS if told.ok else Status.FAILED), f"{told} on {side}{index}, but {now.name}"
        task.status[side, index] = now

    def _regions(self, index: int) -> None:
        ring = inside(self.stage.decodes[index]).rank.ring
        live = [region for grant, region in ring.live.items() if grant not in ring.freed]
        writable = sorted((r.offset, r.end) for r in live if usable(r.round, r.end, ring.mark))
        for (first, end), (second, _) in pairwise(writable):
            assert end <= second, f"D{index}: the regions at {first} and {second} overlap, and both may be written"
        assert all(0 <= first < end <= ring.size for first, end in writable), f"D{index}: {writable} leave the ring"

    def _watermarks(self) -> None:
        for prefill in self.stage.prefills:
            for link, value in inside(prefill).rank.links.items():
                peer = inside(prefill).rank.peers[link]
                if value.state is not PLink.UP or peer.rank >= len(self.stage.decodes):
                    continue
                rank = inside(self.stage.decodes[peer.rank]).rank
                theirs = rank.links.get(rank.link_of.get((inside(prefill).rank.group, inside(prefill).rank.index), 0))
                same = theirs is not None and theirs.state is DLink.UP and theirs.session == value.session
                seen = value.mark_round, value.mark_tail
                assert not same or seen <= rank.ring.mark, (
                    f"P{inside(prefill).rank.index} believes {seen} of D{peer.rank}, whose mark is {rank.ring.mark}"
                )


def _by_part(
    writer: Any, keys: tuple[tuple[int, int, int], ...], source: int, target: int, length: int
) -> Iterator[tuple[tuple[int, int, int], int, int]]:  # fmt: skip
    """Split a piece of a joint write: (part, target, length) of each part, told by its slot."""
    if len(keys) == 1:
        yield keys[0], target, length
        return
    base, size, at = writer.data.regions[0].addr, writer.data.slot_bytes, source
    whose = {slot: key for key, slot in writer.rank.slot_of.items()}
    while at < source + length:
        slot = (at - base) // size
        end = min(source + length, base + (slot + 1) * size)
        assert whose.get(slot) in keys, f"P{writer.rank.index}: slot {slot} is written for {keys}, and is not theirs"
        yield whose[slot], target + at - source, end - at
        at = end
