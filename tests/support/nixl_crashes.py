"""NIXL crashes: a process that connects peers with the damaged metadata of `nixl_crashes.json`.

The first argument is whether a transport checks metadata before NIXL sees it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec

from kvproto.io.transports.base import BadEndpoint
from kvproto.lab.torture.fuzz_nixl import LivePeer, Target, ucx_parts


def main(checked: str, *names: str) -> None:
    crashes = json.loads(Path(__file__).with_suffix(".json").read_text())
    live, target = LivePeer(), Target(checked=checked == "True")
    for name in names:
        part, at, cut, new = crashes[name]
        blob = live.said.blob
        place = ucx_parts(blob)[part]
        was = blob[place.begin : place.end]
        damaged = place.replaced(blob, was[:at] + bytes.fromhex(new) + was[at + cut :])
        try:
            target.meet(msgspec.structs.replace(live.said, blob=damaged))
        except BadEndpoint:
            print("refused", flush=True)
        else:
            print("taken", flush=True)
    os._exit(0)


main(*sys.argv[1:])
