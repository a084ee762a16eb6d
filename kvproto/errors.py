"""The errors: one root, and the kinds that are raised in more than one place.

Whoever catches `KvprotoError` has caught every error that is meant for a caller.  Each kind is also the builtin that a
reader of the call would expect, so that code which knows nothing of this module catches it, too.  A value of a wrong
type is an ArgumentError at every public constructor and method of an endpoint (`call_arguments`).  Kinds that one
module alone raises are there: `LayoutError`, `WireError`, `KernelError`, `ControlError`, `TransportError` with kinds of
its own, `TraceError` and others.

What is raised is a caller's mistake or a machine's lack.  How a *room* fails is no error: it is an `Outcome`.
"""

from __future__ import annotations

from kvproto.fsm.errors import ArgumentError, KvprotoError

__all__ = [
    "ArgumentError", "EndpointError", "KvprotoError", "LinkError", "MissingExtraError", "NotFoundError",
]  # fmt: skip


class NotFoundError(KvprotoError, KeyError):
    """A room, a prefill group or an aux row that is not here: not yet, or no longer."""


class EndpointError(KvprotoError, RuntimeError):
    """The endpoint cannot be called now: it is closed, its loop has broken, or another thread polls it."""


class LinkError(KvprotoError, ConnectionError):
    """A link was refused, and will not come about by waiting."""


class MissingExtraError(KvprotoError, ImportError):
    """A name whose libraries are not installed; the sentence has the command that installs them."""
