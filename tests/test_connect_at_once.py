"""`connect` returns at once: names and kernels are prepared on a thread of neither engine nor loop."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from support.stories import layout

from kvproto import LinkError
from kvproto.endpoint.group_table import GroupPrepared
from kvproto.endpoint.link_calls import LinkCall
from kvproto.fsm.driver import steps
from kvproto.loop.call_preparation import CallPreparation, is_name, numbered
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

PATIENCE_S = 10.0


class NameServer:
    """Answers look-ups, when it is let; where they were made."""

    def __init__(self) -> None:
        self.answers, self.let, self.threads = {"prefill.test": "127.0.0.1"}, threading.Event(), list[int]()

    def __call__(self, host: str, *how: Any) -> list[Any]:
        assert how == (None, socket.AF_INET, socket.SOCK_STREAM)
        self.threads.append(threading.get_ident())
        self.let.wait(PATIENCE_S)
        if host not in self.answers:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.answers[host], 0))]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    made = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.let.set()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(layout(1), layout(1), chunk_tokens=8, ready=False) as made:
        made.decodes[0].close()
        made.decodes[0] = made.make_decode(0)
        yield made


def named(pair: Pair, name: str = "prefill.test") -> str:
    return pair.prefills[0].address.replace("127.0.0.1", name)


def passes(pair: Pair, over: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not over():
        assert time.monotonic() < end
        pair.turn()


def calls(pair: Pair) -> list[LinkCall]:
    return [*pair.decodes[0]._groups.links.links.values()]


def dialled(pair: Pair) -> list[str]:
    """The addresses that connections of the decode rank lead to, those beside its links included."""
    return [address for at in calls(pair) for address in (at.dialled, at.tried) if address]


def looking(pair: Pair) -> bool:
    """Whether the name of a link is being looked up again."""
    return any(at.looking for at in calls(pair))


@pytest.mark.parametrize(
    ("address", "name"),
    [("tcp://127.0.0.1:5", False), ("tcp://10.0.0.7:5#ab", False), ("tcp://host:5", True), ("tcp://a.b:5#ab", True),
     ("tcp://[::1]:5", False), ("ipc:///x", False), ("ipc://host:5", False),
     ("tcp://here:0;there:5", False), ("post:3", False), ("tcp://", False), ("nonsense", False)],
)  # fmt: skip
def test_what_has_to_be_looked_up(address: str, name: bool) -> None:
    assert is_name(address) == name


def test_a_name_becomes_its_number_and_keeps_the_key(server: NameServer) -> None:
    server.let.set()
    assert numbered("tcp://prefill.test:40#ab") == "tcp://127.0.0.1:40#ab"
    assert numbered("tcp://nobody.test:40") == "tcp://nobody.test:40"


def test_connect_and_passes_wait_for_no_name_server(pair: Pair, server: NameServer) -> None:
    decode = pair.decodes[0]
    decode.connect(pair.plan.prefill, [named(pair)])
    for _ in range(5):
        pair.turn()
    assert not decode.ready() and not inside(decode).rank.links, "it is being looked up"
    server.let.set()
    passes(pair, decode.ready)
    assert set(server.threads).isdisjoint({threading.get_ident()})


def test_a_group_that_is_let_go_while_it_is_looked_up_is_not_called(pair: Pair, server: NameServer) -> None:
    decode = pair.decodes[0]
    decode.connect(pair.plan.prefill, [named(pair)])
    decode.disconnect()
    assert not decode._groups._party.groups
    server.let.set()
    passes(pair, lambda: any(type(event) is GroupPrepared for _, _, event, *_ in steps(decode._groups._party.trace)))
    assert not inside(decode).rank.links and not decode._groups._party.groups


def test_a_name_that_nobody_knows_is_told_and_looked_up_again(pair: Pair, server: NameServer) -> None:
    decode, known = pair.decodes[0], server.answers.pop("prefill.test")
    server.let.set()
    decode.connect(pair.plan.prefill, [named(pair)])
    with pytest.raises(LinkError, match=r"nobody knows the name in .*prefill\.test"):
        passes(pair, lambda: decode.ready() is None)
    server.answers["prefill.test"] = known
    passes(pair, lambda: inside(decode).rank.reached(1, 0)[0])
    assert decode.ready()


def test_a_name_that_leads_elsewhere_is_followed(pair: Pair, server: NameServer) -> None:
    decode = pair.decodes[0]
    server.let.set()
    for number in ("127.0.0.9", "127.0.0.8"):  # where nobody listens
        server.answers["prefill.test"] = number
        if not dialled(pair):
            decode.connect(pair.plan.prefill, [named(pair)])
        passes(pair, lambda: any(number in address for address in dialled(pair)))  # noqa: B023
    server.answers["prefill.test"] = "127.0.0.1"
    passes(pair, decode.ready)


def test_a_group_that_is_let_go_while_it_is_looked_up_again_is_not_called_either(
    pair: Pair, server: NameServer
) -> None:
    decode, rank = pair.decodes[0], inside(pair.decodes[0]).rank
    server.answers["prefill.test"] = "127.0.0.9"
    server.let.set()
    decode.connect(pair.plan.prefill, [named(pair)])
    passes(pair, lambda: bool(dialled(pair)))
    server.let.clear()
    passes(pair, lambda: looking(pair))
    (at,) = calls(pair)
    decode.disconnect()
    passes(pair, lambda: not rank.links)
    server.answers["prefill.test"] = "127.0.0.1"
    server.let.set()
    passes(pair, lambda: not at.looking)
    assert not rank.links and not calls(pair)


def test_a_name_that_is_looked_up_when_the_engine_names_another_address_is_not_called_any_more(
    pair: Pair, server: NameServer
) -> None:
    decode, address = pair.decodes[0], pair.prefills[0].address
    server.let.set()
    decode.connect(pair.plan.prefill, [named(pair, "gone.test")])
    with pytest.raises(LinkError, match=r"nobody knows the name in .*gone\.test"):
        passes(pair, lambda: decode.ready() is None)
    passes(pair, lambda: not looking(pair))
    server.let.clear()
    passes(pair, lambda: looking(pair))
    decode.connect(pair.plan.prefill, [address])
    passes(pair, decode.ready)
    server.let.set()
    passes(pair, lambda: not looking(pair))
    pair.turn()
    assert decode.ready() and dialled(pair) == [address]


def test_a_group_whose_kernels_cannot_be_made_is_not_called_where_its_name_leads(
    pair: Pair, server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = pair.decodes[0]
    server.answers["prefill.test"] = "127.0.0.9"  # where nobody listens
    server.let.set()
    decode.connect(pair.plan.prefill, [named(pair)])
    passes(pair, lambda: bool(dialled(pair)))
    before = dialled(pair)
    monkeypatch.setattr(decode._data.kernels, "prepare", lambda *_: 1 // 0)
    decode.connect(pair.plan.prefill, [named(pair)])
    with pytest.raises(LinkError, match="kernels cannot be made"):
        passes(pair, lambda: decode.ready() is None)
    passes(pair, lambda: not looking(pair))
    server.answers["prefill.test"] = "127.0.0.1"
    passes(pair, lambda: looking(pair))
    passes(pair, lambda: not looking(pair))
    assert dialled(pair) == before


def test_kernels_that_take_their_time_hold_nobody_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, let, where = pair.decodes[0], threading.Event(), list[int]()

    def prepare(*_: Any, **__: Any) -> None:
        where.append(threading.get_ident())
        let.wait(PATIENCE_S)

    decode._data.compiles = True
    monkeypatch.setattr(decode._data.kernels, "prepare", prepare)
    pair.connect(0)
    assert not decode.ready()
    let.set()
    passes(pair, decode.ready)
    assert where and where[0] != threading.get_ident()


@pytest.mark.parametrize("error", [RuntimeError("no compiler"), SystemExit("no compiler")])
def test_kernels_that_cannot_be_made_are_told(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:  # fmt: skip
    decode = pair.decodes[0]

    def prepare(*_: Any, **__: Any) -> None:
        raise error

    decode._data.compiles = True
    monkeypatch.setattr(decode._data.kernels, "prepare", prepare)
    pair.connect(0)
    with pytest.raises(LinkError, match=f"kernels cannot be made: {type(error).__name__}: no compiler"):
        passes(pair, decode.ready)


@pytest.mark.parametrize(("error", "ends"), [(RuntimeError("no room"), False), (KeyboardInterrupt("no room"), True)])
def test_kernels_that_fail_where_they_are_there_already_are_told_and_an_interrupt_is_raised(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, error: BaseException, ends: bool
) -> None:  # fmt: skip
    decode, faults = pair.decodes[0], iter((None, error))

    def make(*_: Any) -> None:
        if (fault := next(faults)) is not None:
            raise fault

    monkeypatch.setattr(decode._groups, "_make_kernels", make)
    with pytest.raises(KeyboardInterrupt) if ends else nullcontext():
        pair.connect(0)
    with pytest.raises(LinkError, match=f"kernels cannot be made: {type(error).__name__}: no room"):
        passes(pair, decode.ready)


def test_one_is_prepared_after_the_other_and_none_after_the_end_which_waits_for_nobody() -> None:
    happened, begun, let = list[str](), threading.Event(), threading.Event()
    done, others = CallPreparation(lambda then: then()), set(threading.enumerate())

    def first() -> Callable[[], None]:
        begun.set()
        let.wait(2.0)
        happened.append("first")
        return lambda: happened.append(threading.current_thread().name)

    def second() -> Callable[[], None]:
        happened.append("second")
        return lambda: None

    done.close()
    done.submit(first)
    done.submit(second)
    assert begun.wait(PATIENCE_S)
    (thread,) = [each for each in threading.enumerate() if each not in others and each.name.startswith("kvproto-call")]
    done.close()
    happened.append("closed")
    let.set()
    thread.join(PATIENCE_S)
    assert happened == ["closed", "first", thread.name]
    with pytest.raises(RuntimeError, match="after shutdown"):
        done.submit(second)
