"""Words: what is said of a call, what happens to it, and what is to be done."""

from kvproto.fsm import vocabulary
from kvproto.fsm.codec import U64, Body
from kvproto.fsm.timing import Timer, Timers
from kvproto.fsm.vocabulary import Effect, Event, State


class Ask(Body, tag="ASK", frozen=True):
    """Lease me the right to have this call run."""

    call: U64


class Grant(Body, tag="GRANT", frozen=True):
    """The call may run, in this life of the server."""

    call: U64
    life: U64


class Run(Body, tag="RUN", frozen=True):
    """Run the call, under the lease of this life."""

    call: U64
    life: U64


class Result(Body, tag="RESULT", frozen=True):
    """The call has run, and this is its result."""

    call: U64
    result: U64


class Refusal(Body, tag="REFUSAL", frozen=True):
    """There is no lease of this life for the call, and no result any more."""

    call: U64
    life: U64


class C(State):
    """A call at the client."""

    #: nobody wants it yet
    IDLE = 0
    #: a lease is asked for
    AWAIT_LEASE = 1
    #: the server was told to run it, once or several times
    AWAIT_RESULT = 2
    #: it has run, and the result is here
    DONE = 3
    #: it has not run, and never will
    NOT_RUN = 4
    #: it has run, or it has not: nobody can tell any more
    MAYBE = 5


class S(State):
    """A call at the server."""

    #: never heard of, or lost in a crash
    NEW = 0
    #: it may run
    LEASED = 1
    #: it is running
    RUNNING = 2
    #: it has run; the result is kept as long as the lease
    RAN = 3
    #: the lease is over: the call never runs again in this life
    ENDED = 4


class Wanted(Event, frozen=True):
    """The application wants the call."""

    call: int


class Granted(Event, frozen=True):
    """The server has leased the call."""

    call: int
    life: int


class ResultCame(Event, frozen=True):
    """The call has run."""

    call: int
    result: int


class Refused(Event, frozen=True):
    """The server has no lease of this life for the call."""

    call: int
    life: int


class LeaseAsked(Event, frozen=True):
    """The client asks for a lease; `life`: the server's."""

    call: int
    life: int


class RunAsked(Event, frozen=True):
    """The client wants the call run, under a lease of this life."""

    call: int
    life: int


class HasRun(Event, frozen=True):
    """The call's handler has returned."""

    call: int
    result: int


class TimerFired(vocabulary.TimerFired, frozen=True):
    """The client has waited long enough; or a lease is over."""

    call: int
    tries: int


class Execute(Effect, frozen=True):
    """Run the call, and answer with `HasRun`."""

    call: int


class Tell(Effect, frozen=True):
    """Tell the application how its call ended: `done`, `not run` or `maybe`."""

    call: int
    end: str
    result: int = 0


class Timing(Timers, frozen=True):
    """Every timer."""

    #: ask again
    resend: Timer = Timer(0.2)
    #: the time of a lease
    lease: Timer = Timer(5.0)
