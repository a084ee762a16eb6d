"""Claims of leased calls: what each step of a client or a server owes, in runs of any length."""

from __future__ import annotations

from examples.leased_calls.tables import ENDS, ClientValue, ServerValue, client, server
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
from kvproto.fsm.vocabulary import Transmit
from kvproto.verify.framework.claims import Claims, Ghost, Step

# ---------------------------------------------------------------------------------------------- client
client_claims = Claims(client)


@client_claims.promises("once")
def one_lease(step: Step) -> bool:
    """A call that may have run keeps its lease until it ends; what has ended stays as it is."""
    if step.before.state is C.AWAIT_RESULT:
        return bool(step.after.state in (C.AWAIT_RESULT, C.DONE, C.MAYBE) and step.after.life == step.before.life)
    return step.before.state not in ENDS or step.after.state is step.before.state


@client_claims.promises("once", Transmit)
def runs_under_its_lease(step: Step, said: Transmit) -> bool:
    """A run is asked for under the lease that the client keeps; before that, only a lease is."""
    if isinstance(said.body, Ask):
        return step.after.state is C.AWAIT_LEASE
    lease = step.event.life if isinstance(step.event, Granted) else step.before.life
    return bool(step.after.state is C.AWAIT_RESULT and said.body.life == lease and step.after.life == lease)


@client_claims.promises("truth")
def end_is_told(step: Step) -> bool:
    """The application is told once, when the call ends: what the server has said, and nothing more."""
    told = step.all_of(Tell)
    if step.after.state is step.before.state:
        return not told
    words = {C.DONE: "done", C.NOT_RUN: "not run", C.MAYBE: "maybe"}
    if step.after.state not in words:
        return not told
    result = step.event.result if isinstance(step.event, ResultCame) else 0
    return [each.end for each in told] == [words[step.after.state]] and bool(told[0].result == result)


@client_claims.promises("end", on=(Wanted, Granted, ResultCame, Refused, TimerFired))
def goes_on(step: Step) -> bool:
    """Each step asks for what it awaits; a result or a refusal of its lease ends the call."""
    before, after, event = step.before.state, step.after.state, step.event
    if before is C.IDLE and isinstance(event, Wanted):
        return after is C.AWAIT_LEASE and step.says(Ask) == 1
    if isinstance(event, TimerFired):
        return after is before and step.says(Ask if before is C.AWAIT_LEASE else Run) == 1
    if before is C.AWAIT_LEASE and isinstance(event, Granted):
        return after is C.AWAIT_RESULT and step.says(Run) == 1
    if before is C.AWAIT_LEASE and isinstance(event, Refused):
        return after is C.NOT_RUN
    if before is C.AWAIT_RESULT and isinstance(event, ResultCame):
        return after is C.DONE
    if before is C.AWAIT_RESULT and isinstance(event, Refused):
        return (after is C.MAYBE) is bool(event.life == step.before.life)
    return after is before and not step.says(Ask) and not step.says(Run)


@client_claims.waits("end")
def waits_for_server(_: ClientValue, __: Ghost) -> str:
    """It asks again."""
    return "resend"


# ---------------------------------------------------------------------------------------------- server
server_claims = Claims(server)
#: what a step may make of a state; the order in which a call goes
NEXT = {S.NEW: (S.NEW, S.LEASED), S.LEASED: (S.LEASED, S.RUNNING, S.ENDED), S.RUNNING: (S.RUNNING, S.RAN),
        S.RAN: (S.RAN, S.ENDED), S.ENDED: (S.ENDED,)}  # fmt: skip


@server_claims.promises("once")
def forward_only(step: Step) -> bool:
    """A call goes through its states once, and keeps the life of its lease."""
    same = step.before.state is S.NEW or bool(step.after.life == step.before.life)
    return step.after.state in NEXT[step.before.state] and same


@server_claims.promises("once")
def runs_once(step: Step) -> bool:
    """A call runs as it begins to run, and under a lease of this life."""
    begins = step.before.state is S.LEASED and step.after.state is S.RUNNING
    if not begins:
        return not step.all_of(Execute)
    return len(step.all_of(Execute)) == 1 and bool(step.event.life == step.before.life)


@server_claims.promises("end", on=(LeaseAsked,))
def lease_is_given(step: Step) -> bool:
    """A question brings the lease of this life, or a refusal if the call has ended."""
    if step.before.state in (S.RUNNING, S.RAN):
        return not step.effects
    if step.before.state is S.ENDED:
        return step.says(Refusal) == 1
    (said,) = step.all_of(Transmit)
    known = step.after.state is S.LEASED and (step.before.state is S.LEASED or bool(step.after.life == step.event.life))
    return isinstance(said.body, Grant) and bool(said.body.life == step.event.life) and known


@server_claims.promises("end", on=(RunAsked,))
def run_is_answered(step: Step) -> bool:
    """A client that wants the call run hears what became of it, unless it is running."""
    before, asked = step.before.state, step.event
    if before is S.RUNNING:
        return not step.effects
    if before in (S.LEASED, S.RAN) and asked.life == step.before.life:
        if before is S.LEASED:
            return step.after.state is S.RUNNING and not step.all_of(Transmit)
        (said,) = step.all_of(Transmit)
        answered = isinstance(said.body, Result) and bool(said.body.result == step.before.result)
        return answered and step.after.state is before
    if before is S.RAN:
        return step.after.state is before and not step.all_of(Transmit)
    (said,) = step.all_of(Transmit)
    return step.after.state is before and isinstance(said.body, Refusal) and bool(said.body.life == asked.life)


@server_claims.promises("truth", on=(HasRun,))
def result_is_kept(step: Step) -> bool:
    """The result is the handler's; it is kept, and said at once."""
    if step.before.state is not S.RUNNING:
        return not step.all_of(Transmit)
    (said,) = step.all_of(Transmit)
    return bool(step.after.result == step.event.result) and bool(said.body.result == step.event.result)


@server_claims.promises("lease", on=(TimerFired,))
def lease_ends(step: Step) -> bool:
    """The time of a lease ends it, and says nothing."""
    return step.after.state is S.ENDED and not step.effects


@server_claims.waits("lease")
def waits_for_lease(_: ServerValue, __: Ghost) -> str:
    """It waits for the end of the lease."""
    return "lease"


CLAIMS = client_claims, server_claims
