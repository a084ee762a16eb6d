"""Models with several caches: whole runs between processes, every byte, token and logit compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("rich")

from kvproto.lab.cli import demo_command
from kvproto.lab.cli.demo_command import main
from kvproto.lab.demo.cache_field import rebuilt, rows_of
from kvproto.lab.demo.caches_job import CachesJob
from kvproto.lab.demo.caches_model import CachesModel
from kvproto.lab.demo.caches_pages import CachesPages, whole_rows
from kvproto.lab.demo.conduct import DemoResult, Pass, conduct
from kvproto.lab.demo.family import FAMILIES
from kvproto.lab.demo.job import GroupShape, RoomSpec
from kvproto.lab.demo.model import read_aux
from kvproto.lab.demo.report import TOLD
from kvproto.lab.demo.run import Run, make_rooms

G = GroupShape
#: what is planted in each family's rows wherever D's ranks have them whole
PLANTED = {
    "qwen3-next": {"another head", "convolution in one piece", "a page left out", "another room's state"},
    "gemma3": {"another head", "a page left out", "a window one token early"},
    "falcon-h1": {"another head", "convolution in one piece", "a page left out", "another room's state"},
    "deepseek-v3": {"a page left out"},
    "deepseek-v3.2": {"a page left out"},
    "gpt-oss": {"another head", "a page left out", "a window one token early"},
}


def job(family: str, p: GroupShape, d: GroupShape, tokens: int = 170, **more: Any) -> CachesJob:
    rooms = make_rooms(3, tokens, page=d.page_size, prefix=2 * d.page_size, full_prefix=True, new=5, seed=7)
    return CachesJob(family, p, d, rooms, **more)


# ---------------------------------------------------------------------------------- the library's cache and rows
@pytest.mark.parametrize("tokens", [9, 130])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_cache_that_is_made_of_rows_says_the_same_bit_for_bit(family: str, tokens: int) -> None:
    me = CachesModel(CachesJob(family, G(1), G(1), (RoomSpec(1, tokens),)))
    *_, (_, cache, row) = me.prefill(me.job.rooms[0])
    rows = rows_of(me.fields, cache)
    again = rebuilt(me.model.config, me.fields, rows, tokens)
    same = rows_of(me.fields, again)
    assert rows.keys() == same.keys() == me.units.keys() and all(torch.equal(rows[key], same[key]) for key in rows)
    first = read_aux(row or b"")[0]
    assert list(me.more(again, first, 6)) == list(me.more(cache, first, 6))
    assert len({read_aux(row)[0] for row in me.more(cache, first, 20)}) > 2, "one token alone would prove little"


@pytest.mark.parametrize("order", ["NHD", "HND"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_ranks_have_in_their_pages_is_the_whole_cache(family: str, order: Any) -> None:
    me = CachesModel(CachesJob(family, G(4, order=order), G(1), (RoomSpec(1, 77),), chunk=32))
    pages = [CachesPages(me.layout("prefill"), rank, pages=9, windows=9, slots=3, seed=rank) for rank in range(4)]
    held, first, rows = [each.take(77) for each in pages], 0, {}
    for upto, cache, _ in me.prefill(me.job.rooms[0]):
        rows = rows_of(me.fields, cache)
        for each, mine in zip(pages, held, strict=True):
            each.store(rows, mine, first, upto)
        first = upto
    shares = [each.sheet(each.load(mine)) for each, mine in zip(pages, held, strict=True)]
    together = whole_rows(shares, me.units)
    assert all(torch.equal(together[key], rows[key]) for key in rows)
    assert shares[0] != shares[3] or family.startswith("deepseek"), "latents alone are on every rank"
    assert not pages[0].intruded([held[0]])
    pages[1].parts[next(iter(pages[1].parts))].tensor[-1, -1] += 1
    outside = CachesPages(me.layout("prefill"), 1, pages=9, windows=9, slots=3, seed=1)
    outside.parts[next(iter(outside.parts))].tensor[0, 0] += 1
    assert [text.split(":")[1] for text in outside.intruded([])] == [
        " 1 rows outside the rooms changed, the first in page 0 at 0"
    ]


def test_what_is_given_back_is_noise() -> None:
    me = CachesModel(CachesJob("qwen3-next", G(1), G(1), (RoomSpec(1, 20),)))
    pages = CachesPages(me.layout("decode"), 0, pages=3, windows=0, slots=2, seed=0)
    held = pages.take(20)
    before = pages.load(held)
    pages.give(held)
    after = pages.load(held)
    assert all(not torch.equal(before[key], after[key]) for key in before) and not pages.intruded([])
    assert pages.take(48).tokens == 48, "all three pages are free again"


# -------------------------------------------------------------------------------------------------- whole runs
PAIRS = [(family, p, d) for family in FAMILIES for p, d in ((2, 1), (1, 2), (4, 4))]


def run_of(made: CachesJob, ring: float = 4.0, **more: Any) -> Run:
    return Run(made, ring, **{"passes": ("live",), "in_chunks": True, **more})


def good(result: DemoResult) -> None:
    assert result.wrong == []
    assert result.tokens == sum(room.new for room in result.run.job.rooms)
    assert all(found == planted > 0 for found, planted in result.controls.values())
    assert result.passes[0].counts["bytes"] > 0 and all(rows > 0 for rows, _ in result.parts.values())


@pytest.mark.parametrize(("family", "p", "d"), PAIRS, ids=[f"{family} {p}-{d}" for family, p, d in PAIRS])
def test_every_byte_token_and_logit_is_the_model_s(family: str, p: int, d: int) -> None:
    pytest.importorskip("nixl._api")
    result = conduct(run_of(job(family, G(p), G(d))))
    good(result)
    if (p, d) == (2, 1):
        assert set(result.controls) == PLANTED[family]


STAGES = {
    "stages of state alone": job("qwen3-next", G(1, pp=2), G(2)),
    "stages of windows alone": job("gemma3", G(2, order="HND"), G(1, pp=3, page_size=32)),
    "Mamba2 in stages, float32": job("falcon-h1", G(4), G(1, pp=4), dtype="float32"),
}


@pytest.mark.parametrize("name", STAGES)
def test_stages_pages_and_orders_may_differ(name: str) -> None:
    pytest.importorskip("nixl._api")
    good(conduct(run_of(STAGES[name], 1.5)))


def test_rooms_go_each_way_and_some_are_given_up() -> None:
    pytest.importorskip("nixl._api")
    made = job("gemma3", G(1), G(2), 60, chunk=16)
    run = run_of(made, passes=("live", "live_pages", "staged", "pages"), abort="decode", warm=True)
    result = conduct(run)
    assert result.wrong == [] and len(result.unsharded["whole"]) == 2
    assert result.tokens == 2 * 5 + 3 * 2, "a room is given up where texts are continued to their end"
    counts = {done.route: done.counts for done in result.passes}
    assert counts["live"]["aborted"] == 1 and counts["staged"]["writes"] > 0 == counts["pages"]["writes"]


def test_heads_of_a_recurrence_that_are_one_off_are_found_by_name() -> None:
    pytest.importorskip("nixl._api")
    result = conduct(run_of(job("qwen3-next", G(1), G(1))), players="support.shifted_pages")
    assert not result.ok
    told = "differs in layer 0 state.ssm unit 0 in 1 rows, the first of them 0"
    for rank in ("P0", "D0"):
        assert f"live pass, room 1: {rank} {told}" in result.wrong
    assert not any("state.q" in text or "full." in text for text in result.wrong), "nothing else was wrong"
    assert any("logits of token 1 differ" in text for text in result.wrong), "and it matters"


# ----------------------------------------------------------------------------------------------- the command
def told(run: Run, wrong: list[str]) -> DemoResult:
    result = DemoResult(run, [Pass("live", dict.fromkeys(TOLD, 1))], wrong)
    result.parts["window.k"][:] = [39, 1248]
    result.controls["another head"][:] = [1, 1]
    return result


def test_a_run_is_told_as_a_table_and_as_an_object(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked: list[Run] = []

    def carried(run: Run, _watch: Any) -> DemoResult:
        asked.append(run)
        return told(run, [] if len(asked) < 3 else ["room 1: D0 differs"])

    monkeypatch.setattr(demo_command, "conduct", carried)
    assert main(["--model", "gemma3", "--prefill-tp", "2", "--ring", "2", "--rooms", "3"]) == 0
    shown = capsys.readouterr().out
    assert "gemma3 bfloat16, five layers with a sliding window to one without: TP2 -> TP2" in " ".join(shown.split())
    assert "window.k" in shown and "1,248" in shown and "1 of 1 planted" in shown
    assert main(["--model", "gemma3", "--ring", "64KiB", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] and said["parts"] == {"window.k": [39, 1248]} and said["controls"] == {"another head": [1, 1]}
    assert [(run.ring, run.in_chunks) for run in asked] == [(2.0, True), (64 << 10, False)]
    assert main(["--model", "gemma3"]) == 1
    assert "WRONG: room 1: D0 differs" in capsys.readouterr().out


def test_the_matrix_has_every_pair(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pairs: list[tuple[int, int]] = []

    def carried(run: Run) -> DemoResult:
        pairs.append((run.job.prefill.tp, run.job.decode.tp))
        return told(run, ["room 1: D0 differs"] if pairs[-1] == (2, 2) else [])

    monkeypatch.setattr(demo_command, "conduct", carried)
    assert main(["--model", "gemma3", "--matrix"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert pairs == [(p, d) for p in (1, 2, 4) for d in (1, 2, 4)] and lines[-1] == "8 of 9 cases right"
    assert lines[4].startswith("FAIL  gemma3 2->2") and lines[4].endswith("controls 1/1; room 1: D0 differs")
