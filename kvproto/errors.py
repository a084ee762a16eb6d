"""The errors: one root, and the kinds that are raised in more than one place.

`KvprotoError` is the base of every error that a caller may see.  Each kind is also the builtin that a reader of the
call would expect, so code that does not know this module catches it, too.  A value of a wrong type is an ArgumentError
at every public constructor and method of an endpoint (`call_arguments`).  Kinds that one module alone raises are
defined there: `LayoutError`, `WireError`, `KernelError`, `ControlError`, `TransportError` with kinds of its own,
`TraceError` and others.

An exception is a mistake of the caller or a lack of the machine.  The failure of a *room* is no exception but an
`Outcome`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvproto.fsm.errors import ArgumentError, KvprotoError

__all__ = [
    "ArgumentError", "EndpointError", "KvprotoError", "LinkError", "MissingExtraError", "NotFoundError",
    "Step", "failures", "one_line", "raise_exit", "run_all",
]  # fmt: skip


class NotFoundError(KvprotoError, KeyError):
    """A room, a prefill group or an aux row that is not here: not yet, or no longer."""


class EndpointError(KvprotoError, RuntimeError):
    """The endpoint cannot be called now: it is closed, its loop has broken, or another thread polls it."""


class LinkError(KvprotoError, ConnectionError):
    """A link was refused, and will not come about by waiting."""


class MissingExtraError(KvprotoError, ImportError):
    """A name whose libraries are not installed; the sentence has the command that installs them."""


def one_line(text: str) -> str:
    """Return the text as one line without control characters: peers' words are written into logs."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


#: a piece of tidying up, and what a reader calls it
Step = tuple[str, Callable[[], object]]


def run_all(steps: Iterable[Step]) -> dict[str, BaseException]:
    """Run every step, whatever the others raise; return what failed, by the names of the steps."""
    failed: dict[str, BaseException] = {}
    for name, step in steps:
        try:
            step()
        except BaseException as error:  # noqa: BLE001  # what is left must be let go of nevertheless
            failed[name] = error
    return failed


def failures(failed: dict[str, BaseException]) -> str:
    """Say what failed, each with its own words."""
    return "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failed.items())


def raise_exit(failed: dict[str, BaseException]) -> None:
    """Raise what asks the process to end (KeyboardInterrupt, SystemExit), if a step has met it."""
    for error in failed.values():
        if not isinstance(error, Exception):
            raise error
