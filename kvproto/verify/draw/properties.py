"""Properties of the protocol, and the known hazards that each property makes impossible.

The properties are what the checker verifies; the hazards are defects that transfers of this kind have had in the
field.  Each hazard names the properties that it would break and what in these tables stands in its way.
"""

from __future__ import annotations

import msgspec

from kvproto.verify.framework.draw.tables import table_md


class Property(msgspec.Struct, frozen=True):
    """`S..`: holds in every reachable state.  `L..`: comes about, if messages get through now and then."""

    name: str
    text: str


class Hazard(msgspec.Struct, frozen=True):
    """A defect: what would go wrong, what it breaks, and what prevents it here."""

    name: str
    text: str
    breaks: tuple[str, ...]
    prevented: str


PROPERTIES: tuple[Property, ...] = (
    Property("S1", "A staged write lands only in a region that is held by its own room, generation, chunk and writer."),
    Property("S2", "Of each (room, generation, chunk, decode rank, writer), at most one staged write ever lands."),
    Property("S3", "A scatter reads a region only when the part of every distinct writer that stages is in it."),
    Property("S4", "A region, or a room's pages, are given back only when no write to them is in flight or may yet be"
                   " posted."),
    Property("S5", "Decode reports success only when every chunk is in its pages and the aux row has landed."),
    Property("S6", "A room has one outcome on each rank, which never changes; decode's success implies that every write"
                   " of it completed."),
    Property("S7", "The watermark that a prefill rank has seen never exceeds the true one, and never falls."),
    Property("S8", "Of a room that is over and drained, nothing is kept but a bounded number of tombstones."),
    Property("S9", "What happens to one room, link or peer changes no other room's outcome."),
    Property("S10", "Every event in every state is handled, ignored or refused by name; no message stops a rank."),
    Property("S11", "Two regions that may both be written do not overlap."),
    Property("S12", "The bytes in decode's pages are those of prefill's pages, head for head, and no other page"
                    " changes."),
    Property("S13", "No chunk is given a region while an earlier chunk of its room waits for one."),
    Property("L1", "Every room ends, on every rank, in bounded time."),
    Property("L2", "The oldest region of a ring is always freed at last."),
    Property("L3", "A part that is ready is written, whatever other parts wait for."),
    Property("L4", "One pass of the loop is bounded: it never waits, blocks or spins."),
    Property("L5", "No cycle of waits closes through ring space, staging slots and the engines' memory."),
)  # fmt: skip

_ROWS = (
    ("per-token-writes", "one small write for each token, layer and head slice", "L4", "staging: one write a part"),
    ("dummy-always-true", "a rank that has a duty is taken for one that has none, and never asked", "L1",
     "duties come from the plan, which both sides derive from the exchanged layouts"),
    ("leaked-bookkeeping", "what is kept of a room outlives it", "S8",
     "sends and grants are deleted when final; tombstones are bounded"),
    ("delimiter-in-field", "a separator occurs inside a field", "S10", "frames are MessagePack, decoded by type"),
    ("writers-keyed-by-pp", "two writers of one stage count as one", "L1", "writers are bits of a mask, by rank index"),
    ("global-rank-offset", "a head offset is computed from the wrong rank number", "S12",
     "offsets come from the plan, by place in the group"),
    ("chunk-offset-not-advanced", "each chunk overwrites the one before", "S2 S12",
     "every chunk has its own region and its own cell"),
    ("replica-modulo", "replicas of a head are numbered round-robin", "S12",
     "replicas are consecutive ranks, in the plan"),
    ("heads-overestimated", "the number of heads is guessed from one rank's", "S12",
     "layouts are exchanged and compared"),
    ("failed-room-leaks-grant", "a failed room keeps its regions", "L2",
     "`DRAINING` of the room stops and drains its grants"),
    ("req-before-registration", "a request that comes early is dropped for good", "L1",
     "requests are repeated by timers; `AWAIT_ENGINE` waits"),
    ("misaligned-chunk", "chunks are not aligned to the agreed cells after a prefix hit", "S3 S12",
     "cells start at the prefix; length and prefix are compared (`disagrees`)"),
    ("grants-for-skipped-chunks", "regions are given for chunks that are never sent", "L2",
     "a region is given only when its writer asks"),
    ("empty-ring-stale-watermark", "an empty ring leaves its watermark behind", "L2",
     "an empty ring starts a new round and says so"),
    ("lost-response", "an answer is lost and never repeated", "L1", "`AWAIT_GRANT` asks again"),
    ("lost-watermark", "the last watermark is lost", "L1", "`AWAIT_WATERMARK` pulls it"),
    ("dead-subscriber", "a watermark is sent to a peer that is gone, and blocks", "L4",
     "nothing blocks; only writers that wait are told"),
    ("stale-subscriber", "a restarted peer is addressed as its former self", "L1",
     "messages go over the link, which has a new epoch"),
    ("last-chunk-arrives-first", "completion is tested at the last chunk only", "L1", "completion is a mask of chunks"),
    ("whole-chunk-retry", "a retry writes again where it had succeeded", "S2", "the send is one (chunk, decode rank)"),
    ("retry-into-reused-grant", "a retry writes into a region that another room has by now", "S1",
     "one row posts a staged write, and none leads back to it"),
    ("break-on-first-not-ready", "one part that is not ready stops those behind it", "L3",
     "every send waits by itself"),
    ("late-request-after-scatter", "a request after the scatter gets a new region", "L2", "`in_place` recognises it"),
    ("count-not-set", "a repeated notification counts twice", "S3", "the fan-in is a set (`arrived`)"),
    ("staging-on-one-side", "a peer without staging is asked to stage", "S10",
     "every request has an answer; what has no row is refused"),
    ("request-during-teardown", "a request during teardown stops a thread", "S10",
     "every pair of state and event has a row (lint)"),
    ("prefetch-with-partial-peers", "regions are asked of the peers known by then, and never of the others", "L1",
     "`AWAIT_PEERS` comes before `OPEN`"),
    ("one-room-blacklists-peer", "one large chunk spoils other rooms of the peer", "S9",
     "a refusal concerns one chunk"),
    ("error-kills-worker", "a transport error ends a worker, and nobody is told", "S10 L1",
     "errors are events with rows"),
    ("success-before-all-chunks", "success is told while a chunk is deferred", "S5",
     "`last_chunk`, `last_send` look at all of them"),
    ("abort-ignored-after-success", "an abort after an early success is ignored while a write is to come", "S1 S4",
     "success is told only after every confirmation"),
    ("prefill-abort-silent", "prefill gives up and tells nobody", "L1", "`DRAINED` is told and repeated until noted"),
    ("decode-death-unnoticed", "decode dies and prefill waits for ever", "L1",
     "heartbeats; every waiting state has a timer"),
    ("room-id-reuse", "a chunk of an old room is sent for a new one of the same id", "S1 S12",
     "the generation is part of every key"),
    ("padding-means-done", "a hole in a list reads as done", "S5", "`done` has a bit for each chunk that landed"),
    ("abort-before-room", "an abort that comes before the room is forgotten", "S4",
     "`UNKNOWN` remembers it as a tombstone"),
    ("blocked-by-dead-peer", "a full queue to a dead peer blocks the scheduler", "L4",
     "sending never blocks; timers repeat"),
    ("unbounded-index", "a number from the wire sizes an allocation", "S10", "every field of every message has bounds"),
    ("orphan-metadata", "what is kept for rooms that never open piles up", "S8",
     "`engine` timer; a bound on such rooms"),
    ("duplicate-room", "a second room of a live id merges with the first", "S6 S10",
     "refused: a new attempt needs a new gen"),
    ("late-write-after-abort", "pages are used again while a write is in flight", "S4",
     "`DRAINING`; `released` is told after it"),
    ("ack-by-room-only", "one abort's answer is taken for another's", "L1", "answers carry epoch, room and generation"),
    ("failure-not-told", "one side fails and the other waits for its timeout", "L1",
     "`DRAINED` and `ABORT` carry the cause"),
    ("total-handlers", "an unexpected message meets an assertion", "S10",
     "every pair has a row, or is refused by name"),
    ("shared-socket", "several threads write to one socket", "S10", "one loop owns all sockets"),
    ("read-before-produced", "the gather reads what is not yet computed", "S12", "`AWAIT_KV` comes before `GATHERING`"),
    ("capacity-inversion", "prefill's memory and decode's ring wait for each other", "L5",
     "waiting is bounded and ends in the pages, which need no ring"),
    ("slot-reuse", "an aux row is used again before its write has landed", "S1",
     "the row travels in a message of its own"),
    ("scatter-after-release", "a scatter writes into pages that were given back", "S4",
     "`SETTLING` waits for grants, scatters among them"),
    ("deferral-taxes-ready", "what is deferred delays what is ready", "L4", "nothing is polled: what waits is told"),
    ("kv-asymmetric-heads", "V is taken to have K's head size", "S12", "K and V have sizes of their own in the layout"),
    ("non-integer-ratio", "a ratio that does not divide is cut off", "S12",
     "every pair that can be cut is cut; the rest is refused by name"),
    ("foreign-room",
     "a rank of another group, with the same number, speaks for a room to which it is no party", "S1 S9",
     "the routes ask for the sender's group (`SenderIs`) before any machine is asked"),
    ("collision-kills",
     "a group that opens an id in use ends, by its refusal or its abort, the room that is there", "S9",
     "an outsider's OPEN and ABORT are answered by a route; the room does not hear them"),
    ("slot-overtaken",
     "a send ends before it hears of the slot that it was just given, which is nobody's then", "S8 L2",
     "what a machine is given it hears before anything else"),
    ("zero-is-agreed", "a notification that names no grant counts for one that is yet to be made", "S3",
     "`came_by_pages`: while the region is awaited, only from who has given it up"),
    ("beats-behind-bulk", "signs of life queue behind requests, and load alone makes links count as lost", "L1 S9",
     "any message of the epoch is a sign of life (`heard`); a link's own messages go first"),
    ("repeats-without-backoff", "who waits his turn repeats himself at one pace, and the queue fills with copies", "L4",
     "requests are answered at once (`STAGING_QUEUED`), are bounded in number, and timers back off"),
    ("dear-fallback",
     "who has waited for a while takes a route that costs many times as much, and all others wait longer", "L1",
     "while the watermark rises nobody is late (`moves`); `AWAIT_PERMIT` bounds those that write page to page"),
    ("meaning-unversioned", "two builds of one wire version mean different things by what no message says", "S10 L1",
     "each such agreement has a version that both ends compare; kept results show when the code behind it changes"),
    ("early-answer-kept-aside",
     "an answer that comes before its write was seen to end is handled beside the tables", "S10",
     "a row of `WRITING`; the send remembers it (`have_ack`)"),
    ("stranger-to-library",
     "what a stranger says of its memory ends the process inside a library that parses it", "S10",
     "descriptions have a sum and a form, and are read field by field before a library sees them"),
    ("dead-link-costs", "who left for good is called for ever, and costs memory and time", "L4 S8",
     "`forget`, `welcome` and `return` end; what no room needs is `FORGOTTEN`; links are bounded"),
    ("old-link-wins",
     "a new address is not heard while the old link counts as up, whose end takes the new one down", "L1 S9",
     "`try_beside`: the new address is tried beside the link, and a later incarnation that answers there takes over"),
    ("dead-address-displaces",
     "an address that somebody has made up takes the place of a link that is up, and is called for ever", "L1 S9",
     "`takes_over`: a link gives way to a later incarnation's answer alone; `tried_long`: a trial ends"),
    ("doubt-without-cause",
     "pages of a room are held for lease and write although the rank that died was told nothing", "L1",
     "doubt is of those alone that were told where to write (`untold`)"),
    ("first-come-owner", "whoever opens a room id first is sent its KV", "S9",
     "the prefill engine says for whom a room is (`claimed_by_another`), and a secret proves it"),
    ("prefetch-starves-ready",
     "a region that is granted before its KV is computed stands empty, and what is ready waits behind it", "S9 L3",
     "`AWAIT_KV` comes before `AWAIT_CREDIT`; a region is reserved when every writer has asked (`AWAIT_WRITERS`)"),
    ("share-starves-oldest",
     "a room's later chunks use up its share of the ring, and its oldest chunk waits for it", "S13 L1",
     "of one room the first chunk that waits is served first (`SpaceQueue.is_first`)"),
    ("unclaimed-cache", "a cache of the model that nobody registers stays behind: wrong tokens", "S12",
     "adapters take all that the engine registers, or refuse by name what they cannot carry"),
    ("event-of-former-kv", "KV that is computed after a withdrawal is read after the event of before", "S12",
     "a withdrawal keeps only what all layers have, in the events and in the room's count alike"),
    ("table-read-early", "a prepared copy reads the page table before its pages are known, or replaced", "S12",
     "a launch reads the page table, its preparation does not"),
    ("conv-as-interval",
     "a convolution's state of several segments is cut as one interval where the two sides have other ranks", "S12",
     "a segment is a part of its own, cut by its own heads or groups, and an engine gives a view for each"),
    ("state-on-full-hit", "a room whose tokens are all in the decode rank's pages is over without its state", "S5",
     "chunks of state are chunks of the room like the others, behind those of its tokens, however many these are"),
)  # fmt: skip
HAZARDS: tuple[Hazard, ...] = tuple(Hazard(name, text, tuple(breaks.split()), by) for name, text, breaks, by in _ROWS)


def properties_md() -> str:
    return table_md(("", "property", "excludes"), [
        (p.name, p.text, ", ".join(f"`{h.name}`" for h in HAZARDS if p.name in h.breaks)) for p in PROPERTIES
    ])  # fmt: skip


def hazards_md() -> str:
    return table_md(("hazard", "what would go wrong", "breaks", "what prevents it"), [
        (f"`{h.name}`", h.text, ", ".join(h.breaks), h.prevented) for h in HAZARDS
    ])  # fmt: skip
