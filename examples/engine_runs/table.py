"""Table: the rows of the runs in the real engines, kvproto's with the engine's own connector beside them.

    python -m examples.engine_runs.table    # make engines-table; writes docs/engines.md between its marks

Read from what `examples.vllm.run` and `examples.sglang.run` keep of each row.  A row of the table is a scenario of one
pair: what kvproto did with digests, and the times without them and of the engine's own connector (vLLM's NixlConnector,
SGLang's staging), which had the same prompts; a further table has what the engine's own does (`own_rows`).  SGLang's
digests and whether its caches can be emptied are found out once a run, and stand in each of its rows. What clients were
answered over HTTP (`guide`) and what is refused at start (`refusals`) stand on the same page.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.engine_runs import gpu_rows, own_rows, refusals, upgrade_row
from examples.engine_runs.cell import OURS, OWN, PLAIN, Cell, of_sglang, of_vllm

TOP = Path(__file__).parents[2]
RESULTS, PAGE = TOP / "examples" / "results", TOP / "docs" / "engines.md"
BEGIN, END = "<!-- runs -->", "<!-- end of runs -->"
ENGINES = "vLLM", "SGLang"
#: by engine: the scenario of which the time of one hand-over is told, and of many
ONE, MANY = {"vLLM": "in turn", "SGLang": "seq"}, {"vLLM": "32 at once", "SGLang": "many"}
#: files whose rows note the seconds of a part of their scenarios alone
UNTIMED = "sglang", "sglang_gpu"
#: by head of a column: the file of rows over HTTP
OVER_HTTP = {"vLLM": "vllm", "SGLang": "sglang", "vLLM, two data-parallel ranks at prefill": "vllm_ranks"}
SUMMARY = (
    "engine", "prefill → decode", "rows as they must be", "answers of the whole model", "digests compared, differ",
    "blocks of both caches compared, differ", "all blocks back",
    "one after another, ms: with digests, without, its own",
    "many at once, ms: without digests, its own", "posts a prompt, of descriptors: kvproto, its own",
)  # fmt: skip
EACH = (
    "engine", "prefill → decode", "scenario", "answers of the whole model", "digests compared, differ",
    "blocks compared, differ", "blocks back", "ms with digests", "ms without", "ms by its own",
    "as it must be: kvproto", "its own", "seen of kvproto", "of its own", "build of kvproto",
)  # fmt: skip


def read(results: Path = RESULTS) -> list[Cell]:
    """All cells, as they were run."""
    vllm, sglang = (json.loads((results / f"{name}.json").read_text()) for name in ("vllm", "sglang"))
    return [*of_vllm(vllm), *of_sglang(sglang)]


def rows_of(cells: list[Cell]) -> list[tuple[Cell, Cell | None, Cell | None]]:
    """Return each of kvproto's, the same without digests, and the engine's own connector's."""
    at = {(cell.engine, cell.pair, cell.carrier, cell.scenario): cell for cell in cells}

    def like(cell: Cell, carrier: str) -> Cell | None:
        return at.get((cell.engine, cell.pair, carrier, cell.scenario))

    return [(cell, like(cell, PLAIN), like(cell, OWN)) for cell in cells if cell.carrier == OURS]


def _ms(*cells: Cell | None) -> str:
    lags = [cell.lag if cell else None for cell in cells]
    return ", ".join("-" if lag is None else f"{lag:.0f}" for lag in lags)


def _pair(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]:,}, {numbers[1]}" if numbers[0] else "-"


def _posts(ours: Cell, plain: Cell | None, own: Cell | None) -> str:
    mine = next((cell for cell in (plain, ours) if cell is not None and cell.posts[0]), None)
    return ", ".join(_posted(cell) for cell in (mine, own))


def _posted(cell: Cell | None) -> str:
    if cell is None or cell.posts[0] is None:
        return "-"
    return f"{cell.posts[0]:.1f}" + (f" of {cell.posts[1]:.1f}" if cell.posts[1] else "")


def _judged(cell: Cell | None) -> str:
    return "-" if cell is None else "yes" if cell.good else f"**no**: {cell.why}"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def summary(cells: list[Cell]) -> str:
    """A row for each pair."""
    made, rows = rows_of(cells), list[tuple[str, ...]]()
    for engine, pair in dict.fromkeys((ours.engine, ours.pair) for ours, _, _ in made):
        mine = [row for row in made if (row[0].engine, row[0].pair) == (engine, pair)]
        ours = [row[0] for row in mine]
        by = {row[0].scenario: row for row in mine}
        one, many = by.get(ONE[engine], (None,) * 3), by.get(MANY[engine], (None,) * 3)
        asked = [cell for cell in ours if cell.answers[1] and "control" not in cell.scenario]
        totals = [
            (sum(getattr(cell, name)[0] for cell in ours), sum(getattr(cell, name)[1] for cell in ours))
            for name in ("digests", "blocks")
        ]  # fmt: skip
        if engine == "SGLang":
            totals[0] = ours[0].digests
        rows.append((
            engine, pair, f"{sum(cell.good for cell in ours)} of {len(ours)}",
            f"{sum(cell.answers[0] for cell in asked)} of {sum(cell.answers[1] for cell in asked)}",
            *map(_pair, totals), "yes" if all(cell.back for cell in ours) else "**no**", _ms(*one), _ms(*many[1:]),
            _posts(*one) if one[0] else "-",
        ))  # fmt: skip
    return _table(SUMMARY, rows)


def each(cells: list[Cell]) -> str:
    """A row for each scenario."""
    rows = [
        (
            ours.engine, ours.pair, ours.scenario,
            f"{ours.answers[0]} of {ours.answers[1]}" if ours.answers[1] else "-", _pair(ours.digests),
            _pair(ours.blocks), "yes" if ours.back else "**no**", _ms(ours), _ms(plain), _ms(own), _judged(ours),
            _judged(own), ours.note, own.note if own else "", ours.build or "an earlier one",
        )
        for ours, plain, own in rows_of(cells)
    ]  # fmt: skip
    return _table(EACH, rows)


def over_http(results: Path = RESULTS) -> str:
    """The rows of `examples.engine_runs.guide`; empty: there are none."""
    files = {engine: results / f"{file}_http.json" for engine, file in OVER_HTTP.items()}
    made = {engine: json.loads(file.read_text()) for engine, file in files.items() if file.exists()}
    if not made:
        return ""
    by = {engine: {row["name"]: row for row in rows} for engine, rows in made.items()}
    names = dict.fromkeys(name for rows in by.values() for name in rows)
    rows = [(name, *(_answered(found.get(name)) for found in by.values())) for name in names]
    return f"\n\n## Over HTTP, by the guides' own commands\n\n{_table(('request', *by), rows)}"


def _answered(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    told = row["note"].replace("|", "/")
    return f"yes ({told})" if row["good"] and told else "yes" if row["good"] else f"**no**: {told[:90]}"


def upgraded(results: Path = RESULTS) -> str:
    """The rows of `examples.engine_runs.upgrade`; empty: there are none."""
    files = {engine: results / f"{engine.lower()}_upgrade.json" for engine in ENGINES}
    rows = [
        (engine, *cells)
        for engine, file in files.items()
        if file.exists()
        for cells in upgrade_row.cells(file.read_bytes())
    ]
    return f"\n\n## A fleet that is upgraded under load\n\n{_table(upgrade_row.HEAD, rows)}" if rows else ""


def on_gpus(results: Path = RESULTS) -> str:
    """The rows of `examples.sglang.on_gpus`; empty: there are none."""
    file = results / "sglang_gpu.json"
    if not file.exists():
        return ""
    return f"\n\n## SGLang on GPUs\n\n{_table(gpu_rows.HEAD, gpu_rows.cells(json.loads(file.read_text())))}"


def took(results: Path = RESULTS) -> str:
    """Return the minutes that rows have taken, by the file that keeps them."""
    files = sorted(file for name in ENGINES for file in results.glob(f"{name.lower()}*.json"))
    sums = {file.stem: sum(row.get("seconds", 0.0) for row in json.loads(file.read_text())) / 60 for file in files}
    said = ", ".join(f"{minutes:.0f} of `{name}`" for name, minutes in sums.items() if name not in UNTIMED)
    return f"Minutes that these rows took, without the starts of pairs: {said}; SGLang's pairs note none."


def told(cells: list[Cell]) -> str:
    """Return the text between the marks."""
    builds = Counter(cell.build or "an earlier one" for cell in cells)
    said = ", ".join(f"{count} of {name}" for name, count in builds.most_common())
    ran = f"Rows by the build of kvproto that ran: {said}. {took()}"
    owns = f"## The engines' own connectors\n\n{_table(own_rows.HEAD, own_rows.cells(cells))}"
    rest = f"## Every row\n\n{each(cells)}{on_gpus()}{over_http()}{upgraded()}"
    return f"{summary(cells)}\n\n{ran}\n\n{owns}\n\n{rest}"


def placed(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with this text between its marks; ValueError: it has none."""
    head, rest = page.split(begin)
    return f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def main() -> None:
    """Write the page."""
    refused = placed(PAGE.read_text(), refusals.told(), refusals.BEGIN, refusals.END)
    PAGE.write_text(placed(refused, told(read())))


if __name__ == "__main__":
    main()
