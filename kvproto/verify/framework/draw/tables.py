"""Tables as Markdown: rows, states, values, guards and effects of a machine; routes and facts.

One line of Markdown is one line of the table as it is written: rows that were declared together stay together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from types import ModuleType
from typing import Any, cast, get_args, get_type_hints

import msgspec

from kvproto.fsm.plain_json import hints
from kvproto.fsm.routing import Fact, Route, Routes
from kvproto.fsm.table import Row, Table
from kvproto.fsm.vocabulary import Effect, Event, Internal, Report
from kvproto.verify.framework.draw.describe import comments, kind_of, members, sentence
from kvproto.verify.framework.draw.source import constants, expression, helpers, used
from kvproto.verify.framework.sources import made_by

VERBS = {"row": "", "ignore": "ignored: ", "refuse": "refused: "}


def table_md(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
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
    """Return the fields that the machine keeps beside its state and its timer."""
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


def rows_md(table: Table[Any]) -> str:
    """The rows in their order."""
    lines = [_declared(list(same)) for _, same in groupby(table.rows, key=lambda row: (row.file, row.line))]
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
    helping = list(helpers([*guards, *lets, *acts]))
    more = [(f"`{f.__name__}`", sentence(f), f"`{expression(f)}`") for f in helping]
    if more:
        parts.append(table_md(("helper", "meaning", "exactly"), more))
    if named := constants([*guards, *lets, *acts, *helping]):
        parts.append(table_md(("constant", "value"), [(f"`{name}`", f"`{value}`") for name, value in named.items()]))
    return "\n".join(parts)


def timers_md(tables: Iterable[Table[Any]], timing: Any) -> str:
    """Return the timers with their numbers and states; `timing`: a struct of timers, which may name more."""
    said, tables, lines = comments(cast("Any", type(timing))), tuple(tables), []
    for name in dict.fromkeys([*timing.__struct_fields__, *(n for table in tables for n in table.timers.values())]):
        timer = timing.named(name)
        where = ", ".join(f"`{t.name}.{s.name}`" for t in tables for s, n in t.timers.items() if n == name)
        meaning = said.get(name) or sentence(getattr(getattr(type(timing), f"{name}_", None), "fget", None))
        longest = f"{timer.longest:g} s" if timer.longest else ""
        lines.append((f"`{name}`", f"{timer.period:g} s", longest, str(timer.tries), meaning, where))
    return table_md(("timer", "period", "grows to", "times", "meaning", "runs in"), lines)


def events_md(module: ModuleType) -> str:
    return table_md(("machine", "event", "fields", "what has happened"), [
        (cls.machine or "all", f"`{cls.__name__}`", _fields(cls), sentence(cls)) for cls in concrete(module, Event)
    ])  # fmt: skip


def effects_md(module: ModuleType) -> str:
    return table_md(("carried out by", "effect", "fields", "what is to be done"), [
        ("the rank" if issubclass(cls, Internal) else "a handler", f"`{cls.__name__}`", _fields(cls), sentence(cls))
        for cls in concrete(module, Effect)
    ])  # fmt: skip


def concrete(module: ModuleType, base: type[msgspec.Struct]) -> list[Any]:
    """Return the events (or effects, with the framework's `Report`) of a module, without foreign bases."""
    found = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    bases = {parent for each in found for parent in each.__bases__}
    own = [each for each in found if issubclass(each, base) and each not in bases]
    return [Report, *own] if base is Effect else own


def _fields(cls: type) -> str:
    return ", ".join(f"`{name}`" for name in hints(cls)) or "none"


def struct_md(cls: type[msgspec.Struct]) -> str:
    """The fields of a struct that travels in events or messages."""
    said = comments(cls)
    lines = [(f"`{name}`", kind_of(hint), said.get(name, "")) for name, hint in hints(cls).items()]
    return table_md(("field", "type", "meaning"), lines)


def members_md(cls: Any) -> str:
    said = members(cls)
    return table_md(("number", "name", "meaning"), [(str(int(m)), f"`{m.name}`", said[m.name]) for m in cls])


def routes_md(routes: Routes) -> str:
    """The routes in their order: the first one that takes a message decides."""
    return table_md(("message", "when", "becomes"), [_line(routes, route) for route in routes.routes])


def _line(routes: Routes, route: Route) -> tuple[str, str, str]:
    asked = [f"{fact.__name__} {_either(asks)}" for fact, asks in zip(routes.facts, route.asks, strict=True) if asks]
    return _messages(routes, route), ", ".join(asked), _end(route)


def _either(asks: Iterable[object]) -> str:
    return " or ".join(f"`{ask.name}`" for ask in asks)  # type: ignore[attr-defined]  # members of an enum


def _messages(routes: Routes, route: Route) -> str:
    if set(route.messages) == set(routes.messages):
        return "every other"
    return ", ".join(f"`{message.__struct_config__.tag}`" for message in route.messages)


def _end(route: Route) -> str:
    if route.end == "drop":
        return f"dropped, counted as *{route.why}*"
    if route.end == "answer":
        said = get_type_hints(route.to[0])["return"].__struct_config__.tag
        return f"answered with `{said}`: {route.why}"
    events = [f"`{event.__name__}`" for to in route.to for event in made_by(to)]
    return ", then ".join(events)


def facts_md(fact: type[Fact]) -> str:
    """Return the possible facts about a message in one respect."""
    said = members(fact)
    return table_md((fact.__name__, "meaning"), [(f"`{each.name}`", said[each.name]) for each in fact])
