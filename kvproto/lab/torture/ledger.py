"""Ledger: the parent's account of rooms: their openers, their outcomes, and the faults near them.

A room is complete when every rank that has opened it and still lives has been told its outcome and its release; then it
is judged and forgotten, so that the account does not grow with the run.

*A starved machine.*  A process that the machine kept from running looks to its peers like one that is dead.  So rooms
that nothing happened to are judged by what they lost only where every process ran: each says when it did not (`late`).
It says so when it runs again, which may be after others have told how a room ended, so a room that failed is judged a
while later (`settle`).
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable

from kvproto.lab.torture.fleet import NAMES, SILENCE_S, WAYS, GroupWay
from kvproto.lab.torture.plan import TorturePlan, TortureRoom
from kvproto.lab.torture.verdicts import LOSSES, verdict

#: a process that did not run for so many seconds of a room's life may have cost it a link or a write
STARVED_S = SILENCE_S / 4
#: a room that failed is judged so much later: whoever was kept from running has said so by then
HEARSAY_S = 2 * SILENCE_S
LATEST = 4096
Found = tuple[str, int, str]  #: (kind, number of a room or -1, what)


class RoomAccount:
    """One room that is not complete."""

    def __init__(self, room: TortureRoom, names: Iterable[str], *, disturbed: bool) -> None:
        self.room, self.disturbed = room, disturbed
        #: a rank's clock jumped, or a rank was stopped, while the room was under way: any timer may have ended
        self.timers_ended = False
        self.since = time.monotonic()
        self.waits = set(names)
        self.outcomes: dict[str, tuple[str, str]] = {}
        #: prefill ranks that say that it is this group's by now
        self.owners = 0


class RoomLedger:
    """All of them."""

    def __init__(self, plan: TorturePlan) -> None:
        self.plan = plan
        self.open: dict[int, RoomAccount] = {}
        self.live = dict.fromkeys(WAYS, 0)
        self.touched: set[GroupWay] = set()  # ways that a fault is at work on
        #: when the machine kept which process from running, the newest
        self.late: deque[tuple[str, float, float]] = deque(maxlen=LATEST)
        self.found: list[Found] = []
        self.complete = self.undisturbed = 0
        #: outcomes by cause, rooms by trouble; undisturbed rooms that failed because the machine was starved
        self.causes: Counter[str] = Counter()
        self.troubles: Counter[str] = Counter()
        self.starved = 0
        #: by process: seconds in all that the machine kept it from running
        self.kept: dict[str, float] = defaultdict(float)
        self._doubtful: deque[tuple[float, RoomAccount, list[str]]] = deque()

    def kept_from(self, name: str, begin: float, end: float) -> None:
        """The machine kept this process from running, by the clock that all of them share."""
        self.late.append((name, begin, end))
        self.kept[name] += end - begin

    def enter(self, number: int, dead: Iterable[str]) -> list[str]:
        """This room is opened now; by these ranks."""
        room = self.plan.room(number)
        gone = set(dead)
        names = [NAMES[group][index] for group, index in room.acts if NAMES[group][index] not in gone]
        missing = len(names) < len(room.acts)
        self.live[room.way] += 1
        self.open[number] = RoomAccount(room, names, disturbed=missing or room.way in self.touched)
        self._maybe_complete(number)
        return names

    def told(self, name: str, told: Iterable[tuple[int, str, str]], released: Iterable[int]) -> None:
        """Take the news of a rank's engine."""
        for number, cause, reason in told:
            if number in self.open:
                self.open[number].outcomes[name] = cause, reason
        for number in released:
            if number in self.open:
                self.open[number].waits.discard(name)
                self._maybe_complete(number)

    def touch(self, ways: Iterable[GroupWay], *, timers: bool = False) -> None:
        """A fault strikes these; `timers`: one that lets a rank's timers end."""
        struck = set(ways)
        self.touched |= struck
        for account in self.open.values():
            account.disturbed |= account.room.way in self.touched
            account.timers_ended |= timers and account.room.way in struck

    def lost(self, name: str) -> None:
        """This rank is dead: nobody waits for it."""
        for number in list(self.open):
            account = self.open[number]
            account.waits.discard(name)
            account.outcomes.pop(name, None)
            self._maybe_complete(number)

    def give_up(self, number: int) -> RoomAccount:
        account = self.open.pop(number)
        self.live[account.room.way] -= 1
        return account

    def _maybe_complete(self, number: int) -> None:
        account = self.open[number]
        if account.waits:
            return
        del self.open[number]
        self.live[account.room.way] -= 1
        self.complete += 1
        self.undisturbed += not account.disturbed
        self.causes.update(cause for cause, _ in account.outcomes.values())
        self.troubles[account.room.trouble] += bool(account.room.trouble)
        found = verdict(account.room, account.outcomes, disturbed=account.disturbed, timers_ended=account.timers_ended)
        if found and not account.disturbed:
            self._doubtful.append((time.monotonic(), account, found))
        else:
            self._find(account, found)

    def settle(self, *, now: float | None = None) -> bool:
        """Judge the rooms that failed long enough ago; whether none is left to be judged."""
        now = time.monotonic() if now is None else now
        while self._doubtful and self._doubtful[0][0] + HEARSAY_S <= now:
            ended, account, found = self._doubtful.popleft()
            if self._starving(account, ended):
                self.starved += 1
            else:
                self._find(account, found)
        return not self._doubtful

    def _find(self, account: RoomAccount, found: list[str]) -> None:
        self.found += [("outcome", account.room.number, text) for text in found]

    def _starving(self, account: RoomAccount, ended: float) -> bool:
        """Whether the room failed by a loss while the machine kept some process from running for long."""
        lost = all(cause in LOSSES | {"NONE"} for cause, _ in account.outcomes.values())
        return lost and self.kept_waiting(account.since - SILENCE_S, ended) > STARVED_S

    def kept_waiting(self, since: float, until: float = math.inf) -> float:
        """Return the longest time in this period for which the machine kept a process from running."""
        kept: dict[str, float] = defaultdict(float)
        for name, begin, end in self.late:
            if end > since and begin < until:
                kept[name] += end - begin
        return max(kept.values(), default=0.0)


def ways_of(target: str) -> list[GroupWay]:
    """The ways that a fault of this rank ("D0") or cable ("D0>P1") may touch."""
    groups = {group for group, names in NAMES.items() if set(names) & set(target.split(">"))}
    return [way for way in WAYS if groups <= set(way)]
