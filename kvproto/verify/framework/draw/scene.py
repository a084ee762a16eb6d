"""Scenes: what happened on a stage, drawn as sequence charts.

A scene plays real parties and takes their traces, once more whenever it is drawn: so the chart is what the tables do,
not what somebody thinks that they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kvproto.fsm.records import Log
from kvproto.fsm.telling import Telling
from kvproto.verify.framework.trace.merge import merge
from kvproto.verify.framework.trace.tell import Mark, sequence


class Scene(msgspec.Struct, frozen=True):
    """A name, a sentence, the play, and the subjects that it is about."""

    name: str
    title: str
    #: the stage, when all is over
    play: Callable[[], Any]
    #: of the stage: the traces of all parties
    traces: Callable[[Any], list[Log]]
    subjects: tuple[Any, ...]
    #: what is said about no subject belongs to it
    aside: bool = False
    #: of the stage: what no trace tells of
    marks: Callable[[Any], Sequence[Mark]] = lambda _: ()

    def logs(self) -> list[Log]:
        """Play it; the traces of all parties."""
        return self.traces(self.play())

    def chart(self, telling: Telling, *, states: bool) -> str:
        """The scene as a Mermaid sequence chart; `states`: with every change of state."""
        stage = self.play()
        story, marks = merge(self.traces(stage), telling), self.marks(stage)
        return sequence(story, self.subjects, telling, links=self.aside, states=states, marks=marks)
