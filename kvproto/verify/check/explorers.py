"""Explorers: choose the explorer with which a configuration is searched."""

from __future__ import annotations

from kvproto.fsm.errors import ArgumentError
from kvproto.verify.check.config import Config
from kvproto.verify.check.delay_bounded import DelayBoundedExplorer
from kvproto.verify.check.moving_world import MovingExplorer
from kvproto.verify.check.successors import Explorer
from kvproto.verify.check.timed_world import TimedExplorer


def explorer(config: Config) -> Explorer:
    """The world of a configuration.  ArgumentError: its processes would not have both roles."""
    if config.both_ways and (config.prefill_groups, config.decode_groups, config.decodes) != (2, 2, config.prefills):
        raise ArgumentError("both ways: two groups a side, of as many prefill ranks as decode ranks")
    if config.timed:
        return MovingExplorer(config) if config.moves else TimedExplorer(config)
    return DelayBoundedExplorer(config) if config.hasty else Explorer(config)
