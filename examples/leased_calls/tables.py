"""Tables: the client's and the server's of a call.

A call runs at most once because the server remembers, in each of its lives, which calls it has leased (`RAN` and
`ENDED` answer late copies), and because a lease is of one life: what was asked before a crash is refused after it.  The
client runs under the first lease that it is given, and never under another one.
"""

from msgspec.structs import replace

from examples.leased_calls.words import (
    Ask,
    C,
    Execute,
    Grant,
    Granted,
    HasRun,
    LeaseAsked,
    Refusal,
    Refused,
    Result,
    ResultCame,
    Run,
    RunAsked,
    S,
    Tell,
    TimerFired,
    Wanted,
)
from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.vocabulary import Transmit

CLIENT, SERVER = 0, 1


class ClientValue(Value, frozen=True):
    """The life of the server that has leased the call."""

    life: int = 0


class ServerValue(Value, frozen=True):
    """The life in which the call is leased, and its result."""

    life: int = 0
    result: int = 0


# fmt: off
# ---------------------------------------------------------------------------------------------- client
def leased(v: ClientValue, e: Granted, now: float) -> ClientValue: return replace(v, life=e.life)
def of_its_lease(v: ClientValue, e: Refused, now: float) -> bool: return e.life == v.life
def ask(v: ClientValue, e: Wanted | TimerFired) -> Output: return Transmit(SERVER, Ask(e.call))
def run(v: ClientValue, e: Granted) -> Output: return Transmit(SERVER, Run(e.call, e.life))
def run_again(v: ClientValue, e: TimerFired) -> Output: return Transmit(SERVER, Run(e.call, v.life))
def tell_done(v: ClientValue, e: ResultCame) -> Output: return Tell(e.call, "done", e.result)
def tell_not_run(v: ClientValue, e: Refused) -> Output: return Tell(e.call, "not run")
def tell_maybe(v: ClientValue, e: Refused) -> Output: return Tell(e.call, "maybe")


ENDS = C.DONE, C.NOT_RUN, C.MAYBE
client = Table(
    "client", ClientValue, C, initial=C.IDLE, final=ENDS, tombstones=True,
    events=(Wanted, Granted, ResultCame, Refused, TimerFired),
    timers={C.AWAIT_LEASE: "resend", C.AWAIT_RESULT: "resend"},
    success_path=(C.IDLE, C.AWAIT_LEASE, C.AWAIT_RESULT, C.DONE), failure_states=(C.NOT_RUN, C.MAYBE),
)
client.opens(C.IDLE,         Wanted,     C.AWAIT_LEASE,  do=(ask,))
client.row(C.AWAIT_LEASE,    Granted,    C.AWAIT_RESULT, let=leased, do=(run,))
client.row(C.AWAIT_LEASE,    Refused,    C.NOT_RUN,      do=(tell_not_run,))
client.row(C.AWAIT_LEASE,    TimerFired,                 do=(ask,))
client.row(C.AWAIT_RESULT,   ResultCame, C.DONE,         do=(tell_done,))
client.row(C.AWAIT_RESULT,   Refused,    C.MAYBE,        when=of_its_lease, do=(tell_maybe,))
client.ignore(C.AWAIT_RESULT, Refused,                   "another lease's: it was never run under that one")
client.row(C.AWAIT_RESULT,   TimerFired,                 do=(run_again,))
client.ignore(C.AWAIT_RESULT, Granted,                   "it may have run under its first lease")
client.refuse((C.AWAIT_LEASE, C.NOT_RUN), ResultCame,    "nobody was told to run it")
client.ignore((C.IDLE, C.DONE, C.MAYBE), ResultCame,     "it comes late")
client.ignore((C.IDLE, *ENDS), (Granted, Refused),       "it comes late")
client.refuse((C.AWAIT_LEASE, C.AWAIT_RESULT, *ENDS), Wanted, "it is wanted already")


# ---------------------------------------------------------------------------------------------- server
def of_this_life(v: ServerValue, e: RunAsked, now: float) -> bool: return e.life == v.life
def lend(v: ServerValue, e: LeaseAsked, now: float) -> ServerValue: return replace(v, life=e.life)
def keep(v: ServerValue, e: HasRun, now: float) -> ServerValue: return replace(v, result=e.result)
def grant(v: ServerValue, e: LeaseAsked) -> Output: return Transmit(CLIENT, Grant(e.call, e.life))
def refuse(v: ServerValue, e: LeaseAsked | RunAsked) -> Output: return Transmit(CLIENT, Refusal(e.call, e.life))
def execute(v: ServerValue, e: RunAsked) -> Output: return Execute(e.call)
def answer(v: ServerValue, e: HasRun) -> Output: return Transmit(CLIENT, Result(e.call, e.result))
def answer_again(v: ServerValue, e: RunAsked) -> Output: return Transmit(CLIENT, Result(e.call, v.result))


server = Table(
    "server", ServerValue, S, initial=S.NEW, final=(S.ENDED,), tombstones=True,
    events=(LeaseAsked, RunAsked, HasRun, TimerFired), timers={S.LEASED: "lease", S.RAN: "lease"},
    success_path=(S.NEW, S.LEASED, S.RUNNING, S.RAN, S.ENDED),
)
server.opens(S.NEW,    LeaseAsked, S.LEASED,  let=lend, do=(grant,))
server.row(S.NEW,      RunAsked,              do=(refuse,))
server.row(S.LEASED,   LeaseAsked,            do=(grant,))
server.row(S.LEASED,   RunAsked,   S.RUNNING, when=of_this_life, do=(execute,))
server.row(S.LEASED,   RunAsked,              do=(refuse,))
server.row(S.LEASED,   TimerFired, S.ENDED)
server.row(S.RUNNING,  HasRun,     S.RAN,     let=keep, do=(answer,))
server.ignore(S.RUNNING, RunAsked,            "it is running")
server.row(S.RAN,      RunAsked,              when=of_this_life, do=(answer_again,))
server.refuse(S.RAN,   RunAsked,              "a client runs a call under one lease")
server.row(S.RAN,      TimerFired, S.ENDED)
server.ignore((S.RUNNING, S.RAN), LeaseAsked, "the client has its lease")
server.row(S.ENDED,    LeaseAsked,            do=(refuse,))
server.row(S.ENDED,    RunAsked,              do=(refuse,))
server.refuse((S.NEW, S.LEASED, S.RAN, S.ENDED), HasRun, "nothing runs")
# fmt: on
TABLES = client, server
