"""Layer rank: a pipeline rank that computes, lays each layer's KV after it, and reports it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

from kvproto.lab.bench.bare import PagesThere, begin_at, bound_stores
from kvproto.lab.bench.pipeline_rank import LONGEST_S, Moment, PipelineRank, give_way
from kvproto.lab.bench.pools import mark
from kvproto.lab.bench.sleepers import NewsSleeper, StoreSleeper
from kvproto.room import Room
from kvproto.verify.testing import inside

#: what the engine's thread does: it polls the endpoint; or that has a thread, and it sleeps until news, or never does
Engine = Literal["polls", "sleeps", "spins"]
#: turns of a loop of the interpreter between two looks of an engine that never sleeps: some 10 us
LOOK = 300
#: what a layer of an 8B model multiplies with: query, key and value, output, up and gate, down
HIDDEN, INNER, HEADS, DIM = 4096, 14336, 32, 128


class Work:
    """The work of one layer; all layers share weights, which does not change their time."""

    def __init__(self, tokens: int, heads: int, device: torch.device) -> None:
        def weights(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, dtype=torch.bfloat16, device=device).div_(rows**0.5)

        self.heads, self.x = heads, torch.randn(tokens, HIDDEN, dtype=torch.bfloat16, device=device)
        self.qkv, self.out = weights(HIDDEN, (HEADS + 2 * heads) * DIM), weights(HEADS * DIM, HIDDEN)
        self.up, self.down = weights(HIDDEN, 2 * INNER), weights(INNER, HIDDEN)

    def layer(self, x: torch.Tensor) -> torch.Tensor:
        """A layer's output, of the output of the one before."""
        rows = (x @ self.qkv).view(1, len(x), -1, DIM).transpose(1, 2)
        q, k, v = torch.split(rows, [HEADS, self.heads, self.heads], 1)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = torch.nn.functional.rms_norm(x + seen[0].transpose(0, 1).reshape(len(x), -1) @ self.out, (HIDDEN,))
        gate, up = (x @ self.up).chunk(2, 1)
        return torch.nn.functional.rms_norm(x + (torch.nn.functional.silu(gate) * up) @ self.down, (HIDDEN,))


class LayerRank(PipelineRank):
    """A prefill rank with a forward, or a decode rank."""

    work: Work | None = None
    laid: dict[int, list[Any]]
    _stores: StoreSleeper | None = None
    _told: NewsSleeper | None = None

    def lay_by_layer(self, room: int, tokens: int) -> None:
        """Keep the truth of each layer, to be laid after its work."""
        assert self.pool is not None
        self.laid = {}
        for at, each in enumerate(self._places(room, tokens)):
            self.laid.setdefault(at % self.pool.layers, []).append(each)
        if self.device.type == "cuda" and (self.work is None or len(self.work.x) != tokens):
            self.work = None
            self.work = Work(tokens, self.pool.heads, self.device)

    def remark(self) -> None:
        """Nothing that was laid or moved is there any more."""
        assert self.pool is not None
        mark(self.pool)
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def open_in_groups(self, room: tuple[int, int], tokens: int, groups: int) -> None:
        """As `open`, cut into so many layer groups."""
        name = Room(*room)
        if self.side == "D":
            self.endpoint.open(name, tokens, self.tables[room[0]], layer_groups=groups)
            return
        self.open([room], tokens)

    def go_by_layer(
        self, room: tuple[int, int], tokens: int, groups: int, at: float, engine: Engine
    ) -> tuple[float, float, list[Moment]]:  # fmt: skip
        """Return when a decode rank began to wait and had its success, or a prefill rank's forward's times."""
        self.log.clear()
        begin, name, end = begin_at(self.endpoint, at), Room(*room), 0.0
        with self._served(engine):
            ended = None
            if self.side == "P":

                def computed(layers: int, event: Any) -> None:
                    self.endpoint.produced(name, tokens, event, layers=layers)

                ended = self._forward(groups, engine, computed)
                self.endpoint.aux(name, b"token")
                end = time.perf_counter() if ended is None else 0.0
            while not (over := self.endpoint.finished()):
                self._turn(engine, ended if not end else None)
                if not end and ended is not None and ended.query():
                    end = time.perf_counter()
                if time.perf_counter() > begin + LONGEST_S:
                    raise TimeoutError(self.endpoint.explain(name))
            if self.side == "D":
                end = time.perf_counter()
        if not over[0].ok:
            raise RuntimeError(f"{self.side}{self.index}: {over[0]}")
        self._until(lambda: bool(self.endpoint.released()))
        return begin, end, list(self.log)

    def meet(self, port: int) -> int:
        """Make this rank's sleeper; `port`: where the prefill rank's listens, which returns it."""
        for each in (self._stores, self._told):
            if each is not None:
                each.close()
        if self.side == "P":
            self._stores = StoreSleeper(self.device)
            return self._stores.port
        self._told = NewsSleeper(port)
        return port

    def by_sleepers(
        self, room: int, tokens: int, groups: int, at: float, engine: Engine, there: PagesThere
    ) -> float:  # fmt: skip
        """Return when the forward was over, or its last group's KV known to a decode rank's engine."""
        begin_at(self.endpoint, at)
        if self._told is not None:
            with self._told.serving() as news:
                while not news.is_set():
                    if engine == "spins":
                        _spin()
                    else:
                        news.sleep(LONGEST_S)
                return time.perf_counter()
        assert self._stores is not None
        inner, table = inside(self.endpoint), self.tables[room].to(self.device)
        bound = [launch for _, launch, _ in bound_stores(inner, self.form.plan, table, there, tokens // groups)]
        with self._stores.serving(inner.data.streams.next_store(), bound) as give:
            ended = self._forward(groups, engine, lambda _layers, _event: None)
            give(ended)
            while engine == "spins" and not ended.query():
                _spin()
            ended.synchronize()
            return time.perf_counter()

    @contextmanager
    def _served(self, engine: Engine) -> Iterator[None]:
        """Within: the endpoint has a thread of its own, unless the engine polls."""
        if engine == "polls":
            yield
            return
        self.endpoint.start()
        try:
            yield
        finally:
            inside(self.endpoint).loop.stop()

    def _turn(self, engine: Engine, forward: Any) -> None:
        """Do as the engine does until it looks again; `forward`: an event that was not seen to be over."""
        if engine == "polls":
            self.endpoint.poll()
            give_way()
        elif engine == "spins":
            _spin()
        elif forward is not None:
            forward.synchronize()
        else:
            self.endpoint.wait_news(LONGEST_S)

    @torch.inference_mode()
    def _forward(self, groups: int, engine: Engine, computed: Callable[[int, Any], None]) -> Any:
        """Have the device compute and lay layer by layer, and say where each group ends; the event of the end."""
        assert self.pool is not None
        event: Any = None
        layers, x = self.pool.layers, self.work.x if self.work is not None else torch.empty(0)
        for layer in range(layers):
            x = self.work.layer(x) if self.work is not None else x
            for place, truth in self.laid[layer]:
                place(truth)
            done = layer + 1
            if self.device.type == "cuda" and done * groups % layers < groups:
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record()
            if done * groups % layers < groups or done == layers:
                computed(done, event)
            if engine == "polls":
                self.endpoint.poll()
        return event


def _spin() -> None:
    for _ in range(LOOK):
        pass
