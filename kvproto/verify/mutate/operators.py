"""What a mutant is: one small change of one function, by an operator (`changes` has them, and what each does).

A site is found by its place in the tree (`ast.walk` of the same text is the same order), so a mutant is three numbers
and a name, and can be made anywhere from the file alone.  Only bodies of functions are changed: what stands at the top
of a module is data, and has tests of its own.  Text for people is left alone (messages of exceptions, f-strings, calls
of a log), and so are types and kernels (what takes arguments of `tl` types): Triton reads them from their file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from kvproto.verify.mutate.changes import CHANGES, sites

#: calls for people: nothing depends on them
TALK = frozenset(("debug", "info", "warning", "frame", "part", "logs", "note"))


class CodeMutant(msgspec.Struct, frozen=True, order=True):
    """One change: in this file, by this operator, at node `node` of the tree, the `variant`th there."""

    file: str
    line: int
    operator: str
    node: int
    variant: int
    #: the function, and the text of the line as it is
    where: str
    text: str

    @property
    def name(self) -> str:
        """Does not depend on the line: `file: function, operator, text`."""
        again = f" ({self.variant})" if self.variant else ""
        return f"{self.file}: {self.where}: {self.operator}{again}: {self.text}"


def mutants_of(file: str, text: str) -> list[CodeMutant]:
    """Every mutant of this text, in the order of its lines."""
    tree, lines = ast.parse(text), text.splitlines()
    owners, silent = _owners(tree), _silent(tree)
    found = []
    for number, node in enumerate(ast.walk(tree)):
        if node not in owners or node in silent:
            continue
        line = _line(node)
        found += [
            CodeMutant(file, line, operator, number, variant, owners[node], lines[line - 1].strip())
            for operator, variants in sites(node)
            for variant in range(variants)
        ]
    return sorted(found)


def mutated(mutant: CodeMutant, text: str) -> ast.Module:
    """The tree of this text with the change in it."""
    tree = ast.parse(text)
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.node)
    change(tree, node, mutant)
    return ast.fix_missing_locations(tree)


def change(tree: ast.AST, node: ast.AST, mutant: CodeMutant) -> None:
    """Make the mutant's change at this node of the tree."""
    instead = CHANGES[mutant.operator](node, mutant.variant)
    if instead is not None:
        _put(tree, node, instead)


def _put(tree: ast.AST, node: ast.AST, instead: ast.AST) -> None:
    """A statement in the place of another one."""
    for parent in ast.walk(tree):
        for _, body in ast.iter_fields(parent):
            if isinstance(body, list) and node in body:
                body[body.index(node)] = instead
                return


def _line(node: ast.AST) -> int:
    """Of a comprehension's tests, that of the first."""
    told = node.ifs[0] if isinstance(node, ast.comprehension) and node.ifs else node
    return int(getattr(told, "lineno", 0))


def _owners(tree: ast.AST) -> dict[ast.AST, str]:
    """By node of a function's body: the function's name, with its class."""
    owners: dict[ast.AST, str] = {}

    def enter(node: ast.AST, name: str, *, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                enter(child, f"{name}{child.name}.", inside=False)
            elif isinstance(child, ast.FunctionDef):
                if _is_kernel(child):
                    continue
                for each in child.body:
                    owners[each] = f"{name}{child.name}"
                    enter(each, f"{name}{child.name}.", inside=True)
            elif inside:
                owners[child] = name.removesuffix(".")
                enter(child, name, inside=True)

    enter(tree, "", inside=False)
    return owners


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(each.annotation and ast.unparse(each.annotation).startswith("tl.") for each in function.args.args)


def _silent(tree: ast.AST) -> set[ast.AST]:
    """What is for people, or for types: nothing of it is changed.  What is raised is a text, but that it is counts."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            roots += ast.iter_child_nodes(node)
        elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Expr) and _is_text(node)):
            roots.append(node)
        elif isinstance(node, ast.AnnAssign):
            roots.append(node.annotation)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and TALK & set(_names(node.value.func)):
            roots.append(node)
    return {each for root in roots for each in ast.walk(root)}


def _is_text(node: ast.Expr) -> bool:
    return isinstance(node.value, ast.Constant)


def _names(node: ast.AST) -> Iterator[str]:
    return (each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute))
