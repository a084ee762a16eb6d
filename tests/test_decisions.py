"""How many decisions of the protocol stand outside its tables and routes, and which.

A *decision* is a condition (if, while, conditional expression, match case, comprehension's filter, or a comparison that
is returned) that asks what the protocol is about: a machine's state, a kind of message or event, an epoch, a session, a
lease, a group, a link's word.  In tables and routes that is what conditions are for.  In ranks and engine each one has
to be in `NOT_IN_TABLES`, with the reason why it decides nothing of the protocol; PROTOCOL.md shows the same list.

Planted anew, each way in which code once decided beside the tables is found.  `python tests/test_decisions.py` prints
the figure, place by place.
"""

from __future__ import annotations

import ast
import enum
import inspect
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

import kvproto
from kvproto.fsm.vocabulary import Event, State
from kvproto.protocol import events, messages, states
from kvproto.verify.claims.not_in_tables import NOT_IN_TABLES

HOUSE = Path(kvproto.__file__).parent
#: what drives machines, and what carries out effects
LOOKED_AT = (
    "rank/*.py", "data/*.py", "endpoint/*.py", "loop/*.py", "metrics/*.py", "room.py", "fsm/driver.py", "fsm/party.py",
    "fsm/machine_store.py",
    *(f"observe/{name}.py" for name in ("logs", "durations", "grant_ages", "*_files", "failure_*")),
)  # fmt: skip
#: attributes that only the protocol gives a meaning
WORDS = frozenset({
    "state", "states", "epoch", "session", "lease", "until", "silent", "terms", "due", "tries", "kv", "grant",
    "arrived", "by_pages", "asked", "place", "address", "cause", "settled", "quiescent", "noted",
})  # fmt: skip
STATE_CLASSES = {name for name, kind in vars(states).items() if inspect.isclass(kind) and issubclass(kind, State)}
MESSAGES = {name for name, kind in vars(messages).items() if inspect.isclass(kind) and issubclass(kind, msgspec.Struct)}
EVENTS = {name for name, kind in vars(events).items() if inspect.isclass(kind) and issubclass(kind, Event)}
ENUMS = {name for name, kind in vars(states).items() if inspect.isclass(kind) and issubclass(kind, enum.Enum)}
NAMES = STATE_CLASSES | MESSAGES | EVENTS | ENUMS | {"BOUND", "ANSWERED", "FLYING", "EARLY"}
MODULES = {"msg", "ev", "messages", "events", "states"}

#: by file and function: why its conditions decide nothing of the protocol
ALLOWED = {place: entry.name for entry in NOT_IN_TABLES for place in entry.places}

#: what once stood beside the tables, one of each kind
PLANTED = {
    "an answer is held back until a write has ended": """
        def keep(link, epoch, room, body):
            if not noted or type(body) is not ChunkAck or (room, body.chunk, link) not in noted:
                return False
    """,
    "a notification is not sent twice": """
        def transmit(effect):
            if not told or type(effect.body) is not StgNotify:
                lines.send(effect)
    """,
    "a stranger's beat is answered": """
        def take(peer, epoch, room, body):
            if link is None:
                if isinstance(body, Heartbeat):
                    control.send(peer, encode(epoch, 0, Reset()))
    """,
    "a message becomes an event by what else there is": """
        def hear(link, epoch, room, body):
            match body:
                case msg.StagingReq():
                    return ev.StagingRequested(room, body.chunk, at, writers)
    """,
    "only one event makes a machine": """
        def on(event, now):
            if type(event) is not ev.SendOpened:
                counts["late events"] += 1
    """,
    "the lease is asked a second time": """
        def may_post(room, chunk, peer, now):
            return send is not None and send.state in FLYING and now < send.lease
    """,
    "which states of a link count as quiet": """
BOUND = (DLink.UP, DLink.AWAIT_RETURN)
    """,
    "which call was answered": """
        def hello(peer, said):
            answered = value is not None and value.state in ANSWERED and value.session == said.session
    """,
    "a room is opened at a link that was refused": """
        def send(effect):
            queue.extend(down for link in links if link.state is DLink.REFUSED)
    """,
}


def conditions(tree: ast.AST) -> list[tuple[str, ast.expr]]:
    """Every condition in the code, with the function that it stands in."""
    found: list[tuple[str, ast.expr]] = []

    def walk(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            function = node.name if isinstance(node, ast.FunctionDef) else function
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                found.append((function, test))
            case ast.Match(subject=subject):
                found.append((function, subject))
                found.extend((function, ast.Name(ast.unparse(case.pattern).split("(")[0])) for case in node.cases)
            case ast.comprehension(ifs=ifs):
                found.extend((function, test) for test in ifs)
            case ast.Return(value=ast.Compare() | ast.BoolOp() as value):
                found.append((function, value))
            case ast.Assign(value=ast.Compare() | ast.BoolOp() as value):
                found.append((function, value))
            case ast.Assign(value=ast.Tuple() as value, targets=[ast.Name(id=name)]) if name.isupper():
                found.append((name, value))  # a constant made of states is a condition that is asked elsewhere
        for child in ast.iter_child_nodes(node):
            walk(child, function)

    walk(tree, "")
    return found


def asks_protocol(test: ast.expr) -> bool:
    """Whether the condition asks what only the protocol gives a meaning."""
    for node in ast.walk(test):
        if isinstance(node, ast.Name) and node.id.split(".")[-1] in NAMES:
            return True
        if isinstance(node, ast.Attribute):
            named = isinstance(node.value, ast.Name) and node.value.id in MODULES and node.attr in NAMES
            if named or node.attr in WORDS:
                return True
    return False


def decisions(source: str) -> dict[str, int]:
    """By function: how many of its conditions ask what the protocol is about."""
    count: dict[str, int] = {}
    for function, test in conditions(ast.parse(source)):
        if asks_protocol(test):
            count[function] = count.get(function, 0) + 1
    return count


def outside() -> dict[str, int]:
    """`folder/file:function` of every place with such conditions, and how many."""
    found = {}
    for path in (path for looked_at in LOOKED_AT for path in sorted(HOUSE.glob(looked_at))):
        for function, count in decisions(path.read_text()).items():
            found[f"{path.relative_to(HOUSE)}:{function}"] = count
    return found


@pytest.mark.parametrize("kind", PLANTED)
def test_a_decision_that_is_planted_anew_is_found(kind: str) -> None:
    assert decisions(dedent(PLANTED[kind]))


def test_every_decision_beside_the_tables_is_named_with_its_reason() -> None:
    places = outside()
    assert not set(places) - set(ALLOWED), "conditions about the protocol that no table has: make them rows or routes"
    assert not set(ALLOWED) - set(places), "entries that nothing answers to any more"


def test_every_entry_names_a_test_that_there_is() -> None:
    for entry in NOT_IN_TABLES:
        assert entry.why.endswith(".") and (HOUSE.parent / entry.test).is_file(), entry


if __name__ == "__main__":
    here = outside()
    for place, count in sorted(here.items(), key=lambda item: -item[1]):
        print(f"{count:3} {place:50} {ALLOWED.get(place, '')}")
    print(f"{sum(here.values())} conditions in {len(here)} places")
