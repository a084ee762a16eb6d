"""Addresses are decided before a backend sees them; endpoints are input and treated as such."""

from __future__ import annotations

import itertools
from hashlib import blake2b

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproto.io.transports import regions
from kvproto.io.transports.base import (
    BadEndpoint,
    MemoryRegion,
    PeerId,
    RemoteRegion,
    StaleEndpoint,
    TransportCaps,
    UsageError,
    WritePart,
)
from kvproto.io.transports.endpoint import (
    MAX_BYTES,
    MAX_REGIONS,
    VERSION,
    InstanceDescription,
    RegionEntry,
    decode,
    encode,
)
from kvproto.io.transports.page_lists import PageLists, PagePiece, PagesRequest
from kvproto.io.transports.regions import RegionTable, as_descs, bulk, joined, remote_table, request

CAPS = TransportCaps("memory", ("DRAM", "VRAM"), 64, 100, 100, True, False)
PEER = PeerId("peer")
DST = RemoteRegion(PEER, 3, 0x9000, 1000, "DRAM", 0)


def table() -> RegionTable:
    out = RegionTable(CAPS.kinds)
    out.add(out.plan(0x1000, 500, "DRAM", 0))
    return out


def endpoint(**changes: object) -> InstanceDescription:
    regions = RegionEntry(0, 0x1000, 16, "DRAM", 0), RegionEntry(2, 0x2000, 8, "VRAM", 1)
    base = InstanceDescription("memory", VERSION, "me", 1, regions, b"x")
    return msgspec.structs.replace(base, **changes)


def forged(count: int) -> bytes:
    """As somebody makes it who keeps to no bound of regions."""
    rows = tuple(RegionEntry(index, index + 1, 1, "DRAM", 0) for index in range(count))
    data = msgspec.msgpack.encode(endpoint(regions=rows))
    return data + blake2b(data, digest_size=16).digest()


# -- descriptors


@pytest.mark.parametrize(
    "descs",
    [
        [],
        [[1, 2]],
        [[0, 0, 1.5]],
        [[0, -1, 4]],
        [[0, 0, 1], [0, 0]],
        "abc",
        [[0, 0, 1 << 70]],
        np.empty((0, 3), np.int64),
    ],
    ids=["empty", "two columns", "float", "negative", "ragged", "text", "too large", "no row"],
)
def test_what_is_no_descriptor_is_refused(descs: object) -> None:
    with pytest.raises(UsageError, match="descriptor"):
        as_descs(descs)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=20),
)
def test_joining_keeps_every_byte_and_its_order(steps: list[tuple[int, int, int]]) -> None:
    src = dst = 0
    rows = []
    for gap_src, gap_dst, length in steps:
        src, dst = src + gap_src, dst + gap_dst
        rows.append((src, dst, length))
        src, dst = src + length, dst + length
    moves = [(s + i, d + i) for s, d, n in rows for i in range(n)]
    out = np.stack(joined(*np.ascontiguousarray(as_descs(rows).T)), axis=1)
    assert [(s + i, d + i) for s, d, n in out.tolist() for i in range(n)] == moves
    breaks = sum(1 for gap_src, gap_dst, _ in steps[1:] if gap_src or gap_dst)
    assert len(out) == breaks + 1


@pytest.mark.parametrize(
    ("desc", "side"),
    [
        ((0, 0, 501), "source"),
        ((500, 0, 1), "source"),
        ((0, 1000, 1), "target"),
        ((1, 999, 2), "target"),
        ((0, 0, 0), "source"),
        ((2**64 - 1, 0, 2), "source"),
        ((0, 2**64 - 1, 2), "target"),
        ((0, 0, 2**64 - 1), "source"),
        ((2, 2, 2**64 - 1), "source"),
    ],
)
def test_out_of_range_is_refused_by_side_and_row(desc: tuple[int, int, int], side: str) -> None:
    t = table()
    for row, good in ((0, []), (1, [(0, 0, 500)]), (2, [(499, 999, 1), (2, 2, 1)])):
        rows = np.array([*good, desc], dtype=np.uint64)
        with pytest.raises(UsageError, match=f"descriptor {row}: {side}"):
            request([WritePart(t.regions()[0], DST, rows)], b"", t, {3: DST}, CAPS)


@pytest.mark.parametrize("few", [16, 0])
def test_all_bytes_of_both_sides_and_the_last_alone_are_inside(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(regions, "_FEW", few)
    t = table()
    same = RemoteRegion(PEER, 3, 0x9000, 500, "DRAM", 7)
    whole = request([WritePart(t.regions()[0], same, bulk(0, 0, 500))], b"", t, {3: same}, CAPS)
    assert (whole.local.tolist(), whole.remote.tolist()) == ([[0x1000, 500, 0]], [[0x9000, 500, 7]])
    out = request([WritePart(t.regions()[0], DST, bulk(499, 999, 1))], b"", t, {3: DST}, CAPS)
    assert out.local.tolist() == [[0x1000 + 499, 1, 0]]
    assert out.remote.tolist() == [[0x9000 + 999, 1, 0]]
    assert (out.count, out.sources) == (1, (0,))


def test_a_few_pieces_become_what_many_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go a quicker way; each of them begins where the one before has ended, or not, on either side."""
    t, far = table(), RemoteRegion(PEER, 3, 0x9000, 1000, "DRAM", 7)
    for gaps in itertools.product(itertools.product((0, 1), (0, 2)), repeat=3):
        src, dst, rows = 0, 0, list[tuple[int, int, int]]()
        for length, (gap_src, gap_dst) in enumerate(gaps, 1):
            rows.append((src + gap_src, dst + gap_dst, length))
            src, dst = src + gap_src + length, dst + gap_dst + length
        made = []
        for few in (16, 0):
            monkeypatch.setattr(regions, "_FEW", few)
            out = request([WritePart(t.regions()[0], far, as_descs(rows))], b"", t, {3: far}, CAPS)
            made.append((out.local.tolist(), out.remote.tolist()))
        assert made[0] == made[1] and len(made[0][0]) == 1 + sum(gap != (0, 0) for gap in gaps[1:])


def test_a_few_pieces_that_go_back_and_forth_are_joined_where_they_follow_one_another_alone() -> None:
    t = table()
    rows = [(100, 200, 10), (0, 0, 5), (110, 210, 10), (110, 5, 5), (5, 5, 5)]
    out = request([WritePart(t.regions()[0], DST, as_descs(rows))], b"", t, {3: DST}, CAPS)
    assert out.local.tolist() == [[0x1000 + src, nbytes, 0] for src, _, nbytes in rows]
    assert out.remote.tolist() == [[0x9000 + dst, nbytes, 0] for _, dst, nbytes in rows]


def test_parts_are_one_request_in_order() -> None:
    t = table()
    t.add(t.plan(0x4000, 100, "DRAM", 0))
    first, second = t.regions()
    other = RemoteRegion(PEER, 4, 0xA000, 50, "DRAM", 0)
    parts = [
        WritePart(first, DST, bulk(0, 10, 5)),
        WritePart(second, other, bulk(1, 2, 3)),
        WritePart(first, other, bulk(9, 9, 1)),
    ]
    out = request(parts, b"t", t, {3: DST, 4: other}, CAPS)
    assert out.local[:, 0].tolist() == [0x1000, 0x4001, 0x1009]
    assert out.remote[:, 0].tolist() == [0x900A, 0xA002, 0xA009]
    assert out.sources == (0, 1)


def test_a_request_of_two_parts_has_both() -> None:
    t, other = table(), RemoteRegion(PEER, 4, 0x8000, 16, "DRAM", 0)
    parts = [WritePart(t.regions()[0], DST, bulk(0, 1, 8)), WritePart(t.regions()[0], other, bulk(16, 2, 4))]
    out = request(parts, b"", t, {3: DST, 4: other}, CAPS)
    assert out.local.tolist() == [[0x1000, 8, 0], [0x1010, 4, 0]]
    assert out.remote.tolist() == [[0x9001, 8, 0], [0x8002, 4, 0]]


def test_a_write_knows_the_kind_of_each_side() -> None:
    t, device = table(), RemoteRegion(PEER, 3, 0x9000, 1000, "VRAM", 2)
    out = request([WritePart(t.regions()[0], device, bulk(0, 0, 1))], b"", t, {3: device}, CAPS)
    assert (out.local_kind, out.remote_kind, out.remote.tolist()) == ("DRAM", "VRAM", [[0x9000, 1, 2]])


def test_a_write_that_mixes_kinds_is_refused() -> None:
    t = table()
    t.add(t.plan(0x1000, 100, "VRAM", 0))
    host, device = t.regions()
    with pytest.raises(UsageError, match="kinds"):
        request([WritePart(host, DST, bulk(0, 0, 1)), WritePart(device, DST, bulk(0, 0, 1))], b"", t, {3: DST}, CAPS)
    far = RemoteRegion(PEER, 4, 0xA000, 50, "VRAM", 0)
    for src, first, second in ((host, DST, far), (device, far, DST)):
        both = [WritePart(src, dst, bulk(0, 0, 1)) for dst in (first, second)]
        with pytest.raises(UsageError, match="kinds"):
            request(both, b"", t, {3: DST, 4: far}, CAPS)


def test_limits_of_the_backend_are_named() -> None:
    t = table()
    src = t.regions()[0]
    with pytest.raises(UsageError, match="tag of 65 bytes"):
        request([WritePart(src, DST, bulk(0, 0, 1))], b"x" * 65, t, {3: DST}, CAPS)
    many = as_descs([(2 * i, 2 * i, 1) for i in range(101)])
    with pytest.raises(UsageError, match="101 descriptors"):
        request([WritePart(src, DST, many)], b"", t, {3: DST}, CAPS)
    assert request([WritePart(src, DST, many[1:])], b"x" * 64, t, {3: DST}, CAPS).count == 100
    with pytest.raises(UsageError, match="part"):
        request([], b"", t, {3: DST}, CAPS)


def test_a_target_of_an_older_table_is_stale_and_a_retired_source_is_a_bug() -> None:
    t = table()
    src = t.regions()[0]
    moved = RemoteRegion(PEER, 3, 0x9999, 1000, "DRAM", 0)
    with pytest.raises(StaleEndpoint, match="region 3"):
        request([WritePart(src, DST, bulk(0, 0, 1))], b"", t, {3: moved}, CAPS)
    t.remove(src)
    with pytest.raises(UsageError, match="not registered"):
        request([WritePart(src, DST, bulk(0, 0, 1))], b"", t, {3: DST}, CAPS)


# -- the local table


@pytest.mark.parametrize(
    ("addr", "nbytes", "kind", "dev"),
    [
        (0, 1, "DRAM", 0), (1, 0, "DRAM", 0), (2**63 - 1, 2, "DRAM", 0), (64, 64, "FILE", 0), (64, 64, "DRAM", -1),
        (64, 64, "DRAM", 1 << 16),
    ],
)  # fmt: skip
def test_what_is_no_memory_is_refused(addr: int, nbytes: int, kind: str, dev: int) -> None:
    with pytest.raises(UsageError):
        RegionTable(CAPS.kinds).plan(addr, nbytes, kind, dev)  # type: ignore[arg-type]


def test_memory_may_be_the_first_byte_and_the_last_and_of_any_device() -> None:
    for region in ((1, 1, "DRAM", 0), (2**63 - 2, 2, "DRAM", 0), (64, 64, "VRAM", (1 << 16) - 1)):
        made = RegionTable(CAPS.kinds).plan(*region)
        assert (made.addr, made.nbytes, made.kind, made.dev) == region


def test_overlap_is_refused_only_in_the_same_memory() -> None:
    t = table()
    with pytest.raises(UsageError, match="overlaps region 0"):
        t.plan(0x1000 + 499, 10, "DRAM", 0)
    with pytest.raises(UsageError, match="overlaps region 0"):
        t.plan(0x1000 - 9, 10, "DRAM", 0)
    assert t.plan(0x1000 + 500, 10, "DRAM", 0).index == 1
    assert t.plan(0x1000 - 10, 10, "DRAM", 0).index == 1
    assert t.plan(0x1000, 500, "VRAM", 0).index == 1


def test_an_index_that_peers_were_told_of_is_never_given_twice_and_every_change_has_a_serial() -> None:
    t = table()
    t.entries({})
    first = t.regions()[0]
    serial = t.serial
    t.remove(first)
    again = t.plan(first.addr, first.nbytes, "DRAM", 0)
    t.add(again)
    assert (again.index, t.serial) == (1, serial + 2)
    assert t.plan(0x100, 1, "DRAM", 0).index == 2
    with pytest.raises(UsageError, match="not registered"):
        t.remove(first)


# -- endpoints


def test_regions_are_told_and_learned_as_they_are() -> None:
    t = table()
    t.add(t.plan(0x2000, 8, "VRAM", 3))
    told = t.entries({1: (b"share", b"a device")})
    assert told == (RegionEntry(0, 0x1000, 500, "DRAM", 0), RegionEntry(1, 0x2000, 8, "VRAM", 3, b"share", b"a device"))
    assert remote_table(PEER, told) == {
        0: RemoteRegion(PEER, 0, 0x1000, 500, "DRAM", 0), 1: RemoteRegion(PEER, 1, 0x2000, 8, "VRAM", 3),
    }  # fmt: skip


def test_an_endpoint_round_trips() -> None:
    assert decode(encode(endpoint()), "memory") == endpoint()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not an endpoint"),
        (b"\x93\x01\x02", "not an endpoint"),
        (b"\x81\xa4more" + b"\x91" * 100_000, "not an endpoint"),
        (b"\x00" * (MAX_BYTES + 1), "at most"),
        (encode(endpoint())[:-3], "endpoint"),
        (encode(endpoint(blob=b"whole")).replace(b"whole", b"whale"), "damaged"),
        (forged(MAX_REGIONS + 1), f"{MAX_REGIONS + 1} regions"),
        (encode(endpoint(backend="nixl")), "'nixl'"),
        (encode(endpoint(version=VERSION + 1)), "version"),
        (msgspec.msgpack.encode({"backend": "memory", "version": 9, "regions": "new"}) + bytes(16), "version 9"),
        (encode(endpoint(instance="")), "instance"),
        (encode(endpoint(regions=(RegionEntry(1, 1, 1, "DRAM", 0), RegionEntry(1, 9, 1, "DRAM", 0)))), "twice"),
        (encode(endpoint(regions=(RegionEntry(1, 2**63 - 5, 6, "DRAM", 0),))), "beyond"),
        (encode(endpoint(regions=(RegionEntry(1, 1, 0, "DRAM", 0),))), "regions"),
        (encode(endpoint(regions=(RegionEntry(1, -1, 1, "DRAM", 0),))), "regions"),
        (encode(endpoint(regions=(RegionEntry(1, 1, 1, "DISK", 0),))), "regions"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_endpoint_says_what_is_wrong_with_it(data: bytes, says: str) -> None:
    with pytest.raises(BadEndpoint, match=says):
        decode(data, "memory")


@given(st.binary(max_size=300))
def test_no_bytes_break_the_decoder(data: bytes) -> None:
    with pytest.raises(BadEndpoint):
        decode(data, "memory")


@given(st.integers(0, len(encode(endpoint())) - 1), st.integers(0, 255))
def test_a_flipped_byte_is_refused_or_gives_a_sound_table(at: int, value: int) -> None:
    data = bytearray(encode(endpoint()))
    data[at] = value
    try:
        out = decode(bytes(data), "memory")
    except BadEndpoint:
        return
    assert all(0 <= e.addr < e.addr + e.nbytes <= 2**63 for e in out.regions)


def test_too_much_is_refused_where_it_is_made_and_not_before() -> None:
    rows = tuple(RegionEntry(i, i + 1, 1, "DRAM", 0) for i in range(MAX_REGIONS + 1))
    with pytest.raises(BadEndpoint, match=f"{MAX_REGIONS + 1} regions"):
        encode(endpoint(regions=rows))
    room = MAX_BYTES - len(encode(endpoint(blob=bytes(1 << 16)))) + (1 << 16)
    with pytest.raises(BadEndpoint, match=f"of {MAX_BYTES + 1} bytes"):
        encode(endpoint(blob=bytes(room + 1)))
    for most in (endpoint(regions=rows[:-1]), endpoint(blob=bytes(room))):
        assert decode(encode(most), "memory") == most


def test_a_region_may_end_where_the_addresses_end() -> None:
    last = endpoint(regions=(RegionEntry(1, 2**63 - 5, 5, "DRAM", 0),))
    assert decode(encode(last), "memory") == last


@pytest.mark.parametrize("pieces", [1, 20])
@pytest.mark.parametrize("larger", ["source", "target"])
def test_each_side_is_bounded_by_its_own_region(pieces: int, larger: str) -> None:
    """The other region is larger: its bound must not be taken in the place of the smaller one's."""
    own, size = RegionTable(CAPS.kinds), 4 * pieces
    src = own.plan(0x1000, size if larger == "target" else 2 * size, "DRAM", 0)
    own.add(src)
    dst = RemoteRegion(PEER, 3, 0x9000, size if larger == "source" else 2 * size, "DRAM", 0)
    for beyond in (0, 1):
        rows = [[4 * at, 4 * at, 4] for at in range(pieces)]
        rows[-1][1 if larger == "source" else 0] += beyond
        part = WritePart(src, dst, np.array(rows, np.uint64))
        if beyond:
            with pytest.raises(UsageError, match=f"{'target' if larger == 'source' else 'source'} .* not inside"):
                request([part], b"", own, {3: dst}, CAPS)
        else:
            assert request([part], b"", own, {3: dst}, CAPS).local[:, 1].sum() == size


def test_indices_of_pages_keep_more_than_sixteen_bits() -> None:
    peer, nbytes = PeerId("peer"), 1 << 20
    near, far = MemoryRegion(0, 1 << 20, nbytes, "DRAM", 0), RemoteRegion(peer, 0, 1 << 30, nbytes, "DRAM", 0)
    lists = PageLists(peer, tuple(PagePiece(near, far, at, at, 8, 8, 4) for at in (0, 4)))
    lists.near, lists.far = 100_000, 120_000
    asked = PagesRequest(lists, np.array([65_536, 99_999]), np.array([70_000, 1]), CAPS)
    assert asked.indices("near").tolist() == [65_536, 99_999, 165_536, 199_999]
    assert asked.indices("far").tolist() == [70_000, 1, 190_000, 120_001]
