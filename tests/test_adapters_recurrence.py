"""Recurrence: the parts of an item by channels and heads, of which a rank has one at least."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kvproto.adapters.recurrence import Recurrence, Segment
from kvproto.adapters.sglang.recurrence import recurrence_of

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


def config(kind: str, groups: int | None, **shape: Any) -> Any:
    """A model's configuration in SGLang, by the name of its class; `groups`: of B and C."""
    known = {"num_heads": 8, "conv_kernel": 4, "conv_shard_groups": None, "intermediate_size": 64, "ssm_state_size": 16}
    params = SimpleNamespace(
        shape=SimpleNamespace(**known | shape), dtype=SimpleNamespace(conv=torch.bfloat16, temporal=torch.float32)
    )
    return type(kind, (SimpleNamespace,), {})(
        mamba2_cache_params=params, mamba_n_groups=groups, n_groups=groups if kind == "NemotronHConfig" else None
    )


@pytest.mark.parametrize("kind", ["FalconH1Config", "GraniteMoeHybridConfig", "NemotronHConfig"])
def test_models_with_x_b_and_c_are_known_by_the_class_of_their_configuration(kind: str) -> None:
    assert recurrence_of(config(kind, 2), 4) == Recurrence(
        (Segment("x", 8, 8), Segment("B", 2, 16), Segment("C", 2, 16)), 3, 8, "bfloat16, float32"
    )  # fmt: skip
    assert recurrence_of(config(kind, 2, intermediate_size=60), 4) is None
    assert recurrence_of(config("AnotherConfig", 2), 4) is None


@pytest.mark.parametrize("axis", [0, 1])
def test_segments_that_sglang_names_are_q_k_and_v(axis: int) -> None:
    shape = {"conv_shard_groups": (24, 24, 64), "num_k_heads_per_tp": 2, "conv_slice_axis": axis}
    assert recurrence_of(config("AnotherConfig", None, **shape), 3) == Recurrence(
        (Segment("q", 6, 4), Segment("k", 6, 4), Segment("v", 8, 8)), 3, 8, "bfloat16, float32", bool(axis)
    )  # fmt: skip
