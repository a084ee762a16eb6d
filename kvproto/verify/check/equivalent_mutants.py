"""Survivors of the gate that are harmless, and why: a part of the name that tells them, and the reason.

A name is `table: STATE Event [guard] - what was taken away`.  The first part that fits gives the reason.
"""

from __future__ import annotations

DELAY = "it is said again by a timer, or asked for again by the other side: it comes later"
WORLDS = "not in these worlds: one group a side, and what does not fit is refused by the prefill rank first"
ENGINE = "only the engine hears of it; no room depends on it"

#: messages that a timer, or the other side's timer, says again
AGAIN = (
    "say_refusal", "raise_up",
    "say_opened", "say_drained", "tell_drained", "say_noted", "tell_open", "tell_one_open", "tell_abort",
    "tell_one_abort", "say_abort", "ask_pages", "ask_grant", "notify", "send_aux", "confirm", "say_in_place",
    "say_aux_landed", "say_hello", "say_welcome", "tell_grant", "say_grant", "say_pages", "tell_denied", "say_denied",
    "tell_watermark", "say_watermark", "ask_watermark", "ask_open",
)  # fmt: skip
#: guards about sides that do not agree
FOREIGN = ("same_call_misfit",)

LATER = "the link ends, or comes up, by its next call or its timer instead: it comes later"
SAME = "what it would set is set: the rows behind it change nothing, and say the same once more"
AGREED = "beats of a link on which both ends agree are not in these worlds"
STRANGER = "in these worlds nobody fits first and then does not, and decode ranks of one group agree"

ORDER = "calls of one link come in their order in these worlds"
EARLIER = "lease and write pass instead: the pages come back later"

ONE_LOOP = "not in these worlds: what ends while the transport is being asked, in one pass of the loop; tests have it"
ONE_GONE = "not in these worlds: one writer gone for good, another with several regions that fail"

AGAIN_OPEN = "in these worlds no id is used again whose tombstone is forgotten: engines that do it are tests"
BROKEN = "in these worlds no library answers what it was not asked: misbehaving ones are tests"
PLACES = (
    "links are numbers in these worlds, and have no places, wires or connections: simulated worlds and sockets have"
)
GROWN = "no group comes back with more ranks in these worlds: misbehaving groups are tests"
SLOWER = "the chunk goes over pages instead: slower"
CALLED = "in these worlds a link is called once, at its one address: tests of the endpoints call again"
LEFT = "in these worlds a group is let go of only while its link is up, and no room opens afterwards: tests do it"
CLAIMS = "in these worlds one group opens a room, of which the engine then names another secret: tests have the orders"

HARMLESS: dict[str, str] = {
    "[not_a_writer] - ": "in these worlds only writers ask: misbehaving ranks are tests, and proofs miss it",
    "EngineOpened [ended_for_another] - row": CLAIMS,
    "TimerFired [unneeded] - row": LEFT,
    "DisconnectAsked - raise_left": LEFT,
    "CallAsked [wanted_again] - row": LEFT,
    "OpenAsked [left] - ": LEFT,
    "NEW OpenAsked - refuse_room": LEFT,
    **{f"{event} [last_flies] - ": ONE_LOOP for event in ("BatchDeferred", "BatchRefused")},
    **{
        f"IN_FLIGHT {event} - drop": "all of it is posted: nothing is left that could be dropped"
        for event in (
            "BatchFailed [settled]",
            "BatchFailed [last_settled]",
            "BatchFailed",
            "WriteStopped",
        )
    },
    "- bind": PLACES,
    "- drop_wire": PLACES,
    "- dial": PLACES,
    "- announce_undialled": ENGINE,
    "TimerFired - forget": PLACES,
    "HelloReceived [elsewhere] - row": PLACES,
    "CallAsked [same_address] - row": CALLED,
    "CallAsked - raise_down": CALLED,
    "NEW OpenAsked - row": CALLED,
    "NEW QuietAsked - row": CALLED,
    "AWAIT_WATERMARK TimerFired [patient] - row": SLOWER,
    **{
        f"decode_room: {name} - row": GROWN
        for name in (
            "OPEN LinkCameUp",
            "ABORTED LinkWentDown",
            "OPEN PeerQuiet",
        )
    },
    "SCATTERING SpaceUsable - row": BROKEN,
    "WatermarkReached - row": AGAIN_OPEN,
    "prefill_send: NEW WriteFailed - row": BROKEN,
    "HelloReceived [earlier] - row": ORDER,
    "HelloReceived - connect": LATER,
    "UP ResetReceived [same_epoch] - raise_down": "the decode rank has ended its rooms, and says so on the next link",
    "TimerFired [busy] - row": "in these worlds a link is forgotten only when nothing of it is in flight",
    "DRAINING LinkWentDown - ": EARLIER,
    "AWAIT_RETURN QuietAsked [untold] - ": EARLIER,
    "AWAIT_PEERS RoomFailed - ": ONE_GONE,
    "- count_quiet": "the abort that is told with it is answered, and that is counted",
    "PeerDrained [no_cause] - row": "a refusal: nobody says it who keeps to the protocol",
    "AWAIT_ENGINE PeerOpened [disagrees]": STRANGER,
    **{f"{state} HelloReceived [misfit]": STRANGER for state in ("AWAIT_WIRE_UP", "UP", "LOST")},
    "decode_link: REFUSED": "a refused link is called again only by its engine, which these worlds' engines do not do",
    "StagingRequested [gave_up] - row": "who gave the region up waits for pages, and ignores what it hears of regions",
    "FILLING PagesRequested [last_gives_up] - row": "the region is kept until the chunk is in its pages: freed later",
    "FILLING SpaceUsable - row": "the watermark is pulled as well: it comes later",
    "PartArrived [there] - row": SAME,
    "PagesRequested [there] - row": SAME,
    "RefusalReceived [same_call]": LATER,
    "RefusalReceived [news]": LATER,
    "AWAIT_RETURN WelcomeReceived [same_call] - row": LATER,
    "ResetReceived [same_epoch] - row": LATER,
    "- raise_quiet": "the prefill rank says itself that its rooms have drained, when the link is up",
    "HeartbeatReceived [same_epoch] - row": AGREED,
    "TimerFired [heard]": AGREED,
    "- say_reset": "the other end's own silence ends its link: it comes later",
    **{f"[{guard}]": WORLDS for guard in FOREIGN},
    "LinkWentDown [known] - row": "the decode rank loses the link too, ends the room, and says so on the next one",
    "AWAIT_GRANT TimerFired [patient] - row": "the ring is given up at the first end of the timer, not the last",
    "AWAIT_PAGES_KV KvProduced [lease_holds] - row": "the pages are asked for once more: a round trip",
    "- fail_silent": "who does not answer at all loses the link, and the room with it",
    "WireFailed [same_session]": "the wire's own timer, or the next session, ends it: it comes later",
    **dict.fromkeys((
        "- say_gone", "PeerForgot", "UNKNOWN ChunkNotified", "UNKNOWN AuxLanded", "[asks_after]", "[unheard_of]",
        "[aborted_unheard_of]", "SendsStopped [unowned]",
    ), "tombstones are not forgotten in these worlds: they are in deep ones, and in a timed one"),
    "- announce_up": ENGINE,
    "- announce_lost": ENGINE,
    "- announce_refused": ENGINE,
    "- say_over": "the other end's own silence ends the link: it comes later",
    "- forget": "the connection's own: what comes over it finds no link",
    "- disconnect": "the transport's own; the model of a link has no connections to take down",
    **{f"- {message}": DELAY for message in AGAIN},
}
