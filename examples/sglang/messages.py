"""Messages: what an instance of SGLang is started with, asked and answers, through a pipe."""

from __future__ import annotations

import msgspec

#: the side of an instance that does both
WHOLE = "whole"
#: of all instances on one host
LOOPBACK = "127.0.0.1"


class Start(msgspec.Struct):
    """How one is started."""

    side: str
    tp: int
    port: int
    backend: str
    bootstrap: int
    model: str
    folder: str
    page_size: int = 16
    environment: dict[str, str] = {}
    digests: bool = False
    #: ranks of data-parallel attention, each of `tp` ranks
    data_parallel: int = 1
    #: pipeline stages, each of `tp` ranks
    stages: int = 1
    #: "cpu" or "cuda", and the GPU of its first rank
    device: str = "cpu"
    first_gpu: int = 0
    #: whether some of its ranks share a GPU
    crowded: bool = False
    #: how much longer prompts are than on a CPU
    scale: int = 1
    #: of weights, activations and KV
    dtype: str = "float32"
    #: the folder of an EAGLE head that drafts
    draft: str = ""
    #: how many requests are computed at once
    running: int = 16
    #: its address, and the file of its secret key if that is beyond loopback
    address: str = LOOPBACK
    keys: str = ""

    @property
    def ranks(self) -> int:
        """Processes that it has."""
        return self.tp * self.data_parallel * self.stages


class Request(msgspec.Struct):
    """What is asked: a prompt to be continued."""

    rid: str
    prompt: list[int]
    tokens: int
    room: int
    bootstrap: int
    #: the prefill instance's address
    address: str = LOOPBACK
    #: the data-parallel rank of the prefill instance, as a router tells it to the decode instance
    told: int | None = None
    #: whether the log probabilities of its tokens are asked for
    weighed: bool = False


class Answer(msgspec.Struct):
    """`error`: why there are not all tokens; `first_s`: seconds from the asking to the first token.

    `logs`: the log probability of each token, and `lead` by how much each is ahead of the next best, if weighed.
    """

    rid: str
    tokens: list[int] = []
    error: str = ""
    seconds: float = 0.0
    first_s: float = 0.0
    logs: list[float] = []
    lead: list[float] = []
    #: forwards in which drafts were verified
    verified: int = 0
