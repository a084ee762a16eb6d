"""Verdicts: the possible outcomes of a room, given its faults.

* A room that nothing happened to succeeds, on every rank that it concerns; so does one whose kernels were only slow,
  and one whose name another group tried to take.
* One in trouble may fail, by the cause of its trouble and by no other.
* One that a fault may have touched may fail, by any cause that a lost peer leads to; also since a kernel took too long,
  if its kernels are slow, or if a clock jumped or a process was stopped while the room was under way: a gather that had
  just been launched is late then, as far as its rank can tell.
* A foreign group that opens a name that is taken does not succeed.
* Whoever is told of a failure is told why.

Success is taken on nobody's word: a decode rank's engine compares every byte (`engine`).
"""

from __future__ import annotations

from collections.abc import Mapping

from kvproto.lab.torture.plan import TortureRoom, Trouble

LOSSES = frozenset({"LINK_LOST", "NO_ANSWER", "NEVER_OPENED", "PEERS_MISSING", "STALLED", "WRITE_FAILED", "FORGOTTEN"})
#: by trouble: the causes that it may have; those that are not here have none
CAUSES: dict[Trouble, frozenset[str]] = {
    "abort-P": frozenset({"PREFILL_ABORTED"}),
    "abort-D": frozenset({"DECODE_ABORTED"}),
    "abort-both": frozenset({"PREFILL_ABORTED", "DECODE_ABORTED"}),
    "absent-P": frozenset({"NEVER_OPENED", "PEERS_MISSING"}),
    "absent-D": frozenset({"PEERS_MISSING", "NEVER_OPENED"}),
    "gather-fails": frozenset({"KERNEL_FAILED"}),
    "scatter-fails": frozenset({"KERNEL_FAILED"}),
    "mismatch": frozenset({"PLAN_MISMATCH"}),
    "intruder": frozenset({"NOT_ENTITLED"}),
}
#: a kernel that takes its time may be found to have taken too long
SLOW: frozenset[Trouble] = frozenset({"gather-slow", "scatter-slow"})
Outcomes = Mapping[str, tuple[str, str]]  #: by rank: cause, and the reason in words


def verdict(room: TortureRoom, outcomes: Outcomes, *, disturbed: bool, timers_ended: bool = False) -> list[str]:
    """Return what is wrong with these outcomes, in words.

    `disturbed`: a fault may have touched the room. `timers_ended`: it was one that moves clocks.
    """
    allowed = {"NONE", *CAUSES.get(room.trouble, frozenset()), *(LOSSES if disturbed else ())}
    allowed |= {"KERNEL_FAILED"} if timers_ended or (disturbed and room.trouble in SLOW) else set()
    found = []
    for name, (cause, reason) in outcomes.items():
        if cause not in allowed:
            found.append(f"{name} says {cause} ({reason}), where only {', '.join(sorted(allowed))} may be")
        elif cause == "NONE" and room.trouble == "intruder":
            found.append(f"{name} says that it succeeded, but the name is another group's")
        if cause != "NONE" and not reason:
            found.append(f"{name} says {cause}, and no reason")
    return found
