"""Guards that no proof misses, and why: a part of the name, `table: STATE Event [guard]`, and the reason.

All of them serve something that is not proved here: that what waits goes on (L1 to L5), what a route costs, what the
engine is told and when, how soon a link is known to be lost.  Safety holds without them.
"""

from __future__ import annotations

PATIENCE = "how often something is asked again before it is given up, and when (L1): nothing is written sooner or later"
CHEAPER = "which way a part travels, and when it changes to the other one: each is safe by itself"
EARLY = "given up before a slot or a permit is taken for it; the lease is asked again before every post"
WORDS = "a word is said once more, or one fewer: the other side takes it as often as it comes"
ENGINE = "what the engine wants of a link: whether it is called, left or kept"
KINDLY = "who is told, and what: nothing is given to anybody for it"
LATE = "an answer to an older call; the call is repeated"

UNBROKEN: dict[str, str] = {
    "FILLING_PAGES StagingRequested [not_a_writer]": KINDLY,
    "CallAsked [same_address]": ENGINE,
    "RefusalReceived [same_call]": LATE,
    "HelloReceived [same_session]": LATE,
    "HelloReceived [elsewhere]": KINDLY,
    "HeartbeatReceived [same_epoch]": KINDLY,
    "[tries_left]": PATIENCE,
    "SlotTaken [lease_holds]": EARLY,
    "PagesGranted [produced]": CHEAPER,
    "SendOpened [aux_ready]": CHEAPER,
    "ChunkAcked [tells]": WORDS,
    "WriteCompleted [tells]": WORDS,
}


def reason(name: str) -> str:
    """Why no proof misses this guard; "": nobody has said."""
    return next((why for part, why in UNBROKEN.items() if part in name), "")
