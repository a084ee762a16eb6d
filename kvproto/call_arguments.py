"""Call arguments: checks the arguments of public calls against the types of their signatures.

Without a check a wrong argument travels on, and becomes a TypeError deep in a library, or later on the loop's thread,
where its caller is unknown.  A checked call raises WrongTypeError at once.  Two decorators read the signature:

    checked       checks each argument before the call: for constructors and rare calls
    explained     checks them only after the call has raised an error of wrong types: for calls per room

A whole number is an object whose `__index__` answers, so numpy's numbers count, and `True` does not.  An object is of a
protocol if it has its names.  A hint that cannot be resolved at run time is not checked.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, Union

from kvproto.errors import ArgumentError

P = ParamSpec("P")
T = TypeVar("T")
#: characters of a wrong value in the error
SHOWN = 80


class WrongTypeError(ArgumentError, TypeError):
    """An argument of a type that the call cannot use."""


def checked(call: Callable[P, T]) -> Callable[P, T]:
    """Check every argument before the call.  Raises WrongTypeError."""

    @functools.wraps(call)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        check_arguments(call, args, kwargs)
        return call(*args, **kwargs)

    return wrapper


def explained(call: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments after a call has failed with an error of wrong types.  Raises WrongTypeError."""

    @functools.wraps(call)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except (TypeError, AttributeError, OverflowError):
            check_arguments(call, args, kwargs)
            raise

    return wrapper


def check_arguments(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise WrongTypeError for the first argument of a wrong type; leave a missing one to Python."""
    try:
        given = inspect.signature(call).bind(*args, **kwargs).arguments
    except TypeError:
        return
    hints = _hints(call)
    for name, value in given.items():
        hint = hints.get(name, Any)
        if not matches(value, hint):
            shown = repr(value)
            shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
            where = call.__qualname__.removesuffix(".__init__")
            raise WrongTypeError(f"{where}: {name} is {shown}, of type {type(value).__name__}: it is {_words(hint)}")


@functools.cache
def _hints(call: Callable[..., Any]) -> dict[str, Any]:
    """The hints that can be resolved, by name."""
    found = dict[str, Any]()
    for name, text in inspect.get_annotations(call).items():
        try:
            found[name] = eval(text, call.__globals__) if isinstance(text, str) else text  # noqa: S307 - our own text
        except NameError:  # imported for type checkers alone
            continue
    return found


def matches(value: Any, hint: Any) -> bool:
    """Whether a value can be what the hint says."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(matches(value, each) for each in typing.get_args(hint))
    if origin is Literal:
        return type(value) in {type(each) for each in typing.get_args(hint)}  # which ones, the call itself says
    if hint in _PLAIN:
        return _PLAIN[hint](value)
    if origin is not None and issubclass(origin, Sequence):
        items = typing.get_args(hint)[0] if typing.get_args(hint) else Any
        listed = all(hasattr(value, name) for name in ("__len__", "__getitem__"))
        listed = listed and not isinstance(value, str | bytes | dict)
        return listed and all(matches(each, items) for each in value)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    if origin is not None:
        return callable(value) if origin is Callable else True
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(hint) if not name.startswith("_"))
    return not isinstance(hint, type) or isinstance(value, hint)


def is_whole(value: Any) -> bool:
    """Whether it is a whole number; a bool is none."""
    if isinstance(value, bool):
        return False
    try:
        operator.index(value)
    except Exception:  # noqa: BLE001  # an array of several numbers has the name, and raises as it likes
        return False
    return True


def whole(name: str, value: Any) -> int:
    """The value as an int.  Raises WrongTypeError."""
    if not is_whole(value):
        raise WrongTypeError(f"{name} is {value!r}, of type {type(value).__name__}: it is a whole number")
    return operator.index(value)


#: hints that are not looked at by isinstance
_PLAIN: dict[Any, Callable[[Any], bool]] = {
    int: is_whole,
    float: lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def _words(hint: Any) -> str:
    if typing.get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_words(each) for each in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if hint in (int, float):
        return "a whole number" if hint is int else "a number"
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))
