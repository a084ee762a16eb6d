"""Testing: what a test of the protocol, or of an engine that embeds it, can be built from.

Two sizes, each the real thing but for one part, which says so:

* `SimulatedWorld`: real ranks; what they say to each other and to their kernels and transports lies in lists, and
  a seeded schedule chooses what happens next, what is lost, repeated or late, who crashes, and what time it is.  No
  sockets, no threads, no bytes: thousands of whole transfers a minute.  Needs nothing but the core.
* `Pair`, and `EngineStage` for its every move: real ranks, real loops, real control sockets and real bytes between
  pools of torch tensors; only the transport is the in-memory fabric, whose moves can be scheduled or made to fail.

`TransportContract` are the tests that any transport must pass.  Time is an argument everywhere:
`kvproto.io.clock.ManualClock` stands until it is moved.  `inside(endpoint)` shows the parts of an endpoint that an
engine does not see.

Names are fetched when they are used; one whose libraries are not installed raises `MissingExtraError` with what
installs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvproto.verify.testing.access import Inside, inside

if TYPE_CHECKING:
    from kvproto.verify.sim.world import FaultChances, SimulatedWorld
    from kvproto.verify.testing.pair import Pair
    from kvproto.verify.testing.stage import EngineStage
    from kvproto.verify.testing.transport_contract import TransportContract

__all__ = ["EngineStage", "FaultChances", "Inside", "Pair", "SimulatedWorld", "TransportContract", "inside"]

#: where each name is, and the extras that bring what it needs
_HOME = {
    "FaultChances": ("verify.sim.world", ""), "SimulatedWorld": ("verify.sim.world", ""),
    "Pair": ("verify.testing.pair", "nixl,gpu"), "EngineStage": ("verify.testing.stage", "nixl,gpu"),
    "TransportContract": ("verify.testing.transport_contract", "nixl,test"),
}  # fmt: skip


def __getattr__(name: str) -> Any:  # whatever the name stands for
    if name not in _HOME:
        raise AttributeError(f"module 'kvproto.verify.testing' has no attribute {name!r}")
    home, extras = _HOME[name]
    try:
        value = getattr(import_module(f"kvproto.{home}"), name)
    except ModuleNotFoundError as error:
        if not extras or (error.name or "kvproto").partition(".")[0] == "kvproto":
            raise
        from kvproto.errors import MissingExtraError

        remedy = f"pip install 'kvproto[{extras}]'"
        sentence = f"kvproto.verify.testing.{name} needs {error.name}, which is not installed: {remedy}"
        raise MissingExtraError(sentence) from error
    globals()[name] = value
    return value
