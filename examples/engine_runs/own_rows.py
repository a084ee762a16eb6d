"""OwnRows: an engine's own connector beside kvproto: answers, aborted requests, killed instances.

Times and posts of both stand in the summary of all pairs.  A pair that an engine's own does not carry has its refusal
here, or its wrong answers: that is its row.
"""

from __future__ import annotations

from examples.engine_runs.cell import OURS, OWN, Cell

HEAD = (
    "engine", "prefill → decode", "its own", "answers of the whole model: its own", "kvproto's",
    "requests aborted: its own", "requests aborted: kvproto", "killed, and replaced: its own",
    "killed, and replaced: kvproto", "all blocks back: its own", "kvproto's",
)  # fmt: skip
#: by engine: scenarios in which all requests are to be answered, some are aborted, and an instance is killed
ANSWERED = {
    "vLLM": ("sequential", "in turn", "32 at once", "drafts accepted", "two prefills"), "SGLang": ("seq", "many"),
}  # fmt: skip
ABORTED = {"vLLM": ("decode leaves between",), "SGLang": ("alone", "refused", "middle")}
KILLED = {"vLLM": ("killed between", "killed", "decode killed", "one of two killed"), "SGLang": ("killed",)}
#: characters of a reason
SAID = 160


def cells(made: list[Cell]) -> list[tuple[str, ...]]:
    """Return the table's rows, one for each pair that the engine's own was given."""
    of: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for cell in made:
        of.setdefault((cell.engine, cell.pair, cell.carrier), {})[cell.scenario] = cell
    rows = list[tuple[str, ...]]()
    for (engine, pair, carrier), own in of.items():
        if carrier == OWN:
            both = own, of.get((engine, pair, OURS), {})
            # of kvproto's scenarios those that its own was given
            asked, *ended = (
                [[by[name] for name in names[engine] if name in own and name in by] for by in both]
                for names in (ANSWERED, ABORTED, KILLED)
            )
            told = *map(_answers, asked), *(_ends(cells) for each in ended for cells in each)
            rows.append((engine, pair, next(iter(own.values())).by, *told, *map(_back, both)))
    return rows


def _answers(asked: list[Cell]) -> str:
    right, count = (sum(cell.answers[at] for cell in asked) for at in range(2))
    wrong = dict.fromkeys(_why(cell) for cell in asked if not cell.good)
    return "; ".join([*([f"{right} of {count}"] if count else []), *wrong]) or "-"


def _ends(cells: list[Cell]) -> str:
    return "; ".join(f"{cell.scenario}: {_outcome(cell)}" for cell in cells) or "-"


def _outcome(cell: Cell) -> str:
    right, asked = cell.answers
    said = [f"{right} of {asked}"] if asked else ["yes"] if cell.good else []
    return ", ".join([*said, *filter(None, [cell.note if cell.good else _why(cell)])])


def _why(cell: Cell) -> str:
    return f"**no**: {cell.why if len(cell.why) <= SAID else f'{cell.why[:SAID]}...'}"


def _back(by: dict[str, Cell]) -> str:
    told = {cell.back for cell in by.values()}
    return "**no**" if False in told else "yes" if told == {True} else "-"
