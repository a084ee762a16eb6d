"""Operators: a mutant is one small change of one function, by an operator (`changes` has them).

A site is found by its place in the tree (`ast.walk` of the same text is the same order), so a mutant is three numbers
and a name, and can be made anywhere from the file alone.  Bodies of functions are changed, kernels among them, and
values that are made once, when the module is imported: what has a name in upper case or is a field's first value, and
the arguments of its call (`Timer(10.0)`).  Of those, numbers are scaled, and dictionaries, sets and tuples lose an
entry.  Text for people is left alone (messages of exceptions, f-strings, calls of a log), and so are types.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from kvproto.verify.mutate.changes import CHANGES, named_sites, sites

#: calls for people: nothing depends on them
TALK = frozenset(("debug", "info", "warning", "frame", "part", "logs", "note"))


class CodeMutant(msgspec.Struct, frozen=True, order=True):
    """One change: in this file, by this operator, at node `node` of the tree, the `variant`th there."""

    file: str
    line: int
    operator: str
    node: int
    variant: int
    #: the function (of what a module or class names: that name), and the text of the line as it is
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.name}"

    @property
    def name(self) -> str:
        """Does not depend on the line: `file: function, operator, text`."""
        again = f" ({self.variant})" if self.variant else ""
        return f"{self.file}: {self.where}: {self.operator}{again}: {self.text}"


def mutants_of(file: str, text: str) -> list[CodeMutant]:
    """Every mutant of this text, in the order of its lines."""
    tree, lines = ast.parse(text), text.splitlines()
    owners, silent, named = _owners(tree), _silent(tree), dict(_named(tree))
    found = []
    for number, node in enumerate(ast.walk(tree)):
        where = owners.get(node) or named.get(node)
        if where is None or node in silent:
            continue
        line = _line(node)
        found += [
            CodeMutant(file, line, operator, number, variant, where, lines[line - 1].strip())
            for operator, variants in (sites(node) if node in owners else named_sites(node))
            for variant in range(variants)
        ]
    return sorted(found)


def mutated(mutant: CodeMutant, text: str) -> ast.Module:
    tree = ast.parse(text)
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.node)
    change(tree, node, mutant)
    return ast.fix_missing_locations(tree)


def change(tree: ast.AST, node: ast.AST, mutant: CodeMutant) -> None:
    instead = CHANGES[mutant.operator](node, mutant.variant)
    if instead is not None:
        _put(tree, node, instead)


def kernel_of(tree: ast.Module, mutant: CodeMutant) -> ast.FunctionDef | None:
    """The kernel (which takes arguments of `tl` types) that the mutant changes, if it changes one."""
    functions = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == mutant.where)
    return next((each for each in functions if _is_kernel(each)), None)


def _put(tree: ast.AST, node: ast.AST, instead: ast.AST) -> None:
    """A statement in the place of another one, or an expression."""
    for parent in ast.walk(tree):
        for name, field in ast.iter_fields(parent):
            if field is node:
                setattr(parent, name, instead)
                return
            if isinstance(field, list) and node in field:
                field[field.index(node)] = instead
                return


def _line(node: ast.AST) -> int:
    """Return the line of a comprehension's first test."""
    told = node.ifs[0] if isinstance(node, ast.comprehension) and node.ifs else node
    return int(getattr(told, "lineno", 0))


def _owners(tree: ast.AST) -> dict[ast.AST, str]:
    """By node of a function's body: the function's name, with its class."""
    owners: dict[ast.AST, str] = {}

    def enter(node: ast.AST, name: str, *, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                enter(child, f"{name}{child.name}.", inside=False)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                for each in child.body:
                    owners[each] = f"{name}{child.name}"
                    enter(each, f"{name}{child.name}.", inside=True)
            elif inside:
                owners[child] = name.removesuffix(".")
                enter(child, name, inside=True)

    enter(tree, "", inside=False)
    return owners


def _named(tree: ast.Module | ast.ClassDef, within: str = "") -> Iterator[tuple[ast.AST, str]]:
    """By value that a module names in upper case, or that a field of a class begins with: the name."""
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            yield from _named(each, f"{within}{each.name}.")
        elif isinstance(each, ast.AnnAssign if within else ast.Assign | ast.AnnAssign) and each.value is not None:
            target = each.targets[0] if isinstance(each, ast.Assign) else each.target
            pairs = [(target, each.value)]
            if isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple):
                pairs = list(zip(target.elts, each.value.elts, strict=True))
            yield from (
                (part, f"{within}{name.id}")
                for name, value in pairs
                if isinstance(name, ast.Name) and (within or name.id.isupper())
                for part in (value, *_arguments(value))
            )


def _arguments(value: ast.expr) -> list[ast.expr]:
    """Those of a call, as a timer's period; none, if it is none."""
    return [*value.args, *(each.value for each in value.keywords)] if isinstance(value, ast.Call) else []


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(each.annotation and ast.unparse(each.annotation).startswith("tl.") for each in function.args.args)


def _silent(tree: ast.AST) -> set[ast.AST]:
    """Return the nodes for people or types, which are not changed; a raised text, but not its count."""
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
