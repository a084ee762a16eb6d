"""The export: a protocol as one JSON document, for tools and languages that do not read Python.

It says all that the tables say: states, events, effects, rows in their order, messages with types and bounds, timers
with defaults, enums with numbers.  Guards and changes are named, with their sentence and, as `python`, their exact
expression.  Where a row stands (file and line) is left out, so that the document changes only when the protocol
does.  `schema` describes its shape in JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, IntEnum
from typing import Any, cast, get_args

import msgspec

from kvproto.fsm import vocabulary
from kvproto.fsm.codec import Body
from kvproto.fsm.plain_json import hints
from kvproto.fsm.table import Row, Table
from kvproto.fsm.vocabulary import Effect, Event, Internal, State
from kvproto.verify.framework.draw.describe import comments, kind_of, members, sentence
from kvproto.verify.framework.draw.source import expression, helpers, used
from kvproto.verify.framework.draw.tables import value_fields
from kvproto.verify.framework.protocol import Protocol

Json = dict[str, Any]
FORMAT = 1
#: a message's name, its sender ("" if nobody lists it), its class
Spoken = tuple[str, str, type[Body]]
FieldSentence = Callable[[type[Body], str], str]


def spec(protocol: Protocol) -> Json:
    """Export any protocol, as its tables and its `Telling` have it."""
    telling, timing = protocol.told(), protocol.timing
    events: list[type[Any]] = [each for each in telling.events.values() if _own(each)]
    effects: list[type[Any]] = [each for each in telling.effects.values() if _own(each) or each in SAID]
    bodies: list[tuple[str, str, type[Any]]] = [
        (str(body.__struct_config__.tag), "", body) for body in telling.messages.values() if _own(body)
    ]
    values = [table.value for table in protocol.tables]
    named = list(dict.fromkeys(_named([*events, *effects, *values, *(body for _, _, body in bodies)])))
    used_timers = [name for table in protocol.tables for name in table.timers.values()]
    timers = dict.fromkeys([*timing.__struct_fields__, *used_timers])
    return {
        "format": FORMAT,
        "protocol": {"name": protocol.name, "digest": protocol.digest()},
        "bounds": {},
        "enums": {cls.__name__: enum(cls) for cls in named if issubclass(cls, IntEnum)},
        "structs": {cls.__name__: fields(cls) for cls in named if issubclass(cls, msgspec.Struct)},
        **vocabularies(bodies, events, effects, lambda body, field: comments(body).get(field, "")),
        "timers": [timer(name, timing) for name in timers],
        "machines": [machine(table) for table in protocol.tables],
    }


#: effects of the framework that a protocol's rows may name
SAID = vocabulary.Transmit, vocabulary.Broadcast, vocabulary.Report


def _own(cls: type[Any]) -> bool:
    return cls.__module__ != vocabulary.__name__ and not cls.__subclasses__() and cls is not Body


def _named(classes: Iterable[type[Any]]) -> Iterator[type[Any]]:
    """Yield the enumerations and structs that fields of these hold, and those of theirs."""
    for cls in classes:
        for hint in hints(cast("Any", cls)).values():
            for each in (hint, *get_args(hint)):
                if isinstance(each, type) and issubclass(each, Enum | msgspec.Struct) and not issubclass(each, State):
                    yield each
                    yield from _named([each] if issubclass(each, msgspec.Struct) else [])


def vocabularies(
    bodies: Iterable[Spoken], events: Iterable[type[Event]], effects: Iterable[type[Effect]], said: FieldSentence
) -> Json:  # fmt: skip
    return {
        "messages": [_message(*each, said) for each in bodies],
        "events": [{"name": cls.__name__, "machine": cls.machine, "doc": sentence(cls), "fields": fields(cls)}
                   for cls in events],
        "effects": [{"name": cls.__name__, "internal": issubclass(cls, Internal), "doc": sentence(cls),
                     "fields": fields(cls)} for cls in effects],
    }  # fmt: skip


def enum(cls: type[IntEnum]) -> list[Json]:
    said = members(cls)
    return [{"number": int(member), "name": member.name, "doc": said[member.name]} for member in cls]


def fields(cls: type) -> list[Json]:
    said = comments(cls)
    return [{"name": name, "type": kind_of(hint), "doc": said.get(name, "")} for name, hint in hints(cls).items()]


def _message(name: str, sender: str, body: type[Body], said: FieldSentence) -> Json:
    found = [{"name": field, "type": kind_of(hint), "doc": said(body, field), **_bounds(hint)}
             for field, hint in hints(body).items()]  # fmt: skip
    return {"name": name, "sender": sender, "doc": sentence(body), "fields": found}


def _bounds(hint: object) -> Json:
    info = msgspec.inspect.type_info(hint)
    if isinstance(info, msgspec.inspect.IntType):
        top = info.le if info.lt is None else info.lt - 1
        return {key: value for key, value in (("min", info.ge), ("max", top)) if value is not None}
    if isinstance(info, msgspec.inspect.BytesType | msgspec.inspect.StrType) and info.max_length is not None:
        return {"max_length": info.max_length}
    return {}


def timer(name: str, timing: Any) -> Json:
    found, cls = timing.named(name), cast("Any", type(timing))
    return {"name": name, "period": found.period, "tries": found.tries, "doc": comments(cls).get(name, "")}


def machine(table: Table[Any]) -> Json:
    said = members(table.states)
    guards, lets, acts = used(table)
    return {
        "name": table.name,
        "initial": table.initial.name,
        "final": [state.name for state in table.final],
        "tombstones": table.tombstones,
        "states": [{"number": int(s), "name": s.name, "doc": said[s.name], "timer": table.timers.get(s)}
                   for s in table.states],
        "events": [event.__name__ for event in table.events],
        "value": [{"name": name, "type": kind, "doc": doc} for name, kind, doc in value_fields(table)],
        "guards": [_function(each) for each in guards],
        "changes": [_function(each) for each in lets],
        "effects": [_function(each) for each in acts],
        "helpers": [_function(each) for each in helpers([*guards, *lets, *acts])],
        "rows": [_row(row) for row in table.rows],
    }  # fmt: skip


def _function(function: Any) -> Json:
    return {"name": function.__name__, "doc": sentence(function), "python": expression(function)}


def _row(row: Row) -> Json:
    said: Json = {
        "verb": row.verb, "from": row.source.name, "event": row.event.__name__, "to": row.target.name,
        "when": row.when.__name__ if row.when else None, "let": row.let.__name__ if row.let else None,
        "do": [each.__name__ for each in row.do], "again": row.again,
    }  # fmt: skip
    return {**said, "why": row.why} if row.why else said


def schema(title: str, **more: Json) -> Json:
    """Return the JSON Schema of an export; `more`: what else it says of the protocol itself."""
    text, number, flag, nothing = {"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"}
    maybe = {"anyOf": [text, nothing]}
    field = _object({"name": text, "type": text}, doc=text, min=number, max=number, max_length=number)
    function = _object({"name": text, "doc": text, "python": text})
    row = _object(
        {"verb": {"enum": ["row", "ignore", "refuse"]}, "from": text, "event": text, "to": text, "when": maybe,
         "let": maybe, "do": _list(text), "again": flag},
        why=text,
    )  # fmt: skip
    state = _object({"number": number, "name": text, "doc": text, "timer": maybe})
    machines = _object(
        {"name": text, "initial": text, "final": _list(text), "tombstones": flag, "states": _list(state),
         "events": _list(text), "value": _list(field), "guards": _list(function), "changes": _list(function),
         "effects": _list(function), "helpers": _list(function), "rows": _list(row)},
    )  # fmt: skip
    member = _object({"number": number, "name": text, "doc": text})
    whole = _object(
        {"format": {"const": FORMAT}, "protocol": _object({"name": text, **more, "digest": text}),
         "bounds": {"type": "object", "additionalProperties": number},
         "enums": {"type": "object", "additionalProperties": _list(member)},
         "structs": {"type": "object", "additionalProperties": _list(field)},
         "messages": _list(_object({"name": text, "sender": text, "doc": text, "fields": _list(field)})),
         "events": _list(_object({"name": text, "machine": text, "doc": text, "fields": _list(field)})),
         "effects": _list(_object({"name": text, "internal": flag, "doc": text, "fields": _list(field)})),
         "timers": _list(_object({"name": text, "period": number, "tries": number, "doc": text})),
         "machines": _list(machines)},
    )  # fmt: skip
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **whole}


def _object(required: Json, **optional: Json) -> Json:
    return {"type": "object", "properties": {**required, **optional}, "required": list(required),
            "additionalProperties": False}  # fmt: skip


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def text(document: Json) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
