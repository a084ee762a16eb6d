"""Explorers: choose the explorer with which a configuration is searched."""

from __future__ import annotations

from kvproto.verify.check.config import Config
from kvproto.verify.check.delay_bounded import DelayBoundedExplorer
from kvproto.verify.check.successors import Explorer
from kvproto.verify.check.timed_world import TimedExplorer


def explorer(config: Config) -> Explorer:
    """The world of a configuration."""
    if config.timed:
        return TimedExplorer(config)
    return DelayBoundedExplorer(config) if config.hasty else Explorer(config)
