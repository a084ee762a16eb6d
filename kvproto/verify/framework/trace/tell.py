"""A story as text, and as a Mermaid sequence chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from kvproto.fsm.records import SentEntry, StepEntry
from kvproto.fsm.telling import Moment, Subject, Telling
from kvproto.verify.framework.trace.merge import select


class Mark(msgspec.Struct, frozen=True):
    """An event of a party that no trace records: it died, or it started again."""

    time: float
    party: str
    text: str


def text(story: Sequence[Moment], subject: Subject, telling: Telling) -> Iterator[str]:
    """The story of one subject, line by line: when, who, what came, what it led to."""
    shown = select(story, [subject], telling)
    if not shown:
        return
    width = max(len(moment.party) for moment in shown)
    start = min(moment.time for moment in shown)
    for moment in shown:
        head = f"{(moment.time - start) * 1e3:12.3f} ms  {moment.party:<{width}}  "
        if moment.message is not None:
            yield head + _mail(moment, telling)
        elif isinstance(moment.entry, StepEntry):
            step = moment.entry
            yield head + _step(moment, step, telling)
            told = [effect for effect in step.effects if isinstance(effect, telling.told)]
            yield from (" " * len(head) + f"    => {telling.fact(effect)}" for effect in told)
            if step.row is None:
                yield " " * len(head) + "    !! no row for this event in this state"


def _mail(moment: Moment, telling: Telling) -> str:
    message = moment.message
    assert message is not None
    note = f"   ({moment.way})" if moment.way else ""
    if isinstance(moment.entry, SentEntry):
        return f"--> {message.receiver}: {telling.said(message)}{note}"
    return f"<-- {message.sender}: {telling.said(message)}{note}"


def _step(moment: Moment, step: StepEntry, telling: Telling) -> str:
    who = f"[{moment.source}] " if moment.source else ""
    move = f"{step.source} -> {step.target}" if step.source != step.target else f"stays {step.source}"
    return f"{who}{telling.fact(step.event)}   {telling.machine(step)}: {move}"


def sequence(
    story: Sequence[Moment], subjects: Sequence[Subject], telling: Telling, *, links: bool = False,
    states: bool = True, marks: Sequence[Mark] = (),
) -> str:  # fmt: skip
    """The story of these subjects as a Mermaid sequence chart.

    `links`: with what is said about none; `states`: with changes of state, and whatever ends that was under way;
    `marks`: noted at their time, by the clock of all parties.
    """
    lines = ["sequenceDiagram"]
    parties = sorted({moment.party for moment in story}, key=telling.column)
    lines += [f"    participant {party} as {telling.title(party)}" for party in parties]
    chosen = {moment.index for moment in select(story, subjects, telling)}
    drawn: list[str] = []
    memory: dict[Any, Any] = {}
    untold = sorted(marks, key=lambda mark: -mark.time)
    for moment in story:
        while untold and untold[-1].time <= moment.time:
            drawn.append(f"    Note over {untold[-1].party}: {untold.pop().text}")
        step = moment.entry
        if isinstance(step, StepEntry):
            telling.remember(moment, step, memory)
        if isinstance(step, StepEntry) and telling.background(step):
            drawn += telling.drawn_background(moment, step) if links else ()
        elif moment.index in chosen or (links and moment.message is not None and telling.aside(moment.message)):
            drawn += _mail_lines(moment, telling) if moment.message else _lines(moment, telling, memory, states=states)
    return "\n".join([*lines, *_joined(drawn)]) + "\n"


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Notes of one party that follow one another become one note; what is repeated is counted."""
    for key, group in groupby(lines, lambda line: line.partition(": ")[0] if "Note over" in line else line):
        same = list(group)
        if "Note over" not in key:
            yield from same
            continue
        texts = [line.partition(": ")[2] for line in same]
        counted = [(text, len(list(more))) for text, more in groupby(texts)]
        yield f"{key}: " + "<br/>".join(text + (f" ({n} times)" if n > 1 else "") for text, n in counted)


def _mail_lines(moment: Moment, telling: Telling) -> Iterator[str]:
    if isinstance(moment.entry, SentEntry) and moment.message is not None:
        arrow = {"lost": "--x", "ended": "--)", "untold": "--)"}.get(moment.way, "->>")
        yield f"    {moment.party}{arrow}{moment.message.receiver}: {telling.said(moment.message).replace(';', ',')}"


def _lines(moment: Moment, telling: Telling, memory: dict[Any, Any], *, states: bool) -> Iterator[str]:
    step = moment.entry
    if not isinstance(step, StepEntry):
        return
    if moment.source in telling.noted or (states and moment.source not in {"", "timer"}):
        yield f"    Note over {moment.party}: {moment.source}: {telling.fact(step.event)}"
    elif moment.source == "timer":
        yield f"    Note over {moment.party}: timer of {telling.machine(step)} in {step.source}"
    if states and step.source != step.target:
        yield f"    Note over {moment.party}: {telling.machine(step)} is {step.target}"
    for effect in step.effects:
        yield from telling.drawn(moment, effect, memory)
