"""SGLang calls one thing at a time, at an endpoint that writes down what it is asked."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from support.scripted_endpoint import ScriptedEndpoint
from support.scripted_sglang import Board

from kvproto.adapters.card import Card
from kvproto.adapters.recurrence import Recurrence, Segment
from kvproto.adapters.sglang import install, manager, memory, options, planes, requests, tables
from kvproto.adapters.sglang.options import Options
from kvproto.adapters.sglang.pools import AuxRows, Instance, layout_of, unknown
from kvproto.adapters.sglang.receiver import Receiver
from kvproto.adapters.sglang.room_lives import RoomLives
from kvproto.adapters.sglang.sender import Sender
from kvproto.adapters.sglang.windows import Window
from kvproto.errors import ArgumentError, NotFoundError
from kvproto.fsm.machine import Machine
from kvproto.fsm.timing import Timer
from kvproto.layout.caches import ALL, WINDOW
from kvproto.layout.sharding import DEFAULT_CHUNK_TOKENS, Layout
from kvproto.protocol.states import Cause
from kvproto.room import Caller, Outcome, Room

LAYOUT = Layout(layers=2, heads=4, k_dim=4, v_dim=4, itemsize=1, dtype="bfloat16", page_size=4, tp=1)
CARD = Card(7, 1, LAYOUT, 8, ("tcp://10.0.0.1:5",))


class FailureError(Exception):
    def __init__(self, room: int, why: str, elsewhere: bool) -> None:
        super().__init__(why)
        self.room, self.why, self.elsewhere = room, why, elsewhere


class Reporter:
    """Keeps the rooms that are here, and those that it has forgotten."""

    def __init__(self) -> None:
        self.added, self.forgotten, self.places = dict[int, bool](), list[int](), dict[int, int]()

    def add(self, room: int, *, at_once: bool) -> None:
        self.added[room] = at_once

    def forget(self, room: int) -> None:
        self.forgotten.append(room)

    def elsewhere(self, room: int) -> int | None:
        return self.places.get(room)


class ScriptedManager:
    """One rank's manager; `now` is the machine's time."""

    failure, metric = FailureError, SimpleNamespace

    def __init__(self, *, prefill: bool, window: Window | None = None, **instance: Any) -> None:
        self.endpoint, self.layout, self.tasks = ScriptedEndpoint(), LAYOUT, dict[int, Any]()
        self.endpoint.answers |= {"caller": None}
        self.instance = Instance("one", **{"tp": 1, "rank": 0, "heads": 4, "window": window} | instance)
        table: Any = tables.sender if prefill else tables.receiver
        self.machine: Machine[Any] = Machine(table, tables.Timing(Timer(5.0), Timer(6.0)))
        self.kv_args = SimpleNamespace(kv_item_lens=[16, 16], state_types=[SimpleNamespace(value="mamba")])
        self.aux = SimpleNamespace(read=lambda row: b"row %d" % row, write=lambda *_: None)
        self.reporter: Reporter | None = None
        self.endpoint.pool.ends = ("what travels at the end",)
        self.lives = RoomLives()
        self.board: Any = None
        self.forwards: Any = None
        self.card: Any = CARD

    def advance(self) -> None:
        pass

    def reached(self, _address: str, _dp_rank: int) -> Any:
        if isinstance(self.card, Exception):
            raise self.card
        return self.card


def sender(room: int = 5, *, told: bool = False, **instance: Any) -> tuple[Any, Any]:
    made: Any = ScriptedManager(prefill=True, **instance)
    return Sender(made, "here:1", room, told), made


def called(one: Any, at: Any, tokens: int = 32, prefix: int = 8, page: int = 8) -> None:
    at.endpoint.answers["caller"] = Caller(9, tokens=tokens, prefix=prefix, page_size=page)
    one.poll()


def test_a_request_begins_without_anything() -> None:
    one, _ = sender()
    assert (one.room, one.aux_index, one.prefix, one.tokens, one.why) == (Room(5), -1, 0, 0, "")
    assert one.pop_decode_prefix_len() == 0
    unnamed, _ = sender(room=0)
    assert unnamed.room == Room(0)
    wrong, _ = sender(room=-1)
    assert wrong.why.startswith("bootstrap_room: ") and wrong.poll() == 0 and wrong.room == Room(0)
    no: Any = None
    one, made = sender(no)
    assert one.room == Room(0) and not one.why
    again = [Sender(made, "here:1", number, False).room for number in (no, 0, 1)]  # one that is none is 0
    assert again == [Room(0, 1), Room(0, 2), Room(1)]


def test_a_sender_gives_its_pages_with_what_decode_s_larger_pages_lack() -> None:
    one, at = sender()
    called(one, at, tokens=24, prefix=8)
    assert one.pop_decode_prefix_len() == 8
    one.init(3, 2)
    (opened,) = at.endpoint.of("open")
    assert opened == (Room(5), 24, [0, 0], {"group": 9})
    assert one.should_send_kv_chunk(1, last_chunk=False) and one.should_send_kv_chunk(0, last_chunk=True)
    assert not one.should_send_kv_chunk(0, last_chunk=False)
    one.send([70_011, 12])
    one._early_send_wait_event = "earlier"
    one.send([13])
    assert at.endpoint.of("produced") == [
        (Room(5), 16, None, {"pages": [70_011, 12]}), (Room(5), 24, "earlier", {"pages": [13, 0]}),
    ]  # fmt: skip
    assert at.endpoint.of("aux") == [(Room(5), b"row 2")] and one._early_send_wait_event is None
    assert [name for name, *_ in at.endpoint.calls[-2:]] == ["aux", "produced"], "the last pages wake the loop: last"
    assert one.get_transfer_metric().transfer_total_bytes == 3 * 32


def test_a_caller_is_remembered_when_the_endpoint_has_no_answer_any_more() -> None:
    one, at = sender()
    called(one, at)
    at.endpoint.answers["caller"] = None
    one.poll()
    assert one.caller is not None


def test_a_side_that_never_comes_fails_its_request_at_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(requests, "time", SimpleNamespace(monotonic=lambda: now[0]))
    one, at = sender()
    now[0] = one.value.due - 0.01
    assert one.poll() == 1
    now[0] = one.value.due
    assert one.poll() == 0 and "SGLang's timeout" in one.why
    assert at.endpoint.of("refuse") == [(Room(5),)]


@pytest.mark.parametrize(("call", "why"), [("abort", "aborted by SGLang"), ("clear", "ended by SGLang")])
def test_a_request_that_sglang_ends_is_given_up_with_its_word(call: str, why: str) -> None:
    one, at = sender()
    getattr(one, call)()
    assert (one.why, one.poll()) == (why, 0) and at.endpoint.of("refuse") == [(Room(5),)]


def test_rooms_of_data_parallel_ranks_are_reported_where_nobody_can_compute_their_place() -> None:
    def reported(room: int, *, told: bool = False, **instance: Any) -> tuple[Any, Reporter]:
        made: Any = ScriptedManager(prefill=True, data_parallel=2, **instance)
        made.reporter = Reporter()
        return Sender(made, "here:1", room, told), made.reporter

    one, where = reported(4)
    assert where.added == {4: False} and one.value.state is not tables.S.FAILED
    stray, where = reported(5)
    assert where.added == {5: True} and where.forgotten == [5] and "data-parallel rank 1, not at 0" in stray.why
    told, where = reported(5, told=True)
    assert where.added == {5: False} and not told.why
    asked, where = reported(4, by_room=False)
    assert where.added == {4: True} and not asked.why
    where.places[4] = 1
    asked.poll()
    assert "data-parallel rank 1" in asked.why and where.forgotten
    wrong, where = reported(-1)
    assert where.added == {} and wrong.why


def test_a_room_that_is_open_is_reported_no_more() -> None:
    one, at = sender()
    at.reporter = Reporter()
    called(one, at)
    assert at.reporter.forgotten == []
    one.init(6, 0)
    assert at.reporter.forgotten


# ----------------------------------------------------------------------------------------------- decode
def receiver(room: Any = 5, **more: Any) -> tuple[Any, Any]:
    made: Any = ScriptedManager(prefill=False, **more)
    return Receiver(made, "here:1", room), made


def test_a_receiver_opens_its_room_with_its_prefix_and_whole_pages_of_both_sides() -> None:
    one, at = receiver()
    at.card = Card(7, 1, Layout(layers=2, heads=4, k_dim=4, v_dim=4, itemsize=1, dtype="bfloat16", page_size=16, tp=1),
                   16, CARD.addresses)  # fmt: skip
    one.poll()
    assert not at.endpoint.calls, "SGLang has not found out where the request is"
    one.init(0)
    one.send_metadata([21, 22, 70_023], 3, None, 20)
    (opened,) = at.endpoint.of("open")
    assert opened == (Room(5), 32, [0, 0, 0, 0, 0, 21, 22, 70_023], {"prefix": 16, "group": 7})
    assert (one.aux_index, one.prefix) == (3, 20) and one.abort_notified
    at.card = ArgumentError("it is asked for no more")
    assert one.poll() == 3 and not one.why
    at.tasks.clear()
    assert not one.abort_notified
    short, at = receiver()
    short.init(0)
    short.send_metadata([21])
    assert at.endpoint.of("open") == [(Room(5), 4, [21], {"prefix": 0, "group": 7})] and short.aux_index == -1


def test_a_receiver_whose_instance_is_not_there_says_why() -> None:
    one, at = receiver()
    at.card = None
    one.init(0)
    assert one.poll() == 1
    at.card = ArgumentError("nobody")
    assert one.poll() == 0 and one.why == "nobody"


def test_a_receiver_that_is_given_up_before_it_has_pages_opens_its_room_over_page_0_and_aborts() -> None:
    one, at = receiver()
    one.init(0)
    one.ensure_abort_notified()
    assert one.why == "it has failed on another rank"
    assert at.endpoint.of("open") == [(Room(5), 4, [0], {"prefix": 0, "group": 7})]
    assert at.endpoint.of("abort") == [(Room(5),)]
    failed, at = receiver()
    at.endpoint.answers |= {"open": ArgumentError("no page"), "announce": ArgumentError("no room")}
    failed.init(0)
    failed.give_up("no more")
    assert not at.endpoint.of("abort") and not at.tasks, "there is no room"


@pytest.mark.parametrize("announced", [True, False])
def test_a_receiver_that_cannot_open_its_room_waits_for_its_end_where_there_is_a_room(announced: bool) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ArgumentError("no such page")

    one, at = receiver()
    one.init(0)
    at.endpoint.open = fail
    if not announced:
        at.endpoint.announce = fail
    one.send_metadata([21])
    assert one.why == "no such page" and one.abort_notified is announced
    assert at.endpoint.of("announce") == [(Room(5), 4, {"group": 7})] * announced
    assert at.endpoint.of("abort") == [(Room(5),)] * announced
    assert (one.value.state is tables.R.FAILED) is not announced


def test_metadata_of_another_form_fails_the_request_and_what_succeeds_is_written() -> None:
    one, at = receiver()
    one.init(0)
    one.send_metadata([21], 2)
    written = list[Any]()
    at.aux.write = lambda *row: written.append(row)
    one.end(Outcome(Room(5), Cause.NONE, aux=b"metadata"))
    assert written == [(2, b"metadata")] and one.value.state is tables.R.LANDED

    def refuse(*_: Any) -> None:
        raise ArgumentError("of other buffers")

    other, at = receiver()
    other.init(0)
    other.send_metadata([21], 2)
    at.aux.write = refuse
    other.end(Outcome(Room(5), Cause.NONE, aux=b""))
    assert other.why == "of other buffers" and other.value.state is tables.R.STOPPED
    with pytest.raises(FailureError) as raised:
        other.failure_exception()
    assert (raised.value.room, raised.value.why, raised.value.elsewhere) == (5, "of other buffers", False)


# ---------------------------------------------------------------------------------------------- manager
def managed(**options: Any) -> Any:
    return SimpleNamespace(options=Options(**options), instance=Instance("one", 2, 1, 4, host="10.1.2.3"), called={})


def test_a_prefill_rank_listens_on_its_host_and_reports_rooms_from_one_rank_of_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, started = list[Any](), list[Any]()
    endpoint = SimpleNamespace(address="tcp://10.1.2.3:1", closed=False)

    def make(*_: Any, **choices: Any) -> Any:
        made.append(choices)
        return endpoint

    monkeypatch.setattr(manager, "pool_of", lambda *_, **__: None)
    monkeypatch.setattr(manager, "PrefillEndpoint", make)
    monkeypatch.setattr(manager, "announce", lambda *_: None)
    for rank, data_parallel in ((0, 1), (1, 2), (0, 2)):
        mine = Instance("one", 2, rank, 4, data_parallel, 1, host="10.1.2.3", bootstrap_server="b:9", chunk=30)
        of: Any = SimpleNamespace(
            instance=mine, options=Options(), layout=LAYOUT, kv_args=None, prefill=True, make_transport=dict,
            mla=False, _reporter=lambda _: SimpleNamespace(start=lambda: started.append((rank, data_parallel))),  # noqa: B023
        )  # fmt: skip
        manager.Manager._make(of, 9)
    assert made[0]["bind"] == "tcp://10.1.2.3:*" and made[0]["chunk_tokens"] == 28
    assert started == [(0, 2)], "the first rank of each data-parallel rank, where there are several"


def test_peers_are_told_goodbye_when_the_process_ends_and_an_endpoint_that_is_gone_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed, at_exit = list[str](), list[Any]()

    class Closing:
        def close(self) -> None:
            closed.append("goodbye")

    monkeypatch.setattr("atexit.register", at_exit.append)
    kept, gone = Closing(), Closing()
    for made in (kept, gone):
        manager.close_at_exit(made)  # type: ignore[arg-type]  # all that it needs
    del gone, made
    for each in at_exit:
        each()
    assert closed == ["goodbye"]


def test_a_manager_s_endpoint_is_started_and_closed_when_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()
    made = SimpleNamespace(start=lambda: asked.append("started"))
    monkeypatch.setattr(manager, "close_at_exit", asked.append)
    monkeypatch.setattr(manager, "AuxRows", lambda *_: None)
    monkeypatch.setattr(manager.Manager, "look", lambda *_, **__: Instance("one", 2, 0, 4), raising=False)
    monkeypatch.setattr(manager.Manager, "_layout", lambda *_: LAYOUT)
    monkeypatch.setattr(manager.Manager, "_make", lambda *_: made)
    manager.Manager(None, SimpleNamespace(value="prefill"), None)
    assert asked == ["started", made]


def test_a_manager_s_transport_is_its_option_on_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproto.io.transports import mooncake, nixl

    monkeypatch.setattr(mooncake, "MooncakeTransport", lambda host, *, protocol: ("mooncake", host, protocol))
    monkeypatch.setattr(nixl, "NixlTransport", lambda: "nixl")
    monkeypatch.delenv("MOONCAKE_PROTOCOL", raising=False)
    told: list[Any] = [manager.Manager.make_transport(managed(transport=kind)) for kind in ("nixl", "mooncake")]
    monkeypatch.setenv("MOONCAKE_PROTOCOL", "tcp")
    told.append(manager.Manager.make_transport(managed(transport="mooncake")))
    assert told == ["nixl", ("mooncake", "10.1.2.3", "rdma"), ("mooncake", "10.1.2.3", "tcp")]


def test_sglang_s_checksum_is_verified_between_equal_layouts_alone() -> None:
    of = managed()
    of.layout = LAYOUT
    other = Card(8, 1, Layout(layers=3, heads=4, k_dim=4, v_dim=4, itemsize=1, dtype="bfloat16", page_size=4, tp=1), 8,
                 CARD.addresses)  # fmt: skip
    of.called = {("here", 0): CARD, ("here", 1): other, ("there", 0): other}
    assert [manager.Manager.should_verify_kv_checksum(of, at) for at in ("here", "there", "nowhere")] == [
        True, False, False,
    ]  # fmt: skip


def test_a_request_that_was_retracted_for_new_weights_is_given_up_with_what_to_do() -> None:
    told = list[str]()
    manager.Manager.submit_prefill_recompute(managed(), SimpleNamespace(give_up=told.append), None)
    assert told == ["a request that was retracted for new weights is not computed again: send it anew"]


def test_questions_are_asked_on_one_thread_of_their_own() -> None:
    of: Any = manager.Manager.__new__(manager.Manager)
    asked = of._ensure_prefill_recompute_executor()
    assert asked is of._ensure_prefill_recompute_executor() and asked._max_workers == 1
    assert asked._thread_name_prefix == "kvproto-questions"


# ---------------------------------------------------------------------------------------------- options
@pytest.mark.parametrize(
    ("given", "page", "chunk", "told"),
    [(0, 16, 100, 96), (0, 16, 1, 16), (0, 16, 0, DEFAULT_CHUNK_TOKENS // 16 * 16), (48, 16, 100, 48),
     (0, 1, 1, 1)],
)  # fmt: skip
def test_a_chunk_is_whole_pages_of_what_a_forward_computes(given: int, page: int, chunk: int, told: int) -> None:
    assert Options(chunk_tokens=given).chunk_tokens_of(page, chunk) == told


def test_the_trust_of_options_is_their_file_networks_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "CardTrust", SimpleNamespace(read=lambda *given: given))
    given: Any = Options(card_secret="file", card_networks=("10.0.0.0/8",), card_instances=3).trust()  # noqa: S106  # a path
    assert given == ("file", ("10.0.0.0/8",), 3)


# ------------------------------------------------------------------------------------------- pools and planes
def args_of(items: list[int], **more: Any) -> Any:
    known = {"kv_item_lens": items, "kv_data_ptrs": items, "kv_data_lens": items, "page_size": 4, "state_types": [],
             "kv_cache_dtype_str": "bfloat16", "num_draft_entries": 0}  # fmt: skip
    return SimpleNamespace(**known | more)


@pytest.mark.parametrize("items", [[], [64, 64, 64], [64, 32, 64, 64], [64, 64, 64, 32]])
def test_layers_that_are_not_alike_are_refused(items: list[int]) -> None:
    with pytest.raises(ArgumentError, match="layers that are not alike"):
        layout_of(args_of(items), Instance("one", 1, 0, 4), mla=False)


def test_keys_and_values_may_differ_and_an_instance_may_have_more_ranks_than_heads() -> None:
    found = layout_of(args_of([64, 64, 32, 32]), Instance("one", 8, 0, 4), mla=False)
    assert (found.k_dim, found.v_dim, found.heads, found.tp) == (16, 8, 4, 8)


@pytest.mark.parametrize(
    ("kinds", "draft", "known", "told"),
    [(["swa"], 0, True, []), (["swa"], 0, False, ["unknown_window"]), (["swa"], 1, True, ["window_and_draft"]),
     (["swa", "swa"], 0, True, ["window_and_draft"]), (["mamba"], 1, True, []), ([], 1, False, [])],
)  # fmt: skip
def test_states_that_cannot_be_carried_side_by_side_are_named(
    kinds: list[str], draft: int, known: bool, told: list[str]
) -> None:
    more: dict[str, Any] = {"window": Window(8, (0,), (1,), 4), "recurrence": object()} if known else {}
    assert unknown(args_of([], num_draft_entries=draft), Instance("one", 1, 0, 4, **more), kinds) == told


def test_a_draft_of_one_tensor_beside_stages_is_named_and_ranks_are_those_of_all_stages() -> None:
    staged, whole = Instance("one", 2, 3, 4, stages=(3, 1)), Instance("one", 2, 1, 4)
    told = [unknown(args_of([], num_draft_entries=1), each, []) for each in (staged, whole)]
    assert told == [["stages_and_draft"], []]
    assert unknown(SimpleNamespace(), staged, ["swa"]) == ["unknown_window"], "an older SGLang says nothing of drafts"
    assert [(each.ranks, each.here([0, 2, 3])) for each in (staged, whole)] == [(4, [3]), (2, [0, 2, 3])]


def test_metadata_may_have_as_many_bytes_as_a_row_and_no_more() -> None:
    args = SimpleNamespace(aux_data_ptrs=[1, 2], aux_item_lens=[24, 8])
    assert AuxRows(args, 32).nbytes == 32
    with pytest.raises(ArgumentError, match="has 32 bytes, more than the 31"):
        AuxRows(args, 31)


@pytest.mark.parametrize(
    ("more", "mla", "told"),
    [({}, False, False), ({}, True, True), ({"num_draft_entries": 1}, False, True),
     ({"state_types": [1]}, False, True)],
)  # fmt: skip
def test_caches_are_named_where_there_is_more_than_keys_and_values(more: Any, mla: bool, told: bool) -> None:
    assert planes.named(args_of([64, 64], **more), mla=mla) is told
    assert not planes.named(SimpleNamespace(state_types=[]), mla=False), "an older SGLang says nothing of drafts"


@pytest.mark.parametrize(("items", "drafts"), [([], 0), ([64, 64, 64], 0), ([64, 64, 64], 1)])
def test_tensors_that_are_no_whole_layers_are_refused(items: list[int], drafts: int) -> None:
    with pytest.raises(ArgumentError, match="tensors of a model"):
        list(planes.planes_of(args_of(items, num_draft_entries=drafts), Instance("one", 1, 0, 4), mla=False))


@pytest.mark.parametrize("items", [[64, 32, 64, 64], [62, 62, 62, 62]])
def test_a_tensor_of_another_form_than_the_first_is_refused(items: list[int]) -> None:
    with pytest.raises(ArgumentError, match="unlike the model's first"):
        list(planes.planes_of(args_of(items, num_draft_entries=2), Instance("one", 1, 0, 4), mla=False))


def test_planes_have_the_numbers_of_their_layers() -> None:
    found = list(planes.planes_of(args_of([64] * 8, num_draft_entries=2), Instance("one", 1, 0, 4), mla=False))
    named = [(plane.cache, plane.part, plane.layer, plane.row) for plane in found]
    target = [("kv", part, layer, 16) for part in "kv" for layer in range(3)]
    assert named == [*target, ("draft", "k", 3, 16), ("draft", "v", 3, 16)]
    hybrid = args_of([64] * 4, kv_layer_ids=[1, 4, 1, 4])
    assert [plane.layer for plane in planes.planes_of(hybrid, Instance("one", 1, 0, 4), mla=False)] == [1, 4, 1, 4]


def test_windows_are_planes_of_the_layers_that_have_them() -> None:
    windowed = args_of([64] * 4, state_types=[SimpleNamespace(value="swa")], state_data_ptrs=[[1, 2]],
                       state_data_lens=[[64, 64]], state_item_lens=[[32, 32]])  # fmt: skip
    mine = Instance("one", 1, 0, 4, window=Window(8, (1,), (0, 2), 4))
    found = [(plane.cache, plane.part, plane.layer) for plane in planes.planes_of(windowed, mine, mla=False)]
    full = [("kv", part, layer) for part in "kv" for layer in (0, 2)]
    assert found == [("window", "k", 1), ("window", "v", 1), *full]
    wrong = Instance("one", 1, 0, 4, window=Window(8, (1,), (0,), 4))
    with pytest.raises(ArgumentError, match="2 layers that attend fully, where the model has 1"):
        list(planes.planes_of(windowed, wrong, mla=False))


def test_memory_of_a_gpu_is_told_to_torch_as_it_lies() -> None:
    told = memory._Foreign(4096, (2, 3)).__cuda_array_interface__
    assert told == {"shape": (2, 3), "typestr": "|u1", "data": (4096, False), "version": 3, "strides": None}


def test_a_view_of_a_gpu_s_memory_is_made_on_that_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "as_tensor", lambda what, *, device: (what.__cuda_array_interface__, device))
    told: Any = memory.view(4096, [2, 3], "cuda:1")
    assert told[0]["data"] == (4096, False) and told[0]["shape"] == (2, 3) and told[1] == "cuda:1"
    here = torch.arange(6, dtype=torch.uint8)
    assert memory.view(here.data_ptr(), (2, 3), "cpu").tolist() == [[0, 1, 2], [3, 4, 5]]


# --------------------------------------------------------------------------------------------- the plug-in
def test_classes_stand_on_sglang_s_bases_and_know_its_facts_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"BaseKV{name}" for name in ("Manager", "Sender", "Receiver", "BootstrapServer")]
    bases = {name: type(name, (), {}) for name in names}
    modules: dict[str, dict[str, Any]] = {
        "sglang.srt.disaggregation.base.conn": {**bases, "KVTransferMetric": "metric", "KVArgs": dict},
        "sglang.srt.disaggregation.common.conn": {"KVTransferError": FailureError},
        "kvproto.adapters.sglang.facts": {"look": Reporter, "exchange": list, "board": dict},
    }  # fmt: skip
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("kvproto.adapters.sglang.facts", sys.modules["kvproto.adapters.sglang.facts"], raising=False)
    monkeypatch.setattr(install, "metadata", SimpleNamespace(version=lambda _: "0.5.23"))
    monkeypatch.setattr(install, "installed_signatures", lambda used, by: {"used": used, "by": by})
    assert install.record() == {"used": install.USED, "by": "."}
    asked = list[Any]()
    monkeypatch.setattr(install, "differing", lambda *given: asked.append(given))
    made: Any = install.classes.__wrapped__()
    assert asked == [("0.5.23", {"used": install.USED, "by": "."})]
    assert {kind: cls.__name__ for kind, cls in made.items()} == {
        "manager": "KVProtoManager", "sender": "KVProtoSender", "receiver": "KVProtoReceiver",
        "bootstrap_server": "KVProtoServer", "kvargs": "dict",
    }  # fmt: skip
    for kind, ours in [("manager", manager.Manager), ("sender", Sender), ("receiver", Receiver)]:
        assert made[kind].__mro__[1] is ours and made[kind].__mro__[-2] is bases[f"BaseKV{kind.capitalize()}"]
    assert made["bootstrap_server"].__mro__[-2] is bases["BaseKVBootstrapServer"]
    assert (made["manager"].look, made["manager"].metric, made["manager"].failure) == (Reporter, "metric", FailureError)
    assert (made["manager"].exchange, made["manager"].make_board) == (list, dict)
    monkeypatch.setattr(install, "differing", lambda *_: "another release")
    with pytest.raises(install.UnsupportedEngineError, match="another release"):
        install.classes.__wrapped__()


def test_a_sender_hears_of_the_forward_that_computes_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = sender()
    heard = list[Any]()
    monkeypatch.setattr(Sender, "scheduled", lambda self: heard.append(self))  # noqa: PLW0108  # bound
    batch = SimpleNamespace(reqs=[SimpleNamespace(disagg_kv_sender=one), SimpleNamespace(disagg_kv_sender=7),
                                  SimpleNamespace()])  # fmt: skip
    for each in (batch, SimpleNamespace(reqs=None), None):
        install.run_batch(None, each)
    assert heard == [one]


def test_forwards_are_heard_of_in_the_scheduler_that_makes_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[Any]()
    hooks = ModuleType("sglang.srt.plugins.hook_registry")
    registry = SimpleNamespace(register=lambda *given: told.append(given), apply_hooks=lambda: told.append("all"))
    vars(hooks).update(HookRegistry=registry, HookType=SimpleNamespace(BEFORE="before"))
    monkeypatch.setitem(sys.modules, hooks.__name__, hooks)
    monkeypatch.setattr(install, "classes", lambda: {"sender": 1, "manager": 2})
    install.await_forwards.cache_clear()
    ours = SimpleNamespace(value="kvproto")
    assert install.get_kv_class(None, ours, SimpleNamespace(value="manager")) == 2 and not told
    for _ in range(2):
        assert install.get_kv_class(None, ours, SimpleNamespace(value="sender")) == 1
    queue = "sglang.srt.managers.scheduler_pp_mixin.SchedulerPPMixin.process_bootstrapped_queue"
    assert told == [("sglang.srt.managers.scheduler.Scheduler.run_batch", install.run_batch, "before"),
                    (queue, install.process_bootstrapped_queue, "before"), "all"]  # fmt: skip
    install.await_forwards.cache_clear()


def test_before_the_first_stage_decides_the_senders_of_a_stage_post_what_they_would_answer() -> None:
    one, at = sender(rank=2, tp=2, stages=(1, 1))
    at.board = board = Board({}, 1, 2)
    requests = [SimpleNamespace(disagg_kv_sender=one), SimpleNamespace(disagg_kv_sender=7)]
    scheduler = SimpleNamespace(disagg_prefill_bootstrap_queue=SimpleNamespace(queue=requests))
    install.process_bootstrapped_queue(scheduler)
    assert board.posted == {(1, "5/0"): tables.BOOTSTRAPPING}
    board.posted = posted = Kept(board.posted)
    install.process_bootstrapped_queue(scheduler)
    called(one, at)
    install.process_bootstrapped_queue(scheduler)
    install.process_bootstrapped_queue(scheduler)
    assert posted.written == [((1, "5/0"), tables.WAITING)], "and nothing that is known"
    one.init(3, 2)
    assert not posted, "the first stage has decided"


class Kept(dict[tuple[int, str], int]):
    """Keeps all that is written."""

    def __init__(self, first: dict[tuple[int, str], int]) -> None:
        super().__init__(first)
        self.written = list[tuple[tuple[int, str], int]]()

    def __setitem__(self, key: tuple[int, str], value: int) -> None:
        self.written.append((key, value))
        super().__setitem__(key, value)


@pytest.mark.parametrize("end", ["clear", "failure_exception"])
def test_what_a_stage_has_posted_is_withdrawn_when_its_request_is_over(end: str) -> None:
    one, at = sender(rank=1, tp=1, stages=(1, 1))
    at.board = Board({}, 1, 2)
    one.abort()
    one.post()
    assert at.board.posted == {(1, "5/0"): tables.FAILED}, "aborted, and the first stage has to hear of it"
    with contextlib.suppress(FailureError):
        getattr(one, end)()
    assert not at.board.posted and one.poll() == tables.FAILED


@pytest.mark.parametrize(("later", "said"), [
    ((None, 2), tables.BOOTSTRAPPING), ((2, 2), tables.WAITING), ((1, 2), tables.BOOTSTRAPPING),
    ((2, 0), tables.FAILED), ((None, 0), tables.FAILED),
])  # fmt: skip
def test_the_first_stage_begins_a_request_when_every_stage_would(later: tuple[int | None, ...], said: int) -> None:
    one, at = sender(rank=0, tp=1, stages=(1, 1, 1))
    at.board = Board({(stage, "5/0"): value for stage, value in enumerate(later, 1) if value is not None}, 0, 3)
    assert one.poll_pp_consensus() == min(said, tables.BOOTSTRAPPING), "it waits for its own decode instance"
    called(one, at)
    assert one.poll_pp_consensus() == said
    one.post()
    one.init(3, 2)
    one.clear()
    assert not [key for key in at.board.posted if key[0] == 0], "the first stage posts nothing"


def test_requests_of_one_number_are_lives_of_one_room() -> None:
    lives = RoomLives()
    assert [lives.next(number) for number in (5, 5, 6, 5)] == [0, 1, 0, 2]


def test_the_pages_of_a_request_are_held_while_another_one_of_its_number_is() -> None:
    made: Any = SimpleNamespace(advance=list, tasks={Room(7, 1): 1})
    assert not manager.Manager.is_abort_release_safe(made, 7) and manager.Manager.is_abort_release_safe(made, 8)


def test_without_stages_a_sender_answers_for_itself_alone_and_posts_nothing() -> None:
    one, at = sender()
    one.post()
    assert at.board is None and one.poll_pp_consensus() == tables.BOOTSTRAPPING
    called(one, at)
    assert one.poll_pp_consensus() == tables.WAITING


def test_forwards_of_a_stage_are_awaited_on_the_stream_that_they_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang is in another stream when it hands the pages over."""
    recorded, stream = list[Any](), ["of forwards"]
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=recorded.append))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream[0])
    for device, stages in (("cpu", (1, 1)), ("cuda", ()), ("cuda", (1, 1))):
        one, at = sender(stages=stages)
        at.endpoint.pool.device = SimpleNamespace(type=device)
        stream[0] = "of forwards"
        one.scheduled()
        stream[0] = "of the scheduler"
        one._event()
    assert recorded == ["of the scheduler", "of forwards"]


def test_a_stage_without_state_gives_a_room_none() -> None:
    one, at = receiver()
    at.layout, at.endpoint.pool.ends = SimpleNamespace(page_size=4, state=SimpleNamespace(window=0)), ()
    one.init(0)
    one.send_metadata([21], state_indices=[[3]])
    assert at.endpoint.of("open") == [(Room(5), 4, [21], {"prefix": 0, "group": 7})]


def test_what_a_receiver_s_own_pages_lack_of_a_unit_is_page_0() -> None:
    one, at = receiver()
    at.card = Card(7, 1, Layout(layers=2, heads=4, k_dim=4, v_dim=4, itemsize=1, dtype="bfloat16", page_size=16, tp=1),
                   16, CARD.addresses)  # fmt: skip
    one.init(0)
    one.send_metadata([21, 22])
    assert at.endpoint.of("open") == [(Room(5), 16, [21, 22, 0, 0], {"prefix": 0, "group": 7})]


def test_a_receiver_of_a_hybrid_model_is_given_up_over_slot_0() -> None:
    one, at = receiver()
    at.layout = SimpleNamespace(page_size=4, state=SimpleNamespace(window=0))
    one.init(0)
    one.give_up("no more")
    assert at.endpoint.of("open") == [(Room(5), 4, [0], {"prefix": 0, "group": 7, "slot": 0})]


def test_a_forward_on_a_gpu_is_awaited_by_an_event_unless_sglang_gives_one(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = list[Any]()
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=recorded.append))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: ("stream of", device))
    one, at = sender()
    at.endpoint.pool.device = device = SimpleNamespace(type="cuda")
    one._early_send_wait_event = "earlier"
    assert one._event() == "earlier" and not recorded
    assert one._event() is not None and recorded == [("stream of", device)]


def test_a_prefill_instance_is_looked_for_anew_and_called_where_its_links_lead_elsewhere() -> None:
    asked, calls = list[str](), list[Card]()
    endpoint = SimpleNamespace(leads_to=lambda *_: False, ready=lambda *_: True)
    of: Any = SimpleNamespace(
        endpoint=endpoint, known=SimpleNamespace(call=calls.append), called={("here", 0): CARD},
        prefill_info_table={"here": manager.Prefill(1, follow_bootstrap_room=True)},
        cards=SimpleNamespace(get=lambda *_, **__: CARD, gone=lambda *_: "refused"),
        try_ensure_parallel_info=asked.append,
    )  # fmt: skip
    assert manager.Manager.reached(of, "here", 0) == CARD
    assert asked == ["here"] and calls == [CARD], "it has the card that was called, and the links lead elsewhere"
    endpoint.leads_to = lambda *_: True
    manager.Manager.reached(of, "here", 0)
    assert calls == [CARD]


@pytest.mark.parametrize(
    ("called", "up", "why", "fails"),
    [
        (True, False, "refused", True), (False, False, "refused", True), (True, True, "refused", False),
        (True, False, "", False),
    ],
)  # fmt: skip
def test_a_prefill_instance_without_a_link_and_a_bootstrap_server_is_gone(
    called: bool, up: bool, why: str, fails: bool
) -> None:
    of: Any = SimpleNamespace(
        endpoint=SimpleNamespace(leads_to=lambda *_: True, ready=lambda *_: False, any_up=lambda *_: up),
        known=SimpleNamespace(call=lambda *_: None), called={("here", 0): CARD} if called else {},
        prefill_info_table={"here": manager.Prefill(1, follow_bootstrap_room=True)},
        cards=SimpleNamespace(get=lambda *_, **__: CARD if called else "refused", gone=lambda *_: why),
        try_ensure_parallel_info=lambda _: True,
    )  # fmt: skip
    if fails:
        with pytest.raises(NotFoundError, match="the prefill instance at here is gone: refused"):
            manager.Manager.reached(of, "here", 0)
    else:
        assert manager.Manager.reached(of, "here", 0) is None


def test_choices_and_times_that_nobody_has_made_are_of_their_order() -> None:
    assert 1 << 27 <= Options().ring_bytes <= 1 << 33 and 2 <= Options().slots <= 16
    mine, times = Instance("one", 1, 0, 4), tables.Timing()
    assert all(60.0 <= each <= 600.0 for each in (mine.bootstrap, mine.waiting))
    assert all(60.0 <= each.period <= 600.0 for each in (times.bootstrap, times.waiting))


def test_parts_of_a_cache_on_different_layers_are_refused() -> None:
    known = Recurrence((Segment("q", 4, 2),), 3, 4, "float32")
    args = args_of([64] * 4, state_types=[SimpleNamespace(value="mamba")], state_data_ptrs=[[1, 2]],
                   state_data_lens=[[240, 400]], state_item_lens=[[24, 40]], state_dim_per_tensor=[[8, 4]],
                   state_layer_ids=[[0, 2]], kv_layer_ids=[1, 3] * 2)  # fmt: skip
    with pytest.raises(ArgumentError, match="parts of state on different layers"):
        planes.layout_of_caches(args, Instance("one", 1, 0, 4, recurrence=known), mla=False)
    args.state_layer_ids = [[0, 0]]
    found = planes.layout_of_caches(args, Instance("one", 1, 0, 4, recurrence=known), mla=False)
    assert {cache.name: (cache.dtype, cache.layers) for cache in found.named} == {
        "kv": ("bfloat16", (1, 3)), "state": ("float32", (0,)),
    }  # fmt: skip


def test_each_cache_has_the_type_of_its_elements_and_travels_as_it_is_kept() -> None:
    kinds = [SimpleNamespace(value=kind) for kind in ("dsa", "swa")]
    args = args_of([64] * 2, state_types=kinds, state_data_ptrs=[[1], [2]], state_data_lens=[[528], [64]],
                   state_item_lens=[[528], [32]])  # fmt: skip
    mine = Instance("one", 1, 0, 4, window=Window(8, (2,), (0, 1), 1))
    found = planes.layout_of_caches(args, mine, mla=True)
    told = {cache.name: (cache.dtype, cache.travels, cache.window) for cache in found.named}
    assert told == {"mla": ("bfloat16", ALL, 0), "index": ("", ALL, 0), "window": ("bfloat16", WINDOW, 71)}


def test_a_cache_has_as_many_pages_as_its_smallest_tensor() -> None:
    tensors = [torch.zeros(pages * 64, dtype=torch.uint8) for pages in (6, 5)]
    args = args_of([64] * 2, kv_data_ptrs=[each.data_ptr() for each in tensors],
                   kv_data_lens=[each.nbytes for each in tensors])  # fmt: skip
    mine = Instance("one", 1, 0, 4)
    layout = planes.layout_of_caches(args, mine, mla=True)
    assert planes.pool_of_caches(args, layout, mine, mla=True).pages == 5


def test_windows_that_are_known_and_not_there_are_no_planes_and_neither_are_those_that_are_not_known() -> None:
    mine = Instance("one", 1, 0, 4, window=Window(8, (1,), (0, 2), 4))
    assert {plane.cache for plane in planes.planes_of(args_of([64] * 4), mine, mla=False)} == {"kv"}
    windowed = args_of([64] * 4, state_types=[SimpleNamespace(value="swa")], state_data_ptrs=[[1, 2]],
                       state_data_lens=[[64, 64]], state_item_lens=[[32, 32]])  # fmt: skip
    assert {plane.cache for plane in planes.planes_of(windowed, Instance("one", 1, 0, 4), mla=False)} == {"kv"}


def test_a_state_that_is_not_known_is_refused() -> None:
    mamba = [SimpleNamespace(value="mamba")]
    args = args_of([64] * 4, state_types=mamba, state_data_ptrs=[[1]], state_data_lens=[[64]],
                   state_item_lens=[[32]], state_dim_per_tensor=[[4]], state_layer_ids=[[0]])  # fmt: skip
    with pytest.raises(ArgumentError, match="a state of 32 bytes a slot"):
        list(planes.planes_of(args, Instance("one", 1, 0, 4), mla=False))


def test_a_window_begins_at_the_first_token_of_a_short_prompt() -> None:
    window = Window(8, (0,), (1,), 4)
    assert window.pages([7] * 5, 0, 5, 5, 1) == [7] * 5
    with pytest.raises(ArgumentError, match="names 4 pages of 1 tokens"):
        window.pages([7] * 4, 0, 5, 5, 1)
