"""Tables option: `--tables MODULE:NAME` names the protocol that a command is about."""

from __future__ import annotations

import argparse

from kvproto.fsm.errors import ArgumentError
from kvproto.verify.framework.protocol import Protocol, named

KV = "kvproto.verify.claims.kv:KV"


def add_tables(parser: argparse.ArgumentParser) -> None:
    """The option; `args.tables` is a `Protocol`."""
    parser.add_argument(
        "--tables", type=_protocol, default=KV, metavar="MODULE:NAME",
        help="a protocol of your own, as docs/own_protocol.md makes one (default: this project's)",
    )  # fmt: skip


def _protocol(place: str) -> Protocol:
    try:
        return named(place, Protocol)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
