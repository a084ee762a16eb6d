"""Table gate: the mutants to be tried, their known reasons, and the kill table.

`spec/table-mutants.toml` names the tests that are asked last, and says of survivors why nobody has to notice them; a
reason is for every mutant whose name fits its pattern (`*` stands for anything), and belongs to one operator.
`left_out.toml` has the reasons of rows that are left out, by the names of the mutants one by one.  An effect that is
left out has none: a claim of what is said and done at once notices it (`kvproto.verify.claims`), or a test.
Effects that are exchanged need no reason if they leave what they say in different places (`commuting`).
`spec/table-kills.toml` remembers which world or test noticed a mutant, so that it is asked first the next time.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from kvproto.errors import ArgumentError
from kvproto.verify.check.configs import CONFIGS
from kvproto.verify.check.parallel_search import LOST, LostProcessError
from kvproto.verify.claims.protocol_digest import computed_digest
from kvproto.verify.mutate.commuting import why_apart
from kvproto.verify.mutate.forks import lines_of
from kvproto.verify.mutate.table_judges import Effort, judge, measure
from kvproto.verify.mutate.table_nursery import TableQuestions, TableTold, rear_tables
from kvproto.verify.mutate.table_operators import OPERATORS, TableMutant, mutants, sample
from kvproto.verify.mutate.trial import warm
from kvproto.verify.mutate.verdicts import AGREED, EQUAL, Verdict, kill_table, shard

TITLE, OWNER, EFFORT_S = "Mutants of the tables", "table", 5.0
FILE, KILLS = Path("spec/table-mutants.toml"), Path("spec/table-kills.toml")
#: why nobody has to notice that a row is left out: each mutant by its name, under its reason
LEFT_OUT_FILE = Path("kvproto/verify/mutate/left_out.toml")
#: the operator whose mutants have no reasons: that an effect comes later costs a timer
LEFT_OUT = "effect"
JUDGES = ("lint", "proof", "world", "timed", "test")
TableVerdict = Verdict[TableMutant]


class TableReasons(msgspec.Struct, frozen=True):
    """Those files' contents: `equivalent` by operator, then by pattern."""

    tests: list[str]
    equivalent: dict[str, dict[str, str]]
    kills: dict[str, str] = {}
    left_out: dict[str, str] = {}

    def reason(self, mutant: TableMutant) -> str:
        """Why nobody has to notice it; empty: nobody has said."""
        said = self.equivalent.get(mutant.operator, {})
        found = next((why for pattern, why in said.items() if mutant.fits(pattern)), "")
        if not found and mutant.operator == "swap" and mutant.row is not None:
            return why_apart(*mutant.row.do[mutant.variant : mutant.variant + 2])
        return found or self.left_out.get(mutant.name, "")


def load(root: Path) -> TableReasons:
    """Read the reasons. ArgumentError: not this project's tree, or a reason without a mutant."""
    try:
        found = msgspec.convert(tomllib.loads((root / FILE).read_text()), TableReasons)
    except FileNotFoundError as error:
        raise ArgumentError(f"no {FILE} here: this works in kvproto's own tree, {root} is none") from error
    for operator, said in found.equivalent.items():
        known = mutants(operators=[operator])
        for pattern in said:
            if not any(each.fits(pattern) for each in known):
                raise ArgumentError(f"{FILE} explains {pattern!r} ({operator}), and there is no such mutant (any more)")
    kills = tomllib.loads((root / KILLS).read_text()) if (root / KILLS).exists() else {}
    kills = {name: by for name, by in kills.items() if by in CONFIGS or "::" in by}  # a world may be no more
    left_out = {name: why for why, names in tomllib.loads((root / LEFT_OUT_FILE).read_text()).items() for name in names}
    rows = {each.name for each in mutants(operators=["row"])}
    for name in (*found.equivalent.get(LEFT_OUT, ()), *sorted(left_out.keys() - rows)):
        raise ArgumentError(f"{name!r} has a reason, and is no row: of an effect a claim or a test says when it is due")
    return msgspec.structs.replace(found, kills=kills, left_out=left_out)


def run(
    root: Path, known: TableReasons, asked: Sequence[TableMutant], effort_s: float, jobs: int,
    tell: Callable[[TableVerdict], None],
) -> list[TableVerdict]:  # fmt: skip
    """Try all mutants, the slowest first; mutants with a reason meet lint and proofs alone.

    A row that leads elsewhere is seldom missed by the proofs, so it comes late.  `effort_s`: of worlds, for one mutant.

    ArgumentError: a test fails with the tables as they are, and would be said to notice all mutants.
    """
    left = sorted(asked, key=lambda mutant: mutant.operator == "target")
    effort = Effort(effort_s, measure(jobs) if jobs > 1 and effort_s else ())
    ask = TableQuestions(partial(_try, known=known, effort=effort), partial(_wants_tests, known), known.kills)
    herds = [shard(left, part, jobs) for part in range(1, min(jobs, len(left)) + 1)]
    works = [partial(rear_tables, root=root, tests=known.tests, mutants=each, ask=ask) for each in herds]
    found = []
    warm()
    for _, line in lines_of(works, jobs):
        told = msgspec.json.decode(line, type=TableTold)
        if told.verdict is None:
            raise ArgumentError(f"{told.broken} with the tables as they are: mend it, or take it out of {FILE}")
        found.append(told.verdict)
        tell(told.verdict)
    if len(found) < len(left):
        raise LostProcessError(LOST)
    return sorted(found, key=lambda verdict: verdict.mutant)


def _try(mutant: TableMutant, *, known: TableReasons, effort: Effort) -> TableVerdict:
    if known.reason(mutant):
        effort = Effort(worlds_s=0.0, compares=False)
    try:
        return judge(mutant, effort, known.kills.get(mutant.name, ""))
    except Exception as error:  # noqa: BLE001  one mutant that breaks its judge ends no run of hours: it survives
        return Verdict(mutant, "", f"the judge: {type(error).__name__}: {error}"[:200], 0.0)


def _wants_tests(known: TableReasons, verdict: TableVerdict) -> bool:
    """Nobody has noticed it, and there is no reason that spares the tests."""
    return verdict.judge in ("", AGREED) and not known.reason(verdict.mutant)


def record(root: Path, known: TableReasons, found: Sequence[TableVerdict]) -> None:
    """Remember who noticed: the worlds and tests, of mutants that there still are."""
    mine = {each.mutant.name: _hint(each) for each in found if each.judge in ("world", "timed", "test")}
    mine = {name: by for name, by in mine.items() if by in CONFIGS or "::" in by}  # what has no name cannot be asked
    names = {each.name for each in mutants()}
    kept = {name: by for name, by in sorted((known.kills | mine).items()) if name in names}
    lines = [f"{msgspec.json.encode(name).decode()} = {msgspec.json.encode(by).decode()}" for name, by in kept.items()]
    head = "# Which world or test noticed a mutant of the tables.  Made by `kvproto mutate --tables --record`.\n\n"
    (root / KILLS).write_text(head + "\n".join(lines) + "\n")


def _hint(verdict: TableVerdict) -> str:
    return verdict.by if verdict.judge == "test" else verdict.by.partition(": ")[0]


def table(known: TableReasons, found: Sequence[TableVerdict]) -> str:
    """Return two tables in Markdown, by operator and by table: counts by judge, explained, open."""
    return kill_table(known, found, (*JUDGES, EQUAL, AGREED), {"operator": OPERATORS, "table": ()})


def digest(_root: Path, _mutants: Sequence[TableMutant]) -> Callable[[TableMutant], str]:
    """Return the digest of a mutant's table: of a table that has changed since no verdict counts."""
    parts = dict(part.split(":") for part in computed_digest().split())
    return lambda mutant: parts.get(mutant.table) or parts["routes"]


def every(
    _root: Path, _known: TableReasons, tables: Sequence[str] = (), operators: Sequence[str] = ()
) -> list[TableMutant]:  # fmt: skip
    """Return the mutants of these tables (all) by these operators (all).  ArgumentError: no such name."""
    return mutants(tables, operators)


__all__ = [
    "EFFORT_S", "FILE", "OWNER", "TITLE", "TableReasons", "digest", "every", "load", "record", "run", "sample", "table",
]  # fmt: skip
