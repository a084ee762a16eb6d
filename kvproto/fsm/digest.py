"""The digest by which two builds know each other: a hash a part, and in which parts two digests differ."""

from __future__ import annotations

from collections.abc import Mapping


def joined(hashes: Mapping[str, str]) -> str:
    """`name:hash` of each part, in their order; a name has neither space nor colon."""
    return " ".join(f"{name}:{digits}" for name, digits in hashes.items())


def differing(said: str, own: str) -> str:
    """In which parts the digest that somebody said differs from the own one, as a sentence; empty: they are equal."""
    theirs, ours = (dict(word.partition(":")[::2] for word in line.split()) for line in (said, own))
    names = [name for name in ours | theirs if theirs.get(name) != ours.get(name)]
    if not theirs.keys() & ours.keys() and names:
        return f"digest {said!r} against {own!r}"
    parts = (f"{name} ({theirs.get(name, 'none')} against {ours.get(name, 'none')})" for name in names)
    return f"the builds differ in {', '.join(parts)}" if names else ""
