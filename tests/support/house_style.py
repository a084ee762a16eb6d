"""House style: the rules of English and names that a program can check.  `make lint` runs this file.

Three rules are checked, in every folder of `FOLDERS`:

* The first line of a docstring says who does what: at most `LINE` characters, and none of `NOT_FIRST` as first word.
  A line that begins with such a word has no subject of its own, so a reader meets the verb before its actor.
* A file's name is the name of its one public class, and the first words of its essay.
* A commit's subject is an imperative of at most `SUBJECT` characters.

Older files break the first two rules, and a commit that is shared keeps its subject.  `style_debts.toml` has the number
of breaches by folder.  A number may only fall: more breaches than it allows are an error.  The option `--write` lowers
the numbers to the breaches that are left, and never raises one.  Raising one by hand is a decision for a review.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DEBTS = Path(__file__).with_name("style_debts.toml")
FOLDERS = ("kvproto", "tests", "examples", "docs")
LINE, SUBJECT = 100, 72
NOT_FIRST = ("what", "whose", "who", "whoever", "of", "that", "from", "which", "where")
ARTICLES = ("a", "an", "the")
#: first words that no imperative begins with, beside participles
NO_VERB = (*ARTICLES, "it", "this", "that", "these", "some", "all", "more", "no", "now", "when", "where", "what", "who")
#: verbs that end like a participle
VERBS = ("embed", "exceed", "feed", "need", "seed", "shed", "speed", "proceed", "bring", "ping", "string", "ring")
Debts = dict[str, dict[str, int]]


def first_line_breach(docstring: str) -> str | None:
    """Say how the first line of a docstring breaks rule 1; None for a line that keeps it."""
    first = docstring.strip().splitlines()[0] if docstring.strip() else ""
    word = re.match(r"[A-Za-z]+", first)
    if word is not None and word[0].lower() in NOT_FIRST:
        return f"begins with {word[0]!r}: name the actor, then the verb"
    if len(first) > LINE:
        return f"has {len(first)} characters in its first line, {LINE} at most"
    return None


def docstring_breaches(source: str) -> Iterator[tuple[int, str]]:
    """Yield line number and breach of every docstring of a file that breaks rule 1."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        breach = first_line_breach(ast.get_docstring(node) or "")
        if breach is not None:
            yield node.body[0].lineno, breach


def normal(word: str) -> str:
    """Return a word in lower case and in the singular, so that `links.py` may hold `Link`."""
    word = word.lower()
    return word.removesuffix("es") if word.endswith(("ches", "shes", "sses", "xes")) else word.removesuffix("s")


def begins_with(essay: str, stem: str) -> bool:
    """Whether an essay begins with the words of a file's name, as words or as the name of a class."""
    words = re.findall(r"[A-Za-z0-9]+", essay.partition("\n")[0])
    while words and words[0].lower() in ARTICLES:
        del words[0]
    named = [normal(word) for word in stem.removesuffix("_command").split("_")]
    if words and stem.endswith("_command") and words[0] == "kvproto":
        del words[0]  # a command's essay begins with its call: `kvproto draw ...`
    found = [normal(word) for word in words[: len(named)]]
    return found == named or found[:1] == [normal(stem.replace("_", ""))]


def name_breaches(stem: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield line number and breach for each half of rule 7 that a file breaks; skip packages."""
    if stem in {"__init__", "__main__", "conftest", "conf"} or stem.startswith("test_"):
        return
    tree = ast.parse(source)
    if not begins_with(ast.get_docstring(tree) or "", stem):
        yield 1, f"the essay does not begin with {stem.replace('_', ' ')!r}, the file's name"
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
    main = [node for node in classes if not node.name.endswith("Error")]
    if len(main) == 1 and normal(main[0].name) != normal(stem.replace("_", "")):
        yield main[0].lineno, f"the one public class is {main[0].name}, the file is {stem}.py"


def subject_breach(subject: str) -> str | None:
    """Say how a commit's subject breaks rule 10; None for one that keeps it."""
    first = subject.partition(" ")[0].lower()
    if len(subject) > SUBJECT:
        return f"has {len(subject)} characters, {SUBJECT} at most"
    if not subject[:1].isupper():
        return "does not begin with a capital letter"
    if first in NO_VERB or (first.endswith(("ed", "ing")) and first not in VERBS):
        return f"is no imperative: begins with {first!r}"
    return None


def breaches(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield kind, folder and message of every breach: of rules 1 and 7 by file, of rule 10 in the history."""
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        inside, source = path.relative_to(root), path.read_text()
        for kind, found in (
            ("docstrings", docstring_breaches(source)), ("files", name_breaches(path.stem, source)),
        ):  # fmt: skip
            for line, breach in found:
                yield kind, str(inside.parent), f"{inside}:{line}: {breach}"
    for subject in subjects(root):
        wrong = subject_breach(subject)
        if wrong is not None:
            yield "commits", "history", f"commit {subject!r} {wrong}"


def subjects(root: Path) -> list[str]:
    """Return the subjects of the commits after the one that added this file; none without history."""
    file = Path(__file__).relative_to(ROOT)
    log = ["git", "-C", str(root), "log", "--no-merges", "--format=%H %s"]
    try:
        added = subprocess.run([*log, "--diff-filter=A", "--", str(file)], capture_output=True, text=True, check=True)
        if not added.stdout.strip():
            return []
        since = added.stdout.split()[0]
        later = subprocess.run([*log, f"{since}..HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []  # an archive of sources has no history to look at
    return [line.partition(" ")[2] for line in later.stdout.splitlines()]


def excess(debts: Debts, found: list[tuple[str, str, str]]) -> list[str]:
    """Return the breaches of each kind and folder with more of them than its debt, and the debt."""
    counts = Counter((kind, folder) for kind, folder, _ in found)
    lines = []
    for (kind, folder), count in sorted(counts.items()):
        allowed = debts.get(kind, {}).get(folder, 0)
        if count > allowed:
            lines += [each for breached, where, each in found if (breached, where) == (kind, folder)]
            lines.append(f"{folder}: {count} breaches by {kind}, {allowed} allowed ({DEBTS.name})")
    return lines


def lowered(debts: Debts, found: list[tuple[str, str, str]]) -> str:
    """Return the text of the debts' file, with each number lowered to the breaches that are left."""
    counts = Counter((kind, folder) for kind, folder, _ in found)
    lines = ["# Breaches of the house style that older files still have (house_style.py).  A number may only fall."]
    for kind, folders in debts.items():
        left = {folder: min(number, counts[kind, folder]) for folder, number in folders.items()}
        lines += ["", f"[{kind}]", *(f'"{folder}" = {number}' for folder, number in sorted(left.items()) if number)]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Print the breaches beyond the debts; `--all` prints every breach, `--write` lowers the debts."""
    debts, found = tomllib.loads(DEBTS.read_text()), list(breaches(ROOT))
    if arguments == ["--write"]:
        DEBTS.write_text(lowered(debts, found))
        return 0
    lines = [each for _, _, each in found] if arguments == ["--all"] else excess(debts, found)
    print("\n".join(lines) or "house style: no new breach")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
