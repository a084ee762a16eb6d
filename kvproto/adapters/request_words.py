"""Request words: states of a request in an engine, the scheduler's orders, the ranks' reports.

An engine decides about requests in one place, its *scheduler*, and moves bytes in others, its *ranks*.  Each sees half
of a request.  The scheduler sees when it arrives, gets blocks, loses them, and ends; the ranks see when its room has
ended and when it was released.  So a request has two machines on either side of the transfer: one at the scheduler, one
at each rank.  The scheduler sends *orders*, which travel with its steps and arrive in order; a rank sends one *report*
when a request is over.

Invariants for an engine:

* blocks are freed (`FreeBlocks`) only when no rank reads or writes them any more;
* each rank reports a request once, and only one that the scheduler waits for;
* a load is reported as failed only when nothing of it can land any more;
* the other side is notified, also of a request that ended before it had blocks.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kvproto.fsm.codec import Body
from kvproto.fsm.kinds import Mask
from kvproto.fsm.vocabulary import State

#: ranks of an engine, which are no more than those of its group
Ranks = Annotated[int, Mask(512)]
#: the scheduler's number among the parties; ranks count from 1
SCHEDULER = 0


class Ticket(msgspec.Struct, frozen=True):
    """The identity of a request's transfer at both instances.

    `peer`: to a prefill instance, the name of the decode group that it is for (empty: the first one that asks); to a
    decode instance, the encoded card of the prefill instance.
    """

    room: int
    tokens: int
    peer: str = ""
    gen: int = 0
    secret: bytes = b""


# --------------------------------------------------------------------------------------------- states
class P(State):
    """A request whose KV leaves this engine, at the scheduler."""

    #: it is not known, or hands nothing over
    NEW = 0
    #: it has arrived, and has no blocks yet
    ADMITTED = 1
    #: its room is open; tokens of it are still to be computed
    OPEN = 2
    #: its blocks were taken away; it will be scheduled again
    PREEMPTED = 3
    #: the whole prompt is computed, or being computed; the engine has not ended it
    COMPUTED = 4
    #: handed over: its blocks stay until all ranks have reported
    PROMISED = 5
    #: given up while its room was open: its blocks stay until all ranks have reported
    ABORTED = 6
    #: over: all ranks have reported
    RELEASED = 7
    #: over: it had no blocks, and whoever waits for it is told
    REFUSED = 8


class D(State):
    """A request whose KV comes to this engine, at the scheduler."""

    #: it is not known, or no KV of it is awaited any more
    NEW = 0
    #: it has arrived, and has no blocks yet
    ADMITTED = 1
    #: it has blocks, and KV comes into them
    OPEN = 2
    #: given up meanwhile: its blocks stay until all ranks have reported
    ABORTED = 3
    #: over: all ranks have reported, or there was nothing to load
    RELEASED = 4
    #: over: given up before it had blocks
    REFUSED = 5


class PRank(State):
    """Its room at a prefill rank."""

    #: not opened here
    NEW = 0
    #: open
    OPEN = 1
    #: it has an outcome; the transfer may still read the blocks
    ENDED = 2
    #: released, and the scheduler has not asked yet
    GONE = 3
    #: the scheduler waits for its release
    PROMISED = 4
    #: given up, and nobody waits for the report
    QUIET = 5
    #: over here
    OVER = 6


class DRank(State):
    """Its room at a decode rank."""

    #: not heard of
    NEW = 0
    #: the prefill instance is told of it; there are no blocks yet
    ANNOUNCED = 1
    #: KV comes into its blocks
    OPEN = 2
    #: all of it is there; not yet released
    LANDED = 3
    #: failed; something may still land
    FAILED = 4
    #: failed before it had blocks
    LOST = 5
    #: nothing is to come, and nobody waits for the report
    QUIET = 6
    #: over here
    OVER = 7


# ------------------------------------------------------------------------- orders of the scheduler to the ranks
class OpenRoom(Body, tag="OPEN_ROOM", frozen=True):
    """Open its room and ask for grants: the first forward comes."""

    request: str
    ticket: Ticket


class GiveBlocks(Body, tag="GIVE_BLOCKS", frozen=True):
    """This step's forward computes the prompt up to `upto` tokens; `blocks`: its additional ones.

    `slots`: of its recurrent state; none: the model has no such state.
    `windows`: by table of its windows, its blocks from the prompt's first on, 0 where it has none any more.
    """

    request: str
    blocks: tuple[int, ...]
    upto: int
    slots: tuple[int, ...] = ()
    windows: tuple[tuple[int, ...], ...] = ()


class Withdraw(Body, tag="WITHDRAW", frozen=True):
    """Its blocks belong to somebody else from now on; the next ones that come count from the first token."""

    request: str


class Promise(Body, tag="PROMISE", frozen=True):
    """It is handed over: report it when its blocks are needed no more."""

    request: str


class Announce(Body, tag="ANNOUNCE", frozen=True):
    """Tell the prefill instance that its KV will be fetched from here."""

    request: str
    ticket: Ticket


class Load(Body, tag="LOAD", frozen=True):
    """Have its KV come into these blocks, but for the first `prefix` tokens; report it when that is over.

    `slots`: of its recurrent state, which comes whatever the prefix is.
    `windows`: by table of its windows, its blocks from the prompt's first on, 0 where it has none.
    """

    request: str
    blocks: tuple[int, ...]
    prefix: int
    slots: tuple[int, ...] = ()
    windows: tuple[tuple[int, ...], ...] = ()


class Skip(Body, tag="SKIP", frozen=True):
    """All of its KV is here: the prefill instance need not keep it."""

    request: str


class GiveUp(Body, tag="GIVE_UP", frozen=True):
    """Give the request up and notify the other side; `report`: report when it is over."""

    request: str
    ticket: Ticket
    report: bool


Order = OpenRoom | GiveBlocks | Withdraw | Promise | Announce | Load | Skip | GiveUp


# --------------------------------------------------------------------------------- reports of a rank
class Sent(Body, tag="SENT", frozen=True):
    """The transfer needs its blocks no more."""

    request: str


class Received(Body, tag="RECEIVED", frozen=True):
    """All of its KV is in its blocks, or (`failed`) not all, and no more will come."""

    request: str
    failed: bool
