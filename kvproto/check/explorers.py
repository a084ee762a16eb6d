"""Which explorer a configuration is searched with."""

from __future__ import annotations

from kvproto.check.config import Config
from kvproto.check.delay_bounded import DelayBoundedExplorer
from kvproto.check.successors import Explorer
from kvproto.check.timed_world import TimedExplorer


def explorer(config: Config) -> Explorer:
    """The world of a configuration."""
    if config.timed:
        return TimedExplorer(config)
    return DelayBoundedExplorer(config) if config.hasty else Explorer(config)
