"""A plain description of a transport, in Python, written from PROTOCOL.md alone, without kvproto.

What is wrong with one is found in the order that the page gives, and said by the page's words.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import msgspec

VERSION, SUM, MOST, REGIONS, TOP = 2, 16, 1_048_576, 4_096, 1 << 63
HOST = 36
OF_DEVICE, OF_HOST = struct.Struct("<36s64sQ"), struct.Struct("<36sIIQ16s")


def summed(data: bytes) -> bytes:
    """The map's bytes, and their sum."""
    return data + hashlib.blake2b(data, digest_size=SUM).digest()


def describe(backend: str, instance: str, serial: int, regions: list[list[Any]], blob: bytes) -> bytes:
    """Regions are arrays: index, addr, nbytes, kind, dev, share, gpu."""
    said = {"backend": backend, "version": VERSION, "instance": instance, "serial": serial, "regions": regions}
    return summed(msgspec.msgpack.encode({**said, "blob": blob}))


def understand(data: bytes, backend: str) -> dict[str, Any] | str:
    """Return its content, or why it is refused."""
    if len(data) > MOST:
        return "more bytes"
    whole, told = data[:-SUM], data[-SUM:]
    try:
        said = msgspec.msgpack.decode(whole)
    except msgspec.DecodeError:
        return "no map"
    if not isinstance(said, dict) or type(said.get("backend")) is not str or type(said.get("version")) is not int:
        return "no map"
    if said["backend"] != backend:
        return "another backend"
    if said["version"] != VERSION:
        return "another version"
    if summed(whole) != whole + told:
        return "another sum"
    if not _fits(said, said.get("regions")):
        return "a field"
    regions = [_whole(region) for region in said["regions"]]
    if len(regions) > REGIONS or len({index for index, *_ in regions}) < len(regions):
        return "too many regions, or a number twice"
    if any(addr + nbytes > TOP for _, addr, nbytes, *_ in regions):
        return "ends above"
    return {**said, "regions": regions}


def _fits(said: dict[str, Any], regions: Any) -> bool:
    instance, serial, blob = (said.get(name) for name in ("instance", "serial", "blob"))
    own = type(instance) is str and 1 <= len(instance) <= 128 and _number(serial, 0, TOP - 2) and type(blob) is bytes
    return own and type(regions) is list and all(map(_region, regions))


def _region(region: Any) -> bool:
    if type(region) is not list or len(region) < 5:
        return False
    index, addr, nbytes, kind, dev, share, gpu = _whole(region)
    numbers = _number(index, 0, (1 << 31) - 1) and _number(addr, 0, TOP - 2) and _number(nbytes, 1, TOP - 2)
    rest = kind in {"DRAM", "VRAM"} and _number(dev, 0, (1 << 16) - 1)
    return numbers and rest and _bytes(share, 128) and _bytes(gpu, 16)


def _whole(region: list[Any]) -> tuple[Any, ...]:
    return (*region, b"", b"")[:7]


def _bytes(value: Any, most: int) -> bool:
    return type(value) is bytes and len(value) <= most


def _number(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def host() -> bytes:
    return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
