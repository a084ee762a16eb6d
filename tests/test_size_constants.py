"""Every bound of the running code lies between two sizes, each for a reason.

A bound that is off by a hundred times fails no behaviour test, since these set it small: it shows as memory that grows,
as a pass that takes too long, or as work that is done again.  The table is by hand; a new constant has no row.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from support import fake_vllm

fake_vllm.install()  # the constants of vLLM's adapter stand in modules that import vLLM

PACKAGE = Path(__file__).parent.parent / "kvproto"
FOLDERS = ("adapters", "data", "endpoint", "io/kernels", "layout", "loop", "rank")
#: beside those folders; the other files of theirs have numbers of a form, which other tests know
FILES = tuple(f"io/transports/{name}.py" for name in ("memory", "mooncake", "nixl", "twin_writes"))
#: it imports SGLang, and names no whole number
LEFT_OUT = {"adapters/sglang/facts.py"}
#: by module and name: the least and the most, and why
BOUNDS: dict[str, tuple[int, int, str]] = {
    "adapters.card.MAX_TEXT": (1 << 14, 1 << 20, "a card with the addresses of as many ranks as a group may have"),
    "adapters.card.MAX_ADDRESS": (128, 1024, "a host name has 253 characters at most"),
    "adapters.card.MAX_DATA_PARALLEL": (256, 1 << 14, "as many groups are derived from one card"),
    "adapters.card.U48": (1 << 48, 1 << 48, "an incarnation on the wire"),
    "adapters.card.U64": (1 << 64, 1 << 64, "a group on the wire"),
    "adapters.card_trust.SHORTEST": (16, 32, "bytes of a secret that nobody guesses"),
    "adapters.card_trust.INSTANCES": (32, 4096, "links and plans that requests can make a decode rank hold"),
    "adapters.sglang.bootstrap.KEPT": (256, 1 << 16, "cards of a decode rank; each is kilobytes"),
    "adapters.sglang.bootstrap.ASKERS": (4, 64, "threads; servers that do not answer hold one for seconds"),
    "adapters.sglang.bootstrap.DIGITS": (4, 9, "of a data-parallel rank"),
    "adapters.sglang.http_server.CONNECTIONS": (64, 4096, "descriptors of an engine's process"),
    "adapters.sglang.http_server.HEAD": (1 << 13, 1 << 16, "bytes; of each connection as many are held"),
    "adapters.sglang.http_server.DIGITS": (6, 9, "of the length of a body, which is compared with its bound"),
    "adapters.sglang.room_directory.MOST": (512, 1 << 15, "rooms of one report: some tens of kilobytes"),
    "adapters.sglang.room_directory.ALL": (1 << 13, 1 << 20, "rooms of an instance that are under way"),
    "adapters.sglang.windows.SLACK": (16, 256, "tokens by which pages of both sides may differ; each travels"),
    "adapters.vllm.ranks.CHUNK_TOKENS": (128, 4096, "a forward's worth of tokens, or less"),
    "adapters.vllm.ranks.RING": (1 << 27, 1 << 33, "bytes of the device's memory beside the pool"),
    "adapters.vllm.router_answers.PIECE": (1 << 12, 1 << 20, "bytes of a stream that are held a client"),
    "adapters.vllm.router_answers.LONGEST_WORD": (24, 64, "bytes of a word that a piece's end may cut in two"),
    "adapters.vllm.router.LONGEST": (1 << 24, 1 << 30, "bytes of a request with images"),
    "data.device_alarm.MOST": (2, 64, "the driver holds a pipe for each"),
    "data.end_pages.WORD": (4, 4, "bytes of a page number in messages"),
    "data.gathers.AHEAD": (2, 8, "one runs and one is ready; more take slots from other rooms"),
    "data.launches.TOGETHER": (2, 64, "one kernel's arguments; a single launch costs as much as several small ones"),
    "data.mapped_pages.MOST_SLOTS": (1 << 12, 1 << 22, "slots whose numbers are kept on a device, 4 bytes each"),
    "data.mapped_parts.LONG": (1 << 24, 1 << 30, "bytes whose gain is worth what copy engines cost the host"),
    "data.page_writes.CUTS": (32, 4096, "byte runs of a page, kept for a part"),
    "data.peer_tables.BLOCK": (1 << 16, 1 << 22, "bytes on the device; hundreds of tables share what a block costs"),
    "data.peer_tables.MOST": (1 << 12, 1 << 16, "bytes that the driver takes from memory that is not page-locked"),
    "data.peer_tables.ALIGN": (16, 256, "bytes that a kernel may read at once"),
    "data.prefill_data.READY": (64, 256, "stores of one forward's batch; as many launches are kept as there may be"),
    "data.prefill_data.WHOLE": (100, 100, "per cent"),
    "data.prepared_launches.KEPT": (64, 4096, "slots and regions; each holds arguments on the host"),
    "data.room_entry.FEW": (8, 256, "an array's operations cost as much as so many numbers"),
    "data.room_entry.MARKS": (16, 1024, "forwards of a room that may be under way; each holds an event"),
    "data.staged_writes.SMALL": (1 << 14, 1 << 21, "bytes that take the wire no longer than a post takes"),
    "data.staging_buffers.PARTS": (512, 1 << 16, "parts of a buffer, each a view"),
    "data.writes.BUDGET": (1024, 1 << 17, "pieces of one pass: tens of milliseconds"),
    "data.writes.TOGETHER": (2, 64, "small writes of one moment; more wait for the last of them"),
    "endpoint.engine_news.PENDING": (256, 1 << 16, "events that an engine may be behind; each is an object"),
    "endpoint.explain.NAMED": (2, 16, "names in a sentence that is still read"),
    "endpoint.host_pool.PERCENT": (2, 50, "per cent of the multiprocessors, which forwards want"),
    "endpoint.prefill_groups.STEPS": (4, 256, "each holds a plan, also of a group that is gone"),
    "endpoint.resume_point.MAX_TEXT": (1 << 20, 1 << 24, "characters of digests of 100,000 heads"),
    "endpoint.validation.MOST_TOKENS": ((1 << 32) - 1, (1 << 32) - 1, "what a message can say"),
    "io.kernels.batch.RUN_TIME_ARGUMENTS": (15, 15, "as many as the kernel takes"),
    "io.kernels.batch.CELL_ARGUMENTS": (34, 34, "as many as the kernel takes for a cell"),
    "io.kernels.batch.MAX_ROWS": (256, 4096, "rows of a tile; registers hold them"),
    "io.kernels.batch.MAX_UNITS": (1 << 30, (1 << 31) - 1, "the kernel counts units in 32 bits"),
    "io.kernels.cache_pool.ANY_PAGE": (1 << 32, 1 << 32, "a page number on the wire"),
    "io.kernels.digest.SPREAD": (16, 16, "both sides' digests are compared"),
    "io.kernels.digest.FACTOR_1": (0x9E3779B97F4A7C15, 0x9E3779B97F4A7C15, "both sides' digests are compared"),
    "io.kernels.digest.FACTOR_2": (0xBF58476D1CE4E5B9, 0xBF58476D1CE4E5B9, "both sides' digests are compared"),
    "io.kernels.digest.WORD_DOMAIN": (1 << 32, 1 << 32, "both sides' digests are compared"),
    "io.kernels.digest.KIND_STEP": (1 << 24, 1 << 24, "both sides' digests are compared"),
    "io.kernels.digesting.ROOMS": (128, 1 << 14, "rooms that an engine has not asked about; each holds a table"),
    "io.kernels.engine_pages.LEAST": (1 << 17, 1 << 22, "bytes that a copy engine moves in the time of one call"),
    "io.kernels.engine_pages.TOGETHER": (8, 256, "copies of one call, which holds up the next one"),
    "io.kernels.flat_batch.RUN_TIME_ARGUMENTS": (14, 14, "as many as the kernel takes"),
    "io.kernels.page_digests.SCRATCH": (1 << 23, 1 << 28, "bytes beside the pool; fewer are not worth a launch"),
    "io.kernels.pool.ORIGIN": (4096, 4096, "both sides count the rows of a window from its multiples: digests compare"),
    "io.kernels.tile.MAX_PARTS": (8, 8, "parts of a tile; the kernel has arguments for each"),
    "io.kernels.triton.WHOLE": (100, 100, "per cent"),
    "io.transports.memory.MAX_TAG": (8192, 8192, "what NIXL takes, so that a tag of tests is one"),
    "io.transports.mooncake.MAX_DESCS": (1 << 15, 1 << 20, "descriptors of one write: tens of megabytes"),
    "io.transports.mooncake.MAX_INFLIGHT_DESCS": (1 << 17, 1 << 20, "descriptors that a peer's writes hold"),
    "io.transports.mooncake.MAX_TAG": (8192, 8192, "what NIXL takes"),
    "io.transports.mooncake.SUBMITS_A_POLL": (8, 128, "each takes some 10 us of a pass"),
    "io.transports.mooncake.WINDOW": (128, 2048, "requests that the engine has at a time"),
    "io.transports.nixl.MAX_DESCS": (1 << 17, 1 << 21, "descriptors of one write: tens of megabytes"),
    "io.transports.nixl.MAX_INDEX": ((1 << 31) - 1, (1 << 31) - 1, "NIXL counts with 32 bits"),
    "io.transports.nixl.MAX_INFLIGHT_DESCS": (1 << 16, 1 << 19, "descriptors: posting one takes 3 us of the loop"),
    "io.transports.nixl.MAX_TAG": (8192, 8192, "bytes of one eager fragment"),
    "io.transports.twin_writes.PAGE": (4096, 4096, "bytes that the agent copies beside the copy engine"),
    "layout.agreement.MAX_CHUNK_TOKENS": ((1 << 32) - 1, (1 << 32) - 1, "no room has more"),
    "layout.byte_runs_numpy.BATCH": (512, 1 << 16, "runs at a time, in arrays that fit a cache"),
    "layout.caches.MAX_CACHES": (4, 64, "a model's caches in one page table"),
    "layout.caches.MAX_CACHE_PARTS": (4, 64, "tensors of one cache"),
    "layout.caches.MAX_NAME": (16, 256, "a name in a handshake"),
    "layout.caches.MAX_STATE_GROUPS": (8, 256, "chunks of a room's state, each a launch, a write and a notification"),
    "layout.caches.MOST_WINDOW": (1 << 20, 1 << 26, "tokens of the longest window"),
    "layout.caches.WIDEST": (8, 32, "bytes of the widest element"),
    "layout.placement.MAX_PLANES": (1 << 14, 1 << 20, "planes of one rank; a peer makes us compute as many"),
    "layout.plan.PARTS": (512, 1 << 16, "parts that a plan keeps"),
    "layout.plan.PART_ALIGNMENT": (256, 256, "both sides lay regions out by it"),
    "layout.sharding.DEFAULT_CHUNK_TOKENS": (1024, 1 << 16, "tokens a cell where the prefill side is not chunked"),
    "layout.sharding.MAX_RANKS": (64, 4096, "ranks of a group; a peer makes us compute as many"),
    "loop.event_loop.DEAF": (4, 1024, "passes without descriptors, until it is said"),
    "loop.event_loop.EVERY": (2, 64, "passes between looks at what is seldom there"),
    "loop.event_loop.LIMIT": (32, 4096, "inputs of one pass: milliseconds"),
    "loop.party_loop.MAX_FRAME": (1 << 12, 1 << 20, "bytes of a message of a small protocol"),
    "loop.party_loop.REPORTS": (16, 1 << 14, "reports that nobody has read"),
    "loop.rank_loop.CALLS": (3, 64, "a rank calls twice a second"),
    "rank.base.BESIDE": (12, 12, "a code, compared with others"),
    "rank.base.CURRENT": (8, 8, "a code, compared with others"),
    "rank.base.CUTS": (128, 1 << 14, "terms of rooms that are live, shared by them"),
    "rank.base.OUTSIDER": (2, 2, "a code, compared with others"),
    "rank.base.STALE": (4, 4, "a code, compared with others"),
    "rank.prefill.BATCH": (16, 512, "rooms of one forward's batch; all would take a pass"),
    "rank.prefill.OLDEST": (4, 256, "rooms that are looked at for the next gathers; all would take a pass"),
    "rank.prefill_links.ESTIMATES": (32, 1 << 13, "a link's; there may be thousands of links"),
    "rank.prefill_links.KEPT": (1 << 10, 1 << 18, "lengths and claims of live rooms, shared by them"),
    "rank.room_turns.LARGER": (2, 16, "every so many turns are a larger room's: not every one, and not never"),
}  # fmt: skip


def constants() -> Iterator[str]:
    """Module and name of each whole number above one that is assigned at the top of a module."""
    paths = {PACKAGE / name for name in FILES}
    for path in sorted(paths.union(*((PACKAGE / folder).rglob("*.py") for folder in FOLDERS))):
        if path.relative_to(PACKAGE).as_posix() in LEFT_OUT:
            continue
        module = import_module("kvproto." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts))
        for node in ast.parse(path.read_text()).body:
            if isinstance(getattr(node, "value", None), ast.Call):
                continue  # it follows from others
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for name in (each for target in targets if target for each in ast.walk(target)):
                if isinstance(name, ast.Name) and name.id.isupper() and is_bound(vars(module)[name.id]):
                    yield f"{module.__name__.removeprefix('kvproto.')}.{name.id}"


def is_bound(value: object) -> bool:
    """Tell bounds from zero and one, which number things."""
    return type(value) is int and value > 1


def test_every_bound_has_a_row() -> None:
    assert sorted(constants()) == sorted(BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_lies_between_two_sizes(name: str) -> None:
    module, _, constant = name.rpartition(".")
    least, most, why = BOUNDS[name]
    assert least <= getattr(import_module(f"kvproto.{module}"), constant) <= most, why
