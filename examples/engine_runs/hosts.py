"""Hosts: instances on hosts of their own, which have nothing in common but a cable.

A host is a network namespace with one address, at its end of the cable; no other interface leads out of it.  An
instance's processes start in it, since processes inherit the namespace of the thread that starts them.  Its engine
still talks to this program by sockets in files or by a pipe, and its ranks to each other by the namespace's own
loopback.  UCX may use TCP alone: shared memory would go past the cable.  An address beyond loopback needs keys: each
host has a pair.

Needs root, as containers and build machines are.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

from kvproto.io.control.keys import make_pair

T = TypeVar("T")
#: of Linux: namespaces of mounts and of networks; flags of a mount
CLONE_NEWNS, CLONE_NEWNET, MS_REC, MS_PRIVATE = 0x20000, 0x40000000, 0x4000, 0x40000
CABLE = "cable"
#: begins the name of a pair whose sides are on hosts of their own
APART = "hosts"
#: bytes that every scenario moves between two hosts, at least: the KV of 64 tokens
LEAST = 1 << 19
ADDRESSES = {"P": "10.77.0.1", "D": "10.77.0.2"}


class Host:
    """The host of a side's instances: its name, address, and the file of its secret key."""

    def __init__(self, side: str, keys: Path, serial: int = 0) -> None:
        self.name, self.address = f"kvp-{os.getpid()}-{serial}-{side}", ADDRESSES[side]
        self.key, _ = make_pair(keys, side)

    @property
    def extra(self) -> dict[str, Any]:
        """Return what kvproto's connector is told."""
        return {"bind": f"tcp://{self.address}:*", "keys": str(self.key)}

    @property
    def environment(self) -> dict[str, str]:
        """Return what an instance's processes get in their environment."""
        return {
            "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": CABLE, "VLLM_NIXL_SIDE_CHANNEL_HOST": self.address,
            "SGLANG_HOST_IP": self.address, "SGLANG_LOCAL_IP_NIC": CABLE,
        }  # fmt: skip

    def make(self, made: Callable[[], T]) -> T:
        """Call this in a thread that is there, as is every process that it starts."""
        with ThreadPoolExecutor(1, initializer=self.enter) as thread:
            return thread.submit(made).result()

    def enter(self) -> None:
        """Have this thread be there, and whatever it starts."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/run/netns", self.name).open() as there:
            # /sys tells of the devices of the namespace in which it was mounted, and UCX looks for them there
            failed = (
                libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
                or libc.setns(there.fileno(), CLONE_NEWNET) or libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None)
            )  # fmt: skip
        if failed:
            raise OSError(ctypes.get_errno(), f"the host {self.name} cannot be entered: that takes root")

    @property
    def received(self) -> int:
        """Return the bytes that have come to it through the cable."""
        return int(_ip("netns", "exec", self.name, "cat", f"/sys/class/net/{CABLE}/statistics/rx_bytes"))


class Hosts:
    """The hosts of prefill (P) and of decode (D), and the cable between them."""

    serial = itertools.count()

    def __init__(self, folder: Path) -> None:
        serial = next(self.serial)
        self.of = {side: Host(side, folder / "keys", serial) for side in ADDRESSES}

    def __enter__(self) -> Self:
        prefill, decode = (each.name for each in self.of.values())
        for name in (prefill, decode):
            _ip("netns", "add", name)
        _ip("link", "add", CABLE, "netns", prefill, "type", "veth", "peer", "name", CABLE, "netns", decode)
        for host in self.of.values():
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", CABLE)
            for device in ("lo", CABLE):
                _ip("-n", host.name, "link", "set", device, "up")
        return self

    def __exit__(self, *error: object) -> None:
        for host in self.of.values():
            _ip("netns", "del", host.name)

    def crossed(self) -> int:
        """Return the bytes that have come to decode through the cable so far."""
        return self.of["D"].received


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20).stdout  # noqa: S603, S607
