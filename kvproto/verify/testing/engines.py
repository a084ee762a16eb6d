"""Engines on a stage: what real ones do, in the way that hides faults least.

KV comes into the prefill pages when the event that is given with `produced` is waited for and not before
(`forwards`), every room has other bytes, and pages are used again as soon as every engine of the group has been told
that they are released.  An outcome that comes twice, or a release that comes twice or before its outcome, is an
AssertionError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvproto.endpoint.endpoint import Endpoint
from kvproto.room import Room
from kvproto.verify.testing.judge import Judge
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.task import Key, Last, RoomTask, Side

BOTH = 2


class Engines(Pair):
    """A pair whose engines keep a task for each room; what moves it is the stage's."""

    tasks: dict[Room, RoomTask]
    pages_of: dict[Side, list[int]]
    #: by cache that travels at the end: free slots of state, or pages of its window
    last_of: dict[Side, Last]
    judges: Judge | None = None

    # -------------------------------------------------------------------------------- the engines' calls
    def fits(self, tokens: int) -> bool:
        last = all(len(self.last_of[s][name]) >= n for s in self.last_of for name, n in self._last_pages(s, tokens))
        return last and all(len(self.pages_of[side]) >= -(-tokens // size) for side, size in self._sizes())

    def _last_pages(self, side: Side, tokens: int) -> Iterator[tuple[str, int]]:
        """Yield each cache that travels at the end, and its pages of a room: a slot, or those of the window."""
        for end in (self.plan.prefill if side == "P" else self.plan.decode).ends:
            size, first = end.page_size, max(0, tokens - end.window)
            yield end.name, -(-tokens // size) - first // size if end.window else 1

    def _sizes(self) -> tuple[tuple[Side, int], tuple[Side, int]]:
        return ("P", self.plan.prefill.page_size), ("D", self.plan.decode.page_size)

    def name(self, tokens: int, *, prefix: int = 0, gen: int = 0, room_id: int | None = None) -> Room:
        """A room with pages of its own on both sides and KV that no other room has; nobody has opened it."""
        self._next += room_id is None
        room = Room(self._next - 1 if room_id is None else room_id, gen)
        p, d = ([self.pages_of[side].pop() for _ in range(-(-tokens // size))] for side, size in self._sizes())
        self.tables[room] = p, d, tokens, prefix
        last: dict[Side, Last] = {
            side: {name: [free[name].pop() for _ in range(n)] for name, n in self._last_pages(side, tokens)}
            for side, free in self.last_of.items()
        }
        seed = self._next << 8 | gen & 0xFF
        self.tasks[room] = RoomTask(room, self.plan, p, d, tokens, prefix, seed, last)
        return room

    def _free(self, task: RoomTask, side: Side) -> None:
        task.freed.add(side)
        self.pages_of[side] += task.pages[side]
        for name, pages in task.last[side].items():
            self.last_of[side][name] += pages

    def open_prefill(self, room: Room, ranks: list[int] | None = None) -> None:
        """These prefill engines (all) open the room; nothing is scheduled."""
        for index in range(len(self.prefills)) if ranks is None else ranks:
            if self.tasks[room].may_open("P", index):
                task, endpoint = self.tasks[room], self.prefills[index]
                endpoint.open(room, task.tokens, task.pages["P"][: task.paged], **task.lent("P", endpoint.pool))
                task.open("P", index)

    def open_decode(self, room: Room, ranks: list[int] | None = None) -> None:
        """These decode engines (all) open the room."""
        for index in range(len(self.decodes)) if ranks is None else ranks:
            task, endpoint = self.tasks[room], self.decodes[index]
            if task.may_open("D", index):
                endpoint.open(room, task.tokens, task.pages["D"], prefix=task.prefix, layer_groups=task.layer_groups,
                              **task.lent("D", endpoint.pool))  # fmt: skip
                task.open("D", index)

    def announce(self, room: Room, index: int) -> None:
        """This decode engine will open the room; if it has announced it already, it says so once more."""
        task, name = self.tasks[room], ("D", index)
        if name in task.announced and name in task.waits:
            self.decodes[index].renew(room)
        elif task.may_open("D", index):
            self.decodes[index].announce(room, task.tokens)
            task.announce(index)

    def withdraw(self, room: Room, index: int, upto: int) -> None:
        """This prefill engine is preempted: what lies behind so many tokens is computed once more, later."""
        task = self.tasks[room]
        if ("P", index) in task.waits and index not in task.taken:
            self.prefills[index].withdraw(room, upto)
            task.take_back(self.plan.prefill, index, upto)

    def prefetch(self, room: Room) -> None:
        """The forward is scheduled on every prefill rank that has the room."""
        for _, endpoint in self._active(room, "P"):
            endpoint.prefetch(room)

    def produce(
        self, room: Room, tokens: int | None = None, *, aux: bytes | None = b"aux", layers: int | None = None
    ) -> None:  # fmt: skip
        """Put so many tokens (all) into the prefill pages, on every rank that has the room.

        Ranks are left out on which withdrawn pages are still read.  `layers`: of so many layers, and the others come
        later (None: of all that were not yet computed).
        """
        task = self.tasks[room]
        upto = task.tokens if tokens is None else tokens
        for index, endpoint in self._active(room, "P"):
            if index in task.taken:
                if not endpoint.withdrawn(room):
                    continue
                task.lose(endpoint.pool, self.plan.prefill, index)
            done = task.produced.get(index, 0)
            if layers is not None and layers < endpoint.pool.layers:
                self._begin(room, index, max(done, upto), layers)
                continue
            last = max(upto, task.begun.pop(index, (0, 0))[0])
            more = task.more_pages(self.plan.prefill, index, last)
            after = task.forward(endpoint.pool, self.plan.prefill, index, done, last) if done < last else None
            endpoint.produced(room, last, after, pages=more)
            task.produced[index] = max(done, last)
            if aux is not None:
                endpoint.aux(room, aux)
                task.given.add(index)

    def _begin(self, room: Room, index: int, upto: int, layers: int) -> None:
        task, endpoint = self.tasks[room], self.prefills[index]
        if (done := task.produced.get(index, 0)) < upto:
            upto, layers = task.begin(index, upto, layers)
            more = task.more_pages(self.plan.prefill, index, upto)
            after = task.forward(endpoint.pool, self.plan.prefill, index, done, upto, layers)
            endpoint.produced(room, upto, after, pages=more, layers=layers)

    def abort(self, room: Room, side: Side, index: int) -> None:
        task = self.tasks[room]
        for at, endpoint in self._active(room, side):
            if at == index:
                endpoint.abort(room)
                task.hurt = True

    def refuse(self, room: Room, index: int) -> None:
        self.prefills[index].refuse(room)
        self.tasks[room].hurt = True

    def _active(self, room: Room, side: Side) -> list[tuple[int, Any]]:
        group: list[Any] = list(self.prefills if side == "P" else self.decodes)
        waits = self.tasks[room].waits
        return [(index, endpoint) for index, endpoint in enumerate(group) if (side, index) in waits]

    # ----------------------------------------------------------------------------- what engines are told
    def collect(self) -> None:
        for side, index, endpoint in self.named():
            self._note_outcomes(side, index, endpoint)

    def _note_outcomes(self, side: Side, index: int, endpoint: Endpoint) -> None:
        for outcome in endpoint.finished():
            key: Key = side, index, outcome.room
            assert key not in self.outcomes, f"a second outcome: {outcome} on {side}{index}"
            self.outcomes[key] = outcome
            if side == "D" and outcome.ok and self.judges is not None:
                self.judges.succeeded(index, self.tasks[outcome.room], outcome.aux)
        for room in endpoint.released():
            self._released((side, index, room))

    def named(self) -> list[tuple[Side, int, Endpoint]]:
        first: list[tuple[Side, int, Endpoint]] = [("P", i, endpoint) for i, endpoint in enumerate(self.prefills)]
        return [*first, *(("D", i, endpoint) for i, endpoint in enumerate(self.decodes))]

    def _released(self, key: Key) -> None:
        side, index, room = key
        assert key in self.outcomes, f"{room} was released before its outcome on {side}{index}"
        self.releases[key] += 1
        assert self.releases[key] == 1, f"{room} was released twice on {side}{index}"
        task = self.tasks[room]
        if side == "D" and self.judges is not None:
            self.judges.released(index, task)
        task.waits.discard((side, index))
        self._maybe_free(task)

    def _maybe_free(self, task: RoomTask) -> None:
        """Pages are free for others when every engine that had the room has been told so."""
        for side, _ in self._sizes():
            opened = any(name[0] == side for name in task.opened | task.announced)
            if opened and not any(name[0] == side for name in task.waits) and side not in task.freed:
                self._free(task, side)

    def retire(self, task: RoomTask) -> bool:
        """Forget a room that is over for all who opened it; the others cannot open it any more.

        False: an undisturbed room may still be opened by others.
        """
        if task.waits or (len(task.freed) < BOTH and not task.hurt):
            return False
        for side, _ in self._sizes():
            if side not in task.freed:
                self._free(task, side)
        del self.tasks[task.room]
        return True

    def _hurt(self, key: int | None) -> None:
        for task in self.tasks.values():
            task.hurt |= key is None or task.room.key == key
