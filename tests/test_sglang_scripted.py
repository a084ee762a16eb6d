"""SGLang's backend against scripted schedulers, over the fabric, with real endpoints and loops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.scripted_sglang import FAILED, WAITING, Stage

from kvproto.adapters.sglang.receiver import Receiver
from kvproto.endpoint import endpoint
from kvproto.errors import ArgumentError

ROOMS = count(1000)


@pytest.mark.parametrize(("p", "d"), [(1, 1), (1, 2), (2, 1), (2, 4), (4, 2)])
def test_prompts_of_all_lengths_arrive(p: int, d: int) -> None:
    with Stage(p, d) as stage:
        for room, tokens in enumerate((1, 8, 37, 64, 100), 1):
            stage.ask(room, tokens)
        stage.run()
        assert set(stage.decode.ended.values()) == set(stage.prefill.ended.values()) == {"well"}
        stage.idle()


@pytest.mark.parametrize("pages", [(8, 16), (16, 8), (4, 32)])
def test_the_two_instances_may_have_pages_of_different_sizes(pages: tuple[int, int]) -> None:
    with Stage(1, 2, pages=pages) as stage:
        for room, tokens in enumerate((5, 37, 64, 90), 1):
            stage.ask(room, tokens)
        stage.run()
        assert set(stage.decode.ended.values()) == {"well"}
        stage.idle()


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"mla": True}, ["mla.latent"]),
        ({"mla": True, "drafts": 1}, ["draft.latent", "mla.latent"]),
        ({"mla": True, "index": True}, ["index.key", "mla.latent", "index.scale"]),
        ({"mla": True, "index": True, "drafts": 1, "pages": (8, 16)},
         ["index.key", "draft.latent", "mla.latent", "index.scale"]),
        ({"drafts": 2}, ["draft.k", "draft.v", "kv.k", "kv.v"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("p", "d"), [(1, 2), (2, 1)])
def test_latents_indices_and_drafts_are_named_caches(p: int, d: int, more: dict[str, Any], names: list[str]) -> None:
    with Stage(p, d, **more) as stage:
        stage.ask(1, 50)
        stage.ask(2, 64, 16)
        stage.run()
        assert stage.decode.ended == {1: "well", 2: "well"}
        layout = stage.decode.ranks[0].manager.layout
        assert sorted(kind.name for kind in layout.kinds) == sorted(names)


HYBRID = {
    "gdn": ["state.ssm", "kv.k", "kv.v", "state.q", "state.k", "state.v"],
    "mamba2": ["state.ssm", "kv.k", "kv.v", "state.x", "state.B", "state.C"],
    "kda": ["state.ssm", "kv.k", "kv.v", *(f"state.{segment}{tap}" for segment in "qkv" for tap in range(3))],
}
HYBRID["one group"] = HYBRID["mamba2"]


@pytest.mark.parametrize(("kind", "p", "d"), [
    ("gdn", 1, 1), ("gdn", 4, 2), ("mamba2", 1, 2), ("one group", 4, 1), ("one group", 1, 2), ("kda", 2, 1),
])  # fmt: skip
def test_the_state_after_the_last_token_arrives_in_the_slot_that_sglang_names(kind: str, p: int, d: int) -> None:
    """Prompts of one and of several forwards, behind a prefix, and of a full hit; slots are used again."""
    with Stage(p, d, state=kind) as stage:
        for room, (tokens, prefix) in enumerate(((8, 0), (100, 0), (64, 16), (40, 40), (3, 0), (77, 72)), 1):
            stage.ask(room, tokens, prefix)
        stage.run()
        assert stage.decode.ended == stage.prefill.ended == dict.fromkeys(range(1, 7), "well")
        layout = stage.decode.ranks[0].manager.layout
        found = {kind.name for each in (layout, *layout.ends) for kind in each.kinds}
        assert found == set(HYBRID[kind]) and layout.layers == 5
        stage.idle()


@pytest.mark.parametrize("more", [{"mla": True, "index": True}, {"pages": (8, 16)}])
def test_a_hybrid_model_may_have_latents_an_index_and_pages_of_different_sizes(more: dict[str, Any]) -> None:
    with Stage(2, 1, state="kda", **more) as stage:
        stage.ask(1, 50)
        stage.ask(2, 64, 16)
        stage.run()
        assert stage.decode.ended == {1: "well", 2: "well"}
        stage.idle()


@pytest.mark.parametrize(("p", "d", "pages", "window"), [
    (1, 1, (8, 8), 20), (1, 2, (8, 8), 20), (2, 1, (16, 16), 16), (4, 2, (1, 1), 7), (2, 1, (8, 16), 20),
    (1, 2, (16, 8), 20), (1, 1, (4, 32), 15), (1, 1, (8, 8), 200),
])  # fmt: skip
def test_the_last_window_arrives_in_the_pages_that_sglang_names(
    p: int, d: int, pages: tuple[int, int], window: int
) -> None:
    """Prompts below, at and above the window, of one and of several forwards, and behind a prefix."""
    with Stage(p, d, pages=pages, window=window) as stage:
        asked = ((1, 0), (19, 0), (20, 0), (21, 0), (33, 0), (37, 32), (36, 32), (39, 0), (32, 32), (3, 0))
        for room, (tokens, prefix) in enumerate(asked, 1):
            stage.ask(room, tokens, prefix)
            stage.run()
        assert stage.decode.ended == stage.prefill.ended == dict.fromkeys(range(1, len(asked) + 1), "well")
        layout = stage.decode.ranks[0].manager.layout
        assert [kind.name for end in layout.ends for kind in end.kinds] == ["window.k", "window.v"]
        assert layout.layers == 5 and layout.named[-1].layers == (0, 2, 3)
        stage.idle()


#: layers of each stage at prefill and at decode, by whether the model has two layers or five
TWO, FIVE = ((1, 1), ()), ((2, 3), ())


@pytest.mark.parametrize(("p", "d", "stages", "more"), [
    (1, 1, TWO, {}), (2, 1, TWO, {}), (1, 2, TWO, {}), (1, 1, TWO[::-1], {}), (2, 1, TWO[::-1], {}),
    (1, 2, ((1, 1), (1, 1)), {}), (1, 1, TWO, {"mla": True}), (1, 1, TWO, {"pages": (16, 8)}),
    (1, 2, FIVE, {"state": "gdn"}), (1, 1, ((4, 1), ()), {"state": "gdn"}), (1, 1, ((2, 3), (4, 1)), {"state": "kda"}),
    (1, 1, ((4, 1), ()), {"window": 20}), (2, 1, ((2, 3), (4, 1)), {"window": 20}),
    (1, 1, ((), (4, 1)), {"window": 20, "mla": True}),
])  # fmt: skip
def test_each_pipeline_stage_s_layers_are_carried(p: int, d: int, stages: Any, more: dict[str, Any]) -> None:
    """With state and windows, too, of which a stage may have none."""
    with Stage(p, d, stages=stages, heads=8 if "window" in more else 4, **more) as stage:
        for room, (tokens, prefix) in enumerate(((1, 0), (37, 0), (64, 16), (100, 0), (40, 40)), 1):
            stage.ask(room, tokens, prefix)
        stage.run()
        assert stage.decode.ended == stage.prefill.ended == dict.fromkeys(range(1, 6), "well")
        assert not any(rank.manager.board and rank.manager.board.posted for rank in stage.prefill.ranks)
        assert all(rank.manager.board is None for rank in stage.decode.ranks)
        stage.idle()


def test_latents_may_have_a_window() -> None:
    with Stage(2, 1, window=20, mla=True) as stage:
        for room, tokens in enumerate((5, 64, 90), 1):
            stage.ask(room, tokens)
        stage.run()
        assert set(stage.decode.ended.values()) == {"well"}
        stage.idle()


@pytest.mark.parametrize("model", [{"window": 20}, {"state": "gdn"}], ids=["window", "state"])
def test_a_request_of_a_hybrid_model_is_given_up_on_either_side_and_before_it_has_pages(model: dict[str, Any]) -> None:
    with Stage(1, 2, **model) as stage:
        stage.ask(1, 90)
        stage.run(until=lambda: any(r.at == "transfer" for r in stage.decode.live))
        stage.decode.abort(1)
        stage.run()
        rows, stage.decode.rows[:] = stage.decode.rows[:], []
        stage.ask(2, 50)
        stage.run(until=lambda: all(p.poll() >= WAITING for r in stage.decode.live for p in r.parts))
        stage.decode.abort(2)
        stage.run(seconds=5.0)
        assert "well" not in {*stage.prefill.ended.values(), *stage.decode.ended.values()}
        stage.decode.rows[:] = rows
        stage.ask(3, 50)
        stage.run()
        assert stage.decode.ended[3] == "well"
        stage.idle()


@pytest.mark.parametrize("change", [-60, 90])
def test_another_number_of_window_pages_than_decode_needs_fails_the_request_alone(change: int) -> None:
    """Prefill names pages of another window than the model's configuration has."""
    with Stage(1, 1, window=70) as stage:
        stage.prefill.window += change
        stage.ask(1, 250)
        stage.run()
        assert "SGLang names " in stage.prefill.ended[1] and "for a window of 71" in stage.prefill.ended[1]
        assert stage.decode.ended[1] not in {"", "well"}
        stage.prefill.window = 70
        stage.ask(2, 250)
        stage.run()
        assert stage.decode.ended[2] == stage.prefill.ended[2] == "well"
        stage.idle()


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_room_that_cannot_be_opened_on_one_side_fails_on_the_other_at_once(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stage(1, 2) as stage:
        mine, other = getattr(stage, side), getattr(stage, {"prefill": "decode", "decode": "prefill"}[side])
        for each in mine.ranks:
            refused = Mock(side_effect=ArgumentError("page 999 of a pool of 64"))
            monkeypatch.setattr(each.manager.endpoint, "open", refused)
        stage.ask(1, 50)
        stage.run(seconds=5.0)
        assert "page 999" in mine.ended[1]
        assert other.ended[1] not in {"", "well"}
        monkeypatch.undo()
        stage.ask(2, 50)
        stage.run()
        assert stage.decode.ended[2] == stage.prefill.ended[2] == "well"
        stage.idle()


def test_more_ranks_than_heads() -> None:
    with Stage(1, 4, heads=2) as stage:
        stage.ask(1, 70)
        stage.run()
        assert stage.decode.ended == {1: "well"}


@pytest.mark.parametrize(("prefix", "pages"), [(8, (8, 8)), (32, (8, 8)), (64, (8, 8)), (24, (16, 8))])
def test_what_decode_has_already_is_not_sent(prefix: int, pages: tuple[int, int]) -> None:
    """A prefix that ends inside a page of the other side counts up to that page."""
    with Stage(1, 2, pages=pages) as stage:
        stage.ask(1, 64, prefix)
        stage.run()
        assert stage.decode.ended == {1: "well"}
        assert stage.prefill.ended == {1: "well"}
        stage.idle()


def test_given_up_at_decode_before_prefill_has_heard_of_it() -> None:
    with Stage(1, 2) as stage:
        stage.ask(1, 50, prefill=False)
        stage.run(until=lambda: any(r.at == "transfer" for r in stage.decode.live))
        stage.decode.abort(1)
        stage.run()
        stage.ask(1, 50, decode=False)
        stage.run(seconds=5.0)
        assert "given" in stage.prefill.ended[1] or "aborted" in stage.prefill.ended[1].lower()
        stage.idle()


def test_given_up_at_decode_before_it_had_pages() -> None:
    with Stage(1, 2) as stage:
        stage.decode.rows.clear()
        stage.ask(1, 50)
        stage.run(until=lambda: all(p.poll() >= 2 for r in stage.decode.live for p in r.parts))
        stage.decode.abort(1)
        stage.run(seconds=5.0)
        assert stage.prefill.ended[1] != "well"


def test_refused_at_prefill_before_decode_has_heard_of_it() -> None:
    with Stage(2, 1) as stage:
        stage.ask(1, 50, decode=False)
        stage.prefill.turn()
        stage.prefill.abort(1)
        stage.run()
        stage.ask(1, 50, prefill=False)
        stage.run(seconds=5.0)
        assert stage.decode.ended[1] not in {"", "well"}
        stage.idle()


def test_a_request_that_sglang_rejects_at_prefill_is_told_as_rejected() -> None:
    """SGLang replaces a rejected request's prompt with a stub of one token, and lets it run to its end."""
    with Stage(2, 1) as stage:
        stage.ask(1, 90, prefill=False)
        stage.ask(1, 1, decode=False)
        stage.run(seconds=5.0)
        rejected = "SGLang has rejected the request here: it computes 8 tokens of a prompt of 96"
        assert rejected in stage.prefill.ended[1]
        assert rejected in stage.decode.ended[1] and "another length" not in stage.decode.ended[1]
        stage.idle()


@pytest.mark.parametrize("stages", [((), ()), TWO], ids=["one stage", "2 stages"])
def test_samples_of_a_prompt_which_have_one_number_are_carried_each(stages: Any) -> None:
    """SGLang asks once to fill its caches, and then for all samples at once."""
    with Stage(1, 1, stages=stages) as stage:
        assert {rank.manager.board is not None for rank in stage.prefill.ranks} == {bool(stages[0])}
        stage.ask(1, 90)
        stage.run()
        for _ in range(3):
            stage.ask(1, 90)
        samples = [*stage.prefill.live, *stage.decode.live]
        stage.run()
        assert [each.at for each in samples] == ["well"] * 6
        stage.idle()


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_sample_that_is_given_up_on_either_side_does_not_touch_another(side: str) -> None:
    with Stage(1, 1) as stage:
        stage.ask(1, 90)
        stage.ask(1, 90)
        kept, given_up = ([at.live[number] for at in (stage.prefill, stage.decode)] for number in range(2))
        mine = given_up[side == "decode"]
        stage.run(until=lambda: mine.at in {"computing", "transfer"})
        for part in mine.parts:
            part.abort()
        stage.run()
        assert [each.at for each in kept] == ["well"] * 2 and [each.at for each in given_up] == ["failed"] * 2
        stage.idle()


def test_a_receiver_is_given_up_after_its_prefill_instance_was_let_go_of() -> None:
    with Stage(1, 1) as stage:
        stage.ask(1, 20)
        stage.run()
        manager = stage.decode.ranks[0].manager
        other = Receiver(manager, stage.decode.server, 2)
        other.init(0)
        assert other.poll() == WAITING
        assert other.card is not None
        manager.endpoint.disconnect(other.card.group)  # as for cards of too many other instances
        other.abort()
        assert other.poll() == FAILED
        stage.idle()


@pytest.mark.parametrize("room", [-1, 1 << 64])
def test_a_number_that_no_room_has_fails_its_request_alone(room: int) -> None:
    with Stage(1, 1) as stage:
        stage.ask(room, 20)
        stage.ask(1, 20)
        stage.run()
        assert stage.decode.ended.pop(1) == stage.prefill.ended.pop(1) == "well"
        assert "64 bits" in stage.decode.ended[room] and "64 bits" in stage.prefill.ended[room]
        stage.idle()


def test_an_instance_that_starts_anew_is_found_under_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was under way fails; the first one that comes afterwards is carried."""
    monkeypatch.setattr(endpoint, "LINGER_S", 20.0)  # a busy machine: the close waits until it has been heard
    with Stage(1, 1) as stage:
        stage.ask(1, 40)
        stage.run()
        old = stage.prefill
        stage.ask(2, 40, prefill=False)
        stage.run(until=lambda: old.ranks[0].manager.endpoint.rooms().get("AWAIT_ENGINE"))  # it has heard of it
        old.close()
        stage.run(until=lambda: 2 in stage.decode.ended)
        assert "gave the room up" in stage.decode.ended[2], "the instance is closed in good order"
        stage.prefill = type(old)(stage.fabric, "prefill", 1, 4, 8, old.server)
        stage.ask(3, 40)
        stage.run()
        assert stage.decode.ended[3] == "well"
        stage.idle()


@pytest.fixture(scope="module", params=[(1, 2), (2, 1)], ids=["1-2", "2-1"])
def lasting(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """One stage for many examples: whatever one leaves behind, the next finds."""
    with Stage(*request.param) as stage:
        stage.ask(next(ROOMS), 20)
        stage.run()
        yield stage


prompts = st.lists(st.tuples(st.integers(1, 100), st.integers(0, 3)), min_size=1, max_size=4)
cuts = st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 40)), max_size=3)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(prompts=prompts, cuts=cuts)
def test_whatever_is_aborted_and_when(
    lasting: Stage, prompts: list[tuple[int, int]], cuts: list[tuple[int, bool, int]]
) -> None:
    """No page is lost, none is written while it is free, and what succeeds at decode has its bytes."""
    rooms = [next(ROOMS) for _ in prompts]
    for room, (tokens, prefix) in zip(rooms, prompts, strict=True):
        lasting.ask(room, tokens, min(8 * prefix, tokens // 8 * 8))
    aborted = {rooms[index] for index, *_ in cuts if index < len(rooms)}
    for turn in range(41):
        for index, at_prefill, when in cuts:
            if when == turn and index < len(rooms):
                (lasting.prefill if at_prefill else lasting.decode).abort(rooms[index])
        lasting.prefill.turn()
        lasting.decode.turn()
    lasting.run()
    lasting.idle()
    untouched = set(rooms) - aborted
    assert all(lasting.decode.ended[room] == lasting.prefill.ended[room] == "well" for room in untouched)
