"""Prefill write: invariants of a prefill rank's write.

The witness is the transport: how many batches it has, how many of these failed and may still move bytes, whether any byte
may have reached the peer, whether the post that was asked for last is still undecided.  That nothing is written twice (S2)
comes down to one sentence: a write says that it has lapsed only if the transport never had a byte of it.
"""

from __future__ import annotations

from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import PWrite as S
from kvproto.protocol.tables.prefill_write import PWriteValue, prefill_write
from kvproto.verify.framework.claims import Claims, Ghost, Step


class Seen(Ghost, frozen=True):
    """The witness of a write.

    `flying`: batches that the transport has; `doubtful`: those of them that have failed; `touched`: bytes of the write
    may have come to the peer; `failed`: a batch has failed, or was not taken.
    """

    flying: int = 0
    doubtful: int = 0
    touched: bool = False
    failed: bool = False


write_claims: Claims[PWriteValue, Seen] = Claims(prefill_write, Seen)
holds, assumes, promises = write_claims.holds, write_claims.assumes, write_claims.promises
V = PWriteValue
ENDED = (ev.BatchCompleted, ev.BatchDeferred, ev.BatchRefused)


@write_claims.ghosts
def follow(step: Step) -> Seen:
    """A post adds a batch; what the transport says of it takes it away."""
    seen, event = step.seen, step.event
    flying, doubtful, touched, failed = seen.flying, seen.doubtful, seen.touched, seen.failed
    if step.before.state is S.NEW:
        return Seen(flying=len(step.all_of(do.PostWrite)))
    flying = flying + len(step.all_of(do.PostBatch))
    if isinstance(event, (*ENDED, ev.BatchSettled)) or (isinstance(event, ev.BatchFailed) and event.settled):
        flying = flying - 1
    if isinstance(event, ev.BatchSettled):
        doubtful = doubtful - 1
    if isinstance(event, ev.BatchFailed) and not event.settled:
        doubtful = doubtful + 1
    if isinstance(event, ev.BatchCompleted | ev.BatchFailed):
        touched = True
    if isinstance(event, ev.BatchFailed | ev.BatchRefused):
        failed = True
    return Seen(flying, doubtful, touched, failed)


# --------------------------------------------------------------------------------------- the invariant
holds(S.NEW, S.POSTING, S.IN_FLIGHT, S.ENDING, S.IN_DOUBT)(
    "It counts the batches that the transport has.",
    lambda v, g: v.flying == g.flying and g.doubtful <= g.flying and g.doubtful >= 0,
)
holds(S.NEW, S.POSTING, S.IN_FLIGHT, S.ENDING)("No batch of it is in doubt.", lambda v, g: g.doubtful == 0)
holds(S.POSTING, S.IN_FLIGHT)(
    "It knows whether bytes have come to the peer, and none of its batches has failed.",
    lambda v, g: bool(v.landed) == bool(g.touched) and not g.failed,
)
holds(S.IN_FLIGHT, S.ENDING, S.IN_DOUBT)("The transport has a batch of it.", lambda v, g: g.flying > 0)
holds(S.COMPLETED, S.FAILED)("The transport has nothing of it.", lambda v, g: g.flying == 0 and g.doubtful == 0)


# -------------------------------------------------------------------------------------- the assumptions
assumes(*ENDED, ev.BatchFailed, paid="transport: one answer a batch; tests/test_transport_contract.py")(
    "The transport speaks of a batch that it has, and that has not failed before.",
    lambda v, e, g: v.state == S.NEW or g.flying - g.doubtful > 0,
)
assumes(ev.BatchSettled, paid="engine: `RankWrites.doubtful`")(
    "A batch that settles has failed before.", lambda v, e, g: v.state == S.NEW or g.doubtful > 0
)
assumes(ev.BatchUnmade, paid="engine: a write is made whole before its first batch is offered")(
    "A write that cannot be made has not begun.",
    lambda v, e, g: v.state != S.POSTING or (g.flying == 0 and not g.touched),
)


# ---------------------------------------------------------------------------------------- the promises
promises("S4", do.PostBatch)(
    "A batch is posted only while what was given may be used, and never after the write was given up.",
    lambda step, effect: step.now < step.before.until and step.before.state is S.POSTING,
)


@promises("L1", on=(ev.WriteBegun,))
def opens_posted(step: Step) -> bool:
    """A staged write is posted as it opens: its send has checked the lease (`begins_within_the_lease`)."""
    opened = step.before.state is S.NEW
    return len(step.all_of(do.PostWrite)) == (1 if opened else 0)


@promises("L1", on=(ev.BatchReady,))
def posts_while_it_may(step: Step) -> bool:
    """A ready batch is posted while the lease holds, and with the last one all is. If nothing was posted
    when the lease ends, nothing is lost.
    """
    before, after, e = step.before, step.after, step.event
    if before.state is not S.POSTING:
        return True
    if step.now < before.until:
        return len(step.all_of(do.PostBatch)) == 1 and (after.state is S.IN_FLIGHT) == bool(e.last)
    untouched = step.seen.flying == 0 and not step.seen.touched
    return len(step.all_of(ev.WriteLapsed)) == (1 if untouched else 0)


@promises("S1", do.PostWrite, do.PreparePages)
def writes_what_was_asked(step: Step, effect: do.PostWrite | do.PreparePages) -> bool:
    """A post writes the slot into the region that was granted; a prepared write goes to the named pages."""
    e = step.event
    if isinstance(effect, do.PreparePages):
        return effect.to == e.to and effect.pages == e.pages
    return effect.to == e.to and effect.slot == e.slot and effect.offset == e.offset and effect.grant == e.grant


promises("S2", ev.WriteLapsed)(
    "A write that says it has lapsed never had a byte under way, so it may be begun anew.",
    lambda step, effect: step.then.flying == 0 and not step.then.touched,
)
promises("S4", ev.WriteFailed)(
    "A failure is reported settled only when the transport has nothing of the write.",
    lambda step, effect: not effect.settled or step.then.flying == 0,
)
promises("S6", ev.WriteCompleted)(
    "It says that every byte is there when all is posted, nothing flies and no batch has failed.",
    lambda step, effect: step.before.state is S.IN_FLIGHT and step.then.flying == 0 and not step.then.failed,
)


@promises("S6")
def tells_its_end_once(step: Step) -> bool:
    """With its end, and only then, the send is told one last thing."""
    ends = [each for each in step.all_of(ev.WriteFailed) if each.settled]
    told = len(step.all_of(ev.WriteCompleted)) + len(step.all_of(ev.WriteLapsed)) + len(ends)
    return told == (1 if step.after.state in (S.COMPLETED, S.FAILED) else 0)


@promises("S6")
def ends_as_it_says(step: Step) -> bool:
    """Exactly a complete write reports completion; a write in doubt has reported that; nothing begins
    twice.
    """
    before, after = step.before.state, step.after.state
    doubts = [each for each in step.all_of(ev.WriteFailed) if not each.settled]
    completes, falls = after is S.COMPLETED, after is S.IN_DOUBT and before is not S.IN_DOUBT
    said = len(step.all_of(ev.WriteCompleted)) == (1 if completes else 0) and len(doubts) == (1 if falls else 0)
    return said and (after is not S.NEW or before is S.NEW)


@promises("L1")
def drops_what_it_gives_up(step: Step) -> bool:
    """A write that is given up drops its batches; whether any is left, their maker knows."""
    before, after = step.before.state, step.after.state
    given_up = before in (S.POSTING, S.IN_FLIGHT) and after in (S.ENDING, S.IN_DOUBT, S.FAILED)
    unmade = isinstance(step.event, ev.BatchUnmade)
    return len(step.all_of(do.DropBatches)) == (1 if given_up and not unmade else 0)


promises("L1", on=(ev.PagesBegun,))(
    "Batches of a write into pages are made ready from its first step on.",
    lambda step: len(step.all_of(do.PreparePages)) == (1 if step.before.state is S.NEW else 0),
)
