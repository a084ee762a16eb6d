"""Planting: a mutant's code in the place of the code that its functions have.

Python keeps what a function does apart from the function: whatever object has the function goes on with other code.  A
function is found again by its name and its first line, which no change moves.

Of a kernel Triton's interpreter reads the text when it first runs: the changed text is put where Python looks for it.
"""

from __future__ import annotations

import ast
import gc
import linecache
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType

from kvproto.verify.mutate.operators import CodeMutant, kernel_of, mutated

#: a function by name and first line
Place = tuple[str, int]


def functions_of(file: Path) -> Iterator[FunctionType]:
    name = os.fspath(file)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == name:
            yield each


def plant(file: Path, known: Sequence[FunctionType], mutant: CodeMutant) -> set[Place]:
    """Give the known functions the mutant's code; return the changed ones (none: it cannot be done)."""
    tree = mutated(mutant, file.read_text())
    if (kernel := kernel_of(tree, mutant)) is not None:
        return _plant_kernel(file, kernel)
    code = compile(tree, os.fspath(file), "exec", dont_inherit=True)
    made = {place_of(each): each for each in _codes(code)}
    changed = [each for each in known if made.get(place_of(each.__code__), each.__code__) != each.__code__]
    try:
        for each in changed:
            each.__code__ = made[place_of(each.__code__)]
    except ValueError:  # other free variables
        return set()
    return {place_of(each.__code__) for each in changed}


def _plant_kernel(file: Path, kernel: ast.FunctionDef) -> set[Place]:
    """No function of the file begins at another line than before: there Python looks for its text."""
    lines = file.read_text().splitlines(keepends=True)
    long = slice(kernel.lineno - 1, kernel.end_lineno)
    changed = [f"{line}\n" for line in ast.unparse(kernel).splitlines()]
    lines[long] = changed + ["\n"] * (len(lines[long]) - len(changed))
    linecache.cache[os.fspath(file)] = len("".join(lines)), None, lines, os.fspath(file)
    return {(kernel.name, kernel.lineno)}


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def place_of(code: CodeType) -> Place:
    return code.co_qualname, code.co_firstlineno
