"""Functions as text: what is followed, what is left out, and what is refused as not comparable."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import itertools
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
from msgspec import Meta
from support import digest_samples
from support.builds import SOURCE, environment

from kvproto.fsm.digest import differing
from kvproto.layout.sharding import Layout
from kvproto.verify.framework.digest_code import CodeWriter, DigestError
from kvproto.verify.framework.digest_text import DigestTexts, digest, routes_say, shortened, table_says

INTERPRETERS = [f"python3.{minor}" for minor in range(11, 15)]
COUNT = itertools.count()
Make = Callable[[str], ModuleType]

HEAD = "from __future__ import annotations\nimport enum, functools, math\nfrom msgspec import Struct\n"
BASE = HEAD + """
LIMIT = (3, frozenset({"a"}))
class Colour(enum.Enum):
    RED = 1
    def mixed(self): return self is Colour.RED
class Box(Struct, frozen=True):
    size: int = 2
    def twice(self): return self.size * 2
WHOLE = Box(5)
class Shelf:
    LONG = 4
    @property
    def boxes(self): return [Box() for _ in range(self.LONG)]
    @functools.cached_property
    def first(self): return min(self.boxes)
@functools.cache
def helper(v): return other(v) if v else deepest(v)
def other(v): return helper(v - 1)
def deepest(v): return math.gcd(v, LIMIT[0]), WHOLE
def root(v, at=LIMIT): return helper(v), Colour.RED, Shelf().boxes, [each for each in v]
"""  # fmt: skip


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(source: str) -> ModuleType:
        name = f"digested_{next(COUNT)}"
        file = tmp_path / f"{name}.py"
        file.write_text(source)
        return load(name, file)

    return made


def load(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def text(*roots: object) -> str:
    return DigestTexts().part("part", roots)


@pytest.mark.parametrize(("old", "new"), [
    ("LIMIT = (3,", "LIMIT = (4,"), ('frozenset({"a"})', 'frozenset({"b"})'), ("RED = 1", "RED = 2"),
    ("self is Colour.RED", "self is not Colour.RED"), ("size: int = 2", "size: int = 3"), ("size: int", "size: float"),
    ("self.size * 2", "self.size * 3"), ("Box(5)", "Box(6)"), ("LONG = 4", "LONG = 5"), ("v - 1", "v - 2"),
    ("range(self.LONG)", "range(1, self.LONG)"), ("if v else", "if not v else"), ("math.gcd", "math.lcm"),
    ("min(self.boxes)", "max(self.boxes)"), ("@property", "@functools.cached_property"),
    ("for each in v]", "for each in v if each]"), ("at=LIMIT", "at=WHOLE"), ("def root(v, at", "def root(v, *, at"),
    ("frozen=True", "frozen=True, tag='B'"), ("frozen=True", "frozen=True, array_like=True"),
])  # fmt: skip
def test_whatever_a_function_reaches_is_in_its_text(make: Make, old: str, new: str) -> None:
    assert BASE.count(old) == 1
    assert text(make(BASE).root) != text(make(BASE.replace(old, new)).root)


@pytest.mark.parametrize(("old", "new"), [
    ("def other(v): return", 'def other(v: int) -> int:\n    """A sentence."""\n    # a comment\n    return'),
    ("def other(v)", "def unrelated(v): return None\ndef other(v)"),
    ("import enum, functools, math", "import math, functools, enum"),
    ("def deepest(v): return", "def deepest(v):\n  pass\n  return"),
])  # fmt: skip
def test_what_changes_nothing_is_not(make: Make, old: str, new: str) -> None:
    assert BASE.count(old) == 1
    assert text(make(BASE).root) == text(make(BASE.replace(old, new)).root)


def test_only_what_an_error_says_is_left_out(make: Make) -> None:
    source = HEAD + "def root(v):\n    assert v > 0, 'small'\n    raise ValueError(f'{v} is odd')\n"
    same = source.replace("small", "tiny").replace("is odd", "is even")
    assert text(make(source).root) == text(make(same).root)
    assert text(make(source).root) != text(make(source.replace("v > 0", "v > 1")).root)
    assert text(make(source).root) != text(make(source.replace("ValueError", "KeyError")).root)


def test_places_and_what_c_computes_are_no_part_of_a_class(make: Make) -> None:
    plain, more = "class Box:\n    __slots__ = ('size',)\n", "    double = int.numerator\n"
    assert text(make(plain).Box) == text(make(plain + more).Box)


def test_a_prefix_that_means_nothing_is_left_out(make: Make) -> None:
    assert text(make("def root(v): return v['a']").root) == text(make("def root(v): return v[u'a']").root)


def test_a_missing_default_is_not_none(make: Make) -> None:
    one, two = make("def root(*, v): return v\n"), make("def root(*, v=None): return v\n")
    assert text(one.root) != text(two.root)


def test_closures_are_told_apart_by_what_they_hold(make: Make) -> None:
    module = make("def hold(size):\n    def root(v): return v < size\n    return root\n")
    assert text(module.hold(1)) == text(module.hold(1)) != text(module.hold(2))
    module = make("def hold(size):\n    def root(v, *, size=size): return v < size\n    return root\n")
    assert text(module.hold(1)) == text(module.hold(1)) != text(module.hold(2))


def test_names_that_two_functions_share_are_told_apart(make: Make) -> None:
    one, two = make("def root(v): return 1\n"), make("def root(v): return 2\n")
    assert text(one.root, two.root).splitlines()[:2] == ["part/root", "part/root 2"]


def test_a_definition_stands_in_the_first_part_that_reaches_it(make: Make) -> None:
    module, texts = make(BASE), DigestTexts()
    first, second = texts.part("first", [module.deepest]), texts.part("second", [module.root])
    assert "first/deepest is" in first and "first/Box is" in first
    assert "first/deepest" in second and "first/deepest is" not in second
    assert "second/root is" in second


@pytest.mark.parametrize(("source", "says"), [
    ("SEEN = {}\ndef root(v): return SEEN\n", "a dict .* has no text that lasts"),
    ("def root(v):\n    import os\n    return os\n", "has an import or a class within"),
    ("def root(v):\n    class Inner: pass\n    return Inner\n", "has an import or a class within"),
    ("def root(v): return missing\n", "names missing, which is not defined"),
    ("root, two = lambda v: v, lambda v: 2\n", "shares its line with another function"),
    ("root = len\n", "len is no plain function of Python"),
    ("class Kept:\n    def at(self): return self\nroot = Kept().at\n", "Kept.at is no plain function of Python"),
    ("import functools\nroot = functools.partial(max, 1)\n", "a partial .* has no text that lasts"),
])  # fmt: skip
def test_what_could_not_be_compared_is_refused(make: Make, source: str, says: str) -> None:
    with pytest.raises(DigestError, match=says):
        text(make(source).root)


def test_source_that_was_edited_after_it_was_loaded_is_refused(make: Make) -> None:
    module = make("def root(v): return v + 1\n")
    before = text(module.root)
    file = Path(str(module.__file__))
    file.write_text("# as it was\ndef root(v): return v + 1\n")
    with pytest.raises(DigestError, match="is not what runs, it was edited since: start the process anew"):
        text(module.root)
    file.write_text("def root(v): return v + 1\n")
    assert text(module.root) == before


def test_source_that_is_not_there_is_refused_with_the_remedy(make: Make, tmp_path: Path) -> None:
    module = make("def root(v): return v + 1\n")
    py_compile.compile(str(module.__file__), cfile=str(tmp_path / "bare.pyc"))
    Path(str(module.__file__)).unlink()
    bare = load("bare", tmp_path / "bare.pyc")
    with pytest.raises(DigestError, match=r"bare\.root cannot be read: install its package with its sources"):
        text(bare.root)


def test_types_are_said_with_their_bounds_and_in_no_order_that_means_nothing() -> None:
    said = text(Layout)
    assert "page_size: builtins:int" in said and "order: one of ('HND', 'NHD') = 'NHD'" in said
    say = DigestTexts().value
    assert say(Layout, "") == "/Layout" and say(dict.get, "kvproto") == "builtins:get"
    assert say(sys.modules["kvproto.layout.sharding"], "kvproto") == "kvproto:kvproto.layout.sharding"
    assert say(int | str, "kvproto") == say(str | int, "kvproto") == "builtins:int or builtins:str"
    numbers = {"gt": 1, "ge": 2, "lt": 9, "le": 8, "multiple_of": 3}
    words = {"pattern": "a+", "min_length": 2, "max_length": 8}
    bounds: list[tuple[Any, dict[str, Any]]] = [(int, numbers), (str, words), (datetime, {"tz": True})]
    for kind, meta in bounds:
        for name, at in meta.items():
            assert say(Annotated[kind, Meta(**{name: at})], "kvproto").endswith(f" {name} {at!a}")
    assert say(dict[str, tuple[int, ...]], "kvproto").endswith("[builtins:str, builtins:tuple[builtins:int, Ellipsis]]")


#: whatever a text may say of values, types and classes; and a table and routes
KINDS = (
    HEAD
    + """
import heapq, struct
from collections import OrderedDict
from typing import Annotated, Any, Literal
import msgspec
from msgspec import Meta
from kvproto.fsm import table, routing, vocabulary
class Word(enum.IntEnum):
    ONE = 1
    TWO = 2
    ALSO = 2
class Wrong(ValueError):
    def __str__(self): return "for people"
class Unit(Struct, frozen=True, array_like=True, tag="U", forbid_unknown_fields=True): pass
class Box(Unit):
    size: Annotated[int, Meta(ge=0, lt=9, description="for people")]
    word: Word = Word.TWO
    some: list[int] = msgspec.field(default_factory=list, name="any")
    one: Literal["b", "a"] | None = None
    names: tuple[str, ...] = ()
class Shelf(OrderedDict):
    LONG: int = 4
    __slots__ = ("held",)
    @classmethod
    def made(cls): return cls(cls.LONG)
    @staticmethod
    def best(those): return heapq.heappop(those)
    @property
    def first(self): return self.held or Wrong
READ, WRITE, FORM = msgspec.msgpack.Decoder(Box | int), msgspec.msgpack.Encoder(), struct.Struct("<IQ")
def one(v): return v
def outer(v):
    def inner(w, *, a, b=None, c=one): return w, lambda *, d: d
    return inner
TALLY = 3
def tallied(v):
    global TALLY
    TALLY = v
    async def later(w): return later
    match v:
        case {"k": _, **others}: return others, later
class Pair(Struct):
    left: int = 1
    right: str = "r"
KEPT = (frozenset({2, 1}), Pair(3), heapq, Word.ONE, (1,), ())
def root(v, *, word=Word.ONE, at=(None, True, 1.5, 2j, b"b", ...)): return [
    READ, WRITE, FORM, KEPT, Unit(), Shelf, Word.ALSO, Any, dict[str, Word], one, outer, tallied, Shelf.LONG]
class S(vocabulary.State):
    NEW = 0
    OVER = 1
class Told(vocabulary.Event, frozen=True):
    n: int
class Ended(vocabulary.TimerFired, frozen=True):
    n: int
class SenderIs(routing.Fact):
    KNOWN = 0
    STRANGE = 1
def large(v, e, now): return e.n > 3
def told(v, e): return vocabulary.Report("much", "so")
small = table.Table("small", table.Value, S, initial=S.NEW, events=(Told, Ended), timers={S.NEW: "wait"},
                    final=(S.OVER,), tombstones=True, periods={S.NEW: one})
small.opens(S.NEW, Told, S.OVER, when=large, do=(told,))
small.ignore(S.NEW, (Told, Ended), "nothing")
ways = routing.Routes("ways", (Box, Unit), (SenderIs,))
ways.drop(Box, SenderIs.STRANGE, why="strange")
ways.route((Box, Unit), to=one)
"""
)
WRITTEN = Path(__file__).parent / "support" / "digest_texts.txt"


def test_texts_are_written_as_they_always_were(make: Make) -> None:
    """Builds that agree must not refuse each other because only the writing of texts has changed."""
    module, texts = make(KINDS), DigestTexts()
    parts = [texts.part("values", [module.root, module.Box, None]), texts.part("table", table_says(module.small)),
             texts.part("routes", routes_say(module.ways))]  # fmt: skip
    assert "\n\n".join([digest_samples.texts(), *parts]) + "\n" == WRITTEN.read_text()


def test_the_pieces_of_an_f_string_are_the_same_however_an_interpreter_cuts_them() -> None:
    def value(spec: ast.expr | None = None) -> ast.FormattedValue:
        return ast.FormattedValue(ast.Constant(1), -1, spec)

    def said(*pieces: str | ast.expr) -> str:
        values = [ast.Constant(each) if isinstance(each, str) else each for each in pieces]
        return CodeWriter(said, ascii).text(ast.JoinedStr(values))  # type: ignore[arg-type]

    within, empty = ast.JoinedStr([ast.Constant("c"), value(), ast.Constant("d")]), ast.JoinedStr([])
    whole = said("abc", value(), "de", value(), "")
    assert whole == said("a", "b", "", "c", value(empty), "d", "", "e", value())
    assert whole == said("ab", within, "e", value(), "", "")
    assert said(within) == said("", "c", value(), "d") != said("c", value(), "e")
    assert said() == said("") == "JoinedStr[]"
    assert said(value(ast.JoinedStr([ast.Constant(">")]))) != said(value())


def test_digests_are_compared_part_by_part() -> None:
    said = digest({"a": "text", "b": "other"})
    assert said == f"a:{hashlib.sha256(b'text').hexdigest()[:8]} b:{shortened('other')}"
    assert differing(said, said) == differing("", "") == ""
    changed, more = digest({"a": "text", "b": "another"}), digest({"a": "text", "b": "other", "c": "new"})
    others = f"{shortened('another')} against {shortened('other')}"
    assert differing(changed, said) == f"the builds differ in b ({others})"
    assert differing(more, said) == f"the builds differ in c ({shortened('new')} against none)"
    assert differing(said, more) == f"the builds differ in c (none against {shortened('new')})"
    assert differing("d:1 e:2", said) == f"digest 'd:1 e:2' against {said!r}"
    assert differing("", said) == f"digest '' against {said!r}"


def runs(python: str) -> bool:
    """Whether there is such an interpreter (not only a version manager's name for one that is not there)."""
    found: Any = shutil.which(python)
    return found is not None and not subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode


@pytest.mark.parametrize("python", INTERPRETERS)
def test_every_interpreter_writes_the_same(python: str) -> None:
    if not runs(python):
        pytest.skip(f"no {python} here")
    done = subprocess.run([python, digest_samples.__file__], env=environment(SOURCE.parent), capture_output=True,
                          text=True, check=True, timeout=60)  # fmt: skip
    assert done.stdout == digest_samples.texts()
    assert len(done.stdout.splitlines()) == 4
