"""Kinds of numbers: what an annotation says beside `int`, and which numbers that bounds."""

from __future__ import annotations

from typing import Annotated, Any, Optional, Union

import msgspec
import pytest

import kvproto.fsm
from kvproto.fsm.kinds import I64, PLAIN, U64, Mask, Number, bare, field_hints, kind_of, options


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [(Number(), 0, 2**64 - 1), (Number(8), 0, 255), (Number(8, signed=True), -128, 127),
     (Number(64, signed=True), -(2**63), 2**63 - 1)],
)  # fmt: skip
def test_a_kind_knows_its_lowest_and_its_highest_number(kind: Number, least: int, most: int) -> None:
    assert (kind.least, kind.most) == (least, most)


class Held(msgspec.Struct, frozen=True):
    """A struct with a field of each kind."""

    plain: int
    known: Annotated[int, "a word", Mask(5)]
    signed: I64
    either: Optional[int]  # noqa: UP045  # as a reader of older Python writes it


def test_a_field_says_its_kind_by_its_annotation() -> None:
    hints = field_hints(Held)
    assert list(hints) == ["plain", "known", "signed", "either"] and field_hints(Held) is hints
    assert [kind_of(hint) for hint in hints.values()] == [PLAIN, Mask(5), Number(signed=True), PLAIN]
    assert [bare(hint) for hint in hints.values()] == [int, int, int, Optional[int]]  # noqa: UP045
    assert kind_of(U64) == PLAIN


def test_a_union_is_its_alternatives_and_any_other_type_is_itself() -> None:
    for union in (int | None, Union[int, None]):  # noqa: UP007
        assert options(union) == (int, type(None))
    assert options(int) == (int,) and options(tuple[int, str]) == (tuple[int, str],)


def test_names_of_the_framework_are_fetched_when_they_are_asked_for() -> None:
    framework: Any = kvproto.fsm
    assert sorted(framework.__all__) == dir(framework) and framework.__getattr__("Mask") is Mask
    assert all(framework.__getattr__(name) is getattr(framework, name) for name in framework.__all__)
    with pytest.raises(AttributeError, match=r"kvproto\.fsm.*no attribute 'Masks'"):
        _ = framework.Masks
