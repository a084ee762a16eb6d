"""Lock that fences: leases end unnoticed, so the storage refuses writes under an older one."""

from collections.abc import Iterable
from sys import modules
from typing import Any

from msgspec.structs import replace

from kvproto import fsm
from kvproto.verify import framework

SERVICE, STORAGE, NAMES = 0, 1, ("service", "storage", "A", "B")


class L(fsm.State):
    """A lock at the service."""

    FREE, HELD = range(2)


class C(fsm.State):
    """A lock at a client."""

    IDLE, ASKED, HELD = range(3)


class G(fsm.State):
    """A lock at the storage."""

    UNUSED, GUARDED = range(2)


class Acquire(fsm.Body, tag="ACQUIRE", frozen=True):
    """I want the lock."""

    lock: fsm.U64


class Grant(fsm.Message, tag="GRANT", frozen=True):
    """You have it; no later lease has a smaller token."""

    lock: fsm.U64
    token: fsm.U64


class Write(fsm.Message, tag="WRITE", frozen=True):
    """Store this, under this token."""

    lock: fsm.U64
    token: fsm.U64


class Wanted(fsm.Event, frozen=True):
    """The application wants to write under the lock."""

    lock: int


class Asked(fsm.Event, frozen=True):
    """A client wants the lock."""

    lock: int
    peer: int


class TimerFired(fsm.TimerFired, frozen=True):
    """A lease is over, or a client asks again."""

    lock: int
    tries: int


class Store(fsm.Effect, frozen=True):
    """Store what was written under this token."""

    lock: int
    token: int


class Timing(fsm.Timers, frozen=True):
    """The time of a lease, and the time before a client asks again."""

    lease: fsm.Timer = fsm.Timer(5.0)
    resend: fsm.Timer = fsm.Timer(0.2)


class Lease(fsm.Value, frozen=True):
    """At the service: the holder, and its token."""

    holder: int = 0
    token: int = 0


class Newest(fsm.Value, frozen=True):
    """At the storage: the largest token."""

    token: int = 0


# fmt: off
def its_own(v: Lease, e: Asked, now: float) -> bool: return v.holder == e.peer
def lend(v: Lease, e: Asked, now: float) -> Lease: return replace(v, holder=e.peer, token=v.token + 1)
def grant(v: Lease, e: Asked) -> fsm.Output: return fsm.Transmit(e.peer, Grant(e.lock, v.token))
def ask(v: fsm.Value, e: Wanted | TimerFired) -> fsm.Output: return fsm.Transmit(SERVICE, Acquire(e.lock))
def write(v: fsm.Value, e: Grant) -> fsm.Output: return fsm.Transmit(STORAGE, Write(e.lock, e.token))
def is_older(v: Newest, e: Write, now: float) -> bool: return e.token < v.token
def keep(v: Newest, e: Write, now: float) -> Newest: return replace(v, token=e.token)
def store(v: Newest, e: Write) -> fsm.Output: return Store(e.lock, e.token)


service = fsm.Table("service", Lease, L, initial=L.FREE, timers={L.HELD: "lease"})
service.opens(L.FREE,     Asked,      L.HELD, let=lend, do=(grant,))
service.row(L.HELD,       Asked,      when=its_own, do=(grant,))
service.ignore(L.HELD,    Asked,      "another client has it, and this one asks again")
service.row(L.HELD,       TimerFired, L.FREE)
client = fsm.Table("client", fsm.Value, C, initial=C.IDLE, timers={C.ASKED: "resend"})
client.opens(C.IDLE,      Wanted,     C.ASKED, do=(ask,))
client.row(C.ASKED,       TimerFired, do=(ask,))
client.row(C.ASKED,       Grant,      C.HELD, do=(write,))
client.ignore((C.IDLE, C.HELD), Grant, "it comes twice")
client.refuse((C.ASKED, C.HELD), Wanted, "it is wanted already")
storage = fsm.Table("storage", Newest, G, initial=G.UNUSED)
storage.opens(G.UNUSED,   Write,      G.GUARDED, let=keep, do=(store,))
storage.ignore(G.GUARDED, Write,      "a later lease has written", when=is_older)
storage.row(G.GUARDED,    Write,      let=keep, do=(store,))
# fmt: on

TABLES, MESSAGES = (service, client, storage), (Acquire, Grant, Write)
ROUTES = to_service, to_client, to_storage = tuple(fsm.Routes(table.name, MESSAGES) for table in TABLES)
to_service.route(Acquire, to=Asked)
to_client.route(Grant)
to_storage.route(Write)
for routes in ROUTES:
    routes.drop(MESSAGES, why="messages for others")
TELLING = fsm.Telling(TABLES, Timing, lambda: framework.digest_of(TABLES, ROUTES), (modules[__name__],), fsm.Body)
LOCK = framework.Protocol(
    name="fencing lock", tables=TABLES, timing=Timing(), digest=TELLING.digest, telling=f"{__name__}:TELLING",
    sources=framework.Sources(TABLES, ROUTES, engine=(Wanted,)), checker=f"{__name__}:CHECKER",
    claims="examples.fencing_lock.claims:CLAIMS",
)  # fmt: skip


class TwoClients(framework.Scenario):
    """Two clients write under one lock; each party has what it wanted or stored around it."""

    first: tuple[int, ...] = ()

    def party(self, number: int) -> fsm.Member:
        at = (0, 2, 1)[min(number, 2)]
        party = fsm.Member(number, dict(enumerate(NAMES)), Timing(), ROUTES[at])
        party.add("locks", TABLES[at], lambda event: event.lock, bound=1 << 20)
        return party

    def act(self, number: int, around: tuple[int, ...], effect: Any) -> tuple[tuple[int, ...], None]:
        return (*around, effect.token), None

    def calls(self, number: int, around: tuple[int, ...]) -> Iterable[framework.ApplicationCall]:
        if number > STORAGE and not around:
            yield framework.ApplicationCall("want lock 1", (1,), Wanted(1))

    def broken(self, views: list[framework.View]) -> tuple[str, str] | None:
        stored = views[STORAGE].around
        return None if list(stored) == sorted(stored) else ("order", f"the storage goes back in time: {stored}")

    def unrest(self, views: list[framework.View]) -> tuple[str, str] | None:
        asks = [view.name for view in views[2:] if C.ASKED in {each.state for each in view.machines("locks")}]
        return ("end", f"{asks[0]} never has the lock") if asks else None


LATE = framework.Chances(drop=1, duplicate=1, early=2, about="messages are lost, late, repeated")
CHECKER = framework.WorldChecker({"late": lambda: TwoClients(NAMES, LATE)})
