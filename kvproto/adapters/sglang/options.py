"""Options of kvproto in SGLang: JSON in the environment variable `KVPROTO_SGLANG`.

    KVPROTO_SGLANG='{"transport": "mooncake", "ring_bytes": 268435456}'

A decode instance takes the chunk size from the card of the prefill instance that it calls.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from kvproto.adapters.card_trust import INSTANCES, CardTrust
from kvproto.adapters.renamed_options import rename_options
from kvproto.errors import ArgumentError
from kvproto.io.transports.base import Transport
from kvproto.layout.sharding import DEFAULT_CHUNK_TOKENS
from kvproto.protocol.timing import Timing
from kvproto.room import Outcome
from kvproto.settings import Route, Settings

NAME = "KVPROTO_SGLANG"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every choice, with what holds where nothing is said."""

    transport: Literal["nixl", "mooncake"] = "nixl"
    #: prefill: tokens a chunk, whole pages of both sides (0: as many as SGLang computes of a prompt at a time)
    chunk_tokens: int = 0
    ring_bytes: int = 1 << 30
    slots: int = 4
    #: how KV travels, as `Settings` has them
    route: Route = "cost"
    costs: str = ""
    #: the secret file of this process (`kvproto keys`), and whether to do without one beyond loopback
    keys: str = ""
    insecure: bool = False
    #: the file of the card secret, the networks that ranks of cards may be in, and how many prefill instances requests
    #: may introduce to a decode rank (`adapters.card_trust`)
    card_secret: str = ""
    card_networks: tuple[str, ...] = ()
    card_instances: int = INSTANCES
    #: the instance's name, the same on all of its ranks and no other instance's (empty: its host and port)
    name: str = ""
    #: folders: for the traces of rooms that fail, for the digests of what is moved (for tests: it waits for the device)
    traces: str = ""
    digests: str = ""
    #: whether the rank is judged as it runs, by its tables and what is claimed of them; what it breaks is logged
    conformance: bool = False

    @classmethod
    def read(cls) -> Self:
        """Read the options from the environment; ArgumentError names what is wrong."""
        try:
            given = msgspec.json.decode(os.environ.get(NAME, "{}"), type=dict[str, Any])
            return msgspec.convert(rename_options(given, NAME), cls)
        except msgspec.MsgspecError as error:
            known = ", ".join(cls.__struct_fields__)
            raise ArgumentError(f"{NAME}: {error}; it is JSON with any of {known}") from error

    def chunk_tokens_of(self, page_size: int, chunk: int) -> int:
        """Return the tokens of a chunk, for this page size and forwards of at most `chunk` tokens (0: any)."""
        return self.chunk_tokens or max(1, (chunk if chunk > 0 else DEFAULT_CHUNK_TOKENS) // page_size) * page_size

    def settings(self, timing: Timing) -> Settings:
        return Settings(
            timing=timing, ring_bytes=self.ring_bytes, slots=self.slots, route=self.route, costs=self.costs
        )

    def trust(self) -> CardTrust:
        """Return what cards must show; ArgumentError names what is wrong with the options."""
        return CardTrust.read(self.card_secret, self.card_networks, self.card_instances)

    def make_transport(self, host: str) -> Transport:
        """Make this rank's transport; BackendUnavailable: the library is missing, or does not start."""
        if self.transport == "mooncake":
            from kvproto.io.transports.mooncake import MooncakeTransport

            return MooncakeTransport(host, protocol=os.environ.get("MOONCAKE_PROTOCOL", "rdma"))
        from kvproto.io.transports.nixl import NixlTransport

        return NixlTransport()

    def keep_digests(self, endpoint: Any, outcome: Outcome, rank: str) -> None:
        """Append what this rank moved of a room to its file, if that is wanted."""
        if self.digests and outcome.ok:
            made = [[*place, number] for place, number in endpoint.digests(outcome.room).items()]
            with (Path(self.digests) / f"{rank}.jsonl").open("ab") as file:
                file.write(msgspec.json.encode({"room": outcome.room.id, "digests": made}) + b"\n")
