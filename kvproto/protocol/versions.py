"""Versions: what two builds compare when they meet, so that builds of different age work together.

*Wire versions.*  A build speaks all versions from `OLDEST` to `VERSION`.  Two builds work at the highest version that
both speak; where there is none they refuse each other, and the sentence says which side is to be upgraded.  A message
is only extended by fields with defaults at its end, so an older reader passes over them.

*Agreements.*  What messages cannot say and both ends must mean alike: each has a version of its own, and any difference
is refused by name.  One that a peer does not name stands at 1.  A test compares results of the code behind each one
with kept results, and fails when they change and the version does not.

*Capabilities.*  What a peer can do beyond what its wire version demands, by name.  An unknown name is ignored; what a
peer lacks is refused by name at the call that needs it.

Two builds whose tables differ work together: the digest is told, logged and counted, and refuses nobody.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kvproto.fsm.digest import joined
from kvproto.protocol.digest import DIGEST
from kvproto.protocol.messages import OLDEST, VERSION

AGREEMENTS = {
    #: which rank holds which heads, layers and tokens, where parts lie in a region and rows in a pool
    "layout": 1,
    #: how regions are taken and freed, and when one is usable by a watermark
    "ring": 1,
    #: the bytes of a tag that a write carries
    "notification": 1,
    #: how long each side waits before memory is given back, made of lease and writes
    "timers": 1,
    #: which ranks take part in a chunk, and which one sends the aux row
    "fan_in": 1,
    #: how many last tokens are one chunk with the state, and where either lies in it
    "joint": 1,
}
#: the version of an agreement that a peer does not name
UNNAMED = "1"
#: disagreements that a refusal names, and characters of a peer's word in it
NAMED, SHOWN = 4, 40
#: ANNOUNCE is understood: a room whose pages are not there yet is kept
ANNOUNCE = "announce"
#: a tag may bring a room's aux row beside the notes of its parts
AUX_NOTES = "aux_notes"
CAPABILITIES = (ANNOUNCE, AUX_NOTES)


class Build(msgspec.Struct, frozen=True):
    """The words of a build in HELLO and WELCOME: versions, agreements, capabilities and digest."""

    oldest: int = OLDEST
    newest: int = VERSION
    agreements: str = joined({name: str(version) for name, version in AGREEMENTS.items()})
    capabilities: str = " ".join(CAPABILITIES)
    digest: str = DIGEST


def build_of(said: Any) -> Build:
    """The build that speaks in a HELLO or a WELCOME."""
    return Build(said.oldest or said.version, said.version, said.agreements, said.capabilities, said.digest)


def common(own: Build, theirs: Build) -> int:
    """The highest wire version that both speak; 0: there is none."""
    newest = min(own.newest, theirs.newest)
    return newest if newest >= max(own.oldest, theirs.oldest) else 0


def fault(own: Build, theirs: Build, side: str, other_side: str) -> str:
    """Why the two builds cannot work together, and which side is to be upgraded; empty: they can."""
    if theirs.oldest > theirs.newest:
        return f"wire versions {theirs.oldest} to {theirs.newest} of the {other_side} rank are no range"
    if not common(own, theirs):
        older = other_side if theirs.newest < own.oldest else side
        spoken = f"the {other_side} rank speaks {_range(theirs)}, the {side} rank {_range(own)}"
        return f"no common wire version: {spoken}: upgrade the {older} rank"
    said, ours = _versions(theirs.agreements), _versions(own.agreements)
    differ = [name for name in ours | said if said.get(name, UNNAMED) != ours.get(name, UNNAMED)]
    return "; ".join(
        _disagreement(name, said.get(name, UNNAMED), ours.get(name, UNNAMED), side, other_side)
        for name in differ[:NAMED]
    )


def _range(build: Build) -> str:
    return f"{build.oldest} to {build.newest}" if build.oldest < build.newest else str(build.newest)


def _versions(words: str) -> dict[str, str]:
    return {name: version for name, _, version in (word.partition(":") for word in words.split())}


def _disagreement(name: str, said: str, ours: str, side: str, other_side: str) -> str:
    about = (
        f"the agreement {name[:SHOWN]} has version {said[:SHOWN]} on the {other_side} rank, {ours} on the {side} rank"
    )
    if not (said.isascii() and said.isdecimal()):
        return f"{about}: that is no version"
    return f"{about}: upgrade the {other_side if int(said) < int(ours) else side} rank"
