"""Upgrade engines: the fleets that are upgraded, each with its load, and the ways in which it can be.

vLLM is asked with tokens, SGLang's router takes text alone: its prompts and answers are spelt by a tokenizer that has a
word for each token.  Either engine's answers are compared with those of the whole model in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from examples.engine_runs import tokenizer
from examples.engine_runs.fleet import Fleet
from examples.engine_runs.load import Spelling
from examples.vllm.reference import Reference

KILLED, SCALED = "killed", "scaled"


class Asked(NamedTuple):
    """Prompts of a load, the whole model's answers of so many tokens, and how both are spelt."""

    prompts: list[list[int]]
    want: list[Reference]
    tokens: int
    spelling: Spelling | None = None


class Engine(NamedTuple):
    """An engine: its fleet, its load, for which a model is written to a folder, and its ways."""

    fleet: type[Fleet]
    asked: Callable[[Path], Asked]
    ways: tuple[str, ...]
    #: seconds that an instance is told to give its own requests when it ends; 0: it cannot be told
    shutdown_s: int = 30
    #: whether instances of the older build say goodbye when they end
    goodbye: bool = True

    def back(self, way: str) -> bool:
        """Whether a run of this way begins with the newer build: its decode instances have to be of that one."""
        return way == KILLED and not self.goodbye


def vllm() -> Engine:
    """Return vLLM, with kvproto's router."""
    from examples.engine_runs.fleet_vllm import FleetVllm
    from examples.vllm import model

    def asked(folder: Path) -> Asked:
        model.make(folder)
        tokenizer.save(folder, model.VOCABULARY)
        return Asked(model.prompts(), model.answers(folder, model.prompts()), model.ANSWER)

    return Engine(FleetVllm, asked, ("drained", "cut off", "shut down", KILLED, SCALED))


def sglang() -> Engine:
    """Return SGLang, with its own router."""
    from examples.engine_runs.clients import whole_model
    from examples.engine_runs.fleet_sglang import FleetSglang
    from examples.sglang import model
    from examples.vllm.model import ANSWER, prompts

    def asked(folder: Path) -> Asked:
        model.make(folder)
        tokenizer.save(folder, model.VOCABULARY)
        spelt, whole = whole_model(folder)

        def tokens(text: str) -> list[int]:
            found: list[int] = spelt(text, add_special_tokens=False)["input_ids"]
            return found

        want = [Reference(tokens(text)) for text in whole(prompts(), ANSWER)]
        return Asked(prompts(), want, ANSWER, Spelling(spelt.decode, tokens))

    # killed while decode instances are of the newer build: earlier ones do not see that a prefill instance is gone
    return Engine(FleetSglang, asked, ("drained", KILLED, "shut down", SCALED), shutdown_s=0, goodbye=False)


ENGINES = {"vllm": vllm, "sglang": sglang}
