"""Data parallel: the guide's commands of vLLM, with a prefill instance of several data-parallel ranks.

`vllm serve --data-parallel-size 2` is one process for clients and two engines behind it.  kvproto's router gets such an
instance once a rank, as the guide says, and the header by which it names a rank is the only thing that leads a request
to the rank of its card.  A request that came to the other one would be answered all the same: the decode instance would
wait, and compute the prompt itself.  So the prefill instance's own counts have to tell that each rank has sent KV, and
the decode instance's that no room has failed.
"""

from __future__ import annotations

import re
from collections import Counter

from examples.engine_runs.clients import Clients, Row

#: of vLLM's Prometheus endpoint: a counter of kvproto's, by data-parallel rank
COUNTED = re.compile(r'^vllm:kvproto_(\w+)_total\{.*?engine="(\d+)".*\} (\S+)$', re.MULTILINE)
#: of a command: an instance's port; of the router's: a prefill instance and its card
PORT, ENTRY = re.compile(r"--port (\d+)"), re.compile(r"--prefill \S+ --card \S+")


def of_ranks(commands: list[str], ranks: int) -> list[str]:
    """Return the commands of prefill, decode and router, with so many data-parallel ranks at prefill."""
    prefill, decode, router = commands
    (entry,) = ENTRY.findall(router)
    each = " ".join(f"{entry}_dp{rank}" for rank in range(ranks))
    return [f"{prefill} --data-parallel-size {ranks}", decode, router.replace(entry, each)]


def counts(text: str) -> dict[str, Counter[str]]:
    """Return kvproto's counts of an instance's metrics, by name and rank."""
    found: dict[str, Counter[str]] = {}
    for name, rank, count in COUNTED.findall(text):
        found.setdefault(name, Counter())[rank] += int(float(count))
    return found


def judged(prefill: str, decode: str, ranks: int) -> Row:
    """Judge both instances' metrics: each rank has sent KV, all of which came."""
    ours, theirs = counts(prefill), counts(decode)
    sent = [ours.get("sent", Counter())[str(rank)] for rank in range(ranks)]
    received, failed = (theirs.get(name, Counter()).total() for name in ("received", "failed"))
    note = f"rooms of each rank: {', '.join(map(str, sent))}; at decode {received}, and {failed} failed"
    return Row("KV of each data-parallel rank", min(sent) > 0 and received > 0 and not failed, 0.0, note)


async def shared(clients: Clients, commands: list[str], ranks: int) -> Row:
    """Ask both instances for their counts, and judge them."""
    ports = [PORT.findall(command)[0] for command in commands[:2]]
    sides = [Clients(f"http://127.0.0.1:{port}", clients.model, clients.session, clients.whole) for port in ports]
    prefill, decode = [(await side.get("/metrics"))[1] for side in sides]
    return judged(prefill, decode, ranks)
