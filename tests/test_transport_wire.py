"""The transport's description by PROTOCOL.md alone is what the package reads and makes."""

from __future__ import annotations

import ast
import ctypes
import itertools
import mmap
import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("numpy")

import numpy as np
from support import plain_description
from support.plain_description import HOST, OF_DEVICE, OF_HOST, describe, host, summed, understand

from kvproto.io.transports import device_maps, endpoint
from kvproto.io.transports.base import BadEndpoint, MemoryRegion, PeerId
from kvproto.io.transports.endpoint import InstanceDescription, RegionEntry, decode, encode
from kvproto.io.transports.host_memory import HostMaps, SharedMemory, share
from kvproto.verify.draw.generated_docs import ROOT

PAGE = (ROOT / "PROTOCOL.md").read_text()
ABOUT = PAGE.partition("### The transport's description\n")[2].partition("\n### ")[0]
ROWS: list[list[Any]] = [
    [0, 4096, 100, "DRAM", 0, b"x" * 68, b""], [7, 1 << 40, 1 << 20, "VRAM", 3, b""], [2, 1, 1, "DRAM", 0]
]  # fmt: skip
NBYTES = 8192


def of(**changes: Any) -> bytes:
    """A description by the page with these fields as they should not be; None: without them."""
    said = {"backend": "memory", "version": 2, "instance": "me", "serial": 1, "regions": ROWS, "blob": b"b"} | changes
    return summed(msgspec.msgpack.encode({name: value for name, value in said.items() if value is not None}))


def test_the_page_names_every_field_in_its_order_and_says_what_it_is() -> None:
    tables = ABOUT.split("<!-- generated: ")[1:3]
    for table, cls in zip(tables, (InstanceDescription, RegionEntry), strict=True):
        lines = re.findall(r"^\| `(\w+)` \| .+? \| (.+) \|$", table, re.MULTILINE)
        assert [name for name, _ in lines] == list(cls.__struct_fields__)
        assert all(len(said.split()) >= 3 for _, said in lines)


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    said = " ".join(ABOUT.split())
    assert f"at most {endpoint.MAX_BYTES:,} bytes" in said and f"There are {endpoint.MAX_REGIONS:,} regions" in said
    assert f"the {endpoint.SUM} bytes of BLAKE2b" in said and f"It is {endpoint.VERSION}, and counts up" in said


def test_what_is_made_by_the_page_is_read() -> None:
    regions = tuple(RegionEntry(*row) for row in ROWS)
    read = decode(describe("nixl", "me", 5, ROWS, b"b"), "nixl")
    assert read == InstanceDescription("nixl", 2, "me", 5, regions, b"b")


def test_what_is_made_is_read_by_the_page() -> None:
    regions = RegionEntry(0, 4096, 100, "DRAM", 0, b"s"), RegionEntry(7, 0, (1 << 63) - 2, "VRAM", 65535, b"", b"g")
    said = understand(encode(InstanceDescription("nixl", 2, "me", (1 << 63) - 2, regions, b"b")), "nixl")
    rows = [(0, 4096, 100, "DRAM", 0, b"s", b""), (7, 0, (1 << 63) - 2, "VRAM", 65535, b"", b"g")]
    assert said == {
        "backend": "nixl", "version": 2, "instance": "me", "serial": (1 << 63) - 2, "regions": rows, "blob": b"b"
    }  # fmt: skip


def test_what_is_not_known_is_passed_over_in_any_order() -> None:
    row = [0, 1, 2, "DRAM", 0, b"s", b"g", "new"]
    data = summed(msgspec.msgpack.encode({
        "new": 1, "blob": b"", "regions": [row], "serial": 0, "instance": "me", "version": 2, "backend": "memory",
    }))  # fmt: skip
    assert decode(data, "memory").regions == (RegionEntry(0, 1, 2, "DRAM", 0, b"s", b"g"),)
    assert isinstance(understand(data, "memory"), dict)


def row(**changes: Any) -> dict[str, Any]:
    """The first region alone, with these fields as they should not be."""
    names = ("index", "addr", "nbytes", "kind", "dev", "share", "gpu")
    return {"regions": [list((dict(zip(names, ROWS[0], strict=True)) | changes).values())]}


REFUSED: dict[str, tuple[bytes, str]] = {
    "size": (of(blob=bytes(endpoint.MAX_BYTES)), "more bytes"), "nothing": (b"", "no map"),
    "array": (summed(b"\x90"), "no map"), "no version": (of(version=None), "no map"),
    "backend": (of(backend="nixl", version=3), "another backend"),
    "version": (of(version=3)[:-1] + b"?", "another version"),
    "sum": (of(blob=5)[:-1] + b"?", "another sum"),
    "blob": (of(blob="text"), "a field"), "no blob": (of(blob=None), "a field"), "name": (of(instance=""), "a field"),
    "long name": (of(instance="x" * 129), "a field"), "serial": (of(serial=-1), "a field"),
    "high serial": (of(serial=(1 << 63) - 1), "a field"), "short row": (of(regions=[[0, 1, 2, "DRAM"]]), "a field"),
    "index": (of(**row(index=1 << 31)), "a field"), "empty": (of(**row(nbytes=0)), "a field"),
    "kind": (of(**row(kind="FILE")), "a field"), "device": (of(**row(dev=1 << 16)), "a field"),
    "share": (of(**row(share=b"x" * 129)), "a field"), "gpu": (of(**row(gpu=b"x" * 17)), "a field"),
    "address": (of(**row(addr=-1)), "a field"),
    "many": (of(regions=[[at, at, 1, "DRAM", 0] for at in range(endpoint.MAX_REGIONS + 1)]), "too many"),
    "twice": (of(regions=[ROWS[0], ROWS[0]]), "a number twice"),
    "end": (of(**row(addr=(1 << 63) - 99, nbytes=100)), "ends above"),
}  # fmt: skip
SAYS = {
    "more bytes": "at most", "no map": "not an endpoint", "another backend": "speaks", "another version": "version 3",
    "another sum": "its sum is another", "a field": "malformed", "too many": "regions; at most",
    "a number twice": "occurs twice", "ends above": "beyond the address space",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_page_refuses_is_refused_for_the_same_reason(name: str) -> None:
    data, why = REFUSED[name]
    assert why in ABOUT.replace("\n", " ")
    told = understand(data, "memory")
    assert isinstance(told, str) and why in told
    with pytest.raises(BadEndpoint, match=SAYS[why]):
        decode(data, "memory")


def test_the_last_that_is_within_the_bounds_is_taken() -> None:
    rows = [[at, at, 1, "DRAM", 0] for at in range(endpoint.MAX_REGIONS - 1)]
    rows.append([(1 << 31) - 1, (1 << 63) - 100, 100, "VRAM", (1 << 16) - 1, b"x" * 128])
    data = of(regions=rows, instance="x" * 128, serial=(1 << 63) - 2)
    assert len(decode(data, "memory").regions) == endpoint.MAX_REGIONS
    assert isinstance(understand(data, "memory"), dict)


def test_host_memory_is_found_by_what_the_page_says_of_its_share() -> None:
    memory = SharedMemory(NBYTES)
    told, process, number, first, name = OF_HOST.unpack(share(MemoryRegion(0, memory.addr + 100, 50, "DRAM", 0)))
    assert (told, process, first) == (host(), os.getpid(), 100) and len(told) == HOST
    file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR)
    assert str(Path(f"/proc/self/fd/{file}").readlink()) == f"/memfd:kvproto-{name.hex()} (deleted)"
    with mmap.mmap(file, 0) as mapped:
        mapped[first : first + 2] = b"ab"
    os.close(file)
    assert memory.view[99:103] == b"\0ab\0"


def test_a_share_of_host_memory_that_is_made_by_the_page_is_mapped() -> None:
    memory, maps, peer = SharedMemory(NBYTES), HostMaps(), PeerId("peer")
    made = OF_HOST.pack(host(), os.getpid(), memory.fd, 100, memory.name)
    maps.open(peer, [RegionEntry(0, 4096, 50, "DRAM", 0, made)])
    part = maps.find(peer, 4096, 50)
    assert part is not None
    part.here[:] = 7
    assert np.frombuffer(memory.view, np.uint8)[99:151].tolist() == [0, *[7] * 50, 0]
    maps.open(peer, [RegionEntry(0, 4096, 50, "DRAM", 0, made + b"?")])
    assert maps.find(peer, 4096, 50) is None, "passed over"


class Driver:
    """One allocation of device memory at `at`, and its handle; whatever else is asked goes well."""

    at, handle = 1 << 40, bytes(range(64))

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: 0

    def cuMemGetAddressRange_v2(self, base: Any, size: Any, _address: Any) -> int:  # noqa: N802
        base._obj.value, size._obj.value = self.at, 1 << 20
        return 0

    def cuIpcGetMemHandle(self, handle: Any, _base: Any) -> int:  # noqa: N802
        ctypes.memmove(ctypes.addressof(handle._obj), self.handle, 64)
        return 0


def test_device_memory_is_told_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_maps, "cuda_driver", Driver)
    told = device_maps.share(MemoryRegion(0, Driver.at + 300, 64, "VRAM", 0))
    assert OF_DEVICE.unpack(told) == (host(), Driver.handle, 300)


def test_the_page_gives_every_byte_of_a_share() -> None:
    for kind, packed in (("VRAM", OF_DEVICE), ("DRAM", OF_HOST)):
        table = ABOUT.partition(f"| `{kind}`, {packed.size} bytes |")[2].partition("bytes |")[0]
        spans = [(int(first), int(last)) for first, last in re.findall(r" (\d+) to (\d+) \|", table)]
        assert spans[0] == (0, HOST - 1) and spans[-1][1] == packed.size - 1
        assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(spans))


def test_the_plain_reader_knows_nothing_of_the_package() -> None:
    tree = ast.parse(Path(plain_description.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names} == {"msgspec"}
