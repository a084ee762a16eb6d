"""A story as text, and as a Mermaid sequence chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import groupby

from kvproto.fsm.vocabulary import Effect, Event, Internal, Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import TimerFired, room_of
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.trace.merge import Message, Moment, select
from kvproto.trace.records import SentEntry, StepEntry, TraceEntry

#: who hears what else leaves a rank
OUT = (do.LaunchGather, do.LaunchScatter, do.PostBatch, do.AnnounceOutcome, do.AnnounceReleased, do.DeliverAux, Report)
#: where the writes of a send go, by the event that begins them
INTO: dict[type[Event], str] = {ev.WriteBegun: "one write into the ring", ev.PagesBegun: "many writes into the pages"}


def said(message: Message) -> str:
    """`STAGING_RSP chunk 0, grant 1, ...`."""
    known = dict(message.fields)
    if message.name == "STAGING_RSP":
        at = "chunk {chunk}: region {grant} at {offset} to {end} of round {round}; watermark {mark_round}, {mark_tail}"
        return f"{message.name} {at.format(**known)}"
    fields = ", ".join(f"{name} {_plain(value)}" for name, value in message.fields)
    return f"{message.name} {fields}".strip()


def fact(event: Event | Effect) -> str:
    """`StagingGranted(chunk 0, usable)`: a struct without what goes without saying."""
    shown: list[str] = []
    for name in () if isinstance(event, TimerFired) else type(event).__struct_fields__:
        value = getattr(event, name)
        if name in {"room", "terms", "writers", "body"} or isinstance(value, bytes):
            continue
        if isinstance(value, bool):
            shown += [name if value else f"not {name}"]
        else:
            shown.append("aux" if name == "chunk" and value == AUX_CHUNK else f"{name} {_plain(value)}")
    return f"{type(event).__name__}({', '.join(shown)})" if shown else type(event).__name__


def _plain(value: object) -> str:
    return value.name if isinstance(value, Enum) else str(value)


def machine(step: StepEntry) -> str:
    """`send 0 to D1`, `grant 0`, `room`: which machine moved."""
    kind = step.machine.partition("_")[2]
    chunk = getattr(step.event, "chunk", None)
    parts = {"send", "write", "grant"}
    part = "" if chunk is None or kind not in parts else " aux" if chunk == AUX_CHUNK else f" {chunk}"
    peer = getattr(step.event, "peer", None)
    return f"{kind}{part}" + (f" to D{peer}" if kind in {"send", "write"} else f" {peer}" if kind == "link" else "")


def text(story: Sequence[Moment], room: int) -> Iterator[str]:
    """The story of one room, line by line: when, who, what came, what it led to."""
    shown = select(story, [room])
    if not shown:
        return
    width = max(len(moment.rank) for moment in shown)
    start = min(moment.time for moment in shown)
    for moment in shown:
        head = f"{(moment.time - start) * 1e3:12.3f} ms  {moment.rank:<{width}}  "
        if moment.message is not None:
            yield head + _mail(moment)
        elif isinstance(moment.entry, StepEntry):
            yield head + _step(moment, moment.entry)
            yield from (" " * len(head) + f"    => {fact(e)}" for e in moment.entry.effects if isinstance(e, OUT))
            if moment.entry.row is None:
                yield " " * len(head) + "    !! no row for this event in this state"


def _mail(moment: Moment) -> str:
    message = moment.message
    assert message is not None
    note = f"   ({moment.way})" if moment.way else ""
    if isinstance(moment.entry, SentEntry):
        return f"--> {message.receiver}: {said(message)}{note}"
    return f"<-- {message.sender}: {said(message)}{note}"


def _step(moment: Moment, step: StepEntry) -> str:
    who = f"[{moment.source}] " if moment.source else ""
    move = f"{step.source} -> {step.target}" if step.source != step.target else f"stays {step.source}"
    return f"{who}{fact(step.event)}   {machine(step)}: {move}"


def sequence(story: Sequence[Moment], rooms: Sequence[int], *, links: bool = False, states: bool = True) -> str:
    """The story of these rooms as a Mermaid sequence chart; `links`: with what is said about no room."""
    lines = ["sequenceDiagram"]
    lines += [f"    participant {rank} as {_title(rank)}" for rank in sorted({m.rank for m in story}, key=_column)]
    chosen = {moment.index for moment in select(story, rooms)}
    drawn: list[str] = []
    into: dict[tuple[str, tuple[int, ...]], str] = {}
    for moment in story:
        step = moment.entry
        if isinstance(step, StepEntry) and type(step.event) in INTO:
            into[moment.rank, step.key] = INTO[type(step.event)]
        if isinstance(step, StepEntry) and step.machine.endswith("link"):
            drawn += _link_lines(moment, step) if links else ()
        elif moment.index in chosen or (links and _spoken(moment)):
            drawn += _mail_lines(moment) if moment.message else _step_lines(moment, step, into, states=states)
    return "\n".join([*lines, *_joined(drawn)]) + "\n"


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Notes of one rank that follow one another become one note; what is repeated is counted."""
    for key, group in groupby(lines, lambda line: line.partition(": ")[0] if "Note over" in line else line):
        same = list(group)
        if "Note over" not in key:
            yield from same
            continue
        texts = [line.partition(": ")[2] for line in same]
        counted = [(text, len(list(more))) for text, more in groupby(texts)]
        yield f"{key}: " + "<br/>".join(text + (f" ({n} times)" if n > 1 else "") for text, n in counted)


def _mail_lines(moment: Moment) -> Iterator[str]:
    if isinstance(moment.entry, SentEntry) and moment.message is not None:
        arrow = "--x" if moment.way == "lost" else "->>"
        yield f"    {moment.rank}{arrow}{moment.message.receiver}: {said(moment.message).replace(';', ',')}"


def _spoken(moment: Moment) -> bool:
    return moment.message is not None and moment.message.name != "HEARTBEAT" and moment.message.room == 0


def _column(rank: str) -> tuple[bool, str]:
    return rank[0] != "P", rank


def _title(rank: str) -> str:
    return f"{'prefill' if rank[0] == 'P' else 'decode'} rank {rank[1:]}"


def _link_lines(moment: Moment, step: StepEntry) -> Iterator[str]:
    if step.source != step.target:
        yield f"    Note over {moment.rank}: link is {step.target}"
    for effect in step.effects:
        name = type(effect).__name__
        if name in {"SayHello", "SayWelcome", "SayRefusal"}:
            yield f"    {moment.rank}->>{_far(moment)}: {name.removeprefix('Say').upper()}"


def _far(moment: Moment) -> str:
    return moment.far[0] if moment.far else moment.rank


def _step_lines(
    moment: Moment, step: TraceEntry, into: dict[tuple[str, tuple[int, ...]], str], *, states: bool
) -> Iterator[str]:  # fmt: skip
    if not isinstance(step, StepEntry):
        return
    if moment.source == "engine":
        yield f"    Note over {moment.rank}: engine: {fact(step.event)}"
    elif moment.source == "timer":
        yield f"    Note over {moment.rank}: timer of {machine(step)} in {step.source}"
    if states and step.source != step.target:
        yield f"    Note over {moment.rank}: {machine(step)} is {step.target}"
    for effect in step.effects:
        if isinstance(effect, do.LaunchGather | do.LaunchScatter):
            kernel = type(effect).__name__.removeprefix("Launch").lower()
            yield f"    {moment.rank}->>{moment.rank}: {kernel} chunk {effect.chunk}"
        elif isinstance(effect, do.PostBatch):
            how = into.get((moment.rank, step.key), "a write")
            yield f"    {moment.rank}-)D{effect.peer}: chunk {effect.chunk}: {how}"
        elif isinstance(effect, do.AnnounceOutcome):
            cause = "success" if not effect.cause else effect.cause.name
            yield f"    Note over {moment.rank}: tells its engine: {cause}"
        elif isinstance(effect, do.AnnounceReleased):
            yield f"    Note over {moment.rank}: the engine's pages are free"


def title(room: int) -> str:
    """`room 7 gen 0`."""
    return "room {} gen {}".format(*room_of(room))


__all__ = ["Internal", "fact", "machine", "said", "sequence", "text", "title"]
