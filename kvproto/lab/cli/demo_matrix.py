"""Demo matrix: tells one run, or many of a kind, a line each, of which one that fails ends no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kvproto.cli.ending import FOUND, WELL
from kvproto.lab.process_group import RankError


def tell(result: Any, show: Callable[[Any], None], as_json: Callable[[Any], dict[str, Any]], *, as_text: bool) -> int:
    if as_text:
        show(result)
    else:
        print(json.dumps(as_json(result)))
    return WELL if result.ok else FOUND


def run_each(
    runs: Mapping[str, Callable[[], Any]], row: Callable[[str, Any], str], as_json: Callable[[Any], dict[str, Any]],
    what: str, *, as_text: bool,
) -> int:  # fmt: skip
    """Carry out the runs, and return the exit code.

    `row` and `as_json` tell a result, and `what` names the runs in the end.

    Of a process that fails or falls silent the sentence is the result, which `row` is given, too.
    """
    bad = 0
    for name, run in runs.items():
        result = _safely(run)
        bad += isinstance(result, str) or not result.ok
        if as_text:
            print(row(name, result), flush=True)
        else:
            told = {"ok": False, "wrong": [result]} if isinstance(result, str) else as_json(result)
            print(json.dumps({"case": name, **told}), flush=True)
    if as_text:
        print(f"{len(runs) - bad} of {len(runs)} {what} right")
    return FOUND if bad else WELL


def _safely(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except (RankError, TimeoutError) as error:
        return str(error)
