"""Two-phase commit: a coordinator and its participants do a transaction all together, or not at all.

The coordinator asks all (PREPARE); who can do it promises so, in its log, and votes yes.  If all have, the coordinator
writes its decision into its own log, and tells it.  A participant that has promised *waits*, however long, because the
others may have been told to commit; it asks again by a timer.  Abort is not logged: of what the coordinator does not
know, and of what it has not decided when it crashes, it says that it was aborted (*presumed abort*).

Who was once sure stays sure: a No is remembered, since PREPARE may come twice, and after a crash the log has what was
promised and what became of it.  (That a log can be cut when all have confirmed is left out, and with it a message.)
"""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from kvproto.fsm import vocabulary
from kvproto.fsm.codec import U64, Body
from kvproto.fsm.kinds import Mask
from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.timing import Timer, Timers
from kvproto.fsm.vocabulary import Broadcast, Effect, Event, State, Transmit

COORDINATOR = 0
#: participants, by their numbers
Members = Annotated[int, Mask(64)]


# ------------------------------------------------------------------------------------------- messages
class Prepare(Body, tag="PREPARE", frozen=True):
    """Can you commit?"""

    txn: U64


class Vote(Body, tag="VOTE", frozen=True):
    """I can, and shall if you say so; or I cannot."""

    txn: U64
    yes: bool


class Decision(Body, tag="DECISION", frozen=True):
    """It is decided."""

    txn: U64
    commit: bool


class Inquire(Body, tag="INQUIRE", frozen=True):
    """I have promised: what is decided?"""

    txn: U64


Message = Prepare | Vote | Decision | Inquire


# --------------------------------------------------------------------------------------------- states
class C(State):
    """A transaction at the coordinator."""

    #: not begun, or lost in a crash before it was decided
    UNKNOWN = 0
    #: participants were asked; some have not voted
    AWAIT_VOTES = 1
    #: all have promised: decided, and in the log
    COMMITTED = 2
    #: somebody cannot, or did not answer
    ABORTED = 3


class P(State):
    """A transaction at a participant."""

    #: never heard of
    UNKNOWN = 0
    #: promised, and in the log: only the coordinator's word ends this
    PREPARED = 1
    #: done
    COMMITTED = 2
    #: undone
    ABORTED = 3


# ---------------------------------------------------------------------------------- events and effects
class Begun(Event, frozen=True):
    """The application wants these participants (a mask) to commit together."""

    txn: int
    members: Members


class VoteReceived(Event, frozen=True):
    """A participant has voted."""

    txn: int
    peer: int
    yes: bool


class Inquired(Event, frozen=True):
    """A participant that has promised waits for the decision."""

    txn: int
    peer: int


class PrepareAsked(Event, frozen=True):
    """The coordinator asks; `able`: the changes are at hand and can be made."""

    txn: int
    able: bool


class DecisionReceived(Event, frozen=True):
    """The coordinator has decided."""

    txn: int
    commit: bool


class Recovered(Event, frozen=True):
    """After a crash the log has this word on the transaction: promise, commit or abort."""

    txn: int
    word: str


class TimerFired(vocabulary.TimerFired, frozen=True):
    """The timer of the transaction's state ended."""

    txn: int
    tries: int


class WriteLog(Effect, frozen=True):
    """Have this word in stable storage before anything that comes after it happens."""

    txn: int
    word: str


class Announce(Effect, frozen=True):
    """Tell the application how the transaction ended."""

    txn: int
    commit: bool


class Timing(Timers, frozen=True):
    """Every timer."""

    #: ask for the votes again
    votes: Timer = Timer(0.2, 5)
    #: ask for the decision
    doubt: Timer = Timer(0.3)


# ----------------------------------------------------------------------------------------- coordinator
class CValue(Value, frozen=True, gc=False):
    """Who takes part and who has promised (masks), and how often it was asked."""

    members: Members = 0
    promised: Members = 0
    tries: int = 0


CEvent = VoteReceived | TimerFired
PEvent = PrepareAsked | DecisionReceived


# fmt: off
def last_yes(v: CValue, e: VoteReceived, now: float) -> bool: return e.yes and v.promised | 1 << e.peer == v.members
def yes(v: CValue, e: VoteReceived, now: float) -> bool: return e.yes
def tries_left(v: CValue, e: TimerFired, now: float) -> bool: return v.tries + 1 < e.tries
def enrol(v: CValue, e: Begun, now: float) -> CValue: return replace(v, members=e.members)
def count(v: CValue, e: VoteReceived, now: float) -> CValue: return replace(v, promised=v.promised | 1 << e.peer)
def tried(v: CValue, e: TimerFired, now: float) -> CValue: return replace(v, tries=v.tries + 1)
def ask(v: CValue, e: Begun | TimerFired) -> Output: return Broadcast(v.members & ~v.promised, Prepare(e.txn))
def tell_commit(v: CValue, e: VoteReceived) -> Output: return Broadcast(v.members, Decision(e.txn, commit=True))
def tell_abort(v: CValue, e: CEvent) -> Output: return Broadcast(v.members, Decision(e.txn, commit=False))
def answer_commit(v: CValue, e: Inquired) -> Output: return Transmit(e.peer, Decision(e.txn, commit=True))
def answer_abort(v: CValue, e: Inquired) -> Output: return Transmit(e.peer, Decision(e.txn, commit=False))
def log_commit(v: Value, e: VoteReceived | DecisionReceived) -> Output: return WriteLog(e.txn, "commit")
def announce_commit(v: Value, e: VoteReceived | PEvent | Recovered) -> Output: return Announce(e.txn, commit=True)
def announce_abort(v: Value, e: CEvent | PEvent | Recovered) -> Output: return Announce(e.txn, commit=False)


coordinator = Table(
    "coordinator", CValue, C, initial=C.UNKNOWN, final=(C.COMMITTED, C.ABORTED), tombstones=True,
    events=(Begun, VoteReceived, Inquired, Recovered, TimerFired), timers={C.AWAIT_VOTES: "votes"},
    success_path=(C.UNKNOWN, C.AWAIT_VOTES, C.COMMITTED), failure_states=(C.ABORTED,),
)
opens, row, ignore, refuse = coordinator.opens, coordinator.row, coordinator.ignore, coordinator.refuse
ENDED = C.COMMITTED, C.ABORTED

opens(C.UNKNOWN,   Begun,        C.AWAIT_VOTES, let=enrol, do=(ask,))
row(C.AWAIT_VOTES, VoteReceived, C.COMMITTED,   when=last_yes, do=(log_commit, tell_commit, announce_commit))
row(C.AWAIT_VOTES, VoteReceived,                when=yes, let=count)
row(C.AWAIT_VOTES, VoteReceived, C.ABORTED,     do=(tell_abort, announce_abort))
row(C.AWAIT_VOTES, TimerFired,                  when=tries_left, let=tried, do=(ask,))
row(C.AWAIT_VOTES, TimerFired,   C.ABORTED,     do=(tell_abort, announce_abort))
opens(C.UNKNOWN,   Recovered,    C.COMMITTED,   do=(announce_commit,))
row(C.COMMITTED,   Inquired,                    do=(answer_commit,))
row((C.UNKNOWN, C.ABORTED), Inquired,           do=(answer_abort,))
ignore(C.AWAIT_VOTES, Inquired,                 "it will hear of the decision")
ignore((C.UNKNOWN, *ENDED), VoteReceived,       "it is over, or was lost: who has promised asks")
refuse((C.AWAIT_VOTES, *ENDED), (Begun, Recovered), "it is known here")


# ----------------------------------------------------------------------------------------- participant
class PValue(Value, frozen=True, gc=False):
    """Nothing but the state."""


def able(v: PValue, e: PrepareAsked, now: float) -> bool: return e.able
def commit(v: PValue, e: DecisionReceived, now: float) -> bool: return e.commit
def was_promised(v: PValue, e: Recovered, now: float) -> bool: return e.word == "promise"
def was_committed(v: PValue, e: Recovered, now: float) -> bool: return e.word == "commit"
def log_promise(v: PValue, e: PrepareAsked) -> Output: return WriteLog(e.txn, "promise")
def log_abort(v: PValue, e: PEvent) -> Output: return WriteLog(e.txn, "abort")
def say_yes(v: PValue, e: PrepareAsked) -> Output: return Transmit(COORDINATOR, Vote(e.txn, yes=True))
def say_no(v: PValue, e: PrepareAsked) -> Output: return Transmit(COORDINATOR, Vote(e.txn, yes=False))
def inquire(v: PValue, e: Recovered | TimerFired) -> Output: return Transmit(COORDINATOR, Inquire(e.txn))


participant = Table(
    "participant", PValue, P, initial=P.UNKNOWN, final=(P.COMMITTED, P.ABORTED), tombstones=True,
    events=(PrepareAsked, DecisionReceived, Recovered, TimerFired), timers={P.PREPARED: "doubt"},
    success_path=(P.UNKNOWN, P.PREPARED, P.COMMITTED), failure_states=(P.ABORTED,),
)
opens_p, row_p, ignore_p, refuse_p = participant.opens, participant.row, participant.ignore, participant.refuse

opens_p(P.UNKNOWN, PrepareAsked,     P.PREPARED,  when=able, do=(log_promise, say_yes))
opens_p(P.UNKNOWN, PrepareAsked,     P.ABORTED,   do=(log_abort, say_no, announce_abort))
row_p(P.PREPARED,  PrepareAsked,                  do=(say_yes,))
row_p(P.PREPARED,  DecisionReceived, P.COMMITTED, when=commit, do=(log_commit, announce_commit))
row_p(P.PREPARED,  DecisionReceived, P.ABORTED,   do=(log_abort, announce_abort))
row_p(P.PREPARED,  TimerFired,                    do=(inquire,))
opens_p(P.UNKNOWN, Recovered,        P.PREPARED,  when=was_promised, do=(inquire,))
opens_p(P.UNKNOWN, Recovered,        P.COMMITTED, when=was_committed, do=(announce_commit,))
opens_p(P.UNKNOWN, Recovered,        P.ABORTED,   do=(announce_abort,))
row_p(P.ABORTED,   PrepareAsked,                  do=(say_no,))
ignore_p(P.COMMITTED, PrepareAsked,               "it comes late: all have voted")
ignore_p((P.UNKNOWN, P.COMMITTED, P.ABORTED), DecisionReceived, "it comes twice, or was never promised here")
refuse_p((P.PREPARED, P.COMMITTED, P.ABORTED), Recovered, "it is known here")
# fmt: on
TABLES = coordinator, participant
