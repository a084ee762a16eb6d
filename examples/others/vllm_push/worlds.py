"""What is searched of vLLM's push connector, and what has to hold there, stated once.

* S1: a write lands only in blocks that its request has.
* S4: what is written is read from blocks that the prefill engine still keeps for the request.
* S12: the block of each place in the prompt has the contents of that place.
* L1: every request ends at its decode engine, whatever happens to the prefill engine.
* L3: a request whose two engines live is written, whatever others wait for.

Messages between two engines arrive in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from examples.others.vllm_push.parties import KNOWN, Decode, Prefill
from examples.others.vllm_push.tables import (
    Allocated,
    Blocks,
    BlocksHeld,
    D,
    DecodeAborted,
    Landed,
    Mends,
    PrefillAborted,
    PromptFinished,
    SourceFreed,
    Wrote,
)
from kvproto.fsm.party import Member
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.verify.framework.scenario import ApplicationCall, Chances, Scenario, View
from kvproto.verify.framework.world_tale import WorldChecker

PROPERTIES = ("S1", "S4", "S12", "L1", "L3")
LENGTH = 2


class Around(msgspec.Struct, frozen=True):
    """What applications did, which requests have blocks here, and what broke."""

    did: tuple[tuple[str, int], ...] = ()
    held: tuple[int, ...] = ()
    freed: tuple[int, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()


class Push(Scenario):
    """A prefill engine `P0` and decode engines; each request is of the decode engine that `requests` names."""

    def __init__(
        self, names: tuple[str, ...], requests: dict[int, int], asks: tuple[str, ...] = PROPERTIES, *,
        chances: Chances | None = None, wants: Blocks = (0, 1), abort: str = "", mends: Mends = frozenset(),
        about: str = "",
    ) -> None:  # fmt: skip
        """`wants`: the places of a prompt of two blocks that decode has not in its prefix cache; `abort`: which sides
        (of "PD") may give a request up.
        """
        chances = replace(chances or Chances(), net="fifo", about=about, live=bool({"L1", "L3"} & {*asks}))
        super().__init__(names, chances)
        self.requests, self.asks, self.wants, self.abort, self.mends = requests, asks, wants, abort, mends

    def around(self, number: int) -> Around:
        """Nothing yet."""
        del number
        return Around()

    def start(self, number: int, around: Around, life: int, now: float) -> tuple[Member, list[Effect]]:
        """Decode engines have allocated their blocks."""
        del around, life
        names = dict(enumerate(self.names))
        if not number:
            return Prefill(number, names, self.mends), []
        party, effects = Decode(number, names, self.mends), list[Effect]()
        for request, decode in self.requests.items():
            effects += party.handle(Allocated(request, 0, self.wants), now) if decode == number else []
        return party, effects

    def calls(self, number: int, around: Around) -> Iterable[ApplicationCall]:
        """Prompts are computed; engines may give requests up."""
        for request, decode in self.requests.items():
            found: list[tuple[str, Event]] = []
            if not number:
                found.append(("has computed the prompt", PromptFinished(request, LENGTH)))
                found += [("gives the request up", PrefillAborted(request))] if "P" in self.abort else []
            elif number == decode and "D" in self.abort:
                found.append(("gives the request up", DecodeAborted(request)))
            for word, event in found:
                if not any(done[1] == request for done in around.did):
                    did = replace(around, did=(*around.did, (word, request)))
                    yield ApplicationCall(f"{word} (request {request})", did, event)

    def act(self, number: int, around: Around, effect: Effect) -> tuple[Around, None]:
        """Blocks, and what is in them."""
        match effect:
            case BlocksHeld(request, held):
                return replace(
                    around, held=(*(r for r in around.held if r != request), *((request,) if held else ()))
                ), None
            case SourceFreed(request):
                return replace(around, freed=tuple(sorted({*around.freed, request}))), None
            case Wrote(request):
                text = f"request {request} is written from blocks that {self.names[number]} has given back"
                return (self._wrong(around, "S4", text) if request in around.freed else around), None
            case Landed(request, source, target):
                if request not in around.held:
                    return self._wrong(
                        around, "S1", f"request {request} is written into blocks that it has given back"
                    ), None
                other = next(((s, t) for s, t in zip(source, target, strict=True) if s != t), None)
                if other is not None:
                    text = f"request {request}: the block of place {other[1]} gets the contents of place {other[0]}"
                    return self._wrong(around, "S12", text), None
                return around, None
        raise AssertionError(effect)

    @staticmethod
    def _wrong(around: Around, name: str, text: str) -> Around:
        return replace(around, wrong=(*around.wrong, (name, text)))

    def broken(self, views: list[View]) -> tuple[str, str] | None:
        """The first of the properties that are asked for here and that does not hold."""
        wrong = [each for view in views for each in view.around.wrong]
        return next((each for each in wrong if each[0] in self.asks), None)

    def unrest(self, views: list[View]) -> tuple[str, str] | None:
        """No decode engine waits."""
        alive = views[0].values is not None
        done = {request for _, request in views[0].around.did}
        for view in views[1:]:
            for request, value in (view.values or {}).get("requests", {}).items():
                if value.state in (D.REGISTERED, D.HELD):
                    text = f"request {request} stays {value.state.name} at {view.name}"
                    if "L3" in self.asks and alive and request in done:
                        return "L3", text
                    if "L1" in self.asks:
                        return "L1", text
        return None


ONE, TWO = ("P0", "D0"), ("P0", "D0", "D1")
Made = Callable[..., Push]


def _of(*args: Any, **fields: Any) -> Made:
    def make(mends: Mends = frozenset(), asks: tuple[str, ...] = ()) -> Push:
        names, requests, own = args
        return Push(names, requests, asks or own, mends=mends, **fields)

    return make


WORLDS: dict[str, Made] = {
    "C1": _of(ONE, {1: 1}, ("S1",), abort="PD", about="decode or prefill gives up"),
    "C3": _of(ONE, {1: 1}, ("S12",), wants=(1,), about="the first block of two is in decode's prefix cache"),
    "L1": _of(ONE, {1: 1}, ("L1",), abort="P", chances=Chances(crash=1, restart=False),
              about="prefill gives up, or an engine dies"),
    "S2": _of(TWO, {1: 2, 2: 1}, ("L3",), chances=Chances(crash=1, restart=False),
              about="two decode engines, and an engine dies"),
    "V5": _of(ONE, {1: 1}, ("S4",), chances=Chances(early=1), about="a timer ends although messages are under way"),
}  # fmt: skip
MENDS: dict[str, Mends] = {name: frozenset({name}) for name in KNOWN}
EVERY = frozenset(KNOWN)
#: what a world is not asked with every mend, and why
EXCEPT: dict[str, tuple[tuple[str, ...], str]] = {
    "V5": (("S1",), "L1's mend takes silence for death, and here a timer may end before the answer comes"),
}


class PushChecker(WorldChecker):
    """Worlds of vLLM's push connector."""

    first = "C1"


CHECKER = PushChecker(WORLDS)
MENDED = PushChecker({name: partial(make, EVERY) for name, make in WORLDS.items()})
