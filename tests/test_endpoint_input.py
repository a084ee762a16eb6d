"""Input that an engine gives an endpoint is taken, or refused at the call by a sentence that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from support.stories import layout

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.clock import ManualClock
from kvproto.io.kernels.base import Pool
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.sharding import Layout
from kvproto.protocol.messages import MAX_AUX
from kvproto.protocol.states import Cause, DRoom
from kvproto.room import Room, Status
from kvproto.settings import PREFILL_GROUP, Route, Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.trace.stories import lines, log_of

ROOM = Room(1)  # open on both sides, of 30 tokens
PAGES, SIZE = 16, 4


@pytest.fixture(scope="module")
def shared() -> Iterator[Pair]:
    """A pair that is only asked for what it refuses."""
    with Pair(layout(1), layout(1), chunk_tokens=8, pages=PAGES) as made:
        assert made.open(30) == ROOM
        made.turn()
        yield made


# --------------------------------------------------------------------------------------------- rooms and numbers
@pytest.mark.parametrize("kind", [int, np.int32, np.int64, np.uint8])
def test_numpy_s_integers_are_as_good_as_plain_ones_to_the_end(pair: Pair, kind: Callable[[int], Any]) -> None:
    ours, theirs, *_ = pair.tables[pair.name(30, prefix=8, room_id=7, gen=1)]
    room = Room(kind(7), kind(1))
    decode = pair.decodes[0]
    decode.open(room, kind(30), np.array([kind(page) for page in theirs]), prefix=kind(8), group=PREFILL_GROUP)
    for prefill in pair.prefills:
        prefill.open(room, kind(30), [kind(page) for page in ours])
        prefill.prefetch(room)
        for tokens in (15, 30):
            prefill.produced(room, kind(tokens))
        prefill.aux(room, b"aux")
    pair.pump(lambda: pair.over(room))
    pair.check(Room(7, 1))
    for side in ("P", "D"):
        outcome = pair.outcomes[side, 0, Room(7, 1)]
        assert (type(outcome.room.id), type(outcome.room.gen)) == (int, int)
        assert msgspec.json.decode(msgspec.json.encode(outcome))["room"] == {"id": 7, "gen": 1}
    for endpoint in pair.endpoints:
        assert list(lines(log_of(inside(endpoint).rank, list(inside(endpoint).rank.trace)))), "and can be written down"


NUMBERS: dict[str, Callable[[Pair, Any], object]] = {
    "id": lambda pair, it: Room(it), "gen": lambda pair, it: Room(2, it),
    "prefill tokens": lambda pair, it: pair.prefills[0].open(Room(2), it, range(8)),
    "decode tokens": lambda pair, it: pair.decodes[0].open(Room(2), it, range(8)),
    "prefix": lambda pair, it: pair.decodes[0].open(Room(2), 30, range(8), prefix=it),
    "produced": lambda pair, it: pair.prefills[0].produced(ROOM, it),
}  # fmt: skip


def refuses(pair: Pair, call: Callable[[], object], *kinds: type[Exception], match: str | None = None) -> None:
    """The call raises one of these, and nothing came of it."""
    with pytest.raises(kinds, match=match):
        call()
    for endpoint in pair.endpoints:
        assert inside(endpoint).entries.keys() == {ROOM.key} and not inside(endpoint).loop._inbox


@pytest.mark.parametrize("value", [8.0, np.float32(8), "8", None, torch.tensor(8.0)], ids=repr)
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_integer_is_refused_at_the_call(shared: Pair, name: str, value: object) -> None:
    refuses(shared, lambda: NUMBERS[name](shared, value), TypeError)


TABLES: list[tuple[Any, str]] = [
    ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], "integers, not float64"), (np.arange(8.0), "integers"),
    (torch.arange(8, dtype=torch.bfloat16), "integers"), ([True] * 8, "integers, not bool"),
    ([0, 1, 2, -3, 4, 5, 6, 7], "page -3 of a pool of 16: pages are 0 .. 15"), ([*range(7), PAGES], "page 16 of"),
    ([[*range(8)]], "dimension"),
]  # fmt: skip
#: of a prefill engine's room they may come later
SHORT: list[tuple[Any, str]] = [
    (range(7), "30 tokens need 8 pages of 4, the table has 7"), ([], "the table has 0"),
]  # fmt: skip
WRONG = [
    *((side, *each) for side in ("prefills", "decodes") for each in TABLES),
    *(("decodes", *each) for each in SHORT),
]


@pytest.mark.parametrize(("side", "pages", "why"), WRONG, ids=[f"{side}: {why}" for side, _, why in WRONG])
def test_a_page_table_that_is_wrong_is_refused_by_what_is_wrong(shared: Pair, side: str, pages: Any, why: str) -> None:
    endpoint = getattr(shared, side)[0]
    refuses(shared, lambda: endpoint.open(Room(2), 30, pages), ValueError, match=why)
    refuses(shared, lambda: endpoint.open(Room(2), 30, ["0"] * 8), TypeError, ValueError)
    refuses(shared, lambda: endpoint.open(Room(2), 0, range(8)), ValueError, match="a prompt has at least one")


def test_a_page_table_is_the_rooms_own_from_the_call_on(pair: Pair) -> None:
    room = pair.name(30)
    ours, theirs = (torch.tensor(pages) for pages in pair.tables[room][:2])
    pair.decodes[0].open(room, 30, theirs, group=PREFILL_GROUP)
    for prefill in pair.prefills:
        prefill.open(room, 30, ours)
    ours[:], theirs[:] = 0, 0
    pair.finish(room)
    pair.check(room)


# ------------------------------------------------------------------------------------------------ the aux row
def test_the_aux_row_is_what_it_was_at_the_call(pair: Pair) -> None:
    room = pair.open(30)
    row: Any = bytearray(b"first")
    for prefill in pair.prefills:
        prefill.aux(room, row)
    row[:] = b"wrong"
    pair.produce(room, aux=None)
    pair.pump(lambda: pair.over(room))
    assert {outcome.aux for outcome in pair.outcomes.values()} == {b"first"}


@pytest.mark.parametrize("row", ["first", 5, None, [1, 2]], ids=repr)
def test_an_aux_row_that_is_no_bytes_is_refused_at_the_call(shared: Pair, row: Any) -> None:
    refuses(shared, lambda: shared.prefills[0].aux(ROOM, row), TypeError)
    refuses(shared, lambda: shared.prefills[0].aux(ROOM, bytes(MAX_AUX + 1)), ValueError, match=f"more than {MAX_AUX}")


# --------------------------------------------------------------------------------------- rooms that are not open
def test_a_room_that_only_the_other_side_has_opened_is_not_open_here(pair: Pair) -> None:
    prefill, room = pair.prefills[0], pair.name(30)
    pair.open_decode(room)
    pair.pump(lambda: inside(prefill).rank.value_of(room.key) is not None)
    calls: list[Callable[[], object]] = [
        lambda: prefill.produced(room, 30), lambda: prefill.prefetch(room), lambda: prefill.aux(room, b"row"),
        lambda: prefill.abort(room),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(KeyError, match="is not open here: open it first"):
            call()
    pair.open_prefill(room)
    pair.finish(room)
    assert pair.causes(room) == {Cause.NONE} and not prefill.reports()


def test_a_room_that_was_asked_for_again_waits_until_something_moves() -> None:
    clock = ManualClock(100.0)
    with Pair(layout(2), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        decode, rank, room = pair.decodes[0], inside(pair.decodes[0]).rank, pair.name(30)
        ours = pair.tables[room][0]
        pair.open_decode(room)
        decode.poll()
        clock.advance(1.5 * pair.settings.timing.call.period)
        decode.poll()
        assert rank.value_of(room.key).work.tries == 1
        for prefill in pair.prefills:
            prefill.open(room, 30, ours)
        pair.pump(lambda: rank.value_of(room.key).state is DRoom.OPEN)
        assert decode.status(room) is Status.WAITING
        pair.produce(room, 15, aux=None)
        pair.pump(lambda: decode.status(room) is Status.TRANSFERRING)
        pair.finish(room)


# -------------------------------------------------------------------------------------------- pools and settings
def pool(*sizes: int, kv: bool = False, key: slice = slice(None), value: slice | None = slice(None)) -> Pool:
    """A pool of two layers: windows with these sizes, K and V in one tensor or not; `value` None: no V."""
    if kv:
        both = [torch.zeros(PAGES, 2, *sizes, dtype=torch.bfloat16) for _ in range(2)]
        return Pool([one[:, 0] for one in both], [one[:, 1] for one in both])
    k, v = ([torch.zeros(PAGES, *sizes, dtype=torch.bfloat16) for _ in range(2)] for _ in range(2))
    return Pool([one[..., key] for one in k], [one[..., value] for one in v] if value is not None else [])


def make(
    kind: type[PrefillEndpoint | DecodeEndpoint], of: Layout, pool: Pool, chunk_tokens: int = 8, route: Route = "cost"
) -> None:
    settings = Settings(ring_bytes=1 << 16, route=route)
    kind(of, 0, pool, MemoryTransport(Fabric()), chunk_tokens=chunk_tokens, settings=settings).close()


both_sides = pytest.mark.parametrize("kind", [PrefillEndpoint, DecodeEndpoint])
FULL, HALF = slice(None), slice(0, 8)
ONE = [torch.zeros(PAGES, SIZE, 4, 8, dtype=torch.bfloat16) for _ in range(2)]
POOLS: list[tuple[Pool, int, str]] = [
    (pool(SIZE, 4, 16, value=HALF), 8, r"K dim, V dim.* = \(2, 4, 8, 8, .*, the pool has \(2, 4, 16, 8, "),
    (pool(SIZE, 4, 16, key=HALF), 8, r"K dim, V dim.*, the pool has \(2, 4, 8, 16, "),
    (pool(SIZE, 4, 8, value=None), 8, r"K dim, V dim.* = \(2, 4, 8, 8, .*, the pool has \(2, 4, 8, 0, "),
    (pool(SIZE, 4, 8), 0, r"K dim, V dim.* = \(2, 4, 8, 0, .*, the pool has \(2, 4, 8, 8, "),
    (pool(SIZE, 2, 8), 8, "layers, heads"),
    (Pool(ONE, ONE), 8, "two tensors of the pool share bytes .*: give each K and V once"),
    (Pool([one.view(torch.float16) for one in ONE], []), 0, "elements are bfloat16, the pool's torch.float16"),
]  # fmt: skip


@both_sides
@pytest.mark.parametrize("route", ["cost", "staged"])
@pytest.mark.parametrize(("given", "v_dim", "why"), POOLS)
def test_a_pool_that_is_not_the_layouts_is_refused(
    kind: Any, given: Pool, v_dim: int, why: str, route: Route
) -> None:  # fmt: skip
    with pytest.raises(ValueError, match=why):
        make(kind, msgspec.structs.replace(layout(1), v_dim=v_dim), given, route=route)


@both_sides
def test_views_are_taken_and_parts_of_one_tensor_and_raw_bytes(kind: Any) -> None:
    dense, wide = torch.zeros(4, PAGES, SIZE, 4, 8, dtype=torch.bfloat16), pool(SIZE, 4, 16, key=HALF, value=HALF)
    bytes_of = [tensor.view(torch.uint8).view(PAGES, SIZE, 4, 16) for tensor in dense]
    raw = msgspec.structs.replace(layout(1), itemsize=1, k_dim=16, v_dim=16)
    for of, given in (
        (layout(1), Pool([*dense[:2]], [*dense[2:]])), (layout(1), Pool([*dense[:2]], wide.v)), (layout(1), wide),
        (layout(1), pool(SIZE, 4, 8, kv=True)), (raw, Pool(bytes_of[:2], bytes_of[2:])),
    ):  # fmt: skip
        make(kind, of, given)


@both_sides
@pytest.mark.parametrize(
    ("chunk_tokens", "why"), [(6, "chunk-tokens-not-whole-pages"), (2, "chunk-tokens-not-whole-pages"), (0, "positive")]
)
def test_a_chunk_size_that_is_not_whole_pages_is_refused_where_it_is_given(
    kind: Any, chunk_tokens: int, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        make(kind, layout(1), pool(SIZE, 4, 8), chunk_tokens)
