"""`python -m examples.others.report [--json] [--write]`: every known fault, looked for; and its mend.

Exit code 1: a known fault is not found, or a mended world still has one.  `--write` writes examples/results/others.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from examples.others.known import SYSTEMS, System, rows_of_mend, search

RESULTS = Path(__file__).parent.parent / "results" / "others.md"
#: states at which a search with mends is given up
BOUND = 300_000
INTRO = """\
# Other systems' protocols, searched

Written by `python -m examples.others.report --write`, in one run. A world says who is there, what applications may do
and how often the network may err, and which properties are asked for; properties are stated once for each system
([SGLang's](../others/sglang_staging/staging.py), [vLLM's](../others/vllm_push/worlds.py)). The search is breadth first,
so a story is as short as any. *With its mend*: the same world with the rows of that mend alone. *With every mend*: the
same world, all mends, all properties. Seconds are of CPU, on a machine that does other things, too.
"""


class Case(msgspec.Struct):
    """What came of one known fault."""

    system: str
    case: str
    about: str
    found: bool
    broken: str
    steps: int
    states: int
    seconds: float
    story: str
    rows_away: list[str]
    rows_instead: list[str]
    mended: str
    mended_states: int
    mended_seconds: float
    whole: str
    whole_states: int
    whole_seconds: float
    not_asked: str

    @property
    def ok(self) -> bool:
        """Found, and gone with its mend, and nothing else left with all of them."""
        return self.found and "violation" not in (self.mended, self.whole)


def look(system: System, case: str, bound: int = BOUND) -> Case:
    """Look for one fault."""
    found = search(system, case)
    tale = found.violations[0] if found.violations else None
    mended = search(system, case, system.mends[case], bound)
    whole = search(system, case, system.every, bound, whole=True)
    away, instead = rows_of_mend(system, case)
    left, why = system.beyond.get(case, ((), ""))
    return Case(
        system.name, case, system.cases[case], tale is not None, tale.property if tale else "",
        len(tale.events) if tale else 0, found.states, round(found.cpu_seconds, 2), tale.story() if tale else "",
        [f"{row}" for row in away], [f"{row}" for row in instead], mended.ended, mended.states,
        round(mended.cpu_seconds, 2), whole.ended, whole.states, round(whole.cpu_seconds, 2),
        f"{', '.join(left)}: {why}" if left else "",
    )  # fmt: skip


def end(word: str, states: int, seconds: float) -> str:
    """`to its end: 161 states, 0.0 s`."""
    said = {"exhausted": "to its end", "limit": "nothing, up to the bound", "violation": "**broken**"}.get(word, word)
    return f"{said}: {states:,} states, {seconds:.1f} s"


def table(cases: list[Case]) -> str:
    """The table of one system."""
    lines = [
        "| | what goes wrong | broken | steps | states | s | with its mend | with every mend |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in cases:
        mended = end(each.mended, each.mended_states, each.mended_seconds)
        whole = end(each.whole, each.whole_states, each.whole_seconds) + (" (1)" if each.not_asked else "")
        broken = each.broken if each.found else "**not found**"
        counts = f"{each.steps} | {each.states:,} | {each.seconds:.2f}"
        lines.append(f"| {each.case} | {each.about} | {broken} | {counts} | {mended} | {whole} |")
    lines += [f"\n(1) {each.case} is not asked for {each.not_asked}." for each in cases if each.not_asked]
    return "\n".join(lines)


def stories(cases: list[Case]) -> str:
    """Each story, and the rows that mend it."""
    parts = []
    for each in cases:
        rows = "\n".join([*(f"- {row}" for row in each.rows_away), *(f"+ {row}" for row in each.rows_instead)])
        parts.append(f"### {each.case}: {each.about}\n\n```\n{each.story}\n```\n\n```diff\n{rows}\n```\n")
    return "\n".join(parts)


def page(cases: list[Case]) -> str:
    """The whole page."""
    parts = [INTRO]
    for system in SYSTEMS:
        mine = [each for each in cases if each.system == system.name]
        found = sum(each.found for each in mine)
        parts += [f"## {system.name}: {found} of {len(mine)} found\n", table(mine) + "\n"]
    for system in SYSTEMS:
        parts += [f"## The stories: {system.name}\n", stories([each for each in cases if each.system == system.name])]
    return "\n".join(parts)


def main(arguments: list[str] | None = None) -> int:
    """Look for all of them."""
    parser = argparse.ArgumentParser(prog="python -m examples.others.report", description=__doc__)
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    parser.add_argument("--write", action="store_true", help="write examples/results/others.md")
    parser.add_argument("--bound", type=int, default=BOUND, help="states at which a search with mends is given up")
    parser.add_argument("case", nargs="*", help="only these (R1, C1 ...)")
    asked = parser.parse_args(arguments)
    unknown = {*asked.case} - {case for system in SYSTEMS for case in system.cases}
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}")
    cases = [
        look(system, case, asked.bound)
        for system in SYSTEMS
        for case in system.cases
        if case in (asked.case or system.cases)
    ]
    if asked.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(cases)).decode() + "\n")
    else:
        for system in SYSTEMS:
            mine = [each for each in cases if each.system == system.name]
            if mine:
                sys.stdout.write(
                    f"{system.name}: {sum(each.found for each in mine)} of {len(mine)} found\n\n{table(mine)}\n\n"
                )
    if asked.write:
        RESULTS.write_text(page(cases))
    return 0 if all(each.ok for each in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
