"""The tables as Markdown: rows, states, values, guards and effects of a machine; messages, timers, events, effects.

One line of Markdown is one line of the table as it is written: rows that were declared together stay together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from types import ModuleType
from typing import Any, cast, get_args

import msgspec

from kvproto.draw.describe import comments, kind_of, members, sentence
from kvproto.draw.message_exchanges import TALK
from kvproto.draw.source import expression, helpers, used
from kvproto.fsm import vocabulary
from kvproto.fsm.table import Row, Table
from kvproto.fsm.vocabulary import Effect, Event, Internal, State
from kvproto.protocol import effects, events
from kvproto.protocol.timing import Timing
from kvproto.rank.settings import Settings
from kvproto.trace.plain_json import hints

VERBS = {"row": "", "ignore": "ignored: ", "refuse": "refused: "}


def table_md(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    said = [" | ".join(each.replace("|", r"\|").replace("\n", " ") for each in line) for line in lines]
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {line} |" for line in said)]) + "\n"


def states_md(table: Table[Any]) -> str:
    """Every state: what it awaits, its timer."""
    said = members(table.states)
    lines = []
    for state in table.states:
        role = "begins here" if state is table.initial else "final" if state in table.final else ""
        timer = f"`{table.timers[state]}`" if state in table.timers else ""
        lines.append((f"`{state.name}`", said[state.name], timer, role))
    return table_md(("state", "what is so", "timer", ""), lines)


def value_md(table: Table[Any]) -> str:
    """What the machine remembers beside its state and its timer."""
    return table_md(("field", "type", "meaning"), [(f"`{name}`", kind, doc) for name, kind, doc in value_fields(table)])


def value_fields(table: Table[Any]) -> list[tuple[str, str, str]]:
    """(name, type, meaning) of each field of the value; those of a part of it as `part.field`."""
    return [
        (name if cls is table.value else f"work.{name}", kind_of(hint), comments(cls).get(name, ""))
        for cls in (table.value, *_parts(table))
        for name, hint in hints(cls).items()
        if name not in {"state", "due", "work"}
    ]


def _parts(table: Table[Any]) -> list[Any]:
    """The struct of the field `work`, if the value has one."""
    hint = hints(cast("Any", table.value)).get("work")
    return [each for each in get_args(hint) if each is not type(None)]


def rows_md(table: Table[Any], *, silent: bool = True) -> str:
    """The rows in their order; `silent`: with those that ignore or refuse."""
    rows = [row for row in table.rows if silent or row.verb == "row"]
    lines = [_declared(list(same)) for _, same in groupby(rows, key=lambda row: (row.file, row.line))]
    return table_md(("state", "event", "when", "to", "change", "then"), lines)


def _declared(rows: list[Row]) -> tuple[str, ...]:
    first = rows[0]
    states = _names(row.source.name for row in rows)
    kinds = _names(row.event.__name__ for row in rows)
    when = f"`{first.when.__name__}`" if first.when else ""
    if first.verb != "row":
        return states, kinds, when, "", "", VERBS[first.verb] + first.why
    stays = all(row.target is row.source for row in rows)
    to = "" if stays else f"**{first.target.name}**"
    change = f"`{first.let.__name__}`" if first.let else ""
    then = [f"`{f.__name__}`" for f in first.do]
    if stays and first.again:
        then.append("timer anew")
    return states, kinds, when, to, change, ", ".join(then)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def functions_md(table: Table[Any]) -> str:
    """The guards, changes and effects that the rows name: a sentence, and the exact expression."""
    guards, lets, acts = used(table)
    parts = []
    for title, functions in (("guard", guards), ("change", lets), ("effect", acts)):
        lines = [(f"`{f.__name__}`", sentence(f), f"`{expression(f)}`") for f in functions]
        parts.append(table_md((title, "meaning", "exactly"), lines))
    more = [(f"`{f.__name__}`", sentence(f), f"`{expression(f)}`") for f in helpers([*guards, *lets, *acts])]
    if more:
        parts.append(table_md(("helper", "meaning", "exactly"), more))
    return "\n".join(parts)


def messages_md() -> str:
    """Every message: who sends it, what it carries, what answers it."""
    lines = []
    for talk in TALK:
        fields = ", ".join(f"`{name}` {kind_of(hint)}" for name, hint in hints(talk.body).items())
        lines.append((f"`{talk.name}`", talk.sender, fields or "nothing", sentence(talk.body), talk.answer))
    return table_md(("message", "sent by", "fields, in order", "meaning", "answered with"), lines)


def timers_md() -> str:
    """The timers with their defaults, and where they run."""
    from kvproto.protocol.tables import TABLES

    said, timing, lines = comments(Timing), Timing(), []
    for name in (*Timing.__struct_fields__, "return"):
        timer = timing.named(name)
        where = ", ".join(f"`{t.name}.{s.name}`" for t in TABLES for s, n in t.timers.items() if n == name)
        meaning = said.get(name) or "calls after a loss: as many as make up the lease and the longest write"
        lines.append((f"`{name}`", f"{timer.period:g} s", str(timer.tries), meaning, where))
    return table_md(("timer", "period", "times", "meaning", "runs in"), lines)


def settings_md() -> str:
    """What an engine may choose for a rank, with defaults."""
    said = comments(Settings)
    lines = [(f"`{f.name}`", "" if isinstance(f.default, Timing) else str(f.default), said.get(f.name, ""))
             for f in msgspec.structs.fields(Settings) if f.name != "timing"]  # fmt: skip
    return table_md(("setting", "default", "meaning"), lines)


def events_md() -> str:
    """Every event with its fields."""
    return table_md(("machine", "event", "fields", "what has happened"), [
        (cls.machine or "all", f"`{cls.__name__}`", _fields(cls), sentence(cls)) for cls in concrete(events, Event)
    ])  # fmt: skip


def effects_md() -> str:
    """Every effect with its fields, and who carries it out."""
    return table_md(("carried out by", "effect", "fields", "what is to be done"), [
        ("the rank" if issubclass(cls, Internal) else "a handler", f"`{cls.__name__}`", _fields(cls), sentence(cls))
        for cls in concrete(effects, Effect)
    ])  # fmt: skip


def concrete(module: ModuleType, base: type[msgspec.Struct]) -> list[Any]:
    """The events (or effects) that the framework has and those of a module, without the bases of others."""
    return [
        cls
        for source in (vocabulary, module)
        for cls in vars(source).values()
        if isinstance(cls, type) and issubclass(cls, base) and cls.__module__ == source.__name__
        and not cls.__subclasses__()
    ]  # fmt: skip


def _fields(cls: type) -> str:
    return ", ".join(f"`{name}`" for name in hints(cls)) or "none"


def struct_md(cls: type[msgspec.Struct]) -> str:
    """The fields of a struct that travels in events or messages."""
    said = comments(cls)
    lines = [(f"`{name}`", kind_of(hint), said.get(name, "")) for name, hint in hints(cls).items()]
    return table_md(("field", "type", "meaning"), lines)


def causes_md(cls: type[State] | Any) -> str:
    """The members of an Enum with their numbers."""
    said = members(cls)
    return table_md(("number", "name", "meaning"), [(str(int(m)), f"`{m.name}`", said[m.name]) for m in cls])
