"""Refusals: what of vLLM and SGLang kvproto refuses at start, as a table of the rules' own words."""

from __future__ import annotations

from collections import defaultdict

from kvproto.adapters.rules import Lack, Rules
from kvproto.adapters.sglang.rules import RULES as SGLANG
from kvproto.adapters.vllm.rules import RULES as VLLM

BEGIN, END = "<!-- refusals -->", "<!-- end of refusals -->"
ENGINES: dict[str, Rules] = {"vLLM": VLLM, "SGLang": SGLANG}
HEAD = "| engine | kvproto does not carry | (field, unless it is) | remedy |\n| --- | --- | --- | --- |"


def told() -> str:
    """What stands between the marks: a row for each engine and thing that it may have and kvproto lacks."""
    fields: dict[tuple[str, Lack], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for engine, rules in ENGINES.items():
        for name, rule in rules.items():
            if rule.lack:
                fields[engine, rule.lack][" or ".join(map(repr, rule.off))].append(f"`{name}`")
    rows = []
    for (engine, lack), by in fields.items():
        unless = "; ".join(f"{', '.join(names)}: {off}" for off, names in by.items())
        rows.append(f"| {engine} | {lack.what} | {unless} | {lack.remedy} |")
    return "\n".join([HEAD, *rows])
