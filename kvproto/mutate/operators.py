"""What a mutant is: one small change of one function, by an operator.

    compare    a comparison is another one (`<` is `<=`, `==` is `!=`, `in` is `not in`)
    negate     the test of an `if`, a `while` or a choice is negated
    operand    one operand of an `and` or `or` is dropped
    call       a statement that is a call is left out (what waits for an event is one, too)
    assign     an assignment to an attribute or an item is left out
    return     what is returned is None; a truth is the other one
    constant   a whole number is one more
    swap       two arguments that stand next to each other are exchanged (but for the least or greatest of them)
    sign       `+=` is `-=`, and the other way round

A site is found by its place in the tree (`ast.walk` of the same text is the same order), so a mutant is three numbers
and a name, and can be made anywhere from the file alone.  Only bodies of functions are changed: what stands at the top
of a module is data, and has tests of its own.  Text for people is left alone (messages of exceptions, f-strings, calls
of a log), and so are kernels (what takes arguments of `tl` types): Triton reads them from their file.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

import msgspec

OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
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


Change = Callable[[ast.AST, int], None]


def mutants_of(file: str, text: str) -> list[CodeMutant]:
    """Every mutant of this text, in the order of its lines."""
    tree, lines = ast.parse(text), text.splitlines()
    owners, silent = _owners(tree), _silent(tree)
    found = []
    for number, node in enumerate(ast.walk(tree)):
        if node not in owners or node in silent:
            continue
        operator, variants = _sites(node)
        line: int = getattr(node, "lineno", 0)
        found += [
            CodeMutant(file, line, operator, number, variant, owners[node], lines[line - 1].strip())
            for variant in range(variants)
        ]
    return sorted(found)


def mutated(mutant: CodeMutant, text: str) -> ast.Module:
    """The tree of this text with the change in it."""
    tree = ast.parse(text)
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.node)
    CHANGES[mutant.operator](node, mutant.variant)
    return ast.fix_missing_locations(tree)


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
    """What is for people, or for types: nothing of it is changed."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.JoinedStr) or (isinstance(node, ast.Expr) and _is_text(node)):
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


def _sites(node: ast.AST) -> tuple[str, int]:
    """The operator that fits this node, and how many ways it has (0: none)."""
    match node:
        case ast.Compare():
            return "compare", len(node.ops)
        case ast.If() | ast.While() | ast.IfExp():
            return "negate", 1
        case ast.BoolOp():
            return "operand", len(node.values)
        case ast.Expr(value=ast.Call()):
            return "call", 1
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return "assign", 1
        case ast.Return(value=ast.expr() as value):
            return "return", int(not (isinstance(value, ast.Constant) and value.value is None))
        case ast.Constant():
            return "constant", int(type(node.value) is int)
        case ast.AugAssign(op=ast.Add() | ast.Sub()):
            return "sign", 1
        case ast.Call():
            return "swap", _neighbours(node)
    return "", 0


def _neighbours(node: ast.Call) -> int:
    """How many pairs of arguments can be exchanged: of the least or the greatest of some, none."""
    alike = isinstance(node.func, ast.Name) and node.func.id in ("min", "max")
    return 0 if alike or any(isinstance(each, ast.Starred) for each in node.args) else max(0, len(node.args) - 1)


# --------------------------------------------------------------------------------------------- changes
def _compare(node: ast.AST, variant: int) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[variant] = OTHER[type(node.ops[variant])]()


def _negate(node: ast.AST, _: int) -> None:
    assert isinstance(node, ast.If | ast.While | ast.IfExp)
    node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)


def _operand(node: ast.AST, variant: int) -> None:
    assert isinstance(node, ast.BoolOp)
    left = [*node.values[:variant], *node.values[variant + 1 :]]
    node.values = left if len(left) > 1 else [*left, copy.deepcopy(left[0])]  # `x and x`: a tree wants two


def _nothing(node: ast.AST, _: int) -> None:
    """A statement that does nothing stands in its place."""
    assert isinstance(node, ast.Expr | ast.Assign)
    if isinstance(node, ast.Expr):
        node.value = ast.copy_location(ast.Constant(None), node.value)
    else:
        node.targets = [ast.copy_location(ast.Name("_", ast.Store()), node.targets[0])]


def _return(node: ast.AST, _: int) -> None:
    assert isinstance(node, ast.Return)
    assert node.value is not None
    truth = node.value.value if isinstance(node.value, ast.Constant) else None
    node.value = ast.copy_location(ast.Constant(not truth if isinstance(truth, bool) else None), node.value)


def _constant(node: ast.AST, _: int) -> None:
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int)
    node.value += 1


def _swap(node: ast.AST, variant: int) -> None:
    assert isinstance(node, ast.Call)
    args = copy.copy(node.args)
    args[variant], args[variant + 1] = args[variant + 1], args[variant]
    node.args = args


def _sign(node: ast.AST, _: int) -> None:
    assert isinstance(node, ast.AugAssign)
    node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()


CHANGES: dict[str, Change] = {
    "compare": _compare, "negate": _negate, "operand": _operand, "call": _nothing, "assign": _nothing,
    "return": _return, "constant": _constant, "swap": _swap, "sign": _sign,
}  # fmt: skip
