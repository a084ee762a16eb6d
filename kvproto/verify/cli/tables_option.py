"""Tables option: `--tables MODULE:NAME` names the protocol that a command is about."""

from __future__ import annotations

import argparse

from kvproto.fsm.errors import ArgumentError
from kvproto.verify.framework.protocol import Protocol, named

KV, OWN = "kvproto.verify.claims.kv:KV", "kvproto"
HELP = "a protocol of your own, as docs/own_protocol.md makes one (default: this project's)"


def add_tables(parser: argparse.ArgumentParser) -> None:
    """The option; `args.tables` is a `Protocol`."""
    parser.add_argument("--tables", type=_protocol, default=KV, metavar="MODULE:NAME", help=HELP)


def add_place(parser: argparse.ArgumentParser) -> None:
    """The option for commands that hand the protocol to other processes: `args.tables` is its place."""

    def place(text: str) -> str:
        _protocol(text)
        return text

    parser.add_argument("--tables", type=place, default=KV, metavar="MODULE:NAME", help=HELP)


def is_own(protocol: Protocol) -> bool:
    """Tell whether this is the transfer's protocol, about which some commands know more."""
    return protocol.name == OWN


def _protocol(place: str) -> Protocol:
    try:
        return named(place, Protocol)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
