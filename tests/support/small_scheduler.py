"""Small schedulers with endpoints inside, as an engine has them: requests, and their pages."""

from __future__ import annotations

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint_events import RoomFinished, RoomReleased
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.room import Room

STEP_TOKENS = 16


class Pages:
    """The free pages of an endpoint's pool, and the pages of each room."""

    def __init__(self, count: int, size: int) -> None:
        self.free, self.size = list(range(count)), size
        self.of: dict[Room, list[int]] = {}

    def take(self, room: Room, tokens: int) -> list[int] | None:
        """Pages for so many tokens, if there are enough."""
        need = -(-tokens // self.size)
        if need > len(self.free):
            return None
        self.of[room], self.free = self.free[:need], self.free[need:]
        return self.of[room]

    def give_back(self, room: Room) -> None:
        self.free = self.of.pop(room, []) + self.free


class SmallPrefill:
    """Opens a room when it has pages, computes tokens in each step, frees pages when they are released."""

    def __init__(self, endpoint: PrefillEndpoint, pages: int) -> None:
        self.endpoint, self.pages = endpoint, Pages(pages, endpoint.pool.page_size)
        self.waiting: dict[Room, int] = {}
        self.running: dict[Room, tuple[int, int]] = {}

    def arrive(self, request: int, tokens: int) -> None:
        self.waiting[Room(request)] = tokens

    def cancel(self, request: int) -> None:
        room = Room(request)
        if self.waiting.pop(room, None) is not None:
            self.endpoint.refuse(room)
        elif self.running.pop(room, None) is not None:
            self.endpoint.abort(room)

    def step(self) -> bool:
        for room, tokens in list(self.waiting.items()):
            pages = self.pages.take(room, tokens)
            if pages is None:
                break
            self.endpoint.open(room, tokens, pages)
            self.running[room] = 0, self.waiting.pop(room)
        for room, (done, tokens) in list(self.running.items()):
            upto = min(done + STEP_TOKENS, tokens)
            self.endpoint.produced(room, upto)
            self.running[room] = upto, tokens
            if upto == tokens:
                self.endpoint.aux(room, b"first")
                del self.running[room]
        moved = self.endpoint.poll()
        self.hear()
        return moved

    def hear(self) -> None:
        """Take outcomes and releases: a room that is over is not computed, a released one has no pages."""
        for outcome in self.endpoint.finished():
            self.running.pop(outcome.room, None)
        for room in self.endpoint.released():
            self.pages.give_back(room)

    def idle(self) -> bool:
        return not (self.waiting or self.running or self.pages.of)


class SmallDecode:
    """Opens a room when it has pages; a request ends with its outcome, and frees pages with the release."""

    def __init__(self, endpoint: DecodeEndpoint, pages: int) -> None:
        self.endpoint, self.pages = endpoint, Pages(pages, endpoint.pool.page_size)
        self.waiting: dict[Room, int] = {}
        self.opened: set[Room] = set()

    def arrive(self, request: int, tokens: int) -> None:
        self.waiting[Room(request)] = tokens

    def cancel(self, request: int) -> None:
        room = Room(request)
        if self.waiting.pop(room, None) is None and room in self.opened:
            self.endpoint.abort(room)

    def step(self) -> bool:
        for room, tokens in list(self.waiting.items()):
            pages = self.pages.take(room, tokens)
            if pages is None:
                break
            self.endpoint.open(room, self.waiting.pop(room), pages)
            self.opened.add(room)
        moved = self.endpoint.poll()
        self.hear()
        return moved

    def hear(self) -> None:
        """An outcome is for the request; the pages are free with the release."""
        for event in self.endpoint.events():
            match event:
                case RoomFinished(outcome):
                    self.opened.discard(outcome.room)
                case RoomReleased(room):
                    self.pages.give_back(room)

    def idle(self) -> bool:
        return not (self.waiting or self.opened or self.pages.of)
