"""A request in SGLang: what its scheduler calls, what it may be told, and the two tables that decide.

SGLang asks one thing of a transfer, again and again and on every rank: `poll`.  Its answers have an order (failed,
bootstrapping, waiting for input, transferring, success) and the ranks agree on the lowest; what the scheduler then does
with pages follows from the answer alone.  So a state here *is* an answer (`POLL`), and what the answers promise is kept
by the states:

* a sender says that it is over, well or not, when the transfer reads its pages no more: the scheduler gives them back
  in the same step.  Between the outcome and the release it still says what it said (`LANDED`, `STOPPED`);
* a receiver says success when nothing can land any more, and failure at once: for pages of a failed request SGLang
  has a question of its own (`is_abort_release_safe`), so `STOPPED` is a failure whose pages are still held;
* a request is given up at any time, also before its room was opened: then the other side is told (`Refuse`, `Decline`).

The room itself, its pages and its outcome are the endpoint's.  A prefill rank opens the room when SGLang starts the
sender, for the decode instance that was there before: only it knows how long the prompt is in pages.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.fsm import vocabulary
from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.timing import Timer, Timers
from kvproto.fsm.vocabulary import Effect, Event, State


# --------------------------------------------------------------------------------------------- states
class S(State):
    """A sender: a request on a prefill rank."""

    #: SGLang has not made it
    NEW = 0
    #: some decode rank has not opened the room
    AWAIT_DECODE = 1
    #: the decode instance is there, with pages; SGLang has not started the sender
    MET = 2
    #: open here; some of the prompt is not computed
    OPEN = 3
    #: the whole prompt is handed over
    SENT = 4
    #: every decode rank has it; the transfer may still read the pages
    LANDED = 5
    #: it has failed; the transfer may still read the pages
    STOPPED = 6
    #: over
    DONE = 7
    #: over: it has failed
    FAILED = 8


class R(State):
    """A receiver: a request on a decode rank."""

    #: SGLang has not made it
    NEW = 0
    #: some link to the prefill instance is not up
    AWAIT_LINKS = 1
    #: the prefill instance is there; SGLang has not given pages
    REACHED = 2
    #: its KV comes into its pages
    OPEN = 3
    #: all of it is there; something may still land
    LANDED = 4
    #: it has failed; something may still land
    STOPPED = 5
    #: over
    DONE = 6
    #: over: it has failed, and nothing of it can land
    FAILED = 7


FAILED, BOOTSTRAPPING, WAITING, TRANSFERRING, SUCCESS = range(5)
#: by state: what `poll` answers
POLL: dict[State, int] = {
    S.NEW: BOOTSTRAPPING, S.AWAIT_DECODE: BOOTSTRAPPING, S.MET: WAITING, S.OPEN: WAITING,
    S.SENT: TRANSFERRING, S.LANDED: TRANSFERRING, S.STOPPED: TRANSFERRING, S.DONE: SUCCESS,
    S.FAILED: FAILED,
}  # fmt: skip
POLL_RECEIVER: dict[State, int] = {
    R.NEW: BOOTSTRAPPING, R.AWAIT_LINKS: BOOTSTRAPPING, R.REACHED: WAITING, R.OPEN: TRANSFERRING,
    R.LANDED: TRANSFERRING, R.STOPPED: FAILED, R.DONE: SUCCESS, R.FAILED: FAILED,
}  # fmt: skip


# --------------------------------------------------------------------------------------------- events
class Made(Event, frozen=True):
    """SGLang has made a sender, or a receiver."""


class Met(Event, frozen=True):
    """Every decode rank has opened the room, or every link to the prefill instance is up."""


class Started(Event, frozen=True):
    """SGLang will send so many pages."""

    pages: int


class Scheduled(Event, frozen=True):
    """A forward of the request comes next."""


class Given(Event, frozen=True):
    """The KV of these pages, the request's next ones, is computed; or KV is to come into them.

    With the last ones comes the slot of the recurrent state, or come the pages of the window, if the model has such.
    """

    pages: tuple[int, ...]
    last: bool = True
    ending: tuple[int, ...] | None = None


class GivenUp(Event, frozen=True):
    """SGLang gives it up, or has ended it and asks no more."""


class Unmet(Event, frozen=True):
    """The other side has given it up, or cannot be had, before the room was opened here."""


class Ended(Event, frozen=True):
    """The room has an outcome."""

    well: bool


class Released(Event, frozen=True):
    """The transfer touches the room's pages no more."""


class TimerFired(vocabulary.TimerFired, frozen=True):
    """The other side is not there yet, and SGLang waits no longer."""

    tries: int = 1


# --------------------------------------------------------------------------------------------- effects
class OpenRoom(Effect, frozen=True):
    """Open the room."""

    pages: tuple[int, ...] = ()
    ending: tuple[int, ...] | None = None


class Prefetch(Effect, frozen=True):
    """Ask for grants."""


class HandOver(Effect, frozen=True):
    """Hand over the pages' KV; after the last ones also the state or the window, and the aux row."""

    pages: tuple[int, ...]
    last: bool
    ending: tuple[int, ...] | None


class Refuse(Effect, frozen=True):
    """Tell the decode instance that this room will not come."""


class Decline(Effect, frozen=True):
    """Tell the prefill instance that nobody waits for this room."""


class Abort(Effect, frozen=True):
    """Give the open room up."""


class SayLate(Effect, frozen=True):
    """The reason is that the other side was not there in time."""


class Timing(Timers, frozen=True):
    """How long SGLang waits for the other side, seconds; its own settings say."""

    bootstrap: Timer = Timer(300.0)
    waiting: Timer = Timer(300.0)


class Request(Value, frozen=True, gc=False):
    """`given`: pages of it that were handed over; `total`: that will be, once the sender has started."""

    given: int = 0
    total: int = 0


# fmt: off
def last(v: Request, e: Given, now: float) -> bool: return e.last
def well(v: Request, e: Ended, now: float) -> bool: return e.well
def counted(v: Request, e: Given, now: float) -> Request: return replace(v, given=v.given + len(e.pages))
def started(v: Request, e: Started, now: float) -> Request: return replace(v, total=e.pages)
def open_room(v: Request, e: Started) -> Output: return OpenRoom()
def open_for(v: Request, e: Given) -> Output: return OpenRoom(e.pages, e.ending)
def hand_over(v: Request, e: Given) -> Output: return HandOver(e.pages, e.last, e.ending)
def prefetch(v: Request, e: Scheduled) -> Output: return Prefetch()
def refuse_it(v: Request, e: GivenUp | TimerFired) -> Output: return Refuse()
def decline(v: Request, e: GivenUp) -> Output: return Decline()
def abort(v: Request, e: GivenUp) -> Output: return Abort()
def say_late(v: Request, e: TimerFired) -> Output: return SayLate()


sender = Table(
    "sglang_sender", Request, S, initial=S.NEW, final=(S.DONE, S.FAILED), tombstones=True,
    events=(Made, Met, Started, Scheduled, Given, GivenUp, Unmet, Ended, Released, TimerFired),
    timers={S.AWAIT_DECODE: "bootstrap"},
    success_path=(S.AWAIT_DECODE, S.MET, S.OPEN, S.SENT, S.LANDED, S.DONE), failure_states=(S.STOPPED, S.FAILED),
)
opens, row, ignore, refuse = sender.opens, sender.row, sender.ignore, sender.refuse
EARLY, LIVE, PAST, OVER = (S.AWAIT_DECODE, S.MET), (S.OPEN, S.SENT), (S.LANDED, S.STOPPED), (S.DONE, S.FAILED)

opens(S.NEW,        Made,       S.AWAIT_DECODE)
row(S.AWAIT_DECODE, Met,        S.MET)
row(S.AWAIT_DECODE, TimerFired, S.FAILED,   do=(say_late, refuse_it))
row(EARLY,          GivenUp,    S.FAILED,   do=(refuse_it,))
row(EARLY,          Unmet,      S.FAILED)
row(S.MET,          Started,    S.OPEN,     let=started, do=(open_room,))
row(S.OPEN,         Scheduled,              do=(prefetch,))
row(S.OPEN,         Given,      S.SENT,     when=last, let=counted, do=(hand_over,))
row(S.OPEN,         Given,                  let=counted, do=(hand_over,))
row(LIVE,           GivenUp,                do=(abort,))
row(LIVE,           Ended,      S.LANDED,   when=well)
row(LIVE,           Ended,      S.STOPPED)
row(S.LANDED,       Released,   S.DONE)
row(S.STOPPED,      Released,   S.FAILED)
ignore((S.MET, *LIVE, *PAST, *OVER), Met,          "it is asked for only until the room is open")
ignore((*LIVE, *PAST, *OVER), Unmet,               "the open room tells itself how it ends")
ignore((*EARLY, S.SENT, *PAST, *OVER), Scheduled,  "a forward without KV for this room")
ignore((*PAST, *OVER), (Started, Given),           "the room has ended: what is computed now is nobody's")
ignore((*PAST, *OVER), GivenUp,                    "it is over")
ignore(OVER, (Ended, Released),                    "the room was refused, and ended so")
refuse(S.AWAIT_DECODE, Started,                    "the sender is started before the decode instance is there")
refuse(LIVE, Started,                              "the sender is started twice")
refuse((*EARLY, S.SENT), Given,                    "pages come before the sender is started, or after the last ones")
refuse((*EARLY, *LIVE), Released,                  "it is released without an outcome")
refuse((*EARLY, *PAST), Ended,                     "it is not open, or has ended already")
refuse((*EARLY, *LIVE, *PAST, *OVER), Made,        "it is made twice")
refuse(S.NEW, (Met, Started, Scheduled, Given, GivenUp, Unmet, Ended, Released), "there is none")


receiver = Table(
    "sglang_receiver", Request, R, initial=R.NEW, final=(R.DONE, R.FAILED), tombstones=True,
    events=(Made, Met, Given, GivenUp, Unmet, Ended, Released, TimerFired), timers={R.AWAIT_LINKS: "waiting"},
    success_path=(R.AWAIT_LINKS, R.REACHED, R.OPEN, R.LANDED, R.DONE), failure_states=(R.STOPPED, R.FAILED),
)
opens_r, row_r, ignore_r, refuse_r = receiver.opens, receiver.row, receiver.ignore, receiver.refuse
PAST_R, OVER_R = (R.LANDED, R.STOPPED), (R.DONE, R.FAILED)

opens_r(R.NEW,       Made,       R.AWAIT_LINKS)
row_r(R.AWAIT_LINKS, Met,        R.REACHED)
row_r(R.AWAIT_LINKS, TimerFired, R.FAILED,  do=(say_late,))
row_r(R.AWAIT_LINKS, GivenUp,    R.FAILED)
row_r(R.AWAIT_LINKS, Unmet,      R.FAILED)
row_r(R.REACHED,     GivenUp,    R.FAILED,  do=(decline,))
row_r(R.REACHED,     Unmet,      R.FAILED)
row_r(R.REACHED,     Given,      R.OPEN,    let=counted, do=(open_for,))
row_r(R.OPEN,        GivenUp,               do=(abort,))
row_r(R.OPEN,        Ended,      R.LANDED,  when=well)
row_r(R.OPEN,        Ended,      R.STOPPED)
row_r(R.LANDED,      Released,   R.DONE)
row_r(R.STOPPED,     Released,   R.FAILED)
ignore_r((R.REACHED, R.OPEN, *PAST_R, *OVER_R), Met,  "it is asked for only until it is there")
ignore_r((R.OPEN, *PAST_R, *OVER_R), Unmet,           "the open room tells itself how it ends")
ignore_r((*PAST_R, *OVER_R), GivenUp,                 "it is over")
ignore_r(OVER_R, (Given, Ended, Released),            "it has failed before it had pages, and is declined")
refuse_r((R.AWAIT_LINKS, R.OPEN, *PAST_R), Given,     "pages come before the prefill instance is there, or twice")
refuse_r((R.AWAIT_LINKS, R.REACHED, R.OPEN), Released, "it is released without an outcome")
refuse_r((R.AWAIT_LINKS, R.REACHED, *PAST_R), Ended,   "it is not open, or has ended already")
refuse_r((R.AWAIT_LINKS, R.REACHED, R.OPEN, *PAST_R, *OVER_R), Made, "it is made twice")
refuse_r(R.NEW, (Met, Given, GivenUp, Unmet, Ended, Released), "there is none")
# fmt: on
TABLES = sender, receiver
