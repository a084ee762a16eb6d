"""Signatures of the names that an adapter uses: recorded ones, compared with the installed engine's."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module

#: in the place of parameters: there is no such module, or nothing of that name in it that can be called
MISSING = "missing"


def installed_signatures(used: Mapping[str, tuple[str, ...]], separator: str) -> dict[str, str]:
    """By module, `separator` and name: the parameters that the installed one has there, or `MISSING`."""
    return {f"{module}{separator}{name}": _parameters(module, name) for module, names in used.items() for name in names}


def _parameters(module: str, name: str) -> str:
    try:
        at: object = import_module(module)
        for part in name.split("."):
            at = getattr(at, part)
    except (ImportError, AttributeError):
        return MISSING
    return ", ".join(inspect.signature(at).parameters) if callable(at) else MISSING
