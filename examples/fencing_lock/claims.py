"""Claims of the fencing lock: what each step of its three machines owes, in runs of any length."""

from __future__ import annotations

from examples.fencing_lock import lock as f
from kvproto.fsm import Transmit, Value
from kvproto.verify.framework import Claims, Ghost, Step

service_claims, client_claims, storage_claims = Claims(f.service), Claims(f.client), Claims(f.storage)


@service_claims.promises("fence", on=(f.Asked,))
def lease_is_new(step: Step) -> bool:
    """A free lock is lent to the client that asks, under the next token; a held one stays as it is."""
    before, after, asked = step.before, step.after, step.event
    if before.state is f.L.HELD:
        return after.state is f.L.HELD and bool(after.holder == before.holder) and bool(after.token == before.token)
    return after.state is f.L.HELD and bool(after.holder == asked.peer) and bool(after.token == before.token + 1)


@service_claims.promises("end", on=(f.Asked,))
def holder_is_told(step: Step) -> bool:
    """The holder hears of its lease whenever it asks, and nobody else does."""
    if step.after.holder != step.event.peer:
        return not step.effects
    (said,) = step.all_of(Transmit)
    return bool(said.peer == step.event.peer) and bool(said.body.token == step.after.token)


@service_claims.promises("fence", on=(f.TimerFired,))
def lease_ends(step: Step) -> bool:
    """The time of a lease frees the lock, and its token is never used again."""
    return step.after.state is f.L.FREE and bool(step.after.token == step.before.token) and not step.effects


@service_claims.waits("end")
def waits_for_lease(_: f.Lease, __: Ghost) -> str:
    """It waits for the end of the lease."""
    return "lease"


@client_claims.promises("end", on=(f.Wanted, f.TimerFired))
def asks(step: Step) -> bool:
    """A client asks when its application wants the lock, and again until it has it."""
    if isinstance(step.event, f.Wanted) and step.before.state is not f.C.IDLE:
        return step.after.state is step.before.state and not step.all_of(Transmit)
    return step.after.state is f.C.ASKED and step.says(f.Acquire) == 1


@client_claims.promises("fence", on=(f.Grant,))
def writes_once(step: Step) -> bool:
    """The first lease brings the write, under its token; a lease that comes again brings nothing."""
    if step.before.state is not f.C.ASKED:
        return step.after.state is step.before.state and not step.effects
    (said,) = step.all_of(Transmit)
    return step.after.state is f.C.HELD and bool(said.body.token == step.event.token) and step.says(f.Write) == 1


@client_claims.waits("end")
def waits_for_service(_: Value, __: Ghost) -> str:
    """It asks again."""
    return "resend"


@storage_claims.promises("fence", on=(f.Write,))
def older_write_is_refused(step: Step) -> bool:
    """An older token's write changes nothing; any other is stored, and its token kept."""
    if step.before.state is f.G.GUARDED and step.event.token < step.before.token:
        return bool(step.after.token == step.before.token) and step.after.state is f.G.GUARDED and not step.effects
    (stored,) = step.all_of(f.Store)
    kept = step.after.state is f.G.GUARDED and bool(step.after.token == step.event.token)
    return kept and bool(stored.token == step.event.token)


CLAIMS = service_claims, client_claims, storage_claims
