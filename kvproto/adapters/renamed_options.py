"""renamed_options: accept an engine's options under the names that they had before.

An option that is renamed keeps its old name for a release, so that a deployment's configuration works with both.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kvproto.errors import ArgumentError

log = logging.getLogger("kvproto.adapters")

#: old name -> name, of vLLM's extra configuration and of SGLang's options alike
RENAMED = {"grid": "chunk_tokens"}


def rename_options(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the options with today's names, and log each old one.

    Args:
        given: the options as the deployment's configuration has them
        where: the configuration's name, for log and errors

    Raises:
        ArgumentError: an option is given under both of its names

    """
    found = dict(given)
    for old in RENAMED.keys() & found.keys():
        new = RENAMED[old]
        if new in found:
            raise ArgumentError(f"{where}: {old} is the former name of {new}: give {new} alone")
        log.warning("%s: option %s is now called %s; the old name will go", where, old, new)
        found[new] = found.pop(old)
    return found
