"""An engine's tensors as a pool: the result, refusals by name, and where their planes lie in memory."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
import torch

from kvproto.adapters.geometry import Geometry, GeometryError, Reason, Shards, geometry, opaque_blocks
from kvproto.data.pool_memory import costs_profile, open_memory, place
from kvproto.errors import ArgumentError
from kvproto.io.kernels.pool import Pool
from kvproto.layout.placement import Placement, Strides, dense
from kvproto.layout.sharding import LayoutError

ONE = Shards(heads=4, layers=2)


def zeros(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def test_what_tensors_and_shards_say_is_the_layout() -> None:
    shards = Shards(4, 30, tp=2, pp=4, stages=(7, 8, 8, 7), rank=3)
    made = geometry([zeros(9, 2, 16, 2, 8) for _ in range(8)], "B2NHC", shards)
    layout = made.layout
    assert (layout.heads, layout.layers, layout.stages, layout.pp) == (4, 30, (7, 8, 8, 7), 4)
    assert (layout.k_dim, layout.v_dim, layout.page_size, layout.dtype, layout.order) == (8, 8, 16, "bfloat16", "NHD")
    assert (made.pool.layers, made.pool.heads, made.pool.pages, made.unit) == (8, 2, 9, 1)
    assert [made.units(tokens, whole=whole) for tokens, whole in ((33, False), (33, True))] == [33, 33]


@pytest.mark.parametrize(
    ("shape", "form", "order"),
    [((9, 16, 4, 8), "BNHC", "NHD"), ((9, 4, 16, 8), "BHNC", "HND"), ((4, 9, 16, 8), "HBNC", "HND"),
     ((9, 16, 8), "BNC", "NHD"), ((144, 4, 8), "SHC", "NHD"), ((9, 2, 2, 8), "BHNC", "HND")],
)  # fmt: skip
def test_the_order_is_read_from_the_strides(shape: tuple[int, ...], form: str, order: str) -> None:
    heads = shape[form.index("H")] if "H" in form else 1
    made = geometry([zeros(*shape)] * 1, form, Shards(heads, 1), page_size=16)
    page = shape[form.index("N")] if "N" in form else 16
    assert (made.layout.order, made.pool.pages, made.pool.page_size) == (order, 9, page)


@pytest.mark.parametrize(("shape", "steps"), [((9, 16, 1, 8), (128, 8, 128, 1)), ((9, 1, 4, 8), (32, 1, 8, 1))])
def test_pages_of_one_token_or_of_one_head_lie_token_by_token_whatever_their_steps(
    shape: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    made = geometry([torch.empty_strided(shape, steps)], "BNHC", Shards(shape[2], 1))
    assert (made.layout.order, made.pool.page_size) == ("NHD", shape[1])


def test_every_form_that_the_page_names_is_a_pool() -> None:
    page = (Path(__file__).parent.parent / "docs" / "embedding.md").read_text()
    table = page[page.index("| form | tensors |") :].partition("\n\n")[0].splitlines()[2:]
    forms = [form for line in table for form in re.findall(r"`(\w+)`", line.split("|")[1])]
    sizes = {"L": 2, "B": 9, "N": 16, "S": 144, "H": 4, "C": 8, "2": 2}
    for form in forms:
        tensors = [zeros(*(sizes[letter] for letter in form)) for _ in range(1 if "L" in form else 2)]
        made = geometry(tensors, form, Shards(4 if "H" in form else 1, 2), page_size=16)
        assert (made.pool.layers, made.pool.pages, made.pool.page_size) == (2, 9, 16)
    assert len(forms) == 12


def test_a_permuted_view_is_as_good_as_the_tensor() -> None:
    """A cache that is logically [blocks, heads, tokens, content], and lies token by token."""
    real = zeros(9, 16, 4, 8)
    (view,), (plain,) = (geometry(*each, Shards(4, 1)).pool.k for each in (([real.permute(0, 2, 1, 3)], "BHNC"),
                                                                          ([real], "BNHC")))  # fmt: skip
    assert (view.stride(), view.data_ptr()) == (plain.stride(), plain.data_ptr())


def test_rows_may_be_cut_into_k_and_v_or_stay_one() -> None:
    tensors = [zeros(9, 16, 4, 24) for _ in range(2)]
    whole, cut = geometry(tensors, "BNHC", ONE).layout, geometry(tensors, "BNHC", ONE, k_dim=16).layout
    assert [(each.k_dim, each.v_dim) for each in (whole, cut)] == [(24, 0), (16, 8)]


def test_opaque_blocks_count_as_tokens() -> None:
    made = geometry([zeros(9, 4, 8, 16) for _ in range(2)], "BHCN", ONE, opaque="k-transposed")
    assert (made.unit, made.layout.page_size, made.layout.k_dim) == (16, 1, 128)
    assert made.layout.dtype == "bfloat16/k-transposed16"
    assert [made.units(tokens) for tokens in (15, 16, 40)] == [0, 1, 2]
    assert made.units(40, whole=True) == 3


def test_blocks_are_dense_in_whatever_order_a_dimension_of_one_has_any_step() -> None:
    def block(shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
        return torch.arange(900).as_strided(shape, strides)

    for shape, strides, size in (
        ((2, 1, 2, 3), (100, 77, 10, 1), 3), ((2, 3, 2, 1), (100, 1, 10, 77), 3), ((2, 2, 2, 3), (100, 3, 10, 1), 6),
        ((2, 2, 2, 3), (100, 1, 10, 2), 6), ((2, 3, 2, 2), (100, 1, 10, 3), 6),
    ):  # fmt: skip
        made = opaque_blocks(block(shape, strides))
        assert (tuple(made.shape), made.stride()) == ((2, 1, 2, size), (100, size, 10, 1))
        assert made[1, 0, 1].tolist() == list(range(110, 110 + size))
    for shape, strides in (((2, 2, 2, 3), (100, 4, 10, 1)), ((2, 2, 2, 3), (100, 1, 10, 3))):
        with pytest.raises(GeometryError, match="other things lie in between"):
            opaque_blocks(block(shape, strides))


def test_a_type_that_is_named_is_the_layout_s_and_one_layer_is_enough() -> None:
    one = [zeros(9, 16, 4, 8, dtype=torch.uint8)]
    assert geometry(one, "BNHC", Shards(4, 1)).layout.dtype == "uint8"
    assert geometry(one, "BNHC", Shards(4, 1), dtype="fp8_e4m3").layout.dtype == "fp8_e4m3"
    by_head = [zeros(9, 4, 16, 8, dtype=torch.uint8)]
    assert geometry(by_head, "BHNC", Shards(4, 1), opaque="x").layout.dtype == "uint8/x16"


def test_rows_of_one_element_have_any_step_and_longer_ones_are_dense() -> None:
    rows = zeros(9, 16, 4, 8)
    assert geometry([rows[..., ::8]], "BNHC", Shards(4, 1)).layout.k_dim == 1
    with pytest.raises(GeometryError, match="content has a step of 4 elements"):
        geometry([rows[..., ::4]], "BNHC", Shards(4, 1))


def test_a_room_has_of_each_window_the_pages_that_it_reaches_and_no_others_memory() -> None:
    end = SimpleNamespace(end=SimpleNamespace(name="near", window=20))
    made = Geometry(cast("Any", SimpleNamespace(ends=[end], page_size=4)), cast("Any", None), windows=("near", ""))
    table = list(range(100, 130))
    assert made.window([table, table], 70) == {"near": [112, 113, 114, 115, 116, 117]}
    assert made.window([table, table], 70, have=58) == {"near": [0, 0, 114, 115, 116, 117]}
    assert made.window([table, table], 8) == {"near": [100, 101]}
    with pytest.raises(ValueError, match="zip"):
        made.window([table], 70)


def call(*args: Any, **more: Any) -> dict[str, Any]:
    return {"args": args, **more}


PAIR = [zeros(9, 16, 4, 8) for _ in range(2)]
REFUSED: list[tuple[Reason, str, dict[str, Any]]] = [
    ("no-tensor", "give one a layer", call([], "BNHC", ONE)),
    ("unknown-dimension", "'BNHX': it has each of B N H C once", call(PAIR, "BNHX", ONE)),
    ("unknown-dimension", "'BBHC'", call(PAIR, "BBHC", ONE)),
    ("wrong-dimensions", r"\(9, 16, 4, 8\) is not 'BNC'", call(PAIR, "BNC", ONE)),
    ("wrong-dimensions", "is not 'B2HC'|is not 'B2NHC'", call([zeros(9, 3, 16, 4, 8)], "B2NHC", ONE)),
    ("wrong-dimensions", "2 tensors with an L", call([zeros(2, 9, 16, 4, 8)] * 2, "LBNHC", ONE)),
    ("layers-not-alike", "a pool, and an endpoint, for each kind", call([PAIR[0], zeros(9, 16, 4, 4)], "BNHC", ONE)),
    ("layers-not-alike", "K of layer 1", call([PAIR[0], zeros(8, 16, 4, 8)], "BNHC", ONE)),
    ("k-and-v", "in one tensor, and `v`", call([zeros(9, 2, 16, 4, 8)], "B2NHC", ONE, v=PAIR)),
    ("k-and-v", "V is given apart", call(PAIR, "BNHC", ONE, v=PAIR, k_dim=4)),
    ("k-and-v", "must leave something", call(PAIR, "BNHC", ONE, k_dim=8)),
    ("rows-not-dense", "step of 16 elements: .* `opaque` moves", call([zeros(9, 4, 8, 16)] * 2, "BHCN", ONE)),
    ("blocks-not-dense", "other things lie in between", call([zeros(9, 16, 4, 8)] * 2, "BNHC", ONE, opaque="x")),
    ("slots-not-pages", "100 slots in pages of 16", call([zeros(100, 4, 8)] * 2, "SHC", ONE, page_size=16)),
    ("slots-not-pages", "pass the engine's page_size", call([zeros(96, 4, 8)] * 2, "SHC", ONE)),
    ("not-this-rank", r"= \(3, 4\) .* have \(2, 4\): name the model's", call(PAIR, "BNHC", Shards(4, 3))),
    ("not-this-rank", r"= \(2, 2\) .* have \(2, 4\)", call(PAIR, "BNHC", Shards(4, 2, tp=2))),
    ("no-pool", "let rows share memory", call([zeros(9, 1, 4, 8).expand(9, 16, 4, 8)] * 2, "BNHC", ONE)),
    ("no-pool", "1 V tensors", call(PAIR, "BNHC", ONE, v=PAIR[:1])),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "words", "given"), REFUSED, ids=[f"{r}: {w}" for r, w, _ in REFUSED])
def test_what_no_pool_can_express_is_refused_by_name(reason: Reason, words: str, given: dict[str, Any]) -> None:
    args = given.pop("args")
    with pytest.raises(GeometryError, match=words) as caught:
        geometry(*args, **given)
    assert caught.value.reason == reason
    assert {case[0] for case in REFUSED} == set(get_args(Reason))


def test_shards_that_are_none_are_refused_by_the_layout() -> None:
    with pytest.raises(LayoutError, match="stages-do-not-add-up"):
        geometry(PAIR, "BNHC", Shards(4, 2, pp=2, stages=(1, 2)))


# ----------------------------------------------------------------------------------------------- where planes lie
def test_a_tensor_a_plane_has_a_region_each_and_nothing_to_tell() -> None:
    made = geometry([zeros(9, 16, 4, 8) for _ in range(2)], "BNHC", ONE, v=[zeros(9, 16, 4, 8) for _ in range(2)])
    spans, placement = place(made.pool)
    assert [size for _, size in spans] == [9 * 16 * 4 * 8 * 2] * 4
    assert placement == dense(made.layout, 0)


def test_halves_of_one_tensor_are_regions_of_their_own() -> None:
    made = geometry([zeros(2, 9, 16, 4, 8) for _ in range(2)], "2BNHC", ONE)
    assert place(made.pool)[1] == dense(made.layout, 0)


def test_planes_of_one_block_share_a_region() -> None:
    made = geometry([zeros(9, 2, 2, 16, 4, 8)], "BL2NHC", ONE)
    spans, placement = place(made.pool)
    page = 16 * 4 * 8 * 2
    assert [size for _, size in spans] == [9 * 4 * page]
    assert placement == Placement((Strides(4 * page, 64, 16),) * 2, tuple((1, at * page) for at in (0, 2, 1, 3)))


def test_views_of_two_blocks_are_two_regions_in_the_order_of_their_planes() -> None:
    blocks = [zeros(9, 2, 16, 4, 8) for _ in range(2)]
    blocks.sort(key=lambda block: -block.data_ptr())
    spans, placement = place(geometry(blocks, "B2NHC", ONE).pool)
    assert [address for address, _ in spans] == [block.data_ptr() for block in blocks]
    assert [region for region, _ in placement.planes] == [1, 2, 1, 2]


def test_regions_are_in_the_order_of_the_first_planes_in_them() -> None:
    outer, inner = zeros(2, 9, 16, 4, 8), zeros(2, 9, 16, 4, 8)
    joined = [torch.stack((*each,), 1) for each in (outer, inner)]
    pool = Pool([joined[0][:, 0], joined[1][:, 0]], [joined[1][:, 1], joined[0][:, 1]])
    spans, placement = place(pool)
    assert [address for address, _ in spans] == [each.data_ptr() for each in joined]
    assert [region for region, _ in placement.planes] == [1, 2, 2, 1]


def test_memory_of_the_host_is_of_device_0() -> None:
    asked = list[tuple[Any, ...]]()
    caps = SimpleNamespace(kinds=("DRAM",), backend="told")

    def register(*what: Any) -> SimpleNamespace:
        asked.append(what)
        return SimpleNamespace(index=len(asked) - 1)

    transport = cast("Any", SimpleNamespace(register=register, caps=caps))
    made, staging = geometry([zeros(9, 16, 4, 8)], "BNHC", Shards(4, 1)), zeros(64, dtype=torch.uint8)
    assert open_memory(transport, staging, made.pool, made.layout, 0).told is None
    pool = (made.pool.k[0].data_ptr(), 9 * 16 * 4 * 8 * 2, "DRAM", 0)
    assert asked == [(staging.data_ptr(), 64, "DRAM", 0), pool]


def test_of_a_pool_that_is_closed_the_staging_memory_alone_is_registered_and_the_reason_told() -> None:
    made, staging = geometry([zeros(9, 16, 4, 8)], "BNHC", Shards(4, 1)), zeros(64, dtype=torch.uint8)
    for closed, kind, why in (
        (True, "DRAM", 'Settings.route is "staged"'), (False, "VRAM", "told reaches VRAM here, and the pool is on cpu"),
    ):  # fmt: skip
        caps = SimpleNamespace(kinds=(kind,), backend="told")
        transport = cast("Any", SimpleNamespace(register=lambda *what: SimpleNamespace(index=0, of=what), caps=caps))
        memory = open_memory(transport, staging, made.pool, made.layout, 0, closed=closed)
        assert [cast("Any", each).of for each in memory.regions] == [(staging.data_ptr(), 64, "DRAM", 0)]
        assert memory.told == memory.placement == Placement((), (), why)


def test_a_pool_of_two_pages_is_open_to_its_end() -> None:
    spans, _ = place(geometry([zeros(2, 2, 2, 8)], "BNHC", Shards(2, 1)).pool)
    assert [size for _, size in spans] == [2 * 2 * 2 * 8 * 2]


def test_a_device_s_memory_is_reached_as_a_device_s_whatever_the_transport_is() -> None:
    pools = [cast("Any", SimpleNamespace(first=torch.zeros(1, device=device))) for device in ("meta", "cpu")]
    for backend, on_host in (("mooncake", "tcp"), ("nixl", "shm"), ("memory", "free")):
        caps = cast("Any", SimpleNamespace(backend=backend))
        assert [costs_profile(caps, pool) for pool in pools] == ["cuda_ipc", on_host]


LATENT = zeros(9, 16, 1, 24)
FLAT, BYTES = zeros(400), zeros(200, dtype=torch.uint8)
ALIASED = {
    "the same twice": Pool([PAIR[0]], [PAIR[0]]),
    "the same for two layers": Pool([PAIR[0], PAIR[0]], []),
    "a part of the other": Pool([LATENT], [LATENT[..., :16]]),
    "a page later": Pool([PAIR[0][:-1]], [PAIR[0][1:]]),
    "a token later": Pool([PAIR[0][:, :-1]], [PAIR[0][:, 1:]]),
    "half a row later": Pool([LATENT[..., :16]], [LATENT[..., 8:]]),
    "a byte of the next row": Pool([BYTES.as_strided((4, 4, 1, 4), (32, 8, 4, 1))],
                                   [BYTES.as_strided((4, 4, 1, 5), (32, 8, 5, 1), 4)]),
    "pages of two strides": Pool([FLAT.as_strided((9, 1, 1, 8), (16, 8, 8, 1))],
                                 [FLAT.as_strided((9, 1, 1, 8), (17, 8, 8, 1), 8)]),
}  # fmt: skip


@pytest.mark.parametrize("pool", ALIASED.values(), ids=ALIASED)
def test_planes_that_share_bytes_are_refused(pool: Pool) -> None:
    with pytest.raises(ArgumentError, match="two tensors of the pool share bytes"):
        place(pool)


WIDE = zeros(9, 900)
APART = {
    "tokens in turn": Pool([PAIR[0][:, ::2]], [PAIR[0][:, 1::2]]),
    "heads in turn": Pool([PAIR[0][:, :, ::2]], [PAIR[0][:, :, 1::2]]),
    "rows of two widths": Pool([LATENT[..., :16]], [LATENT[..., 16:]]),
    "pages in turn": Pool([PAIR[0][:8:2]], [PAIR[0][1:9:2]]),
    "blocks with room for both": Pool([WIDE[:, :512].view(9, 16, 4, 8)], [WIDE[:, 512:896].view(9, 16, 4, 6)]),
    "one page with a step that nobody takes": Pool([FLAT.as_strided((1, 16, 1, 8), (300, 16, 8, 1))],
                                                   [FLAT.as_strided((1, 16, 1, 8), (299, 16, 8, 1), 8)]),
    "where a page after the last would be": Pool([FLAT.as_strided((2, 2, 1, 8), (40, 24, 8, 1))],
                                                 [FLAT.as_strided((2, 2, 1, 16), (40, 24, 16, 1), 48)]),
}  # fmt: skip


@pytest.mark.parametrize("pool", APART.values(), ids=APART)
def test_planes_that_interleave_are_not(pool: Pool) -> None:
    place(pool)


def test_k_may_be_one_element_of_a_row_and_a_page_one_token() -> None:
    made = geometry([torch.zeros(4, 2, 4, 8)], "BNHC", Shards(4, 1), k_dim=1)
    assert (made.layout.k_dim, made.layout.v_dim) == (1, 7)
    for k_dim in (-1, 8):
        with pytest.raises(GeometryError, match="it must leave something for V"):
            geometry([torch.zeros(4, 2, 4, 8)], "BNHC", Shards(4, 1), k_dim=k_dim)
    flat = geometry([torch.zeros(6, 4, 8)], "SHC", Shards(4, 1), page_size=1)
    assert (flat.layout.page_size, flat.pool.pages) == (1, 6)
