"""Turns rank: a rank of either side of conversations, a peer endpoint with a shard of the model.

It does what the parent says, in that order, so that all ranks of a group are in the same forward.  The room of a turn
has one name in both directions.  D opens its end of a room that goes back when P has called, which has pages for it
then: so no page is held for an engine that has none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from kvproto.endpoint.peer_endpoint import PeerEndpoint
from kvproto.lab.demo.controls import PooledRoom
from kvproto.lab.demo.job import Side
from kvproto.lab.demo.model import asked, read_aux
from kvproto.lab.demo.placement import device_of
from kvproto.lab.demo.player import complaints, make_transport, pool_of, settle, wait_until, written
from kvproto.lab.demo.rank import DemoRank
from kvproto.lab.demo.turns import TurnsRun, TurnsTally
from kvproto.lab.process_group import ParentPipe
from kvproto.protocol import effects as do
from kvproto.room import Outcome, Room
from kvproto.verify.testing import inside

#: the numbers of the two instances
GROUPS: dict[Side, int] = {"prefill": 1, "decode": 2}
#: seconds after which a rank looks at its pipe although nothing woke it
LOOK_S = 0.05


def rank(line: ParentPipe, talks: TurnsRun, side: Side, index: int, directory: Path) -> None:
    run = talks.run
    me = TurnsRank(run.job, side, index, directory, device_of(run.device, side, index))
    with PeerEndpoint(
        me.layout, index, pool_of(me), make_transport(run), chunk_tokens=run.chunk_tokens, group=GROUPS[side],
        settings=run.settings("live"), keys=run.keys, staging=run.staging,
    ) as endpoint:  # fmt: skip
        endpoint.start()
        line.tell("address", endpoint.address)
        player = (_Prefiller if side == "prefill" else _Decoder)(line, talks, me, endpoint)
        player.play()


class TurnsRank(DemoRank):
    """A shard whose rooms grow from turn to turn."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: tokens that have KV here, by room
        self.known: dict[int, int] = {}

    def held(self, room: int) -> PooledRoom:
        """The room's pages, and the tokens that are in them now."""
        return PooledRoom(self.tables[room], self.known[room])


class _Player:
    """The common part of both sides; a message of the parent is a method."""

    side: Side
    other: Side

    def __init__(self, line: ParentPipe, talks: TurnsRun, me: TurnsRank, endpoint: PeerEndpoint) -> None:
        self.line, self.talks, self.me, self.endpoint = line, talks, me, endpoint
        self.takes, self.sends = endpoint.decode, endpoint.prefill
        #: by conversation, the row of the token that the other side said last
        self.rows: dict[int, bytes] = {}
        #: by room, when it was here: the loop's word, since the engine may be in a forward then
        self.here: dict[int, float] = {}
        self.over = False
        handlers = inside(self.takes).loop.handlers
        announce = handlers[do.AnnounceOutcome]

        def announced(effect: do.AnnounceOutcome) -> None:
            self.here[effect.room] = time.monotonic()
            announce(effect)

        handlers[do.AnnounceOutcome] = announced

    def play(self) -> None:
        """Do what the parent says, until it says that it is over."""
        group = GROUPS[self.other]
        self.takes.connect(self.talks.run.job.layout(self.other), self.line.hear("addresses"), group=group)
        wait_until(lambda: self.takes.ready(group), "linked", self.talks.run.limit_s, self.takes.links)
        self.line.tell("linked")
        while not self.over:
            wait([self.line, self.endpoint], LOOK_S)  # type: ignore[list-item]  # both have a descriptor
            self.endpoint.wait_news(0.0)
            self.look()
            while self.line.waiting() and not self.over:
                kind, data = self.line.listen()
                getattr(self, kind)(*data)

    def look(self) -> None:
        released = self.takes.released()  # first: none is seen before its outcome
        for outcome in self._ended(self.takes.finished()):
            self.rows[outcome.room.id] = outcome.aux
        for room in released:
            self.line.tell("landed", (self.side, room.id, room.gen, self.here.pop(room.key)))
        list(self._ended(self.sends.finished()))
        self.sends.released()

    def _ended(self, outcomes: list[Outcome]) -> Iterator[Outcome]:
        for outcome in outcomes:
            if not outcome.ok:
                raise RuntimeError(f"{outcome.room}: {outcome.cause.name}: {outcome.reason}")
            yield outcome

    def take(self, number: int, turn: int, tokens: int, prefix: int) -> None:
        """Take a room's KV behind what is here."""
        if number not in self.me.tables:
            self.me.allocate(self.me.rooms[number])
        pages = self._pages(number, tokens)
        self.takes.open(Room(number, turn), tokens, pages, prefix=prefix, group=GROUPS[self.other])
        self.me.known[number] = tokens

    def _send(self, room: Room, tokens: int) -> None:
        self.sends.open(room, tokens, self._pages(room.id, tokens), group=GROUPS[self.other])

    def _pages(self, number: int, tokens: int) -> list[int]:
        return self.me.tables[number][: -(-tokens // self.me.pool.page_size)]

    def account(self) -> None:
        wrong = self.me.intruded()
        for role in (self.sends, self.takes):
            wrong += [*settle(role, self.look), *complaints(role)]
        sheets = {number: self.me.sheet(number) for number in self.me.tables}
        self.line.tell("tally", TurnsTally(wrong, sheets, self.sends.metrics()["bytes"]))

    def end(self) -> None:
        self.over = True


class _Prefiller(_Player):
    side: Side = "prefill"
    other: Side = "decode"

    def prefill(self, number: int, turn: int) -> None:
        """Compute a turn's input behind what is here, and send it as it comes."""
        room, this, begun = Room(number, turn), self.talks.turns[number][turn], time.monotonic()
        if not turn:
            self.me.allocate(self.me.rooms[number])
        ids = asked(self.me.job, number, turn, this.input - bool(turn))
        if turn:
            ids = torch.cat([torch.tensor([read_aux(self.rows[number])[0]]), ids])
        self._send(room, this.tokens)
        self.sends.prefetch(room)
        for upto, row in self.me.shard.prefill(ids, self.me.tables[number], first=this.held):
            self.sends.produced(room, upto, written(self.me))
            if row is not None:
                self.sends.aux(room, row)
        self.me.known[number] = this.tokens
        self.line.tell("computed", (number, turn, time.monotonic() - begun))

    def recompute(self, number: int, turn: int, said: list[int]) -> None:
        """Compute the KV of an answer that has come back, as without a way back; nobody looks at it."""
        first = self.talks.turns[number][turn].tokens
        begun = time.monotonic()
        for _ in self.me.shard.prefill(torch.tensor(said), self.me.tables[number], first=first):
            self.me.settle()
        self.line.tell("recomputed", (number, turn, time.monotonic() - begun))


class _Decoder(_Player):
    side: Side = "decode"
    other: Side = "prefill"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: rooms to be sent back whose taker has not called yet, with the row of their last token
        self.given: dict[Room, bytes] = {}

    def say(self, number: int, turn: int) -> None:
        this, row = self.talks.turns[number][turn], self.rows[number]
        rows = [row, *self.me.shard.resume(read_aux(row)[0], self.me.tables[number], this.tokens, this.new - 1)]
        self.me.known[number] = this.after
        if turn + 1 < len(self.talks.turns[number]):
            self.given[Room(number, turn)] = rows[-1]
        self.line.tell("said", (number, turn, [read_aux(each) for each in rows]))

    def look(self) -> None:
        """Send back what was called for, too."""
        super().look()
        for room in [each for each in self.given if self.sends.caller(each) is not None]:
            row, tokens = self.given.pop(room), self.me.known[room.id]
            self.line.tell("begun", (room.id, room.gen, time.monotonic()))
            self._send(room, tokens)
            self.sends.produced(room, tokens, written(self.me))
            self.sends.aux(room, row)
