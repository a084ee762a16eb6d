"""The verifying framework: lint, search, stories, drawings, traces and the inspector for any protocol.

The names with which a protocol is described to the tools are here; each is loaded when it is first used.  They are
public: what they promise is in docs/framework.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproto.verify.framework.checker import Checker, PlantedBug
    from kvproto.verify.framework.claims import Claim, Claims, Ghost, Step
    from kvproto.verify.framework.digest_text import digest_of
    from kvproto.verify.framework.draw.scene import Scene
    from kvproto.verify.framework.protocol import Protocol
    from kvproto.verify.framework.scenario import ApplicationCall, Chances, Scenario, View
    from kvproto.verify.framework.sources import Sources
    from kvproto.verify.framework.stage import Stage
    from kvproto.verify.framework.table_patching import TablePatch
    from kvproto.verify.framework.world_tale import WorldChecker

__all__ = [
    "ApplicationCall", "Chances", "Checker", "Claim", "Claims", "Ghost", "PlantedBug", "Protocol", "Scenario", "Scene",
    "Sources", "Stage", "Step", "TablePatch", "View", "WorldChecker", "digest_of",
]  # fmt: skip

#: where each name is
_HOME = {
    **dict.fromkeys(("Checker", "PlantedBug"), "checker"),
    **dict.fromkeys(("Claim", "Claims", "Ghost", "Step"), "claims"), "digest_of": "digest_text",
    "Scene": "draw.scene", "Protocol": "protocol",
    **dict.fromkeys(("ApplicationCall", "Chances", "Scenario", "View"), "scenario"), "Sources": "sources",
    "Stage": "stage", "TablePatch": "table_patching", "WorldChecker": "world_tale",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # whatever the name stands for
    if name not in _HOME:
        raise AttributeError(f"module 'kvproto.verify.framework' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"kvproto.verify.framework.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
