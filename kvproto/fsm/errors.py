"""Errors: the root of all errors of this project, and the kind that its lowest layer needs, too."""

from __future__ import annotations


class KvprotoError(Exception):
    """A mistake of a caller, a peer or the machine; the sentence names cause and remedy.

    Every kind derives from the builtin of its meaning, too, such as ValueError or ConnectionError.
    """

    __str__ = Exception.__str__  # a KeyError's would put the sentence in quotes


class ArgumentError(KvprotoError, ValueError):
    """An argument does not fit: a number out of its range, a table too short, a room that is open already."""
