"""Story of a rank's counterexample: its words, its properties, and how a recorded one is read."""

from __future__ import annotations

from typing import Any

import msgspec

from kvproto.fsm.bounded_files import decoded
from kvproto.protocol.messages import Hello, Welcome
from kvproto.verify.check.config import Config
from kvproto.verify.check.explorers import explorer
from kvproto.verify.check.state_encoding import WorldEvent
from kvproto.verify.check.step_wording import actors, arrow, calls, phrase
from kvproto.verify.draw.properties import HAZARDS, PROPERTIES
from kvproto.verify.framework import story
from kvproto.verify.framework.search import Space
from kvproto.verify.framework.story import Counterexample, PlainStep, RecordedHead, ReplayedWay


class RankTale(Counterexample):
    """A violation in a world of ranks."""

    config: Config

    def actors(self) -> list[str]:
        return actors(self.config)

    def phrases(self) -> list[str]:
        """Return who acts, and why each step may happen."""
        return [phrase(self.config, event) for event in calls(self.config, self.events)]

    def arrows(self) -> list[str]:
        """Messages and writes as arrows, the rest as notes."""
        return [arrow(self.config, event) for event in calls(self.config, self.events)]

    def matter(self) -> list[str]:
        """Return the property's promise, and the defect in practice without it."""
        promised = next((each for each in PROPERTIES if each.name == self.property), None)
        if promised is None:
            return []
        harm = [hazard.name for hazard in HAZARDS if self.property in hazard.breaks]
        lines = [f"{promised.name} promises: {promised.text}"]
        return lines + ([f"without it: {', '.join(harm)} (PROTOCOL.md, What is promised)"] if harm else [])


def plain(event: WorldEvent) -> PlainStep:
    """Return a step as JSON; a message by type and fields, a handshake by those that tell it from others."""
    return event.at, [_plain(item) for item in event.what], event.cost


def _plain(item: Any) -> Any:
    if isinstance(item, tuple):
        return [_plain(each) for each in item]
    if isinstance(item, bytes):
        return item.hex()
    if isinstance(item, Hello):
        return ["HELLO", item.session, *item.endpoint]
    if isinstance(item, Welcome):
        return ["WELCOME", item.session, item.epoch]
    if isinstance(item, msgspec.Struct):
        return [type(item).__name__, *(_plain(getattr(item, name)) for name in item.__struct_fields__)]
    return item


def _recorded(head: RecordedHead) -> tuple[Counterexample, Space]:
    tale = RankTale(head.property, head.text, decoded("line 1: config", head.config, Config), [])
    return tale, explorer(tale.config)


def walk(text: str) -> ReplayedWay:
    """Walk a recorded way again, as far as it goes.  ArgumentError, a ValueError: this is not one."""
    return story.walk(text, _recorded, plain)


def replay(text: str) -> tuple[str, str | None]:
    """Walk a recorded way; return the property that it broke once, and the one that it breaks now (None:
    none).

    Raises LookupError at the first step that is no longer possible: then the fault is gone by another way.
    """
    walked = walk(text)
    if walked.gone:
        raise LookupError(walked.gone)
    return walked.once.property, walked.broken or None
