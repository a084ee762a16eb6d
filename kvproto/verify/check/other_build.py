"""OtherBuild: another build's package beside this one, and values that are translated between the two.

The other package is copied under a name of its own, with its imports rewritten, so both builds run in one process with
their own tables, ranks and nodes.  A value crosses by the names of its fields, as on the wire: a field that the
receiver does not know is passed over, one that it misses has its default.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from kvproto.fsm.errors import ArgumentError, KvprotoError

HERE, OTHER = "kvproto", "kvproto_beside"
IMPORT = r"^(\s*(?:from|import) )kvproto(?=\s|\.(?!{shared}))"


@contextmanager
def beside(folder: Path, name: str, shared: Collection[str] = ()) -> Iterator[None]:
    """Make the `kvproto` package of this folder importable under `name` while the block runs.

    `shared`: subpackages of which both builds use the running one's.  ArgumentError: there is no package.
    """
    source = folder / HERE
    if not (source / "__init__.py").is_file():
        raise ArgumentError(f"there is no package kvproto in {folder}: name a checkout, or an unpacked wheel")
    own = re.compile(IMPORT.format(shared="|".join(rf"{each}\b" for each in shared) or r"\b\B"), re.MULTILINE)
    with TemporaryDirectory(prefix="kvproto-") as copies:
        copy = Path(copies, name)
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for file in copy.rglob("*.py"):
            text = file.read_text()
            file.unlink()  # it may be a link to the source
            file.write_text(own.sub(rf"\g<1>{name}", text))
        sys.path.insert(0, copies)
        try:
            yield
        finally:
            sys.path.remove(copies)
            for module in [each for each in sys.modules if each.partition(".")[0] == name]:
                del sys.modules[module]


class UnknownError(KvprotoError, LookupError):
    """The other build has no such class, or no such member."""


class Translation:
    """Values of one package as values of another; what is of neither is the same in both."""

    def __init__(self, source: str, target: str) -> None:
        """Translate from the package `source` to the package `target`."""
        self._source, self._target = source, target
        self._makers: dict[type, Callable[[Any], Any]] = {tuple: self._items}

    def __call__(self, value: Any) -> Any:
        """Return the value as the target package has it.  UnknownError: it has no such class or member."""
        maker = self._makers.get(type(value))
        if maker is None:
            maker = self._makers[type(value)] = self._maker(type(value))
        return maker(value)

    def _items(self, some: Collection[Any]) -> tuple[Any, ...]:
        return tuple(map(self, some))

    def _maker(self, kind: type) -> Callable[[Any], Any]:
        if kind.__module__.partition(".")[0] != self._source:
            return lambda value: value
        there = self._class(kind)
        if issubclass(kind, Enum):
            return lambda value: _member(there, value.name)
        if not issubclass(kind, tuple | msgspec.Struct):
            raise UnknownError(f"{kind.__qualname__} is no value that crosses from build to build")
        both = [name for name in _fields(kind) if name in _fields(there)]
        return lambda value: there(**{name: self(getattr(value, name)) for name in both})

    def _class(self, kind: type) -> Any:
        module = self._target + kind.__module__.removeprefix(self._source)
        try:
            return getattr(import_module(module), kind.__qualname__)
        except (ImportError, AttributeError):
            raise UnknownError(f"the other build has no {kind.__qualname__}") from None


def _fields(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = kind.__struct_fields__ if issubclass(kind, msgspec.Struct) else kind._fields
    return names


def _member(there: Any, name: str) -> Any:
    try:
        return there[name]
    except KeyError:
        raise UnknownError(f"the other build's {there.__qualname__} has no {name}") from None


class OtherBuild:
    """A build that is importable beside this one."""

    def __init__(self, name: str = OTHER) -> None:
        """`name`: under which it is imported, see `beside`."""
        self.name = name
        self.theirs, self.ours = Translation(HERE, name), Translation(name, HERE)

    def get(self, place: str) -> Any:
        """Return what stands there, `module.NAME` below the package."""
        module, _, name = place.rpartition(".")
        return getattr(import_module(f"{self.name}.{module}"), name)

    def config(self, config: Any) -> Any:
        """Return a world's configuration as the other build has it.  ArgumentError: it lacks a setting."""
        there = self.get("verify.check.config.Config")
        plain = {name: getattr(config, name) for name in config.__struct_fields__}
        default = type(config)()
        unknown = [n for n, v in plain.items() if n not in there.__struct_fields__ and v != getattr(default, n)]
        if unknown:
            raise ArgumentError(f"the other build's worlds have no {', '.join(unknown)}")
        return self.theirs(config)

