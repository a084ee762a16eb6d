"""The states: what each machine awaits.

A state's name says what must come before the machine can go on.  A room that is in `AWAIT_PEERS` has nothing
to do until its peers have spoken; one that is in `DRAINING` waits for writes that are in flight.  The states
that end a machine (its table's `final`) are kept for a while as *tombstones* where a late message may still ask for
them (rooms), and are deleted at once where nothing can ask any more (sends, grants, links).

The numbers are indices into the compiled tables, so they count from zero in each machine; the order is the
order in which a transfer that goes well passes through them, the ways out at the end.
"""

from __future__ import annotations

from enum import IntEnum

from kvproto.fsm.vocabulary import State


class PRoom(State):
    """A room on a prefill rank."""

    #: nobody has spoken of this room yet
    UNKNOWN = 0
    #: a decode rank has opened the room, the engine has not
    AWAIT_ENGINE = 1
    #: the engine has opened the room, some decode ranks have not
    AWAIT_PEERS = 2
    #: every decode rank is known, the engine has not scheduled the forward
    AWAIT_FORWARD = 3
    #: sends are under way
    OPEN = 4
    #: the room has failed; writes or gathers of it may be in flight
    DRAINING = 5
    #: drained and told so; some decode rank has not confirmed
    AWAIT_NOTED = 6
    #: every send of every decode rank is done
    DONE = 7
    #: over: something went wrong
    FAILED = 8
    #: over: one of the engines gave it up
    ABORTED = 9


class PSend(State):
    """One prefill rank's duty for one (room, chunk, decode rank)."""

    #: not yet asked for
    NEW = 0
    #: the KV is not computed yet: nothing of the ring is asked for
    AWAIT_KV = 1
    #: as many requests to the decode rank as may be are unanswered
    AWAIT_CREDIT = 2
    #: a ring region was asked for
    AWAIT_GRANT = 3
    #: a ring region was asked for, and the decode rank waits for the requests of the chunk's other writers
    AWAIT_WRITERS = 4
    #: a ring region was asked for, and the decode rank has the request in its queue
    AWAIT_TURN = 5
    #: the region is ours, older grants still cover it
    AWAIT_WATERMARK = 6
    #: the region may be written, no local staging slot is free
    AWAIT_SLOT = 7
    #: the kernel is gathering head slices into the slot
    GATHERING = 8
    #: the one write is in flight
    WRITING = 9
    #: the pages were asked for: this part goes page by page
    AWAIT_PAGES = 10
    #: the pages are known, the KV is not computed yet
    AWAIT_PAGES_KV = 11
    #: pages and KV are there; as many sends as may are writing page to page
    AWAIT_PERMIT = 12
    #: the many small writes are in flight
    WRITING_PAGES = 13
    #: the bytes are there; the decode rank has not confirmed
    AWAIT_ACK = 14
    #: the engine has not given the aux row
    AWAIT_AUX = 15
    #: the aux row was sent; the decode rank has not confirmed
    AWAIT_AUX_ACK = 16
    #: the room has ended; a gather or a write of this send is still in flight
    DRAINING = 17
    #: confirmed by the decode rank
    DONE = 18
    #: ended without success, nothing in flight
    STOPPED = 19


class PWrite(State):
    """The one-sided writes of one send: one into the ring, or many into the pages."""

    #: there is none
    NEW = 0
    #: made ready, or being made ready; something of it is not yet posted
    POSTING = 1
    #: all of it is posted
    IN_FLIGHT = 2
    #: given up: nothing more is posted, what is in flight ends
    ENDING = 3
    #: failed, and bytes of it may still move
    IN_DOUBT = 4
    #: every byte is visible at the peer
    COMPLETED = 5
    #: given up or failed, and no byte of it can move any more
    FAILED = 6


class DRoom(State):
    """A room on a decode rank."""

    #: the engine has not opened it
    UNKNOWN = 0
    #: the engine will open it, and has no pages yet; the prefill ranks are told so
    ANNOUNCED = 1
    #: some prefill ranks have not confirmed the room
    AWAIT_PEERS = 2
    #: every prefill rank takes part; chunks and the aux row are awaited
    OPEN = 3
    #: every chunk is in its pages; the aux row alone is awaited
    AWAIT_AUX = 4
    #: the room has failed; some prefill rank may still write
    DRAINING = 5
    #: nobody writes any more; grants of the room are still being freed
    SETTLING = 6
    #: every chunk is in its pages and the aux row has landed
    DONE = 7
    #: over: something went wrong
    FAILED = 8
    #: over: one of the engines gave it up
    ABORTED = 9


class DGrant(State):
    """One chunk of one room on a decode rank, with the ring region that it has (or has not)."""

    #: not yet asked for
    NEW = 0
    #: asked for by some writers; the KV of the others is not computed yet
    AWAIT_WRITERS = 1
    #: asked for by all writers; the ring has promised all that it may
    AWAIT_SPACE = 2
    #: the region is given; writers' parts are awaited
    FILLING = 3
    #: no region: every part goes straight into the pages
    FILLING_PAGES = 4
    #: every part is there; the kernel is scattering into the pages
    SCATTERING = 5
    #: the room has ended and a write into the region is still possible
    QUARANTINED = 6
    #: over; the region is the ring's again
    FREED = 7


class PLink(State):
    """A link as the prefill rank sees it; the decode rank calls, the prefill rank answers."""

    #: never heard of
    NEW = 0
    #: the peer has called; the transport is connecting to it
    AWAIT_WIRE_UP = 1
    #: both ends agree
    UP = 2
    #: silent, broken or replaced; the peer may call again
    LOST = 3
    #: the peers cannot work together, and know why
    REFUSED = 4
    #: long gone, forgotten
    FORGOTTEN = 5


class DLink(State):
    """A link as the decode rank sees it."""

    #: not called yet
    NEW = 0
    #: called; no answer yet, and nothing of an earlier link is left
    AWAIT_WELCOME = 1
    #: both ends agree
    UP = 2
    #: lost and called again; writes of the lost link may still land
    AWAIT_RETURN = 3
    #: the peers cannot work together, and know why
    REFUSED = 4
    #: the engine has let go of it, or nobody has answered for long: forgotten
    FORGOTTEN = 5


class Cause(IntEnum):
    """Why a room or a link ended; travels to the other side."""

    #: it did not
    NONE = 0
    #: the prefill engine gave the room up
    PREFILL_ABORTED = 1
    #: the decode engine gave the room up
    DECODE_ABORTED = 2
    #: the prefill engine never opened the room
    NEVER_OPENED = 3
    #: the decode ranks did not all open the room in time
    PEERS_MISSING = 4
    #: nothing moved for too long
    STALLED = 5
    #: the other side does not answer
    NO_ANSWER = 6
    #: the link was lost
    LINK_LOST = 7
    #: the two sides cannot work together
    REFUSED = 8
    #: the two engines named different lengths or prefixes for one room
    PLAN_MISMATCH = 9
    #: a write failed or did not end in time
    WRITE_FAILED = 10
    #: a gather or a scatter failed
    KERNEL_FAILED = 11
    #: the other side no longer knows the room
    FORGOTTEN = 12
    #: the prefill engine opened the room for another group or with another secret, or another group asked for it first
    NOT_ENTITLED = 13
    #: the decode engine let go of the prefill group
    DISCONNECTED = 14
    #: the prefill engine said no to the room
    DECLINED = 15
    #: every chunk is in place, and the aux row did not come
    AUX_MISSING = 16
    #: the rank at the link's other end was closed in good order
    CLOSED = 17

    @property
    def aborted(self) -> bool:
        """True where an engine asked for the end, false where something went wrong."""
        asked = (Cause.PREFILL_ABORTED, Cause.DECODE_ABORTED, Cause.DISCONNECTED, Cause.DECLINED, Cause.CLOSED)
        return self in asked

    @property
    def refusal(self) -> bool:
        """Whether a prefill engine may say no to a room with it."""
        return self in (Cause.DECLINED, Cause.PREFILL_ABORTED)
