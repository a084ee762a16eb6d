"""Scripted SGLang: what its two schedulers do with a backend, without SGLang.

An instance has ranks that do the same in the same order: all poll, and the lowest answer counts for all.  Pages are
taken when SGLang takes them and are free when it frees them; a free page is filled with noise, and noise it must still
be when it is taken again: a write that lands too late is found.  Slots of recurrent state and pages of windows
are alike.  The KV of a request is a number of its own in every byte, so what a decode rank has in its pages and slot is
compared with what should be there, and so is the row of metadata.

With pipeline stages SGLang asks the senders of the first stage alone which requests begin, and takes a request that is
under way for over when all stages say so.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import torch

from kvproto.adapters.recurrence import Recurrence, Segment
from kvproto.adapters.sglang import manager
from kvproto.adapters.sglang.bootstrap import KVProtoBootstrapServer
from kvproto.adapters.sglang.pools import Instance
from kvproto.adapters.sglang.receiver import Receiver
from kvproto.adapters.sglang.sender import Sender
from kvproto.adapters.sglang.windows import Window
from kvproto.io.clock import SteadyClock
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.sharding import units_at

LAYERS, DIM, PAGES, ROWS, AUX = 2, 8, 40, 16, (24, 8)
#: recurrent state: slots, layers of the model that have it and those that have KV, taps of the convolution
SLOTS, RECURRENT, ATTENTION, TAPS = 9, (0, 2, 3), (1, 4), 3
#: by kind of model: heads of q and k or groups, and of v or x, and the channels of one
SEGMENTS = {
    "gdn": (("q", 4, 6), ("k", 4, 6), ("v", 8, 4)), "mamba2": (("x", 8, 4), ("B", 4, 6), ("C", 4, 6)),
    "one group": (("x", 8, 4), ("B", 1, 6), ("C", 1, 6)), "kda": (("q", 8, 4), ("k", 8, 4), ("v", 8, 4)),
}  # fmt: skip
HEADS, MATRIX = 8, 10
#: seconds that one turn of both schedulers may count for, and that stages wait for each other when they are made
TURN_S, MEET_S = 0.02, 120.0
FAILED, BOOTSTRAPPING, WAITING, TRANSFERRING, SUCCESS = range(5)


class TransferError(Exception):
    def __init__(self, room: int, why: str, elsewhere: bool) -> None:
        super().__init__(why)
        self.room, self.why, self.elsewhere = room, why, elsewhere


class Manager(manager.Manager):
    fabric: Fabric
    look = staticmethod(lambda server_args, *, mla: server_args.instance)
    failure = TransferError
    metric = SimpleNamespace

    def make_transport(self) -> Any:
        return MemoryTransport(type(self).fabric)


class StageWords:
    """The collective and the board of pipeline stages, among ranks of the same place in their stages."""

    def __init__(self, tp: int, stages: int) -> None:
        self.tp, self.stages = tp, stages
        self.words = [dict[int, Any]() for _ in range(tp)]
        self.barriers = [threading.Barrier(max(1, stages)) for _ in range(tp)]
        self.boards = [dict[tuple[int, str], int]() for _ in range(tp)]

    def of(self, rank: int) -> dict[str, Any]:
        """Return what the manager of this rank is given."""
        stage, place = divmod(rank, self.tp)

        def exchange(word: Any) -> list[Any]:
            self.words[place][stage] = word
            self.barriers[place].wait(MEET_S)
            return [self.words[place][at] for at in range(self.stages)]

        board = Board(self.boards[place], stage, self.stages)
        return {"exchange": staticmethod(exchange), "make_board": staticmethod(lambda: board)}


class Board:
    """SGLang's `PPConsensusStore`, without the way between processes."""

    def __init__(self, posted: dict[tuple[int, str], int], stage: int, stages: int) -> None:
        self.posted, self.stage, self.stages = posted, stage, stages

    def __setitem__(self, key: str, value: int) -> None:
        self.posted[self.stage, key] = value

    def get(self, key: str) -> int | None:
        return self.posted.get((self.stage, key))

    def pop(self, key: str) -> None:
        self.posted.pop((self.stage, key), None)

    def collect(self, key: str) -> list[int | None]:
        assert self.stage == 0, "SGLang collects on the first stage alone"
        return [self.posted.get((stage, key)) for stage in range(self.stages)]


class Request:
    """One on one instance; both instances have one of the same room; `told`: its disagg_prefill_dp_rank."""

    def __init__(self, room: int, tokens: int, prefix: int = 0, told: int | None = None) -> None:
        self.room, self.tokens, self.prefix, self.told = room, tokens, prefix, told
        self.parts: list[Any] = []
        #: of later pipeline stages, among `parts`
        self.later: list[Any] = []
        self.pages: list[int] = []
        self.row, self.sent, self.at = -1, 0, "queued"
        self.slot = 0
        self.window: list[int] = []
        self.why = ""


class SGLang:
    """One instance with `tp` ranks."""

    def __init__(
        self, fabric: Fabric, side: str, tp: int, heads: int, page: int, server: str, *, mla: bool = False,
        data_parallel: int = 1, dp_rank: int = 0, by_room: bool = True, index: bool = False, drafts: int = 0,
        state: str = "", window: int = 0, stages: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        """Make it; `index`: the last layer has one; `drafts`: layers of a draft; `state`: of which kind.

        `window`: tokens that some layers look back; `stages`: layers of each pipeline stage of `tp` ranks.
        """
        self.tp, self.stages = tp, stages
        self.window, self.local = window, list(range(1, PAGES))
        self.side, self.page, self.server, self.mla, self.state = side, page, server, mla, state
        self.slots = list(range(1, SLOTS))
        self.free, self.rows = list(range(1, PAGES)), list(range(ROWS))[::-1]  # the first one has row 0
        self.live: list[Request] = []
        self.ended: dict[int, str] = {}
        self.ranks: list[Any] = []
        word = StageWords(tp, len(stages))

        def make(rank: int) -> Any:
            cls = type("OneManager", (Manager,), {"fabric": fabric, **word.of(rank)})
            local = 1 if mla else max(1, heads // tp)
            attends = self.here(rank, ATTENTION if state or window else range(LAYERS))
            # numbers of tensors among those of the whole model: K of all layers, V of all, a draft's
            of = [part * LAYERS + at for part in range(2 - mla) for at in attends]
            of += range(LAYERS * (2 - mla), (LAYERS + drafts) * (2 - mla))
            pools = [torch.full((PAGES, page, local, DIM), 0xEE, dtype=torch.uint8) for _ in of]
            indices = [torch.full((PAGES * at, page * 132), 0xEE, dtype=torch.uint8) for at in range(2)] * index
            aux = [torch.zeros((ROWS, size), dtype=torch.uint8) for size in AUX]
            args = SimpleNamespace(
                kv_data_ptrs=[p.data_ptr() for p in pools], kv_data_lens=[p.nbytes for p in pools], page_size=page,
                kv_item_lens=[p[0].nbytes for p in pools], aux_data_ptrs=[a.data_ptr() for a in aux],
                aux_item_lens=list(AUX), kv_cache_dtype_str="bfloat16", num_draft_entries=drafts * (2 - mla),
                state_types=[SimpleNamespace(value="dsa")] * index,
                state_data_ptrs=[[each.data_ptr() for each in indices]] * index,
                state_data_lens=[[each.nbytes for each in indices]] * index, state_item_lens=[[0, page * 132]] * index,
            )  # fmt: skip
            states = self.recurrent(args, rank, attends) if state else []
            windows = self.windowed(args, rank) if window else []
            if index:  # in a page all keys, then all scales
                of += [len(of), len(of) + 1]
                pools.append(indices[1][:, : page * 128].view(PAGES, page, 1, 128))
                pools.append(indices[1][:, page * 128 :].view(PAGES, page, 1, 4))
            instance = Instance(
                f"{side} {server}", tp, rank, heads, data_parallel, dp_rank, by_room, bootstrap_server=server, chunk=32,
                stages=stages,
                recurrence=recurrence(state) if state else None,
                window=Window(window + 1, RECURRENT, ATTENTION, 1 if mla else HEADS) if window else None,
            )  # fmt: skip
            mode = SimpleNamespace(value=side)
            manager = cls(args, mode, SimpleNamespace(instance=instance), is_mla_backend=mla)
            head = 0 if mla else units_at(heads, tp, rank % tp)[0]
            return SimpleNamespace(
                rank=rank, head=head, pools=pools, of=of, aux=aux, manager=manager, states=states, windows=windows
            )

        with ThreadPoolExecutor(tp * (len(stages) or 1)) as at_once:  # stages wait for each other
            self.ranks += at_once.map(make, range(tp * (len(stages) or 1)))

    # ------------------------------------------------------------------------------------------- memory
    def here(self, rank: int, layers: Sequence[int]) -> list[int]:
        """Places, among these layers, of those that are on the rank's pipeline stage."""
        stage, ends = rank // self.tp, [0, *accumulate(self.stages)] if self.stages else [0, 99]
        return [at for at, layer in enumerate(layers) if ends[stage] <= layer < ends[stage + 1]]

    def recurrent(self, args: Any, rank: int, attends: list[int]) -> list[torch.Tensor]:
        """Tensors of state as SGLang lists them: the convolution of all layers, then the matrices."""
        found = [torch.full((SLOTS, *each.shape), 0xEE, dtype=torch.uint8) for each in self.states_of(0, rank)]
        args.kv_layer_ids = [ATTENTION[at] for at in attends] * (1 if self.mla else 2)
        args.state_types.insert(0, SimpleNamespace(value="mamba"))
        args.state_data_ptrs.insert(0, [each.data_ptr() for each in found])
        args.state_data_lens.insert(0, [each.nbytes for each in found])
        args.state_item_lens.insert(0, [each[0].nbytes for each in found])
        cut = [each.shape[-1 if self.state == "kda" and each.shape[1] == TAPS else 1] for each in found]
        args.state_dim_per_tensor, args.state_layer_ids = [cut], [
            [RECURRENT[at] for at in self.here(rank, RECURRENT)] * 2
        ]  # fmt: skip
        return found

    def windowed(self, args: Any, rank: int) -> list[torch.Tensor]:
        """Tensors of the window as SGLang lists them: K of all layers that have it, then V."""
        count = len(self.here(rank, RECURRENT)) * (2 - self.mla)
        shape = PAGES, self.page, 1 if self.mla else HEADS // self.tp, DIM
        found = [torch.full(shape, 0xEE, dtype=torch.uint8) for _ in range(count)]
        args.state_types.append(SimpleNamespace(value="swa"))
        args.state_data_ptrs.append([each.data_ptr() for each in found])
        args.state_data_lens.append([each.nbytes for each in found])
        args.state_item_lens.append([each[0].nbytes for each in found])
        args.swa_kv_cache_layout = "nhd"
        return found

    def rows_of(self, rank: Any, room: int, at: int, first: int, tokens: int) -> torch.Tensor:
        """The rows of these tokens, [token, head, dim], in a tensor of the window."""
        _, _, held, width = rank.windows[at].shape
        here = self.here(rank.rank, RECURRENT)
        part, layer = divmod(at, len(here))
        at = part * len(RECURRENT) + here[layer]
        t = torch.arange(first, first + tokens).view(-1, 1, 1)
        h = torch.arange(held).view(1, -1, 1) + (0 if self.mla else rank.rank % self.tp * held)
        return ((room * 41 + at * 7 + t * 13 + h * 59 + torch.arange(width)) % 241).to(torch.uint8)

    def take_window(self, request: Request) -> None:
        """Pages from the one with the first token of the last window, or from the prefix's end on."""
        if self.window and not request.window:
            first = max(request.prefix, request.tokens - self.window) // self.page
            count = -(-request.tokens // self.page) - first
            request.window = [self.local.pop() for _ in range(count)]
            for tensor in (each for rank in self.ranks for each in rank.windows):
                assert (tensor[request.window] == 0xEE).all(), f"{self.side}: something was written into a free page"

    def last_window(self, rank: Any, request: Request) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """By tensor: pages and places of the last window's tokens, and what is there."""
        first = max(request.prefix, request.tokens - self.window)
        at = torch.arange(first, request.tokens) - first // self.page * self.page
        pages = torch.tensor(request.window, dtype=torch.int64)[at // self.page]
        return [
            (pages, at % self.page, self.rows_of(rank, request.room, number, first, request.tokens - first))
            for number in range(len(rank.windows))
        ]

    def state_of(self, room: int, layer: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a rank's part of a layer's state after the room's last token: convolution and matrices."""
        bits, held = torch.Generator().manual_seed(room * 64 + layer), []
        tp, rank = self.tp, rank % self.tp
        for _, units, channels in SEGMENTS[self.state]:
            whole = torch.randint(0, 256, (units, channels, TAPS), dtype=torch.uint8, generator=bits)
            held.append((whole.chunk(tp)[rank] if units > 1 else whole).flatten(0, 1))
        matrices = torch.randint(0, 256, (HEADS, MATRIX), dtype=torch.uint8, generator=bits)
        conv = torch.cat(held)
        return conv.T.contiguous() if self.state == "kda" else conv, matrices.chunk(tp)[rank]

    def states_of(self, room: int, rank: int) -> list[torch.Tensor]:
        """All of it, in the order of the tensors; none of a model without."""
        here = self.here(rank, RECURRENT) if self.state else []
        forms = [self.state_of(room, RECURRENT[at], rank) for at in here]
        return [form[at] for at in range(2) for form in forms]

    def take_slot(self, request: Request) -> None:
        if self.state and not request.slot:
            request.slot = self.slots.pop()
            for rank in self.ranks:
                for tensor in rank.states:
                    assert (tensor[request.slot] == 0xEE).all(), f"{self.side}: something was written into a free slot"

    def indices(self, request: Request) -> Any:
        """State indices as SGLang gives them: for every kind of state."""
        kinds = [kind.value for kind in self.ranks[0].manager.kv_args.state_types]
        named = {"mamba": [np.array(request.slot)], "swa": np.array(request.window)}
        return [named.get(kind) for kind in kinds] or None

    def bytes_of(self, rank: Any, room: int, layer: int, first: int, tokens: int) -> torch.Tensor:
        """The KV of these tokens: [token, head, dim] of one tensor of a rank."""
        _, _, held, width = rank.pools[layer].shape
        t = torch.arange(first, first + tokens).view(-1, 1, 1)
        h = torch.arange(rank.head, rank.head + held).view(1, -1, 1)
        number: int = rank.of[layer]
        return ((room * 37 + number * 5 + t * 11 + h * 53 + torch.arange(width)) % 251).to(torch.uint8)

    def take(self, count: int) -> list[int] | None:
        if len(self.free) < count:
            return None
        pages = [self.free.pop() for _ in range(count)]
        for rank in self.ranks:
            for pool in rank.pools:
                assert (pool[pages] == 0xEE).all(), f"{self.side}: something was written into a free page"
        return pages

    def give_back(self, request: Request) -> None:
        for rank in self.ranks:
            for pool in rank.pools:
                pool[request.pages] = 0xEE
        self.free += request.pages
        if request.row >= 0:
            for rank in self.ranks:
                for aux in rank.aux:
                    aux[request.row] = 0
            self.rows.append(request.row)
        if request.slot:
            for tensor in (each for rank in self.ranks for each in rank.states):
                tensor[request.slot] = 0xEE
            self.slots.append(request.slot)
        for tensor in (each for rank in self.ranks for each in rank.windows):
            tensor[request.window] = 0xEE
        self.local += request.window
        request.pages, request.row, request.slot, request.window = [], -1, 0, []

    # ---------------------------------------------------------------------------------------- scheduler
    def add(self, request: Request) -> None:
        kind = Sender if self.side == "prefill" else Receiver
        request.parts = [kind(r.manager, self.server, request.room, request.told is not None) for r in self.ranks]
        request.later = request.parts[self.tp :]
        self.live.append(request)
        if self.side == "decode" and all(self.server in rank.manager.prefill_info_table for rank in self.ranks):
            self.decode_queued(request)  # of an instance that it knows SGLang makes use in the same call

    def poll(self, request: Request) -> int:
        return min(int(part.poll()) for part in request.parts)

    def poll_to_the_end(self, request: Request) -> int:
        """With stages a request is over when every stage says so."""
        said = [int(part.poll()) for part in request.parts]
        stages = [min(said[at : at + self.tp]) for at in range(0, len(said), self.tp)]
        return min(stages) if {*stages} <= {FAILED, SUCCESS} or not self.stages else TRANSFERRING

    def abort(self, room: int) -> None:
        for request in self.live:
            if request.room == room:
                for part in request.parts:
                    part.abort()

    def fail(self, request: Request) -> None:
        for part in request.parts:
            try:
                part.failure_exception()
            except TransferError as error:
                request.why = request.why or ("" if error.elsewhere else error.why)

    def end(self, request: Request, how: str) -> None:
        request.at = how
        self.ended[request.room] = request.why if how == "failed" else "well"
        self.live.remove(request)
        for part in request.parts:
            part.clear()

    def turn(self) -> None:
        for request in list(self.live):
            getattr(self, f"{self.side}_{request.at}")(request)

    # ------------------------------------------------------------------------------------------ prefill
    def prefill_queued(self, request: Request) -> None:
        for part in request.parts if self.stages else ():
            part.post()
        first = request.parts[: self.tp]
        poll = min(int(part.poll_pp_consensus() if self.stages else part.poll()) for part in first)
        assert poll in {FAILED, BOOTSTRAPPING, WAITING}, "SGLang raises on any other answer here"
        if poll == FAILED:
            self.fail(request)
            self.end(request, "failed")
        elif poll == WAITING and self.rows:
            (request.prefix,) = {part.pop_decode_prefix_len() for part in request.parts}
            request.sent = request.prefix
            request.row = self.rows.pop()
            for part in request.parts:
                part.init(-(-(request.tokens - request.prefix) // self.page), request.row)
            request.at = "waiting"

    def prefill_waiting(self, request: Request) -> None:
        if self.poll(request) == FAILED:
            self.fail(request)
            self.give_back(request)
            self.end(request, "failed")
        elif (pages := self.take(-(-(request.tokens - request.prefix) // self.page))) is not None:
            request.pages = pages
            request.at = "computing"

    def prefill_computing(self, request: Request) -> None:
        """One forward: a chunk of 32 tokens; whole pages of it are sent."""
        upto = min(request.tokens, (request.sent // 32 + 1) * 32)
        last = upto == request.tokens
        for part in request.parts:
            part.scheduled()
        first, count = request.sent, upto - request.sent
        whole = -(-count // self.page) if last else count // self.page
        at = (request.sent - request.prefix) // self.page
        self.take_slot(request)
        if last:  # what the window has left behind is free by now
            self.take_window(request)
        for rank, part in zip(self.ranks, request.parts, strict=True):
            self.fill(rank, request, first, upto)
            states = self.states_of(request.room, rank.rank)
            for tensor, state in zip(rank.states, states, strict=True):
                tensor[request.slot] = state if last else 255 - state  # of fewer tokens it is another
            if last:
                for tensor, (pages, places, rows) in zip(rank.windows, self.last_window(rank, request), strict=True):
                    tensor[pages, places] = rows
                for aux, size in zip(rank.aux, AUX, strict=True):
                    aux[request.row] = torch.full((size,), request.room % 200 + 1, dtype=torch.uint8)
            if whole or part.should_send_kv_chunk(whole, last):
                part.send(request.pages[at : at + whole], self.indices(request) if last else None, num_kv_tokens=count)
        request.sent = upto if last else request.sent + whole * self.page
        if last:
            request.at = "inflight"

    def fill(self, rank: Any, request: Request, first: int, upto: int) -> None:
        at = torch.arange(first, upto) - request.prefix
        pages = torch.tensor(request.pages, dtype=torch.int64)[at // self.page]
        for layer, pool in enumerate(rank.pools):
            pool[pages, at % self.page] = self.bytes_of(rank, request.room, layer, first, upto - first)

    def prefill_inflight(self, request: Request) -> None:
        poll = self.poll_to_the_end(request)
        assert poll != BOOTSTRAPPING, "SGLang raises on this answer here"
        if poll == FAILED:
            self.fail(request)
        if poll in {FAILED, SUCCESS}:
            self.give_back(request)
            self.end(request, "failed" if poll == FAILED else "well")

    # ------------------------------------------------------------------------------------------- decode
    def decode_queued(self, request: Request) -> None:
        if all(rank.manager.try_ensure_parallel_info(self.server) for rank in self.ranks):
            dp_rank = self.dp_rank_of(request)
            if dp_rank is None:
                return
            for part in request.parts:
                part.init(dp_rank)
            request.at = "reaching"

    def dp_rank_of(self, request: Request) -> int | None:
        """SGLang's order of rules; None: the bootstrap server does not know it yet."""
        info = self.ranks[0].manager.prefill_info_table[self.server]
        if request.told is not None or info.dp_size == 1:
            return request.told or 0
        if info.follow_bootstrap_room:
            return request.room % int(info.dp_size)
        return self.query(request.room)

    def query(self, room: int) -> int | None:
        """As SGLang's `query_prefill_dp_ranks`."""
        line = http.client.HTTPConnection(self.server, timeout=5.0)
        line.request("POST", "/query_dp_ranks", json.dumps({"bootstrap_rooms": [room]}).encode())
        answer = line.getresponse()
        assert answer.status == HTTPStatus.OK
        found: int | None = json.loads(answer.read()).get(str(room))
        line.close()
        return found

    def decode_reaching(self, request: Request) -> None:
        poll = self.poll(request)
        assert poll in {FAILED, BOOTSTRAPPING, WAITING}, "SGLang raises on any other answer here"
        if poll == FAILED:
            self.fail(request)
            self.end(request, "failed")
        elif poll == WAITING and self.rows and (pages := self.take(-(-request.tokens // self.page))) is not None:
            request.pages, request.row = pages, self.rows.pop()
            self.take_slot(request)
            self.take_window(request)
            for rank in self.ranks:
                self.fill_prefix(rank, request)
            for part in request.parts:
                suffix = request.pages[request.prefix // self.page :]
                part.send_metadata(suffix, request.row, self.indices(request), decode_prefix_len=request.prefix)
            request.at = "transfer"

    def fill_prefix(self, rank: Any, request: Request) -> None:
        mine = request.prefix
        request.prefix = 0
        self.fill(rank, request, 0, mine)
        request.prefix = mine

    def decode_transfer(self, request: Request) -> None:
        poll = self.poll_to_the_end(request)
        if poll == FAILED:
            self.fail(request)
            for part in request.parts:
                part.ensure_abort_notified(force_arm=True)
            request.at = "held"
        elif poll == SUCCESS:
            self.check(request)
            self.give_back(request)
            self.end(request, "well")

    def decode_held(self, request: Request) -> None:
        if all(rank.manager.is_abort_release_safe(request.room, 1) for rank in self.ranks):
            self.give_back(request)
            self.end(request, "failed")

    def check(self, request: Request) -> None:
        """The KV of the whole prompt and its last window, the state behind it, and the metadata."""
        for rank in self.ranks:
            for at, (pages, places, rows) in enumerate(self.last_window(rank, request)):
                wrong = f"room {request.room}, rank {rank.rank}, window {at}: other bytes"
                assert torch.equal(rank.windows[at][pages, places], rows), wrong
        request.prefix, prefix = 0, request.prefix
        for rank in self.ranks:
            for layer, pool in enumerate(rank.pools):
                kv = self.bytes_of(rank, request.room, layer, 0, request.tokens)
                found = pool[request.pages].reshape(-1, *pool.shape[2:])[: request.tokens]
                assert torch.equal(found, kv), f"room {request.room}, rank {rank.rank}, tensor {layer}: other bytes"
            states = self.states_of(request.room, rank.rank)
            for at, (tensor, state) in enumerate(zip(rank.states, states, strict=True)):
                wrong = f"room {request.room}, rank {rank.rank}, state {at}: other bytes"
                assert torch.equal(tensor[request.slot], state), wrong
            for aux in rank.aux:
                assert (aux[request.row] == request.room % 200 + 1).all(), "the metadata is another's"
        request.prefix = prefix

    def close(self) -> None:
        for rank in self.ranks:
            rank.manager.endpoint.close()


def recurrence(state: str) -> Recurrence:
    """Describe the state of a model of this kind, as SGLang's configuration does."""
    return Recurrence(tuple(Segment(*each) for each in SEGMENTS[state]), TAPS, HEADS, "fp8, fp8", state == "kda")


class Stage:
    """A prefill and a decode instance on one fabric, with a bootstrap server."""

    def __init__(
        self, p: int, d: int, *, heads: int = 4, pages: tuple[int, int] = (8, 8),
        stages: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()), **more: Any,
    ) -> None:  # fmt: skip
        """`stages`: layers of each pipeline stage, of prefill and of decode."""
        self.fabric, self.http = Fabric(auto=True), KVProtoBootstrapServer("127.0.0.1", 0)
        server = f"127.0.0.1:{self.http.port}"
        self.prefill = SGLang(self.fabric, "prefill", p, heads, pages[0], server, stages=stages[0], **more)
        self.decode = SGLang(self.fabric, "decode", d, heads, pages[1], server, stages=stages[1], **more)

    def ask(self, room: int, tokens: int, prefix: int = 0, *, prefill: bool = True, decode: bool = True) -> None:
        if prefill:
            self.prefill.add(Request(room, tokens))
        if decode:
            self.decode.add(Request(room, tokens, prefix))

    def run(self, *, seconds: float = 20.0, until: Any = None) -> None:
        """Both schedulers, until nothing is under way (or as the caller says).

        A turn counts for `TURN_S` at most: a machine that gives this process no turns is no room that hangs.
        """
        clock = SteadyClock(TURN_S)
        end = clock.now() + seconds
        done = until or (lambda: not self.prefill.live and not self.decode.live)
        while not done():
            self.prefill.turn()
            self.decode.turn()
            live = [(r.room, r.at) for side in (self.prefill, self.decode) for r in side.live]
            assert clock.now() < end, f"not over after {seconds} s: {live}"
            time.sleep(1e-4)

    def idle(self) -> None:
        """Every page and every row is back."""
        for side in (self.prefill, self.decode):
            assert sorted(side.free) == list(range(1, PAGES)), f"{side.side} lacks pages"
            assert sorted(side.rows) == list(range(ROWS)), f"{side.side} lacks rows"
            assert sorted(side.local) == list(range(1, PAGES)), f"{side.side} lacks pages of windows"
            assert sorted(side.slots) == list(range(1, SLOTS)), f"{side.side} lacks slots"
            end = time.monotonic() + 10.0
            while any(rank.manager.tasks for rank in side.ranks):  # a room that was declined has no scheduler to ask
                assert time.monotonic() < end, f"{side.side} holds rooms"
                for rank in side.ranks:
                    rank.manager.advance()

    def close(self) -> None:
        self.http.close()
        self.prefill.close()
        self.decode.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
