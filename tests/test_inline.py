"""Small functions as expressions: each means what the call would, and anything else stays a call."""

from __future__ import annotations

import ast
import inspect
import math
import traceback
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvproto.fsm.generated import compiled
from kvproto.fsm.inline import expression

FACTOR, NAMES = 7, ("value", "event")


class Word(IntEnum):
    ONE = 1
    TWO = 2


class Box:
    size = 40


class Given:
    def __init__(self, n: int) -> None:
        self.n, self.size = n, n + 1

    def plus(self, other: int, *, more: int = 0) -> int:
        return self.n + other + more


BOX = Box()


def plain(v: Any, e: Any) -> Any:
    return v.n + e.n


def told(v: Any, e: Any) -> Any:
    """A docstring is no statement."""
    return v.n * FACTOR + len(NAMES)


def of_an_enum(v: Any, e: Any) -> Any:
    return Word.TWO + v.n


def of_a_module(v: Any, e: Any) -> Any:
    return math.pi + v.n


def of_an_object(v: Any, e: Any) -> Any:
    return BOX.size + v.size


def other_way_round(v: Any, e: Any) -> Any:
    return plain(e, v) - v.n


def difference(a: Any, b: Any) -> Any:
    return a.n - b.n


def helped(v: Any, e: Any) -> Any:
    return difference(e, v) + difference(v, e) * 3


def helper(n: int) -> Any:
    return n + n


def of_what_is_computed(v: Any, e: Any) -> Any:
    return helper(v.plus(e.n))


def of_some_that_is_computed(v: Any, e: Any) -> Any:
    return difference(v, Given(e.n))


def by_name(v: Any, e: Any) -> Any:
    return difference(a=e, b=v)


def asks_a_method(v: Any, e: Any) -> Any:
    return v.plus(e.n, more=FACTOR)


def deep_1(v: Any, e: Any) -> Any:
    return plain(v, e) + 1


def deep_2(v: Any, e: Any) -> Any:
    return deep_1(v, e) + 1


def deep_3(v: Any, e: Any) -> Any:
    return deep_2(v, e) + 1


def deep_4(v: Any, e: Any) -> Any:
    return deep_3(v, e) + 1


def two_statements(v: Any, e: Any) -> Any:
    n = v.n
    return n + e.n


def of_no_value(v: Any, e: Any) -> Any:
    return


def decides(v: Any, e: Any) -> Any:
    if v.n > e.n:
        return v.n
    return e.n


def with_a_default(v: Any, e: Any, more: int = 5) -> Any:
    return v.n + e.n + more


def by_default(v: Any, e: Any) -> Any:
    return with_a_default(v, e) + with_a_default(v, e, FACTOR)


def by_keyword_only(v: Any, e: Any, *, more: int = 5) -> Any:
    return v.n + e.n + more


def of_any_number(*those: Any) -> Any:
    return those[0].n


def of_two_and_more(v: Any, e: Any, *more: Any) -> Any:
    return v.n + len(more)


def returns_nothing(v: Any, e: Any) -> Any:
    v.plus(e.n)


def of_any_words(v: Any, e: Any, **more: Any) -> Any:
    return v.n + len(more)


def has_a_scope(v: Any, e: Any) -> Any:
    return sum(each.n for each in (v, e))


def of_a_list(v: Any, e: Any) -> Any:
    return [v + 1 for v in (e.n, 2)]


def of_a_set(v: Any, e: Any) -> Any:
    return {v + 1 for v in (e.n, 2)}


def of_a_dictionary(v: Any, e: Any) -> Any:
    return {v: v + 1 for v in (e.n, 2)}


def of_a_function(v: Any, e: Any) -> Any:
    return (lambda v: v + 1)(e.n)  # noqa: PLC3002  # the inner name is another one


def that_names_a_part(v: Any, e: Any) -> Any:
    return (v := e.n) + v


def of_a_generator(v: Any, e: Any) -> Any:
    return (yield v.n)


def recursive(v: Any, e: Any) -> Any:
    return v.n if v.n < 1 else recursive(Given(v.n - 1), e)


def made(more: int) -> Callable[[Any, Any], Any]:
    def closure(v: Any, e: Any) -> Any:
        return v.n + more

    return closure


def nameless(v: Any, e: Any) -> Any:
    return nothing_of_that_name + v.n  # type: ignore[name-defined]  # noqa: F821


class Difference:
    def __call__(self, v: Any, e: Any) -> Any:
        return v.n - e.n


INSIDE = [plain, told, of_an_enum, of_a_module, of_an_object, other_way_round, helped, asks_a_method, deep_3]
STAY: list[Callable[..., Any]] = [
    two_statements, of_no_value, decides, with_a_default, by_keyword_only, of_any_number, of_two_and_more, of_any_words,
    returns_nothing, has_a_scope, of_a_list, of_a_set, of_a_dictionary, of_a_function, that_names_a_part,
    made(3), of_a_generator, made, Difference(), lambda v, e: v.n, max,
]  # fmt: skip
PARTLY: dict[Callable[..., Any], set[str]] = {
    of_what_is_computed: {"helper"}, of_some_that_is_computed: {"difference", "Given"}, by_name: {"difference"},
    by_default: {"with_a_default"}, deep_4: {"plain"}, recursive: {"recursive", "Given"},
}  # fmt: skip


def functions_in(inside: ast.expr) -> set[str]:
    return {each.func.id for each in ast.walk(inside) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}


def meant(inside: ast.expr, names: dict[str, Any], v: Given, e: Given) -> Any:
    return eval(ast.unparse(inside), names | {"value": v, "event": e})  # noqa: S307


@pytest.mark.parametrize("function", [*INSIDE, *STAY[:-5], *PARTLY], ids=lambda function: function.__name__)
def test_the_expression_means_what_the_call_does(function: Callable[..., Any]) -> None:
    names: dict[str, Any] = {}
    inside = expression(function, NAMES, names)
    for v, e in ((Given(3), Given(5)), (Given(5), Given(3)), (Given(0), Given(-1))):
        assert meant(inside, names, v, e) == function(v, e)


def test_what_is_one_return_stands_inside_and_helpers_of_plain_names_do_too() -> None:
    for function in INSIDE:
        assert functions_in(expression(function, NAMES, {})) <= {"len"}, function.__name__
    for function, left in PARTLY.items():
        assert functions_in(expression(function, NAMES, {})) == left, function.__name__
    for function in STAY:
        called = expression(function, NAMES, {})
        assert isinstance(called, ast.Call) and ast.unparse(called).endswith("(value, event)")


def test_members_of_enums_and_modules_are_looked_up_once_and_those_of_objects_each_time() -> None:
    names: dict[str, Any] = {}
    assert ast.unparse(expression(of_an_enum, NAMES, names)) == "TWO + value.n"
    assert ast.unparse(expression(of_a_module, NAMES, names)) == "pi + value.n"
    assert ast.unparse(expression(of_an_object, NAMES, names)) == "BOX.size + value.size"
    assert names == {"TWO": Word.TWO, "pi": math.pi, "BOX": BOX}


def test_a_name_that_is_taken_by_something_else_is_another_one() -> None:
    names: dict[str, Any] = {"FACTOR": 1, "FACTOR_": 2, "len": len}
    assert ast.unparse(expression(told, NAMES, names)) == "value.n * FACTOR__ + len(NAMES)"
    assert names["FACTOR__"] == FACTOR


def test_what_can_be_called_and_has_no_name_is_a_call() -> None:
    names: dict[str, Any] = {}
    nobody = Difference()
    for function, wanted in ((lambda v, e: v.n, 4), (nobody, 3)):
        inside = expression(function, NAMES, names)
        assert meant(inside, names, Given(4), Given(1)) == wanted
    assert names["call_"] is nobody


def test_a_function_of_other_arguments_stays_a_call_that_says_so() -> None:
    names: dict[str, Any] = {}
    inside = expression(plain, ("value",), names)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        meant(inside, names, Given(1), Given(1))


def test_a_name_that_there_is_not_is_told_before_any_step() -> None:
    with pytest.raises(NameError, match="nothing_of_that_name is not defined in test_inline"):
        expression(nameless, NAMES, {})


def written(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    module = ModuleType("written")
    exec(compile(text, str(path), "exec"), vars(module))  # noqa: S102
    return module


def test_a_file_that_was_edited_since_says_nothing_of_the_functions_that_run(tmp_path: Path) -> None:
    one, two = "def f(v, e):\n    return v.n + {}\n", "def f(v, e):\n    return v.n + ({}\n"
    for number, after in enumerate((one, "\n" + one, two, None)):
        path = tmp_path / f"{number}.py"
        function = written(path, one.format(1)).f
        if after is None:
            path.unlink()
        else:
            path.write_text(after.format(2))
        names: dict[str, Any] = {}
        inside = expression(function, NAMES, names)
        assert meant(inside, names, Given(5), Given(5)) == 6 and functions_in(inside) == {"f"}
    same = written(tmp_path / "same.py", one.format(1)).f
    assert functions_in(expression(same, NAMES, {})) == set()


def test_code_that_is_written_by_code_is_shown_by_tracebacks() -> None:
    source = "def wrong(n):\n    return 1 / n\n"
    scope: dict[str, Any] = {}
    exec(compiled(source, "made in a test"), scope)  # noqa: S102
    with pytest.raises(ZeroDivisionError) as caught:
        scope["wrong"](0)
    last = traceback.extract_tb(caught.tb)[-1]
    assert (last.filename, last.lineno, last.line) == ("<made in a test>", 2, "return 1 / n")
    assert inspect.getsource(scope["wrong"]) == source
    assert compiled(source, "made in a test") is compiled(source, "made in a test")
