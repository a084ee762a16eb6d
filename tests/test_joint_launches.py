"""Launches that go together: which are put aside, with whom they go, and what each is told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvproto.data.joint_launches import JointLaunches, LaunchKind
from kvproto.data.launches import TOGETHER
from kvproto.data.prepared_launches import ReadyLaunch
from kvproto.io.kernels.base import Ticket
from kvproto.protocol.states import Cause

EARLY, LATE = object(), object()


class Launched(Ticket):
    """The launches: kernel, stream and predecessor."""

    def __init__(self, *how: object) -> None:
        self.how = how

    def done(self) -> bool:
        return True


class World:
    """Launches by name; those of `broken` raise, and so do all together that have one of them."""

    def __init__(self, *, device: bool = True, joins: bool = True) -> None:
        self.joins, self.broken = joins, set[str]()
        self.told: list[tuple[str, object, bool]] = []
        self.failed: list[object] = []
        self.where = "stream" if device else None
        loop: Any = SimpleNamespace(
            hold=lambda _error: None, logs=SimpleNamespace(part=lambda *about: self.failed.append(about)),
            raise_event=self.failed.append,
        )  # fmt: skip
        failed: Any = "no {}".format
        kind = LaunchKind("launch", lambda name: (name,), failed, failed)
        self.joint = JointLaunches[str](loop, cast("Any", self), self.where, kind, self.went)

    def went(self, whose: str, made: ReadyLaunch, ticket: Ticket, alone: bool) -> None:
        assert cast("Any", made.entry) == whose and isinstance(ticket, Launched)
        self.told.append((whose, ticket.how, alone))

    def join(self, launches: list[Callable[..., Ticket]]) -> Callable[..., Ticket] | None:
        names = [cast("Any", each).name for each in launches]
        return Launch(self, *names) if self.joins else None

    def ask(self, name: str, after: object = None, *, small: bool = True) -> None:
        made = ReadyLaunch(cast("Any", name), None, Launch(self, name), 0, 1, 0)
        self.joint.ask(name, made, after, small=small)

    def names(self) -> list[str]:
        return [name for name, _, _ in self.told]


class Launch:
    def __init__(self, world: World, *names: str) -> None:
        self.world, self.names, self.name = world, names, names[0]

    def __call__(self, stream: Any, after: Any) -> Ticket:
        if self.world.broken.intersection(self.names):
            raise ValueError("planted")
        return Launched(self.names, stream, after)


def test_small_ones_go_together_when_they_are_told_and_each_has_the_same_ticket() -> None:
    world = World()
    world.ask("a", EARLY)
    world.ask("b", EARLY)
    assert not world.told
    world.joint.go()
    assert world.told == [(name, (("a", "b"), "stream", EARLY), False) for name in "ab"]
    world.joint.go()
    assert len(world.told) == 2 and not world.joint.aside


def test_what_is_asked_for_while_others_go_is_put_aside_anew() -> None:
    world = World()
    went = world.joint._went

    def ask_once_more(whose: str, *about: Any) -> None:
        went(whose, *about)
        if whose == "a":
            world.ask("c", LATE)

    world.joint._went = ask_once_more
    world.ask("a", EARLY)
    world.ask("b", EARLY)
    world.joint.go()
    assert world.names() == ["a", "b"]
    world.joint.go()
    assert world.names() == ["a", "b", "c"]


def test_enough_of_them_do_not_wait_to_be_told() -> None:
    world = World()
    for number in range(TOGETHER - 1):
        world.ask(str(number))
    assert not world.told
    world.ask("last")
    assert world.names()[-1] == "last" and len(world.told) == TOGETHER and not world.joint.aside


def test_a_large_one_goes_now_by_itself_behind_the_small_ones_that_were_asked_for_before() -> None:
    world = World()
    world.ask("large", EARLY, small=False)
    assert world.told == [("large", (("large",), "stream", EARLY), True)]
    for name in "ab":
        world.ask(name)
    world.ask("larger", LATE, small=False)
    assert world.names() == ["large", "a", "b", "larger"]
    assert world.told[-1] == ("larger", (("larger",), "stream", LATE), True)


def test_without_a_device_all_go_at_once() -> None:
    world = World(device=False)
    for name in "ab":
        world.ask(name)
    assert world.told == [(name, ((name,), None, None), True) for name in "ab"]


def test_one_small_one_is_alone_and_two_that_wait_for_different_forwards_are_not() -> None:
    world = World()
    world.ask("a", EARLY)
    world.joint.go()
    world.ask("b", EARLY)
    world.ask("c", LATE)
    world.joint.go()
    assert world.told == [
        ("a", (("a",), "stream", EARLY), True), ("b", (("b",), "stream", EARLY), False),
        ("c", (("c",), "stream", LATE), False),
    ]  # fmt: skip


def test_what_waits_for_the_same_goes_together_though_the_next_waits_for_another() -> None:
    world = World()
    for name, after in (("a", EARLY), ("b", EARLY), ("c", LATE), ("d", EARLY)):
        world.ask(name, after)
    world.joint.go()
    assert [how for _, how, _ in world.told] == [
        *[(("a", "b"), "stream", EARLY)] * 2, (("c",), "stream", LATE), (("d",), "stream", EARLY)
    ]  # fmt: skip


@pytest.mark.parametrize("joins", [True, False])
def test_of_those_that_cannot_go_together_each_goes_alone_and_who_is_at_fault_fails(joins: bool) -> None:
    world = World(joins=joins)
    world.broken.add("b")
    for name in "abc":
        world.ask(name, LATE)
    world.joint.go()
    assert world.told == [
        ("a", (("a",), "stream", LATE), False), ("c", (("c",), "stream", LATE), False)
    ]  # fmt: skip
    failed = [("launch", ("b",), Cause.KERNEL_FAILED, "ValueError: planted"), "no b"]
    assert world.failed == failed
    world.ask("b", small=False)
    assert world.failed == failed * 2 and len(world.told) == 2
