"""Plain JSON: each type takes what fits it, and a refusal of anything else names its place."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from kvproto.fsm.plain_json import FieldForm, PlainError, PlainJson, hints, named


class Fact(msgspec.Struct, frozen=True):
    """A base of which only `type` tells the kind."""


class Seen(Fact, frozen=True):
    """One kind, by its name."""

    count: Annotated[int, "mask"]
    later: int | UnsetType = UNSET


class Said(Fact, frozen=True, tag="SAID"):
    """Another kind, by its tag."""

    room: int = 1
    period: float | None = None


class Body(msgspec.Struct, frozen=True):
    """The last base: what leaves."""


class Ack(Body, frozen=True):
    """A kind of that base."""

    chunk: int


class Plain(msgspec.Struct, frozen=True):
    """A struct that needs no `type`."""


class Odd(msgspec.Struct, frozen=True):
    """A struct that refuses even numbers itself."""

    number: int

    def __post_init__(self) -> None:
        if self.number % 2 == 0:
            raise ValueError("even")


class Colour(IntEnum):
    """Names."""

    RED = 0


FORM = FieldForm(lambda room: f"r{room}", lambda data, where: int(str(data)[1:]) if data != "r" else where)
KINDS: dict[type, Any] = {Fact: {"Seen": Seen, "SAID": Said}, Body: {"Ack": Ack}}
LARGEST_INT, LARGEST_FLOAT, DIGITS = 1 << 14_000, 1e15, 20
JSON = PlainJson(KINDS, {"room": FORM}, {"count": (0, 9), "period": (1, 4)})


# ----------------------------------------------------------------------------------------------- classes
def test_the_structs_below_a_base_are_named_by_tag_or_name_and_nothing_else_is() -> None:
    again = type("Seen", (Seen,), {})
    assert named(Fact, [Fact, 3, int, Ack, Seen, Said]) == {"Seen": Seen, "SAID": Said}
    assert named(Fact, [Seen, again]) == {"Seen": again}
    assert named(object, [int, Ack]) == {"Ack": Ack}


def test_the_fields_of_a_struct_come_in_order_with_what_is_noted_of_them() -> None:
    assert list(hints(Seen).items()) == [("count", Annotated[int, "mask"]), ("later", int | UnsetType)]


# ---------------------------------------------------------------------------------------------- and back
@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Seen(3), {"type": "Seen", "count": 3}),
        (Seen(9, 4), {"type": "Seen", "count": 9, "later": 4}),
        (Said(7, math.inf), {"type": "SAID", "room": "r7", "period": None}),
        (Ack(2), {"type": "Ack", "chunk": 2}),
    ],
)
def test_a_struct_of_a_kind_comes_back(value: Any, written: dict[str, Any]) -> None:
    base = Fact if isinstance(value, Fact) else Body
    assert JSON.plain(value) == written
    assert JSON.struct(base, written) == (Said(7, None) if isinstance(value, Said) else value)


@pytest.mark.parametrize(
    ("value", "name", "written"),
    [
        (None, "", None), (True, "", True), (1.5, "", 1.5), (-math.inf, "", None), ("x", "", "x"), (b"\n", "", "0a"),
        (Colour.RED, "", "RED"), ((1, b"\n"), "", [1, "0a"]), ({7: b"\n"}, "", {"7": "0a"}),
        (7, "room", "r7"), (None, "room", None), ("x", "room", "x"), (Plain(), "", {}),
    ],
)  # fmt: skip
def test_a_value_is_written_as_json_has_it(value: object, name: str, written: object) -> None:
    assert JSON.plain(value, name) == written


def test_what_has_no_plain_form_is_not_written() -> None:
    with pytest.raises(PlainError, match=r"^object has no plain form$"):
        JSON.plain(object())


@pytest.mark.parametrize(
    ("hint", "data", "read"),
    [
        (int, 5, 5), (int, LARGEST_INT, LARGEST_INT), (int, -LARGEST_INT, -LARGEST_INT),
        (float, 5, 5.0), (float, -LARGEST_FLOAT, -LARGEST_FLOAT), (float, None, math.inf),
        (bool, True, True), (str, "x", "x"), (bytes, "0a", b"\n"),
        (int | None, None, None), (int | None, 5, 5), (Colour, "RED", Colour.RED),
        (Literal["a", "b"], "b", "b"), (Literal[1, "a"], 1, 1),
        (tuple[int, ...], [], ()), (tuple[int, ...], [1, 2, 3], (1, 2, 3)), (tuple[int, str], [1, "x"], (1, "x")),
        (tuple[int], [1], (1,)),
        (dict[int, str], {"7": "x", "9" * DIGITS: "y"}, {7: "x", int("9" * DIGITS): "y"}),
        (dict[str, int], {"x": 1}, {"x": 1}),
        (Any, {"type": "Ack", "chunk": 2}, Ack(2)), (Seen | Said, {"type": "Seen", "count": 0}, Seen(0)),
        (Odd, {"number": 3}, Odd(3)), (Annotated[int, "mask"], 1, 1),
    ],
)  # fmt: skip
def test_a_type_takes_what_fits_it(hint: Any, data: object, read: object) -> None:
    found = JSON.value(hint, data, "it", "at")
    assert found == read and type(found) is type(read)


@pytest.mark.parametrize(
    ("hint", "data", "says"),
    [
        (int, True, "at: True is no int"), (int, None, "at: None is no int"), (int, [1], r"at: \[1\] is no int"),
        (int, {"a": 1}, "at: {'a': 1} is no int"), (int, "x", "at: 'x' is no int"),
        (int, 2 * LARGEST_INT, "at: .* is out of bounds"),
        (float, 1.01 * LARGEST_FLOAT, "at: .* is out of bounds"), (list, [], r"at: \[\] is no list"),
        (float, True, "at: True is no float"), (float, "1", "at: '1' is no float"),
        (bool, 1, "at: 1 is no bool"), (str, 1, "at: 1 is no str"), (str, True, "at: True is no str"),
        (bytes, "0x", "at: '0x' is no bytes as hex digits"), (bytes, 5, "at: 5 is no bytes"),
        (Any, 5, "at: 5 is no Any"),
        (Colour, "BLUE", "at: 'BLUE' is no Colour"), (Colour, [], r"at: \[\] is no Colour"),
        (Literal["a", "b"], "c", "at: 'c' is no "), (Literal[1], True, "at: True is no "),
        (Literal[1], 1.0, r"at: 1\.0 is no "), (Literal["a"], None, "at: None is no "),
        (int | UnsetType, None, "at: None is no int"), (int | None, "x", "at: 'x' is no int"),
        (tuple[int, str], [1], "at: 2 values are expected, not 1"), (tuple[int], [], "at: 1 values are expected"),
        (tuple[int, ...], 5, "at: 5 is no tuple"), (tuple[int, ...], [1, "x"], "at: 'x' is no int"),
        (dict[int, int], 5, "at: 5 is no dict"), (dict[int, int], {"1": "x"}, r"at\.1: 'x' is no int"),
        (dict[int, int], {"-1": 1}, "at: the key '-1' is no whole number"),
        (dict[int, int], {"1_0": 1}, "at: the key '1_0' is no"), (dict[int, int], {"٣": 1}, "at: the key '٣' is no"),
        (dict[int, int], {"9" * (DIGITS + 1): 1}, "at: the key '9+' is no"),
        (Seen | Ack, {"type": "Seen", "count": 0}, "at: which of .* it is cannot be told"),
        (Literal["a"] | Seen, {}, "at: which of .* it is cannot be told"),
        (Odd, {"number": 2}, "at: even"), (Odd, 2, "at: an object is expected, not 2"),
        (Fact, {"type": "Nothing"}, "at: there is no fact 'Nothing'"),
        (Plain, {"more": 1}, r"at: the fields of Plain are: none; look at \['more'\]"),
        (Ack, {}, r"at: the fields of Ack are: chunk; look at \['chunk'\]"),
    ],
)  # fmt: skip
def test_a_type_refuses_what_does_not_fit_it_and_names_the_place(hint: Any, data: object, says: str) -> None:
    with pytest.raises(PlainError, match=f"^{says}"):
        JSON.value(hint, data, "it", "at")


def test_a_place_that_nobody_names_is_the_class() -> None:
    with pytest.raises(PlainError, match=r"^Plain: an object is expected, not \[\]$"):
        JSON.struct(Plain, [])


# ------------------------------------------------------------------------------------- forms and bounds
@pytest.mark.parametrize(
    ("hint", "name", "data", "read"),
    [
        (int, "count", 0, 0), (int, "count", 9, 9), (int, "count", -1, None), (int, "count", 10, None),
        (int, "other", 10, 10), (float, "period", 1, 1.0), (float, "period", 4.0, 4.0), (float, "period", 4.5, None),
        (float, "period", 0.5, None), (int | None, "count", 10, None), (int, "room", "r12", 12),
        (str, "room", "r12", "r12"), (int, "room", "r", "at"),
    ],
)  # fmt: skip
def test_a_name_has_its_bounds_and_its_form(hint: Any, name: str, data: object, read: object) -> None:
    if read is None:
        with pytest.raises(PlainError, match=rf"^at: {data} is out of bounds$"):
            JSON.value(hint, data, name, "at")
    else:
        assert JSON.value(hint, data, name, "at") == read


def test_of_a_protocol_without_kinds_and_bounds_numbers_are_read_and_no_message_leaves() -> None:
    bare, bounded = PlainJson({}, {}), PlainJson({}, {}, {"count": (0, 9)})
    assert bare.value(int, 10, "count", "at") == 10
    with pytest.raises(PlainError, match="out of bounds"):
        bounded.value(int, 10, "count", "at")
    with pytest.raises(PlainError, match=r"^at: \{\} is no Any$"):
        bare.value(Any, {}, "it", "at")


def test_a_long_value_is_cut_in_a_refusal() -> None:
    for length, shown in ((78, repr("x" * 78)), (79, f"'{'x' * 79}...")):
        with pytest.raises(PlainError) as raised:
            JSON.value(int, "x" * length, "it", "at")
        assert str(raised.value) == f"at: {shown} is no int"
