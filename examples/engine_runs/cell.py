"""Cell: a scenario of a pair in a real engine, by one carrier, as either engine's run has noted it.

Both runs keep rows of JSON with names of their own: `examples.vllm.run` each scenario with its digests and posts,
`examples.sglang.run` digests, posts and whether caches can be emptied once a run, in rows of their own.  A cell has the
same of both, so `table` need not know which engine it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from examples.engine_runs.seen import seen

OURS, PLAIN, OWN = "kvproto", "plain", "own"
#: carriers of the engines' own, by their names; SGLang stages dense models alone
OWNS = {"nixl": "NixlConnector", "staging": "staging over Mooncake", "mooncake": "Mooncake"}
#: names of what is posted, and of the descriptors in it
POSTS = ("staged", "writes", "pages", "direct", "mapped", "posts"), ("pieces", "descriptors")
#: SGLang's rows that are about a whole run, and stand in the others
WHOLE = ("idle", "counts", "digests")


@dataclass(frozen=True)
class Cell:
    """A scenario of a pair, by one carrier; `lag`: median milliseconds of the hand-over; `digests`, `blocks`:
    (compared, differ); `why`: what is wrong with it; `note`: what else was seen; `posts`: for each prompt, and their
    descriptors, where they were counted (SGLang's are those of a whole run); `by`: the name of an engine's own;
    `back`: whether all blocks can be given back (None: it was not tried)."""

    engine: str
    pair: str
    carrier: str
    scenario: str
    answers: tuple[int, int]
    digests: tuple[int, int]
    blocks: tuple[int, int]
    back: bool | None
    lag: float | None
    good: bool
    why: str
    note: str
    build: str
    posts: tuple[float | None, float | None] = (None, None)
    by: str = ""


def of_vllm(rows: list[dict[str, Any]]) -> list[Cell]:
    """The rows of `examples.vllm.run`."""
    return [
        Cell(
            "vLLM", row["pair"].replace("-", " → ").replace("+", " and "),
            _carrier(row["carrier"]), row["scenario"],
            (row["equal"] + row.get("ties", 0), row["asked"]),
            tuple(row["digests"]), tuple(row["sums"]), row["back"], row["lags"][0] if row["lags"] else None,
            not row["wrong"], "; ".join(row["wrong"]), "; ".join(filter(None, (_tied(row), row["note"]))),
            row.get("build", ""), _rate(row.get("posts", {}), row["asked"]), OWNS.get(row["carrier"], ""),
        )
        for row in rows
    ]  # fmt: skip


def _carrier(name: str) -> str:
    return OWN if name in OWNS else name


def _rate(posts: dict[str, int], prompts: int) -> tuple[float | None, float | None]:
    """Posts for each prompt, and descriptors: either engine's rows and both carriers' count them by their own names."""
    made, pieces = (sum(posts.get(name, 0) for name in names) for names in POSTS)
    return (made / prompts if made and prompts else None, pieces / prompts if pieces and prompts else None)


def _tied(row: dict[str, Any]) -> str:
    return f"{row['ties']} leave it at a tie" if row.get("ties") else ""


def of_sglang(rows: list[dict[str, Any]]) -> list[Cell]:
    """The rows of `examples.sglang.run`."""
    whole = {(row["pair"], row["backend"], row["scenario"]): row for row in rows}
    return [
        Cell(
            "SGLang", row["pair"].replace(":", " → ", 1), _carrier(row["backend"]),
            row["scenario"], _answers(row.get("tokens", "0/0")), _digests(whole.get(_of(row, "digests"), {})), (0, 0),
            whole.get(_of(row, "idle"), {}).get("good"), row.get("lag_ms", [None])[0], row["good"],
            "" if row["good"] else _why(row), seen(row), row.get("build", ""), _counted(whole.get(_of(row, "counts"))),
            OWNS.get(row["backend"], ""),
        )
        for row in rows
        if row["scenario"] not in WHOLE
    ]  # fmt: skip


def _counted(row: dict[str, Any] | None) -> tuple[float | None, float | None]:
    return _rate(row["counts"], row["rooms_seen"]) if row else (None, None)


def _of(row: dict[str, Any], scenario: str) -> tuple[str, str, str]:
    return row["pair"], row["backend"], scenario


def _answers(text: str) -> tuple[int, int]:
    right, asked = text.split("/")
    return int(right), int(asked)


def _digests(row: dict[str, Any]) -> tuple[int, int]:
    return row.get("compared", 0), row.get("differ", 0)


def _why(row: dict[str, Any]) -> str:
    return row.get("other_said") or "; ".join(row.get("errors", [])) or "other tokens than the whole model's"
