"""Every argument of every public constructor and method refuses wrong values of every kind by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Literal, Protocol

import numpy as np
import pytest
import torch

import kvproto
from kvproto import (
    ArgumentError,
    CachePool,
    DecodeEndpoint,
    Fabric,
    HostPool,
    Keys,
    KvprotoError,
    Layout,
    LayoutError,
    MemoryTransport,
    Plan,
    Pool,
    PrefillEndpoint,
    Room,
    Settings,
    Timer,
    Timing,
)
from kvproto.call_arguments import WrongTypeError, checked, explained, matches, whole

LAYOUT: dict[str, Any] = {
    "layers": 1, "heads": 1, "k_dim": 8, "v_dim": 8, "itemsize": 1, "dtype": "int8", "page_size": 16, "tp": 1,
}  # fmt: skip
ODD: tuple[Any, ...] = (
    1 << 40, 1 << 64, -(1 << 70), -1, 0, 1.5, 16.0, math.nan, math.inf, True, False, "x", b"x", [], (), {}, [object()],
    np.float32(2.0), np.int64(-3), np.uint64((1 << 64) - 1), np.arange(2), torch.zeros(2), object(), object, 1j,
)  # fmt: skip


CACHES = Layout.of_caches([kvproto.Cache("kv", (kvproto.CachePart("k", 1, 8),))], layers=1, page_size=16, tp=1)


def pool() -> Pool:
    k, v = ([torch.zeros((16, 16, 1, 8), dtype=torch.int8)] for _ in "kv")
    return Pool(k, v)


def made(call: type, given: dict[str, Any]) -> Any:
    """An endpoint with its own parts, or whatever the call makes of what is given."""
    if call in (PrefillEndpoint, DecodeEndpoint):
        parts = {"layout": Layout(**LAYOUT), "index": 0, "pool": pool()}
        given = {**parts, "transport": MemoryTransport(Fabric(auto=True)), **given}
    return call(**given)


#: a public call, and what else it is given
CONSTRUCTORS: dict[type, Callable[[], dict[str, Any]]] = {
    Layout: lambda: LAYOUT,
    Plan: lambda: {"prefill": Layout(**LAYOUT), "decode": Layout(**LAYOUT), "chunk_tokens": 16},
    Room: lambda: {"id": 1}, Timer: lambda: {"period": 1.0}, Timing: dict, Settings: dict,
    Pool: lambda: {"k": pool().k, "v": pool().v},
    PrefillEndpoint: lambda: {"chunk_tokens": 16}, DecodeEndpoint: dict, Fabric: dict,
    HostPool: lambda: {"above": pool(), "pages": 2},
}  # fmt: skip


@pytest.mark.parametrize("call", CONSTRUCTORS, ids=lambda call: call.__name__)
def test_a_constructor_refuses_by_name_what_it_cannot_use(call: type) -> None:
    """It may take a value; what else comes out of it is our own error."""
    wrong = []
    for name in inspect.signature(call).parameters:
        for value in ODD:
            try:
                result = made(call, {**CONSTRUCTORS[call](), name: value})
            except KvprotoError:
                continue
            except Exception as error:  # noqa: BLE001 - what is looked for
                wrong.append(f"{call.__name__}({name}={value!r}): {type(error).__name__}: {error}")
            else:
                if isinstance(result, PrefillEndpoint | DecodeEndpoint):
                    result.close()
    assert not wrong, "\n".join(wrong)


FUNCTIONS: dict[Callable[..., Any], dict[str, Any]] = {
    kvproto.Layout.of_caches: {"caches": (), "layers": 1, "page_size": 16, "tp": 1},
    CachePool: {"layout": CACHES, "rank": 0, "parts": {}, "tensors": {}, "left_out": {}, "slot_of": ()},
    HostPool(pool(), 2).lift: {"taken": [0], "pages": [0], "tokens": 8},
    Keys.load: {"secret_file": "/nowhere/at/all"}, kvproto.ResumePoint.decode: {"text": "{}"},
    kvproto.PageDigests.decode: {"text": "{}"}, kvproto.resume_prefix: {"receivers": [], "senders": []},
    kvproto.NixlTransport: {"instance": "", "params": {}}, kvproto.MooncakeTransport: {"host": "", "protocol": ""},
}  # fmt: skip
#: what a library is told, which it refuses in words of its own
LIBRARYS = (kvproto.NixlTransport, kvproto.MooncakeTransport)


@pytest.mark.parametrize("call", FUNCTIONS, ids=lambda call: call.__qualname__)
def test_a_function_refuses_by_name_what_it_cannot_use(call: Callable[..., Any]) -> None:
    wrong = []
    for name, usual in FUNCTIONS[call].items():
        for value in ODD:
            if call in LIBRARYS and type(value) is type(usual):
                continue
            try:
                call(**{**FUNCTIONS[call], name: value})
            except KvprotoError:
                continue
            except Exception as error:  # noqa: BLE001 - what is looked for
                wrong.append(f"{name}={value!r}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def methods() -> Iterator[tuple[type, str]]:
    for side in (PrefillEndpoint, DecodeEndpoint):
        for name, method in inspect.getmembers(side, inspect.isfunction):
            if not name.startswith("_") and len(inspect.signature(method).parameters) > 1:
                yield side, name


#: what a call is given where it is not told: a value by the name of its parameter
USUAL: dict[str, Any] = {
    "room": Room(1), "tokens": 20, "pages": [1, 2], "upto": 16, "row": b"row", "addresses": ["tcp://127.0.0.1:9"],
    "layout": Layout(**LAYOUT), "chunk_tokens": 32, "path": "/nowhere/at/all", "every": 1.0, "timeout": 0.0,
    "prefix": 0,
    "group": 5, "cause": kvproto.Cause.DECLINED, "secret": b"", "within": 1.0, "traceparent": "", "layers": 1,
    "pool": pool(), "name": Room(2), "point": kvproto.ResumePoint(Room(1), 20, 0, 16),
}  # fmt: skip
#: values that the loop would carry out: an idle endpoint of no thread need not be started for this
LEFT_OUT = {"start", "adopt"}
LONGEST_WAIT_S = 0.0


@pytest.mark.parametrize(("side", "name"), [each for each in methods() if each[1] not in LEFT_OUT])
def test_a_method_refuses_by_name_what_it_cannot_use(side: type, name: str) -> None:
    wrong = []
    signature = inspect.signature(getattr(side, name)).parameters
    parameters = [each for each in signature if each != "self"]
    needed = [each for each in parameters if signature[each].default is inspect.Parameter.empty]
    for parameter in parameters:
        for value in ODD:
            if parameter == "timeout" and isinstance(value, int | float) and value > LONGEST_WAIT_S:
                continue  # it waits
            end = made(side, CONSTRUCTORS[side]())
            try:
                if name not in ("open", "announce"):
                    if side is PrefillEndpoint:
                        end.open(Room(1), 20, [1, 2])
                    end.poll()
                getattr(end, name)(**{**{each: USUAL[each] for each in needed}, parameter: value})
                end.poll()
            except (KvprotoError, FileNotFoundError):
                continue
            except Exception as error:  # noqa: BLE001 - what is looked for
                wrong.append(f"{name}({parameter}={value!r}): {type(error).__name__}: {error}")
            finally:
                end.close()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("chunk_tokens", [1 << 40, 1 << 64, 16.0, True, "16", None])
def test_chunk_tokens_is_a_number_of_tokens_that_a_room_can_have(chunk_tokens: Any) -> None:
    with pytest.raises((ArgumentError, LayoutError), match="chunk_tokens"):
        made(PrefillEndpoint, {"chunk_tokens": chunk_tokens})


def test_staging_that_the_machine_cannot_hold_is_refused_with_its_size() -> None:
    with pytest.raises(ArgumentError, match=r"bytes .* cannot be had.*lower"):
        made(DecodeEndpoint, {"settings": Settings(ring_bytes=(1 << 48) - 4096)})


def test_what_a_signature_says_is_what_is_refused() -> None:
    @checked
    def call(
        count: int, name: str | None, how: Literal["a", "b"] = "a", rest: Any = None, *, period: float = 1.0
    ) -> int:  # fmt: skip
        return count

    three: Any = np.int64(3)
    assert call(three, None) == 3 and call(1, "x", "b", object(), period=2) == 1
    cases: list[tuple[Any, Any, str]] = [
        ((True, None), {}, "count is True, of type bool: it is a whole number"),
        ((1.0, None), {}, "count is 1.0, of type float: it is a whole number"),
        ((1, b"x"), {}, "name is b'x', of type bytes: it is str or None"),
        ((1, None, 2), {}, "how is 2, of type int: it is 'a' or 'b'"),
        ((1, None), {"period": "long" * 50}, "of type str: it is a number"),
    ]  # fmt: skip
    for args, kwargs, told in cases:
        with pytest.raises(WrongTypeError, match=told) as raised:
            call(*args, **kwargs)
        assert len(str(raised.value)) < 250
    with pytest.raises(TypeError, match=r"call\(\) missing 1 required positional argument"):
        call(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("over", [0, 1])
def test_a_long_value_is_shown_by_its_beginning(over: int) -> None:
    @checked
    def call(count: int) -> int:
        return count

    value: Any = "x" * (78 + over)  # eighty characters with its quotes, or one more
    with pytest.raises(WrongTypeError) as raised:
        call(value)
    assert f"count is {repr(value)[:80]}{'...' * over}, of type str" in str(raised.value)


def test_a_hint_that_is_there_for_type_checkers_alone_is_not_checked_and_the_others_are() -> None:
    def call(odd: Any, count: int) -> int:
        return count

    call.__annotations__["odd"] = "NowhereAtRunTime"
    assert checked(call)(object(), 2) == 2
    with pytest.raises(WrongTypeError, match="count is 'x'"):
        checked(call)(object(), "x")  # type: ignore[arg-type]


class Closing(Protocol):
    """Objects that have these names, as a hint."""

    name: str = ""

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "hint", "fits"),
    [(len, Callable[[Any], int], True), (5, Callable[[Any], int], False), ({"a": 1}, dict[str, int], True),
     (5, dict[str, int], False), (5, type[int], True), ([1, 2], Sequence[int], True), ((), Sequence[int], True),
     ([1, "x"], Sequence[int], False), ("x", Sequence[str], False), (b"x", Sequence[int], False),
     ({1: 2}, Sequence[int], False), ({1}, Sequence[int], False), ([1, "x"], list[int], False), ([1], list[int], True),
     (5, Sequence[int], False), ([1, "x"], Sequence[Any], True),
     (5, Sequence[Any], False), (SimpleNamespace(close=1, name=2), Closing, True), (SimpleNamespace(), Closing, False),
     (SimpleNamespace(close=1), Closing, False), (None, type(None), True), (0, type(None), False), (None, None, True),
     (5, "no type", True), (5, str, False), ("x", str, True)],
)  # fmt: skip
def test_of_a_value_it_is_asked_what_its_hint_can_tell(
    value: Any, hint: Any, fits: bool
) -> None:  # fmt: skip
    assert matches(value, hint) is fits


def test_a_call_that_fails_by_itself_keeps_its_error() -> None:
    @explained
    def call(count: int) -> int:
        return len(count) if count == 1 else count + 1  # type: ignore[arg-type]

    assert call(2) == 3
    with pytest.raises(TypeError, match="has no len"):
        call(1)
    with pytest.raises(ArgumentError, match="count is 'x'"):
        call("x")  # type: ignore[arg-type]
    assert whole("n", np.int64(7)) == 7
    with pytest.raises(ArgumentError, match=r"n is 7\.0"):
        whole("n", 7.0)
