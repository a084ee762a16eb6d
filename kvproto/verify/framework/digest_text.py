"""Digest text: values, types and tables as text, and a hash of each part, which two ends compare.

From a few roots the text follows what they name: a constant is its value, a struct its fields in their order with
types, bounds and tag, an enum its members, a class its methods, a function its code (`digest_code`). What belongs to
another package is only named. What cannot be said is an error, never left out.

The text is cut into parts, each with a name, so that two ends that differ can say by name on what.  A definition stands
once, in the first part that reaches it; later ones refer to it.  References name the part, not the module: a function
that moves to another file is the same function.
"""

from __future__ import annotations

import hashlib
import inspect
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from kvproto.fsm.digest import joined
from kvproto.fsm.routing import Routes
from kvproto.fsm.table import Table
from kvproto.verify.framework.digest_code import CodeWriter, DigestError, SourceTexts

#: hex digits of a part's hash, which guards against accidents: one in four thousand million goes unseen
DIGITS = 8
#: fields of a row that change nothing
FOR_READERS = frozenset({"index", "why", "file", "line"})
#: values that are said as they are written
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
#: places of a class's fields
SLOTS = (GetSetDescriptorType, MemberDescriptorType)
#: what a `msgspec.Meta` says beside words for people
BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")


class DigestTexts:
    """Makes parts, one after the other."""

    def __init__(self) -> None:
        self._sources = SourceTexts()
        self._part = ""
        self._labels: dict[Any, str] = {}
        self._named: Counter[str] = Counter()
        self._todo: list[Any] = []

    def part(self, name: str, roots: Iterable[object]) -> str:
        """The text of these, and the definitions of all that they name and no earlier part has defined."""
        self._part = name
        lines = [self.value(root, "") for root in roots]
        while self._todo:
            thing = self._todo.pop(0)
            says = self._class(thing) if isinstance(thing, type) else self._function(thing)
            lines.append(f"{self._labels[thing]} is {says}")
        return "\n".join(lines)

    # ------------------------------------------------------------------------------------------- values
    def value(self, value: Any, package: str) -> str:
        """The text of a value that code of this package names ("": of any)."""
        if type(value) in PLAIN:
            return ascii(value)
        if value is msgspec.UNSET:
            return "unset"
        if isinstance(value, Enum):
            return f"{self._reference(type(value), package)}.{value.name}"
        if isinstance(value, tuple):
            return f"({', '.join(self.value(each, package) for each in value)})"
        if isinstance(value, frozenset):
            return f"{{{', '.join(sorted(self.value(each, package) for each in value))}}}"
        if isinstance(value, msgspec.Struct):
            fields = (f"{name}={self.value(getattr(value, name), package)}" for name in value.__struct_fields__)
            return f"{self._reference(type(value), package)}({', '.join(fields)})"
        if isinstance(value, struct.Struct):
            return f"format {value.format!a}"
        if isinstance(value, msgspec.msgpack.Decoder):
            return f"decoder of {self._type(value.type, package)}"
        if isinstance(value, msgspec.msgpack.Encoder):
            return "encoder"
        return self._type(value, package) if get_origin(value) is not None else self._reference(value, package)

    def _reference(self, thing: Any, package: str) -> str:
        """The name of a function, a class or a module; what is of this package is defined, too."""
        thing = _bare(thing)
        if not isinstance(thing, type | ModuleType) and not inspect.isroutine(thing):
            kind = type(thing).__name__
            raise DigestError(f"a {kind} ({thing!r:.60}) has no text that lasts: name a constant, a type or a function")
        home = _package(thing)
        if isinstance(thing, ModuleType) or home != (package or home):
            return f"{home}:{thing.__name__}"
        if thing not in self._labels:
            name = f"{self._part}/{thing.__qualname__}"
            self._named[name] += 1
            self._labels[thing] = name if self._named[name] == 1 else f"{name} {self._named[name]}"
            self._todo.append(thing)
        return self._labels[thing]

    def _function(self, function: Any) -> str:
        if not isinstance(function, FunctionType):
            raise DigestError(f"{function.__qualname__} is no plain function of Python: it has no source to compare")
        package = _package(function)
        return CodeWriter(function, lambda value: self.value(value, package)).text(self._sources.tree(function))

    # ------------------------------------------------------------------------------------------ classes
    def _class(self, cls: type) -> str:
        """Bases, members, methods; of an exception the bases: what it says is for people."""
        package = _package(cls)
        said = [self._reference(base, package) for base in cls.__bases__]
        if issubclass(cls, Enum):
            said += [f"{name} = {self.value(each.value, package)}" for name, each in cls.__members__.items()]
        if issubclass(cls, msgspec.Struct):
            said += self._fields(cls, package)
        if not issubclass(cls, BaseException):
            said += self._members(cls, package)
        return f"class {', '.join(said)}"

    def _fields(self, cls: type[msgspec.Struct], package: str) -> Iterator[str]:
        config = cls.__struct_config__
        yield f"{'array' if config.array_like else 'map'} {config.tag!a} strict={config.forbid_unknown_fields}"
        for field in msgspec.structs.fields(cls):
            said = f"{field.encode_name}: {self._type(field.type, package)}"
            if field.default_factory is not msgspec.NODEFAULT:
                said += f" = {self.value(field.default_factory, package)}()"
            yield said if field.default is msgspec.NODEFAULT else f"{said} = {self.value(field.default, package)}"

    def _members(self, cls: type, package: str) -> Iterator[str]:
        """Methods and constants, without what a library adds, which differs between its versions."""
        for name, each in sorted(vars(cls).items()):
            bare = _bare(each)
            if isinstance(bare, FunctionType) and _package(bare) == package:
                yield f"{name}: {'' if each is bare else type(each).__name__} {self._function(bare)}"
            elif not (name.startswith("__") or issubclass(cls, Enum) or isinstance(each, SLOTS)):
                yield f"{name} = {self.value(each, package)}"

    def _type(self, hint: Any, package: str) -> str:
        """A type with its bounds; of a union, or of a choice, the order means nothing."""
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Annotated:
            bounds = [(name, getattr(meta, name, None)) for meta in inner[1:] for name in BOUNDS]
            return self._type(inner[0], package) + "".join(f" {name} {at!a}" for name, at in bounds if at is not None)
        if origin in (Union, UnionType):
            return " or ".join(sorted(self._type(each, package) for each in inner))
        if origin is Literal:
            return f"one of ({', '.join(sorted(map(ascii, inner)))})"
        if origin is not None:
            return f"{self._reference(origin, package)}[{', '.join(self._type(each, package) for each in inner)}]"
        return self.value(hint, package)


def _bare(thing: Any) -> Any:
    """The function within a property or a method of a class, or in a wrapper that names it (a cache)."""
    if isinstance(thing, property):
        thing = thing.fget
    elif isinstance(thing, cached_property):
        thing = thing.func
    elif isinstance(thing, classmethod | staticmethod):
        thing = thing.__func__
    return thing if isinstance(thing, type) else inspect.unwrap(thing)


def _package(thing: Any) -> str:
    """Name the top-level package of a thing; a library's compiled half (`_heapq`) is the library."""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None) or "builtins"
    return str(name).partition(".")[0].lstrip("_")


def table_says(table: Table[Any]) -> Iterator[object]:
    """Yield the roots of a part that says what a table says."""
    yield from (table.value, table.tombstones, table.initial, table.events)
    yield from ((state, state in table.final, table.timers.get(state)) for state in table.states)
    yield from table.periods.items()
    for row in table.rows:
        yield tuple(getattr(row, name) for name in row.__struct_fields__ if name not in FOR_READERS)


def routes_say(routes: Routes) -> Iterator[object]:
    """Yield the roots of a part that says what a rank's routes say."""
    yield from (routes.messages, routes.facts)
    for route in routes.routes:
        yield tuple(getattr(route, name) for name in route.__struct_fields__ if name not in FOR_READERS)


def digest(parts: Mapping[str, str]) -> str:
    return joined({name: shortened(text) for name, text in parts.items()})


def digest_of(tables: Iterable[Table[Any]], routes: Iterable[Routes]) -> str:
    """Return the digest of a protocol that is its tables, its routes and their messages."""
    texts = DigestTexts()
    said = {"routes": texts.part("routes", [part for each in routes for part in routes_say(each)])}
    return digest(said | {table.name: texts.part(table.name, table_says(table)) for table in tables})


def shortened(text: str) -> str:
    """DIGITS hex digits, equal where texts are."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
