"""Plain JSON: converts structs to JSON values that people and other languages read, and back.

A struct becomes an object; one of many kinds (an event, an effect, a message) has a `type`.  Members of enums are
names, bytes are hex digits, and infinity is null.  A protocol may define its own form of a field (`forms`): a key whose
parts people know, or a number with more digits than many JSON readers keep.  The way back gives an equal value, and
checks each field: its type, and the bounds of numbers.  Bounds matter where a number is a place in a mask or a count:
a doctored number must not allocate memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UnsetType

from kvproto.fsm.errors import KvprotoError

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
StructByName = Mapping[str, type[msgspec.Struct]]
#: by field name: the least and the most that a number may be
Bounds = Mapping[str, tuple[float, float]]
#: of any other number: as large as a mask that can be written, and a time that can be added to
LARGEST_INT, LARGEST_FLOAT = 1 << 14_000, 1e15
DIGITS = 20
S = TypeVar("S", bound=msgspec.Struct)


class PlainError(KvprotoError, ValueError):
    """A value that does not fit the type it should have; the sentence names the place."""


class FieldForm(NamedTuple):
    """How a field is written and read (`read` gets the place, for its `PlainError`)."""

    write: Callable[[Any], Plain]
    read: Callable[[object, str], Any]


def named(base: type, things: Iterable[object]) -> dict[str, type[msgspec.Struct]]:
    """The structs below `base` among these, by their tag or name; of two with one name the last."""
    found: dict[str, type[msgspec.Struct]] = {}
    for cls in things:
        if isinstance(cls, type) and issubclass(cls, base) and issubclass(cls, msgspec.Struct) and cls is not base:
            found[str(cls.__struct_config__.tag or cls.__name__)] = cls
    return found


@cache
def hints(cls: Any) -> dict[str, Any]:
    """The fields of a struct with their types, in order."""
    found = get_type_hints(cls, include_extras=True)
    return {field.name: found[field.name] for field in msgspec.structs.fields(cls)}


class PlainJson:
    """Writes and reads the structs of one protocol."""

    def __init__(
        self, kinds: dict[type, StructByName], forms: Mapping[str, FieldForm], bounds: Bounds | None = None
    ) -> None:  # fmt: skip
        """`kinds`: by base, the structs of which only one's `type` tells which it is; the rest by field name."""
        self.kinds, self.forms, self.bounds = kinds, forms, bounds or {}

    def plain(self, value: object, name: str = "") -> Plain:
        """The plain form; `name` is the field that holds the value."""
        if isinstance(value, Enum):
            return value.name
        if name in self.forms and isinstance(value, int | bytes):
            return self.forms[name].write(value)
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, float) and math.isinf(value):
            return None
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, tuple | list):
            return [self.plain(each) for each in value]
        if isinstance(value, dict):
            return {str(key): self.plain(each) for key, each in value.items()}
        if isinstance(value, msgspec.Struct):
            fields = {field: getattr(value, field) for field in value.__struct_fields__}
            said: dict[str, Plain] = {
                field: self.plain(each, field) for field, each in fields.items() if each is not msgspec.UNSET
            }
            kind = self._type(value)
            return {"type": kind, **said} if kind else said
        raise PlainError(f"{type(value).__name__} has no plain form")

    def _type(self, value: msgspec.Struct) -> str:
        if isinstance(value, tuple(self.kinds)):
            tag = type(value).__struct_config__.tag
            return str(tag) if tag else type(value).__name__
        return ""

    def struct(self, cls: type[S], data: object, where: str = "", given: dict[str, object] | None = None) -> S:
        """Return the struct of this class, or of the `type` that the data names; `given` is taken as it is."""
        where = where or cls.__name__
        if not isinstance(data, dict):
            raise PlainError(f"{where}: an object is expected, not {_short(data)}")
        made: type[msgspec.Struct] = cls
        if cls in self.kinds:
            name = str(data.get("type"))
            if name not in self.kinds[cls]:
                raise PlainError(f"{where}: there is no {cls.__name__.lower()} {_short(name)}")
            made = self.kinds[cls][name]
        wanted = hints(made)
        # As on the wire, a field that may be unset is left out then.
        wanted = {n: hint for n, hint in wanted.items() if n in data or UnsetType not in get_args(hint)}
        wrong = set(data) - {"type"} ^ set(wanted)
        if wrong:
            known = ", ".join(wanted) or "none"
            raise PlainError(f"{where}: the fields of {made.__name__} are: {known}; look at {_short(sorted(wrong))}")
        given = given or {}
        read = {n: self.value(hint, data[n], n, f"{where}.{n}") for n, hint in wanted.items() if n not in given}
        try:
            return made(**read, **given)  # type: ignore[return-value]
        except ValueError as error:  # what the class says of itself
            raise PlainError(f"{where}: {error}") from error

    def value(self, hint: Any, data: object, name: str, where: str) -> object:
        """A field's value, of the type that its hint says."""
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        if get_origin(hint) in (UnionType, Union):
            return self._union(get_args(hint), data, name, where)
        if name in self.forms and hint in (int, bytes):
            return self.forms[name].read(data, where)
        if hint is Any and isinstance(data, dict) and self.kinds:
            hint = list(self.kinds)[-1]  # a message that leaves
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self.struct(hint, data, where)
        if isinstance(hint, type) and issubclass(hint, Enum) and isinstance(data, str) and data in hint.__members__:
            return hint[data]
        if get_origin(hint) is tuple and isinstance(data, list):
            return self._tuple(get_args(hint), data, where)
        if get_origin(hint) is dict and isinstance(data, dict):
            key, value = get_args(hint)
            return {_key(key, each, where): self.value(value, data[each], "", f"{where}.{each}") for each in data}
        return self._simple(hint, data, name, where)

    def _union(self, hints: tuple[Any, ...], data: object, name: str, where: str) -> object:
        choices = [each for each in hints if each not in (type(None), UnsetType)]
        if data is None and type(None) in hints:
            return None
        return self.value(choices[0] if len(choices) == 1 else self._base(choices, where), data, name, where)

    def _base(self, choices: list[Any], where: str) -> type:
        """Return the common base of these choices."""
        for base in self.kinds:
            if all(isinstance(each, type) and issubclass(each, base) for each in choices):
                return base
        raise PlainError(f"{where}: which of {choices} it is cannot be told")

    def _tuple(self, inner: tuple[Any, ...], data: list[Any], where: str) -> tuple[object, ...]:
        if len(inner) == 2 and inner[1] is Ellipsis:  # noqa: PLR2004  # tuple[each, ...]
            inner = (inner[0],) * len(data)
        if len(inner) != len(data):
            raise PlainError(f"{where}: {len(inner)} values are expected, not {len(data)}")
        return tuple(self.value(hint, each, "", where) for hint, each in zip(inner, data, strict=True))

    def _simple(self, hint: Any, data: object, name: str, where: str) -> object:
        if hint is bytes and isinstance(data, str):
            return _bytes(data, where)
        if hint is float and data is None:
            return math.inf
        if hint is float and type(data) in (int, float):
            least, most = self.bounds.get(name, (-LARGEST_FLOAT, LARGEST_FLOAT))
            return float(_within(data, least, most, where))
        if hint is int and type(data) is int:
            least, most = self.bounds.get(name, (-LARGEST_INT, LARGEST_INT))
            return _within(data, least, most, where)
        if hint in (bool, str) and type(data) is hint:
            return data
        if get_origin(hint) is Literal and any(type(each) is type(data) and each == data for each in get_args(hint)):
            return data
        raise PlainError(f"{where}: {_short(data)} is no {getattr(hint, '__name__', hint)}")


def _within(data: Any, least: float, most: float, where: str) -> Any:
    if not least <= data <= most:
        raise PlainError(f"{where}: {_short(data)} is out of bounds")
    return data


def _bytes(data: str, where: str) -> bytes:
    try:
        return bytes.fromhex(data)
    except ValueError:
        raise PlainError(f"{where}: {_short(data)} is no bytes as hex digits") from None


def _key(kind: type, text: str, where: str) -> object:
    """An object's key: a text, or a whole number of at most 64 bits."""
    if kind is int:
        if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS):
            raise PlainError(f"{where}: the key {_short(text)} is no whole number")
        return int(text)
    return text


def _short(data: object, most: int = 80) -> str:
    text = repr(data)
    return text if len(text) <= most else f"{text[:most]}..."
