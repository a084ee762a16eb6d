"""Finds the commands of every wing of the package.

A wing is a folder of `kvproto` with a package `cli` of its own, which lists `COMMANDS`.  The folder is found by
looking, so what runs in an engine knows no wing, and an installation without one lacks its commands and nothing else.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from importlib.util import find_spec
from types import ModuleType

import kvproto

#: of a command: its module, and what it is for
Commands = dict[str, tuple[str, str]]


def wings() -> list[ModuleType]:
    """Import the `cli` package of each wing, in the order of their names."""
    folders = [found.name for found in pkgutil.iter_modules(kvproto.__path__) if found.ispkg]
    places = [f"kvproto.{folder}.cli" for folder in folders]
    return [importlib.import_module(place) for place in places if find_spec(place) is not None]


def with_wings(commands: Commands, extras: Mapping[str, str]) -> tuple[Commands, dict[str, str]]:
    """Add every wing's commands, and the extras that they need, to these."""
    found, needed = dict(commands), dict(extras)
    for wing in wings():
        found |= wing.COMMANDS
        needed |= wing.EXTRAS
    return found, needed


def commands_below() -> dict[str, Commands]:
    """Return the commands of commands, such as those of `bench`, by the upper one's name."""
    return {name: below for wing in wings() for name, below in getattr(wing, "BELOW", {}).items()}
