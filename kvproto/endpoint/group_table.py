"""Group table: the life of a prefill group at a decode rank, from `connect` until nothing is left.

The states of its links are in `decode_link`, and `ready` reads them there.  This table has what no link knows: the plan
and the addresses of the engine's last `connect`, why a rank has no link, and whether the engine wants the group at all.

Each `connect` has a number.  Kernels and look-ups take seconds, and the engine may call `connect` or `disconnect`
meanwhile: the result of an earlier call changes nothing.  A group that the engine has let go of stays until its last
link is forgotten, and may be called again until then.  A group without links that the engine wants stays, too, so that
`ready` can say why.  When the endpoint is closed nothing is kept, so what a helper has prepared meanwhile calls nobody.

The table is local to one side: no message depends on it, so it is no part of the digest.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.vocabulary import Effect, Event, Internal, State
from kvproto.protocol.kinds import Rank, RankMask


class Group(State):
    """A prefill group at a decode rank."""

    #: it is not connected
    NEW = 0
    #: kernels are compiled and names looked up, or the loop has yet to take the result
    PREPARING = 1
    #: the loop is calling its ranks
    CALLING = 2
    #: all ranks are called; a link is up, or will be, or it is known why not
    CALLED = 3
    #: no link is left, although the engine wants the group
    UNLINKED = 4
    #: the engine has let go of it, and links are left
    LEFT = 5
    #: nothing of it is left
    GONE = 6


class Destination(msgspec.Struct, frozen=True):
    """The plan and the addresses of a `connect`, also with numbers for names; rows pass it on."""

    plan: Any = None
    named: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()


class GroupValue(Value, frozen=True):
    """The engine's last `connect`, and the links that its calls have made."""

    #: number of the call, and what it has named
    call: int = 0
    to: Destination = Destination()
    #: prefill ranks with a link, those that must do without one (masks), and why the last of these must
    links: RankMask = 0
    unlinked: RankMask = 0
    why: str = ""


V = GroupValue


# --------------------------------------------------------------------------------------------- events
class ConnectCalled(Event, frozen=True):
    """The engine has called `connect`; `call`: the number of the call."""

    group: int
    call: int
    to: Destination


class DisconnectCalled(Event, frozen=True):
    """The engine has called `disconnect`, or too many groups have no link."""

    group: int


class CloseCalled(Event, frozen=True):
    """The engine closes the endpoint: the rank takes leave of all links."""

    group: int


class GroupPrepared(Event, frozen=True):
    """Kernels and addresses for a call are there, or `why` not; `ranks`: mask of those to call."""

    group: int
    call: int
    to: Destination
    ranks: RankMask
    why: str


class RanksCalled(Event, frozen=True):
    """The loop has called the ranks."""

    group: int


class NameFound(Event, frozen=True):
    """The name of an unanswered rank was looked up again; `moved`: its link leads to another address."""

    group: int
    call: int
    to: Destination
    rank: Rank
    moved: bool


class LinkEnded(Event, frozen=True):
    """The link to this prefill rank was forgotten, or could not be made."""

    group: int
    rank: Rank
    why: str


# -------------------------------------------------------------------------------------------- effects
class Prepare(Effect, frozen=True):
    """Compile the kernels, look up the names, and raise `GroupPrepared` on the loop."""

    group: int
    call: int
    to: Destination


class CallRanks(Effect, frozen=True):
    """Call these ranks (a mask), and raise `RanksCalled`."""

    group: int
    to: Destination
    ranks: RankMask


class LeaveRanks(Effect, frozen=True):
    """Let go of all links to the group."""

    group: int


class TellUnlinked(Effect, frozen=True):
    """Log that a rank that the engine wants has no link, or (`left`) one that it has let go of."""

    group: int
    rank: Rank
    why: str
    left: bool


class KeepUnlinked(Internal, frozen=True):
    """Keep the group for `ready`; if there are too many without a link, drop the oldest."""


# fmt: off
def earlier(v: V, e: GroupPrepared | NameFound, now: float) -> bool: return e.call != v.call
def prepared(v: V, e: GroupPrepared, now: float) -> bool: return not e.why
def linked(v: V, e: Event, now: float) -> bool: return bool(v.links)
def last(v: V, e: LinkEnded, now: float) -> bool: return not v.links & ~(1 << e.rank)
def moved(v: V, e: NameFound, now: float) -> bool: return e.moved and not v.unlinked >> e.rank & 1
def name(v: V, e: ConnectCalled, now: float) -> V: return GroupValue(v.state, call=e.call, to=e.to, links=v.links)
def call(v: V, e: GroupPrepared, now: float) -> V: return replace(v, to=e.to, links=v.links | e.ranks)
def fail(v: V, e: GroupPrepared, now: float) -> V: return replace(v, unlinked=e.ranks, why=e.why)
def follow(v: V, e: NameFound, now: float) -> V: return replace(v, to=e.to)
def unlink(v: V, e: LinkEnded, now: float) -> V: return replace(v, links=v.links & ~(1 << e.rank))
def blame(v: V, e: LinkEnded, now: float) -> V:
    return replace(v, links=v.links & ~(1 << e.rank), unlinked=v.unlinked | 1 << e.rank, why=e.why)
def drop(v: V, e: CloseCalled, now: float) -> V: return GroupValue(v.state)
def prepare(v: V, e: ConnectCalled) -> Output: return Prepare(e.group, v.call, v.to)
def call_all(v: V, e: GroupPrepared) -> Output: return CallRanks(e.group, v.to, e.ranks)
def call_again(v: V, e: NameFound) -> Output: return CallRanks(e.group, v.to, 1 << e.rank)
def leave(v: V, e: DisconnectCalled) -> Output: return LeaveRanks(e.group)
def tell_unlinked(v: V, e: LinkEnded) -> Output: return TellUnlinked(e.group, e.rank, e.why, left=False)
def tell_left(v: V, e: LinkEnded) -> Output: return TellUnlinked(e.group, e.rank, e.why, left=True)
def keep(v: V, e: GroupPrepared | RanksCalled | LinkEnded) -> Output: return KeepUnlinked()


decode_group = Table(
    "decode_group", GroupValue, Group, initial=Group.NEW, final=(Group.GONE,), timers={},
    events=(ConnectCalled, DisconnectCalled, CloseCalled, GroupPrepared, RanksCalled, NameFound, LinkEnded),
    success_path=(Group.NEW, Group.PREPARING, Group.CALLING, Group.CALLED, Group.LEFT, Group.GONE),
    failure_states=(Group.UNLINKED,),
)
opens, row, ignore, refuse = decode_group.opens, decode_group.row, decode_group.ignore, decode_group.refuse
G = Group
#: the engine has called `connect`, and the loop has yet to call the ranks
PENDING = G.PREPARING, G.CALLING

opens(G.NEW,         ConnectCalled,    G.PREPARING, let=name, do=(prepare,))
row((*PENDING, G.CALLED, G.UNLINKED, G.LEFT), ConnectCalled, G.PREPARING, let=name, do=(prepare,))
ignore(G.PREPARING,  GroupPrepared,    "the engine has called `connect` again since", when=earlier)
row(G.PREPARING,     GroupPrepared,    G.CALLING,   when=prepared, let=call, do=(call_all,))
row(G.PREPARING,     GroupPrepared,    G.CALLED,    when=linked, let=fail)
row(G.PREPARING,     GroupPrepared,    G.UNLINKED,  let=fail, do=(keep,))
row(G.CALLING,       RanksCalled,      G.CALLED,    when=linked)
row(G.CALLING,       RanksCalled,      G.UNLINKED,  do=(keep,))
ignore(G.CALLED,     NameFound,        "the engine has called `connect` again since", when=earlier)
row(G.CALLED,        NameFound,                     when=moved, let=follow, do=(call_again,))

row(G.PREPARING,     LinkEnded,                     let=unlink, do=(tell_unlinked,))
row(G.CALLING,       LinkEnded,                     let=blame, do=(tell_unlinked,))
row(G.CALLED,        LinkEnded,        G.UNLINKED,  when=last, let=blame, do=(tell_unlinked, keep))
row(G.CALLED,        LinkEnded,                     let=blame, do=(tell_unlinked,))
row(PENDING,         DisconnectCalled, G.LEFT,      when=linked, do=(leave,))
row(G.CALLED,        DisconnectCalled, G.LEFT,      do=(leave,))
row((*PENDING, G.UNLINKED), DisconnectCalled, G.GONE)
row((*PENDING, G.CALLED, G.UNLINKED, G.LEFT), CloseCalled, G.GONE, let=drop)
row(G.LEFT,          LinkEnded,        G.GONE,      when=last, let=unlink, do=(tell_left,))
row(G.LEFT,          LinkEnded,                     let=unlink, do=(tell_left,))

ignore((G.NEW, G.CALLING, G.CALLED, G.UNLINKED, G.LEFT), GroupPrepared, "an earlier call's, or the group was let go")
ignore((G.NEW, G.PREPARING, G.CALLED, G.UNLINKED, G.LEFT), RanksCalled, "an earlier call's, or a single rank's")
ignore(G.CALLED,     NameFound,        "it is where it was, was forgotten meanwhile, or must not be called")
ignore((G.NEW, G.PREPARING, G.CALLING, G.UNLINKED, G.LEFT), NameFound, "nobody is called, or soon at other addresses")
refuse((G.NEW, G.LEFT), DisconnectCalled, "the engine has let go of it, or never called it")
ignore(G.NEW,        CloseCalled,      "nothing is kept of it")
ignore(G.NEW,        LinkEnded,        "the endpoint is closed")
refuse(G.UNLINKED,   LinkEnded,        "it has no link")
# fmt: on
