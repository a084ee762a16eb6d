"""Claims of two-phase commit, of any number of participants, in runs of any length.

The worlds say what becomes of all parties together; these claims say what each step owes to that.  `kvproto prove`
proves them, and `kvproto mutate` shows which change of a row would break them.
"""

from __future__ import annotations

from examples.two_phase_commit.protocol import (
    Announce,
    Begun,
    C,
    CValue,
    Decision,
    DecisionReceived,
    Inquire,
    Inquired,
    P,
    Prepare,
    PrepareAsked,
    PValue,
    Recovered,
    TimerFired,
    Vote,
    VoteReceived,
    WriteLog,
    coordinator,
    participant,
)
from kvproto.fsm.vocabulary import Broadcast, Transmit
from kvproto.verify.framework.claims import Claims, Ghost, Step, among, in_order, within

# ----------------------------------------------------------------------------------------- coordinator
coordinator_claims = Claims(coordinator)


@coordinator_claims.holds(C.AWAIT_VOTES)
def some_have_not_promised(v: CValue, _: Ghost) -> bool:
    """Those who have promised take part, and one who takes part has not promised."""
    return within(v.promised, v.members) and v.promised != v.members


@coordinator_claims.assumes(Begun, paid="the application: a transaction is somebody's")
def somebody_takes_part(_: CValue, e: Begun, __: Ghost) -> bool:
    """A transaction has participants."""
    return e.members != 0


@coordinator_claims.assumes(VoteReceived, paid="a participant votes when it is asked; routes drop strangers")
def voters_take_part(v: CValue, e: VoteReceived, _: Ghost) -> bool:
    """A vote is a participant's, if the transaction is known."""
    return v.state is not C.AWAIT_VOTES or among(e.peer, v.members)


@coordinator_claims.promises("consent", Announce)
def all_have_promised(step: Step, told: Announce) -> bool:
    """A vote that commits is the last promise."""
    e = step.event
    return not (told.commit and isinstance(e, VoteReceived)) or bool(
        e.yes and step.before.promised | 1 << e.peer == step.before.members
    )


@coordinator_claims.promises("decision", on=(VoteReceived, TimerFired))
def decided_once(step: Step) -> bool:
    """A decision is logged if it is to commit, then told to all who take part, then to the application."""
    decided = step.before.state is C.AWAIT_VOTES and step.after.state is not C.AWAIT_VOTES
    if not decided:
        return step.after.state is step.before.state and not step.says(Decision) and not step.all_of(Announce)
    commit = step.after.state is C.COMMITTED
    told = [each.peers for each in step.all_of(Broadcast)]
    said = [each.body.commit is commit for each in step.all_of(Broadcast)]
    outcomes = [each.commit is commit for each in step.all_of(Announce)]
    logged = [each.word for each in step.all_of(WriteLog)]
    ordered = in_order(step, WriteLog, Broadcast) and in_order(step, Broadcast, Announce)
    return bool(
        said == outcomes == [True] and told[0] == step.before.members and logged == ["commit"] * commit and ordered
        and step.after.state is not C.UNKNOWN
    )  # fmt: skip


@coordinator_claims.promises("decision", on=(VoteReceived,))
def one_no_aborts(step: Step) -> bool:
    """One No aborts, and no Yes does."""
    return step.before.state is not C.AWAIT_VOTES or (step.after.state is C.ABORTED) is not bool(step.event.yes)


@coordinator_claims.promises("decision", on=(TimerFired,))
def asked_again(step: Step) -> bool:
    """Those who have not promised are asked again, as often as the timer may be started."""
    spent = step.before.tries + 1 >= step.event.tries
    if step.after.state is C.ABORTED:
        return bool(spent)
    return bool(not spent and step.after.tries == step.before.tries + 1) and _asked(step)


@coordinator_claims.promises("decision", on=(Begun,))
def all_are_asked(step: Step) -> bool:
    """A transaction begins with a question to all who take part."""
    return step.before.state is not C.UNKNOWN or (step.after.members == step.event.members and _asked(step))


def _asked(step: Step) -> bool:
    asked = [each.peers for each in step.all_of(Broadcast)]
    return step.says(Prepare) == 1 == len(asked) and bool(asked[0] == step.after.members & ~step.after.promised)


@coordinator_claims.promises("decision", on=(Inquired,))
def doubt_ends(step: Step) -> bool:
    """A participant that asks hears the decision; an unknown transaction was aborted."""
    told = [(each.peer == step.event.peer, each.body.commit) for each in step.all_of(Transmit)]
    answer = [] if step.before.state is C.AWAIT_VOTES else [step.before.state is C.COMMITTED]
    return step.after.state is step.before.state and all(here for here, _ in told) and [c for _, c in told] == answer


@coordinator_claims.waits("decision")
def waits_for_votes(_: CValue, __: Ghost) -> str:
    """It waits for votes."""
    return "votes"


# ----------------------------------------------------------------------------------------- participant
participant_claims = Claims(participant)


@participant_claims.promises("consent", Transmit)
def promised_is_logged(step: Step, said: Transmit) -> bool:
    """A Yes is what the log has, and what it waits on; a No is of what is aborted."""
    if not isinstance(said.body, Vote):
        return step.after.state is P.PREPARED
    if not said.body.yes:
        return step.after.state is P.ABORTED
    logged = [each.word for each in step.all_of(WriteLog)]
    known = step.before.state is P.PREPARED
    right = logged == ([] if known else ["promise"]) and in_order(step, WriteLog, Transmit)
    return step.after.state is P.PREPARED and right


@participant_claims.promises("decision", on=(PrepareAsked,))
def question_is_answered(step: Step) -> bool:
    """PREPARE has one answer, each time, unless it comes after the commit."""
    if step.before.state is P.UNKNOWN and (step.after.state is P.PREPARED) is not bool(step.event.able):
        return False
    return step.says(Vote) == (step.before.state is not P.COMMITTED)


@participant_claims.promises("decision")
def end_is_logged_and_told(step: Step) -> bool:
    """A transaction's end is in the log (or comes from there), and the application is told once."""
    ends = {P.COMMITTED: "commit", P.ABORTED: "abort"}
    moved = step.after.state is not step.before.state and step.after.state in ends
    told, logged = [each.commit for each in step.all_of(Announce)], [each.word for each in step.all_of(WriteLog)]
    if not moved:
        return not told and (step.after.state is not P.UNKNOWN or step.before.state is P.UNKNOWN)
    word = [] if isinstance(step.event, Recovered) else [ends[step.after.state]]
    ordered = in_order(step, WriteLog, Transmit) and in_order(step, Transmit, Announce)
    ordered = ordered and in_order(step, WriteLog, Announce)
    return told == [step.after.state is P.COMMITTED] and logged == word and ordered


@participant_claims.promises("atomicity", on=(DecisionReceived,))
def decision_is_followed(step: Step) -> bool:
    """A participant that has promised does what is decided; no other is moved by a decision."""
    if step.before.state is not P.PREPARED:
        return step.after.state is step.before.state
    return step.after.state is (P.COMMITTED if step.event.commit else P.ABORTED)


@participant_claims.promises("decision", on=(Recovered,))
def log_is_followed(step: Step) -> bool:
    """After a crash it is as the log says."""
    if step.before.state is not P.UNKNOWN:
        return step.after.state is step.before.state
    word = step.event.word
    return step.after.state is (P.PREPARED if word == "promise" else P.COMMITTED if word == "commit" else P.ABORTED)


@participant_claims.promises("decision", on=(Recovered, TimerFired))
def doubt_is_told(step: Step) -> bool:
    """A participant in doubt asks, and asks again."""
    known = isinstance(step.event, Recovered) and step.before.state is not P.UNKNOWN
    return step.says(Inquire) == (step.after.state is P.PREPARED and not known)


@participant_claims.promises("atomicity")
def end_is_final(step: Step) -> bool:
    """An end is final; a promise ends by a decision alone."""
    if step.before.state in (P.COMMITTED, P.ABORTED):
        return step.after.state is step.before.state
    decided = isinstance(step.event, DecisionReceived)
    return step.before.state is not P.PREPARED or decided or step.after.state is P.PREPARED


@participant_claims.waits("decision")
def waits_for_decision(v: PValue, __: Ghost) -> str:
    """It waits for the decision."""
    del v
    return "doubt"


CLAIMS = coordinator_claims, participant_claims
