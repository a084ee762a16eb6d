"""Structs as plain JSON values and back, in a form that people read and other languages understand.

A struct becomes an object; where it is one of many (an event, an effect, a message) its `type` is named.  Enum members
go by name, bytes as hex digits, and a room's key as `"ID.GEN"`: room ids may have 64 bits, and many JSON readers lose
digits beyond 53.  Infinity is null.  What comes back is equal to what went in, and is checked field by field.
"""

from __future__ import annotations

import math
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from kvproto.errors import KvprotoError
from kvproto.fsm import vocabulary
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.protocol import effects, events, messages
from kvproto.protocol.events import room_key, room_of

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
S = TypeVar("S", bound=msgspec.Struct)


class PlainError(KvprotoError, ValueError):
    """A value that does not fit the type it should have; the sentence names the place."""


def _named(base: type, *modules: object) -> dict[str, type[msgspec.Struct]]:
    found: dict[str, type[msgspec.Struct]] = {}
    for cls in (each for module in modules for each in vars(module).values()):
        if isinstance(cls, type) and issubclass(cls, base) and issubclass(cls, msgspec.Struct) and cls is not base:
            found[str(cls.__struct_config__.tag or cls.__name__)] = cls
    return found


EVENTS = _named(Event, vocabulary, events)
EFFECTS = _named(Effect, vocabulary, effects)
MESSAGES = _named(messages.Body, messages)
_MANY = {Event: EVENTS, Effect: EFFECTS, messages.Body: MESSAGES}


@cache
def hints(cls: Any) -> dict[str, Any]:
    """The fields of a struct with their types, in order."""
    found = get_type_hints(cls, include_extras=True)
    return {field.name: found[field.name] for field in msgspec.structs.fields(cls)}


def plain(value: object, name: str = "") -> Plain:
    """The plain form; `name` is the field that holds the value."""
    if isinstance(value, Enum):
        return value.name
    if name == "room" and isinstance(value, int):
        return "{}.{}".format(*room_of(value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and math.isinf(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, msgspec.Struct):
        said: dict[str, Plain] = {field: plain(getattr(value, field), field) for field in value.__struct_fields__}
        kind = _type(value)
        return {"type": kind, **said} if kind else said
    raise PlainError(f"{type(value).__name__} has no plain form")


def _type(value: msgspec.Struct) -> str:
    for base in _MANY:
        if isinstance(value, base):
            tag = type(value).__struct_config__.tag
            return str(tag) if tag else type(value).__name__
    return ""


def struct(cls: type[S], data: object, where: str = "", given: dict[str, object] | None = None) -> S:
    """The struct of this class (for a base of many: of the `type` that the data names); `given` is taken as it is."""
    where = where or cls.__name__
    if not isinstance(data, dict):
        raise PlainError(f"{where}: an object is expected, not {data!r}")
    made: type[msgspec.Struct] = cls
    if cls in _MANY:
        name = data.get("type")
        if name not in _MANY[cls]:
            raise PlainError(f"{where}: there is no {cls.__name__.lower()} {name!r}")
        made = _MANY[cls][name]
    wanted = hints(made)
    wrong = set(data) - {"type"} ^ set(wanted)
    if wrong:
        known = ", ".join(wanted) or "none"
        raise PlainError(f"{where}: the fields of {made.__name__} are: {known}; look at {sorted(wrong)}")
    given = given or {}
    read = {n: _value(hint, data[n], n, f"{where}.{n}") for n, hint in wanted.items() if n not in given}
    return made(**read, **given)  # type: ignore[return-value]


def _value(hint: Any, data: object, name: str, where: str) -> object:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (UnionType, Union):
        choices = [each for each in get_args(hint) if each is not type(None)]
        if data is None and len(choices) < len(get_args(hint)):
            return None
        hint = messages.Body if len(choices) > 1 else choices[0]
    if name == "room" and hint is int:
        return room_from(data, where)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return struct(hint, data, where)
    if isinstance(hint, type) and issubclass(hint, Enum) and data in hint.__members__:
        return hint[str(data)]
    return _simple(hint, data, where)


def _simple(hint: Any, data: object, where: str) -> object:
    if hint is bytes and isinstance(data, str):
        return bytes.fromhex(data)
    if hint is float and (data is None or isinstance(data, int | float)):
        return math.inf if data is None else float(data)
    if get_origin(hint) is Literal or (isinstance(hint, type) and type(data) is hint):
        return data
    raise PlainError(f"{where}: {data!r} is no {getattr(hint, '__name__', hint)}")


def room_from(data: object, where: str) -> int:
    """The room key that `"ROOM.GEN"` names."""
    room, dot, gen = str(data).partition(".")
    if not (dot and room.isdecimal() and gen.isdecimal()):
        raise PlainError(f"{where}: {data!r} is no room; write ROOM.GEN")
    return room_key(int(room), int(gen))
