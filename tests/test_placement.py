"""Row placements against the addresses that they stand for, and the report of those that do not fit."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.layout.placement import Placement, Strides, closed_between, dense, fault, page_runs, rows
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout

MODEL: dict[str, Any] = {"layers": 3, "heads": 2, "k_dim": 3, "v_dim": 2, "itemsize": 2, "dtype": "bits", "tp": 1}
STEPS = range(1, 14)


def layout(**changed: Any) -> Layout:
    return Layout(**({"page_size": 2} | MODEL | changed))


def run_of(at: Strides, row: int, size: int, heads: int) -> str:
    """In what order the rows of a page adjoin, by their addresses."""
    by_token = [token * at.token + head * at.head for token in range(size) for head in range(heads)]
    by_head = [token * at.token + head * at.head for head in range(heads) for token in range(size)]
    wanted = [row * place for place in range(size * heads)]
    found = [name for name, order in (("NHD", by_token), ("HND", by_head)) if order == wanted]
    return "either" if len(found) == 2 else "".join(found)


@pytest.mark.parametrize(("size", "heads"), [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (2, 2), (2, 3), (3, 2)])
def test_a_page_is_one_run_where_its_rows_adjoin(size: int, heads: int) -> None:
    side, seen = layout(page_size=size, heads=heads, k_dim=1, v_dim=0), set()
    for token, head in product(STEPS, repeat=2):
        at = Strides(64, token, head)
        (told,) = page_runs(side, Placement((at,), ((1, 0),) * 3))
        assert told == run_of(at, 2, size, heads), at
        seen.add(told)
    assert seen == ({"either"} if size == heads == 1 else {"either", ""} if 1 in (size, heads) else {"NHD", "HND", ""})


def test_k_and_v_are_runs_by_themselves() -> None:
    side = layout(k_dim=1, v_dim=2)
    nhd, hnd, apart = Strides(64, 4, 2), Strides(64, 4, 8), Strides(64, 4, 4)
    assert page_runs(side, Placement((nhd, hnd), ())) == ("NHD", "HND")
    assert page_runs(side, Placement((nhd, apart), ())) == ("NHD", "")


@pytest.mark.parametrize("order", ["NHD", "HND"])
@pytest.mark.parametrize(("size", "heads", "v_dim"), [*product((1, 2), (1, 2), (0, 2))])
def test_the_usual_form_is_dense_and_what_is_said_of_it_is_the_same_if_it_is_told(
    order: str, size: int, heads: int, v_dim: int
) -> None:
    side = layout(order=order, page_size=size, heads=heads, v_dim=v_dim)
    told = dense(side, 0)
    assert page_runs(side, told) == page_runs(side, None)
    for at, row in zip(told.strides, rows(side), strict=True):
        assert at.page == size * heads * row
        assert run_of(at, row, size, heads) == ("either" if 1 in (size, heads) else order)
        assert size > 1 or at.token == row, "a step that is never taken is a row's bytes"
        assert heads > 1 or at.head == row, "a step that is never taken is a row's bytes"
    assert told.planes == tuple((region, 0) for region in range(1, 1 + 3 * len(rows(side))))


def test_a_placement_has_strides_of_each_kind_and_a_place_for_each_plane() -> None:
    side, latent = layout(pp=2), layout(pp=2, v_dim=0)
    for rank, planes in ((0, 2), (1, 4)):  # the last stage has the layer that is left
        whole = dense(side, rank)
        assert len(whole.planes) == planes and fault(whole, side, rank) == ""
        assert fault(dense(latent, rank), latent, rank) == ""
        told = f"strides and {planes - 1} planes for a rank of {planes} planes, 2 a layer"
        assert fault(replace(whole, planes=whole.planes[1:]), side, rank) == f"a placement of 2 {told}"
        assert "of 1 strides" in fault(replace(whole, strides=whole.strides[:1]), side, rank)
        assert fault(dense(latent, rank), side, rank)
        assert fault(whole, latent, rank)
    assert fault(dense(side, 0), side, 1) and fault(dense(side, 1), side, 0)
    assert fault(Placement((), (), closed="it is virtual"), side, 0) == "", "what is not written to lies nowhere"


def test_a_closed_pool_closes_the_way_and_its_side_is_named() -> None:
    open_, shut = dense(layout(), 0), replace(dense(layout(), 0), closed="it is virtual")
    assert closed_between(None, None) == closed_between(open_, open_) == closed_between(None, open_) == ""
    for usual in (None, open_):
        assert closed_between(shut, usual) == "the pool of the prefill rank is closed: it is virtual"
        assert closed_between(usual, shut) == "the pool of the decode rank is closed: it is virtual"


def why(prefill: Layout, decode: Layout, ours: Placement | None = None, theirs: Placement | None = None) -> str:
    """Why the first share is staged; it is, exactly where it is not direct and no pool is closed."""
    plan = Plan(prefill, decode, 8)
    share = plan.shares[0]
    told = plan.why_staged(share, ours, theirs)
    shut = closed_between(ours, theirs)
    assert told == shut if shut else bool(told) is not plan.direct(share, ours, theirs)
    return told


def test_why_a_share_is_staged_is_said_in_words() -> None:
    usual, other = layout(), layout(order="HND")
    apart = replace(dense(usual, 0), strides=tuple(replace(at, page=2 * at.page) for at in dense(usual, 0).strides))
    holes = replace(apart, strides=tuple(replace(at, token=2 * at.token) for at in apart.strides))
    shut = replace(apart, closed="it is virtual")
    assert why(usual, usual) == why(usual, usual, apart) == why(usual, usual, None, apart) == ""
    assert why(usual, usual, apart, apart) == why(other, usual, dense(other, 0), dense(other, 0)) == ""
    assert why(other, usual, dense(usual, 0)) == why(usual, other, None, dense(usual, 0)) == "", "as they are placed"
    assert why(usual, usual, shut) == "the pool of the prefill rank is closed: it is virtual"
    assert why(usual, usual, None, shut) == "the pool of the decode rank is closed: it is virtual"
    assert why(layout(tp=2), usual) == "a part has 1 of the decode rank's 2 heads, a fraction of every page"
    assert why(usual, layout(tp=2)) == "a part has 1 of the prefill rank's 2 heads, a fraction of every page"
    assert why(usual, usual, holes) == "a page of the prefill rank's pool is not one run of bytes"
    assert why(usual, usual, None, holes) == "a page of the decode rank's pool is not one run of bytes"
    assert why(usual, usual, holes, holes) == "a page of the prefill rank's pool is not one run of bytes"
    assert why(layout(page_size=4), usual) == "pages of 4 tokens on the prefill side, of 2 on the other"
    assert why(usual, layout(page_size=4), None, apart) == "pages of 2 tokens on the prefill side, of 4 on the other"
    assert why(usual, other) == "the two sides have the tokens and heads of a page in different order"
