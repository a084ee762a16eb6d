"""docs/embedding.md is true: its commands print what it shows, its code runs, its names exist."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

from support.pages import commands, compare, run
from support.peers import PAGES, Peers
from support.stories import layout

from kvproto import Cause, DecodeEndpoint, MemoryTransport, PeerEndpoint, PrefillEndpoint, Room
from kvproto.endpoint.resume_point import PageDigests, ResumePoint, resume_prefix
from kvproto.fsm.vocabulary import Transmit
from kvproto.room import Caller
from kvproto.verify.testing.pair import SMALL, Pair
from kvproto.verify.testing.pools import noise

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "embedding.md").read_text()


def test_what_the_page_shows_is_what_happens(tmp_path: Path) -> None:
    (console,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for command, shown in commands(console):
        compare([line for line in shown if line != "…"], run(command, tmp_path, ROOT))


def test_the_code_of_the_page_runs_and_says_what_it_says() -> None:
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, list[object]] = {}
    exec(code, found)  # noqa: S102  # the page's own
    said = [type(each.body).__name__ for each in found["orders"] if isinstance(each, Transmit)]
    assert said == ["OpenRoom", "GiveBlocks"]
    assert "FreeBlocks" not in {type(each).__name__ for each in found["ended"]}


def test_the_fragment_of_the_page_takes_the_pool_away_and_gives_another() -> None:
    _, code, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        prefill, engine = pair.prefills[0], Mock()
        engine.pool.return_value = pair.pool(pair.plan.prefill, 0, 1)
        exec(code, {"endpoint": prefill, "engine": engine})  # noqa: S102  # the page's own
        assert [each[0] for each in engine.method_calls] == ["sleep", "wake", "pool"]
        assert prefill.pool is engine.pool.return_value and not prefill.detached


def test_the_fragment_of_the_page_lets_a_room_go_on_at_a_successor_and_at_a_replacement() -> None:
    _, _, code, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    decodes = {name: create_autospec(DecodeEndpoint, instance=True) for name in ("decode", "successor")}
    prefills = {name: create_autospec(PrefillEndpoint, instance=True) for name in ("prefill", "replacement")}
    room, again = Room(1), Room(1, 1)
    names = decodes | prefills | {"room": room, "again": again, "tokens": 30, "pages": [1], "its_pages": [2]}
    point = decodes["decode"].resume_point.return_value = ResumePoint(room, 30, 0, 16)
    for endpoint, cut in ((decodes["decode"], layout(1)), (prefills["replacement"], layout(1))):
        endpoint.digest_pages.return_value = PageDigests(point, cut, 0, {"0/0": "1"})
    exec(code, names | {"resume_prefix": resume_prefix})  # noqa: S102  # the page's own
    prefills["prefill"].open.assert_called_once_with(again, 30, [1], resumes=room)
    for endpoint in decodes.values():
        endpoint.open.assert_called_once_with(again, 30, [1], prefix=16, resumes=room)


def test_the_fragment_of_the_page_takes_kv_from_a_peer() -> None:
    *_, code, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with Peers(layout(1), layout(1)) as peers:
        (far,), engine, fabric = peers.groups[2], Mock(), peers.fabric
        engine.pool.return_value = pool = noise(layout(1), 0, PAGES, 3)
        named: dict[str, Any] = {
            "PeerEndpoint": partial(PeerEndpoint, settings=SMALL), "layout": layout(1), "rank": 0, "engine": engine,
            "transport": MemoryTransport(fabric), "other_layout": layout(1), "other_addresses": [far.address],
            "other": 2, "turn": Room(7), "tokens": 128, "pages": range(32), "held": 64,
        }  # fmt: skip
        exec(code.replace("512,", "8,"), named)  # noqa: S102  # the page's own
        with named["peer"] as peer:
            assert peer.decode.pool is peer.prefill.pool is pool
            peers.there.pump(lambda: far.prefill.caller(Room(7)) == Caller(3, 128, 64, 4))
            peer.decode.abort(Room(7))
            peers.there.pump(lambda: far.prefill.caller(Room(7)) == Caller(3, 128, 64, 4, Cause.DECODE_ABORTED))


def test_the_hook_of_the_page_says_what_the_endpoint_takes() -> None:
    *_, code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    endpoint, event = create_autospec(PrefillEndpoint, instance=True), object()
    names = {"endpoint": endpoint, "every": 2, "layers": 4, "batch": [(1, 30)], "room": 1, "upto": 30, "event": event}
    exec(code, names | {"torch": Mock()})  # noqa: S102  # the page's own
    endpoint.produced.assert_called_once_with(1, 30, event)
    hook = names | {"torch": Mock()}
    exec(code, hook)  # noqa: S102
    endpoint.produced.reset_mock()
    for layer in range(4):
        hook["after_layer"](layer)
    assert [each.kwargs for each in endpoint.produced.call_args_list] == [{"layers": 2}]


def test_every_link_leads_somewhere() -> None:
    for path in re.findall(r"\]\((?!#|http)([^)]+)\)", PAGE):
        assert (ROOT / "docs" / path.partition("#")[0]).exists(), path


def test_every_call_of_the_page_is_one() -> None:
    table = PAGE[PAGE.index("| | prefill | decode |") :].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        cells = line.split("|")[2:4]
        for cell, endpoint in zip(cells, (PrefillEndpoint, DecodeEndpoint), strict=True):
            for name in re.findall(r"`(\w+)", cell):
                assert hasattr(endpoint, name), f"{endpoint.__name__}.{name}"


def test_the_extra_configuration_of_the_page_is_what_is_read() -> None:
    folder = ROOT / "kvproto" / "adapters" / "vllm"
    source = "".join(path.read_text() for path in sorted(folder.glob("*.py")))
    read = set(re.findall(r"extra(?:\.get\(|\[)\"(\w+)\"", source))
    (told,) = re.findall(r"`kv_connector_extra_config`: (.*?)\n\n", PAGE, re.DOTALL)
    assert read == set(re.findall(r"`(\w+)`", told)) - {"kvproto"}
