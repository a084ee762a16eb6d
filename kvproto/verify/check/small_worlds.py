"""Small worlds, by name: each with one kind of trouble, or one thing that has to be seen.

They find most.  Where writes may carry their notification, or may take time to make ready, is another world.
"""

from __future__ import annotations

from kvproto.verify.check.config import Budget, Config

#: the engine in one go, and in two
AT_ONCE = ("open+schedule+finish+aux",)
IN_TWO = ("open+schedule", "finish+aux")
PAGES = ("a part that goes over pages", "a send that gave the ring up")

SMALL: dict[str, Config] = {
    # ------------------------------------------------------------------- one rank a side, one kind of trouble each
    "smoke": Config(ring=1, about="one room, two chunks, a ring for one"),
    "roomy": Config(
        ring=4, slots=2, patient=True, never=PAGES, must=("chunks of one room out of order",),
        about="a ring for all: nothing may go over pages",
    ),
    "patient": Config(
        ring=1, patient=True, must=("a promise that waits for the watermark",), about="the ring alone gets there"
    ),
    "wait": Config(
        ring=1, ahead=0, chunks=3, window=3, patient=True, engine=IN_TWO,
        must=("a chunk that waits for space", "a send that waits its turn"), about="promises end with the ring",
    ),
    "turn": Config(
        ring=1, ahead=0, engine=("open+schedule", "finish+aux"), budget=Budget(duplicate=1, abort=1),
        must=("a send that waits its turn", "a send that gave the ring up"),
        about="who waits its turn gives up, or is stopped",
    ),
    "credit": Config(
        requests=1, rooms=2, chunks=1, ring=2, engine=AT_ONCE, budget=Budget(drop=1),
        must=("a send that waits for a credit",), about="one request at a time, and any one message is lost",
    ),
    "credit-abort": Config(
        requests=1, ring=1, ahead=0, budget=Budget(abort=1, early=1),
        must=("a send that waits for a credit", "a send that waits its turn"), about="rooms end while they wait to ask",
    ),
    "credit-fan-in": Config(
        prefills=2, rooms=2, chunks=1, ring=2, ahead=0, requests=1, engine=AT_ONCE, patient=True, swift=True,
        must=("a send that waits for a credit", "a send that waits its turn"),
        about="two writers ask in different orders, one request at a time",
    ),
    "permit": Config(
        route="pages", page_writes=1, engine=("open+schedule", "finish+aux"), budget=Budget(abort=1, timeout=1),
        must=("a send that waits for a permit",), about="one send at a time writes page to page",
    ),
    "permit-late": Config(
        route="pages", page_writes=1, engine=AT_ONCE, budget=Budget(late=1, write=1),
        must=("a send that waits for a permit",), about="pages are named long before they may be written",
    ),
    "turn-permit": Config(
        ring=1, ahead=0, chunks=3, window=3, page_writes=1, engine=AT_ONCE, budget=Budget(early=1),
        must=("a send that waits its turn", "a send that gave the ring up"),
        about="nobody leaves the ring while none may write",
    ),
    "wait-early": Config(ring=1, ahead=0, budget=Budget(early=1), about="a chunk waits for space; its writer gives up"),
    "wait-abort": Config(ring=1, ahead=0, budget=Budget(abort=1), about="a chunk waits for space, and its room ends"),
    "window": Config(
        ring=1, chunks=3, window=1, engine=("open+schedule", "produce", "aux", "produce", "finish"),
        about="a window that slides, and an aux row before the last chunk",
    ),
    "two-slots": Config(ring=2, slots=2, must=("a write and a gather at once",), about="chunks overtake each other"),
    "one-slot": Config(ring=2, must=("a send that waits for a slot",), about="chunks queue for the one slot"),
    "queue": Config(ring=2, budget=Budget(timeout=1, late=1), about="leases end while chunks queue for a slot"),
    "slow-engine": Config(
        ring=1, chunks=1, engine=("open", "schedule", "finish+aux"), budget=Budget(abort=1, link=1),
        about="the engine takes its time to schedule",
    ),
    "late-engine": Config(
        ring=1, chunks=1, engine=("open", "schedule", "finish+aux"), budget=Budget(timeout=1),
        about="the engine takes too long to schedule",
    ),
    "eager-engine": Config(ring=1, chunks=1, engine=("open", "finish", "aux"), about="nobody says schedule"),
    "aux-first": Config(ring=1, chunks=1, engine=("open", "aux", "finish"), about="the aux row comes before the KV"),
    "drop": Config(ring=1, patient=True, budget=Budget(drop=1), about="any one message is lost"),
    "duplicate": Config(ring=1, budget=Budget(duplicate=1), about="any one message comes twice"),
    "early": Config(ring=1, slots=2, budget=Budget(early=1), about="one timer ends early"),
    "late": Config(
        ring=1, budget=Budget(late=1, link=1, timeout=1), must=("a lease that is over",),
        about="leases end before writes",
    ),
    "abort": Config(ring=1, budget=Budget(abort=1), must=("a region in quarantine",), about="either engine gives up"),
    "abort-timeout": Config(
        ring=1, chunks=1, budget=Budget(abort=1, timeout=1), about="an engine gives up, and a long timer ends"
    ),
    "late-answer": Config(ring=1, budget=Budget(late=1), about="what a lease is given for comes when it is over"),
    "aborts": Config(ring=1, budget=Budget(abort=2), about="both engines give up"),
    "writes": Config(ring=1, budget=Budget(write=1, abort=1), about="a write fails"),
    "doubt": Config(
        ring=1, budget=Budget(doubt=1, link=1), must=("a write in doubt",), about="a write is in doubt, a link is lost"
    ),
    "kernel": Config(ring=1, budget=Budget(kernel=1, abort=1), about="a gather or a scatter fails"),
    "timeout": Config(ring=1, budget=Budget(timeout=1), about="one long timer ends for no reason"),
    "link": Config(ring=1, budget=Budget(link=2), about="links are lost, and come back"),
    "handshake": Config(ring=1, wired=False, budget=Budget(drop=1, early=1), chunks=1, about="how a link comes up"),
    "abort-handshake": Config(
        ring=1, wired=False, chunks=1, engine=AT_ONCE, budget=Budget(abort=1, early=1),
        must=("a room that is over before its link is up",),
        about="an engine gives a room up before the link is up, and the other one opens it afterwards",
    ),
    "other-version": Config(
        ring=1, chunks=1, wired=False, engine=AT_ONCE, misfit="version", budget=Budget(crash=1, drop=1),
        about="a rank that speaks no common wire version is refused, and comes back with one",
    ),
    "newer-build": Config(
        ring=1, chunks=1, wired=False, engine=AT_ONCE, newer=True, budget=Budget(crash=1, drop=1),
        about="a rank of a newer build works with ours, and comes back as ours",
    ),
    "other-length": Config(
        ring=1, chunks=1, engine=AT_ONCE, misfit="length", budget=Budget(drop=1), about="the engines name other lengths"
    ),
    "other-secret": Config(
        ring=1, chunks=1, engine=AT_ONCE, misfit="secret", budget=Budget(duplicate=1, abort=1),
        about="the decode engine does not know the secret of the room",
    ),
    "other-secret-lost": Config(
        ring=1, chunks=1, engine=AT_ONCE, misfit="secret", budget=Budget(drop=1, duplicate=1),
        about="nor does it, and what it is told of that may be lost",
    ),
    "death": Config(ring=1, restart=False, budget=Budget(crash=1), about="a rank dies for good"),
    "fan-in-death": Config(
        prefills=2, chunks=1, restart=False, swift=True, engine=IN_TWO, budget=Budget(crash=2, early=1),
        must=("pages that are given back although a link is lost",), about="writers die for good",
    ),
    "death-two": Config(
        ring=1, rooms=2, chunks=1, engine=AT_ONCE, swift=True, restart=False, budget=Budget(crash=1),
        about="a rank dies for good while two rooms are under way",
    ),
    "death-abort": Config(
        ring=1, chunks=1, engine=AT_ONCE, restart=False, budget=Budget(crash=1, abort=1),
        about="a rank dies for good, and the other engine gives up",
    ),
    "restart": Config(
        ring=1, budget=Budget(crash=2), must=("a stranger's heartbeat that is answered",),
        about="ranks die and start anew",
    ),
    "refuse": Config(
        ring=1, chunks=1, budget=Budget(refuse=1, drop=1), must=("a room that is ended before its engine opens it",),
        about="the prefill engine says no to a room, before or after it is opened",
    ),
    "refuse-abort": Config(
        ring=1, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(refuse=2, abort=1, duplicate=1),
        about="both engines say no, the prefill engine twice",
    ),
    "fan-in-refuse": Config(
        prefills=2, chunks=1, engine=AT_ONCE, budget=Budget(refuse=1), about="one of two writers is told no"
    ),
    "announce": Config(
        ring=1, chunks=1, announce=True, engine=("open", "schedule", "finish+aux"),
        budget=Budget(abort=1, refuse=1, drop=1), must=("a room that is announced once more",),
        about="the decode engine says that it will open a room",
    ),
    "announce-unordered": Config(
        ring=1, chunks=1, announce=True, net="unordered", engine=AT_ONCE, budget=Budget(abort=1, duplicate=1),
        about="it says so, and messages overtake each other",
    ),
    "fan-out-announce": Config(
        decodes=2, chunks=1, announce=True, engine=AT_ONCE, swift=True, budget=Budget(refuse=1, abort=1),
        about="one of two says so",
    ),
    "withdraw": Config(
        ring=2, engine=("open+schedule", "finish", "withdraw", "withdrawn", "finish+aux"), budget=Budget(early=1),
        must=("KV that is taken back",), about="the prefill engine takes the KV back, and computes it once more",
    ),
    "withdraw-closed": Config(
        ring=1, chunks=1, route="staged", budget=Budget(late=1),
        engine=("open+schedule+finish", "withdraw", "withdrawn", "finish+aux"),
        must=("KV that is taken back", "success here"), never=PAGES,
        about="there is no way over pages: it takes the KV back, and the ring is asked for once more",
    ),
    "withdraw-closed-fan-in": Config(
        prefills=2, chunks=1, route="staged", swift=True,
        engine=("open+schedule+finish", "withdraw", "withdrawn", "finish+aux"),
        must=("KV that is taken back", "success here"), never=PAGES,
        about="nor is there for two writers, of which one may have written its part",
    ),
    "withdraw-pages": Config(
        chunks=1, route="pages", pieces=2, batches=2, preparing=True, budget=Budget(abort=1, late=1),
        engine=("open+schedule+finish", "withdraw", "withdrawn", "finish+aux"),
        must=("KV that is taken back",), about="it takes the KV back while its pages are written",
    ),
    "reuse": Config(lives=2, chunks=1, budget=Budget(abort=1), about="a room's id is used again"),
    "unordered": Config(
        net="unordered", chunks=1, budget=Budget(early=1, duplicate=1), about="messages overtake each other"
    ),
    "unordered-link": Config(
        ring=1, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(link=1),
        about="messages overtake each other, and a link comes back before what was said on it",
    ),
    "unordered-abort": Config(
        net="unordered", budget=Budget(abort=1), about="messages overtake each other, engines give up"
    ),
    "unordered-pages": Config(
        route="pages", chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(link=1, early=1),
        about="frames and notes of stored parts overtake each other, and the link is lost",
    ),
    "unordered-pages-doubt": Config(
        route="pages", chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(write=1, doubt=1, duplicate=1),
        about="and a write fails, perhaps in doubt",
    ),
    "leave": Config(ring=1, budget=Budget(leave=1), about="the decode engine lets go of the prefill group"),
    "address": Config(
        ring=1, chunks=1, engine=AT_ONCE, budget=Budget(address=1), must=("success here",), never=("failure here",),
        about="the decode engine is made to name an address where nobody is",
    ),
    "address-link": Config(
        ring=1, chunks=1, engine=AT_ONCE, budget=Budget(address=1, link=1), about="it is, and a link is lost"
    ),
    "leave-link": Config(
        ring=1, chunks=1, engine=AT_ONCE, budget=Budget(leave=1, link=1), about="it lets go, and a link is lost"
    ),
    "close": Config(
        ring=1, chunks=1, engine=IN_TWO, budget=Budget(close=1), must=("a goodbye while a write is in flight",),
        about="a rank is closed in good order",
    ),
    "close-drop": Config(
        ring=1, chunks=1, engine=AT_ONCE, budget=Budget(close=1, drop=1),
        about="and any message, the goodbye among them, is lost",
    ),
    "close-unordered": Config(
        chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(close=1, duplicate=1),
        about="and what was said before comes after the goodbye, or twice",
    ),
    "close-unordered-link": Config(
        ring=1, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(close=1, link=1),
        about="a goodbye of the lost link comes when it is up again",
    ),
    "close-handshake": Config(
        ring=1, chunks=1, engine=AT_ONCE, wired=False, budget=Budget(close=1), must=("a call that is taken back",),
        about="a rank is closed while the first call is answered",
    ),
    "close-crash": Config(
        ring=1, chunks=1, engine=AT_ONCE, budget=Budget(close=1, crash=1), about="and its process ends, and begins anew"
    ),
    "leave-unordered": Config(
        chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(leave=1, duplicate=1),
        about="it lets go, and what is said comes twice, in any order",
    ),
    "abort-link": Config(
        ring=1, chunks=1, engine=AT_ONCE, budget=Budget(abort=1, link=1), about="an engine gives up, a link is lost"
    ),
    "kernel-duplicate": Config(
        ring=1, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(kernel=1, duplicate=1),
        about="messages that come when their room has failed",
    ),
    "kernel-timeout": Config(
        ring=1, chunks=1, engine=AT_ONCE, budget=Budget(kernel=1, timeout=1), about="the end of a room is never noted"
    ),
    "slow-duplicate": Config(
        ring=1, chunks=1, engine=("open", "schedule", "finish+aux"), budget=Budget(duplicate=1),
        about="the engine takes its time, and a message comes twice",
    ),
    "prepare": Config(
        ring=1, preparing=True, budget=Budget(write=1, abort=1), about="writes take time to make ready, and may fail"
    ),
    "prepare-late": Config(
        ring=1, preparing=True, budget=Budget(late=1, link=1, timeout=1), must=("a lease that is over",),
        about="leases end while writes are made ready",
    ),
    "prepare-pages": Config(
        chunks=1, route="pages", preparing=True, budget=Budget(write=1, abort=1, late=1),
        about="nothing is staged, and writes take time to make ready",
    ),
    "batches": Config(
        chunks=1, route="pages", pieces=3, batches=3, engine=AT_ONCE, budget=Budget(write=2, abort=1),
        about="writes of three batches, of which some fail",
    ),
    "batches-doubt": Config(
        chunks=1, route="pages", pieces=2, batches=2, engine=AT_ONCE, budget=Budget(doubt=2, write=1, link=1),
        must=("a write in doubt",), about="writes of two batches, of which one is in doubt",
    ),
    "batches-prepare": Config(
        chunks=1, route="pages", pieces=3, batches=3, preparing=True, engine=AT_ONCE,
        budget=Budget(write=1, doubt=1, late=1, timeout=1),
        about="three batches that take time to make ready, of which some are given up",
    ),
    "pages": Config(route="pages", budget=Budget(abort=1, drop=1), must=PAGES[:1], about="nothing is staged"),
    "even": Config(
        ring=4, slots=2, alike=True, patient=True, never=PAGES, must=("a write and a gather at once",),
        about="both sides are cut alike, and the ring is no more expensive than pages",
    ),
    "dear-ring": Config(
        ring=4, alike=True, costs="dear ring", budget=Budget(abort=1), must=PAGES[:1],
        never=("a send that waits for the watermark", "a write and a gather at once"),
        about="both sides are cut alike, and pages are cheaper than the ring",
    ),
    "dear-pages": Config(
        ring=1, ahead=0, costs="dear pages", engine=IN_TWO, budget=Budget(early=1, duplicate=1),
        must=("a send that waits its turn",), never=PAGES,
        about="pages are more expensive than waiting: nobody leaves the ring while it is not used up",
    ),
    "dear-pages-late": Config(
        ring=1, ahead=0, costs="dear pages", engine=IN_TWO, budget=Budget(early=1, late=1),
        must=("a send that waits its turn", "a send that gave the ring up"),
        about="a wait that was as dear as pages ends over them",
    ),
    "prefix": Config(prefix=2, about="the decode side has a page already"),
    "full-hit": Config(prefix=2, chunks=0, must=("a full prefix hit that succeeds",), about="only the aux row moves"),
    "odd-sizes": Config(
        pieces=3, short=1, lives=2, ring=4, window=1, patient=True, must=("a ring that wraps",),
        about="regions of two sizes, pieces that land in any order",
    ),
    "two-groups": Config(
        layers=3, layer_groups=2, window=3, ring=3, patient=True, engine=AT_ONCE,
        must=("a chunk that waits for space",),
        about="two layer groups of unequal size, a ring for one cell, and no way around it",
    ),
    "two-groups-pages": Config(
        layers=3, layer_groups=2, window=3, ring=3, engine=AT_ONCE, must=("a chunk that waits for space", *PAGES),
        about="and sends that give the ring up",
    ),
    "state": Config(
        state=(0,), chunks=2, ring=1, window=3, budget=Budget(early=1),
        about="a chunk of state behind two of tokens, and sends that are asked too early",
    ),
    "state-hit": Config(
        state=(0, 1), layers=2, full=(0,), prefix=2, chunks=0, must=("a full prefix hit that succeeds",),
        budget=Budget(drop=1), about="a full prefix hit: two chunks of state move",
    ),
    "state-abort": Config(
        state=(0,), chunks=1, ring=1, budget=Budget(abort=1),
        about="either engine gives up, between the last token and the state, too",
    ),
    "state-withdraw": Config(
        state=(0,), chunks=1, ring=1, engine=("open+schedule+finish", "withdraw", "withdrawn", "finish+aux"),
        budget=Budget(late=1, early=1), must=("KV that is taken back", "success here"),
        about="the forward is preempted before the state has left, or after",
    ),
    "state-two-rooms": Config(
        state=(0,), chunks=1, rooms=2, ring=1, engine=AT_ONCE, about="two rooms with state, and a ring for one chunk",
    ),
    "state-open": Config(
        state=(0,), open_end=True, chunks=1, ring=1, costs="dear ring", budget=Budget(late=1, abort=1),
        must=PAGES, about="state goes into the slot, and either engine gives up",
    ),
    "state-open-withdraw": Config(
        state=(0,), open_end=True, chunks=1, ring=1,
        engine=("open+schedule+finish", "withdraw", "withdrawn", "finish+aux"), budget=Budget(early=1, write=1),
        must=("KV that is taken back", "success here", *PAGES),
        about="the forward is preempted, or a staged write fails, and the state goes into the slot",
    ),
    "state-open-fan-in": Config(
        state=(0,), open_end=True, prefills=2, chunks=0, prefix=1, ring=2, engine=AT_ONCE,
        budget=Budget(early=1, write=1),
        must=PAGES, about="one writer of the state gives the ring up, and the other one has its region",
    ),
    "state-closed-fan-in": Config(
        state=(0,), open_end=True, closed_ends=(1,), prefills=2, chunks=0, prefix=1, ring=2, costs="dear ring",
        engine=AT_ONCE, budget=Budget(early=1, abort=1), must=("a part that goes over pages", "success here"),
        about="one writer of the state asks for the slot at once, and for the other one there is no way there",
    ),
    "joint": Config(
        state=(2,), full=(0, 1), layers=3, joint=True, short=1, chunks=2, ring=6, window=2, budget=Budget(early=1),
        about="a chunk of tokens, and one of the last token and the state",
    ),
    "joint-withdraw": Config(
        state=(2,), full=(0, 1), layers=3, joint=True, short=1, chunks=1, ring=6,
        engine=("open+schedule+finish", "withdraw", "withdrawn", "finish+aux"), budget=Budget(early=1),
        must=("KV that is taken back", "success here"),
        about="the forward is preempted before the last token and the state have left, or after",
    ),
    "joint-open": Config(
        state=(2,), full=(0, 1), layers=3, joint=True, short=1, open_end=True, chunks=1, ring=6, costs="dear ring",
        budget=Budget(late=1, abort=1), must=PAGES,
        about="the last token and the state go into pages and slot, and either engine gives up",
    ),
    # ---------------------------------------------------------------------------------- fan-in, fan-out, crowds
    "joint-stages": Config(
        state=(2,), full=(0, 1), layers=2, joint=True, short=1, prefills=2, stages=2, chunks=1, ring=6,
        budget=Budget(abort=1), about="one prefill rank writes the tokens of the last chunk, the other one its state",
    ),
    "state-stages": Config(
        state=(0,), full=(1,), prefills=2, stages=2, chunks=1, budget=Budget(abort=1),
        about="one prefill rank writes state alone, the other one tokens alone",
    ),
    "state-fan-in": Config(
        state=(0,), prefills=2, chunks=1, ring=2, engine=AT_ONCE, budget=Budget(kernel=1),
        about="two writers of each chunk, and a kernel fails",
    ),
    "two-groups-fan-in": Config(
        prefills=2, layers=3, layer_groups=2, window=3, ring=6, patient=True, swift=True, engine=AT_ONCE,
        must=("a chunk that waits for space",), about="two layer groups of unequal size, each of two writers",
    ),
    "fan-in": Config(prefills=2, chunks=1, budget=Budget(early=1), about="two writers a region"),
    "fan-in-patient": Config(prefills=2, chunks=1, patient=True, about="two writers, and no way around the ring"),
    "fan-in-abort": Config(prefills=2, chunks=1, budget=Budget(abort=1), about="two writers, either engine gives up"),
    "fan-in-duplicate": Config(prefills=2, chunks=1, budget=Budget(duplicate=1), about="two writers, a message twice"),
    "fan-in-wait": Config(
        prefills=2, ring=2, ahead=0, engine=AT_ONCE, budget=Budget(early=1),
        about="a chunk waits for space, and one of its writers gives up",
    ),
    "fan-in-unordered": Config(
        prefills=2, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(early=1),
        about="one of two writers gives up, and its request comes late",
    ),
    "fan-in-kernel": Config(
        prefills=2, chunks=1, net="unordered", engine=AT_ONCE, budget=Budget(kernel=1),
        about="a room fails before every writer has heard of it",
    ),
    "fan-in-link": Config(
        prefills=2, chunks=1, engine=AT_ONCE, swift=True, budget=Budget(abort=1, link=1),
        about="a room ends while one of two links is down",
    ),
    "fan-in-leave": Config(
        prefills=2, chunks=1, engine=AT_ONCE, budget=Budget(leave=1), about="it lets go of two writers"
    ),
    "fan-out-kernel": Config(
        decodes=2, chunks=1, engine=AT_ONCE, budget=Budget(kernel=1, link=1), about="a room fails, and a link is lost"
    ),
    "fan-out": Config(decodes=2, chunks=1, budget=Budget(abort=1), about="two readers"),
    "fan-out-link": Config(decodes=2, chunks=1, engine=AT_ONCE, budget=Budget(link=1), about="one of two links"),
    "replica": Config(
        prefills=2, heads=1, chunks=1, budget=Budget(abort=1), must=("a replica that has nothing to write",),
        about="two ranks hold the same head, one writes",
    ),
    "no-ring": Config(prefills=2, chunks=1, ring=1, must=PAGES[:1], about="a chunk that no ring can hold"),
    "heads-of-line": Config(
        prefills=2, rooms=2, chunks=1, ring=2, patient=True, engine=AT_ONCE,
        about="two rooms, in any order at each rank",
    ),
    "memory": Config(
        prefills=2, rooms=2, chunks=1, ring=2, memory=1, engine=IN_TWO, about="the engine can hold one room"
    ),
}  # fmt: skip
