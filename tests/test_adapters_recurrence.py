"""Recurrence: the parts of an item by channels and heads, of which a rank has one at least."""

from __future__ import annotations

import pytest

from kvproto.adapters.recurrence import Recurrence, Segment

SEGMENTS = Segment("x", 4, 6), Segment("B", 1, 2), Segment("C", 1, 2)


@pytest.mark.parametrize(("tp", "held"), [(1, 24), (2, 12), (4, 6), (8, 6)])
def test_a_convolution_is_its_segments_one_after_another(tp: int, held: int) -> None:
    made, channels = Recurrence(SEGMENTS, 3, 5, "bfloat16"), held + 2 + 2
    assert made.pieces(channels * 3 * 2, channels, tp) == [
        ("x", 4, 0, held * 6), ("B", 1, held * 6, 12), ("C", 1, held * 6 + 12, 12),
    ]  # fmt: skip
    assert made.pieces(channels * 3 * 2 + 1, channels, tp) == made.pieces(channels * 3 * 2, channels + 1, tp) == []


def test_each_tap_is_a_part_where_taps_come_first() -> None:
    made = Recurrence(SEGMENTS, 2, 5, "bfloat16", taps_first=True)
    assert made.pieces(16 * 2 * 2, 16, 2) == [
        ("x0", 4, 0, 24), ("B0", 1, 24, 4), ("C0", 1, 28, 4), ("x1", 4, 32, 24), ("B1", 1, 56, 4), ("C1", 1, 60, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(("heads", "tp", "dim"), [(8, 1, 8), (8, 2, 4), (8, 8, 1), (1, 4, 1), (2, 4, 1)])
def test_matrices_are_of_the_heads_of_the_rank_one_at_least(heads: int, tp: int, dim: int) -> None:
    made = Recurrence(SEGMENTS, 3, heads, "float32")
    assert made.pieces(4096, dim, tp) == [("ssm", heads, 0, 4096)]
    assert made.pieces(4096, dim + 1, tp) == made.pieces(4096, dim - 1, tp) == []
