"""Pair: a prefill and a decode instance of SGLang, with the prompts that they are given.

A pair has a name: its model, if it is no Llama, and the ranks of both sides ("mla 1:2"); "hosts 1:2" is "1:2" with
each side on a host of its own.  By a backend's name it knows
SGLang's options for it.  What its instances answer is compared with the whole model's answers, and becomes a row.
"""

from __future__ import annotations

import json
import math
import random
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from examples.engine_runs.build import build
from examples.engine_runs.hosts import APART, LEAST, Host, Hosts
from examples.sglang import model
from examples.sglang.instance import Instance
from examples.sglang.messages import LOOPBACK, WHOLE, Answer, Request, Start
from examples.sglang.whole import AT_ONCE, LEAD, Sure, Whole
from examples.vllm.reference import Reference

CONTROL = 900_000
TOKENS = 16
#: characters of an error that a row keeps
SAID = 160
STAGING = {
    "SGLANG_DISAGG_STAGING_BUFFER": "1", "SGLANG_STAGING_USE_TORCH": "1",
    "SGLANG_DISAGG_STAGING_POOL_SIZE_MB": "64", "SGLANG_DISAGG_STAGING_BUFFER_SIZE_MB": "16",
}  # fmt: skip
#: by name: SGLang's word for it, whether digests are kept (they cost time), and its environment
BACKENDS: dict[str, tuple[str, bool, dict[str, str]]] = {
    "kvproto": ("kvproto", True, {}), "plain": ("kvproto", False, {}),
    "staging": ("mooncake", False, STAGING), "mooncake": ("mooncake", False, {}), "nixl": ("nixl", False, {}),
}  # fmt: skip
#: seconds in which an instance of SGLang's own serves on a CPU, and in which it has some answer
OWN_START_S, OWN_ANSWER_S = 300.0, 60.0
#: of a log: the line that says why something ended; what was aborted is no reason
RAISED = re.compile(r"^(?:\w+\.)*(?!KVTransferError)\w*(?:Error|Exception): .+", re.MULTILINE)
#: tokens a page at prefill and at decode, where a pair does not say it
PAGES = 16, 16
#: of a hybrid model on a CPU: its kernels, and a state in the model's own type, so that tokens are those of the model
HYBRID = {"SGLANG_USE_CPU_ENGINE": "1"}
#: where drafts are accepted by Triton's kernels, which on a CPU are interpreted
DRAFTED = {"cpu": {"TRITON_INTERPRET": "1"}, "cuda": {}}
#: ports of the judges, by model
JUDGES = {kind: 19_700 + 20 * at for at, kind in enumerate((*model.HYBRIDS, "eagle"))}
#: by the first word of a pair: its model
MODELS = {"eagle": "eagle", "mla": "deepseek_v3", "hybrid": "qwen3_5", "mamba2": "falcon_h1", "windows": "mellum"}


class Place(NamedTuple):
    """Place of the instances: "cpu" or so many GPUs; prompts are `scale` times as long as on a CPU.

    Prefill has the first GPUs and decode the last, which are the same for instances of as many ranks as there are.
    Where an instance has more ranks than there are GPUs, they share them in turn.
    Where times count, `rounds` of prompts are asked one after another.  `coarse`: hybrids compute in bfloat16.
    """

    device: str = "cpu"
    gpus: int = 0
    scale: int = 1
    rounds: int = 1
    coarse: bool = False

    def first(self, side: str, ranks: int) -> int:
        """Return the GPU of a side's first rank."""
        return max(0, self.gpus - ranks) * (side == "decode")

    def of(self, start: Start) -> str:
        """Return the GPUs of an instance's ranks, as words."""
        return " ".join(str((start.first_gpu + rank) % self.gpus) for rank in range(start.ranks))


ON_CPU = Place()


class Pair:
    """One pair of instances."""

    #: those of its sides, if each is on one of its own, and the bytes that had crossed between them at the last row
    hosts: Hosts | None = None
    crossed = 0
    #: whether SGLang's own backend carries the KV: it may refuse this pair, or never answer
    own = False

    def __init__(
        self, pair: str, backend: str, folder: Path, pages: tuple[int, int], keep: Callable[[dict[str, Any]], None],
        place: Place = ON_CPU, whole: Whole | None = None,
    ) -> None:  # fmt: skip
        """Make both instances, which begin to start.  `pages`: tokens a page at prefill, at decode.

        `keep` is called with each row that is made; `whole`: its judge, if that is an engine.

        A side of a pair is its TP ranks, or "1x2": two data-parallel ranks of one TP rank each, or "2 stages" of one
        rank each, or "2 stages of 2"; before both stands the name of a model (`MODELS`), if it is not a Llama.
        """
        word = pair.partition(" ")[0]
        sized = pair.removeprefix(f"{word} " if word in (*MODELS, APART) else "").split(":")
        if word == APART:
            self.hosts = Hosts(folder).__enter__()
        self.label = pair if pages == PAGES else f"{pair} pages {pages[0]}-{pages[1]}"
        self.pair, self.backend, self.folder, self.keep, self.place = pair, backend, folder, keep, place
        self.rows: list[dict[str, Any]] = []
        self.room, self.noise = random.Random(f"{pair} {backend}").randrange(1, 800_000), random.Random()
        self.truth: dict[tuple[int, ...], Reference] = {}
        #: rooms that one side has given up when the other may have had all of them
        self.given_up: set[int] = set()
        name, digests, environment = BACKENDS[backend]
        self.own = name != "kvproto"
        self.whole = whole
        environment = environment | environment_of(pair, place)
        port = 20_000 + self.room % 9_000
        sides = zip(("prefill", "decode"), map(ranks_of, sized), pages, (port, port + 100), strict=True)
        self.bootstrap, self.model = port + 50, folder.parent / kind_of(pair)
        draft = model.draft_of(self.model, kind_of(pair))
        self.starts = [
            Start(
                side, tp, at, name, self.bootstrap, str(self.model), str(folder), page,
                environment | (host.environment if host else {}), digests, dp, pp,
                place.device, place.first(side, tp * dp * pp), tp * dp * pp > place.gpus > 0, place.scale,
                dtype_of(pair, place), draft, address=host.address if host else LOOPBACK,
                keys=str(host.key) if host else "",
            )
            for side, (tp, dp, pp), page, at in sides
            for host in [self._host(side)]
        ]
        self.gpus = f"{' → '.join(map(place.of, self.starts))} of {place.gpus}" if place.gpus else ""
        #: asked first, so that nothing is compiled later; None: not yet
        self.warming: list[Request] | None = None
        self.p, self.d = map(self.make, self.starts)

    def make(self, start: Start) -> Instance:
        """Make an instance on its host, which begins to start."""
        return Instance(start, self._host(start.side))

    def ready(self) -> None:
        """Wait until both serve."""
        for instance in (self.p, self.d):
            instance.ready(OWN_START_S if self.own and self.place.device == "cpu" else None)

    def allow(self) -> None:
        """Wait for the answers of SGLang's own no longer than they may take."""
        for instance in (self.p, self.d):
            instance.allow(OWN_ANSWER_S if self.own and self.place.device == "cpu" else math.inf)

    @property
    def silent(self) -> bool:
        """Whether an instance has not answered in that time."""
        return self.p.silent or self.d.silent

    def raised(self) -> str:
        """Return the first error in the logs of SGLang's own; empty: there is none."""
        found = (RAISED.search(file.read_text(errors="replace")) for file in sorted(self.folder.glob("*.log")))
        return next((match[0] for match in found if match), "")[:SAID]

    def _host(self, side: str) -> Host | None:
        return self.hosts.of[side[0].upper()] if self.hosts else None

    def draw(self, length: int) -> list[int]:
        """Draw a prompt."""
        return [self.noise.randrange(3, model.VOCABULARY) for _ in range(length)]

    def prompts(self, lengths: Any) -> list[list[int]]:
        """New ones, and what the whole model says to them."""
        scaled = [length * self.place.scale for length in lengths]
        if self.whole is not None:
            chosen = self.whole.choose(scaled, self.draw)
            self.truth |= {tuple(prompt): sure for prompt, sure in chosen}
            return [prompt for prompt, _ in chosen]
        made = [*map(self.draw, scaled)]
        for prompt, said in zip(made, model.continued(self.model, made, TOKENS, self.place.device), strict=True):
            self.truth[tuple(prompt)] = said
        return made

    def request(self, prompt: list[int], *, control: bool = False) -> Request:
        """A prompt with a room of its own."""
        self.room += 1
        room, weighed = self.room + CONTROL * control, self.whole is not None and self.whole.lead > 0
        return Request(f"r{self.room}", prompt, TOKENS, room, self.bootstrap, self.starts[0].address, None, weighed)

    def both(self, *requests: Request) -> list[Answer]:
        """Ask both instances; decode's answers."""
        self.ask(*requests)
        return self.answers(*requests)

    def ask(self, *requests: Request) -> None:
        """Ask both instances."""
        for request in requests:
            self.p.ask(request)
            self.d.ask(request)

    def answers(self, *requests: Request) -> list[Answer]:
        """Wait for both instances' answers; decode's."""
        rids = [request.rid for request in requests]
        self.p.wait(*rids)
        return self.d.wait(*rids)

    def differs(self, asked: Request, said: Answer) -> bool:
        """Whether this is not the whole model's answer."""
        return self.truth[tuple(asked.prompt)].fits(said.tokens) != "equal"

    def judge(self, scenario: str, requests: list[Request], answers: list[Answer], **more: Any) -> None:
        """A row of the table."""
        pairs = list(zip(requests, answers, strict=True))
        differ = [n for n, (asked, said) in enumerate(pairs) if self.differs(asked, said)]
        right = f"{len(requests) - len(differ)}/{len(requests)}"
        errors = sorted({answer.error[:SAID] for answer in answers if answer.error})
        errors += [self.raised()] if self.own and self.silent else []
        sure = [(truth, said) for asked, said in pairs if isinstance(truth := self.truth[tuple(asked.prompt)], Sure)]
        if any(truth.lead for truth, _ in sure):
            more["lead"] = round(min(truth.lead for truth, _ in sure), 3)
            more["noise"] = round(max(truth.noise(said) for truth, said in sure), 3)
        if drafted := sum(truth.verified for truth, _ in sure):
            more |= {"verified": sum(said.verified for _, said in sure), "verified_alone": drafted}
        good = not differ and more.get("verified") == more.get("verified_alone")
        if self.hosts is not None:
            count = self.hosts.crossed() - self.crossed
            more["cable_mb"], good = round(count / 1e6, 1), good and count >= LEAST
        self.row(scenario, tokens=right, good=good, errors=errors, differ=differ, **more)

    def row(self, scenario: str, **more: Any) -> None:
        """Note it, and say so."""
        names = {"pair": self.label, "backend": self.backend, "scenario": scenario}
        self.rows.append(names | more | ({"gpus": self.gpus} if self.gpus else {}) | {"build": build()})
        print(json.dumps(self.rows[-1]), flush=True)
        self.keep(self.rows[-1])
        self.crossed = self.hosts.crossed() if self.hosts else 0

    def close(self) -> None:
        """End both instances."""
        self.p.close()
        self.d.close()
        if self.hosts is not None:
            self.hosts.__exit__()
            self.hosts = None


def dtype_of(pair: str, place: Place) -> str:
    """Return in which type this pair computes."""
    return "bfloat16" if place.coarse and kind_of(pair) in model.HYBRIDS else "float32"


def environment_of(pair: str, place: Place) -> dict[str, str]:
    """Return what this pair's model needs there."""
    if kind_of(pair) == "eagle":
        return DRAFTED[place.device]
    if place.device != "cpu" or kind_of(pair) not in model.HYBRIDS:
        return {}
    return HYBRID | {"SGLANG_MAMBA_CONV_DTYPE": dtype_of(pair, place)}


def judge_of(pair: str, top: Path, place: Place) -> Whole | None:
    """Start one engine for the whole model of this pair, if it takes one to judge its answers."""
    kind, dtype = kind_of(pair), dtype_of(pair, place)
    if dtype == "float32" and kind != "eagle":
        return None
    folder = top / f"judge-{kind}-{time.time_ns()}"
    folder.mkdir(parents=True)
    start = Start(
        WHOLE, 1, JUDGES[kind], "", 0, str(top / kind), str(folder), device=place.device, dtype=dtype,
        environment=environment_of(pair, place), scale=place.scale, draft=model.draft_of(top / kind, kind),
        running=AT_ONCE,
    )  # fmt: skip
    return Whole(start, TOKENS, LEAD if dtype != "float32" else 0.0)


def spread(values: list[float]) -> list[float]:
    """Return median and longest."""
    return [round(each, 1) for each in (statistics.median(values), max(values))]


def first(answers: list[Answer]) -> list[float]:
    """Return median and longest of the milliseconds to a first token; empty: there was none."""
    return spread(times) if (times := [1e3 * answer.first_s for answer in answers if answer.first_s]) else []


def kind_of(pair: str) -> str:
    """Return the model that this pair serves."""
    return MODELS.get(pair.partition(" ")[0]) or ("qwen3" if "x" in pair else "llama")


def ranks_of(side: str) -> tuple[int, int, int]:
    """Return TP ranks, data-parallel ranks and pipeline stages of a side's words: "2", "1x2", "2 stages of 2"."""
    stages, _, ranks = side.rpartition(" stages")
    tp, _, dp = (ranks.removeprefix(" of ") or "1").partition("x")
    return int(tp), int(dp or 1), int(stages or 1)
