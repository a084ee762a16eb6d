"""A polled rank: one request at a rank of SGLang, and everything that may happen to it.

SGLang makes a sender or a receiver, starts it or gives it pages when it has been told that it may, gives it up at any
moment, and asks for its answer all the time.  The other side comes, gives up, or never comes.  The endpoint refuses to
open the room, or the room ends at any moment, well only when all pages were given, and is released some time after.  If
decode has all of them already, it may end well before this rank has handed anything over: another pipeline stage sends
the metadata.  A prompt has two pages.  When this rank says "success" or "failed", other ranks may not have said so yet:
SGLang may go on with the request here for a while.

    reuse     SGLang is told that it may have the pages back only when the transfer does not touch them
    success   a success is told of a room that succeeded, with all of its pages
    order     the endpoint is asked for nothing of a room that it does not have
    told      the other side is told of a request that is given up before its room was opened, once
    end       whatever has happened, the request can come to its end
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from kvproto.adapters.sglang import tables as t
from kvproto.fsm.party import Member
from kvproto.fsm.routing import Routes
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.verify.framework.scenario import ApplicationCall, Chances, Scenario, View

SIDES = {"sender": (t.sender, t.POLL), "receiver": (t.receiver, t.POLL_RECEIVER)}
#: a rank hears of other ranks by SGLang's answers alone
NOBODY = Routes("rank", (), ())
PAGES, TIMES = 2, 2


class Around(msgspec.Struct, frozen=True):
    """SGLang's calls so far, the endpoint's room, and `fault`: what must not happen."""

    made: bool = False
    #: the other side was there in time, so the answer is "waiting", and SGLang may begin
    met: bool = False
    begun: bool = False
    given: int = 0
    #: a forward of its next pages is announced
    soon: bool = False
    #: its time for the other side is over
    late: bool = False
    #: how often SGLang has given it up, which ends a request here when it has ended elsewhere, too
    given_up: int = 0
    room: Literal["", "open", "ended", "released"] = ""
    well: bool = False
    #: the other side has given it up, or cannot be had
    unmet: bool = False
    #: times that the other side was told that nothing will come
    told: int = 0
    fault: tuple[str, str] | None = None


class PolledRank(Scenario):
    """One request on one rank."""

    first = Around()

    def __init__(
        self, side: Literal["sender", "receiver"], chances: Chances, *, opens: bool = True, hit: bool = False
    ) -> None:  # fmt: skip
        """`opens`: the endpoint takes the room; `hit`: decode has all of the prompt already."""
        self.side, self.opens, self.hit = side, opens, hit
        self.table, self.polls = SIDES[side]
        super().__init__(("rank",), chances)

    def party(self, number: int) -> Member:
        party = Member(number, dict(enumerate(self.names)), t.Timing(), NOBODY)
        # A rank has many requests; SGLang's events name none, since each is an object of its own.
        party.add("requests", self.table, lambda _: 0, timer=lambda _, tries: t.TimerFired(tries), bound=1)
        return party

    # --------------------------------------------------------------------------------------- what may happen
    def calls(self, number: int, around: Around) -> Iterable[ApplicationCall]:
        """Yield the possible next calls of SGLang, of the other side and of the endpoint."""
        if not around.made:
            yield ApplicationCall("make it", replace(around, made=True), t.Made())
            return
        if around.given_up < TIMES:
            yield ApplicationCall("give it up", replace(around, given_up=around.given_up + 1), t.GivenUp())
        yield from self._other_side(around)
        yield from self._engine(around)
        yield from self._endpoint(around)

    @staticmethod
    def _other_side(around: Around) -> Iterator[ApplicationCall]:
        """It is asked for until the room is open, or the request is over."""
        if around.unmet or around.late or around.given_up or around.room:
            return
        yield ApplicationCall("(other side) gives up", replace(around, unmet=True), t.Unmet())
        if not around.met:
            yield ApplicationCall("(other side) comes", replace(around, met=True), t.Met())

    def _engine(self, around: Around) -> Iterator[ApplicationCall]:
        """SGLang acts on an answer of "waiting", which may have become another since."""
        if not around.met:
            return
        if self.side == "receiver":
            if not around.begun:
                yield ApplicationCall("give it pages", replace(around, begun=True), t.Given(tuple(range(PAGES))))
            return
        if not around.begun:
            yield ApplicationCall("start it", replace(around, begun=True), t.Started(PAGES))
            return
        left = PAGES - around.given
        if left and not around.soon:
            yield ApplicationCall("schedule it", replace(around, soon=True), t.Scheduled())
        for count in range(1, left + 1):
            pages = tuple(range(around.given, around.given + count))
            after = replace(around, given=around.given + count, soon=False)
            yield ApplicationCall(f"give {count} of its pages", after, t.Given(pages, last=count == left))

    def _endpoint(self, around: Around) -> Iterator[ApplicationCall]:
        if around.room == "open":
            yield ApplicationCall("(endpoint) room fails", replace(around, room="ended"), t.Ended(well=False))
            if self.hit or around.given == PAGES:
                carried = replace(around, room="ended", well=True)
                yield ApplicationCall("(endpoint) room is carried", carried, t.Ended(well=True))
        if around.room == "ended":
            yield ApplicationCall("(endpoint) room is released", replace(around, room="released"), t.Released())

    # ----------------------------------------------------------------------------------- what comes of it
    def act(self, number: int, around: Around, effect: Effect) -> tuple[Around, Event | None]:
        """The endpoint does what it is asked for."""
        match effect:
            case t.OpenRoom(pages=pages):
                if not self.opens:
                    return replace(around, room="ended", given=len(pages)), t.Ended(well=False)
                return replace(around, room="open", given=len(pages)), None
            case t.SayLate():
                return replace(around, late=True), None
            case t.Refuse() | t.Decline():
                return replace(around, told=around.told + 1), None
        if around.room != "open":
            return replace(around, fault=("order", f"{type(effect).__name__} of a room that is not there")), None
        return around, None

    # ------------------------------------------------------------------------------------ what has to hold
    def broken(self, views: list[View]) -> tuple[str, str] | None:
        """A fault that was noted, or an answer that is not true."""
        (view,) = views
        around: Around = view.around
        if around.fault is not None:
            return around.fault
        (state,) = [each.state for each in view.machines("requests")] or [self.table.initial]
        answer, held = self.polls[state], around.room in ("open", "ended")
        if answer == t.SUCCESS and not (around.well and (self.hit or around.given == PAGES)):
            return "success", f"{state.name} says so of a room that did not succeed"
        # A decode rank's SGLang asks another question before it takes the pages of a failed request.
        if held and (answer == t.SUCCESS or (answer == t.FAILED and state in (t.S.FAILED, t.R.FAILED))):
            return "reuse", f"{state.name} lets go of the pages of a room that is {around.room}"
        due = self._due(around, state)
        return None if around.told == due else ("told", f"{state.name}: the other side was told {around.told} times")

    def _due(self, around: Around, state: Any) -> int:
        """How often the other side has to have been told by now."""
        if around.room or around.unmet or state not in (t.S.FAILED, t.R.FAILED):
            return 0
        # A decode rank without links has nobody to tell: the prefill rank waits for its time.
        return 1 if self.side == "sender" or around.met else 0

    def unrest(self, views: list[View]) -> tuple[str, str] | None:
        (view,) = views
        states = [each.state for each in view.machines("requests")]
        ended = states and states[0] in self.table.final
        return None if ended or not view.around.made else ("end", f"it stays {[state.name for state in states]}")

    def sights(self, views: list[View]) -> Iterable[str]:
        """Yield the state."""
        yield from (each.state.name for each in views[0].machines("requests"))

