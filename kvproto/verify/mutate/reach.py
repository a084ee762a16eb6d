"""Reach: the lines that each test reaches, and its time, so a mutant meets only tests that may notice.

A nursery runs its tests once in a fork that follows the lines of one file (`Follower`). A mutant is tried with the
tests that reach any line of its statement: those first that have noticed another one of the same function, then the
quickest. One that no test reaches survives without a trial. About what a module names those tests are asked, too, that
come by no line of the file, since they look at its values; about what a class names all are: it was made before any
began. So they are about a function that ran before, as one that makes a table.
"""

from __future__ import annotations

import ast
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from kvproto.verify.mutate.operators import CodeMutant


class Reached(msgspec.Struct, frozen=True):
    """A test's name, its seconds (followed, which is slower), and the lines that it reached."""

    test: str
    seconds: float
    lines: tuple[int, ...]


class Follower:
    """Follows the lines of a file in all threads that start from now on, one test after the other."""

    def __init__(self, file: Path) -> None:
        self._file, self._lines = os.fspath(file), set[int]()
        self.found: list[Reached] = []
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        if event != "call" or frame.f_code.co_filename != self._file:
            return None
        self._lines.add(frame.f_lineno)
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self._lines.add(frame.f_lineno)
        return self._line

    def begin(self) -> float:
        self._lines.clear()
        return time.monotonic()

    def end(self, test: str, began: float) -> None:
        self.found.append(Reached(test, round(time.monotonic() - began, 4), tuple(sorted(self._lines))))


class Choice:
    """The tests for a mutant of this file, and their order."""

    def __init__(self, text: str, reached: Sequence[Reached], effort_s: float, ran: Container[str] = ()) -> None:
        """`ran`: functions that ran before any test."""
        self._reached, self._effort_s, self._ran = sorted(reached, key=lambda each: each.seconds), effort_s, ran
        tree = ast.parse(text)
        self._statements = sorted(_statements(tree))
        self._in_functions = {line for each in _functions(tree) for line in range(each.lineno, _end(each) + 1)}
        #: by name in upper case: the statements of functions that read it
        self._readers: dict[str, set[tuple[int, int]]] = {}
        for name, line in _read(tree):
            self._readers.setdefault(name, set()).add(self.statement(line))
        #: by function: who noticed, how often
        self._noticed: dict[str, Counter[str]] = {}

    def tests(self, mutant: CodeMutant) -> list[Reached]:
        """Those that reach it, the likeliest and quickest first, as many as fit."""
        able = [each for each in self._reached if self._reaches(each, mutant)]
        if mutant.where in self._ran:
            able += [each for each in self._reached if each not in able]
        noticed = self._noticed.get(mutant.where, Counter())
        able.sort(key=lambda each: -noticed[each.test])  # a stable order: among equals, the quickest
        spent, chosen = 0.0, list[Reached]()
        for each in able:
            if not chosen or spent + each.seconds <= self._effort_s:
                chosen.append(each)
                spent += each.seconds
        return chosen

    def _reaches(self, test: Reached, mutant: CodeMutant) -> bool:
        statements = {self.statement(mutant.line)}
        if mutant.line not in self._in_functions:
            statements = self._readers.get(mutant.where, set())
            if not statements or not test.lines:
                return True
        return any(first <= line <= last for first, last in statements for line in test.lines)

    def noticed(self, mutant: CodeMutant, test: str) -> None:
        self._noticed.setdefault(mutant.where, Counter())[test] += 1

    def statement(self, line: int) -> tuple[int, int]:
        """The first and last line of the smallest statement (or head of one) that this line is of."""
        within = [lines for lines in self._statements if lines[0] <= line <= lines[1]]
        return min(within, key=lambda lines: lines[1] - lines[0], default=(line, line))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _read(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names in upper case that functions read, each with its line."""
    for function in _functions(tree):
        for each in (node for part in function.body for node in ast.walk(part)):
            if isinstance(each, ast.Name) and each.id.isupper():
                yield each.id, each.lineno


def _statements(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """Yield the lines of statements; of those with a body, the head alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            yield node.lineno, max(node.lineno, body[0].lineno - 1) if body else _end(node)
        elif isinstance(node, ast.match_case | ast.ExceptHandler):
            line = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
            yield line, max(line, node.body[0].lineno - 1)
