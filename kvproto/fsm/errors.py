"""The root of all errors that this project raises on purpose, and the kind that its lowest layer needs, too."""

from __future__ import annotations


class KvprotoError(Exception):
    """Whatever goes wrong by a caller's mistake, a peer's or the machine's; the sentence names cause and remedy.

    Every kind derives from the builtin of its meaning, too, such as ValueError or ConnectionError.
    """

    __str__ = Exception.__str__  # a KeyError's would put the sentence in quotes


class ArgumentError(KvprotoError, ValueError):
    """What was given does not fit: a number out of its range, a table too short, a room that is open already."""
