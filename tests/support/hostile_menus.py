"""Hostile menus: every message, answer and call of a hostile peer, each field from a small menu.

Kinds are not listed here: messages are those of the routes, answers and calls those of the protocol's sources.  A kind
with a field that no menu has is an error, so what is added to the protocol is said here, too, or somebody has to say
how.  What the codec would not let through is not said: on the wire it is no message.

An entry of a menu is a value, or a function of the rank and of the link that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.fsm.codec import WireError
from kvproto.fsm.vocabulary import Event
from kvproto.layout.sharding import Layout
from kvproto.protocol.codec import decode, encode
from kvproto.protocol.events import NO_BUILD, Claim, EngineOpened, RoomOpened
from kvproto.protocol.messages import AUX_CHUNK, OLDEST, VERSION, Hello, LinkBody, Message, Welcome
from kvproto.protocol.states import Cause
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings
from kvproto.verify.check.config import CHUNK_TOKENS, Config
from kvproto.verify.claims.sources import SOURCES

Menu = dict[str, Sequence[Any]]
#: makes the message or event, of the rank and the number of the link
Make = Callable[[Any, int], Any]


def session(by: int) -> Make:
    """The link's session, and `by` more."""
    return lambda rank, link: max(0, rank.links.get(link, rank.link_machine.initial).session + by)


def grant_of(chunk: int) -> Make:
    """The region that the chunk has on a decode rank; 0: none."""
    return lambda rank, _: next((parts[chunk].grant for parts in rank.grants.values() if chunk in parts), 0)


def menu(config: Config, *, decode: bool) -> Menu:
    """By the name of a field: what it may hold."""
    tokens, prefix = config.tokens, config.prefix
    return {
        "room": config.keys, "chunk": (*range(config.chunks), 60, AUX_CHUNK), "prefix": (prefix,),
        "tokens": tuple(dict.fromkeys((0, prefix, prefix + CHUNK_TOKENS, tokens, tokens + CHUNK_TOKENS))),
        "cause": (Cause.NONE, Cause.STALLED, Cause.DECODE_ABORTED),
        "grant": (0, *(grant_of(chunk) for chunk in range(config.chunks)), 77) if decode else (1,),
        "offset": (0,), "round": (0, 1), "end": (256,), "mark_round": (0,), "mark_tail": (0,), "tail": (0, 1, 256),
        "pages": (b"\0\0\0\0",), "data": (b"row",), "settled": (False, True), "last": (False, True),
        "runs": (0,), "layer_groups": (1, 2), "again": (False, True), "ahead": (0, tokens), "layers": (0, 1),
        "version": (VERSION,), "digest": ("other:build",), "epoch": (7,), "oldest": (OLDEST, VERSION + 1),
        "agreements": ("",), "capabilities": ("unknown",), "build": (NO_BUILD,),
        "chunk_tokens": (CHUNK_TOKENS,),
        "session": (session(0), session(1), session(-1)), "endpoint": (b"",), "placement": (None,),
        "within": (0.0, 5.0), "anew": (False, True), "why": ("no",), "wire": ("wire",),
        "secret": (b"", b"word"), "traceparent": (b"",), "claim": (Claim(), Claim(DECODE_GROUP, b"word")),
        "lease": (Settings().timing.lease.period,), "address": ("P0", "elsewhere"),
        "asked": (0.0, 2.0**40), "queued": (False, True), "early": (False, True), "quiet": (False, True),
        "fault": ("", "no"), "later": (False, True), "lives": (False, True), "nonce": (0, 1),
        "to_group": (0, 77), "to_rank": (0,), "blame": (None,),  # it is taken off before a rank hears the message
        "terms": (lambda rank, _: next(peer.terms for peer in rank.peers.values()),),
    }  # fmt: skip


def wider(layout: Layout) -> Layout:
    """The layout of a group that has started anew with twice the ranks."""
    return replace(layout, tp=2 * layout.tp)


def messages(config: Config, fields: Menu, rank: int) -> Iterator[tuple[type[Any], Make]]:
    """Every message on the wire; `rank`: the sender, who may call in the name of any rank of its group."""
    decode, prefill = config.decode_layout, config.prefill_layout
    fields = {**fields, "chunk": tuple(chunk for chunk in fields["chunk"] if chunk != AUX_CHUNK)}
    own: dict[type[Any], Menu] = {
        Hello: {"group": (DECODE_GROUP,), "rank": range(config.decodes + 1), "layout": (decode, wider(decode))},
        Welcome: {"group": (PREFILL_GROUP,), "rank": (rank,), "layout": (prefill, wider(prefill))},
    }
    for kind in SOURCES.routes[0].messages:
        yield from ((kind, make) for make in made(kind, fields | own.get(kind, {})))


def well_formed(body: Message) -> bool:
    """Whether it is a message on the wire."""
    try:
        decode(encode(0, 0 if isinstance(body, LinkBody) else 1, body))
    except WireError:
        return False
    return True


def answers_and_calls(tables: tuple[Any, ...], fields: Menu) -> Iterator[tuple[type[Event], Menu]]:
    """The answers that handlers may give to machines of these tables, and the calls that engines may make.

    Lengths that an endpoint refuses reach no rank.
    """
    kinds = {event for events in SOURCES.answers.values() for event in events} | set(SOURCES.engine)
    heard = {event for table in tables for event in table.events}
    opened = tuple(tokens for tokens in fields["tokens"] if tokens >= max(1, *fields["prefix"]))
    own: dict[type[Any], Menu] = {RoomOpened: {"tokens": opened}, EngineOpened: {"tokens": opened}}
    for kind in sorted(kinds & heard, key=lambda kind: kind.__name__):
        yield kind, fields | own.get(kind, {})


def made(kind: type[msgspec.Struct], fields: Menu) -> Iterator[Make]:
    """Every combination of the fields' menus."""
    for chosen in product(*(fields[name] for name in kind.__struct_fields__)):
        yield _late(kind, chosen) if any(callable(each) for each in chosen) else _fixed(kind(*chosen))


def _fixed(said: Any) -> Make:
    return lambda _rank, _link: said


def _late(kind: type[Any], chosen: tuple[Any, ...]) -> Make:
    return lambda rank, link: kind(*(each(rank, link) if callable(each) else each for each in chosen))
