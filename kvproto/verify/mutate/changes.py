"""Changes: the operators of code mutants, where each fits, and what it does there.

    compare     a comparison is another one (`<` is `<=`, `==` is `!=`, `in` is `not in`)
    negate      the test of an `if`, a `while` or a choice is negated
    filter      the test of a comprehension is negated
    operand     one operand of an `and` or `or` is dropped
    join        `and` is `or`, and the other way round
    call        a statement that is a call is left out (what waits for an event is one, too)
    assign      an assignment to an attribute or an item is left out
    drop        a `raise`, `del` of an item, `break` or `continue` is left out, or one of `|=` and its like
    entry       an entry of a dictionary or a set is left out, or of a tuple or list that a module names
    return      what is returned is None
    truth       True is False, and the other way round
    constant    a whole number is one more
    arithmetic  `+` is `-`, `*` is `+`, `//` is `*`, `|` is `&`, `<<` is `>>`, and so on
    sign        `+=` is `-=`, and the other way round
    extreme     `min` is `max`, `any` is `all`, and the other way round
    swap        two arguments that stand next to each other are exchanged (but for the least or greatest of them)
    unguard     a `try` catches nothing
    scale       a number that a module names, or a field begins with, is twenty times as large, or a twentieth

A change is made in the node itself, or is another node in its place.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Pow: ast.Mult,
}  # fmt: skip
EXTREMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: how much numbers are scaled
TIMES = 20
#: of a node, the variant that is asked for; the node in its place, or None if it was changed itself
Change = Callable[[Any, int], ast.AST | None]


def sites(node: ast.AST) -> Iterator[tuple[str, int]]:
    for operator, ways in FITS.get(type(node), ()):
        yield operator, int(ways(node))


def named_sites(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The operators that fit what a module or a class names, and how many ways each has."""
    if isinstance(node, ast.expr) and is_number(node):
        yield "scale", 2
    elif isinstance(node, ast.Dict):
        yield "entry", len(node.keys)
    elif isinstance(node, ast.Set | ast.Tuple | ast.List) and len(node.elts) > 1:
        yield "entry", len(node.elts)


def is_number(node: ast.expr) -> bool:
    """Tell whether it is a number above one, a fraction, or a sum or product with one: zero is none."""
    if isinstance(node, ast.BinOp):
        return type(node.op) in ARITHMETIC and (is_number(node.left) or is_number(node.right))
    number = node.value if isinstance(node, ast.Constant) else None
    return (type(number) is int and number > 1) or (isinstance(number, float) and number != 0)


def _once(_: Any) -> int:
    return 1


def _one_place(node: ast.Assign) -> bool:
    """Whether what is assigned goes to an attribute or an item, and nowhere else."""
    return len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute | ast.Subscript)


def _told(node: ast.Raise) -> bool:
    """Whether it is more than what a base class has in the place of a method."""
    return not (isinstance(node.exc, ast.Name) and node.exc.id == "NotImplementedError")


def _of_items(node: ast.Delete) -> bool:
    """Whether something loses an item or an attribute: a name that is gone is missed by nobody."""
    return not all(isinstance(each, ast.Name) for each in node.targets)


def _is_truth(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _is_nothing(node: ast.AST | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _extreme(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in EXTREMES


def _neighbours(node: ast.Call) -> int:
    """How many pairs of arguments can be exchanged: of the least or the greatest of some, none."""
    alike = isinstance(node.func, ast.Name) and node.func.id in ("min", "max")
    return 0 if alike or any(isinstance(each, ast.Starred) for each in node.args) else max(0, len(node.args) - 1)


NEGATE, DROP = ("negate", _once), ("drop", _once)
#: by node: the operators that may fit it, and in how many ways
FITS: dict[type[ast.AST], tuple[tuple[str, Callable[[Any], int]], ...]] = {
    ast.Compare: (("compare", lambda node: len(node.ops)),),
    ast.If: (NEGATE,), ast.While: (NEGATE,), ast.IfExp: (NEGATE,),
    ast.comprehension: (("filter", lambda node: len(node.ifs)),),
    ast.BoolOp: (("operand", lambda node: len(node.values)), ("join", _once)),
    ast.Expr: (("call", lambda node: isinstance(node.value, ast.Call)),),
    ast.Assign: (("assign", _one_place),),
    ast.Raise: (("drop", _told),), ast.Delete: (("drop", _of_items),), ast.Break: (DROP,), ast.Continue: (DROP,),
    ast.Dict: (("entry", lambda node: len(node.keys)),),
    ast.Set: (("entry", lambda node: len(node.elts) * (len(node.elts) > 1)),),
    ast.Return: (("return", lambda node: not (_is_nothing(node.value) or _is_truth(node.value))),),
    ast.Constant: (("constant", lambda node: type(node.value) is int), ("truth", _is_truth)),
    ast.BinOp: (("arithmetic", lambda node: type(node.op) in ARITHMETIC),),
    ast.AugAssign: (
        ("sign", lambda node: isinstance(node.op, ast.Add | ast.Sub)),
        ("drop", lambda node: not isinstance(node.op, ast.Add | ast.Sub)),
    ),
    ast.Call: (("swap", _neighbours), ("extreme", _extreme)),
    ast.Try: (("unguard", lambda node: bool(node.handlers)),),
}  # fmt: skip


def _compare(node: ast.Compare, variant: int) -> None:
    node.ops[variant] = COMPARISONS[type(node.ops[variant])]()


def _negate(node: ast.If | ast.While | ast.IfExp, _: int) -> None:
    node.test = _not(node.test)


def _filter(node: ast.comprehension, variant: int) -> None:
    node.ifs[variant] = _not(node.ifs[variant])


def _not(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def _operand(node: ast.BoolOp, variant: int) -> None:
    left = [*node.values[:variant], *node.values[variant + 1 :]]
    node.values = left if len(left) > 1 else [*left, copy.deepcopy(left[0])]  # `x and x`: a tree wants two


def _join(node: ast.BoolOp, _: int) -> None:
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()


def _left_out(node: ast.AST, _: int) -> ast.AST:
    return ast.copy_location(ast.Pass(), node)


def _assign(node: ast.Assign, _: int) -> None:
    """Keep the computation of an assigned value."""
    node.targets = [ast.copy_location(ast.Name("_", ast.Store()), node.targets[0])]


def _entry(node: ast.Dict | ast.Set | ast.Tuple | ast.List, variant: int) -> None:
    for entries in (node.keys, node.values) if isinstance(node, ast.Dict) else (node.elts,):
        del entries[variant]


def _return(node: ast.Return, _: int) -> None:
    assert node.value is not None
    node.value = ast.copy_location(ast.Constant(None), node.value)


def _truth(node: ast.Constant, _: int) -> None:
    node.value = not node.value


def _constant(node: ast.Constant, _: int) -> None:
    assert isinstance(node.value, int)
    node.value += 1


def _arithmetic(node: ast.BinOp, _: int) -> None:
    node.op = ARITHMETIC[type(node.op)]()


def _sign(node: ast.AugAssign, _: int) -> None:
    node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()


def _extremes(node: ast.Call, _: int) -> None:
    assert isinstance(node.func, ast.Name)
    node.func.id = EXTREMES[node.func.id]


def _swap(node: ast.Call, variant: int) -> None:
    args = copy.copy(node.args)
    args[variant], args[variant + 1] = args[variant + 1], args[variant]
    node.args = args


def _unguard(node: ast.Try, _: int) -> ast.AST:
    """Take the handlers away; what is done at the end, whatever is raised, stays."""
    body = [*node.body, *node.orelse]
    bare = ast.Try(body, [], [], node.finalbody) if node.finalbody else ast.If(ast.Constant(True), body, [])
    return ast.copy_location(bare, node)


def _scale(node: ast.expr, variant: int) -> ast.AST:
    """A whole number stays one, and is at least one."""
    whole = not any(isinstance(each, ast.Constant) and isinstance(each.value, float) for each in ast.walk(node))
    operator: ast.operator = ast.Mult() if not variant else ast.FloorDiv() if whole else ast.Div()
    scaled: ast.expr = ast.BinOp(copy.deepcopy(node), operator, ast.Constant(TIMES))
    if whole and variant:
        scaled = ast.BoolOp(ast.Or(), [scaled, ast.Constant(1)])
    return ast.copy_location(scaled, node)


CHANGES: dict[str, Change] = {
    "compare": _compare, "negate": _negate, "filter": _filter, "operand": _operand, "join": _join, "call": _left_out,
    "assign": _assign, "drop": _left_out, "entry": _entry, "return": _return, "truth": _truth, "constant": _constant,
    "arithmetic": _arithmetic, "sign": _sign, "extreme": _extremes, "swap": _swap,
    "unguard": _unguard, "scale": _scale,
}  # fmt: skip
