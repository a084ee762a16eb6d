"""Samples: values and events for every pair of a table, and what the rows say about them.

`expected` is the meaning of a table without any compiling: the first row of the pair whose guard holds.  The compiled
step is judged against it.
"""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from kvproto.fsm.table import Output, Row, Table, Value
from kvproto.fsm.vocabulary import Event, Report, State
from kvproto.layout.cut import NO_CUT, Cut
from kvproto.layout.sharding import LayoutError
from kvproto.protocol.events import NO_BUILD, Claim, PeerBuild, Target, Terms
from kvproto.protocol.states import Cause, PRoom
from kvproto.protocol.tables.decode_room import DecodeWork as DWork
from kvproto.protocol.tables.prefill_room import PrefillWork as PWork
from kvproto.protocol.tables.prefill_room import RequestFacts

TERMS = Terms(group=2, everyone=0b11, writes=0b11, aux=0b01, chunk_tokens=8, window=2)
IDLE = Terms(group=2, everyone=0b11, writes=0, aux=0, chunk_tokens=8, window=2)
CUT = Terms(group=2, everyone=0b11, writes=0b11, aux=0b01, chunk_tokens=8, window=2, layer_groups=2)
OTHERS = Terms(group=3, everyone=0b01, writes=0b01, aux=0b01, chunk_tokens=8, window=2)

#: by the name of a field: what it may hold
POOL: dict[str, tuple[Any, ...]] = {
    "room": (7,), "chunk": (0, 1, 2), "peer": (0, 1), "terms": (TERMS, CUT, IDLE, IDLE, OTHERS), "tokens": (8, 20, 24),
    "prefix": (0, 4, 20), "cause": tuple(Cause), "ready": (False, True), "grant": (0, 5, 6),
    "offset": (0, 256), "round": (0, 1, 2), "end": (256, 512), "usable": (False, True), "lease": (0.0, 50.0, 200.0),
    "pages": (False, True, b"", b"\0\0\0\0"), "slot": (0, 1), "settled": (False, True), "writers": (0b01, 0b11),
    "session": (1, 2, 3), "epoch": (11, 12), "fault": ("", "no"), "quiet": (False, True), "why": ("", "no"),
    "tail": (0, 256), "tries": (0, 1, 2, 3), "busy": (False, True), "data": (b"row",), "produced": (0, 8, 20),
    "peers": (0, 1, 2, 3), "next": (0, 1, 2, 3), "live": (0, 1, 2, 3), "aux": (False, True), "owned": (False, True),
    "done": (0, 1, 3, 7), "kv": (False, True), "asked": (0, 1, 3), "arrived": (0, 1, 2, 3), "by_pages": (0, 1, 2, 3),
    "silent": (0, 1, 2, 3), "longest": (0, 0, 2, 9), "nonce": (0, 1, 2, 3), "replaced": (False, True),
    "beside": ("", "there"), "trial": (0, 1, 2), "answered": (False, True), "later": (False, True),
    "lives": (False, True), "mark_round": (0, 1), "mark_tail": (0, 256), "window": (1, 2),
    "native_notify": (False, True), "closed": (False, True), "acked": (False, True), "told": (False, True),
    "until": (50.0, 200.0), "begin_by": (50.0, 200.0), "flying": (0, 1, 2), "last": (False, True),
    "place": (b"", b"here"), "address": ("", "here"), "wire": ("", "wire"), "rank": (0, 1),
    "claim": (*[Claim()] * 6, Claim(2, b"word"), Claim(3)), "secret": (b"", b"", b"", b"word"),
    "leaving": (False, True), "heard": (False, True), "mark": (0, 1), "full": (False, True),
    "landed": (False, True), "traceparent": (b"", b"", b"00-1"), "in_doubt": (0, 1, 2, 3), "untold": (0, 1, 2, 3),
    "anew": (False, False, True), "ahead": (0, 8, 20), "layers": (0, 1, 2), "layer_groups": (1, 2),
    "within": (0.0, 0.0, 5.0), "first": (0.0, 1.0, 90.0), "queued": (False, True), "again": (False, True),
    "staged_cost": (0.0, 1.0), "pages_cost": (0.0, 1.0), "pages_extra_s": (0.0, 0.0, 98.0),
    "cut": (NO_CUT, Cut(0, 8), Cut(8, 8, 1, 2)), "link": (1, 2),
    "to": (Target(), Target(1, 11, Cut(0, 8)), Target(2, 12, Cut(8, 8, 1, 2))),
    "unsent": (False, True), "early": (False, True), "over": (False, True),
    "life": (0, 1, 2), "rival": (0, 1, 2, 3), "rival_place": (b"", b"there"), "doubted": (False, True),
    "build": (NO_BUILD, PeerBuild(3, "layout:1", "announce")),
    "runs": (0, 1), "facts": (*[RequestFacts()] * 4, *map(RequestFacts, (Claim(2, b"word"), Claim(3)), (b"", b"00-1"))),
}  # fmt: skip
NOW = 100.0
#: states in which a room's terms may be unknown
EARLY = (PRoom.UNKNOWN, PRoom.AWAIT_PEERS)


def _fill(kind: type[Any], random: Random, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    return {name: random.choice(POOL[name]) for name in kind.__struct_fields__ if name not in skip}


def value_in(table: Table[Any], state: State, random: Random) -> Any:
    """Some value of the table in this state; the initial state has one only."""
    if state is table.initial:
        return table.value(state)
    skip: tuple[str, ...] = ("state", "due", "work") + (("pages",) if "kv" in table.value.__struct_fields__ else ())
    fields = _fill(table.value, random, skip)
    if "terms" in fields:
        known = not any(state is early for early in EARLY) or random.random() < 0.5
        fields["terms"] = random.choice((TERMS, TERMS, IDLE)) if known else None
        fields["work"] = _work(table, random) if random.random() < 0.9 else None
        fields["prefix"] = min(fields["prefix"], fields["tokens"])
    return table.value(state, due=NOW, **fields)


def _work(table: Table[Any], random: Random) -> Any:
    kind: type[Any] = PWork if table.name == "prefill_room" else DWork
    return kind(**_fill(kind, random))


def event_of(kind: type[Event], random: Random) -> Event:
    """Some event of this kind."""
    made = kind(**_fill(kind, random))
    tokens, prefix = getattr(made, "tokens", 0), getattr(made, "prefix", 0)
    return replace(made, prefix=tokens) if prefix > tokens else made


def expected(table: Table[Any], value: Value, event: Event) -> tuple[Row, Any, tuple[Output, ...]] | None:
    """Return (row, value without timer, effects) by the rows alone; None: this value has no such event."""
    try:
        for row in table.rows:
            if row.source is value.state and row.event is type(event) and (not row.when or row.when(value, event, NOW)):
                if row.verb != "row":
                    return row, value, ()
                new = row.let(value, event, NOW) if row.let else value
                new = replace(new, state=row.target) if row.target is not row.source else new
                return row, new, tuple(build(new, event) for build in row.do)
    except (AssertionError, LayoutError, ValueError, TypeError):
        return None
    raise AssertionError(f"{table.name}: nobody decides {event} in {value.state.name}")


def is_report(effects: tuple[Output, ...], row: Row) -> bool:
    """Exactly one report, with the row's reason."""
    return len(effects) == 1 and isinstance(effects[0], Report) and effects[0].why == row.why
