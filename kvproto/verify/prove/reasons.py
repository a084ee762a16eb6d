"""Guards that no proof misses, and why: a part of the name, `table: STATE Event [guard]`, and the reason.

All of them serve something that is not proved here: that what waits goes on (L1 to L5), what a route costs, what the
engine is told and when, how soon a link is known to be lost.  Safety holds without them.
"""

from __future__ import annotations

EARLY = "given up before a slot or a permit is taken for it; the lease is asked again before every post"
ENGINE = "what the engine wants of a link: whether it is called, left or kept"
IGNORED = "without it more would be ignored, and what waits for it would end by its timer only; nothing is given for it"
IN_PLACE = "every chunk of such a room is in place: it is always so"
KINDLY = "who is told, and what: nothing is given to anybody for it"
LATE = "an answer to an older call; the call is repeated"
REPORTED = "whether an answer is ignored or reported: it changes nothing either way"
WAITS = "for which of two reasons it waits; either way it holds nothing of the ring"

UNBROKEN: dict[str, str] = {
    "FILLING_PAGES StagingRequested [not_a_writer]": KINDLY,
    "FILLING_PAGES StagingRequested [there]": KINDLY,
    "SCATTERING StagingRequested [not_a_writer]": KINDLY,
    "AWAIT_GRANT StagingDeferred [early]": WAITS,
    "AWAIT_WRITERS StagingDeferred [early]": WAITS,
    "CallAsked [same_address]": ENGINE,
    "RefusalReceived [same_call]": LATE,
    "HelloReceived [same_session]": LATE,
    "HeartbeatReceived [same_epoch]": KINDLY,
    "SlotTaken [lease_holds]": EARLY,
    "PartArrived [told_before]": IGNORED,
    "LinkWentDown [untouched]": IGNORED,
    "AWAIT_AUX ChunkRequested [in_place]": IN_PLACE,
    "StagingDenied [closed]": REPORTED,
}


def reason(name: str) -> str:
    """Why no proof misses this guard; "": nobody has said."""
    return next((why for part, why in UNBROKEN.items() if part in name), "")
