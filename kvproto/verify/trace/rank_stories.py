"""Rank stories: add to ranks' traces what stories and judges need: claims and carried notifications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from kvproto.fsm.telling import SenderClues
from kvproto.observe.rank_traces import RankTelling
from kvproto.verify.claims import TRACEABLE
from kvproto.verify.trace.carried_notifications import CarriedNotifications


class RankStories(RankTelling):
    """Tells and judges the traces that ranks have written."""

    claims: ClassVar = {claims.table.name: claims for claims in TRACEABLE}

    def clues(self, logs: Iterable[Any], names: Mapping[Any, str]) -> SenderClues:
        """Find the write that carried a notification which no rank sent as a message."""
        return CarriedNotifications((names[self.identity(log.head)], log) for log in logs if log.head.native_notify)


TELLING = RankStories()
