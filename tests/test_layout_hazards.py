"""The field's layout hazards, each planted: the judge accepts the case before, and rejects it after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from caches_judge import Case, judge

from kvproto.layout import byte_runs, contacts, cut
from kvproto.layout import byte_runs_numpy as slicing
from kvproto.layout.contacts import Contacts
from kvproto.layout.cut import Cut
from kvproto.layout.placement import Placement, dense
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout, LayoutError

MODEL: dict[str, Any] = {
    "layers": 3, "heads": 4, "k_dim": 3, "v_dim": 3, "itemsize": 1, "dtype": "bits", "page_size": 2
}  # fmt: skip


def case_of(tp_p: int, tp_d: int, pp_p: int = 1, prefix: int = 0, **model: int) -> Case:
    base = MODEL | model
    return Case(Layout(**base, tp=tp_p, pp=pp_p), Layout(**base, tp=tp_d), chunk_tokens=8, tokens=14, prefix=prefix)


def rejects(case: Case, plant: Callable[[], None], words: str | None = None) -> None:
    judge(case)
    plant()
    with pytest.raises((AssertionError, LayoutError), match=words):
        judge(case)


@pytest.mark.parametrize("tps", [(4, 1), (1, 4)], ids=["writers", "readers"])
def test_replica_modulo(monkeypatch: pytest.MonkeyPatch, tps: tuple[int, int]) -> None:
    """Replicated heads dealt out by modulo instead of to consecutive ranks."""

    def heads_of(self: Layout, rank: int) -> tuple[int, int]:
        return (rank % self.tp % self.heads, 1) if self.tp > self.heads else heads_in_turn(self, rank)

    heads_in_turn = Layout.heads_of

    rejects(case_of(*tps, heads=2), lambda: monkeypatch.setattr(Layout, "heads_of", heads_of))


def test_heads_overestimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """All heads taken for heads a rank x tp, although ranks are replicas."""

    def heads_of(self: Layout, rank: int) -> tuple[int, int]:
        return rank % self.tp * self.local_heads, self.local_heads

    rejects(case_of(4, 1, heads=2), lambda: monkeypatch.setattr(Layout, "heads_of", heads_of))


def test_heads_overestimated_is_refused_in_the_handshake() -> None:
    told, true = case_of(4, 1, heads=4).prefill, case_of(4, 1, heads=2).decode
    with pytest.raises(LayoutError, match="heads-differ"):
        Plan(told, true, 8)


def test_global_rank_offset_of_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head block taken from the rank's index in the group, not from its place in the stage."""

    def heads_of(self: Layout, rank: int) -> tuple[int, int]:
        return rank * self.local_heads, self.local_heads

    rejects(case_of(2, 1, pp_p=2), lambda: monkeypatch.setattr(Layout, "heads_of", heads_of))


def test_global_rank_offset_beyond_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets into a pool counted from the model's first head, not from the rank's."""

    def common(ours: tuple[int, int], theirs: tuple[int, int]) -> tuple[int, int, int]:
        first = max(ours[0], theirs[0])
        return first, first, min(sum(ours), sum(theirs)) - first

    rejects(case_of(2, 4), lambda: monkeypatch.setattr(contacts, "common", common))


@pytest.mark.parametrize("v_dim", [0, 2, 5])
def test_kv_asymmetric_heads_in_parts(monkeypatch: pytest.MonkeyPatch, v_dim: int) -> None:
    """V staged as if it had K's head size."""
    symmetric = property(lambda self: 2 * self.k_dim * self.itemsize)
    rejects(case_of(2, 1, v_dim=v_dim), lambda: monkeypatch.setattr(Layout, "cell_bytes", symmetric), "a part")


@pytest.mark.parametrize("v_dim", [0, 2, 5])
def test_kv_asymmetric_heads_in_runs(monkeypatch: pytest.MonkeyPatch, v_dim: int) -> None:
    """V written page to page as if it had K's head size."""

    def dense_of(side: Layout, rank: int) -> Placement:
        return dense(msgspec.structs.replace(side, v_dim=side.k_dim), rank)

    def symmetric(cut: Plan) -> Plan:
        prefill, decode = (msgspec.structs.replace(side, v_dim=side.k_dim) for side in (cut.prefill, cut.decode))
        return Plan(prefill, decode, cut.chunk_tokens)

    def plant() -> None:
        monkeypatch.setattr(slicing, "forms", lambda cut, *rest: byte_runs.forms(symmetric(cut), *rest))
        monkeypatch.setattr(slicing, "planes", lambda cut, *rest: byte_runs.planes(symmetric(cut), *rest))
        monkeypatch.setattr(slicing, "dense", dense_of)

    rejects(case_of(2, 1, v_dim=v_dim), plant)


def test_non_integer_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """6 ranks serve 4 as if the ratio, 1.5, were 1."""

    def owed_to(self: Contacts, reader: int) -> Iterator[Share]:
        prefill = self.prefill.layout
        ratio, heads = prefill.tp // self.decode.layout.tp, prefill.local_heads
        for turn in range(ratio):
            yield Share(reader * ratio + turn, reader, 0, turn * heads, heads, 0, 0, prefill.layers)

    rejects(case_of(6, 4, heads=12), lambda: monkeypatch.setattr(Contacts, "owed_to", owed_to))


def test_misaligned_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells cut at multiples of the chunk size although the room begins at its prefix."""

    def on_grid(k: int, tokens: int, prefix: int, chunk_tokens: int, groups: int) -> Cut:
        first = max(prefix, (prefix // chunk_tokens + k) * chunk_tokens)
        return Cut(first, min(tokens, (first // chunk_tokens + 1) * chunk_tokens) - first)

    rejects(case_of(2, 1, prefix=6), lambda: monkeypatch.setattr(cut, "cut_at", on_grid))
