"""Build peer: a prefill rank of another build prints its address and, at its end, its links."""

from __future__ import annotations

import json
import sys

from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.sharding import Layout
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pools import noise

LAYOUT = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=1)


def main() -> None:
    with PrefillEndpoint(
        LAYOUT, 0, noise(LAYOUT, 0, 8, 1), MemoryTransport(Fabric(auto=True), "other"), chunk_tokens=8
    ) as endpoint:
        endpoint.start()
        print(endpoint.address, flush=True)
        sys.stdin.read()
        refused = [value.why for value in inside(endpoint).rank.links.values()]
        print(json.dumps({"refused": refused, "links": endpoint.links()}))


if __name__ == "__main__":
    main()
