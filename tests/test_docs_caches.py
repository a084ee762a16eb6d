"""docs/caches.md is true: its code makes a pool, and the plan shares layers as it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import torch

from kvproto import Room
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout

PAGE = (Path(__file__).parent.parent / "docs" / "caches.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_of_the_page_makes_a_pool() -> None:
    code = CODE[0]
    pages = 4
    indices = [torch.zeros((pages, 64 * 132), dtype=torch.uint8) for _ in range(2)]
    latents = [torch.zeros((pages, 64, 656), dtype=torch.uint8) for _ in range(3)]
    named: dict[str, object] = {
        "rank": 7, "latents": latents, "keys": [each[:, : 64 * 128].view(pages, 64, 128) for each in indices],
        "scales": [each[:, 64 * 128 :].view(pages, 64, 4) for each in indices],
        "tensors": {f"{at}": each for at, each in enumerate([*latents, *indices])} | {"draft.k": torch.zeros(1)},
    }  # fmt: skip
    exec(code, named)  # noqa: S102  # the page's own
    pool = named["pool"]
    assert isinstance(pool, CachePool) and pool.pages == pages


def opened(code: str) -> tuple[Layout, list[dict[str, Any]]]:
    """The layout of this code, and what the two engines have given with their rooms."""
    made = create_autospec(PrefillEndpoint), create_autospec(DecodeEndpoint)
    given = {"Cache": Cache, "CachePart": CachePart, "Layout": Layout, "prefill": made[0], "decode": made[1]}
    more: dict[str, Any] = {"room": Room(1), "tokens": 8192, "pages": [0], "theirs": [1], "ours": [2], "fresh": [3]}
    named: dict[str, Any] = given | more
    exec(code, named)  # noqa: S102  # the page's own
    layout = named["layout"]
    assert isinstance(layout, Layout) and layout.state is not None
    return layout, [call.open.call_args.kwargs for call in made]


def test_the_code_of_the_page_opens_rooms_with_slots_and_windows() -> None:
    _, given = opened(CODE[1])
    assert [each["slot"] for each in given] == [5, 2]
    layout, given = opened(CODE[2])
    assert [each["window"] for each in given] == [[2], [3]]
    assert [end.last_rows(8192) for end in layout.ends] == [1024]
    assert len(CODE) == 3, "no other code is without a test"


def test_replicas_send_what_the_page_says() -> None:
    caches = Cache("mla", (CachePart("latent", 1, 656),)), Cache("index", (CachePart("row", 1, 132),))
    prefill, decode = (Layout.of_caches(caches, layers=61, page_size=64, tp=tp) for tp in (8, 1))
    plan = Plan(prefill, decode, 512)
    sent = [sum(plan.part_bytes(share, Cut(0, 8192)) for share in plan.duties(writer)) / 1e6 for writer in range(8)]
    assert "each of the eight sends 45 to\n52 MB" in PAGE and (int(min(sent)), round(max(sent))) == (45, 52)
    prefill, decode = (Layout(61, 1, 656 + 132, 0, 1, "bits", 64, tp) for tp in (8, 1))
    alone = Plan(prefill, decode, 512)
    (share,) = [share for writer in range(8) for share in alone.duties(writer)]
    assert "one of them sends all 394" in PAGE and round(alone.part_bytes(share, Cut(0, 8192)) / 1e6) == 394
