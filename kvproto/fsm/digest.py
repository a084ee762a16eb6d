"""The digest of a build: a hash of each part, and the comparison of two."""

from __future__ import annotations

from collections.abc import Mapping


def joined(hashes: Mapping[str, str]) -> str:
    """`name:hash` of each part, in their order; a name has neither space nor colon."""
    return " ".join(f"{name}:{digits}" for name, digits in hashes.items())


def differing(said: str, own: str) -> str:
    """Name the parts in which a peer's digest differs from the own one, as a sentence; empty: none."""
    theirs, ours = (dict(word.partition(":")[::2] for word in line.split()) for line in (said, own))
    names = [name for name in ours | theirs if theirs.get(name) != ours.get(name)]
    if not theirs.keys() & ours.keys() and names:
        return f"digest {said!r} against {own!r}"
    parts = (f"{name} ({theirs.get(name, 'none')} against {ours.get(name, 'none')})" for name in names)
    return f"the builds differ in {', '.join(parts)}" if names else ""
